#include <weft/rpc/core/retry.hpp>

#include <charconv>
#include <cmath>

namespace weft::rpc {
namespace {

constexpr unsigned most_attempts = 5;  // A6
constexpr double jitter = 0.2;

}  // namespace

std::optional<pushback> pushback_of(const metadata& trailers) {
  const auto text = trailers.find(retry_pushback_key);
  if (!text) return std::nullopt;
  std::uint32_t milliseconds = 0;
  const auto [end, failure] =
      std::from_chars(text->data(), text->data() + text->size(), milliseconds);
  if (failure != std::errc{} || end != text->data() + text->size()) return pushback{.stop = true};
  return pushback{.wait = std::chrono::milliseconds{milliseconds}};
}

duration backoff(const retry_options& options, unsigned retry, double random) noexcept {
  using seconds = std::chrono::duration<double>;
  const double grown = seconds{options.initial_backoff}.count() *
                       std::pow(options.multiplier, static_cast<double>(retry) - 1);
  const double pause = std::min(grown, seconds{options.max_backoff}.count());
  return std::chrono::duration_cast<duration>(seconds{pause * (1 - jitter + 2 * jitter * random)});
}

std::optional<duration> retry_after(const retry_options& options, retry_throttle& throttle,
                                    unsigned attempt, const status& why, const metadata& trailers,
                                    double random) {
  const auto asked = pushback_of(trailers);
  const bool counts = std::ranges::contains(options.codes, why.code());
  if (counts || (asked && asked->stop)) throttle.failed();
  if (!counts || (asked && asked->stop) || !throttle.allows()) return std::nullopt;
  if (attempt >= std::min(options.max_attempts, most_attempts)) return std::nullopt;
  return asked ? asked->wait : backoff(options, attempt, random);
}

}  // namespace weft::rpc
