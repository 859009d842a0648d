#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <weft/rpc/core/payload.hpp>
#include <weft/rpc/core/status.hpp>

namespace weft::rpc {

/// Per-message compression; numbers are those of docs/specs/native.md.
enum class compression : std::uint8_t { identity = 0, gzip = 1, zstd = 2, br = 3 };

std::string_view to_string(compression algorithm) noexcept;  ///< "gzip"
/// By the names HTTP has for them (RFC 9110 §8.4.1, RFC 7932, RFC 8878).
std::optional<compression> compression_from_name(std::string_view name) noexcept;
/// Every algorithm this build can do.
std::vector<compression> available_compressions();

/// Compresses one message. Contexts are reused per thread.
result<slice> compress(compression algorithm, bytes message);
/// Decompresses one message; resource_exhausted, before allocating more, when it would exceed
/// `limit`; internal when the bytes are not what they claim. An empty input is an empty message.
result<slice> decompress(compression algorithm, const payload& message, std::size_t limit);

}  // namespace weft::rpc
