#include <weft/quic/core/pacer.hpp>

#include <gtest/gtest.h>

namespace weft::quic::core::detail {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t window = 1'000'000;
constexpr duration round_trip = 100ms;  // so 12.5 MB/s: 12 500 bytes a millisecond
constexpr time_point start{1h};

TEST(Pacer, LetsAMillisecondsWorthGoAtOnce) {
  pacer p;
  EXPECT_TRUE(p.allows(start));
  p.sent(12'500, window, round_trip, start);
  EXPECT_TRUE(p.allows(start));
  p.sent(1'250, window, round_trip, start);
  EXPECT_FALSE(p.allows(start));
  EXPECT_NEAR(static_cast<double>(pacer::quantum(window, round_trip)), 12'500, 10);
}

TEST(Pacer, PausesNoShorterThanATimerIsWorth) {
  pacer p;
  p.sent(12'501, window, round_trip, start);
  EXPECT_EQ(p.resume_at(), start + 500us);
  EXPECT_TRUE(p.allows(start + 500us));
}

TEST(Pacer, SpreadsAWindowOverTheRoundTripHoweverLateItsTimers) {
  pacer p;
  std::size_t sent = 0;
  time_point now = start;
  while (now < start + round_trip) {
    if (!p.allows(now)) now = p.resume_at() + 100us;
    p.sent(1'250, window, round_trip, now);
    sent += 1'250;
  }
  EXPECT_NEAR(static_cast<double>(sent), 1.25 * window, 0.05 * window);
}

TEST(Pacer, SavesUpNoMoreThanOneBurst) {
  pacer p;
  p.sent(1, window, round_trip, start);
  std::size_t sent = 0;
  for (const auto later = start + 10s; p.allows(later); sent += 1'250)
    p.sent(1'250, window, round_trip, later);
  EXPECT_LE(sent, 15'000u);
}

TEST(Pacer, DoesNotDivideByNothing) {
  pacer p;
  p.sent(1'000, 0, 0ms, start);
  EXPECT_TRUE(p.allows(start));
  EXPECT_EQ(pacer::quantum(window, 0ms), SIZE_MAX);
  EXPECT_EQ(pacer::quantum(0, 1h), 0u);
}

}  // namespace
}  // namespace weft::quic::core::detail
