#include <weft/rpc/connect/test_support.hpp>

#include <functional>

#include <weft/quic/test_support.hpp>

// Connect over the real thing: sockets, TLS, and each version of HTTP.

namespace weft::rpc::connect::testing {
namespace {

using namespace std::chrono_literals;
using quic::test::must;

/// A server and a client that are connected, on one shard.
struct link {
  std::optional<quic::endpoint> listening, opened;
  std::unique_ptr<weft::http::server_connection> server;
  std::unique_ptr<weft::http::client_connection> client;
};

using way = std::function<task<>(io::shard&, link&, weft::http::request_handler)>;

task<> over_h3(io::shard& shard, link& to, weft::http::request_handler handler) {
  auto serving = quic::test::serving();
  serving.tls.alpn = {std::string{weft::http::alpn_h3}};
  auto calling = quic::test::calling();
  calling.tls.alpn = {std::string{weft::http::alpn_h3}};
  to.listening.emplace(
      must(quic::endpoint::listen(shard, quic::test::loopback(), std::move(serving))));
  to.opened.emplace(must(quic::endpoint::open(shard, {})));
  auto ours = must(
      co_await to.opened->connect(to.listening->local_address(), "localhost", std::move(calling)));
  auto theirs = must(co_await to.listening->accept());
  to.server = weft::http::serve_h3(std::move(theirs), shard, {}, std::move(handler));
  to.client = weft::http::open_h3(std::move(ours), shard, {});
}

struct named_way {
  const char* name;
  way connect;
};

class connect_over_http : public ::testing::TestWithParam<named_way> {
 public:
  void with_client(client_options settings, std::function<task<>(rpc::transport&)> work) {
    settings.authority = "localhost";
    quic::test::run(shard, go(*this, std::move(settings), std::move(work)), 60s);
    wires = {};
  }
  static task<> go(connect_over_http& self, client_options settings,
                   std::function<task<>(rpc::transport&)> work) {
    self.core = std::make_shared<http::server_core>(self.shard, self.calls, http::server_options{});
    co_await self.GetParam().connect(
        self.shard, self.wires,
        [core = self.core](std::unique_ptr<weft::http::exchange> e) { serve(std::move(e), core); });
    self.client = open(std::move(self.wires.client), self.shard, std::move(settings));
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
  link wires;
  std::unique_ptr<rpc::transport> client;
};

INSTANTIATE_TEST_SUITE_P(versions, connect_over_http, ::testing::Values(named_way{"h3", over_h3}),
                         [](const auto& of) { return std::string{of.param.name}; });

task<result<std::string>> ask(rpc::transport& t, method m, std::string text,
                              call_options options = {}) {
  const time_point deadline = options.timeout ? io::now() + *options.timeout : never;
  auto call = co_await t.start(m, options, deadline);
  if (!call) co_return std::unexpected{std::move(call).error()};
  (void)co_await (*call)->write(text_message{text}, true);
  auto reply = co_await (*call)->read();
  if (!reply) co_return std::unexpected{std::move(reply).error()};
  if (!*reply) co_return fail(code::unimplemented, "no reply");
  auto end = co_await (*call)->read();
  if (!end) co_return std::unexpected{std::move(end).error()};
  co_return text_of(**reply);
}

TEST_P(connect_over_http, every_kind_codec_and_compression) {
  calls.on(echo_method, echo).on(pure_method, echo).on(chat_method, echo);
  for (const auto c : {codec::proto, codec::json}) {
    client_options settings;
    settings.codec = c;
    settings.use_get = true;
    with_client(settings, [](rpc::transport& t) -> task<> {
      for (const auto algorithm : {compression::identity, compression::gzip, compression::br})
        for (const std::size_t size : {0, 5, 3000, 300'000})
          for (const method& m : {echo_method, pure_method, chat_method}) {
            const std::string text(size, 'a');
            auto got = co_await ask(t, m, text, {.request_compression = algorithm});
            EXPECT_TRUE(got) << (got ? "" : got.error().to_string());
            EXPECT_EQ(got.value_or("nothing").size(), size) << m.path;
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

TEST_P(connect_over_http, many_calls_at_once) {
  calls.on(echo_method, echo);
  std::size_t good = 0, running = 64;
  with_client({}, [&](rpc::transport& t) -> task<> {
    struct local {
      static task<> go(connect_over_http& self, rpc::transport& t, std::size_t& good,
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

TEST_P(connect_over_http, errors_metadata_and_details_arrive_whole) {
  calls.on(echo_method, refuse_all).on(chat_method, refuse_all);
  with_client({}, [](rpc::transport& t) -> task<> {
    for (const method& m : {echo_method, chat_method}) {
      response_info info;
      auto got = co_await ask(t, m, "x", {.info = &info});
      EXPECT_EQ(got.error(), (status{code::aborted, "caf\xc3\xa9", {{"a.B", "\xfe"}}}));
      EXPECT_EQ(info.headers.find_all("x-head"), (std::vector<std::string_view>{"1", "2"}));
      EXPECT_EQ(info.trailers, (metadata{{"x-tail-bin", std::string{"\0\xff", 2}}}));
    }
  });
}

task<status> answer_before_reading(server_call&) {
  co_return status{code::unauthenticated, "who?"};
}

TEST_P(connect_over_http, an_early_answer_outlives_the_request_it_did_not_read) {
  calls.on(echo_method, answer_before_reading).on(chat_method, answer_before_reading);
  with_client({}, [](rpc::transport& t) -> task<> {
    for (int i = 0; i < 20; ++i)
      for (const method& m : {echo_method, chat_method}) {
        auto got = co_await ask(t, m, std::string(2'000'000, 'x'));
        EXPECT_EQ(got.error(), (status{code::unauthenticated, "who?"})) << m.path;
      }
  });
}

task<status> early_headers(server_call& call, io::event& go_on) {
  (void)co_await call.send_headers({{"x-early", "yes"}});
  (void)co_await go_on.wait();
  co_return status{};
}

TEST_P(connect_over_http, headers_arrive_before_the_first_message) {
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

TEST_P(connect_over_http, deadlines_and_cancellation_reach_the_handler) {
  calls.on(chat_method, read_for_ever);
  with_client({}, [&](rpc::transport& t) -> task<> {
    struct local {
      static task<> go(connect_over_http& self, rpc::transport& t) {
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

TEST_P(connect_over_http, long_streams_arrive_in_order) {
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

}  // namespace
}  // namespace weft::rpc::connect::testing
