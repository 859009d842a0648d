#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <weft/base/time.hpp>

// Remaining time as it travels. Rounded up when sent, so that a server does not give up before its
// client does; what is past counts as the shortest time there is.

namespace weft::rpc::http::wire {

/// `grpc-timeout`: at most eight digits and a unit.
std::string grpc_timeout(duration remaining);
std::optional<duration> parse_grpc_timeout(std::string_view text) noexcept;

/// `connect-timeout-ms`: at most ten digits.
std::string connect_timeout(duration remaining);
std::optional<duration> parse_connect_timeout(std::string_view text) noexcept;

}  // namespace weft::rpc::http::wire
