#include <weft/rpc/host/suite_fixture.hpp>

// A server that limits the age of connections.

namespace weft::rpc::suite {
namespace {

class aging : public carriers {
 public:
  aging() {
    server_options_.max_connection_age = 20ms;
    server_options_.max_connection_age_grace = 20s;
  }
};

INSTANTIATE_TEST_SUITE_P(over, aging, testing::ValuesIn(protocol_ways()), protocol_way_name);

WEFT_SUITE_TEST(aging, no_call_fails_while_connections_are_replaced) {
  const auto ages = 10 * t.server_options_.max_connection_age;
  std::size_t calls = 0;
  for (const time_point end = io::now() + ages; io::now() < end; ++calls) {
    auto reply = co_await t.call(note, "x");
    EXPECT_TRUE(reply.has_value()) << reply.error().to_string();
    if (!reply) co_return;
  }
  EXPECT_EQ(t.probe_->notes.size(), calls) << "each was made once";
  co_await t.until([&] { return !t.channel().connected(); });
}

WEFT_SUITE_TEST(aging, a_running_call_ends_in_its_own_time) {
  std::optional<result<text>> running;
  t.call_beside(hold, "x", running);
  co_await t.until([&] { return !t.probe_->holds.empty(); });
  co_await t.until([&] { return !t.channel().connected(); });
  auto next = co_await t.call(echo, "y");
  EXPECT_TRUE(next.has_value()) << next.error().to_string();
  EXPECT_FALSE(running.has_value());
  t.probe_->release(0);
  co_await t.until([&] { return running.has_value(); });
  EXPECT_EQ(code_of(*running), code::ok) << running->error().to_string();
}

class aging_without_grace : public aging {
 public:
  aging_without_grace() {
    // Long enough for a call to arrive, and for the next one to be answered.
    server_options_.max_connection_age = 200ms;
    server_options_.max_connection_age_grace = 10ms;
  }
};

INSTANTIATE_TEST_SUITE_P(over, aging_without_grace, testing::ValuesIn(protocol_ways()),
                         protocol_way_name);

WEFT_SUITE_TEST(aging_without_grace, a_call_beyond_it_ends) {
  auto outcome = co_await t.call(hold, "x");
  EXPECT_EQ(code_of(outcome), code::unavailable) << (outcome ? "" : outcome.error().to_string());
  const int begun = static_cast<int>(t.probe_->held.size());
  co_await t.until([&] { return t.probe_->cancelled == begun; });
  auto next = co_await t.call(echo, "y");
  EXPECT_TRUE(next.has_value()) << next.error().to_string();
}

class aging_until_shutdown : public aging {};

INSTANTIATE_TEST_SUITE_P(over, aging_until_shutdown, testing::ValuesIn(protocol_ways()),
                         protocol_way_name);

WEFT_SUITE_TEST(aging_until_shutdown, a_shutdown_may_meet_an_old_connection) {
  std::optional<result<text>> running;
  t.call_beside(hold, "x", running);
  co_await t.until([&] { return !t.probe_->holds.empty(); });
  co_await t.until([&] { return !t.channel().connected(); });
  t.server_->shutdown(10s);
  co_await t.settle();
  EXPECT_FALSE(running.has_value());
  t.probe_->release(0);
  co_await t.until([&] { return running.has_value(); });
  EXPECT_EQ(code_of(*running), code::ok) << running->error().to_string();
}

}  // namespace
}  // namespace weft::rpc::suite
