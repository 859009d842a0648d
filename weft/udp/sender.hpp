#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <weft/udp/socket.hpp>
#include <weft/udp/socket_address.hpp>

namespace weft::udp {

/// What takes messages from a sender: the kernel, or a stand-in in tests.
class message_sink {
 public:
  virtual ~message_sink() = default;
  /// As sendmmsg(2): how many messages were taken from the front, or minus errno if not even the
  /// first one was.
  virtual int accept(std::span<mmsghdr> messages) noexcept = 0;
};

/// Counts a call that moved `datagrams`, which is not 0.
inline void count_batch(batch_histogram& histogram, std::size_t datagrams) noexcept {
  const auto bucket = static_cast<std::size_t>(std::bit_width(datagrams - 1));
  ++histogram[std::min(bucket, histogram.size() - 1)];
}

/// Turns trains into as few messages and calls as possible, and keeps what is refused for want of
/// buffer space. Neighbouring trains of one path that continue each other's run of equal sizes
/// share a message, so packets handed over one by one are offloaded as well as ready-made trains.
class sender {
 public:
  struct settings {
    int family = AF_INET;
    /// The bound address: trains from there need no source address of their own.
    address bound;
    bool multi_message = true;
  };

  sender(message_sink& sink, const settings& how, udp::capabilities& gives, udp::counters& counts);

  bool writable() const noexcept { return kept_.empty(); }
  result<> send(std::span<const train> trains);
  result<bool> flush();
  /// Whether an error other than a full buffer was met since the last call.
  bool take_met_error() noexcept { return std::exchange(met_error_, false); }

 private:
  static constexpr std::size_t max_messages = 32;
  static constexpr std::size_t max_pieces = 256;
  static constexpr std::size_t control_bytes = 128;

  /// A position in a span of trains.
  struct cursor {
    std::size_t train = 0;
    std::size_t offset = 0;
    auto operator<=>(const cursor&) const = default;
  };
  struct message {
    cursor end;
    std::size_t datagrams = 0;
    std::size_t size = 0;
    std::size_t segment = 0;
  };
  struct kept_train {
    weft::path path;
    weft::ecn ecn;
    std::size_t segment, offset, size;
  };
  enum class verdict { proceed, blocked, fatal };

  /// True: all of it went out. False: the socket is full; `at` is where it stopped.
  result<bool> push(std::span<const train> trains, cursor& at);
  void plan(std::span<const train> trains, cursor at, std::size_t limit, bool offload);
  void plan_message(std::span<const train> trains, cursor at, bool offload);
  bool extend(message& m, const train& t, std::size_t offset, std::size_t most);
  void address_message(std::size_t index, const train& t);
  verdict on_refusal(cursor& at, int number);
  verdict send_plainly(const message& refused, bool suspecting_offload) noexcept;
  verdict lose(const message& m, cursor& at, std::uint64_t& counter) noexcept;
  int transmit();
  void account(std::size_t taken);
  void keep(std::span<const train> trains, cursor at);
  void trim_kept();

  message_sink& sink_;
  const settings how_;
  udp::capabilities& gives_;
  udp::counters& counts_;

  std::size_t planned_ = 0;
  std::size_t pieces_used_ = 0;
  std::array<message, max_messages> messages_;
  std::array<mmsghdr, max_messages> headers_;
  std::array<iovec, max_pieces> pieces_;
  std::array<socket_address, max_messages> names_;
  struct alignas(cmsghdr) control {
    std::array<std::byte, control_bytes> bytes;
  };
  std::array<control, max_messages> controls_;

  std::vector<kept_train> kept_;
  std::vector<std::byte> kept_bytes_;
  std::vector<train> kept_view_;
  cursor kept_at_;
  bool met_error_ = false;
  int pending_errors_ = 0;
  cursor plain_until_;  // of the trains in hand: no offload before this
  bool suspecting_offload_ = false;
};

}  // namespace weft::udp
