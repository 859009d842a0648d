#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <weft/rpc/core/payload.hpp>

namespace weft::rpc::http::wire {

/// What a content type says of how messages travel.
enum class form : std::uint8_t {
  connect_unary,   ///< application/proto, application/json
  connect_stream,  ///< application/connect+proto
  grpc,            ///< application/grpc, application/grpc+proto
  grpc_web,        ///< application/grpc-web+proto
  grpc_web_text,   ///< application/grpc-web-text+proto
};

struct media_type {
  wire::form form;
  std::optional<rpc::codec> codec;  ///< nothing: one that is not known here
};

/// Nothing for what none of the protocols uses. Letters of either case; parameters are ignored.
std::optional<media_type> parse_media_type(std::string_view content_type) noexcept;
/// "application/grpc+proto".
std::string_view to_string(form f, rpc::codec c) noexcept;

}  // namespace weft::rpc::http::wire
