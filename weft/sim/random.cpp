#include <weft/sim/random.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace weft::sim {

random::random(std::uint64_t seed) noexcept {
  for (auto& word : state_) word = seed = scramble(seed);
}

std::uint64_t random::next() noexcept {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

std::uint64_t random::below(std::uint64_t limit) noexcept {
  __extension__ using wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<wide>(next()) * limit) >> 64);
}

std::uint64_t random::between(std::uint64_t low, std::uint64_t high) noexcept {
  return low + below(high - low + 1);
}

std::uint64_t random::magnitude(std::uint64_t low, std::uint64_t high) noexcept {
  // Powers of two only, and integers below them: no rounding that could differ between machines.
  const auto smallest = std::bit_width(low);
  const auto largest = std::bit_width(high);
  const auto width =
      between(static_cast<std::uint64_t>(smallest), static_cast<std::uint64_t>(largest));
  const std::uint64_t floor = width == 0 ? 0 : std::uint64_t{1} << (width - 1);
  const std::uint64_t ceiling = width == 0 ? 0 : floor + (floor - 1);
  return between(std::max(low, floor), std::min(high, ceiling));
}

duration random::between(duration low, duration high) noexcept {
  return low + duration{static_cast<std::int64_t>(
                   between(std::uint64_t{0}, static_cast<std::uint64_t>((high - low).count())))};
}

double random::uniform() noexcept {
  return static_cast<double>(next() >> 11) * 0x1p-53;
}

bool random::chance(double probability) noexcept {
  if (probability <= 0) return false;
  if (probability >= 1) return true;
  return uniform() < probability;
}

void random::fill(mutable_bytes out) noexcept {
  while (!out.empty()) {
    const std::uint64_t word = next();
    const auto count = std::min(out.size(), sizeof word);
    std::memcpy(out.data(), &word, count);
    out = out.subspan(count);
  }
}

}  // namespace weft::sim
