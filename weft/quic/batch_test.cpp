#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <weft/io/event.hpp>
#include <weft/quic/test_support.hpp>

// What leaves while a turn's streams are still being served.

namespace weft::quic {
namespace {

using namespace test;

/// Answers each stream at once with `size` bytes; notes how many datagrams had left before.
struct answering {
  connection& server;
  std::size_t size;
  std::vector<std::uint64_t> sent_before;

  void serve() {
    server.on_stream([this](stream s) {
      sent_before.push_back(server.stats().datagrams_sent);
      EXPECT_TRUE(s.try_read());
      EXPECT_TRUE(s.try_write(pattern(size)));
      EXPECT_TRUE(s.finish());
    });
  }
  bool some_left_meanwhile() const { return sent_before.back() > sent_before.front(); }
};

/// Asks on `count` streams in one go and reads all answers.
task<> ask(connection& client, std::size_t count) {
  std::vector<stream> asked;
  for (std::size_t i = 0; i < count; ++i) {
    asked.push_back(must(co_await client.open_stream()));
    must(co_await asked.back().write(slice::copy("question")));
    must(asked.back().finish());
  }
  for (auto& s : asked) must(co_await read_all(s));
}

TEST(batch, leaves_in_parts_while_the_rest_is_served) {
  pair p;
  run(p.shard, [](pair& p) -> task<> {
    auto both = co_await meet(p);
    answering a{both.server, 100, {}};
    a.serve();
    co_await ask(both.client, 32);
    EXPECT_EQ(a.sent_before.size(), 32u);
    EXPECT_TRUE(a.some_left_meanwhile());
  }(p));
}

TEST(batch, of_writes_that_are_collected_leaves_in_parts_too) {
  pair p;
  run(p.shard, [](pair& p) -> task<> {
    auto both = co_await meet(p);
    std::vector<stream> answered;
    std::vector<std::uint64_t> sent_before;
    both.server.on_stream([&](stream s) {
      sent_before.push_back(both.server.stats().datagrams_sent);
      EXPECT_TRUE(s.try_read());
      answered.push_back(std::move(s));
    });
    both.server.before_sending([&] {
      for (stream& each : answered) {
        EXPECT_TRUE(each.try_write(pattern(100)));
        EXPECT_TRUE(each.finish());
      }
      answered.clear();
    });
    co_await ask(both.client, 32);
    EXPECT_EQ(sent_before.size(), 32u);
    EXPECT_GT(sent_before.back(), sent_before.front());
  }(p));
}

TEST(batch, that_is_small_leaves_whole) {
  pair p;
  run(p.shard, [](pair& p) -> task<> {
    auto both = co_await meet(p);
    answering a{both.server, 100, {}};
    a.serve();
    co_await ask(both.client, 3);
    EXPECT_EQ(a.sent_before.size(), 3u);
    EXPECT_FALSE(a.some_left_meanwhile());
  }(p));
}

TEST(batch, of_several_trains_is_not_cut_further) {
  pair p;
  run(p.shard, [](pair& p) -> task<> {
    auto both = co_await meet(p);
    answering a{both.server, 8'000, {}};
    a.serve();
    co_await ask(both.client, 32);  // from which it learns how large batches are
    a.sent_before.clear();
    co_await ask(both.client, 32);
    EXPECT_EQ(a.sent_before.size(), 32u);
    EXPECT_FALSE(a.some_left_meanwhile());
  }(p));
}

}  // namespace
}  // namespace weft::quic
