#pragma once

#include <string>

#include <weft/rpc/host/channel.hpp>

namespace weft::app {

/// `why` connecting failed, with what was wanted, what else answers at the target, and what to try.
/// Asks by connections over which no call is made, and which check nobody.
task<rpc::status> diagnose(io::shard& shard, std::string target, rpc::channel_options wanted,
                           rpc::status why);

}  // namespace weft::app
