#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include <weft/io/event.hpp>
#include <weft/quic/test_support.hpp>

namespace weft::quic {
namespace {

using namespace test;

path_stats figures_of(const connection& c, const address& local, const address& remote) {
  for (const auto& each : c.paths())
    if (each.path == path{local, remote}) return each;
  return {};
}

/// Calls (a stream each, echoed) without a pause until told to stop; counts those that fail.
struct caller {
  bool stop = false;
  int done = 0, failed = 0;
  io::event ended;
  bool over = false;

  static task<> go(connection& c, caller& self) {
    while (!self.stop) {
      auto s = co_await c.open_stream();
      const slice sent = pattern(20'000, static_cast<std::uint32_t>(self.done));
      bool good = s.has_value();
      if (good) good = (co_await s->write(sent)).has_value();
      if (good) good = s->finish().has_value();
      if (good) {
        auto got = co_await read_all(*s);
        good = got && sum_of(*got) == sum_of(sent);
      }
      ++(good ? self.done : self.failed);
      if (!s) break;
    }
    self.over = true;
    self.ended.notify();
  }
};

/// Writes until told to stop, at a pace that every machine keeps.
task<> write_on(io::shard& shard, stream& s, const bool& stop, checksum& put) {
  for (std::uint32_t i = 0; !stop; ++i) {
    const slice piece = pattern(64 << 10, i);
    put.add(piece.span());
    must(co_await s.write(piece));
    co_await after(shard, 500us);
  }
  must(s.finish());
}

/// A transfer each way and calls beside it while the connection moves.
task<> moves(pair& p, bool immediate) {
  auto c = co_await p.connect();
  auto ex = co_await asio::this_coro::executor;
  auto s = must(co_await c.open_stream());
  bool received = false;
  io::event all;
  checksum put, got;
  caller calls;
  asio::co_spawn(ex, write_on(p.shard, s, calls.stop, put), asio::detached);
  asio::co_spawn(
      ex,
      [](stream& s, checksum& got) -> task<> {
        for (;;) {
          const slice piece = must(co_await s.read());
          if (piece.empty()) co_return;
          got.add(piece);
        }
      }(s, got),
      [&](std::exception_ptr failure) {
        EXPECT_FALSE(failure);
        received = true;
        all.notify();
      });
  asio::co_spawn(ex, caller::go(c, calls), asio::detached);

  std::vector<address> locals{c.current_path().local};
  const address remote = c.current_path().remote;
  for (int i = 0; i < 3; ++i) {
    const std::size_t before = got.count();
    const int calls_before = calls.done;
    while (got.count() == before || calls.done == calls_before) co_await after(p.shard, 1ms);
    must(co_await c.migrate(loopback(), immediate));
    locals.push_back(c.current_path().local);
    EXPECT_NE(locals[locals.size() - 1], locals[locals.size() - 2]);
    EXPECT_EQ(c.current_path().remote, remote);
    // Whatever was under way on the old path has arrived or is lost some round trips later.
    co_await after(p.shard, 60ms);
    const auto old_then = figures_of(c, locals[locals.size() - 2], remote);
    const auto new_then = figures_of(c, locals.back(), remote);
    const int done_then = calls.done;
    while (calls.done < done_then + 20) co_await after(p.shard, 1ms);
    const auto old_now = figures_of(c, locals[locals.size() - 2], remote);
    const auto new_now = figures_of(c, locals.back(), remote);
    EXPECT_EQ(old_now.datagrams_sent, old_then.datagrams_sent) << "the old path still sends";
    // The server may go on asking whether the old path is alive (RFC 9000 §9.3.3).
    EXPECT_LE(old_now.datagrams_received, old_then.datagrams_received + 4)
        << "the old path still receives";
    EXPECT_GT(new_now.datagrams_sent, new_then.datagrams_sent + 20);
    EXPECT_GT(new_now.datagrams_received, new_then.datagrams_received + 20);
  }
  calls.stop = true;
  if (!received) co_await all.wait();
  if (!calls.over) co_await calls.ended.wait();
  EXPECT_EQ(got, put);
  EXPECT_EQ(calls.failed, 0);
  EXPECT_GT(calls.done, 60);
  EXPECT_EQ(c.stats().migrations, 3);
  EXPECT_GT(c.socket_counters().datagrams_sent, 0);
}

TEST(migration, moves_a_live_connection_after_validating_the_new_path) {
  pair p;
  p.serve();
  run(p.shard, moves(p, false));
}

TEST(migration, moves_a_live_connection_at_once) {
  pair p;
  p.serve();
  run(p.shard, moves(p, true));
}

TEST(migration, to_a_bad_address_leaves_the_connection_as_it_was) {
  pair p;
  p.serve();
  run(p.shard, [](pair& p) -> task<> {
    auto c = co_await p.connect();
    auto s = must(co_await c.open_stream());
    must(co_await s.write(slice::copy("a")));
    EXPECT_EQ(must(co_await s.read()).text(), "a");
    const path before = c.current_path();
    auto moved = co_await c.migrate(address::ipv4({192, 0, 2, 1}, 0));
    EXPECT_FALSE(moved);
    EXPECT_THAT(moved.error().message(), testing::HasSubstr("192.0.2.1"));
    moved = co_await c.migrate(must(address::parse("[::1]:0")));
    EXPECT_EQ(moved.error().code(), errc::invalid_argument);
    EXPECT_EQ(c.current_path(), before);
    must(co_await s.write(slice::copy("b")));
    EXPECT_EQ(must(co_await s.read()).text(), "b");
  }(p));
}

TEST(migration, is_the_clients_to_start) {
  pair p;
  run(p.shard, [](pair& p) -> task<> {
    auto both = co_await meet(p);
    EXPECT_EQ((co_await both.server.migrate(loopback())).error().code(), errc::unsupported);
  }(p));
}

TEST(migration, of_one_connection_leaves_its_neighbours_on_their_socket) {
  pair p;
  p.serve();
  run(p.shard, [](pair& p) -> task<> {
    auto moving = co_await p.connect();
    auto staying = co_await p.connect();
    const path home = staying.current_path();
    EXPECT_EQ(moving.current_path(), home);
    must(co_await moving.migrate({}));
    co_await after(p.shard, 200ms);
    EXPECT_EQ(staying.current_path(), home);
    for (auto* c : {&moving, &staying}) {
      auto s = must(co_await c->open_stream());
      must(co_await s.write(slice::copy("still here")));
      must(s.finish());
      EXPECT_EQ(must(co_await read_all(s)).text(), "still here");
    }
    auto fresh = co_await p.connect();
    EXPECT_EQ(fresh.current_path().local.port(), home.local.port());
  }(p));
}

}  // namespace
}  // namespace weft::quic
