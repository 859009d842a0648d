#include <weft/rpc/host/suite_fixture.hpp>

// A channel's retries, over the native protocol on every carrier and over HTTP.

namespace weft::rpc::suite {
namespace {

class retries : public carriers {
 public:
  retries() {
    channel_options_.retry.max_attempts = 4;
    channel_options_.retry.initial_backoff = 1us;
    channel_options_.retry.max_tokens = 100;
  }
};

INSTANTIATE_TEST_SUITE_P(over, retries, testing::ValuesIn(protocol_ways()), protocol_way_name);

using attempts = std::vector<std::string>;

WEFT_SUITE_TEST(retries, safe_methods_are_tried_again_until_they_work) {
  t.probe_->failures = 2;
  auto reply = co_await t.call(echo, "x");
  EXPECT_TRUE(reply.has_value()) << reply.error().to_string();
  EXPECT_EQ(reply.value_or(text{}).value(), "x");
  EXPECT_EQ(t.probe_->attempts, (attempts{"0", "1", "2"}));
}

WEFT_SUITE_TEST(retries, the_last_failure_is_the_calls) {
  t.probe_->failures = 100;
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::unavailable);
  EXPECT_EQ(t.probe_->attempts.size(), 4u);
  t.probe_->failures = 0;
}

WEFT_SUITE_TEST(retries, other_methods_are_never_tried_again) {
  t.probe_->failures = 1;
  EXPECT_EQ(code_of(co_await t.call(note, "x")), code::unavailable);
  EXPECT_EQ(t.probe_->attempts, attempts{"0"});
  EXPECT_TRUE(t.probe_->notes.empty());
}

WEFT_SUITE_TEST(retries, other_statuses_are_final) {
  t.probe_->failures = 1;
  t.probe_->failure = code::not_found;
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::not_found);
  EXPECT_EQ(t.probe_->attempts.size(), 1u);
}

WEFT_SUITE_TEST(retries, a_server_may_forbid_them) {
  t.probe_->failures = 1;
  t.probe_->failure_trailers = {{std::string{retry_pushback_key}, "-1"}};
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::unavailable);
  EXPECT_EQ(t.probe_->attempts.size(), 1u);
}

WEFT_SUITE_TEST(retries, a_server_may_ask_for_patience) {
  t.probe_->failures = 1;
  t.probe_->failure_trailers = {{std::string{retry_pushback_key}, "20"}};
  const time_point before = io::now();
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
  EXPECT_GE(io::now() - before, 20ms);
}

WEFT_SUITE_TEST(retries, trouble_throttles_all_calls_of_a_channel) {
  // Half of a hundred tokens are gone after 50 failures.
  t.probe_->failures = 1000;
  for (int i = 0; i < 30; ++i) EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::unavailable);
  t.probe_->failures = 0;
  EXPECT_LE(t.probe_->attempts.size(), 50u + 30u);
  EXPECT_GE(t.probe_->attempts.size(), 50u);
}

WEFT_SUITE_TEST(retries, the_deadline_spans_all_attempts) {
  t.probe_->failures = 1000;
  t.probe_->failure_trailers = {{std::string{retry_pushback_key}, "60000"}};
  const time_point before = io::now();
  EXPECT_EQ(code_of(co_await t.call(echo, "x", {.timeout = 10s})), code::unavailable);
  EXPECT_LT(io::now() - before, 10s) << "a pause beyond the deadline is not begun";
  t.probe_->failures = 0;
}

/// Counts the calls that interceptors see.
class counting final : public client_interceptor {
 public:
  task<result<std::unique_ptr<client_call>>> intercept(const method& m, call_options options,
                                                       time_point deadline, next proceed) override {
    ++seen;
    co_return co_await proceed(m, std::move(options), deadline);
  }
  int seen = 0;
};

WEFT_SUITE_TEST(retries, interceptors_see_one_call) {
  const auto count = std::make_shared<counting>();
  t.channel_options_.interceptors = {count};
  t.probe_->failures = 2;
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
  EXPECT_EQ(count->seen, 1);
  EXPECT_EQ(t.probe_->attempts.size(), 3u);
}

WEFT_SUITE_TEST(retries, none_unless_asked_for) {
  t.channel_options_.retry = {};
  t.probe_->failures = 1;
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::unavailable);
  EXPECT_EQ(t.probe_->attempts.size(), 1u);
}

WEFT_SUITE_TEST(retries, a_channel_takes_along_a_call_that_pauses) {
  t.probe_->failures = 1000;
  t.probe_->failure_trailers = {{std::string{retry_pushback_key}, "3600000"}};
  std::optional<result<text>> outcome;
  t.call_beside(echo, "x", outcome);
  co_await t.until([&] { return !t.probe_->attempts.empty(); });
  t.channel_.reset();
  co_await t.until([&] { return outcome.has_value(); });
  EXPECT_EQ(code_of(*outcome), code::cancelled);
  t.probe_->failures = 0;
}

}  // namespace
}  // namespace weft::rpc::suite
