#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace weft::quic::core::detail {

using key = std::array<std::uint8_t, 32>;

/// A key for one purpose: HMAC-SHA-256(secret, purpose).
key derive_key(std::span<const std::uint8_t, 32> secret, std::string_view purpose);

}  // namespace weft::quic::core::detail
