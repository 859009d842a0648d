#include <weft/rpc/grpc/test_support.hpp>
#include <weft/rpc/http/test_wires.hpp>

// gRPC and gRPC-Web over the real thing: sockets, TLS, and each version of HTTP.

namespace weft::rpc::grpc::testing {
namespace {

using namespace std::chrono_literals;

struct spoken {
  named_way over;
  grpc::dialect dialect;
};

class grpc_over_http : public ::testing::TestWithParam<spoken> {
 public:
  void with_client(client_options settings, std::function<task<>(rpc::transport&)> work) {
    settings.authority = "localhost";
    settings.dialect = GetParam().dialect;
    quic::test::run(shard, go(*this, std::move(settings), std::move(work)), 60s);
    link = {};
  }
  static task<> go(grpc_over_http& self, client_options settings,
                   std::function<task<>(rpc::transport&)> work) {
    self.core = std::make_shared<http::server_core>(self.shard, self.calls, http::server_options{});
    co_await self.GetParam().over.connect(
        self.shard, self.link,
        [core = self.core](std::unique_ptr<weft::http::exchange> e) { serve(std::move(e), core); });
    self.client = open(std::move(self.link.client), self.shard, std::move(settings));
    co_await work(*self.client);
    self.client.reset();
    co_await settle(self.shard);
  }
  /// Waits until `holds`.
  task<> until(std::function<bool()> holds) {
    while (!holds()) co_await settle(shard);
  }

  io::shard shard;
  handlers calls;
  std::shared_ptr<http::server_core> core;
  wires link;
  std::unique_ptr<rpc::transport> client;
};

std::string name_of(const ::testing::TestParamInfo<spoken>& of) {
  return std::string{of.param.over.name} + (of.param.dialect == dialect::grpc ? "_grpc" : "_web");
}

const named_way h3{"h3", over_h3}, h2{"h2", over_h2};

INSTANTIATE_TEST_SUITE_P(all, grpc_over_http,
                         ::testing::Values(spoken{h3, dialect::grpc}, spoken{h3, dialect::grpc_web},
                                           spoken{h2, dialect::grpc},
                                           spoken{h2, dialect::grpc_web}),
                         name_of);

TEST_P(grpc_over_http, every_codec_compression_and_size) {
  calls.on(echo_method, echo).on(chat_method, echo);
  for (const auto c : {codec::proto, codec::json}) {
    client_options settings;
    settings.codec = c;
    with_client(settings, [](rpc::transport& t) -> task<> {
      for (const auto algorithm : {compression::identity, compression::gzip, compression::zstd})
        for (const std::size_t size : {0, 5, 3000, 300'000}) {
          const std::string text(size, 'a');
          auto got = co_await ask(t, chat_method, text, {.request_compression = algorithm});
          EXPECT_TRUE(got) << (got ? "" : got.error().to_string());
          EXPECT_EQ(got.value_or("nothing").size(), size);
        }
    });
  }
}

task<> ask_many(rpc::transport& t, int rounds, std::size_t& good, std::size_t& running) {
  for (int i = 0; i < rounds; ++i) {
    auto got = co_await ask(t, echo_method, std::string(1024, 'x'));
    if (got && got->size() == 1024) ++good;
  }
  --running;
}

TEST_P(grpc_over_http, many_calls_at_once) {
  calls.on(echo_method, echo);
  std::size_t good = 0, running = 64;
  with_client({}, [&](rpc::transport& t) -> task<> {
    struct local {
      static task<> go(grpc_over_http& self, rpc::transport& t, std::size_t& good,
                       std::size_t& running) {
        for (int i = 0; i < 64; ++i)
          asio::co_spawn(self.shard.get_executor(), ask_many(t, 20, good, running),
                         [](std::exception_ptr) {});
        co_await self.until([&] { return running == 0; });
      }
    };
    return local::go(*this, t, good, running);
  });
  EXPECT_EQ(good, 64u * 20u);
  EXPECT_EQ(core->stats().running, 0u);
}

task<status> refuse_all(server_call& call) {
  (void)co_await call.send_headers({{"x-head", "1"}, {"x-head", "2"}});
  call.set_trailers({{"x-tail-bin", std::string{"\0\xff", 2}}});
  co_return status{code::aborted, "caf\xc3\xa9", {{"a.B", "\xfe"}}};
}

TEST_P(grpc_over_http, errors_metadata_and_details_arrive_whole) {
  calls.on(chat_method, refuse_all);
  with_client({}, [](rpc::transport& t) -> task<> {
    response_info info;
    auto got = co_await ask(t, chat_method, "x", {.info = &info});
    EXPECT_EQ(got.error(), (status{code::aborted, "caf\xc3\xa9", {{"a.B", "\xfe"}}}));
    EXPECT_EQ(info.headers.find_all("x-head"), (std::vector<std::string_view>{"1", "2"}));
    EXPECT_EQ(info.trailers, (metadata{{"x-tail-bin", std::string{"\0\xff", 2}}}));
  });
}

task<status> answer_before_reading(server_call&) {
  co_return status{code::unauthenticated, "who?"};
}

TEST_P(grpc_over_http, an_early_answer_outlives_the_request_it_did_not_read) {
  calls.on(chat_method, answer_before_reading);
  with_client({}, [](rpc::transport& t) -> task<> {
    for (int i = 0; i < 20; ++i) {
      auto got = co_await ask(t, chat_method, std::string(2'000'000, 'x'));
      EXPECT_EQ(got.error(), (status{code::unauthenticated, "who?"}));
    }
  });
}

task<status> early_headers(server_call& call, io::event& go_on) {
  (void)co_await call.send_headers({{"x-early", "yes"}});
  (void)co_await go_on.wait();
  co_return status{};
}

TEST_P(grpc_over_http, headers_arrive_before_the_first_message) {
  io::event go_on;
  calls.on(chat_method, [&](server_call& call) { return early_headers(call, go_on); });
  with_client({}, [&](rpc::transport& t) -> task<> {
    struct local {
      static task<> go(rpc::transport& t, io::event& go_on) {
        auto call = (co_await t.start(chat_method, {}, never)).value();
        auto headers = co_await call->read_headers();
        EXPECT_EQ(headers->find("x-early"), "yes");
        go_on.notify();
        auto end = co_await call->read();
        EXPECT_TRUE(end && !*end);
      }
    };
    return local::go(t, go_on);
  });
}

task<status> read_for_ever(server_call& call) {
  auto next = co_await call.read();
  while (next && *next) next = co_await call.read();
  co_return next ? status{} : next.error();
}

TEST_P(grpc_over_http, deadlines_and_cancellation_reach_the_handler) {
  calls.on(chat_method, read_for_ever);
  with_client({}, [&](rpc::transport& t) -> task<> {
    struct local {
      static task<> go(grpc_over_http& self, rpc::transport& t) {
        for (int i = 0; i < 10; ++i) {
          auto late = (co_await t.start(chat_method, {}, io::now() + 20ms)).value();
          auto next = co_await late->read();
          EXPECT_EQ(next.error().code(), code::deadline_exceeded);
        }
        co_await self.until([&] { return self.calls.running == 0; });
        auto dropped = (co_await t.start(chat_method, {}, never)).value();
        co_await self.until([&] { return self.calls.running == 1; });
        dropped.reset();
        co_await self.until([&] { return self.calls.running == 0; });
      }
    };
    return local::go(*this, t);
  });
}

task<status> write_much(server_call& call) {
  for (int i = 0; i < 2000; ++i) {
    auto sent =
        co_await call.write(text_message{std::string(1000, static_cast<char>('a' + i % 26))});
    if (!sent) co_return std::move(sent).error();
  }
  co_return status{};
}

TEST_P(grpc_over_http, long_streams_arrive_in_order) {
  calls.on(chat_method, write_much);
  with_client({}, [](rpc::transport& t) -> task<> {
    auto call = (co_await t.start(chat_method, {}, never)).value();
    (void)co_await call->finish_writing();
    for (int i = 0; i < 2000; ++i) {
      auto next = co_await call->read();
      EXPECT_TRUE(next && *next);
      if (!next || !*next) co_return;
      EXPECT_EQ(text_of(**next), std::string(1000, static_cast<char>('a' + i % 26)));
    }
    auto end = co_await call->read();
    EXPECT_TRUE(end && !*end);
  });
}

// What does not fit
// -----------------------------------------------------------------------------------

class grpc_beyond_limits : public grpc_over_http {};

INSTANTIATE_TEST_SUITE_P(all, grpc_beyond_limits,
                         ::testing::Values(spoken{h3, dialect::grpc}, spoken{h3, dialect::grpc_web},
                                           spoken{h2, dialect::grpc},
                                           spoken{h2, dialect::grpc_web}),
                         name_of);

task<status> explain_at_length(server_call& call) {
  call.set_trailers({{"x-tail", "1"}});
  co_return status{code::aborted, std::string(100'000, 'm')};
}

TEST_P(grpc_beyond_limits, a_status_beyond_the_clients_limit_keeps_its_code) {
  calls.on(chat_method, explain_at_length);
  with_client({}, [](rpc::transport& t) -> task<> {
    auto got = co_await ask(t, chat_method, "x");
    EXPECT_EQ(got.error().code(), code::aborted) << got.error().to_string();
    auto next = co_await ask(t, chat_method, "x");  // the connection has not suffered
    EXPECT_EQ(next.error().code(), code::aborted) << got.error().to_string();
  });
}

task<status> boast(server_call& call) {
  auto sent = co_await call.send_headers({{"x-head", std::string(100'000, 'h')}});
  co_return sent ? status{} : std::move(sent).error();
}

TEST_P(grpc_beyond_limits, headers_beyond_the_clients_limit_are_resource_exhausted) {
  calls.on(chat_method, boast);
  with_client({}, [](rpc::transport& t) -> task<> {
    auto got = co_await ask(t, chat_method, "x");
    EXPECT_EQ(got.error().code(), code::resource_exhausted) << got.error().to_string();
  });
}

}  // namespace
}  // namespace weft::rpc::grpc::testing
