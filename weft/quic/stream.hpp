#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include <weft/base/slice.hpp>
#include <weft/io/byte_stream.hpp>
#include <weft/io/task.hpp>

namespace weft::quic {

namespace detail {
class stream_state;
}

enum class direction : std::uint8_t { bidirectional, unidirectional };

/// One QUIC stream (RFC 9000 §2). Move-only; shard's thread only; at most one pending read and one
/// pending write.
///
/// Destroying it abandons what is unfinished: an unfinished send side is reset, unread bytes are
/// dropped with STOP_SENDING, both with code 0. A finished send side is still delivered. Streams
/// may outlive their connection; their operations then fail with the reason it ended.
///
/// Cancelling a pending operation (Asio cancellation) completes it with errc::cancelled and leaves
/// the stream usable; a cancelled write may have been accepted in part.
class stream {
 public:
  stream() noexcept;
  stream(stream&&) noexcept;
  stream& operator=(stream&&) noexcept;
  ~stream();
  explicit operator bool() const noexcept { return state_ != nullptr; }

  std::int64_t id() const noexcept;

  // Reading ---------------------------------------------------------------------------------------
  /// The next bytes, as soon as there are any; an empty slice at the end (FIN).
  /// errc::reset with the peer's code in `detail()` when it abandoned its side.
  task<result<slice>> read(std::size_t limit = static_cast<std::size_t>(-1));
  /// As `read`, without waiting: nothing when it would have to.
  std::optional<result<slice>> try_read(std::size_t limit = static_cast<std::size_t>(-1));
  /// Tells the peer to stop, drops what is unread.
  void stop_sending(std::uint64_t code);

  // Writing ---------------------------------------------------------------------------------------
  /// Completes when the bounded send buffer has accepted all of `data`, which is shared, not
  /// copied. errc::stopped with the peer's code when it does not want more.
  task<result<>> write(slice data);
  /// As `write`, without waiting: nothing, changing nothing, when the buffer has no room at all.
  std::optional<result<>> try_write(slice data);
  /// Ends our direction (FIN) after what was written.
  result<> finish();
  void reset(std::uint64_t code);
  /// Completes when all that was written has been acknowledged by the peer.
  task<result<>> drained();
  /// Completes when the peer stops reading (STOP_SENDING, its code), or when the stream is over
  /// (nothing). For servers that want to abandon work nobody waits for.
  task<std::optional<std::uint64_t>> stopped();
  /// The peer has sent STOP_SENDING.
  std::optional<std::uint64_t> stopped_code() const noexcept;

  /// Calls `callback` inline, at most once, when the peer resets the stream or stops reading it, or
  /// the connection ends, without anyone waiting in `read` or `write`. Replaces an earlier one; an
  /// empty function takes it back.
  void on_abandoned(std::move_only_function<void(const error&)> callback);

  /// RFC 9218: 0 most urgent, default 3.
  void set_priority(std::uint8_t urgency, bool incremental = true);
  /// The bytes may be a replay of a client's first flight (0-RTT).
  bool early_data() const noexcept;

 private:
  friend class detail::stream_state;
  explicit stream(detail::stream_state* state) noexcept : state_{state} {}
  detail::stream_state* state_;
};

/// A bidirectional stream as the byte stream that RPC over "any connection" is written against.
std::unique_ptr<io::byte_stream> as_byte_stream(stream s);

}  // namespace weft::quic
