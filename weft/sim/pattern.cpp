#include <weft/sim/pattern.hpp>

#include <algorithm>
#include <array>
#include <cstring>

#include <weft/sim/random.hpp>

namespace weft::sim {

void fill_pattern(std::uint64_t key, std::uint64_t offset, mutable_bytes out) noexcept {
  while (!out.empty()) {
    const std::uint64_t word = scramble(key ^ scramble(offset / 8));
    const std::size_t skipped = offset % 8;
    const auto count = std::min(out.size(), 8 - skipped);
    std::memcpy(out.data(), reinterpret_cast<const std::byte*>(&word) + skipped, count);
    out = out.subspan(count);
    offset += count;
  }
}

slice make_pattern(std::uint64_t key, std::uint64_t offset, std::size_t size) {
  if (size == 0) return {};
  buffer target = buffer::allocate(size);
  fill_pattern(key, offset, target);
  return std::move(target).freeze();
}

std::optional<std::uint64_t> find_difference(std::uint64_t key, std::uint64_t offset,
                                             bytes data) noexcept {
  std::array<std::byte, 1024> expected;
  while (!data.empty()) {
    const auto part = data.first(std::min(data.size(), expected.size()));
    fill_pattern(key, offset, mutable_bytes{expected}.first(part.size()));
    if (std::memcmp(expected.data(), part.data(), part.size()) != 0)
      return offset +
             static_cast<std::uint64_t>(std::ranges::mismatch(part, expected).in1 - part.begin());
    data = data.subspan(part.size());
    offset += part.size();
  }
  return std::nullopt;
}

}  // namespace weft::sim
