#include <asio/ip/tcp.hpp>
#include <asio/ip/udp.hpp>

#include <weft/rpc/host/suite_fixture.hpp>

// Deadlines and cancellation, at every stage of a call.

namespace weft::rpc::suite {
namespace {

WEFT_SUITE(times);

/// Takes packets and connections and never answers.
struct black_hole {
  explicit black_hole(io::shard& shard)
      : tcp{shard.context(), {asio::ip::make_address("127.0.0.1"), 0}},
        udp{shard.context(), {asio::ip::make_address("127.0.0.1"), tcp.local_endpoint().port()}} {}
  std::string target() const { return "127.0.0.1:" + std::to_string(tcp.local_endpoint().port()); }
  asio::ip::tcp::acceptor tcp;
  asio::ip::udp::socket udp;
};

WEFT_SUITE_TEST(times, timeout_before_the_connection_is_there) {
  const black_hole nobody{t.shard()};
  const auto lost = t.connect_to(nobody.target());
  for (const bool patient : {false, true}) {
    const auto start = io::now();
    auto reply = co_await unary_call<text, text>(*lost, methods[echo], value("x"),
                                                 {.timeout = 50ms, .wait_for_ready = patient});
    EXPECT_EQ(code_of(reply), code::deadline_exceeded);
    EXPECT_NE(reply.error().message().find("while connecting to " + nobody.target()),
              std::string::npos)
        << reply.error().to_string();
    EXPECT_GE(io::now() - start, 50ms);
  }
}

WEFT_SUITE_TEST(times, a_deadline_that_has_passed) {
  for (call_options options :
       {call_options{.timeout = 0ms}, call_options{.timeout = -1h},
        call_options{.timeout = duration::min()}, call_options{.deadline = io::now() - 1ms},
        call_options{.timeout = 1h, .deadline = time_point{}}}) {
    EXPECT_EQ(code_of(co_await t.call(echo, "x", options)), code::deadline_exceeded);
    auto sent = co_await one_way_call(t.channel(), methods[note], value("late"), options);
    EXPECT_FALSE(sent);
  }
  EXPECT_TRUE(co_await t.channel().connect());
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(code_of(co_await t.call(hold, "x", {.timeout = 0ms})), code::deadline_exceeded);
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
  EXPECT_TRUE(t.probe_->notes.empty());
}

WEFT_SUITE_TEST(times, timeouts_beyond_all_time_do_not_wrap) {
  for (call_options options :
       {call_options{.timeout = duration::max()}, call_options{.deadline = never},
        call_options{.timeout = duration::max(), .deadline = never},
        call_options{.timeout = duration::max() - 1ns}}) {
    auto reply = co_await t.call(echo, "x", options);
    EXPECT_EQ(code_of(reply), code::ok) << reply.error().to_string();
  }
}

WEFT_SUITE_TEST(times, timeout_in_flight_reaches_the_handler_and_spares_the_connection) {
  EXPECT_TRUE(co_await t.channel().connect());
  auto reply = co_await t.call(hold, "x", {.timeout = 30ms});
  EXPECT_EQ(code_of(reply), code::deadline_exceeded);
  co_await t.until([&] { return t.probe_->cancelled == 1; });
  EXPECT_GT(t.probe_->remaining, 0ms);
  EXPECT_LE(t.probe_->remaining, 30ms);
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
}

WEFT_SUITE_TEST(times, late_replies_after_timeouts_harm_nothing) {
  EXPECT_TRUE(co_await t.channel().connect());
  for (int i = 0; i < 50; ++i)
    (void)co_await t.call(echo, "x", {.timeout = std::chrono::microseconds{i * 40}});
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
}

WEFT_SUITE_TEST(times, the_server_learns_what_is_left_of_the_deadline) {
  EXPECT_TRUE(co_await t.channel().connect());
  EXPECT_EQ(code_of(co_await t.call(echo, "x", {.timeout = 10s})), code::ok);
  EXPECT_GT(t.probe_->remaining, 9s);
  EXPECT_LE(t.probe_->remaining, 10s);
  EXPECT_EQ(code_of(co_await t.call(echo, "x", {.deadline = io::now() + 5s})), code::ok);
  EXPECT_GT(t.probe_->remaining, 4s);
  EXPECT_LE(t.probe_->remaining, 5s);
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
  EXPECT_EQ(t.probe_->seen.deadline, never);
}

task<> call_when_full(carriers& t) {
  EXPECT_TRUE(co_await t.channel().connect());
  std::array<std::optional<result<text>>, 2> running;
  for (auto& each : running) t.call_beside(hold, "x", each);
  co_await t.until([&] { return t.probe_->held.size() == 2; });
  // Whether it waits for credit or is turned away, it ends in time and never reaches the handler.
  auto queued = co_await t.call(hold, "queued", {.timeout = 50ms});
  EXPECT_TRUE(code_of(queued) == code::deadline_exceeded ||
              code_of(queued) == code::resource_exhausted)
      << queued.error().to_string();
  EXPECT_EQ(t.probe_->held.size(), 2u);
  t.probe_->release(0);
  t.probe_->release(1);
  co_await t.until([&] { return running[0] && running[1]; });
  EXPECT_EQ(code_of(co_await t.call(echo, "x", {.timeout = 10s})), code::ok);
}

TEST_P(times, timeout_in_queue) {
  server_options_.limits.max_concurrent_calls = 2;
  server_options_.transport.max_bidi_streams = 2;
  start_server();
  run(call_when_full(*this));
}

task<> be_called(carriers& t, std::string request, std::optional<result<text>>& outcome) {
  co_await asio::this_coro::throw_if_cancelled(false);
  outcome = co_await t.call(hold, std::move(request));
}

task<> wait_for_stream_credit(carriers& t) {
  EXPECT_TRUE(co_await t.channel().connect());
  std::array<std::optional<result<text>>, 2> running;
  for (auto& each : running) t.call_beside(hold, "x", each);
  co_await t.until([&] { return t.probe_->held.size() == 2; });
  auto queued = co_await t.call(hold, "queued", {.timeout = 50ms});
  EXPECT_EQ(code_of(queued), code::deadline_exceeded) << queued.error().to_string();
  asio::cancellation_signal signal;
  std::optional<result<text>> outcome;
  bool ended = false;
  asio::co_spawn(
      t.shard().get_executor(), be_called(t, "queued", outcome),
      asio::bind_cancellation_slot(signal.slot(), [&](std::exception_ptr) { ended = true; }));
  co_await t.settle();
  signal.emit(asio::cancellation_type::terminal);
  co_await t.until([&] { return ended; });
  EXPECT_EQ(code_of(*outcome), code::cancelled);
  // On a lane it needs no stream, and is begun.
  if (t.GetParam() == carrier::quic && !t.GetParam().lanes) {
    EXPECT_EQ(t.probe_->held.size(), 2u);
  }
  t.probe_->release(0);
  t.probe_->release(1);
  co_await t.until([&] { return running[0] && running[1]; });
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(code_of(co_await t.call(echo, "x", {.timeout = 10s})), code::ok)
        << "what was waited for in vain is not lost";
}

TEST_P(times, a_call_without_stream_credit_ends_in_time) {
  server_options_.transport.max_bidi_streams = 2;
  start_server();
  run(wait_for_stream_credit(*this));
}

// Cancellation
// ---------------------------------------------------------------------------------------

WEFT_SUITE_TEST(times, cancel_before_anything_is_sent) {
  EXPECT_TRUE(co_await t.channel().connect());
  auto call = co_await t.channel().start(methods[hold], {});
  (*call)->cancel({code::cancelled, "changed my mind"});
  auto written = co_await (*call)->write(*encode(value("x")), true);
  EXPECT_EQ(written.error().code(), code::cancelled);
  auto reply = co_await (*call)->read();
  EXPECT_EQ(reply.error(), (status{code::cancelled, "changed my mind"}));
  call->reset();
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
  EXPECT_TRUE(t.probe_->held.empty());
}

WEFT_SUITE_TEST(times, cancel_in_flight_reaches_the_handler) {
  for (const bool sleeps : {false, true}) {
    t.probe_->hold_sleeps = sleeps;
    auto call = co_await t.channel().start(methods[hold], {});
    EXPECT_TRUE(co_await (*call)->write(*encode(value("x")), true));
    const auto before = t.probe_->held.size();
    co_await t.until([&] { return t.probe_->held.size() == before + 1 || before > 0; });
    co_await t.until([&] { return t.probe_->held.size() == (sleeps ? 2u : 1u); });
    (*call)->cancel({code::cancelled, "enough"});
    auto reply = co_await (*call)->read();
    EXPECT_EQ(reply.error().code(), code::cancelled);
    co_await t.until([&] { return t.probe_->cancelled == (sleeps ? 2 : 1); });
  }
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
}

WEFT_SUITE_TEST(times, dropping_a_call_cancels_it) {
  {
    auto call = co_await t.channel().start(methods[hold], {});
    EXPECT_TRUE(co_await (*call)->write(*encode(value("x")), true));
    co_await t.until([&] { return t.probe_->held.size() == 1; });
  }
  co_await t.until([&] { return t.probe_->cancelled == 1; });
}

WEFT_SUITE_TEST(times, cancelling_the_calling_coroutine_cancels_the_call) {
  EXPECT_TRUE(co_await t.channel().connect());
  asio::cancellation_signal signal;
  std::optional<result<text>> outcome;
  bool ended = false;
  asio::co_spawn(
      t.shard().get_executor(), be_called(t, "x", outcome),
      asio::bind_cancellation_slot(signal.slot(), [&](std::exception_ptr) { ended = true; }));
  co_await t.until([&] { return t.probe_->held.size() == 1; });
  signal.emit(asio::cancellation_type::terminal);
  co_await t.until([&] { return ended && t.probe_->cancelled == 1; });
  EXPECT_EQ(code_of(*outcome), code::cancelled);
}

WEFT_SUITE_TEST(times, cancelling_a_call_that_waits_for_its_connection) {
  const black_hole nobody{t.shard()};
  t.channel_ = t.connect_to(nobody.target());
  asio::cancellation_signal signal;
  std::optional<result<text>> outcome;
  bool ended = false;
  asio::co_spawn(
      t.shard().get_executor(), be_called(t, "x", outcome),
      asio::bind_cancellation_slot(signal.slot(), [&](std::exception_ptr) { ended = true; }));
  co_await t.settle();
  signal.emit(asio::cancellation_type::terminal);
  co_await t.until([&] { return ended; });
  EXPECT_EQ(code_of(*outcome), code::cancelled);
}

WEFT_SUITE_TEST(times, destroying_the_channel_cancels_its_calls) {
  std::array<std::optional<result<text>>, 3> outcomes;
  for (auto& each : outcomes) t.call_beside(hold, "x", each);
  co_await t.until([&] { return t.probe_->held.size() == 3; });
  t.channel_.reset();
  co_await t.until([&] { return outcomes[0] && outcomes[1] && outcomes[2]; });
  for (auto& each : outcomes) EXPECT_EQ(code_of(*each), code::cancelled);
  co_await t.until([&] { return t.probe_->cancelled == 3; });
}

WEFT_SUITE_TEST(times, destroying_the_channel_while_it_connects) {
  const black_hole nobody{t.shard()};
  t.channel_ = t.connect_to(nobody.target());
  std::optional<result<text>> outcome;
  t.call_beside(hold, "x", outcome);
  co_await t.settle();
  t.channel_.reset();
  co_await t.until([&] { return outcome.has_value(); });
  EXPECT_EQ(code_of(*outcome), code::cancelled);
}

}  // namespace
}  // namespace weft::rpc::suite
