#include <gtest/gtest.h>

#include <map>
#include <vector>

#include <weft/quic/core/scheduler.hpp>

namespace weft::quic::core::detail {
namespace {

/// Bytes each entry got out of `total`, sent in packets of `packet`.
std::map<schedule_entry*, std::size_t> send(scheduler& s, std::size_t total, std::size_t packet) {
  std::map<schedule_entry*, std::size_t> got;
  for (std::size_t sent = 0; sent < total; sent += packet) {
    schedule_entry* entry = s.pick();
    if (!entry) break;
    got[entry] += packet;
    s.charge(*entry, packet);
  }
  return got;
}

TEST(Scheduler, EmptyPicksNothing) {
  scheduler s;
  EXPECT_TRUE(s.empty());
  EXPECT_EQ(s.pick(), nullptr);
}

TEST(Scheduler, UrgentGoesFirst) {
  scheduler s;
  schedule_entry low{.urgency = 5}, high{.urgency = 1};
  s.add(low);
  s.add(high);
  EXPECT_EQ(s.pick(), &high);
  s.remove(high);
  EXPECT_EQ(s.pick(), &low);
  s.remove(low);
  EXPECT_TRUE(s.empty());
}

TEST(Scheduler, OneUrgencySharesByBytes) {
  scheduler s;
  schedule_entry a, b, c;
  for (auto* entry : {&a, &b, &c}) s.add(*entry);
  auto got = send(s, 3'000'000, 1200);
  for (auto* entry : {&a, &b, &c}) EXPECT_NEAR(static_cast<double>(got[entry]), 1e6, 40'000);
}

TEST(Scheduler, SharesByBytesWhateverThePacketSize) {
  scheduler s;
  schedule_entry big, small;
  s.add(big);
  s.add(small);
  std::size_t got_big = 0, got_small = 0;
  for (int i = 0; i < 20'000; ++i) {
    schedule_entry* entry = s.pick();
    const std::size_t size = entry == &big ? 60'000 : 300;
    (entry == &big ? got_big : got_small) += size;
    s.charge(*entry, size);
  }
  EXPECT_NEAR(static_cast<double>(got_big) / static_cast<double>(got_small), 1.0, 0.1);
}

/// How often another entry than before was picked, while three have 64 KiB each to send.
int changes_of_turn(std::size_t quantum) {
  constexpr std::size_t packet = 1'024, message = 64 * 1'024;
  scheduler s;
  s.set_quantum(quantum);
  std::array<schedule_entry, 3> entries;
  std::map<schedule_entry*, std::size_t> left;
  for (auto& entry : entries) {
    s.add(entry);
    left[&entry] = message;
  }
  int changes = 0;
  for (schedule_entry* before = nullptr; !s.empty();) {
    schedule_entry* entry = s.pick();
    if (entry != before) ++changes;
    before = entry;
    s.charge(*entry, packet);
    if ((left[entry] -= packet) == 0) s.remove(*entry);
  }
  return changes;
}

TEST(Scheduler, FastPathSendsMessagesOneAfterTheOther) {
  EXPECT_EQ(changes_of_turn(SIZE_MAX), 3);
  EXPECT_EQ(changes_of_turn(128 * 1024), 3);
  EXPECT_EQ(changes_of_turn(32 * 1024), 6);
  EXPECT_EQ(changes_of_turn(16 * 1024), 12);
  EXPECT_EQ(changes_of_turn(0), 12);
}

TEST(Scheduler, NoUrgencyStarves) {
  scheduler s;
  std::array<schedule_entry, 8> entries;
  for (std::uint8_t i = 0; i < 8; ++i) {
    entries[i].urgency = i;
    s.add(entries[i]);
  }
  auto got = send(s, 16'000'000, 1200);
  for (int i = 1; i < 8; ++i) {
    EXPECT_GT(got[&entries[static_cast<std::size_t>(i)]], 400'000u) << i;
    EXPECT_LT(got[&entries[static_cast<std::size_t>(i)]], 1'600'000u) << i;
  }
  EXPECT_GT(got[&entries[0]], 8'000'000u);
}

TEST(Scheduler, LowestGetsItsSixteenthBesideOne) {
  scheduler s;
  schedule_entry bulk{.urgency = 7}, rpc{.urgency = 0};
  s.add(bulk);
  s.add(rpc);
  auto got = send(s, 16'000'000, 1200);
  EXPECT_NEAR(static_cast<double>(got[&bulk]), 1e6, 1e5);
}

TEST(Scheduler, InOrderEntriesAreServedOneAfterTheOther) {
  scheduler s;
  schedule_entry first{.incremental = false}, second{.incremental = false};
  s.add(first);
  s.add(second);
  auto got = send(s, 1'000'000, 1200);
  EXPECT_EQ(got[&second], 0u);
  s.remove(first);
  EXPECT_EQ(s.pick(), &second);
}

TEST(Scheduler, InOrderOneSharesWithIncrementalOnes) {
  scheduler s;
  schedule_entry ordered{.incremental = false}, waiting{.incremental = false}, a, b;
  for (auto* entry : {&ordered, &waiting, &a, &b}) s.add(*entry);
  auto got = send(s, 3'000'000, 1200);
  EXPECT_EQ(got[&waiting], 0u);
  for (auto* entry : {&ordered, &a, &b}) EXPECT_NEAR(static_cast<double>(got[entry]), 1e6, 40'000);
}

TEST(Scheduler, ChangingPriorityMovesAQueuedEntry) {
  scheduler s;
  schedule_entry a, b;
  s.add(a);
  s.add(b);
  s.change(b, 0, true);
  EXPECT_EQ(s.pick(), &b);
  s.change(b, 200, false);
  EXPECT_EQ(b.urgency, 7);
  EXPECT_EQ(s.pick(), &a);
}

TEST(Scheduler, AnEntryCannotSaveUpTurns) {
  scheduler s;
  schedule_entry lazy, busy;
  s.add(busy);
  s.add(lazy);
  s.remove(lazy);
  send(s, 10'000'000, 1200);
  s.add(lazy);
  auto got = send(s, 200'000, 1000);
  EXPECT_NEAR(static_cast<double>(got[&lazy]), 1e5, 20'000);
}

}  // namespace
}  // namespace weft::quic::core::detail
