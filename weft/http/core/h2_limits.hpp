// Internal: how much of what makes work and brings nothing a peer may send.
#pragma once

#include <algorithm>
#include <chrono>

#include <weft/base/time.hpp>

namespace weft::http {

/// So many at once, and so many a second after that.
class h2_allowance {
 public:
  h2_allowance(double burst, double per_second) noexcept
      : burst_{burst}, per_second_{per_second}, left_{burst} {}

  /// False: too many. Time never goes back.
  bool take(double cost, time_point now) noexcept {
    const double seconds = std::chrono::duration<double>{now - since_}.count();
    since_ = now;
    give(seconds * per_second_);
    left_ -= cost;
    return left_ >= 0;
  }
  void give(double amount) noexcept { left_ = std::min(burst_, left_ + amount); }

 private:
  double burst_, per_second_, left_;
  time_point since_{};
};

}  // namespace weft::http
