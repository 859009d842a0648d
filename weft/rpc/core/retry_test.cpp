#include <weft/rpc/core/retry.hpp>

#include <gtest/gtest.h>

namespace weft::rpc {
namespace {

using namespace std::chrono_literals;

const status unavailable{code::unavailable, "down"};

TEST(retry, backoff_doubles_up_to_the_most_and_spreads_by_a_fifth) {
  const retry_options options{.initial_backoff = 100ms, .max_backoff = 350ms};
  const auto near = [](duration got, duration want) {
    EXPECT_NEAR(static_cast<double>(got.count()), static_cast<double>(want.count()), 1e3);
  };
  near(backoff(options, 1, 0.5), 100ms);
  near(backoff(options, 2, 0.5), 200ms);
  near(backoff(options, 3, 0.5), 350ms);
  near(backoff(options, 60, 0.5), 350ms);
  near(backoff(options, 1, 0), 80ms);
  near(backoff(options, 1, 1), 120ms);
}

TEST(retry, ends_after_the_attempts_allowed_and_never_after_more_than_five) {
  for (unsigned wanted : {1u, 2u, 5u, 100u}) {
    const retry_options options{.max_attempts = wanted};
    retry_throttle throttle{options};
    unsigned attempt = 1;
    while (retry_after(options, throttle, attempt, unavailable, {}, 0.5) && attempt < 1000)
      ++attempt;
    EXPECT_EQ(attempt, std::min(wanted, 5u));
  }
}

TEST(retry, only_listed_codes_count) {
  const retry_options options{.max_attempts = 3};
  retry_throttle throttle{options};
  for (int i = 0; i < 100; ++i)
    EXPECT_FALSE(retry_after(options, throttle, 1, status{code::internal, ""}, {}, 0.5));
  EXPECT_TRUE(throttle.allows());
  EXPECT_TRUE(retry_after(options, throttle, 1, unavailable, {}, 0.5));
}

TEST(retry, many_failures_throttle_and_successes_lift_it) {
  const retry_options options{.max_attempts = 2, .max_tokens = 10, .token_ratio = 0.5};
  retry_throttle throttle{options};
  int retried = 0;
  for (int i = 0; i < 100; ++i)
    retried += retry_after(options, throttle, 1, unavailable, {}, 0.5).has_value();
  EXPECT_EQ(retried, 4);
  for (int i = 0; i < 10; ++i) throttle.succeeded();
  EXPECT_FALSE(throttle.allows());
  throttle.succeeded();
  EXPECT_TRUE(throttle.allows());
}

TEST(retry, heeds_the_server) {
  const retry_options options{.max_attempts = 3};
  retry_throttle throttle{options};
  EXPECT_EQ(retry_after(options, throttle, 1, unavailable, {{"grpc-retry-pushback-ms", "1500"}}, 0),
            duration{1500ms});
  EXPECT_EQ(retry_after(options, throttle, 1, unavailable, {{"grpc-retry-pushback-ms", "0"}}, 0),
            duration{0});
  for (const char* stop : {"-1", "soon", "", "10ms", "99999999999999999999"})
    EXPECT_FALSE(
        retry_after(options, throttle, 1, unavailable, {{"grpc-retry-pushback-ms", stop}}, 0))
        << stop;
}

}  // namespace
}  // namespace weft::rpc
