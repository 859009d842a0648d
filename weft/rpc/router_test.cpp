#include <weft/rpc/router.hpp>

#include <stdexcept>

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/empty.pb.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/wrappers.pb.h>
#include <gtest/gtest.h>

#include <weft/rpc/describe.hpp>
#include <weft/rpc/dynamic.hpp>
#include <weft/rpc/loopback_fake.hpp>

namespace weft::rpc {
namespace {

namespace pb = google::protobuf;
using text = pb::StringValue;

// A service written by hand, as the generator would write it
// -----------------------------------------

constexpr std::array<method, 5> methods{{
    {.path = "/t.Words/Echo", .service = "t.Words", .name = "Echo"},
    {.path = "/t.Words/Split",
     .service = "t.Words",
     .name = "Split",
     .kind = call_kind::server_streaming},
    {.path = "/t.Words/Join",
     .service = "t.Words",
     .name = "Join",
     .kind = call_kind::client_streaming},
    {.path = "/t.Words/Hang", .service = "t.Words", .name = "Hang"},
    {.path = "/t.Words/Throw", .service = "t.Words", .name = "Throw"},
}};

std::string words_file() {
  pb::FileDescriptorProto file;
  file.set_name("t/words.proto");
  file.set_package("t");
  file.set_syntax("proto3");
  file.add_dependency("google/protobuf/wrappers.proto");
  auto* words = file.add_service();
  words->set_name("Words");
  for (const auto& m : methods) {
    auto* described = words->add_method();
    described->set_name(std::string{m.name});
    described->set_input_type(".google.protobuf.StringValue");
    described->set_output_type(".google.protobuf.StringValue");
    described->set_client_streaming(m.client_streams());
    described->set_server_streaming(m.server_streams());
  }
  return file.SerializeAsString();
}

std::string wrappers_file() {
  pb::FileDescriptorProto file;
  text::descriptor()->file()->CopyTo(&file);
  return file.SerializeAsString();
}

const service& words_service() {
  static const std::array<std::string, 2> content{wrappers_file(), words_file()};
  static const std::array<std::string_view, 2> files{content[0], content[1]};
  static const service self{"t.Words", methods, files};
  return self;
}

text value(std::string s) {
  text t;
  t.set_value(std::move(s));
  return t;
}

class words final : public service_handler {
 public:
  const service& descriptor() const noexcept override { return words_service(); }
  task<status> invoke(std::size_t index, server_context& context, server_call& call) override {
    if (index == 0) {
      auto request = co_await read_single<text>(call);
      if (!request) co_return std::move(request).error();
      co_return co_await write_reply<text>(call, value(request->value() + suffix(context)));
    }
    if (index == 1) co_return co_await split(call);
    if (index == 2) co_return co_await join(call);
    if (index == 3) {
      io::event never_notified;
      cancelled = !co_await never_notified.wait();
      // Awaiting goes on as usual in a cancelled handler.
      slept = (co_await context.shard().sleep_until(never)).has_value();
      co_return status{code::cancelled, "told"};
    }
    throw std::runtime_error{"secret"};
  }
  bool cancelled = false;
  bool slept = true;

 private:
  static std::string suffix(const server_context& context) {
    return std::string{context.metadata().find("suffix").value_or("")};
  }
  task<status> split(server_call& call) {
    auto request = co_await read_single<text>(call);
    if (!request) co_return std::move(request).error();
    writer<text> replies{call};
    for (char c : request->value())
      if (auto written = co_await replies.write(value({c})); !written)
        co_return std::move(written).error();
    co_return status{};
  }
  task<status> join(server_call& call) {
    reader<text> requests{call};
    std::string all;
    for (;;) {
      auto next = co_await requests.read();
      if (!next) co_return std::move(next).error();
      if (!*next) break;
      all += (*next)->value();
    }
    co_return co_await write_reply<text>(call, value(all));
  }
};

class router_test : public testing::Test {
 protected:
  void run(task<> test) {
    asio::co_spawn(shard_.get_executor(), std::move(test), [this](std::exception_ptr failure) {
      shard_.stop();
      if (failure) std::rethrow_exception(failure);
    });
    shard_.run();
  }
  router make(std::vector<std::shared_ptr<server_interceptor>> around = {}) {
    return router{shard_, std::move(around), [this](std::string_view line) { log_ += line; }};
  }

  io::shard shard_;
  std::string log_;
  std::shared_ptr<words> words_ = std::make_shared<words>();
};

task<> echo_and_count(fake::loopback& via, router& r) {
  auto reply = co_await unary_call<text, text>(via, methods[0], value("hi"),
                                               {.metadata = {{"suffix", "!"}}});
  EXPECT_TRUE(reply && reply->value() == "hi!");
  auto failed = co_await unary_call<text, text>(via, methods[4], value("hi"), {});
  EXPECT_FALSE(failed);
  const auto figures = r.stats();
  EXPECT_EQ(figures.size(), 5u);
  EXPECT_EQ(figures[0].path, "/t.Words/Echo");
  EXPECT_EQ(figures[0].succeeded, 1u);
  EXPECT_EQ(figures[4].path, "/t.Words/Throw");
  EXPECT_EQ(figures[4].failed, 1u);
  EXPECT_EQ(figures[4].in_flight, 0u);
}

TEST_F(router_test, finds_runs_and_counts) {
  router r = make();
  ASSERT_TRUE(r.add(words_));
  fake::loopback via{shard_, r};
  run(echo_and_count(via, r));
}

TEST_F(router_test, refuses_a_second_service_of_the_same_name) {
  router r = make();
  ASSERT_TRUE(r.add(words_));
  auto again = r.add(std::make_shared<words>());
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), errc::invalid_argument);
  EXPECT_TRUE(r.has("t.Words"));
  EXPECT_EQ(r.services().size(), 1u);
}

task<> call_what_is_not_there(fake::loopback& via) {
  static constexpr method no_service{.path = "/t.Nobody/Echo"};
  static constexpr method no_method{.path = "/t.Words/Nothing"};
  static constexpr method odd{.path = "odd"};
  for (const method* m : {&no_service, &no_method, &odd}) {
    auto reply = co_await unary_call<text, text>(via, *m, value("x"), {});
    EXPECT_EQ(reply.error().code(), code::unimplemented) << reply.error().to_string();
  }
  auto reply = co_await unary_call<text, text>(via, no_method, value("x"), {});
  EXPECT_EQ(reply.error().message(), "service t.Words has no method Nothing");
}

TEST_F(router_test, unknown_methods_are_unimplemented) {
  router r = make();
  ASSERT_TRUE(r.add(words_));
  fake::loopback via{shard_, r};
  run(call_what_is_not_there(via));
}

task<> call_thrower(fake::loopback& via) {
  auto reply = co_await unary_call<text, text>(via, methods[4], value("x"), {});
  EXPECT_EQ(reply.error().code(), code::unknown);
  EXPECT_EQ(reply.error().message().find("secret"), std::string::npos);
}

TEST_F(router_test, an_exception_goes_to_the_log_not_to_the_peer) {
  router r = make();
  ASSERT_TRUE(r.add(words_));
  fake::loopback via{shard_, r};
  run(call_thrower(via));
  EXPECT_NE(log_.find("/t.Words/Throw threw: secret"), std::string::npos);
}

task<> break_cardinality(fake::loopback& via) {
  auto none = co_await via.start(methods[0], {});
  (void)co_await (*none)->finish_writing();
  EXPECT_EQ((co_await (*none)->read()).error().code(), code::unimplemented);
  auto two = co_await via.start(methods[0], {});
  (void)co_await (*two)->write(*encode(value("a")), false);
  (void)co_await (*two)->write(*encode(value("b")), true);
  EXPECT_EQ((co_await (*two)->read()).error().code(), code::unimplemented);
  auto garbage = co_await via.start(methods[0], {});
  (void)co_await (*garbage)->write(outgoing{as_bytes("\xff\xff")}, true);
  EXPECT_EQ((co_await (*garbage)->read()).error().code(), code::invalid_argument);
}

TEST_F(router_test, unary_methods_take_exactly_one_request) {
  router r = make();
  ASSERT_TRUE(r.add(words_));
  fake::loopback via{shard_, r};
  run(break_cardinality(via));
}

task<> remove_in_the_middle(fake::loopback& via, router& r, words& handler) {
  auto hanging = co_await via.start(methods[3], {});
  (void)co_await (*hanging)->finish_writing();
  co_await asio::post(asio::deferred);
  EXPECT_EQ(r.in_flight(), 1u);
  bool removed = false;
  asio::co_spawn(co_await asio::this_coro::executor, r.remove("t.Words"),
                 [&](std::exception_ptr) { removed = true; });
  co_await asio::post(asio::deferred);
  EXPECT_FALSE(r.has("t.Words"));
  EXPECT_FALSE(removed) << "a call still runs";
  auto refused = co_await unary_call<text, text>(via, methods[0], value("x"), {});
  EXPECT_EQ(refused.error().code(), code::unimplemented);
  (*hanging)->cancel({code::cancelled, "enough"});
  co_await r.idle();
  EXPECT_EQ(r.in_flight(), 0u);
  EXPECT_TRUE(handler.cancelled);
  EXPECT_FALSE(handler.slept);
  while (!removed) co_await asio::post(asio::deferred);
  co_await r.remove("t.Words");
}

TEST_F(router_test, removal_waits_for_running_calls) {
  router r = make();
  ASSERT_TRUE(r.add(words_));
  fake::loopback via{shard_, r};
  run(remove_in_the_middle(via, r, *words_));
}

// Interceptors
// ---------------------------------------------------------------------------------------

class noting final : public server_interceptor {
 public:
  noting(std::string name, std::string& notes) : name_{std::move(name)}, notes_{notes} {}
  task<status> intercept(server_call& call, next proceed) override {
    notes_ += name_ + "(";
    status end = co_await proceed(call);
    notes_ += std::string{to_string(end.code())} + ")";
    co_return end;
  }

 private:
  std::string name_;
  std::string& notes_;
};

class doorman final : public server_interceptor {
 public:
  task<status> intercept(server_call& call, next proceed) override {
    if (!call.info().metadata.find("ticket")) co_return status{code::unauthenticated, "no ticket"};
    co_return co_await proceed(call);
  }
};

task<> pass_the_doorman(fake::loopback& via) {
  auto refused = co_await unary_call<text, text>(via, methods[0], value("x"), {});
  EXPECT_EQ(refused.error().code(), code::unauthenticated);
  auto passed =
      co_await unary_call<text, text>(via, methods[0], value("x"), {.metadata = {{"ticket", "1"}}});
  EXPECT_TRUE(passed.has_value());
}

TEST_F(router_test, interceptors_surround_in_order_and_may_refuse) {
  std::string notes;
  router r = make({std::make_shared<noting>("a", notes), std::make_shared<doorman>(),
                   std::make_shared<noting>("b", notes)});
  ASSERT_TRUE(r.add(words_));
  fake::loopback via{shard_, r};
  run(pass_the_doorman(via));
  EXPECT_EQ(notes, "a(unauthenticated)a(b(ok)ok)");
}

// Description and JSON
// -------------------------------------------------------------------------------

task<> learn_and_call(fake::loopback& via) {
  auto names =
      co_await unary_call<pb::Empty, pb::ListValue>(via, describe::list_services, pb::Empty{}, {});
  EXPECT_EQ(names->values_size(), 2);
  EXPECT_EQ(names->values(0).string_value(), "t.Words");

  auto all = co_await schema::fetch(via);
  EXPECT_TRUE(all.has_value());
  EXPECT_EQ(all->services(),
            (std::vector<std::string>{"t.Words", "weft.describe.v1.DescribeService"}));
  EXPECT_EQ(all->methods("t.Words")[1].kind, call_kind::server_streaming);
  EXPECT_EQ(all->methods("t.Words")[1].request, "google.protobuf.StringValue");
  EXPECT_TRUE(all->methods("t.Nobody").empty());
  auto listed =
      co_await call_json(via, *all, "weft.describe.v1.DescribeService/ListServices", "{}");
  EXPECT_EQ(*listed, R"(["t.Words","weft.describe.v1.DescribeService"])");

  auto nobody = co_await schema::fetch(via, "t.Nobody");
  EXPECT_EQ(nobody.error().code(), code::not_found);

  auto known = co_await schema::fetch(via, "t.Words");
  for (const char* name : {"/t.Words/Echo", "t.Words/Echo", "t.Words.Echo"}) {
    auto reply = co_await call_json(via, *known, name, "\"hi\"");
    EXPECT_EQ(reply.value_or("?"), "\"hi\"");
  }
  auto unknown = co_await call_json(via, *known, "t.Words/Sing", "\"hi\"");
  EXPECT_EQ(unknown.error().code(), code::not_found);
  auto broken = co_await call_json(via, *known, "t.Words/Echo", "{");
  EXPECT_EQ(broken.error().code(), code::invalid_argument);
  auto strange = co_await call_json(via, *all, "weft.describe.v1.DescribeService/ListServices",
                                    R"({"color":1})");
  EXPECT_EQ(strange.error().code(), code::invalid_argument);
  EXPECT_NE(strange.error().message().find("color"), std::string::npos)
      << strange.error().message();
}

TEST_F(router_test, clients_learn_services_and_call_them_by_json) {
  router r = make();
  ASSERT_TRUE(r.add(words_));
  ASSERT_TRUE(r.add(describe::make_handler([&r] { return r.services(); })));
  fake::loopback via{shard_, r};
  run(learn_and_call(via));
}

task<> stream_json(fake::loopback& via) {
  auto known = co_await schema::fetch(via, "t.Words");
  auto split = co_await json_call::start(via, *known, "t.Words/Split");
  (void)co_await split->write("\"abc\"");
  (void)co_await split->finish_writing();
  std::string all;
  for (;;) {
    auto next = co_await split->read();
    if (!next || !*next) break;
    all += **next + "\n";
  }
  EXPECT_EQ(all, "\"a\"\n\"b\"\n\"c\"\n");

  auto join = co_await json_call::start(via, *known, "t.Words/Join");
  for (const char* part : {"\"a\"", "\"b\""}) (void)co_await join->write(part);
  (void)co_await join->finish_writing();
  auto joined = co_await join->read();
  EXPECT_EQ((*joined).value_or("?"), "\"ab\"");
}

TEST_F(router_test, json_streams_both_ways) {
  router r = make();
  ASSERT_TRUE(r.add(words_));
  ASSERT_TRUE(r.add(describe::make_handler([&r] { return r.services(); })));
  fake::loopback via{shard_, r};
  run(stream_json(via));
}

TEST(schema_test, refuses_what_does_not_hold_together) {
  EXPECT_EQ(schema::parse(as_bytes("\xff\xff")).error().code(), errc::malformed);
  pb::FileDescriptorSet set;
  ASSERT_TRUE(set.add_file()->ParseFromString(words_file()));
  const std::string without_imports = set.SerializeAsString();
  auto parsed = schema::parse(as_bytes(without_imports));
  ASSERT_FALSE(parsed);
  EXPECT_NE(parsed.error().message().find("wrappers.proto"), std::string::npos);
}

TEST(to_status_test, says_what_a_caller_can_act_on) {
  const auto map = [](errc e) { return to_status(error{e, layer::quic, "why", 7}).code(); };
  EXPECT_EQ(map(errc::cancelled), code::cancelled);
  EXPECT_EQ(map(errc::timed_out), code::unavailable);
  EXPECT_EQ(map(errc::refused), code::unavailable);
  EXPECT_EQ(map(errc::exhausted), code::resource_exhausted);
  EXPECT_EQ(map(errc::protocol), code::internal);
  EXPECT_EQ(to_status(error{errc::refused, layer::quic, "why"}).message(), "quic: refused: why");
}

}  // namespace
}  // namespace weft::rpc
