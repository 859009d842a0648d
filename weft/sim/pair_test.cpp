#include <weft/sim/pair.hpp>

#include <gtest/gtest.h>

#include <weft/sim/pattern.hpp>

namespace weft::sim {
namespace {

using quic::core::stream;

std::string read_all(stream& s) {
  std::string text;
  for (slice part = s.read(); !part.empty(); part = s.read()) text += part.text();
  return text;
}

TEST(pair, is_ready_in_one_line) {
  sim::pair pair;
  EXPECT_EQ(pair.client->session().alpn, "sim");
  stream* out = *pair.client->open_stream(true);
  ASSERT_TRUE(out->write(slice::copy("question")));
  ASSERT_TRUE(out->finish());
  pair.settle();
  stream* in = pair.server->accept_stream();
  ASSERT_TRUE(in);
  EXPECT_EQ(read_all(*in), "question");
  EXPECT_TRUE(in->at_end());
  ASSERT_TRUE(in->write(slice::copy("answer")));
  ASSERT_TRUE(in->finish());
  pair.settle();
  EXPECT_EQ(read_all(*out), "answer");
  EXPECT_TRUE(out->closed());
  pair.client->release(*out);
  pair.server->release(*in);
}

TEST(pair, repeats_exactly) {
  const auto trace = [](std::uint64_t seed) {
    sim::pair pair{seed, {.link = {.jitter = 2ms, .loss = 0.05}}};
    stream* out = *pair.client->open_stream(false);
    EXPECT_TRUE(out->write(make_pattern(1, 0, 100'000)));
    pair.settle(5s);
    return pair.world.trace_hash();
  };
  EXPECT_EQ(trace(1), trace(1));
  EXPECT_NE(trace(1), trace(2));
}

TEST(world, keeps_time_by_itself) {
  world w{1};
  std::vector<int> order;
  w.after(20ms, [&] { order.push_back(2); });
  w.after(10ms, [&] {
    order.push_back(1);
    w.after(10ms, [&] { order.push_back(3); });
  });
  const time_point start = w.now();
  EXPECT_TRUE(w.run_until([&] { return order.size() == 3; }, 1s));
  EXPECT_EQ(w.now(), start + 20ms);
  EXPECT_EQ(order, (std::vector{1, 2, 3}));
  EXPECT_FALSE(w.step());
  w.run_for(1h);
  EXPECT_EQ(w.now(), start + 20ms + 1h);
}

/// A server must not be an amplifier: to an address it has not heard back from it sends at most
/// three times what came from there (RFC 9000 §8.1).
TEST(world, server_does_not_amplify) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    world w{seed};
    host& server = w.add_host(address::ipv4({10, 0, 0, 2}, 443));
    host& client = w.add_host(address::ipv4({10, 0, 0, 1}, 40'000));
    w.net().between(client.where(), server.where()).options = {.loss = 0.3, .duplicate = 0.2};
    w.net().between(server.where(), client.where()).options = {.loss = 1};
    ASSERT_TRUE(server.listen(test_server()));
    ASSERT_TRUE(client.connect(server.where(), "localhost", test_client()));
    w.run_for(60s);
    const auto& to = w.net().between(client.where(), server.where()).stats();
    const auto& back = w.net().between(server.where(), client.where()).stats();
    EXPECT_GT(to.offered, 0u);
    EXPECT_GT(back.offered, 0u);
    EXPECT_LE(back.offered_bytes, 3 * to.delivered_bytes) << "seed " << seed;
    EXPECT_TRUE(w.faults().empty());
  }
}

}  // namespace
}  // namespace weft::sim
