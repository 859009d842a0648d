#include <weft/rpc/grpc/test_support.hpp>

#include <weft/rpc/http/wire/timeout.hpp>

// Calls that a server turned away without looking at them.

namespace weft::rpc::grpc::testing {
namespace {

using namespace std::chrono_literals;
using weft::http::give_up;

constexpr method unary_method{.path = "/t.S/Unary", .service = "t.S", .name = "Unary"};

/// The client's first connection leads to a server that rejects; the one after `rejecting` of them
/// to one that answers.
class turned_away : public grpc_fixture {
 public:
  turned_away() {
    calls.on(unary_method, echo);
    settings.elsewhere = [this](idempotency, bool, time_point) { return next(*this); };
  }
  ~turned_away() override {
    client.reset();
    others.clear();
    held.reset();
    shard.run();  // what waited for another connection
  }

  using found = result<std::shared_ptr<rpc::transport>>;
  static task<found> next(turned_away& self) {
    ++self.asked;
    if (self.nowhere) co_return fail(code::unavailable, "nobody is there");
    if (self.held) (void)co_await self.held->wait();
    self.others.push_back(
        open(self.link_to_server(self.asked >= self.rejecting), self.shard, self.settings));
    co_return self.others.back();
  }
  std::unique_ptr<memory_connection> link_to_server(bool good) {
    if (!core) core = std::make_shared<http::server_core>(shard, calls, options);
    auto made = std::make_unique<memory_connection>(
        shard, [this, good](std::unique_ptr<weft::http::exchange> e) {
          heads.push_back(e->request());
          if (good) return serve(std::move(e), core);
          asio::co_spawn(shard.get_executor(), reject(std::move(e), read_before, why),
                         [](std::exception_ptr) {});
        });
    link = made.get();
    return made;
  }
  /// Rejects after `wanted` bytes of the content.
  static task<> reject(std::unique_ptr<weft::http::exchange> e, std::size_t wanted, give_up why) {
    while (wanted > 0) {
      auto part = co_await e->read();
      if (!part || part->empty()) break;
      wanted -= std::min(wanted, part->size());
    }
    e->reset(why);
  }
  void start() { raw = link_to_server(rejecting == 0); }

  int asked = 0, rejecting = 1;
  std::size_t read_before = 0;
  give_up why = give_up::rejected;
  bool nowhere = false;
  std::unique_ptr<io::event> held;
  std::vector<weft::http::request_head> heads;
  std::vector<std::shared_ptr<rpc::transport>> others;
};

TEST_F(turned_away, a_call_goes_on_at_another_connection) {
  for (const std::size_t before : {0, 1, 8}) {
    client.reset();
    asked = 0;
    read_before = before;
    start();
    const auto got = call(unary_method, {"hello"});
    EXPECT_TRUE(got.end.ok()) << got.end.to_string();
    EXPECT_EQ(got.messages, (std::vector<std::string>{"hello"}));
    EXPECT_EQ(asked, 1);
  }
}

TEST_F(turned_away, all_that_a_stream_has_written_goes_again_in_order) {
  read_before = 20;
  start();
  const std::vector<std::string> sent{"one", "", "three", std::string(2000, '4'), "five"};
  const auto got = call(chat_method, sent);
  EXPECT_TRUE(got.end.ok()) << got.end.to_string();
  EXPECT_EQ(got.messages, sent);
}

TEST_F(turned_away, a_stream_without_messages_goes_again) {
  start();
  const auto got = call(chat_method, {});
  EXPECT_TRUE(got.end.ok()) << got.end.to_string();
  EXPECT_TRUE(got.messages.empty());
  EXPECT_EQ(asked, 1);
}

TEST_F(turned_away, metadata_goes_again_and_the_timeout_is_what_is_left) {
  start();
  call_options with{.timeout = 10s};
  ASSERT_TRUE(with.metadata.add("x-one", "1"));
  struct local {
    static task<> go(turned_away& self, call_options with, outcome& got) {
      co_await run_call(self.open_client(), unary_method, {"x"}, std::move(with), got);
    }
  };
  held = std::make_unique<io::event>();
  io::timer later;
  shard.arm(later, io::now() + 20ms, [&](time_point) { held->notify(); });
  outcome got;
  ASSERT_TRUE(run(shard, local::go(*this, std::move(with), got)));
  EXPECT_TRUE(got.end.ok()) << got.end.to_string();
  ASSERT_EQ(heads.size(), 2u);
  for (const auto& head : heads) EXPECT_EQ(value_of(head.fields, "x-one"), "1");
  const auto first = wire::parse_grpc_timeout(value_of(heads[0].fields, "grpc-timeout"));
  const auto second = wire::parse_grpc_timeout(value_of(heads[1].fields, "grpc-timeout"));
  ASSERT_TRUE(first && second);
  EXPECT_LE(*second, *first - 15ms);
  EXPECT_EQ(heads[0].path, heads[1].path);
}

TEST_F(turned_away, it_stops_after_five_connections) {
  rejecting = 100;
  start();
  const auto got = call(unary_method, {"x"});
  EXPECT_EQ(got.end.code(), code::unavailable) << got.end.to_string();
  EXPECT_EQ(asked, 5);
}

TEST_F(turned_away, what_was_looked_at_is_not_made_again) {
  for (const give_up each : {give_up::cancelled, give_up::internal, give_up::excessive_load}) {
    client.reset();
    why = each;
    start();
    EXPECT_FALSE(call(unary_method, {"x"}).end.ok());
  }
  EXPECT_EQ(asked, 0);
}

TEST_F(turned_away, what_is_too_large_to_keep_is_not_made_again) {
  start();
  const auto got = call(unary_method, {std::string((1 << 20) + 1, 'x')});
  EXPECT_EQ(got.end.code(), code::unavailable) << got.end.to_string();
  EXPECT_EQ(asked, 0);
}

TEST_F(turned_away, without_another_connection_its_failure_is_the_calls) {
  nowhere = true;
  start();
  const auto got = call(unary_method, {"x"});
  EXPECT_EQ(got.end.code(), code::unavailable);
  EXPECT_NE(got.end.message().find("nobody is there"), std::string::npos) << got.end.to_string();
}

TEST_F(turned_away, the_deadline_ends_the_wait_for_another_connection) {
  held = std::make_unique<io::event>();
  start();
  const auto got = call(unary_method, {"x"}, {.timeout = 30ms});
  EXPECT_EQ(got.end.code(), code::deadline_exceeded) << got.end.to_string();
  EXPECT_EQ(asked, 1);
}

TEST_F(turned_away, closing_the_first_connection_ends_the_wait) {
  held = std::make_unique<io::event>();
  start();
  io::timer later;
  (void)open_client();
  shard.arm(later, io::now() + 20ms,
            [&](time_point) { client->close({code::unavailable, "closing"}); });
  const auto got = call(unary_method, {"x"});
  EXPECT_EQ(got.end, (status{code::unavailable, "closing"}));
}

TEST_F(turned_away, reader_and_writer_learn_of_it_at_once) {
  // The writer waits for room when the server rejects, and so does the reader for its answer.
  read_before = 10;
  start();
  raw->capacity = 8;
  struct local {
    static task<> write(client_call& call, bool& done) {
      for (const char* each : {"first", "second", "third"}) {
        auto sent = co_await call.write(text_message{each}, each[0] == 't');
        EXPECT_TRUE(sent.has_value()) << sent.error().to_string();
      }
      done = true;
    }
    static task<> go(turned_away& self, std::vector<std::string>& got, status& end, bool& wrote) {
      auto call = co_await self.open_client().start(chat_method, {}, weft::never);
      EXPECT_TRUE(call.has_value());
      asio::co_spawn(self.shard.get_executor(), write(**call, wrote), [](std::exception_ptr) {});
      while (true) {
        auto next = co_await (*call)->read();
        if (!next) end = next.error();
        if (!next || !*next) break;
        got.push_back(text_of(**next));
      }
      co_await settle(self.shard);
    }
  };
  std::vector<std::string> got;
  status end;
  bool wrote = false;
  ASSERT_TRUE(run(shard, local::go(*this, got, end, wrote)));
  EXPECT_TRUE(end.ok()) << end.to_string();
  EXPECT_TRUE(wrote);
  EXPECT_EQ(got, (std::vector<std::string>{"first", "second", "third"}));
}

}  // namespace
}  // namespace weft::rpc::grpc::testing
