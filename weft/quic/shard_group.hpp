#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include <weft/base/address.hpp>
#include <weft/base/slice.hpp>

namespace weft::quic {

namespace detail {
class endpoint_state;
}

/// What the endpoints of one server share, one per shard, all on one port: a datagram that the
/// kernel gave to the wrong shard (a client has moved, or its NAT has rebound it) is handed to the
/// one its connection id names. They need the same `endpoint_options::secret`. Thread-safe.
class shard_group {
 public:
  struct counters {
    std::uint64_t forwarded = 0;
    std::uint64_t dropped = 0;  ///< the other shard was too far behind
  };
  counters stats() const;

 private:
  friend class detail::endpoint_state;

  struct letter {
    path from;
    ecn mark = ecn::not_ect;
    std::vector<std::byte> datagram;
  };
  struct member {
    std::function<void()> wake;  ///< called by any thread, once until the letters are taken
    std::vector<letter> letters;
    std::size_t bytes = 0;
  };

  /// False when `shard` has joined already.
  bool join(std::uint8_t shard, std::function<void()> wake);
  /// `wake` is not called any more.
  void leave(std::uint8_t shard) noexcept;
  /// False when there is no such member; otherwise the datagram is dealt with.
  bool forward(std::uint8_t shard, const path& from, ecn mark, bytes datagram);
  std::vector<letter> take(std::uint8_t shard);

  /// A shard this far behind is better served by loss, which its peers understand.
  static constexpr std::size_t most_waiting = std::size_t{1} << 20;

  mutable std::mutex mutex_;
  std::array<std::optional<member>, 256> members_;
  counters counters_;
};

}  // namespace weft::quic
