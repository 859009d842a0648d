// Internal.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <weft/base/address.hpp>

namespace weft::quic::core::detail {

/// Other names of addresses, by which the library takes an old path for a new one.
///
/// Its congestion window can fill with packets that are lost and for which no timer runs: those of
/// an unproven path whose amplification limit cancelled it, and lost PATH_RESPONSEs, which start
/// none. What would free the window then finds no room in it, PATH_CHALLENGE included, and nothing
/// but acknowledgements is ever sent again. A path with a new address begins with a new window
/// (RFC 9000 §9.4 allows that for any change of path). So to get out of it, an address is made to
/// look new: a server's peer's, or a client's own.
class stand_ins {
 public:
  /// Where a whole window was lost as often as this, no path leads.
  static constexpr std::size_t most = 16;

  bool empty() const noexcept { return real_.empty(); }
  /// From now on `which` goes by another name. False when there were `most` of them.
  bool rename(const address& which) {
    if (real_.size() >= most) return false;
    real_.push_back(which);
    return true;
  }
  void undo() noexcept { real_.pop_back(); }
  /// The latest name of `which`; itself if it has none.
  address name_of(const address& which) const noexcept {
    const auto found = std::find(real_.rbegin(), real_.rend(), which);
    if (found == real_.rend()) return which;
    return name(static_cast<std::uint8_t>(real_.rend() - found - 1), which.port());
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
