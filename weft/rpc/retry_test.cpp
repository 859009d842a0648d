#include <weft/rpc/retry.hpp>

#include <google/protobuf/wrappers.pb.h>
#include <gtest/gtest.h>

#include <weft/rpc/loopback_fake.hpp>
#include <weft/rpc/router.hpp>

namespace weft::rpc {
namespace {

using namespace std::chrono_literals;
using text = google::protobuf::StringValue;

constexpr method safe{.path = "/t.Retry/Safe",
                      .service = "t.Retry",
                      .name = "Safe",
                      .kind = call_kind::bidi_streaming,
                      .level = idempotency::idempotent};
constexpr method unsafe{.path = "/t.Retry/Unsafe", .service = "t.Retry", .name = "Unsafe"};

/// Fails its first calls; then joins what it reads.
class moody final : public dispatcher {
 public:
  task<status> dispatch(server_call& call) override {
    ++calls;
    seen.emplace_back(call.info().metadata.find(retry_attempts_key).value_or("none"));
    if (calls <= failures) {
      if (reads_first) (void)co_await call.read();
      if (answers_first) {
        text part;
        part.set_value("part");
        (void)co_await call.write(*encode(part));
      }
      call.set_trailers(trailers);
      co_return status{failure, "not now"};
    }
    std::string all;
    for (;;) {
      auto next = co_await call.read();
      if (!next) co_return std::move(next).error();
      if (!*next) break;
      all += decode<text>(**next)->value();
    }
    text joined;
    joined.set_value(all);
    (void)co_await call.write(*encode(joined));
    co_return status{};
  }
  int failures = 0, calls = 0;
  bool reads_first = false, answers_first = false;
  code failure = code::unavailable;
  metadata trailers;
  std::vector<std::string> seen;
};

class retry_test : public testing::Test {
 protected:
  void run(task<> test) {
    asio::co_spawn(shard_.get_executor(), std::move(test), [this](std::exception_ptr failure) {
      shard_.stop();
      if (failure) std::rethrow_exception(failure);
    });
    shard_.run();
  }
  retrier make(retry_options options) {
    options.initial_backoff = 1us;
    return retrier{shard_, options};
  }
  retrier::starter starter() {
    return [this](const method& m, call_options options, time_point) {
      return via_.start(m, std::move(options));
    };
  }

  io::shard shard_;
  moody server_;
  fake::loopback via_{shard_, server_};
};

text value(std::string_view s) {
  text t;
  t.set_value(std::string{s});
  return t;
}

/// Sends "a" and "b", and reads the reply.
task<result<std::string>> join(retrier& through, retrier::starter start, const method& m = safe,
                               std::string first = "a") {
  auto call = co_await through.start(std::move(start), m, {}, never);
  if (!call) co_return std::unexpected{std::move(call).error()};
  const text a = value(first), b = value("b");
  (void)co_await (*call)->write(*encode(a), false);
  (void)co_await (*call)->write(*encode(b), true);
  auto reply = co_await read_reply<text>(**call);
  if (!reply) co_return std::unexpected{std::move(reply).error()};
  co_return reply->value();
}

task<> expect_reply(retrier& through, retrier::starter start) {
  auto reply = co_await join(through, std::move(start));
  EXPECT_EQ(reply.value_or("failed"), "ab");
}

task<> expect_failure(retrier& through, retrier::starter start, const method& m = safe,
                      std::string first = "a") {
  auto reply = co_await join(through, std::move(start), m, std::move(first));
  EXPECT_EQ(reply ? "no failure" : reply.error().message(), "not now");
}

TEST_F(retry_test, sends_everything_again_and_says_which_attempt_it_is) {
  server_.failures = 2;
  retrier through = make({.max_attempts = 3});
  run(expect_reply(through, starter()));
  EXPECT_EQ(server_.seen, (std::vector<std::string>{"none", "1", "2"}));
}

TEST_F(retry_test, a_failure_in_the_middle_of_the_request_is_retried) {
  server_.failures = 1;
  server_.reads_first = true;
  retrier through = make({.max_attempts = 2});
  run(expect_reply(through, starter()));
  EXPECT_EQ(server_.calls, 2);
}

TEST_F(retry_test, ends_with_the_last_status) {
  server_.failures = 100;
  retrier through = make({.max_attempts = 3});
  run(expect_failure(through, starter()));
  EXPECT_EQ(server_.calls, 3);
}

TEST_F(retry_test, a_method_that_is_not_marked_safe_has_one_attempt) {
  server_.failures = 1;
  retrier through = make({.max_attempts = 3});
  run(expect_failure(through, starter(), unsafe));
  EXPECT_EQ(server_.calls, 1);
}

TEST_F(retry_test, other_codes_have_one_attempt) {
  server_.failures = 1;
  server_.failure = code::internal;
  retrier through = make({.max_attempts = 3});
  run(expect_failure(through, starter()));
  EXPECT_EQ(server_.calls, 1);
}

TEST_F(retry_test, the_server_can_say_stop) {
  server_.failures = 1;
  server_.trailers = {{"grpc-retry-pushback-ms", "-1"}};
  retrier through = make({.max_attempts = 3});
  run(expect_failure(through, starter()));
  EXPECT_EQ(server_.calls, 1);
}

TEST_F(retry_test, a_request_beyond_the_buffer_has_one_attempt) {
  server_.failures = 1;
  server_.reads_first = true;
  retrier through = make({.max_attempts = 3, .buffer = 100});
  run(expect_failure(through, starter(), safe, std::string(200, 'x')));
  EXPECT_EQ(server_.calls, 1);
}

task<> read_a_part(retrier& through, retrier::starter start) {
  auto call = co_await through.start(std::move(start), safe, {}, never);
  (void)co_await (*call)->finish_writing();
  auto part = co_await (*call)->read();
  EXPECT_TRUE(part && *part);
  auto end = co_await (*call)->read();
  EXPECT_FALSE(end);
}

TEST_F(retry_test, a_response_that_has_begun_commits_the_call) {
  server_.failures = 1;
  server_.answers_first = true;
  retrier through = make({.max_attempts = 3});
  run(read_a_part(through, starter()));
  EXPECT_EQ(server_.calls, 1);
}

task<> start_past_failures(retrier& through, retrier::starter start, int& refused) {
  const retrier::starter picky =
      [&](const method& m, call_options options,
          time_point until) -> task<result<std::unique_ptr<client_call>>> {
    if (refused++ < 2) co_return fail(code::unavailable, "nobody there");
    co_return co_await start(m, std::move(options), until);
  };
  auto reply = co_await join(through, picky);
  EXPECT_EQ(reply.value_or("failed"), "ab");
}

TEST_F(retry_test, an_attempt_that_cannot_start_counts) {
  int refused = 0;
  retrier through = make({.max_attempts = 3});
  run(start_past_failures(through, starter(), refused));
  EXPECT_EQ(refused, 3);
  EXPECT_EQ(server_.seen, (std::vector<std::string>{"2"}));
}

task<> outlast(retrier& through, retrier::starter start, io::shard& shard) {
  // The pause alone is longer than the deadline.
  auto call = co_await through.start(std::move(start), safe, {}, io::now() + 1h);
  (void)co_await (*call)->finish_writing();
  auto end = co_await (*call)->read();
  EXPECT_EQ(end.error().code(), code::unavailable);
  (void)shard;
}

TEST_F(retry_test, does_not_wait_past_the_deadline) {
  server_.failures = 1;
  server_.trailers = {{"grpc-retry-pushback-ms", "4000000"}};
  retrier through = make({.max_attempts = 3});
  run(outlast(through, starter(), shard_));
  EXPECT_EQ(server_.calls, 1);
}

task<> cancel_in_the_pause(retrier& through, retrier::starter start, io::shard& shard) {
  auto call = co_await through.start(std::move(start), safe, {}, never);
  (void)co_await (*call)->finish_writing();
  io::timer soon;
  shard.arm(soon, io::now() + 1ms,
            [&](time_point) { (*call)->cancel({code::cancelled, "changed my mind"}); });
  auto end = co_await (*call)->read();
  EXPECT_EQ(end.error().message(), "changed my mind");
}

TEST_F(retry_test, cancelling_ends_the_pause) {
  server_.failures = 100;
  server_.trailers = {{"grpc-retry-pushback-ms", "4000000"}};
  retrier through = make({.max_attempts = 3});
  run(cancel_in_the_pause(through, starter(), shard_));
  EXPECT_EQ(server_.calls, 1);
}

task<> fail_often(retrier& through, retrier::starter start) {
  for (int i = 0; i < 20; ++i) (void)co_await join(through, start);
}

TEST_F(retry_test, a_server_in_trouble_gets_no_more_calls_than_usual) {
  server_.failures = 1000;
  retrier through = make({.max_attempts = 3});
  run(fail_often(through, starter()));
  // The first call costs three tokens of ten, the second its fourth and fifth: half are gone.
  EXPECT_EQ(server_.calls, 20 + 3);
}

}  // namespace
}  // namespace weft::rpc
