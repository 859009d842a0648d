#pragma once

#include <array>
#include <cstdint>

#include <weft/base/slice.hpp>
#include <weft/base/time.hpp>

namespace weft::sim {

/// One step of SplitMix64: spreads nearby numbers (seeds, stream keys) over all 64 bits.
constexpr std::uint64_t scramble(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// Seeded xoshiro256**: the same numbers on every machine and library, unlike the distributions of
/// <random>. Not for secrets.
class random {
 public:
  explicit random(std::uint64_t seed) noexcept;

  std::uint64_t next() noexcept;
  /// In [0, limit). Precondition: limit > 0.
  std::uint64_t below(std::uint64_t limit) noexcept;
  /// In [low, high], both included.
  std::uint64_t between(std::uint64_t low, std::uint64_t high) noexcept;
  /// As `between`, but with equal weight for every order of magnitude: many small, few large.
  std::uint64_t magnitude(std::uint64_t low, std::uint64_t high) noexcept;
  duration between(duration low, duration high) noexcept;
  /// In [0, 1).
  double uniform() noexcept;
  /// Draws nothing when the answer is certain.
  bool chance(double probability) noexcept;
  void fill(mutable_bytes out) noexcept;
  /// An independent generator.
  random fork() noexcept { return random{next()}; }

 private:
  std::array<std::uint64_t, 4> state_;
};

}  // namespace weft::sim
