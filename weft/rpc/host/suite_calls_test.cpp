#include <algorithm>

#include <weft/rpc/dynamic.hpp>
#include <weft/rpc/host/suite_fixture.hpp>

// Calls of every kind, registration, errors, metadata, interceptors.

namespace weft::rpc::suite {
namespace {

WEFT_SUITE(calls);

WEFT_SUITE_TEST(calls, unary_of_every_size) {
  for (std::size_t size : {0, 1, 100, 5'000, 70'000, 1 << 20, 5 << 20}) {
    const std::string message(size, 'm');
    auto reply = co_await t.call(echo, message);
    EXPECT_TRUE(reply && reply->value() == message) << size << ' ' << reply.error().to_string();
  }
}

WEFT_SUITE_TEST(calls, tells_what_carries_it) {
  auto reply = co_await t.call(echo, "x");
  EXPECT_TRUE(reply.has_value());
  const auto info = t.channel().info();
  const char* names[] = {"quic", "quic-one-stream", "tls-tcp"};
  EXPECT_EQ(info.name, names[static_cast<int>(t.GetParam().over)]);
  EXPECT_EQ(info.remote.to_string(), t.target_);
  EXPECT_EQ(info.group, "X25519MLKEM768");
  EXPECT_EQ(t.probe_->seen_transport, info.name);
  EXPECT_EQ(t.probe_->seen.peer.to_string(), info.local.to_string());
  EXPECT_EQ(t.probe_->seen_path, "/t.Suite/Echo");
  EXPECT_EQ(t.channel().connection() != nullptr, t.GetParam() != carrier::tls_tcp);
}

task<> hold_one(carriers& t, int i, std::vector<int>& done) {
  auto reply = co_await t.call(hold, std::to_string(i));
  EXPECT_TRUE(reply && reply->value() == std::to_string(i));
  done.push_back(i);
}

WEFT_SUITE_TEST(calls, thousand_replies_out_of_order) {
  constexpr int calls = 1000;
  std::vector<int> done;
  EXPECT_TRUE(co_await t.channel().connect());
  for (int i = 0; i < calls; ++i) t.beside(hold_one(t, i, done));
  co_await t.until([&] { return t.probe_->held.size() == calls; });
  for (std::size_t i = calls; i-- > 0;) {
    t.probe_->release(i);
    if (i % 100 == 0) co_await t.until([&] { return done.size() == calls - i; });
  }
  EXPECT_EQ(done.size(), 1000u);
  EXPECT_GT(done.front(), done.back());
}

WEFT_SUITE_TEST(calls, one_way_messages_arrive_without_reply) {
  for (int i = 0; i < 200; ++i) {
    auto sent = co_await one_way_call(t.channel(), methods[note], value(std::to_string(i)), {});
    EXPECT_TRUE(sent) << sent.error().to_string();
  }
  co_await t.until([&] { return t.probe_->notes.size() == 200; });
  auto sorted = t.probe_->notes;
  std::ranges::sort(sorted);
  EXPECT_EQ(std::ranges::unique(sorted).begin(), sorted.end());
  EXPECT_TRUE(t.probe_->seen.one_way);
  auto reply = co_await t.call(note, "with a reply");
  EXPECT_EQ(reply->value(), "noted");
}

WEFT_SUITE_TEST(calls, one_way_to_nobody_harms_nothing) {
  static constexpr method unknown{"/t.Suite/Nothing", service_name, "Nothing"};
  auto sent = co_await one_way_call(t.channel(), unknown, value("x"), {});
  EXPECT_TRUE(sent);
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
}

WEFT_SUITE_TEST(calls, unknown_methods_and_services) {
  static constexpr method no_method{"/t.Suite/Nothing", service_name, "Nothing"};
  static constexpr method no_service{"/t.Nobody/Echo", "t.Nobody", "Echo"};
  for (const method* m : {&no_method, &no_service}) {
    auto reply = co_await unary_call<text, text>(t.channel(), *m, value("x"), {});
    EXPECT_EQ(code_of(reply), code::unimplemented) << reply.error().to_string();
  }
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
}

WEFT_SUITE_TEST(calls, registration_and_unregistration) {
  auto& router = t.server_->router(0);
  std::optional<result<text>> running;
  t.call_beside(hold, "a", running);
  co_await t.until([&] { return t.probe_->held.size() == 1; });
  bool removed = false;
  asio::co_spawn(t.shard().get_executor(), router.remove(service_name),
                 [&](std::exception_ptr) { removed = true; });
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::unimplemented);
  EXPECT_FALSE(removed) << "a call still runs";
  t.probe_->release(0);
  co_await t.until([&] { return removed && running; });
  EXPECT_EQ(code_of(*running), code::ok) << "removal lets running calls end";
  EXPECT_FALSE(router.has(service_name));
  EXPECT_TRUE(router.add(std::make_shared<handler>(t.probe_)));
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
}

WEFT_SUITE_TEST(calls, remote_errors_with_details_and_trailers) {
  response_info info;
  auto reply = co_await t.call(refuse, "why", {.info = &info});
  EXPECT_EQ(code_of(reply), code::failed_precondition);
  EXPECT_EQ(reply.error().message(), "no: \xc3\xa4\n\"why\"");
  const auto& details = reply.error().details();
  EXPECT_EQ(details.size(), 2u);
  EXPECT_EQ(details.at(0), (status_detail{"google.rpc.RetryInfo", {"\x0a\x02\x08\0", 4}}));
  EXPECT_EQ(details.at(1), (status_detail{"t.More", ""}));
  EXPECT_EQ(info.trailers.find("reason-bin"), (std::string_view{"\0\xff", 2}));
}

WEFT_SUITE_TEST(calls, an_exception_in_a_handler_is_unknown_and_logged) {
  auto reply = co_await t.call(raise, "x");
  EXPECT_EQ(code_of(reply), code::unknown);
  EXPECT_EQ(reply.error().message().find("secret"), std::string::npos);
  EXPECT_NE(t.log_.find("secret of the server"), std::string::npos);
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
}

WEFT_SUITE_TEST(calls, metadata_both_ways) {
  response_info info;
  metadata request{
      {"x-plain", "a b"}, {"x-bytes-bin", std::string{"\0\x80\n", 3}}, {"x-plain", ""}};
  t.probe_->reply = "body";
  auto reply = co_await t.call(about, "", {.metadata = request, .info = &info});
  EXPECT_TRUE(reply && reply->value() == "body");
  EXPECT_EQ(info.headers.find("greeting"), "hello");
  EXPECT_EQ(info.headers.find("x-bytes-bin"), (std::string_view{"\0\x80\n", 3}));
  EXPECT_EQ(info.headers.find_all("x-plain"), (std::vector<std::string_view>{"a b", ""}));
  EXPECT_EQ(info.trailers.find_all("farewell"), (std::vector<std::string_view>{"bye", "see you"}));
  EXPECT_EQ(info.transport, t.channel().info().name);
  EXPECT_EQ(info.peer.to_string(), t.target_);
}

WEFT_SUITE_TEST(calls, headers_come_before_the_first_message) {
  t.probe_->reply = "body";
  auto call = co_await t.channel().start(methods[about], {});
  EXPECT_TRUE(co_await (*call)->write(*encode(value("")), true));
  auto headers = co_await (*call)->read_headers();
  EXPECT_EQ(headers->find("greeting"), "hello");
  EXPECT_TRUE((co_await read_reply<text>(**call)).has_value());
  EXPECT_EQ((*call)->trailers().find("farewell"), "bye");
}

WEFT_SUITE_TEST(calls, services_describe_themselves_to_json_clients) {
  auto known = co_await schema::fetch(t.channel());
  EXPECT_TRUE(known.has_value()) << known.error().to_string();
  auto names = co_await call_json(t.channel(), *known,
                                  "weft.describe.v1.DescribeService/ListServices", "{}");
  EXPECT_EQ(names.value_or(""), R"(["grpc.health.v1.Health","grpc.reflection.v1.ServerReflection",)"
                                R"("grpc.reflection.v1alpha.ServerReflection","t.Suite",)"
                                R"("weft.describe.v1.DescribeService"])");
}

// Interceptors
// ---------------------------------------------------------------------------------------

class gate final : public server_interceptor {
 public:
  explicit gate(std::vector<std::string>& seen) : seen_{seen} {}
  task<status> intercept(server_call& call, next proceed) override {
    const auto token = call.info().metadata.find("token");
    if (!token) co_return status{code::unauthenticated, "no token"};
    seen_.push_back(std::string{call.info().path} + " " + std::string{*token});
    status end = co_await proceed(call);
    seen_.push_back(std::string{to_string(end.code())});
    co_return end;
  }

 private:
  std::vector<std::string>& seen_;
};

class stamp final : public client_interceptor {
 public:
  task<result<std::unique_ptr<client_call>>> intercept(const method& m, call_options options,
                                                       time_point deadline, next proceed) override {
    ++calls;
    if (options.metadata.find("forbidden"))
      co_return fail(code::permission_denied, "not from here");
    EXPECT_TRUE(options.metadata.add("token", token));
    co_return co_await proceed(m, std::move(options), deadline);
  }
  int calls = 0;
  std::string token = "t1";
};

task<> intercepted(carriers& t, stamp& client, std::vector<std::string>& seen) {
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
  EXPECT_EQ(code_of(co_await t.call(refuse, "x")), code::failed_precondition);
  EXPECT_EQ(seen, (std::vector<std::string>{"/t.Suite/Echo t1", "ok", "/t.Suite/Refuse t1",
                                            "failed_precondition"}));
  EXPECT_EQ(code_of(co_await t.call(echo, "x", {.metadata = {{"forbidden", "1"}}})),
            code::permission_denied);
  EXPECT_TRUE(co_await one_way_call(t.channel(), methods[note], value("n"), {}));
  co_await t.until([&] { return !t.probe_->notes.empty(); });
  EXPECT_EQ(client.calls, 4);
  t.channel_options_.interceptors.clear();
  const auto plain = t.connect_to(t.target_);
  auto refused = co_await unary_call<text, text>(*plain, methods[echo], value("x"), {});
  EXPECT_EQ(code_of(refused), code::unauthenticated);
}

TEST_P(calls, interceptors_on_both_sides) {
  std::vector<std::string> seen;
  const auto client = std::make_shared<stamp>();
  server_options_.interceptors = {std::make_shared<gate>(seen)};
  channel_options_.interceptors = {client};
  start_server();
  run(intercepted(*this, *client, seen));
}

}  // namespace
}  // namespace weft::rpc::suite
