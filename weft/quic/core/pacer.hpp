#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <weft/base/time.hpp>

namespace weft::quic::core::detail {

/// Spreads a congestion window over its round trip (RFC 9002 §7.7), in steps a timer is worth: what
/// goes out within a millisecond may go at once, and a pause lasts half of one at least. Finer
/// steps cost more in timers and wake-ups than in sending (on loopback a fifth of both processors)
/// and save no queue that a kernel's own batching would not fill again.
class pacer {
 public:
  void sent(std::size_t size, std::uint64_t window, duration round_trip, time_point now) noexcept {
    free_at_ = std::max(free_at_, now - burst) + cost(size, window, round_trip);
    if (free_at_ > now) resume_at_ = std::max(free_at_, now + burst / 2);
  }
  bool allows(time_point now) const noexcept { return now >= resume_at_; }
  time_point resume_at() const noexcept { return resume_at_; }

  /// How much may go out in a row.
  static std::size_t quantum(std::uint64_t window, duration round_trip) noexcept {
    const auto cost_of_window = cost(1u << 16, window, round_trip).count();
    return cost_of_window <= 0 ? SIZE_MAX
                               : static_cast<std::size_t>((burst.count() << 16) / cost_of_window);
  }

 private:
  static constexpr duration burst = std::chrono::milliseconds{1};

  /// A window and a quarter go out in a round trip, so that pacing alone never leaves it unused.
  static duration cost(std::size_t size, std::uint64_t window, duration round_trip) noexcept {
    const auto per_byte = static_cast<double>(round_trip.count()) * 0.8 /
                          static_cast<double>(std::max<std::uint64_t>(window, 1));
    return duration{static_cast<duration::rep>(per_byte * static_cast<double>(size))};
  }

  time_point free_at_{};    ///< when all that was sent is paid for
  time_point resume_at_{};  ///< nothing before, once that lay ahead
};

}  // namespace weft::quic::core::detail
