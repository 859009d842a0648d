#include <weft/io/event.hpp>

#include <memory>

#include <gtest/gtest.h>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>

namespace weft::io {
namespace {

enum class outcome { none, notified, cancelled };

task<> wait_once(event& e, outcome& out) {
  out = co_await e.wait() ? outcome::notified : outcome::cancelled;
}

task<> wait_deaf_to_type(event& e, outcome& out) {
  co_await asio::this_coro::reset_cancellation_state(asio::enable_total_cancellation{});
  co_await asio::this_coro::throw_if_cancelled(false);
  out = co_await e.wait() ? outcome::notified : outcome::cancelled;
}

/// Sets a flag when the coroutine that holds it is destroyed.
struct sentinel {
  bool& gone;
  ~sentinel() { gone = true; }
};

task<> wait_holding(std::shared_ptr<event> e, bool& gone, bool& resumed) {
  const sentinel here{gone};
  (void)co_await e->wait();
  resumed = true;
}

TEST(event, notify_resumes_inline_and_is_no_op_without_waiter) {
  asio::io_context context{1};
  event e;
  outcome out = outcome::none;
  e.notify();
  asio::co_spawn(context, wait_once(e, out), asio::detached);
  context.poll();
  EXPECT_TRUE(e.waiting());
  EXPECT_EQ(out, outcome::none) << "an earlier notify must not be remembered";
  e.notify();
  EXPECT_EQ(out, outcome::notified);
  EXPECT_FALSE(e.waiting());
}

task<> count_notifications(event& e, int& rounds, int limit) {
  while (rounds < limit) {
    if (!co_await e.wait()) co_return;
    ++rounds;
  }
}

TEST(event, can_be_waited_for_again_from_inside_notify) {
  asio::io_context context{1};
  event e;
  constexpr int limit = 1000;
  int rounds = 0;
  asio::co_spawn(context, count_notifications(e, rounds, limit), asio::detached);
  context.poll();
  for (int i = 0; i < limit; ++i) e.notify();
  EXPECT_EQ(rounds, limit);
  EXPECT_FALSE(e.waiting());
}

TEST(event, resumed_coroutine_may_destroy_the_event) {
  asio::io_context context{1};
  auto owner = std::make_unique<event>();
  event& e = *owner;
  bool destroyed = false;
  asio::co_spawn(
      context,
      [](std::unique_ptr<event> ev, bool& gone) -> task<> {
        (void)co_await ev->wait();
        ev.reset();
        gone = true;
      }(std::move(owner), destroyed),
      asio::detached);
  context.poll();
  e.notify();
  EXPECT_TRUE(destroyed);
}

class event_cancellation : public testing::TestWithParam<asio::cancellation_type> {};

TEST_P(event_cancellation, completes_with_false_but_not_inline) {
  asio::io_context context{1};
  asio::cancellation_signal signal;
  event e;
  outcome out = outcome::none;
  asio::co_spawn(context, wait_deaf_to_type(e, out),
                 asio::bind_cancellation_slot(signal.slot(), asio::detached));
  context.poll();
  ASSERT_TRUE(e.waiting());
  signal.emit(GetParam());
  EXPECT_FALSE(e.waiting());
  EXPECT_EQ(out, outcome::none) << "must not resume inside emit()";
  e.notify();
  signal.emit(GetParam());  // twice must do no harm
  EXPECT_EQ(out, outcome::none);
  context.restart();
  context.poll();
  EXPECT_EQ(out, outcome::cancelled);
}

INSTANTIATE_TEST_SUITE_P(types, event_cancellation,
                         testing::Values(asio::cancellation_type::terminal,
                                         asio::cancellation_type::partial,
                                         asio::cancellation_type::total));

TEST(event, second_emit_does_not_touch_the_next_waiter) {
  asio::io_context context{1};
  asio::cancellation_signal first_signal;
  event e;
  outcome first = outcome::none, second = outcome::none;
  asio::co_spawn(context, wait_deaf_to_type(e, first),
                 asio::bind_cancellation_slot(first_signal.slot(), asio::detached));
  context.poll();
  first_signal.emit(asio::cancellation_type::total);
  asio::co_spawn(context, wait_once(e, second), asio::detached);
  first_signal.emit(asio::cancellation_type::terminal);
  context.restart();
  context.poll();
  first_signal.emit(asio::cancellation_type::terminal);
  EXPECT_EQ(first, outcome::cancelled);
  EXPECT_TRUE(e.waiting());
  e.notify();
  EXPECT_EQ(second, outcome::notified);
}

TEST(event, cancellation_after_completion_is_ignored) {
  asio::io_context context{1};
  asio::cancellation_signal signal;
  event e;
  outcome out = outcome::none;
  asio::co_spawn(context, wait_deaf_to_type(e, out),
                 asio::bind_cancellation_slot(signal.slot(), asio::detached));
  context.poll();
  e.notify();
  signal.emit(asio::cancellation_type::terminal);
  context.restart();
  context.poll();
  EXPECT_EQ(out, outcome::notified);
}

TEST(event, coroutine_already_cancelled_does_not_wait) {
  asio::io_context context{1};
  asio::cancellation_signal signal;
  event first, second;
  outcome out = outcome::none;
  asio::co_spawn(
      context,
      [](event& a, event& b, outcome& o) -> task<> {
        co_await asio::this_coro::throw_if_cancelled(false);
        (void)co_await a.wait();
        o = co_await b.wait() ? outcome::notified : outcome::cancelled;
      }(first, second, out),
      asio::bind_cancellation_slot(signal.slot(), asio::detached));
  context.poll();
  signal.emit(asio::cancellation_type::terminal);
  context.restart();
  context.poll();
  EXPECT_EQ(out, outcome::cancelled);
  EXPECT_FALSE(second.waiting());
}

TEST(event, end_of_the_loop_destroys_a_waiter_that_owns_its_event) {
  bool gone = false, resumed = false;
  std::weak_ptr<event> watched;
  {
    asio::io_context context{1};
    auto e = std::make_shared<event>();
    watched = e;
    asio::co_spawn(context, wait_holding(std::move(e), gone, resumed), asio::detached);
    context.poll();
    EXPECT_FALSE(gone);
  }
  EXPECT_TRUE(gone) << "a circle of coroutine and event must not outlive the loop";
  EXPECT_FALSE(resumed);
  EXPECT_TRUE(watched.expired());
}

TEST(event, may_outlive_the_loop) {
  event e;
  outcome out = outcome::none;
  {
    asio::io_context context{1};
    asio::co_spawn(context, wait_once(e, out), asio::detached);
    context.poll();
    EXPECT_TRUE(e.waiting());
  }
  EXPECT_FALSE(e.waiting());
  e.notify();
  EXPECT_EQ(out, outcome::none);
}

TEST(event, loop_may_end_between_cancellation_and_resumption) {
  bool gone = false, resumed = false;
  asio::cancellation_signal signal;
  {
    asio::io_context context{1};
    asio::co_spawn(context, wait_holding(std::make_shared<event>(), gone, resumed),
                   asio::bind_cancellation_slot(signal.slot(), asio::detached));
    context.poll();
    signal.emit(asio::cancellation_type::terminal);
  }
  EXPECT_TRUE(gone);
  EXPECT_FALSE(resumed);
}

TEST(event, destroyed_event_destroys_its_waiter_and_is_safe_from_later_cancellation) {
  asio::io_context context{1};
  asio::cancellation_signal signal;
  bool gone = false, resumed = false;
  auto e = std::make_unique<event>();
  asio::co_spawn(
      context,
      [](event& ev, bool& g, bool& r) -> task<> {
        const sentinel here{g};
        (void)co_await ev.wait();
        r = true;
      }(*e, gone, resumed),
      asio::bind_cancellation_slot(signal.slot(), asio::detached));
  context.poll();
  e.reset();
  signal.emit(asio::cancellation_type::terminal);
  context.restart();
  context.poll();
  EXPECT_TRUE(gone);
  EXPECT_FALSE(resumed);
}

}  // namespace
}  // namespace weft::io
