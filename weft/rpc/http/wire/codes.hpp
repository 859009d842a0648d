#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <weft/rpc/core/status.hpp>

namespace weft::rpc::http::wire {

/// Connect's names, which are gRPC's but for "canceled".
std::string_view connect_name(code c) noexcept;
std::optional<code> code_from_connect(std::string_view name) noexcept;
/// The HTTP status of a failed unary call.
std::uint16_t connect_http_status(code c) noexcept;
/// What an HTTP status means for a call, when nothing better is known: the table gRPC and Connect
/// share.
code code_from_http(std::uint16_t status) noexcept;
/// The same with what came instead of an answer, which tells a proxy's page from a server's word.
status status_from_http(std::uint16_t status, std::string_view content_type);

}  // namespace weft::rpc::http::wire
