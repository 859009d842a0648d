#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <weft/base/time.hpp>
#include <weft/io/task.hpp>

namespace weft::io {

/// The monotonic clock. Drivers read it once a turn and hand the value to the cores.
time_point now() noexcept;

/// An entry in a shard's timer queue. Owned by whoever waits; leaving scope disarms it, also from
/// inside its own callback. May outlive its shard, which disarms what is still armed. Same thread
/// as its shard.
class timer {
 public:
  timer() = default;
  timer(const timer&) = delete;
  timer& operator=(const timer&) = delete;
  ~timer();

  bool armed() const noexcept { return slot_ != npos; }
  time_point deadline() const noexcept { return deadline_; }

 private:
  friend class timer_queue;
  static constexpr std::size_t npos = static_cast<std::size_t>(-1);
  std::move_only_function<void(time_point)> callback_;
  time_point deadline_ = never;
  class timer_queue* queue_ = nullptr;
  std::size_t slot_ = npos;
};

struct shard_options {
  /// How long an idle loop polls before it sleeps. Zero sleeps at once. Sleeping costs a wake-up
  /// (2–8 us) a message, polling a processor: for the fewest microseconds, 50 us and more.
  duration spin = duration::zero();
};

/// One thread's world: an event loop, its timers, and what runs at the end of a turn. Everything
/// that belongs to a shard is touched by its thread only; other threads use `post`.
class shard {
 public:
  using options = shard_options;

  explicit shard(std::uint32_t index = 0, options opts = {});
  ~shard();
  shard(const shard&) = delete;
  shard& operator=(const shard&) = delete;

  std::uint32_t index() const noexcept;
  asio::io_context& context() noexcept;
  executor get_executor() noexcept;

  /// Runs until `stop()`, or until no work is left. Call from one thread.
  void run();
  /// Thread-safe. Before `run()`, makes the next one return at once; work left over stays queued.
  void stop() noexcept;
  /// Runs `work` on this shard's thread, soon. Thread-safe.
  void post(std::move_only_function<void()> work);
  /// Runs `work` once when the current turn has resumed all that was ready: the place to flush what
  /// a whole batch of coroutines wrote. Shard's thread only. Work may register more work: it runs
  /// in the same turn, except after a few rounds, when the event queue goes first.
  void at_end_of_turn(std::move_only_function<void()> work);

  /// (Re)arms `t`; `callback(now)` runs on the shard's thread at or after `deadline`, never inside
  /// this call. All timers of a shard share one operating-system timer, which is set only when the
  /// earliest deadline moves forward: moving a deadline costs no system call as a rule. With
  /// `never` the timer is armed but does not fire.
  void arm(timer& t, time_point deadline, std::move_only_function<void(time_point)> callback);
  /// Moves the deadline, keeping the callback: of an armed timer, or of one that has fired (also
  /// from inside the callback). The callback lives until it is replaced or the timer is disarmed.
  void rearm(timer& t, time_point deadline);
  /// Disarms and lets go of the callback. No system call.
  void disarm(timer& t) noexcept;

  /// Completes at `deadline`; errc::cancelled when cancelled.
  task<result<>> sleep_until(time_point deadline);

 private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace weft::io
