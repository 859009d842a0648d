#pragma once

#include <cstdint>
#include <optional>

#include <weft/base/error.hpp>
#include <weft/base/slice.hpp>
#include <weft/base/slice_queue.hpp>
#include <weft/quic/core/intrusive_list.hpp>
#include <weft/quic/core/scheduler.hpp>

namespace weft::quic::core {

class connection;
namespace detail {
class connection_impl;
struct callbacks;
}  // namespace detail

/// RFC 9000 §2.1: the two low bits tell initiator and direction.
using stream_id = std::int64_t;
constexpr bool is_bidirectional(stream_id id) noexcept {
  return (id & 2) == 0;
}
constexpr bool is_server_initiated(stream_id id) noexcept {
  return (id & 1) != 0;
}

/// What changed since the owner last looked. Bits of `stream::take_events()`.
enum stream_event : std::uint8_t {
  readable = 1,  ///< `read()` or `read_state()` has news: bytes, end, or reset
  writable = 2,  ///< `writable()` grew from less than what was asked, or the write side ended
  stopped = 4,   ///< the peer sent STOP_SENDING
  drained = 8,   ///< everything written is acknowledged: FIN included, or it was watched for
  closed = 16,   ///< both directions are over, or the connection is
};

/// One stream of a connection, as a state machine. Owned by its connection: the pointer is valid
/// until `connection::release(*this)`, even after stream or connection have ended. Thread: its
/// connection's.
class stream {
 public:
  stream_id id() const noexcept { return id_; }
  /// The owner's own pointer, untouched by the core.
  void* user = nullptr;

  // Reading ---------------------------------------------------------------------------------------
  /// The next bytes in order, at most `limit`; empty when none are there. Taking bytes gives flow
  /// credit back to the peer.
  slice read(std::size_t limit = static_cast<std::size_t>(-1));
  std::size_t readable() const noexcept { return receive_buffered_; }
  /// All bytes up to the FIN have been read.
  bool at_end() const noexcept { return fin_received_ && receive_buffered_ == 0; }
  /// The peer's FIN has arrived (bytes before it may still be unread).
  bool fin_received() const noexcept { return fin_received_; }
  /// The peer reset its side; the bytes it had sent before are gone.
  std::optional<std::uint64_t> reset_code() const noexcept { return reset_code_; }
  /// Asks the peer to stop (STOP_SENDING), drops what is unread and gives its credit back.
  void stop_sending(std::uint64_t code);

  // Writing ---------------------------------------------------------------------------------------
  /// Bytes the bounded send buffer takes now. A larger slice may be written when it is > 0: one
  /// write may overshoot, so that any size completes.
  std::size_t writable() const noexcept;
  /// Queues `data`, kept by reference until acknowledged. errc::stopped, reset, closed, or
  /// invalid_argument after `finish()`.
  result<> write(slice data);
  /// Ends our direction after what is queued.
  result<> finish();
  /// Abandons our direction; queued bytes are dropped.
  void reset(std::uint64_t code);
  std::optional<std::uint64_t> stopped_code() const noexcept { return stopped_code_; }
  /// Queued or unacknowledged bytes.
  std::size_t unacknowledged() const noexcept { return send_buffered_; }
  /// Asks for one `drained` event when nothing is unacknowledged any more, FIN or not.
  void watch_drained() noexcept { drain_watched_ = true; }
  /// The peer has acknowledged everything, FIN included.
  bool delivered() const noexcept { return drained_; }

  /// RFC 9218: 0 is most urgent; 3 is the default. Streams of one urgency share by bytes when
  /// `incremental`, else are served in the order they became ready.
  void set_priority(std::uint8_t urgency, bool incremental = true);

  /// The stream carried data of the client's first flight, which may be a replay.
  bool early_data() const noexcept { return early_data_; }
  bool connection_closed() const noexcept { return connection_ == nullptr; }
  bool closed() const noexcept { return closed_; }

  /// Returns and clears the pending `stream_event` bits.
  std::uint8_t take_events() noexcept;

 private:
  friend class detail::connection_impl;
  friend struct detail::callbacks;

  detail::connection_impl& owner() const noexcept;
  bool can_send() const noexcept;
  bool can_receive() const noexcept;
  bool send_open() const noexcept;

  connection* connection_ = nullptr;
  stream_id id_ = -1;
  std::size_t receive_buffered_ = 0;
  std::size_t send_buffered_ = 0;
  std::optional<std::uint64_t> reset_code_;
  std::optional<std::uint64_t> stopped_code_;
  bool fin_received_ = false;
  bool early_data_ = false;
  bool closed_ = false;
  std::uint8_t events_ = 0;

  bool local_ = false;       // we opened it
  bool accepted_ = false;    // its owner knows it
  bool released_ = false;    // its owner has let go
  bool reported_ = false;    // handed out by poll_stream, events not taken yet
  bool stop_sent_ = false;   // our STOP_SENDING; it may still be held
  bool reset_sent_ = false;  // our RESET_STREAM, asked for by us or by the peer
  bool finish_asked_ = false;
  bool fin_sent_ = false;
  bool fin_acked_ = false;  // noticed only when it came without news of bytes
  bool drained_ = false;    // the peer has acknowledged everything, FIN included
  bool drain_watched_ = false;
  bool flow_blocked_ = false;  // waits for MAX_STREAM_DATA
  bool fin_alone_ = false;     // in a frame without bytes
  bool fin_outrun_ = false;    // packets sent after it are acknowledged

  // Bytes [0, send_next_) of the queue were handed to a packet at least once and stay where they
  // are until acknowledged.
  slice_queue send_queue_;
  std::size_t send_next_ = 0;         // first slice with bytes never sent
  std::size_t send_next_offset_ = 0;  // and where they begin in it
  std::size_t unsent_ = 0;

  slice_queue receive_queue_;
  std::size_t credit_due_ = 0;  // read bytes whose MAX_STREAM_DATA is not given back yet

  // Asked for, but not yet told to the library.
  std::optional<std::uint64_t> stop_asked_;
  std::optional<std::uint64_t> reset_asked_;
  std::uint64_t stopped_at_ = 0;  // when the library was told to stop the peer
  std::uint64_t doubted_at_ = 0;  // when it was last unknown whether the FIN is acknowledged
  std::size_t losses_ = 0;        // of packets with its frames, until then

  detail::schedule_entry schedule_;
  detail::list_hook<stream> all_hook_;
  detail::list_hook<stream> ready_hook_;
  detail::list_hook<stream> incoming_hook_;
  detail::list_hook<stream> fin_hook_;
  detail::list_hook<stream> room_hook_;
  detail::list_hook<stream> held_hook_;
  detail::list_hook<stream> stopping_hook_;
  detail::list_hook<stream> doubt_hook_;
};

}  // namespace weft::quic::core
