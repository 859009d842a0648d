#pragma once

#include <atomic>
#include <cstddef>
#include <limits>

namespace weft {

/// A limit on bytes held for peers, shared by all connections of a process. Thread-safe. Outlives
/// everything that charges it.
class memory_budget {
 public:
  explicit memory_budget(std::size_t limit = std::numeric_limits<std::size_t>::max()) noexcept
      : limit_{limit} {}
  memory_budget(const memory_budget&) = delete;
  memory_budget& operator=(const memory_budget&) = delete;

  /// Charges `count` bytes, or changes nothing and returns false when that would exceed the limit.
  bool try_charge(std::size_t count) noexcept {
    std::size_t used = used_.load(std::memory_order_relaxed);
    do {
      if (count > limit_ - used) return false;
    } while (!used_.compare_exchange_weak(used, used + count, std::memory_order_relaxed));
    std::size_t peak = peak_.load(std::memory_order_relaxed);
    while (peak < used + count &&
           !peak_.compare_exchange_weak(peak, used + count, std::memory_order_relaxed)) {
    }
    return true;
  }
  void release(std::size_t count) noexcept { used_.fetch_sub(count, std::memory_order_relaxed); }

  std::size_t used() const noexcept { return used_.load(std::memory_order_relaxed); }
  std::size_t peak() const noexcept { return peak_.load(std::memory_order_relaxed); }
  std::size_t limit() const noexcept { return limit_; }

 private:
  std::atomic<std::size_t> used_{0};
  std::atomic<std::size_t> peak_{0};
  std::size_t limit_;
};

}  // namespace weft
