#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <weft/udp/socket.hpp>
#include <weft/udp/socket_address.hpp>

namespace weft::udp {

/// Takes trains from a socket into memory of its own, which is touched for the first time before
/// the first datagram and used again from then on.
class receiver {
 public:
  receiver(const address& bound, bool multi_message, bool errors_queue, udp::counters& counts);

  result<std::size_t> receive(int descriptor, std::size_t max_datagrams,
                              const std::function<void(const train&)>& on_train);
  /// Ends a `receive` in progress after the train in hand.
  void stop() noexcept { stopped_ = true; }
  /// Empties the socket's queue of what became of earlier datagrams. `receive` does it when it
  /// meets an error.
  void read_errors(int descriptor);
  std::vector<address> take_refusals() noexcept { return std::exchange(refusals_, {}); }

 private:
  /// Never less than what one call can deliver, or trains would be cut.
  static constexpr std::size_t slot_bytes = std::size_t{64} << 10;
  static constexpr std::size_t max_slots = 32;
  /// Enough trains a call when they are large: more would only push each other out of the cache.
  static constexpr std::size_t max_large_slots = 8;
  static constexpr std::size_t large_train = std::size_t{8} << 10;
  /// Two, so that one call for a lone datagram also finds that there are no more.
  static constexpr std::size_t min_slots = 2;
  static constexpr std::size_t control_bytes = 256;

  struct free_memory {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  struct alignas(cmsghdr) control {
    std::array<std::byte, control_bytes> bytes;
  };

  int collect(int descriptor, std::size_t slots);
  void prepare(std::size_t slots);
  std::size_t deliver(std::size_t slot, const std::function<void(const train&)>& on_train);
  void read_control(msghdr& header, train& t);
  void adapt(std::size_t asked, std::size_t got, std::size_t bytes) noexcept;

  const address bound_;
  const bool multi_message_;
  const bool errors_queue_;  ///< IP_RECVERR
  udp::counters& counts_;
  std::unique_ptr<std::byte, free_memory> memory_;
  std::size_t touched_slots_ = 0;
  std::size_t slots_ = min_slots;
  std::uint32_t kernel_drops_ = 0;
  bool stopped_ = false;
  std::vector<address> refusals_;
  std::array<mmsghdr, max_slots> headers_;
  std::array<iovec, max_slots> pieces_;
  std::array<socket_address, max_slots> names_;
  std::array<control, max_slots> controls_;
};

}  // namespace weft::udp
