#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include <weft/base/time.hpp>
#include <weft/rpc/core/metadata.hpp>
#include <weft/rpc/core/method.hpp>
#include <weft/rpc/core/status.hpp>

// When a failed call is tried again: gRPC's proposal A6, without hedging. Pure: time and randomness
// are arguments.

namespace weft::rpc {

/// Only methods whose .proto says idempotency_level = NO_SIDE_EFFECTS or IDEMPOTENT are tried
/// again.
struct retry_options {
  unsigned max_attempts = 1;  ///< the first one included; more than 5 count as 5
  duration initial_backoff = std::chrono::milliseconds{50};
  duration max_backoff = std::chrono::seconds{1};
  double multiplier = 2;
  std::vector<code> codes{code::unavailable};
  /// All calls of a channel share this many tokens. A failure costs one, a success gives back
  /// `token_ratio`; at half of them or fewer nothing is tried again, so that a server in trouble
  /// does not get more calls than usual.
  double max_tokens = 10;
  double token_ratio = 0.1;
  /// Bytes of request messages kept for another attempt; a call that sends more has one.
  std::size_t buffer = std::size_t{256} << 10;
};

inline constexpr std::string_view retry_attempts_key = "grpc-previous-rpc-attempts";
inline constexpr std::string_view retry_pushback_key = "grpc-retry-pushback-ms";

/// What a server asks of whom it turned away.
struct pushback {
  bool stop = false;  ///< do not try again
  duration wait{};
};

/// From a failed call's trailing metadata. A value that is no number of milliseconds means stop.
std::optional<pushback> pushback_of(const metadata& trailers);

/// Before retry number `retry`, from 1: exponential, ±20 % by `random` in [0, 1).
duration backoff(const retry_options& options, unsigned retry, double random) noexcept;

/// The tokens of one channel.
class retry_throttle {
 public:
  explicit retry_throttle(const retry_options& options) noexcept
      : most_{options.max_tokens}, ratio_{options.token_ratio}, tokens_{options.max_tokens} {}

  bool allows() const noexcept { return tokens_ > most_ / 2; }
  void succeeded() noexcept { tokens_ = std::min(most_, tokens_ + ratio_); }
  void failed() noexcept { tokens_ = std::max(0.0, tokens_ - 1); }

 private:
  double most_, ratio_, tokens_;
};

/// Whether a call that failed with `why` in attempt number `attempt`, from 1, is tried again, and
/// after what pause. Tells the throttle of the failure.
std::optional<duration> retry_after(const retry_options& options, retry_throttle& throttle,
                                    unsigned attempt, const status& why, const metadata& trailers,
                                    double random);

}  // namespace weft::rpc
