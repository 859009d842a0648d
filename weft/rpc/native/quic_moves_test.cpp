#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>

#include <weft/rpc/native/quic_test_support.hpp>

// Calls that a server turned away unseen, and what becomes of them; early data.

namespace weft::rpc::native {
namespace {

using namespace testing;

/// Two connections of one client to one server. The server takes leave of the first.
struct quic_moves : quic_fixture, ::testing::WithParamInterface<bool> {
  std::shared_ptr<transport> first, second;
  std::size_t asked = 0;  ///< for another connection
  bool nowhere = false, stalls = false;
  std::size_t seen = 0;  ///< requests of /t/count
  std::string metadata_seen;

  void SetUp() override {
    quic_fixture::SetUp();
    calls.on("/t/count", [this](server_call& call) -> task<status> {
      ++seen;
      metadata_seen = call.info().metadata.find("key").value_or("none");
      return echo(call);
    });
    client_options.lanes = GetParam();
    client_options.elsewhere = [this](const method& m, call_options o, time_point deadline) {
      return go_elsewhere(*this, m, std::move(o), deadline);
    };
  }
  void TearDown() override {
    first.reset();
    second.reset();
    quic_fixture::TearDown();
  }
  void between_two(task<> (*work)(quic_moves&)) {
    play([](quic_moves& f, task<> (*work)(quic_moves&)) -> task<> {
      f.first = co_await f.connect();
      f.second = co_await f.connect();
      EXPECT_TRUE(co_await unary(*f.first, counting, "warm"));
      EXPECT_TRUE(co_await unary(*f.second, counting, "warm"));
      f.seen = 0;
      co_await work(f);
    }(*this, work));
  }
  /// From now on the server refuses what comes on the first connection, which the client learns
  /// half a round trip later.
  void take_leave() {
    asio::co_spawn(shard.get_executor(), sessions.front()->drain(), asio::detached);
    EXPECT_TRUE(first->usable());
  }

  static constexpr method counting{"/t/count", "t", "count"};
  static constexpr method chatting{"/t/count", "t", "count", call_kind::bidi_streaming};

 private:
  static task<result<std::unique_ptr<client_call>>> go_elsewhere(quic_moves& f, const method& m,
                                                                 call_options o,
                                                                 time_point deadline) {
    ++f.asked;
    if (f.stalls) {
      io::event never_told;
      (void)co_await never_told.wait();
      co_return fail(code::cancelled, "cancelled");
    }
    if (f.nowhere) co_return fail(code::unavailable, "nobody is there");
    co_return co_await f.second->start(m, o, deadline);
  }
};

INSTANTIATE_TEST_SUITE_P(by, quic_moves, ::testing::Bool(),
                         [](const auto& which) { return which.param ? "lane" : "stream"; });

TEST_P(quic_moves, unary_calls_of_every_size) {
  between_two([](quic_moves& f) -> task<> {
    constexpr std::array<std::size_t, 4> sizes{0, 1, 1000, 900'000};
    std::size_t ok = 0;
    f.take_leave();
    for (std::size_t size : sizes)
      asio::co_spawn(
          f.shard.get_executor(),
          [](quic_moves& f, std::size_t size, std::size_t& ok) -> task<> {
            const std::string request(size, 'r');
            const call_options options{.metadata = {{"key", "value"}}, .urgency = 1};
            auto reply = co_await unary(*f.first, counting, request, options);
            EXPECT_EQ(reply, request) << reply.error().to_string();
            ++ok;
          }(f, size, ok),
          asio::detached);
    co_await f.until([&] { return ok == sizes.size(); });
    EXPECT_EQ(f.seen, sizes.size());
    EXPECT_EQ(f.asked, sizes.size());
    EXPECT_EQ(f.metadata_seen, "value");
  });
}

TEST_P(quic_moves, many_at_once_and_each_once) {
  between_two([](quic_moves& f) -> task<> {
    f.take_leave();
    std::size_t ok = 0;
    for (int i = 0; i < 50; ++i)
      asio::co_spawn(
          f.shard.get_executor(),
          [](quic_moves& f, int i, std::size_t& ok) -> task<> {
            auto reply = co_await unary(*f.first, counting, std::to_string(i));
            EXPECT_EQ(reply.value_or("nothing"), std::to_string(i)) << reply.error().to_string();
            ++ok;
          }(f, i, ok),
          asio::detached);
    co_await f.until([&] { return ok == 50; });
    EXPECT_EQ(f.seen, 50u);
    EXPECT_EQ(f.asked, 50u);
  });
}

TEST_P(quic_moves, streams_with_what_was_written_and_what_follows) {
  between_two([](quic_moves& f) -> task<> {
    f.take_leave();
    response_info info;
    auto call = co_await f.first->start(chatting, {.info = &info}, never);
    EXPECT_TRUE(co_await (*call)->write(outgoing{as_bytes("one")}, false));
    EXPECT_TRUE(co_await (*call)->write(outgoing{as_bytes("two")}, false));
    co_await f.until([&] { return !f.first->usable(); });
    EXPECT_TRUE(co_await (*call)->write(outgoing{as_bytes("three")}, false));
    for (std::string_view wanted : {"one", "two", "three"}) {
      auto next = co_await (*call)->read();
      EXPECT_TRUE(next && *next && text_of(**next) == wanted);
    }
    EXPECT_TRUE(co_await (*call)->write(outgoing{as_bytes("four")}, true));
    auto next = co_await (*call)->read();
    EXPECT_TRUE(next && *next && text_of(**next) == "four");
    auto end = co_await (*call)->read();
    EXPECT_TRUE(end && !*end);
    EXPECT_EQ(f.seen, 1u);
    EXPECT_EQ(info.transport, "quic");
  });
}

TEST_P(quic_moves, headers_may_be_what_is_waited_for) {
  between_two([](quic_moves& f) -> task<> {
    f.take_leave();
    auto call = co_await f.first->start(counting, {}, never);
    EXPECT_TRUE(co_await (*call)->write(outgoing{as_bytes("x")}, true));
    EXPECT_TRUE(co_await (*call)->read_headers());
    auto next = co_await (*call)->read();
    EXPECT_TRUE(next && *next && text_of(**next) == "x");
  });
}

TEST_P(quic_moves, a_call_that_was_looked_at_is_not_made_again) {
  between_two([](quic_moves& f) -> task<> {
    auto running = co_await f.first->start(method_of("/t/hold"), {}, never);
    EXPECT_TRUE(co_await (*running)->write(outgoing{as_bytes("x")}, true));
    co_await f.until([&] { return f.held.waiting.size() == 1; });
    f.take_leave();
    co_await f.until([&] { return !f.first->usable(); });
    f.sessions.front()->close({code::unavailable, "the server is shutting down"});
    auto reply = co_await (*running)->read();
    EXPECT_EQ(reply.error().code(), code::unavailable);
    EXPECT_NE(reply.error().message().find("shutting down"), std::string::npos)
        << reply.error().to_string();
    EXPECT_EQ(f.asked, 0u);
    EXPECT_EQ(f.held.waiting.size(), 1u);
  });
}

TEST_P(quic_moves, a_request_beyond_what_is_kept_says_that_it_may_be_retried) {
  between_two([](quic_moves& f) -> task<> {
    f.take_leave();
    auto reply = co_await unary(*f.first, counting, std::string(2 << 20, 'r'));
    EXPECT_EQ(reply.error().code(), code::unavailable);
    EXPECT_NE(reply.error().message().find("can safely be retried"), std::string::npos)
        << reply.error().to_string();
    EXPECT_EQ(f.seen, 0u);
    EXPECT_EQ(f.asked, 0u);
  });
}

TEST_P(quic_moves, without_another_connection_the_status_says_what_happened) {
  between_two([](quic_moves& f) -> task<> {
    f.nowhere = true;
    f.take_leave();
    auto reply = co_await unary(*f.first, counting, "x");
    EXPECT_EQ(reply.error().code(), code::unavailable);
    for (const char* part : {"went away before it looked at the call", "nobody is there"})
      EXPECT_NE(reply.error().message().find(part), std::string::npos) << reply.error().to_string();
    EXPECT_EQ(f.asked, 1u);
  });
}

TEST_P(quic_moves, a_call_may_be_cancelled_or_dropped_on_its_way) {
  between_two([](quic_moves& f) -> task<> {
    f.stalls = true;
    f.take_leave();
    auto call = co_await f.first->start(counting, {}, never);
    auto dropped = co_await f.first->start(counting, {}, never);
    EXPECT_TRUE(co_await (*call)->write(outgoing{as_bytes("x")}, true));
    EXPECT_TRUE(co_await (*dropped)->write(outgoing{as_bytes("x")}, true));
    std::optional<result<std::optional<payload>>> outcome;
    asio::co_spawn(f.shard.get_executor(), (*call)->read(),
                   [&](std::exception_ptr, result<std::optional<payload>> r) { outcome = r; });
    asio::cancellation_signal stop;
    bool stopped = false;
    asio::co_spawn(f.shard.get_executor(), (*dropped)->read(),
                   asio::bind_cancellation_slot(stop.slot(),
                                                [&](std::exception_ptr, auto) { stopped = true; }));
    co_await f.until([&] { return f.asked == 2; });
    (*call)->cancel({code::aborted, "enough"});
    co_await f.until([&] { return outcome.has_value(); });
    EXPECT_EQ(outcome->error(), (status{code::aborted, "enough"}));
    stop.emit(asio::cancellation_type::terminal);
    co_await f.until([&] { return stopped; });
    dropped->reset();
    EXPECT_EQ(f.seen, 0u);
  });
}

// Early data
// -------------------------------------------------------------------------------------------

/// What handlers learn of calls in a first flight.
struct quic_early : quic_fixture {
  std::vector<bool> early;  ///< of each call, in order

  void SetUp() override {
    serving.tls.early_data = true;
    calls.on("/t/early", [this](server_call& call) -> task<status> {
      early.push_back(call.info().early_data);
      return echo(call);
    });
  }
  /// Sees to it that the next connection sends early data.
  task<> meet_once() {
    auto c = co_await dial();
    while (c.resumption().empty()) co_await settle(shard);
    calling.resume = c.resumption();
    calling.early_data = true;
  }
};

TEST_F(quic_early, calls_on_streams_on_lanes_and_one_way_say_so_until_the_handshake_is_done) {
  play([](quic_early& f) -> task<> {
    co_await f.meet_once();
    f.client_options.lanes = true;
    auto connection = co_await f.dial();
    EXPECT_FALSE(connection.is_confirmed());
    auto calls = open(std::move(connection), f.shard, f.client_options);
    const method m = method_of("/t/early");
    method streaming = m;
    streaming.kind = call_kind::bidi_streaming;
    // All in one flight.
    auto on_lane = co_await calls->start(m, {}, never);
    auto on_stream = co_await calls->start(streaming, {}, never);
    EXPECT_TRUE(co_await (*on_lane)->write(outgoing{as_bytes("lane")}, true));
    EXPECT_TRUE(co_await (*on_stream)->write(outgoing{as_bytes("stream")}, true));
    EXPECT_TRUE(co_await calls->one_way(m, {}, never, outgoing{as_bytes("one way")}));
    co_await f.until([&] { return f.early.size() == 3; });
    EXPECT_EQ(f.early, (std::vector<bool>{true, true, true}));
    EXPECT_TRUE(co_await (*on_lane)->read());
    EXPECT_TRUE(co_await (*on_stream)->read());
    EXPECT_TRUE(connection_of(*calls)->session().early_data_accepted);

    // The same lanes, later.
    EXPECT_TRUE(co_await unary(*calls, m, "lane"));
    EXPECT_TRUE(co_await unary(*calls, streaming, "stream"));
    EXPECT_TRUE(co_await calls->one_way(m, {}, never, outgoing{as_bytes("one way")}));
    co_await f.until([&] { return f.early.size() == 6; });
    EXPECT_EQ(f.early, (std::vector<bool>{true, true, true, false, false, false}));
  }(*this));
}

}  // namespace
}  // namespace weft::rpc::native
