#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <weft/base/address.hpp>
#include <weft/base/error.hpp>
#include <weft/base/slice.hpp>
#include <weft/io/shard.hpp>

namespace weft::udp {

/// Largest train one call may carry: IPv6 payload limit less room for headers, so that a train is
/// never refused for its length.
inline constexpr std::size_t max_train_bytes = 65'488;
inline constexpr std::size_t max_train_segments = 64;

/// Datagrams of one path in a row: each `segment` bytes long, the last one possibly shorter.
struct train {
  weft::path path;
  weft::ecn ecn = weft::ecn::not_ect;
  bytes payload;
  std::size_t segment = 0;

  std::size_t datagrams() const noexcept {
    return segment == 0 ? 0 : (payload.size() + segment - 1) / segment;
  }
};

/// What kernel and socket give (asked of the kernel when the socket opens, not assumed).
struct capabilities {
  bool segmentation_offload = false;  ///< UDP_SEGMENT
  bool receive_coalescing = false;    ///< UDP_GRO
  bool ecn = false;
  bool local_address = false;  ///< IP_PKTINFO / IPV6_RECVPKTINFO
  bool mtu_probing = false;    ///< IP_PMTUDISC_PROBE: no fragments, no kernel MTU cache
  std::size_t send_buffer = 0;
  std::size_t receive_buffer = 0;
};

/// Datagrams per system call: bucket i counts calls that moved (2^(i-1), 2^i] datagrams.
using batch_histogram = std::array<std::uint64_t, 12>;

struct counters {
  std::uint64_t datagrams_sent = 0, bytes_sent = 0, send_calls = 0;
  std::uint64_t offloaded_sends = 0;  ///< messages the kernel cut into >= 2 datagrams
  std::uint64_t offloaded_datagrams = 0;
  std::uint64_t send_blocked = 0;  ///< calls that met a full socket buffer
  std::uint64_t datagrams_resent =
      0;  ///< sent again after a partial acceptance or a failed offload
  std::uint64_t oversize_dropped = 0;  ///< EMSGSIZE: path-MTU probes beyond the interface
  std::uint64_t unreachable = 0;       ///< refused or no route; datagrams lost
  std::uint64_t offload_disabled = 0;
  std::uint64_t send_dropped = 0;  ///< no kernel memory, or passed beyond what may be kept back
  std::uint64_t datagrams_received = 0, bytes_received = 0, receive_calls = 0;
  std::uint64_t coalesced_trains = 0;  ///< received messages holding >= 2 datagrams
  std::uint64_t truncated = 0;         ///< must stay 0
  std::uint64_t kernel_drops = 0;      ///< SO_RXQ_OVFL
  batch_histogram send_batch{}, receive_batch{};
};

struct options {
  /// Requested socket buffers; the kernel may grant less (see `capabilities()`).
  std::size_t send_buffer = std::size_t{8} << 20;
  std::size_t receive_buffer = std::size_t{8} << 20;
  bool reuse_port = false;  ///< one socket per shard on the same port
  /// Learn which peers nobody listens at (see `take_refusals`). For sockets of clients: a server
  /// would hear of every client that has gone.
  bool report_refusals = false;
  /// Switch single capabilities off, for tests and for kernels that lie.
  bool allow_segmentation_offload = true;
  bool allow_receive_coalescing = true;
  bool allow_multi_message = true;  ///< sendmmsg / recvmmsg with more than one message
};

/// One non-blocking UDP socket of a shard. Shard's thread only.
///
/// Sending never blocks: what the kernel does not take is kept and goes out first, in order, on the
/// next `send` or `flush`. That is bounded by what was passed while `writable()` was true; trains
/// passed while it is false are kept up to 1 MiB in all, then dropped and counted.
class socket {
 public:
  static result<socket> open(io::shard& shard, const address& local, const options& opts = {});
  socket(socket&&) noexcept;
  socket& operator=(socket&&) noexcept;
  ~socket();

  /// The bound address; the port is real even when 0 was asked for. A socket on [::] also serves
  /// IPv4 peers, whose addresses are plain IPv4 ones in every train, both ways.
  const address& local_address() const noexcept;
  const udp::capabilities& capabilities() const noexcept;
  const udp::counters& counters() const noexcept;

  /// False while datagrams are kept back. Callers stop producing then.
  bool writable() const noexcept;
  /// Sends `trains` in order. Neighbours of one path that continue each other's run of equal sizes
  /// share a message, so single packets handed over together are offloaded too. Payloads are copied
  /// only if they must be kept. `path.local` is used as the source unless it is unspecified. An
  /// error is fatal for the socket; unreachable peers and oversize probes are counted, not
  /// reported.
  result<> send(std::span<const train> trains);
  /// Tries again to send what was kept. True when nothing is left.
  result<bool> flush();

  /// Hands over what has arrived, at most about `max_datagrams`, one train at a time; the payload
  /// is valid during the call only. Returns the number of datagrams; fewer than `max_datagrams`:
  /// the socket was found empty, so `wait_readable` is what to do next. `on_train` may close the
  /// socket, but neither destroy it nor call `receive`.
  result<std::size_t> receive(std::size_t max_datagrams,
                              const std::function<void(const train&)>& on_train);

  /// With `report_refusals`: the addresses whose hosts have answered datagrams with "port
  /// unreachable" (ICMP) and were met by a `receive` since the last call; a few at most, the rest
  /// is dropped. Anybody who knows the ports can forge such an answer: a hint, no proof.
  std::vector<address> take_refusals();

  /// Completes when `receive` may find something / when kept datagrams may go out.
  /// errc::cancelled after `close()` or cancellation. One waiter each; the socket may be moved or
  /// destroyed meanwhile (which closes it).
  task<result<>> wait_readable();
  task<result<>> wait_writable();
  void close() noexcept;
  /// The descriptor, for options this class knows nothing of; -1 when closed. Stays the socket's
  /// own.
  int native_handle() const noexcept;

 private:
  struct impl;
  explicit socket(std::unique_ptr<impl> state) noexcept;
  std::unique_ptr<impl> impl_;
};

/// What a socket on this machine would get: opens one on loopback and asks. For `weft info`.
result<capabilities> probe(io::shard& shard);

}  // namespace weft::udp
