#include <atomic>
#include <thread>

#include <weft/rpc/host/suite_fixture.hpp>

// A server on two shards, on threads of its own, stopped from a third.

namespace weft::rpc::suite {
namespace {

constexpr std::size_t channels = 24;
constexpr int calls_each = 20;

/// Ends the server's threads however the test goes.
struct running_server {
  running_server(const server_options& options, std::vector<std::shared_ptr<probe>>& probes)
      : server{threads, options} {
    server.add_factory([&probes](io::shard& shard) {
      return std::make_shared<handler>(probes.at(shard.index()));
    });
  }
  ~running_server() {
    threads.stop();
    if (loop.joinable()) loop.join();
  }
  void run() {
    loop = std::thread{[this] { threads.run(); }};
  }

  runtime threads{{.shards = 2}};
  rpc::server server;
  std::thread loop;
};

WEFT_SUITE(shards);

task<> call_over_own_channel(carriers& t, std::size_t id, std::size_t& done) {
  const auto own = t.connect_to(t.target_);
  for (int i = 0; i < calls_each; ++i) {
    const std::string request = std::to_string(id) + "." + std::to_string(i);
    auto reply = co_await unary_call<text, text>(*own, methods[echo], value(request), {});
    EXPECT_TRUE(reply && reply->value() == request) << reply.error().to_string();
  }
  ++done;
}

task<> call_over_many_channels(carriers& t) {
  std::size_t done = 0;
  for (std::size_t i = 0; i < channels; ++i) t.beside(call_over_own_channel(t, i, done));
  co_await t.until([&] { return done == channels; });
}

/// A call runs while another thread shuts the server down.
task<> call_during_shutdown(carriers& t, running_server& on, std::atomic<int>& stopped) {
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
  std::optional<result<text>> running;
  t.call_beside(hold, "x", running);
  co_await t.settle();
  on.server.shutdown(200ms, [&] { ++stopped; });
  co_await t.until([&] { return running && stopped == 1; });
  EXPECT_EQ(code_of(*running), code::unavailable) << "its grace was over";
}

TEST_P(shards, many_channels_and_a_shutdown_from_another_thread) {
  std::vector<std::shared_ptr<probe>> probes{std::make_shared<probe>(), std::make_shared<probe>()};
  server_options_.log = [](std::string_view) {};  // called on two threads
  std::atomic<int> stopped = 0;
  running_server on{server_options_, probes};
  const auto started = on.server.start();
  ASSERT_TRUE(started) << started.error().to_string();
  target_ = on.server.local_address().to_string();
  on.run();
  run(call_over_many_channels(*this));
  run(call_during_shutdown(*this, on, stopped));
  on.threads.stop();
  on.loop.join();
  EXPECT_EQ(stopped, 1);
  EXPECT_EQ(on.server.memory().used(), 0u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(on.server.router(i).in_flight(), 0u);
    std::uint64_t served = 0;
    for (const auto& each : on.server.router(i).stats()) served += each.started;
    EXPECT_GT(served, 0u) << "shard " << i << " had no call";
  }
}

/// A client whose address changes is, for the kernel, somebody else, whose datagrams may go to the
/// other shard.
task<> move_about(carriers& t, running_server& on, std::vector<std::shared_ptr<probe>>& probes) {
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
  std::optional<result<text>> running;
  t.call_beside(hold, "held", running);
  co_await t.settle();
  constexpr int most = 64;
  int moves = 0;
  while (moves < most && on.server.forwarded_datagrams() == 0) {
    const bool at_once = ++moves % 2 == 0;
    auto moved =
        co_await t.channel().connection()->migrate(address::ipv4({127, 0, 0, 1}, 0), at_once);
    EXPECT_TRUE(moved) << moved.error().to_string();
    const std::string request = std::to_string(moves);
    auto reply = co_await t.call(echo, request);
    EXPECT_TRUE(reply && reply->value() == request) << reply.error().to_string();
  }
  EXPECT_GT(on.server.forwarded_datagrams(), 0u) << "after " << moves << " moves";
  // On the path that is forwarded, in bulk.
  const std::string large(1 << 20, 'l');
  auto reply = co_await t.call(echo, large);
  EXPECT_TRUE(reply && reply->value() == large);
  for (std::size_t i = 0; i < 2; ++i)
    on.threads[i].post([p = probes[i]] {
      if (!p->holds.empty()) p->release(0);
    });
  co_await t.until([&] { return running.has_value(); });
  EXPECT_EQ(code_of(*running), code::ok) << running->error().to_string();
}

TEST_P(shards, a_client_that_moves_keeps_its_calls) {
  if (GetParam() == carrier::tls_tcp) GTEST_SKIP() << "TCP connections stay where they are";
  std::vector<std::shared_ptr<probe>> probes{std::make_shared<probe>(), std::make_shared<probe>()};
  server_options_.log = [](std::string_view) {};
  running_server on{server_options_, probes};
  const auto started = on.server.start();
  ASSERT_TRUE(started) << started.error().to_string();
  target_ = on.server.local_address().to_string();
  on.run();
  run(move_about(*this, on, probes));
}

}  // namespace
}  // namespace weft::rpc::suite
