#include <thread>

#include <weft/rpc/host/suite_fixture.hpp>

// Lost connections, reconnecting, stopping servers.

namespace weft::rpc::suite {
namespace {

WEFT_SUITE(ends);

WEFT_SUITE_TEST(ends, a_lost_server_makes_running_calls_unavailable) {
  std::array<std::optional<result<text>>, 2> running;
  for (auto& each : running) t.call_beside(hold, "x", each);
  auto stream = co_await server_streaming_call<text, text>(
      t.channel(), methods[flood], value(std::to_string(std::size_t{1} << 30)), {});
  EXPECT_TRUE((co_await stream->read()).has_value());
  co_await t.until([&] { return t.probe_->held.size() == 2; });
  t.server_.reset();
  co_await t.until([&] { return running[0] && running[1]; });
  for (auto& each : running)
    EXPECT_EQ(code_of(*each), code::unavailable) << each->error().to_string();
  result<std::optional<text>> next;
  do next = co_await stream->read();
  while (next && *next);
  EXPECT_EQ(next.error().code(), code::unavailable);
}

WEFT_SUITE_TEST(ends, a_lost_client_cancels_its_handlers) {
  std::optional<result<text>> running;
  t.call_beside(hold, "x", running);
  auto stream = co_await streaming_call<client_stream<text, text>>(t.channel(), methods[join], {});
  EXPECT_TRUE(co_await stream->write(value("a")));
  co_await t.until(
      [&] { return t.probe_->held.size() == 1 && t.server_->router(0).in_flight() == 2; });
  t.channel_.reset();
  co_await t.until([&] { return t.server_->router(0).in_flight() == 0; });
  EXPECT_EQ(t.probe_->cancelled, 2);
}

WEFT_SUITE_TEST(ends, a_channel_reconnects_when_its_server_is_back) {
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
  const std::string target = t.target_;
  t.server_.reset();
  co_await t.until([&] { return !t.channel().connected(); });
  t.server_options_.listen = target;
  std::optional<result<text>> patient;
  t.call_beside(echo, "patient", patient, {.wait_for_ready = true});
  co_await t.settle();
  EXPECT_FALSE(patient);
  t.start_server();
  co_await t.until([&] { return patient.has_value(); });
  EXPECT_EQ(code_of(*patient), code::ok) << patient->error().to_string();
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
}

task<> fail_fast(carriers& t) {
  const std::string target = t.target_;
  t.server_.reset();
  co_await t.settle();
  auto reply = co_await t.call(echo, "x");
  EXPECT_EQ(code_of(reply), code::unavailable);
  EXPECT_NE(reply.error().message().find(target), std::string::npos) << reply.error().to_string();
  const auto start = io::now();
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::unavailable);
  EXPECT_LT(io::now() - start, 50ms) << "within the pause, nobody is asked again";
  auto patient = co_await t.call(echo, "x", {.timeout = 300ms, .wait_for_ready = true});
  EXPECT_EQ(code_of(patient), code::deadline_exceeded);
  EXPECT_NE(patient.error().message().find("while connecting"), std::string::npos);
}

TEST_P(ends, calls_fail_at_once_or_wait_as_they_choose) {
  channel_options_.transport.handshake_timeout = 200ms;
  channel_options_.reconnect_first = 5s;
  start_server();
  run(fail_fast(*this));
}

WEFT_SUITE_TEST(ends, waiting_calls_share_one_connection) {
  std::array<std::optional<result<text>>, 20> replies;
  for (auto& each : replies) t.call_beside(echo, "x", each);
  co_await t.until(
      [&] { return std::ranges::all_of(replies, [](auto& r) { return r.has_value(); }); });
  for (auto& each : replies) EXPECT_EQ(code_of(*each), code::ok);
  if (t.GetParam() != carrier::tls_tcp) {
    EXPECT_EQ(t.server_->endpoint(0).stats().accepted, 1u);
  }
}

WEFT_SUITE_TEST(ends, targets_may_be_names) {
  const auto port = t.target_.substr(t.target_.rfind(':'));
  t.channel_ = t.connect_to("localhost" + port);
  auto reply = co_await t.call(echo, "x", {.timeout = 20s});
  EXPECT_EQ(code_of(reply), code::ok) << reply.error().to_string();
}

WEFT_SUITE_TEST(ends, targets_that_are_none) {
  for (const char* target :
       {"", "localhost", "localhost:", ":1", "::1:1", "[::1]", "h:p", "h:123456"}) {
    t.channel_ = t.connect_to(target);
    auto reply = co_await t.call(echo, "x", {.wait_for_ready = true});
    EXPECT_EQ(code_of(reply), code::invalid_argument) << target;
  }
  t.channel_ = t.connect_to("no-such-host.invalid:1");
  auto reply = co_await t.call(echo, "x", {.timeout = 20s});
  EXPECT_EQ(code_of(reply), code::unavailable) << reply.error().to_string();
}

// Stopping
// -------------------------------------------------------------------------------------------

WEFT_SUITE_TEST(ends, graceful_shutdown_finishes_running_calls) {
  std::optional<result<text>> running;
  t.call_beside(hold, "x", running);
  auto stream = co_await streaming_call<bidi_stream<text, text>>(t.channel(), methods[chat], {});
  EXPECT_TRUE(co_await stream->write(value("before")));
  EXPECT_TRUE((co_await stream->read()).has_value());
  co_await t.until([&] { return t.probe_->held.size() == 1; });
  bool done = false;
  t.server_->shutdown(20s, [&] { done = true; });
  co_await t.settle();
  EXPECT_FALSE(done);
  auto refused = co_await t.call(echo, "x", {.timeout = 200ms});
  EXPECT_TRUE(code_of(refused) == code::unavailable || code_of(refused) == code::deadline_exceeded)
      << refused.error().to_string();
  EXPECT_TRUE(co_await stream->write(value("after")));
  auto next = co_await stream->read();
  EXPECT_TRUE(next && *next && (*next)->value() == "after");
  EXPECT_TRUE(co_await stream->finish_writing());
  auto end = co_await stream->read();
  EXPECT_TRUE(end && !*end);
  t.probe_->release(0);
  co_await t.until([&] { return running.has_value(); });
  EXPECT_EQ(code_of(*running), code::ok) << running->error().to_string();
  co_await t.until([&] { return done; });
}

WEFT_SUITE_TEST(ends, shutdown_ends_calls_when_the_grace_is_over) {
  std::optional<result<text>> running;
  t.call_beside(hold, "x", running);
  co_await t.until([&] { return t.probe_->held.size() == 1; });
  bool done = false;
  t.server_->shutdown(50ms, [&] { done = true; });
  co_await t.until([&] { return running.has_value(); });
  EXPECT_EQ(code_of(*running), code::unavailable) << running->error().to_string();
  co_await t.until([&] { return done; });
  EXPECT_EQ(t.probe_->cancelled, 1);
}

WEFT_SUITE_TEST(ends, a_second_shutdown_only_shortens) {
  std::optional<result<text>> running;
  t.call_beside(hold, "x", running);
  co_await t.until([&] { return t.probe_->held.size() == 1; });
  int done = 0;
  const auto start = io::now();
  t.server_->shutdown(1h, [&] { ++done; });
  t.server_->shutdown(20ms, [&] { ++done; });
  t.server_->shutdown(2h, [&] { ++done; });
  co_await t.until([&] { return done == 3; });
  EXPECT_LT(io::now() - start, 10s);
  t.server_->shutdown(0s, [&] { ++done; });
  co_await t.until([&] { return done == 4; });
}

WEFT_SUITE_TEST(ends, an_idle_server_stops_at_once) {
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
  bool done = false;
  const auto start = io::now();
  t.server_->shutdown(20s, [&] { done = true; });
  co_await t.until([&] { return done; });
  EXPECT_LT(io::now() - start, 2s);
}

WEFT_SUITE_TEST(ends, a_channel_shut_down_waits_for_its_calls) {
  std::optional<result<text>> running;
  t.call_beside(hold, "x", running);
  co_await t.until([&] { return t.probe_->held.size() == 1; });
  bool done = false;
  asio::co_spawn(t.shard().get_executor(), t.channel().shutdown(),
                 [&](std::exception_ptr) { done = true; });
  co_await t.settle();
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::unavailable);
  EXPECT_FALSE(done);
  t.probe_->release(0);
  co_await t.until([&] { return done && running; });
  EXPECT_EQ(code_of(*running), code::ok);
}

}  // namespace
}  // namespace weft::rpc::suite
