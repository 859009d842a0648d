#include <weft/rpc/http/wire/timeout.hpp>

#include <algorithm>
#include <array>
#include <cstdint>

namespace weft::rpc::http::wire {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t most_grpc = 99'999'999;
constexpr std::int64_t most_connect = 9'999'999'999;

struct unit {
  char letter;
  std::int64_t nanoseconds;
};

// Finest first.
constexpr std::array<unit, 6> units{{
    {'n', 1},
    {'u', 1'000},
    {'m', 1'000'000},
    {'S', 1'000'000'000},
    {'M', 60'000'000'000},
    {'H', 3'600'000'000'000},
}};

/// Rounded up, without overflow.
constexpr std::int64_t in_units(std::int64_t nanoseconds, std::int64_t unit) noexcept {
  return nanoseconds / unit + (nanoseconds % unit != 0 ? 1 : 0);
}

std::optional<std::int64_t> digits(std::string_view text, std::size_t most) noexcept {
  if (text.empty() || text.size() > most) return std::nullopt;
  std::int64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

/// What does not fit counts as the longest time there is.
duration scaled(std::int64_t count, std::int64_t unit) noexcept {
  return count > duration::max().count() / unit ? duration::max() : duration{count * unit};
}

}  // namespace

std::string grpc_timeout(duration remaining) {
  const std::int64_t left = std::max<std::int64_t>(remaining.count(), 1);
  for (const unit& u : units)
    if (const std::int64_t count = in_units(left, u.nanoseconds); count <= most_grpc)
      return std::to_string(count) + u.letter;
  return std::to_string(most_grpc) + units.back().letter;
}

std::optional<duration> parse_grpc_timeout(std::string_view text) noexcept {
  if (text.size() < 2) return std::nullopt;
  const auto* found = std::ranges::find(units, text.back(), &unit::letter);
  const auto count = digits(text.substr(0, text.size() - 1), 8);
  if (found == units.end() || !count) return std::nullopt;
  return scaled(*count, found->nanoseconds);
}

std::string connect_timeout(duration remaining) {
  const std::int64_t left = std::max<std::int64_t>(remaining.count(), 1);
  return std::to_string(std::min(in_units(left, duration{1ms}.count()), most_connect));
}

std::optional<duration> parse_connect_timeout(std::string_view text) noexcept {
  const auto count = digits(text, 10);
  if (!count) return std::nullopt;
  return scaled(*count, duration{1ms}.count());
}

}  // namespace weft::rpc::http::wire
