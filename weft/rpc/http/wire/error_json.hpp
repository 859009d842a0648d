#pragma once

#include <cstddef>
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
/// Fails with `internal` when it is no JSON object, or its metadata is none; with
/// `resource_exhausted` when that comes to more than `max_metadata` bytes.
result<stream_end> end_from_json(std::string_view text, std::size_t max_metadata = 16 * 1024);

}  // namespace weft::rpc::http::wire
