#include <weft/quic/shard_group.hpp>

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include <weft/quic/core/connection_id.hpp>
#include <weft/quic/test_support.hpp>

namespace weft::quic {
namespace {

using namespace test;

/// An echo server of two shards, each with its thread and its socket on one port.
struct two_shards {
  two_shards() {
    for (int i = 0; i < 2; ++i) {
      servers[i].emplace(must(endpoint::listen(shards[i], local, serving(), config(i))));
      local = servers[i]->local_address();
      asio::co_spawn(shards[i].get_executor(), echo_server(*servers[i]), asio::detached);
    }
    for (int i = 0; i < 2; ++i) threads[i] = std::thread{[this, i] { shards[i].run(); }};
  }
  ~two_shards() {
    for (int i = 0; i < 2; ++i) shards[i].post([this, i] { finish(i); });
    for (auto& thread : threads) thread.join();
  }

  endpoint_config config(int i) const {
    endpoint_config made;
    made.core.shard = static_cast<std::uint8_t>(i);
    made.core.secret.fill(7);
    made.socket.reuse_port = true;
    made.group = group;
    return made;
  }
  void finish(int i) {
    servers[i].reset();
    shards[i].stop();
  }

  std::shared_ptr<shard_group> group = std::make_shared<shard_group>();
  address local = loopback();
  std::array<io::shard, 2> shards;
  std::array<std::optional<endpoint>, 2> servers;
  std::array<std::thread, 2> threads;
};

task<> echo_once(connection& c, std::size_t size) {
  auto s = must(co_await c.open_stream());
  const slice sent = pattern(size);
  must(co_await s.write(sent));
  must(s.finish());
  EXPECT_EQ(sum_of(must(co_await read_all(s))), sum_of(sent));
}

// Each new port of the client has even odds to lead to the other shard.
task<> wander(io::shard& shard, two_shards& to, int moves) {
  endpoint from = must(endpoint::open(shard, {}));
  auto c = must(co_await from.connect(to.local, "localhost", calling()));
  co_await echo_once(c, 300'000);
  for (int i = 0; i < moves; ++i) {
    must(co_await c.migrate(loopback(), i % 2 == 1));
    co_await echo_once(c, 300'000);
  }
  EXPECT_EQ(c.stats().migrations, moves);
  c.close();
  co_await after(shard, 1ms);
}

TEST(shard_group, a_connection_that_moves_stays_with_its_shard) {
  two_shards servers;
  io::shard shard;
  constexpr int moves = 12;
  run(shard, wander(shard, servers, moves));
  // One chance in 4 096 that all new ports lead to the right shard.
  EXPECT_GT(servers.group->stats().forwarded, 0u);
  EXPECT_EQ(servers.group->stats().dropped, 0u);
}

TEST(shard_group, stray_datagrams_reach_whom_their_id_names_and_strangers_do_not_circle) {
  two_shards servers;
  io::shard shard;
  run(shard, [](io::shard& shard, two_shards& to) -> task<> {
    auto stranger = must(udp::socket::open(shard, loopback()));
    std::array<std::uint8_t, 32> secret;
    secret.fill(7);
    const auto mask = core::connection_id_mask::derive(secret);
    // Of one length and from one address, so that the kernel may deliver them as one train.
    for (int i = 0; i < 100; ++i) {
      std::array<std::byte, 40> forged{};
      core::connection_id id{0, 1, 2, static_cast<std::uint8_t>(i)};
      mask.hide(id, static_cast<std::uint8_t>(i % 3));
      forged[0] = std::byte{0x40};
      std::ranges::transform(id, forged.begin() + 1, [](auto octet) { return std::byte{octet}; });
      const udp::train t{.path = {stranger.local_address(), to.local},
                         .payload = forged,
                         .segment = forged.size()};
      must(stranger.send({&t, 1}));
    }
    for (int tries = 0; to.group->stats().forwarded < 33 && tries < 1000; ++tries)
      co_await after(shard, 1ms);
    co_await after(shard, 10ms);
    // All came to one of the two; a third of them was for the other, a third for nobody.
    EXPECT_GE(to.group->stats().forwarded, 33u);
    EXPECT_LE(to.group->stats().forwarded, 34u);
  }(shard, servers));
}

TEST(shard_group, needs_one_secret_and_distinct_shards) {
  io::shard shard;
  endpoint_config config;
  config.group = std::make_shared<shard_group>();
  EXPECT_EQ(endpoint::listen(shard, loopback(), serving(), config).error().code(),
            errc::invalid_argument);
  config.core.secret.fill(1);
  auto first = must(endpoint::listen(shard, loopback(), serving(), config));
  EXPECT_EQ(endpoint::listen(shard, loopback(), serving(), config).error().code(),
            errc::invalid_argument);
  first.close();
}

}  // namespace
}  // namespace weft::quic
