#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <weft/rpc/core/metadata.hpp>
#include <weft/rpc/core/status.hpp>

// Connect's errors and ends of streams as JSON. Unknown keys, `debug` included, are ignored.

namespace weft::rpc::http::wire {

/// {"code":"not_found","message":"…","details":[{"type":"…","value":"…"}]}.
std::string error_to_json(const status& failure);
/// Nothing when it is no JSON object. Without a code that is known, the code is `otherwise`.
std::optional<status> error_from_json(std::string_view text, code otherwise);

struct stream_end {
  rpc::status status;
  metadata trailers;
};

/// {"error":{…},"metadata":{"k":["v"]}}.
std::string end_to_json(const status& outcome, const metadata& trailers);
/// Nothing when it is no JSON object, or its metadata is none.
std::optional<stream_end> end_from_json(std::string_view text);

}  // namespace weft::rpc::http::wire
