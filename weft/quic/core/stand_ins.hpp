// Internal.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <weft/base/address.hpp>

namespace weft::quic::core::detail {

/// Addresses by which the library knows a peer's real ones.
///
/// The library keeps the congestion window when only a peer's port changed. When that window is
/// full of packets that went to the old port, PATH_CHALLENGE finds no room in it; and once the
/// amplification limit has cancelled the loss timer, nothing is ever sent again but
/// acknowledgements. A path whose address is new begins with a new window (RFC 9000 §9.4 allows
/// that for a new port, too). So to get out of it, the peer's address is made to look new.
class stand_ins {
 public:
  /// Where the peer must have lost a whole window as often as this, no path leads.
  static constexpr std::size_t most = 16;

  bool empty() const noexcept { return real_.empty(); }
  /// From now on `remote` goes by another name. False when it had `most` of them.
  bool rename(const address& remote) {
    if (real_.size() >= most) return false;
    real_.push_back(remote);
    return true;
  }
  /// The latest name of `remote`; itself if it has none.
  address name_of(const address& remote) const noexcept {
    const auto found = std::find(real_.rbegin(), real_.rend(), remote);
    if (found == real_.rend()) return remote;
    return name(static_cast<std::uint8_t>(real_.rend() - found - 1), remote.port());
  }
  /// The real address behind any name that was ever given.
  address real(const address& named) const noexcept {
    const std::size_t number = named.bytes()[15];
    if (number >= real_.size() || named != name(static_cast<std::uint8_t>(number), named.port()))
      return named;
    return real_[number];
  }

 private:
  /// In a block from which nothing can arrive (RFC 6666), with a scope that no interface has.
  static address name(std::uint8_t number, std::uint16_t port) noexcept {
    std::array<std::uint8_t, 16> bytes{0x01, 0x00};
    bytes[15] = number;
    return address::ipv6(bytes, port, UINT32_MAX);
  }

  std::vector<address> real_;  // by number
};

}  // namespace weft::quic::core::detail
