#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include <weft/quic/core/options.hpp>

namespace weft::quic::core {

/// Length of every connection id we issue: the shard's byte, masked, then 7 random bytes.
inline constexpr std::size_t connection_id_size = 8;
using connection_id = std::array<std::uint8_t, connection_id_size>;

/// How an id hides its shard: `shard = id[0] ^ ((w ^ add) * multiply >> 24)`, where `w` is the
/// big-endian 32-bit number at `id[1]`, in 32-bit arithmetic. Simple on purpose: a packet filter
/// that steers datagrams computes it too. It keeps observers from reading the shard or linking two
/// ids by it; it protects nothing else.
struct connection_id_mask {
  std::uint32_t add = 0;
  std::uint32_t multiply = 1;

  /// The mask that all endpoints with this `endpoint_options::secret` use.
  static connection_id_mask derive(std::span<const std::uint8_t, 32> secret);

  std::uint8_t shard_of(std::span<const std::uint8_t, connection_id_size> id) const noexcept {
    return id[0] ^ pad(id);
  }
  /// Writes the shard into an otherwise random id.
  void hide(connection_id& id, std::uint8_t shard) const noexcept { id[0] = shard ^ pad(id); }

 private:
  std::uint8_t pad(std::span<const std::uint8_t, connection_id_size> id) const noexcept {
    const std::uint32_t word = std::uint32_t{id[1]} << 24 | std::uint32_t{id[2]} << 16 |
                               std::uint32_t{id[3]} << 8 | std::uint32_t{id[4]};
    return static_cast<std::uint8_t>((word ^ add) * multiply >> 24);
  }
};

/// Where the destination connection id of a datagram stands, if one of ours may: for steering.
std::optional<std::span<const std::uint8_t, connection_id_size>> destination_of(bytes datagram);

}  // namespace weft::quic::core
