#include <weft/rpc/host/suite_fixture.hpp>

// gRPC, gRPC-Web and Connect on the port of the native protocol: HTTP/3, HTTP/2 over TLS/TCP, and
// HTTP/2 in one QUIC stream, with both codecs.

namespace weft::rpc::suite {
namespace {

class over_http : public carriers {};

std::vector<way> ways() {
  std::vector<way> all;
  for (const carrier over : {carrier::quic, carrier::quic_one_stream, carrier::tls_tcp})
    for (const protocol speaks : {protocol::grpc, protocol::grpc_web, protocol::connect})
      for (const codec form : {codec::proto, codec::json})
        all.push_back({over, false, speaks, form});
  return all;
}

std::string name_of(const testing::TestParamInfo<way>& which) {
  std::string name = which.param.over == carrier::quic              ? "h3_"
                     : which.param.over == carrier::quic_one_stream ? "h2_one_stream_"
                                                                    : "h2_tcp_";
  name += which.param.protocol == protocol::grpc       ? "grpc"
          : which.param.protocol == protocol::grpc_web ? "grpc_web"
                                                       : "connect";
  return name + (which.param.codec == codec::json ? "_json" : "_proto");
}

INSTANTIATE_TEST_SUITE_P(port, over_http, testing::ValuesIn(ways()), name_of);

WEFT_SUITE_TEST(over_http, unary_calls_of_every_size) {
  for (const std::size_t size : {0, 1, 1000, 100'000, 3'000'000}) {
    auto reply = co_await t.call(echo, std::string(size, 'x'));
    EXPECT_TRUE(reply.has_value()) << reply.error().to_string();
    EXPECT_EQ(reply ? reply->value().size() : 0, size);
  }
  EXPECT_EQ(t.probe_->seen_path, "/t.Suite/Echo");
}

WEFT_SUITE_TEST(over_http, headers_and_trailers_arrive) {
  response_info info;
  auto reply = co_await t.call(about, "x", {.metadata = {{"x-color", "blue"}}, .info = &info});
  EXPECT_TRUE(reply.has_value()) << reply.error().to_string();
  EXPECT_EQ(info.headers.find("greeting"), "hello");
  EXPECT_EQ(info.headers.find("x-color"), "blue");
  EXPECT_EQ(info.trailers.find_all("farewell").size(), 2u);
}

WEFT_SUITE_TEST(over_http, errors_keep_code_message_and_details) {
  auto reply = co_await t.call(refuse, "no");
  EXPECT_FALSE(reply.has_value());
  if (!reply) {
    EXPECT_NE(reply.error().code(), code::unknown) << reply.error().to_string();
    EXPECT_FALSE(reply.error().message().empty());
    EXPECT_FALSE(reply.error().details().empty());
  }
  static constexpr method nobody{"/t.Nobody/Nothing", "t.Nobody", "Nothing"};
  auto missing = co_await unary_call<text, text>(t.channel(), nobody, value("x"), {});
  EXPECT_EQ(code_of(missing), code::unimplemented);
}

WEFT_SUITE_TEST(over_http, streams_of_each_kind) {
  auto down =
      co_await server_streaming_call<text, text>(t.channel(), methods[count], value("100"), {});
  EXPECT_TRUE(down.has_value());
  for (int i = 0; i < 100; ++i) {
    auto next = co_await down->read();
    EXPECT_TRUE(next && *next && (*next)->value() == std::to_string(i));
  }
  auto end = co_await down->read();
  EXPECT_TRUE(end && !*end);

  auto up = co_await streaming_call<client_stream<text, text>>(t.channel(), methods[join], {});
  std::string all;
  for (int i = 0; i < 100; ++i) {
    all += std::to_string(i);
    auto sent = co_await up->write(value(std::to_string(i)));
    EXPECT_TRUE(sent);
  }
  auto joined = co_await up->finish();
  EXPECT_TRUE(joined && joined->value() == all);

  auto both = co_await streaming_call<bidi_stream<text, text>>(t.channel(), methods[chat], {});
  for (int i = 0; i < 50; ++i) {
    auto sent = co_await both->write(value("m" + std::to_string(i)));
    EXPECT_TRUE(sent);
    auto next = co_await both->read();
    EXPECT_TRUE(next && *next) << (next ? "ended" : next.error().to_string());
  }
  (void)co_await both->finish_writing();
  auto over = co_await both->read();
  EXPECT_TRUE(over && !*over) << (over ? "a message" : over.error().to_string());
}

WEFT_SUITE_TEST(over_http, a_deadline_reaches_the_handler_and_ends_the_call) {
  auto reply = co_await t.call(hold, "x", {.timeout = 60ms});
  EXPECT_EQ(code_of(reply), code::deadline_exceeded);
  co_await t.until([&] { return t.probe_->cancelled == 1; });
  EXPECT_GT(t.probe_->remaining, duration::zero());
  EXPECT_LE(t.probe_->remaining, 60ms);
  auto after = co_await t.call(echo, "still here");
  EXPECT_TRUE(after.has_value());
}

WEFT_SUITE_TEST(over_http, dropping_a_call_cancels_its_handler) {
  {
    auto call = co_await t.channel().start(methods[hold], {});
    (void)co_await (*call)->write(*encode(value("x")), true);
    co_await t.until([&] { return !t.probe_->held.empty(); });
  }
  co_await t.until([&] { return t.probe_->cancelled == 1; });
}

WEFT_SUITE_TEST(over_http, many_calls_at_once) {
  std::vector<std::optional<result<text>>> outcomes(200);
  for (std::size_t i = 0; i < outcomes.size(); ++i)
    t.call_beside(echo, std::to_string(i), outcomes[i]);
  co_await t.until(
      [&] { return std::ranges::all_of(outcomes, [](auto& o) { return o.has_value(); }); });
  for (std::size_t i = 0; i < outcomes.size(); ++i)
    EXPECT_TRUE(*outcomes[i] && (**outcomes[i]).value() == std::to_string(i));
}

WEFT_SUITE_TEST(over_http, a_shutdown_lets_running_calls_end) {
  std::optional<result<text>> outcome;
  t.call_beside(hold, "x", outcome);
  co_await t.until([&] { return t.probe_->holds.size() == 1; });
  t.server_->shutdown(5s);
  co_await t.settle();
  t.probe_->release(0);
  co_await t.until([&] { return outcome.has_value(); });
  EXPECT_EQ(code_of(*outcome), code::ok) << outcome->error().to_string();
}

WEFT_SUITE_TEST(over_http, a_shutdown_ends_calls_when_the_grace_is_over) {
  std::optional<result<text>> outcome;
  t.call_beside(hold, "x", outcome);
  co_await t.until([&] { return t.probe_->holds.size() == 1; });
  t.server_->shutdown(30ms);
  co_await t.until([&] { return outcome.has_value(); });
  EXPECT_EQ(code_of(*outcome), code::unavailable) << outcome->error().to_string();
}

}  // namespace
}  // namespace weft::rpc::suite
