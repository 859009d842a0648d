#include <weft/io/runtime.hpp>

#include <sched.h>

#include <atomic>
#include <csignal>
#include <set>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(runtime, has_as_many_shards_as_asked_and_one_per_processor_for_zero) {
  EXPECT_EQ(runtime{}.size(), 1u);
  EXPECT_EQ(runtime{{.shards = 3}}.size(), 3u);
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  EXPECT_EQ(runtime{{.shards = 0}}.size(), static_cast<std::size_t>(CPU_COUNT(&allowed)));
}

TEST(runtime, every_shard_has_a_thread_and_shard_0_the_callers) {
  runtime r{{.shards = 3}};
  std::array<std::thread::id, 3> ids;
  std::atomic<std::size_t> left = r.size();
  for (std::size_t i = 0; i < r.size(); ++i) {
    EXPECT_EQ(r[i].index(), i);
    r[i].post([&, i] {
      ids[i] = std::this_thread::get_id();
      if (--left == 0) r.stop();
    });
  }
  r.run();
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  EXPECT_EQ((std::set<std::thread::id>{ids.begin(), ids.end()}.size()), 3u);
}

TEST(runtime, shards_pass_messages_to_each_other) {
  runtime r{{.shards = 2}};
  int hops = 0;  // handed from thread to thread with the message
  std::function<void(std::size_t)> hop = [&](std::size_t at) {
    if (++hops == 1000) return r.stop();
    r[1 - at].post([&, at] { hop(1 - at); });
  };
  r[0].post([&] { hop(0); });
  r.run();
  EXPECT_EQ(hops, 1000);
}

TEST(runtime, pinned_shards_run_where_they_are_pinned_and_the_caller_is_unpinned_after) {
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  runtime r{{.shards = 2, .pin = true}};
  std::array<int, 2> allowed{};
  std::atomic<std::size_t> left = r.size();
  for (std::size_t i = 0; i < r.size(); ++i)
    r[i].post([&, i] {
      cpu_set_t mine;
      sched_getaffinity(0, sizeof mine, &mine);
      allowed[i] = CPU_COUNT(&mine);
      if (--left == 0) r.stop();
    });
  r.run();
  EXPECT_EQ(allowed, (std::array{1, 1}));
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(runtime, first_signal_stops_when_nobody_asks_for_it) {
  runtime r{{.shards = 2}};
  r[0].post([] { std::raise(SIGTERM); });
  EXPECT_EQ(r.run_until_signal(), 0);
}

TEST(runtime, signal_handler_runs_once_and_may_stop_in_order) {
  runtime r;
  int asked = 0;
  r[0].post([] { std::raise(SIGINT); });
  EXPECT_EQ(r.run_until_signal([&] {
    ++asked;
    r[0].post([&] { r.stop(); });
  }),
            0);
  EXPECT_EQ(asked, 1);
}

TEST(runtime, second_signal_stops_at_once_and_says_so_in_the_exit_code) {
  runtime r;
  int asked = 0;
  r[0].post([] { std::raise(SIGTERM); });
  EXPECT_EQ(r.run_until_signal([&] {
    ++asked;
    std::raise(SIGTERM);
  }),
            128 + SIGTERM);
  EXPECT_EQ(asked, 1);
}

TEST(runtime, failure_on_one_shard_stops_all_and_reaches_the_caller) {
  runtime r{{.shards = 2}};
  r[1].post([] { throw std::logic_error{"defect"}; });
  EXPECT_THROW(r.run(), std::logic_error);
}

}  // namespace
}  // namespace weft
