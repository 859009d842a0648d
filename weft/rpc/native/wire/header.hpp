#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <weft/base/time.hpp>
#include <weft/rpc/core/metadata.hpp>
#include <weft/rpc/core/status.hpp>
#include <weft/rpc/native/wire/registry.hpp>
#include <weft/rpc/native/wire/varint.hpp>

// Contents of HEADER and STATUS frames (docs/specs/native.md §5). `encoded_size` counts and
// `encode` writes the whole frame, type and length included.

namespace weft::rpc::native::wire {

/// How a request names its method. `number` 0: by path only. With both: by path, and asking the
/// server to know it by the number from now on.
struct method_reference {
  std::uint64_t number = 0;
  std::string_view path{};
};

/// A request header to send. Refers to its parts.
struct request_header {
  method_reference method;
  std::optional<duration> remaining{};  ///< until the deadline; negative counts as zero
  std::uint8_t urgency = 3;
  const rpc::metadata* metadata = nullptr;
};

std::size_t encoded_size(const request_header& header) noexcept;
std::byte* encode(const request_header& header, std::byte* target) noexcept;

/// A request header that arrived. `method.path` points into the bytes it was decoded from.
struct received_request {
  method_reference method;
  std::optional<duration> remaining{};
  std::uint8_t urgency = 3;
  rpc::metadata metadata{};
};

/// errc::malformed or errc::too_large. `content` is the frame's payload.
weft::result<received_request> decode_request(bytes content, std::size_t max_metadata);

std::size_t encoded_size_of_headers(const rpc::metadata& headers) noexcept;
std::byte* encode_headers(const rpc::metadata& headers, std::byte* target) noexcept;
weft::result<rpc::metadata> decode_headers(bytes content, std::size_t max_metadata);

/// A refusal that says that the call was not looked at, so that it may be made elsewhere. Its
/// status' details are left out.
std::size_t encoded_size_of_refusal(const status& s) noexcept;
std::byte* encode_refusal(const status& s, std::byte* target) noexcept;

/// OK without trailers takes two bytes.
std::size_t encoded_size(const status& s, const rpc::metadata& trailers) noexcept;
std::byte* encode(const status& s, const rpc::metadata& trailers, std::byte* target) noexcept;
/// `s` cut so that its frame fits a peer that allows `max_metadata`: details go first, then text.
status fitted(status s, const rpc::metadata& trailers, std::size_t max_metadata);

struct received_status {
  rpc::status status;
  rpc::metadata trailers{};
  bool unseen = false;
};
weft::result<received_status> decode_status(bytes content, std::size_t max_metadata);

}  // namespace weft::rpc::native::wire
