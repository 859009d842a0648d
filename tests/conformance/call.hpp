#pragma once

#include <weft/rpc/client.hpp>

#include "connectrpc/conformance/v1/client_compat.pb.h"

namespace weft::conformance {

namespace v1 = connectrpc::conformance::v1;

/// Makes the call that `wanted` describes over `via`. Both must outlive the task.
task<v1::ClientResponseResult> make_call(io::shard& shard, rpc::caller& via,
                                         const v1::ClientCompatRequest& wanted);

}  // namespace weft::conformance
