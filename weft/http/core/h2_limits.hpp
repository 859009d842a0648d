// Internal: how much of what makes work and brings nothing a peer may send.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <utility>

#include <weft/base/slice.hpp>
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

/// Since when a header or trailer section of the peer has been under way: it holds everything else
/// of the connection up (RFC 9113 §4.3). Follows the frames' boundaries, whatever becomes of them.
class h2_section_watch {
 public:
  /// `prelude` bytes precede the first frame.
  explicit h2_section_watch(std::size_t prelude) noexcept : left_{prelude} {}

  /// Takes all that the peer sends, in order.
  void take(bytes arrived, time_point now) noexcept {
    while (!arrived.empty()) {
      const std::size_t wanted = left_ != 0 ? left_ : head_.size() - head_size_;
      const bytes part = arrived.first(std::min(wanted, arrived.size()));
      arrived = arrived.subspan(part.size());
      if (left_ != 0) {
        left_ -= part.size();
      } else {
        std::ranges::copy(part, head_.begin() + static_cast<std::ptrdiff_t>(head_size_));
        head_size_ += part.size();
        if (head_size_ == head_.size()) begin_frame(now);
      }
      if (left_ == 0 && head_size_ == 0 && std::exchange(last_, false)) since_ = never;
    }
  }
  /// `never`: none is.
  time_point since() const noexcept { return since_; }

 private:
  void begin_frame(time_point now) noexcept {
    constexpr unsigned headers = 1, continuation = 9, end_headers = 4;
    const auto at = [&](std::size_t i) { return std::to_integer<unsigned>(head_[i]); };
    head_size_ = 0;
    left_ = at(0) << 16 | at(1) << 8 | at(2);
    if (at(3) == headers && since_ == never) since_ = now;
    last_ = (at(3) == headers || at(3) == continuation) && (at(4) & end_headers) != 0;
  }

  std::array<std::byte, 9> head_{};
  std::size_t head_size_ = 0;  // bytes of it that are here
  std::size_t left_;           // of the prelude or the frame's payload
  bool last_ = false;          // the frame ends a section
  time_point since_ = never;
};

}  // namespace weft::http
