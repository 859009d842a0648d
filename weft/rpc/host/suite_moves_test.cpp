#include <algorithm>
#include <set>

#include <weft/rpc/host/suite_fixture.hpp>

// Servers that are replaced while clients go on calling; calls in a connection's first flight.

namespace weft::rpc::suite {
namespace {

class moves : public carriers {};
INSTANTIATE_TEST_SUITE_P(over, moves, testing::ValuesIn(protocol_ways()), protocol_way_name);

struct tally {
  bool stop = false;
  int next = 0, ok = 0, ended = 0;
};

/// Calls without a pause, each with a number of its own.
task<> keep_calling(carriers& t, tally& sum) {
  while (!sum.stop) {
    const std::string request = std::to_string(sum.next++);
    auto reply = co_await t.call(note, request, {.timeout = 20s, .wait_for_ready = true});
    EXPECT_EQ(code_of(reply), code::ok) << request << ' ' << reply.error().to_string();
    if (reply) ++sum.ok;
  }
  ++sum.ended;
}

WEFT_SUITE_TEST(moves, no_call_fails_or_runs_twice_while_servers_are_replaced) {
  constexpr int workers = 16;
  tally sum;
  t.server_options_.listen = t.target_;
  for (int i = 0; i < workers; ++i) t.beside(keep_calling(t, sum));
  for (int round = 0; round < 4; ++round) {
    const int before = sum.ok;
    co_await t.until([&] { return sum.ok >= before + 100; });
    bool done = false;
    t.server_->shutdown(10s, [&] { done = true; });
    co_await t.until([&] { return done; });
    EXPECT_EQ(t.server_->memory().used(), 0u);
    t.server_.reset();
    t.start_server();
  }
  co_await t.until([&] { return sum.ok >= 500; });
  sum.stop = true;
  co_await t.until([&] { return sum.ended == workers; });
  const auto& notes = t.probe_->notes;
  EXPECT_EQ(std::set<std::string>(notes.begin(), notes.end()).size(), notes.size());
  EXPECT_EQ(static_cast<int>(notes.size()), sum.next);
}

/// One that was running when its server went away has been looked at, and is not made again.
WEFT_SUITE_TEST(moves, a_running_call_of_a_server_that_is_replaced_is_not_made_again) {
  std::optional<result<text>> running;
  t.call_beside(hold, "once", running, {.wait_for_ready = true});
  co_await t.until([&] { return t.probe_->held.size() == 1; });
  t.server_options_.listen = t.target_;
  bool done = false;
  t.server_->shutdown(20ms, [&] { done = true; });
  co_await t.until([&] { return done && running; });
  t.server_.reset();
  t.start_server();
  EXPECT_EQ(code_of(*running), code::unavailable);
  EXPECT_NE(running->error().message().find("shutting down"), std::string::npos)
      << running->error().to_string();
  EXPECT_EQ(code_of(co_await t.call(echo, "x", {.wait_for_ready = true})), code::ok);
  EXPECT_EQ(t.probe_->held.size(), 1u);
}

// Early data
// -------------------------------------------------------------------------------------------

/// Ends the connection so that the channel resumes it, once a ticket is there.
task<> lose_connection(carriers& t) {
  co_await t.until([&] { return !t.channel().connection()->resumption().empty(); });
  t.channel().connection()->close();
  co_await t.until([&] { return !t.channel().connected(); });
}

class early : public carriers {
 public:
  early() { server_options_.early_data = channel_options_.early_data = true; }
};
INSTANTIATE_TEST_SUITE_P(over, early, testing::Values(way{carrier::quic}, way{carrier::quic, true}),
                         carrier_name);

task<> call_in_first_flight(carriers& t) {
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
  EXPECT_FALSE(t.probe_->seen.early_data);
  co_await lose_connection(t);
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
  EXPECT_TRUE(t.probe_->seen.early_data) << "without side effects";
  EXPECT_TRUE(t.channel().connection()->session().early_data_accepted);
  EXPECT_EQ(t.channel().info().group, "X25519MLKEM768");
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
  EXPECT_FALSE(t.probe_->seen.early_data) << "the handshake is done";
}
TEST_P(early, calls_without_side_effects_go_in_the_first_flight) {
  start_server();
  run(call_in_first_flight(*this));
}

task<> hold_back_others(carriers& t) {
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
  co_await lose_connection(t);
  // The first of these connects, with early data; the others wait for its handshake.
  std::optional<result<text>> look, change;
  std::optional<result<>> sent;
  t.call_beside(echo, "x", look);
  t.call_beside(note, "unary", change);
  t.beside([](carriers& t, std::optional<result<>>& sent) -> task<> {
    sent = co_await one_way_call(t.channel(), methods[note], value("one way"), {});
  }(t, sent));
  co_await t.until([&] { return look && change && sent && t.probe_->notes.size() == 2; });
  EXPECT_EQ(code_of(*look), code::ok);
  EXPECT_EQ(code_of(*change), code::ok) << change->error().to_string();
  EXPECT_TRUE(*sent);
  EXPECT_EQ(t.server_->endpoint(0).stats().accepted, 2u) << "on one connection";
  EXPECT_TRUE(t.channel().connection()->session().early_data_accepted);
}
TEST_P(early, what_must_not_be_repeated_waits_for_the_handshake) {
  start_server();
  run(hold_back_others(*this));
}

task<> be_rejected(carriers& t) {
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
  co_await t.until([&] { return !t.channel().connection()->resumption().empty(); });
  // Another server, which cannot read the old one's tickets.
  t.server_options_.listen = t.target_;
  t.server_.reset();
  co_await t.until([&] { return !t.channel().connected(); });
  t.start_server();
  std::array<std::optional<result<text>>, 5> replies;
  for (auto& each : replies) t.call_beside(echo, "again", each, {.wait_for_ready = true});
  co_await t.until([&] { return std::ranges::all_of(replies, [](auto& r) { return !!r; }); });
  for (auto& each : replies) EXPECT_EQ(code_of(*each), code::ok) << each->error().to_string();
  EXPECT_FALSE(t.probe_->seen.early_data);
  std::uint64_t served = 0;
  for (const auto& each : t.server_->router(0).stats()) served += each.started;
  EXPECT_EQ(served, 5u);
  EXPECT_EQ(code_of(co_await t.call(note, "x")), code::ok);
}
TEST_P(early, calls_whose_early_data_was_not_taken_are_made_again) {
  start_server();
  run(be_rejected(*this));
}

}  // namespace
}  // namespace weft::rpc::suite
