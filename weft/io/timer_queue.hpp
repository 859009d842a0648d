#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <asio/basic_waitable_timer.hpp>
#include <asio/io_context.hpp>

#include <weft/base/time.hpp>
#include <weft/io/shard.hpp>

namespace weft::io {

/// All timers of a shard over one operating-system timer: an indexed binary heap.
///
/// The operating-system timer is re-armed only when the earliest deadline moves before what it is
/// armed for. A deadline that moves back or goes leaves it alone; it then fires for nothing once
/// and is armed for what is earliest by then. So a deadline that moves with every packet costs no
/// system call.
class timer_queue {
 public:
  explicit timer_queue(asio::io_context& context);
  timer_queue(const timer_queue&) = delete;
  timer_queue& operator=(const timer_queue&) = delete;
  /// Timers still armed are disarmed, and may be destroyed later.
  ~timer_queue();

  void arm(timer& t, time_point deadline, std::move_only_function<void(time_point)> callback);
  void rearm(timer& t, time_point deadline);
  void disarm(timer& t) noexcept;

  /// Postpones operating-system work until `settle()`, so that a turn does it at most once.
  void defer() noexcept { deferred_ = true; }
  void settle();

  /// The context is about to go: no more operating-system work.
  void close() noexcept;

  /// How often the operating-system timer was set; for tests.
  std::uint64_t system_arms() const noexcept { return system_arms_; }

 private:
  using clock = std::chrono::steady_clock;
  using system_timer = asio::basic_waitable_timer<clock, asio::wait_traits<clock>, executor>;

  struct entry {
    time_point key;
    std::uint64_t order;  // first armed, first fired among equals
    timer* owner;
    bool operator<(const entry& other) const noexcept {
      return key != other.key ? key < other.key : order < other.order;
    }
  };

  void place(timer& t, time_point deadline);
  void remove(timer& t) noexcept;
  void put(std::size_t slot, const entry& e) noexcept;
  void sift_up(std::size_t slot, entry e) noexcept;
  void sift_down(std::size_t slot, entry e) noexcept;

  bool in_batch() const noexcept { return batch_now_ != time_point::min(); }
  void changed();
  void arm_system(time_point deadline);
  void on_system_timer(std::uint64_t generation);
  void fire_due(time_point now);
  void fire(timer& t, time_point now);
  void count_as_work(bool wanted) noexcept;

  std::vector<entry> heap_;
  asio::io_context& context_;
  std::optional<system_timer> system_;
  time_point armed_for_ = never;  // never: no wait of the system timer is pending
  time_point batch_now_ = time_point::min();
  timer* firing_ = nullptr;
  std::uint64_t generation_ = 0;
  std::uint64_t next_order_ = 0;
  std::uint64_t system_arms_ = 0;
  bool deferred_ = false;
  bool uncounted_ = false;  // the pending wait does not keep the loop alive
};

}  // namespace weft::io
