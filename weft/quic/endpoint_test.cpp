#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <asio/experimental/awaitable_operators.hpp>

#include <weft/io/event.hpp>
#include <weft/quic/test_support.hpp>

namespace weft::quic {
namespace {

using namespace asio::experimental::awaitable_operators;
using namespace test;

task<> say_hello(connection& c) {
  auto s = must(co_await c.open_stream());
  must(co_await s.write(slice::copy("hello")));
  must(s.finish());
  EXPECT_EQ(must(co_await read_all(s)).text(), "hello");
}

TEST(endpoint, connects_by_every_kind_of_address) {
  for (const char* text : {"127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"}) {
    SCOPED_TRACE(text);
    io::shard shard;
    auto server = must(endpoint::listen(shard, must(address::parse(text)), serving()));
    auto client = must(endpoint::open(shard, {}));
    EXPECT_NE(server.local_address().port(), 0);
    asio::co_spawn(shard.get_executor(), echo_server(server), asio::detached);
    run(shard, [](endpoint& server, endpoint& client) -> task<> {
      address to = server.local_address();
      if (to.is_unspecified())
        to = to.is_ipv6() ? must(address::parse("[::1]:1")).with_port(to.port())
                          : loopback(to.port());
      auto c = must(co_await client.connect(to, "localhost", calling()));
      EXPECT_EQ(c.current_path().remote, to);
      EXPECT_TRUE(c.current_path().local.is_loopback());
      co_await say_hello(c);
    }(server, client));
  }
}

TEST(endpoint, serves_ipv4_over_an_ipv6_socket) {
  io::shard shard;
  auto server = must(endpoint::listen(shard, must(address::parse("[::]:0")), serving()));
  auto client = must(endpoint::open(shard, {}));
  asio::co_spawn(shard.get_executor(), echo_server(server), asio::detached);
  run(shard, [](endpoint& server, endpoint& client) -> task<> {
    auto c = must(
        co_await client.connect(loopback(server.local_address().port()), "localhost", calling()));
    co_await say_hello(c);
  }(server, client));
}

TEST(endpoint, says_that_nobody_answers) {
  io::shard shard;
  auto client = must(endpoint::open(shard, {}));
  const auto mute = must(udp::socket::open(shard, loopback()));
  run(shard, [](endpoint& client, const address& mute) -> task<> {
    transport_options hasty;
    hasty.handshake_timeout = 100ms;
    auto nobody = co_await client.connect(mute, "localhost", calling(hasty));
    EXPECT_FALSE(nobody);
    EXPECT_EQ(nobody.error().code(), errc::timed_out);
    EXPECT_THAT(nobody.error().message(), testing::HasSubstr(mute.to_string()));
    auto nowhere = co_await client.connect({}, "localhost", calling(hasty));
    EXPECT_EQ(nowhere.error().code(), errc::invalid_argument);
    // A cancelled attempt ends at once.
    auto given_up = co_await (client.connect(mute, "localhost", calling()) ||
                              client.shard().sleep_until(io::now() + 10ms));
    EXPECT_EQ(given_up.index(), 1);
  }(client, mute.local_address()));
}

TEST(endpoint, refuses_what_tls_refuses) {
  pair p;
  p.serve();
  run(p.shard, [](pair& p) -> task<> {
    auto stranger = calling();
    stranger.tls.trusted =
        must(tls::trust::pem(must(tls::credentials::development()).certificate_pem()));
    auto c = co_await p.client.connect(p.server.local_address(), "localhost", stranger);
    EXPECT_EQ(c.error().code(), errc::tls) << c.error().to_string();
    c = co_await p.client.connect(p.server.local_address(), "other.example", calling());
    EXPECT_EQ(c.error().code(), errc::tls) << c.error().to_string();
    auto other = calling();
    other.tls.alpn = {"unheard of"};
    c = co_await p.client.connect(p.server.local_address(), "localhost", other);
    EXPECT_EQ(c.error().code(), errc::tls) << c.error().to_string();
    auto right = co_await p.connect();
    co_await say_hello(right);
  }(p));
}

TEST(endpoint, tells_both_ends_why_a_connection_ended) {
  pair p;
  run(p.shard, [](pair& p) -> task<> {
    auto both = co_await meet(p);
    std::vector<error> told;
    both.server.on_closed([&](const error& why) { told.push_back(why); });
    both.client.close(42, "enough");
    const error theirs = co_await both.server.closed();
    EXPECT_EQ(theirs.code(), errc::reset);
    EXPECT_EQ(theirs.detail(), 42);
    EXPECT_THAT(theirs.message(), testing::HasSubstr("enough"));
    const error ours = co_await both.client.closed();
    EXPECT_EQ(ours.code(), errc::closed);
    EXPECT_EQ(told.size(), 1);
    EXPECT_FALSE(both.client.is_open());
    EXPECT_EQ((co_await both.client.open_stream()).error().code(), errc::closed);
    EXPECT_EQ((co_await both.server.accept_stream()).error().code(), errc::reset);
    // Dropping a connection is an orderly end for the peer.
    auto again = co_await meet(p);
    again.client = {};
    const error dropped = co_await again.server.closed();
    EXPECT_EQ(dropped.code(), errc::closed);
    EXPECT_EQ(dropped.detail(), 0);
  }(p));
}

TEST(endpoint, streams_outlive_their_connection) {
  pair p;
  run(p.shard, [](pair& p) -> task<> {
    auto both = co_await meet(p);
    auto s = must(co_await both.client.open_stream());
    must(co_await s.write(slice::copy("x")));
    auto theirs = must(co_await both.server.accept_stream());
    error abandoned{errc::internal, layer::app, ""};
    theirs.on_abandoned([&](const error& why) { abandoned = why; });
    both.client = {};
    EXPECT_EQ((co_await s.read()).error().code(), errc::closed);
    EXPECT_EQ((co_await s.write(slice::copy("y"))).error().code(), errc::closed);
    co_await both.server.closed();
    both.server = {};
    // What had arrived is still there to read.
    EXPECT_EQ(must(co_await theirs.read()).text(), "x");
    EXPECT_EQ((co_await theirs.read()).error().code(), errc::closed);
    EXPECT_EQ(co_await theirs.stopped(), std::nullopt);
    EXPECT_EQ(abandoned.code(), errc::closed);
  }(p));
}

TEST(endpoint, gives_up_on_silence) {
  transport_options impatient;
  impatient.idle_timeout = 100ms;
  pair p{impatient};
  run(p.shard, [](pair& p) -> task<> {
    auto both = co_await meet(p);
    auto s = must(co_await both.client.open_stream());
    auto got = co_await s.read();
    EXPECT_EQ(got.error().code(), errc::timed_out);
    EXPECT_EQ((co_await both.client.closed()).code(), errc::timed_out);
    EXPECT_EQ((co_await both.server.closed()).code(), errc::timed_out);
  }(p));
}

TEST(endpoint, drains_in_order) {
  pair p;
  p.serve();
  run(p.shard, [](pair& p) -> task<> {
    auto ex = co_await asio::this_coro::executor;
    auto c = co_await p.connect();
    auto s = must(co_await c.open_stream());
    must(co_await s.write(slice::copy("begun")));
    bool drained = false;
    io::event done;
    asio::co_spawn(ex, p.server.drain(io::now() + 10s), [&](std::exception_ptr) {
      drained = true;
      done.notify();
    });
    EXPECT_EQ(must(co_await s.read()).text(), "begun");
    EXPECT_FALSE(drained);
    // Nobody new comes in, what runs goes on.
    transport_options hasty;
    hasty.handshake_timeout = 50ms;
    EXPECT_FALSE(co_await p.client.connect(p.server.local_address(), "localhost", calling(hasty)));
    must(co_await s.write(slice::copy("on")));
    EXPECT_EQ(must(co_await s.read()).text(), "on");
    c = {};
    if (!drained) co_await done.wait();
    EXPECT_TRUE(drained);
  }(p));
}

TEST(endpoint, drain_closes_what_is_left_at_its_deadline) {
  pair p;
  run(p.shard, [](pair& p) -> task<> {
    auto both = co_await meet(p);
    co_await p.server.drain(io::now() + 30ms);
    const error why = co_await both.client.closed();
    EXPECT_EQ(why.code(), errc::closed);
    EXPECT_EQ((co_await p.server.accept()).error().code(), errc::closed);
  }(p));
}

TEST(endpoint, can_be_dropped_beside_pending_operations) {
  auto p = std::make_unique<pair>();
  io::shard& shard = p->shard;
  run(shard, [](pair& p) -> task<> {
    const auto mute = must(udp::socket::open(p.shard, loopback()));
    auto both = co_await meet(p);
    auto s = must(co_await both.client.open_stream());
    std::vector<errc> codes;
    io::event all;
    auto ex = co_await asio::this_coro::executor;
    const auto note = [&](const auto& r) {
      codes.push_back(r.error().code());
      if (codes.size() == 4) all.notify();
    };
    asio::co_spawn(ex, s.read(), [&](std::exception_ptr, result<slice> r) { note(r); });
    asio::co_spawn(ex, both.client.accept_stream(),
                   [&](std::exception_ptr, result<stream> r) { note(r); });
    asio::co_spawn(ex, p.client.connect(mute.local_address(), "localhost", calling()),
                   [&](std::exception_ptr, result<connection> r) { note(r); });
    asio::co_spawn(ex, p.client.accept(),
                   [&](std::exception_ptr, result<connection> r) { note(r); });
    co_await after(p.shard, 5ms);
    {
      const endpoint dropped = std::move(p.client);
    }
    if (codes.size() < 4) co_await all.wait();
    EXPECT_EQ(codes, std::vector(4, errc::closed));
    EXPECT_EQ((co_await both.server.closed()).code(), errc::closed);
    EXPECT_EQ((co_await s.read()).error().code(), errc::closed);
  }(*p));
}

TEST(endpoint, the_event_loop_may_end_while_coroutines_wait) {
  for (const bool dropped_first : {false, true}) {
    std::optional<stream> outliving;
    auto p = std::make_unique<pair>();
    p->serve();
    run(p->shard, [](pair& p, std::optional<stream>& outliving) -> task<> {
      auto ex = co_await asio::this_coro::executor;
      auto c = co_await p.connect();
      outliving = must(co_await c.open_stream());
      asio::co_spawn(ex, outliving->read(), asio::detached);
      asio::co_spawn(ex, outliving->write(pattern(64 << 20)), asio::detached);
      asio::co_spawn(
          ex,
          [](connection c) -> task<> {
            auto s = must(co_await c.open_stream());
            must(co_await s.write(slice::copy("x")));
            must(co_await s.read());
            must(co_await s.read());
          }(std::move(c)),
          asio::detached);
    }(*p, outliving));
    if (dropped_first) outliving.reset();
    p.reset();
    outliving.reset();
  }
}

TEST(endpoint, resumes_sessions_and_sends_early_data) {
  auto early = serving();
  early.tls.early_data = true;
  io::shard shard;
  auto server = must(endpoint::listen(shard, loopback(), early));
  auto client = must(endpoint::open(shard, {}));
  asio::co_spawn(shard.get_executor(), echo_server(server), asio::detached);
  run(shard, [](endpoint& server, endpoint& client) -> task<> {
    auto config = calling();
    auto first = must(co_await client.connect(server.local_address(), "localhost", config));
    EXPECT_FALSE(first.session().resumed);
    co_await say_hello(first);
    while (first.resumption().empty()) co_await after(client.shard(), 1ms);
    config.resume = first.resumption();
    first = {};

    auto second = must(co_await client.connect(server.local_address(), "localhost", config));
    EXPECT_TRUE(second.session().resumed);
    co_await say_hello(second);
    while (second.resumption().empty()) co_await after(client.shard(), 1ms);

    config.resume = second.resumption();
    config.early_data = true;
    auto third = must(co_await client.connect(server.local_address(), "localhost", config));
    EXPECT_FALSE(third.is_confirmed());
    co_await say_hello(third);
    must(co_await third.confirmed());
    EXPECT_TRUE(third.is_confirmed());
    EXPECT_TRUE(third.session().resumed);
    EXPECT_TRUE(third.session().early_data_accepted);
  }(server, client));
}

TEST(endpoint, carries_datagrams) {
  transport_options with;
  with.max_datagram_frame = 1500;
  pair p{with};
  run(p.shard, [](pair& p) -> task<> {
    auto both = co_await meet(p);
    EXPECT_GT(both.client.max_datagram(), 1000);
    must(co_await both.client.send_datagram(slice::copy("ping")));
    EXPECT_EQ(must(co_await both.server.receive_datagram()).text(), "ping");
    EXPECT_EQ((co_await both.client.send_datagram(pattern(100'000))).error().code(),
              errc::too_large);
  }(p));
}

TEST(endpoint, updates_keys_and_passes_logs_through) {
  std::string qlog, keys;
  transport_options logged;
  logged.qlog = [&](std::string_view text) { qlog += text; };
  pair p;
  p.serve();
  auto config = calling(logged);
  config.tls.key_log = [&](std::string_view line) { keys += line; };
  run(p.shard, [](pair& p, client_config config) -> task<> {
    auto c = must(co_await p.client.connect(p.server.local_address(), "localhost", config));
    co_await say_hello(c);
    must(c.update_keys());
    // Counted when the peer has confirmed it and the keys after these are made.
    while (c.stats().key_updates == 0) co_await say_hello(c);
  }(p, config));
  EXPECT_THAT(qlog, testing::HasSubstr("packet_sent"));
  EXPECT_THAT(keys, testing::HasSubstr("CLIENT_TRAFFIC_SECRET_0"));
}

}  // namespace
}  // namespace weft::quic
