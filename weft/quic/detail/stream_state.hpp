#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include <weft/io/task.hpp>
#include <weft/quic/core/stream.hpp>
#include <weft/quic/detail/waiter.hpp>
#include <weft/quic/stream.hpp>

namespace weft::quic::detail {

class connection_state;
class stream_ref;

/// What stands behind a `stream`: the core's stream, who waits for it, and a count of the handle
/// and the operations under way. Lives in its connection's pool; when the count reaches zero the
/// core's stream is released and the memory returns to the pool.
class stream_state {
 public:
  stream_state(connection_state& owner, core::stream& s) noexcept;

  /// A new state behind a new handle.
  static stream make(connection_state& owner, core::stream& s);
  static stream_state* of(const stream& s) noexcept { return s.state_; }

  core::stream& core() noexcept { return *core_; }
  const core::stream& core() const noexcept { return *core_; }
  connection_state& owner() noexcept { return *owner_; }

  // Operations: see `stream`. Those that wait hold a reference of their own.
  std::optional<result<slice>> try_read(std::size_t limit);
  static task<result<slice>> read(stream_ref self, std::size_t limit);
  void stop_sending(std::uint64_t code);
  std::optional<result<>> try_write(slice data);
  static task<result<>> write(stream_ref self, slice data);
  result<> finish();
  void reset(std::uint64_t code);
  static task<result<>> drained(stream_ref self);
  static task<std::optional<std::uint64_t>> stopped(stream_ref self);
  void on_abandoned(std::move_only_function<void(const error&)> callback);

  /// As `try_write` for a part of `data`: how many bytes were taken, nothing when there is no room.
  std::optional<result<std::size_t>> write_some(const slice& data);
  /// Why the read or write side cannot go on; nothing while it can.
  std::optional<error> read_failure() const;
  std::optional<error> write_failure() const;

  waiter read_waiter;
  waiter write_waiter;

  // Turn ------------------------------------------------------------------------------------------
  /// Takes the core's events and resumes whom they concern.
  void dispatch();
  /// Resumes everybody, to look again.
  void wake();

  void handle_dropped();
  void acquire() noexcept { ++references_; }
  void release() {
    if (--references_ == 0) destroy();
  }
  /// Has everybody resumed in the next turn: resuming inside of a caller's operation is not safe.
  void wake_later();

 private:
  friend class connection_state;
  void destroy();
  void tell_abandoned();
  bool over() const noexcept;

  core::stream* core_;
  connection_state* owner_;
  std::uint32_t references_ = 0;
  bool handle_dropped_ = false;
  bool stop_sent_ = false;
  bool reset_sent_ = false;
  bool finished_ = false;
  bool acknowledged_ = false;  ///< everything written, FIN included
  bool wake_pending_ = false;
  waiter drained_waiter_;
  waiter stopped_waiter_;
  std::move_only_function<void(const error&)> abandoned_;
  stream_state* previous_ = nullptr;  ///< among the streams of the connection
  stream_state* next_ = nullptr;
};

/// Counted reference. Not thread-safe, as nothing of a shard is.
class stream_ref {
 public:
  explicit stream_ref(stream_state* state) noexcept : state_{state} {
    if (state_) state_->acquire();
  }
  stream_ref(const stream_ref& other) noexcept : stream_ref{other.state_} {}
  stream_ref(stream_ref&& other) noexcept : state_{std::exchange(other.state_, nullptr)} {}
  stream_ref& operator=(stream_ref other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~stream_ref() {
    if (state_) state_->release();
  }
  stream_state* operator->() const noexcept { return state_; }
  stream_state& operator*() const noexcept { return *state_; }
  explicit operator bool() const noexcept { return state_ != nullptr; }

 private:
  stream_state* state_;
};

}  // namespace weft::quic::detail
