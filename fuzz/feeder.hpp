#pragma once

#include <algorithm>
#include <cstdint>

#include <weft/base/slice.hpp>

namespace weft::fuzz {

/// Takes an input apart into small decisions and chunks. Exhausted input yields zeros.
class feeder {
 public:
  explicit feeder(bytes input) noexcept : rest_{input} {}

  bool empty() const noexcept { return rest_.empty(); }
  std::uint8_t byte() noexcept {
    if (rest_.empty()) return 0;
    const auto value = std::to_integer<std::uint8_t>(rest_.front());
    rest_ = rest_.subspan(1);
    return value;
  }
  std::uint16_t word() noexcept {
    const unsigned high = byte();
    return static_cast<std::uint16_t>(high << 8 | byte());
  }
  /// As many bytes as there are, at most `size`.
  bytes take(std::size_t size) noexcept {
    const auto part = rest_.first(std::min(size, rest_.size()));
    rest_ = rest_.subspan(part.size());
    return part;
  }

 private:
  bytes rest_;
};

}  // namespace weft::fuzz
