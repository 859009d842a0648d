#include <weft/io/shard.hpp>

#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/post.hpp>

#include <weft/io/event.hpp>
#include <weft/io/timer_queue.hpp>

namespace weft::io {
namespace {

using namespace std::chrono_literals;

TEST(shard, now_is_monotonic_and_follows_the_steady_clock) {
  const auto a = now();
  const auto steady = std::chrono::steady_clock::now().time_since_epoch();
  const auto b = now();
  EXPECT_LE(a.time_since_epoch(), steady);
  EXPECT_LE(steady, b.time_since_epoch());
}

TEST(shard, run_returns_when_no_work_is_left_and_can_run_again) {
  shard s;
  int ran = 0;
  s.run();
  s.post([&] { ++ran; });
  s.run();
  s.post([&] { ++ran; });
  s.run();
  EXPECT_EQ(ran, 2);
}

TEST(shard, stop_before_run_is_not_lost_and_counts_once) {
  shard s;
  int ran = 0;
  s.post([&] { ++ran; });
  s.stop();
  s.run();
  EXPECT_EQ(ran, 0);
  s.run();
  EXPECT_EQ(ran, 1);
}

TEST(shard, end_of_turn_runs_after_everything_that_is_ready) {
  shard s;
  std::string log;
  s.post([&] {
    log += 'a';
    s.at_end_of_turn([&] { log += 'X'; });
  });
  s.post([&] { log += 'b'; });
  s.post([&] {
    log += 'c';
    s.at_end_of_turn([&] { log += 'Y'; });
  });
  s.run();
  EXPECT_EQ(log, "abcXY");
}

TEST(shard, end_of_turn_work_may_add_more_of_it_in_the_same_turn) {
  shard s;
  std::string log;
  s.post([&] {
    s.at_end_of_turn([&] {
      log += '1';
      s.post([&] { log += 'p'; });
      s.at_end_of_turn([&] { log += '2'; });
    });
  });
  s.run();
  EXPECT_EQ(log, "12p");
}

TEST(shard, end_of_turn_work_that_never_ends_does_not_starve_handlers) {
  shard s;
  int rounds = 0;
  bool handled = false;
  std::function<void()> again = [&] {
    if (++rounds == 1) s.post([&] { handled = true; });
    if (!handled) s.at_end_of_turn(again);
  };
  s.at_end_of_turn(again);
  s.run();
  EXPECT_TRUE(handled);
  EXPECT_LT(rounds, 20);
}

TEST(shard, handlers_that_never_end_do_not_starve_the_end_of_the_turn) {
  shard s;
  bool flushed = false;
  int steps = 0;
  std::function<void()> busy = [&] {
    if (++steps == 1) s.at_end_of_turn([&] { flushed = true; });
    if (!flushed) asio::post(s.get_executor(), busy);
  };
  s.post(busy);
  s.run();
  EXPECT_TRUE(flushed);
  EXPECT_LT(steps, 20);
}

TEST(shard, post_from_other_threads_reaches_the_shard) {
  shard s;
  constexpr int threads = 4, each = 2000;
  int sum = 0;  // touched by the shard's thread only
  {
    std::vector<std::jthread> others;
    for (int t = 0; t < threads; ++t)
      others.emplace_back([&] {
        for (int i = 0; i < each; ++i)
          s.post([&] {
            if (++sum == threads * each) s.stop();
          });
      });
    const auto work = asio::make_work_guard(s.context());
    s.run();
  }
  EXPECT_EQ(sum, threads * each);
}

TEST(shard, spinning_loop_runs_handlers_timers_and_ends) {
  shard s{0, {.spin = 200us}};
  std::string log;
  timer t;
  s.arm(t, now() + 1ms, [&](time_point) {
    log += 't';
    s.at_end_of_turn([&] { log += 'h'; });
  });
  s.post([&] { log += 'p'; });
  s.run();
  EXPECT_EQ(log, "pth");
}

TEST(timer, fires_in_order_of_deadline_and_never_early) {
  shard s;
  std::vector<int> order;
  std::vector<std::unique_ptr<timer>> timers;
  const auto start = now();
  for (const int ms : {5, 1, 3, 2, 4, 0}) {
    timers.push_back(std::make_unique<timer>());
    const auto deadline = start + ms * 1ms;
    s.arm(*timers.back(), deadline, [&order, ms, deadline](time_point at) {
      EXPECT_GE(at, deadline);
      EXPECT_GE(now(), deadline);
      order.push_back(ms);
    });
  }
  EXPECT_TRUE(order.empty()) << "arming never fires inline, however late the deadline";
  s.run();
  EXPECT_EQ(order, (std::vector{0, 1, 2, 3, 4, 5}));
  for (const auto& t : timers) EXPECT_FALSE(t->armed());
}

TEST(timer, equal_deadlines_fire_in_the_order_they_were_armed) {
  shard s;
  std::string log;
  timer a, b, c;
  const auto deadline = now();
  s.arm(b, deadline, [&](time_point) { log += 'b'; });
  s.arm(a, deadline, [&](time_point) { log += 'a'; });
  s.arm(c, deadline, [&](time_point) { log += 'c'; });
  s.run();
  EXPECT_EQ(log, "bac");
}

TEST(timer, disarmed_timer_does_not_fire_and_does_not_hold_the_loop) {
  shard s;
  bool fired = false;
  timer t;
  s.arm(t, now() + 1h, [&](time_point) { fired = true; });
  EXPECT_TRUE(t.armed());
  s.disarm(t);
  EXPECT_FALSE(t.armed());
  const auto start = now();
  s.run();
  EXPECT_LT(now() - start, 1min);
  EXPECT_FALSE(fired);
  // Armed again on the same, still pending, wait of the system timer.
  s.arm(t, now() + 1ms, [&](time_point) { fired = true; });
  s.run();
  EXPECT_TRUE(fired);
}

TEST(timer, disarm_and_arm_again_keeps_the_loop_running) {
  shard s;
  bool fired = false;
  timer t, other;
  s.arm(t, now() + 2ms, [](time_point) { FAIL(); });
  s.disarm(t);
  s.arm(other, now() + 20ms, [&](time_point) { fired = true; });  // later than the pending wait
  s.run();
  EXPECT_TRUE(fired);
}

TEST(timer, destroyed_timer_does_not_fire) {
  shard s;
  auto t = std::make_unique<timer>();
  s.arm(*t, now() + 1ms, [](time_point) { FAIL(); });
  t.reset();
  s.run();
}

TEST(timer, may_outlive_its_shard) {
  timer t, unarmed;
  {
    shard s;
    s.arm(t, now() + 1h, [](time_point) { FAIL(); });
    s.arm(unarmed, now(), [](time_point) {});
    s.post([&] { s.stop(); });
    s.run();
    s.arm(unarmed, now() + 1h, [](time_point) { FAIL(); });
    s.disarm(unarmed);
  }
  EXPECT_FALSE(t.armed());
}

TEST(timer, never_does_not_fire_nor_hold_the_loop_but_is_armed) {
  shard s;
  timer t;
  s.arm(t, never, [](time_point) { FAIL(); });
  EXPECT_TRUE(t.armed());
  s.run();
  EXPECT_TRUE(t.armed());
  bool fired = false;
  s.arm(t, now(), [&](time_point) { fired = true; });
  s.run();
  EXPECT_TRUE(fired);
}

TEST(timer, callback_may_rearm_replace_or_destroy_its_timer) {
  shard s;
  int rearmed = 0;
  timer again;
  s.arm(again, now(), [&](time_point at) {
    if (++rearmed < 5) s.rearm(again, at);  // already past: next batch, not an endless loop
  });
  timer replaced;
  std::string log;
  s.arm(replaced, now(), [&, big = std::vector<int>(100)](time_point) {
    s.arm(replaced, now(), [&](time_point) { log += 'r'; });
    EXPECT_EQ(big.size(), 100u);  // the running callback is still whole
  });
  auto doomed = std::make_unique<timer>();
  s.arm(*doomed, now(), [&, big = std::vector<int>(100)](time_point) {
    doomed.reset();
    EXPECT_EQ(big.size(), 100u);
    log += 'd';
  });
  auto self_disarmed = std::make_shared<timer>();
  std::weak_ptr<timer> watched = self_disarmed;
  s.arm(*self_disarmed, now(), [&s, keep = self_disarmed](time_point) { s.disarm(*keep); });
  self_disarmed.reset();
  s.run();
  EXPECT_EQ(rearmed, 5);
  EXPECT_EQ(log, "dr");
  EXPECT_TRUE(watched.expired()) << "disarm lets go of the callback, also from inside";
}

TEST(timer, rearm_after_firing_keeps_the_callback) {
  shard s;
  int fired = 0;
  timer t;
  s.arm(t, now(), [&](time_point) { ++fired; });
  s.run();
  s.rearm(t, now());
  s.run();
  EXPECT_EQ(fired, 2);
}

TEST(timer, callback_may_destroy_another_timer_due_in_the_same_batch) {
  shard s;
  auto victim = std::make_unique<timer>();
  timer killer;
  const auto deadline = now();
  s.arm(killer, deadline, [&](time_point) { victim.reset(); });
  s.arm(*victim, deadline, [](time_point) { FAIL(); });
  s.run();
  EXPECT_FALSE(victim);
}

TEST(timer_queue, moving_deadlines_costs_no_system_call) {
  asio::io_context context{1};
  timer_queue queue{context};
  timer t, idle;
  const auto start = now();
  queue.arm(idle, start + 30s, [](time_point) {});
  queue.arm(t, start + 1s, [](time_point) {});
  const auto before = queue.system_arms();
  for (int i = 1; i <= 1000; ++i) queue.rearm(t, start + 1s + i * 1us);
  for (int i = 1000; i >= 0; --i) queue.rearm(t, start + 1s + i * 1us);
  for (int i = 0; i < 1000; ++i) {
    queue.disarm(t);
    queue.arm(t, start + 2s, [](time_point) {});
  }
  EXPECT_EQ(queue.system_arms(), before);
  queue.rearm(t, start + 500ms);
  EXPECT_EQ(queue.system_arms(), before + 1);
}

TEST(timer_queue, deferral_sets_the_system_timer_once_a_turn) {
  asio::io_context context{1};
  timer_queue queue{context};
  timer t;
  const auto start = now();
  queue.defer();
  for (int i = 100; i > 0; --i) queue.arm(t, start + i * 1s, [](time_point) {});
  EXPECT_EQ(queue.system_arms(), 0u);
  queue.settle();
  EXPECT_EQ(queue.system_arms(), 1u);
}

// Against a model: random arms, moves and disarms; what fires must be what the model says.
TEST(timer_queue, agrees_with_a_sorted_set_over_random_operations) {
  constexpr std::uint32_t seed = 20'261'130;
  std::mt19937 random{seed};
  shard s;
  constexpr std::size_t count = 200;
  std::vector<timer> timers(count);
  std::set<std::pair<time_point, std::size_t>> model;
  std::vector<std::pair<time_point, std::size_t>> fired;
  const auto base = now() - 1s;  // all due when the loop runs
  for (int step = 0; step < 20'000; ++step) {
    const std::size_t i = random() % count;
    const auto deadline = base + std::chrono::nanoseconds{random() % 1'000'000};
    if (timers[i].armed()) model.erase({timers[i].deadline(), i});
    switch (random() % 3) {
      case 0:
        s.disarm(timers[i]);
        continue;
      case 1:
        if (timers[i].armed()) {
          s.rearm(timers[i], deadline);
          break;
        }
        [[fallthrough]];
      default:
        s.arm(timers[i], deadline,
              [&, i](time_point) { fired.emplace_back(timers[i].deadline(), i); });
    }
    model.emplace(deadline, i);
  }
  s.run();
  ASSERT_EQ(fired.size(), model.size()) << "seed " << seed;
  EXPECT_TRUE(std::ranges::is_sorted(fired, {}, [](const auto& f) { return f.first; }));
  EXPECT_EQ((std::set<std::pair<time_point, std::size_t>>{fired.begin(), fired.end()}), model);
}

TEST(sleep, completes_at_its_deadline_and_reports_cancellation) {
  shard s;
  asio::cancellation_signal signal;
  std::optional<result<>> slept, cancelled;
  const auto deadline = now() + 2ms;
  auto sleeper = [](shard& sh, time_point at, std::optional<result<>>& out) -> task<> {
    out = co_await sh.sleep_until(at);
    EXPECT_TRUE(!*out || now() >= at);
  };
  asio::co_spawn(s.get_executor(), sleeper(s, deadline, slept), asio::detached);
  asio::co_spawn(s.get_executor(), sleeper(s, now() + 1h, cancelled),
                 asio::bind_cancellation_slot(signal.slot(), asio::detached));
  timer t;
  s.arm(t, now() + 1ms, [&](time_point) { signal.emit(asio::cancellation_type::terminal); });
  s.run();
  ASSERT_TRUE(slept && cancelled);
  EXPECT_TRUE(slept->has_value());
  ASSERT_FALSE(cancelled->has_value());
  EXPECT_EQ(cancelled->error(), errc::cancelled);
}

TEST(sleep, shard_may_end_while_coroutines_sleep_and_hooks_wait) {
  auto held = std::make_shared<int>(1);
  {
    shard s;
    asio::co_spawn(
        s.get_executor(),
        [](shard& sh, std::shared_ptr<int>) -> task<> {
          (void)co_await sh.sleep_until(now() + 1h);
          ADD_FAILURE() << "resumed by the end of the shard";
        }(s, held),
        asio::detached);
    s.post([&] {
      s.at_end_of_turn([held] { ADD_FAILURE() << "ran after stop"; });
      s.stop();
    });
    s.run();
    EXPECT_GT(held.use_count(), 1);
  }
  EXPECT_EQ(held.use_count(), 1);
}

TEST(sleep, what_goes_with_its_shard_may_post_to_it) {
  struct poster {
    shard& on;
    int& posts;
    ~poster() {
      ++posts;
      on.post([] { ADD_FAILURE() << "ran after the end of the loop"; });
    }
  };
  int posts = 0;
  {
    shard s;
    asio::co_spawn(
        s.get_executor(),
        [](shard& sh, int& count) -> task<> {
          const poster last{sh, count};
          (void)co_await sh.sleep_until(now() + 1h);
        }(s, posts),
        asio::detached);
    s.post([&s] { s.stop(); });
    s.run();
    EXPECT_EQ(posts, 0);
  }
  EXPECT_EQ(posts, 1);
}

}  // namespace
}  // namespace weft::io
