#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

#include <weft/rpc/describe.hpp>
#include <weft/rpc/dynamic.hpp>
#include <weft/rpc/loopback_fake.hpp>
#include <weft/rpc/router.hpp>
#include <weft/rpc/services/health.hpp>
#include <weft/rpc/services/reflection.hpp>

namespace weft::rpc::services {
namespace {

namespace pb = google::protobuf;

/// Services on a router, called by JSON.
class services_test : public testing::Test {
 protected:
  services_test() : router_{shard_} {}

  void add(std::shared_ptr<service_handler> handler) {
    for (const std::string_view file : handler->descriptor().files) {
      pb::FileDescriptorProto parsed;
      ASSERT_TRUE(parsed.ParseFromArray(file.data(), static_cast<int>(file.size())));
      if (names_.insert(parsed.name()).second) *set_.add_file() = std::move(parsed);
    }
    ASSERT_TRUE(router_.add(std::move(handler)));
  }
  schema known() const {
    const std::string text = set_.SerializeAsString();
    auto parsed = schema::parse(as_bytes(text));
    EXPECT_TRUE(parsed);
    return *parsed;
  }
  void run(task<> test) {
    asio::co_spawn(shard_.get_executor(), std::move(test), [this](std::exception_ptr failure) {
      shard_.stop();
      if (failure) std::rethrow_exception(failure);
    });
    shard_.run();
  }

  io::shard shard_;
  router router_;
  fake::loopback via_{shard_, router_};
  std::set<std::string> names_;
  pb::FileDescriptorSet set_;
};

task<> check_health(caller& via, schema known, health& told) {
  const auto check = [&](std::string request) {
    return call_json(via, known, "grpc.health.v1.Health/Check", std::move(request));
  };
  auto whole = co_await check("{}");
  EXPECT_EQ(whole.value_or(""), R"({"status":"SERVING"})");
  auto nobody = co_await check(R"({"service":"a.B"})");
  EXPECT_EQ(nobody.error().code(), code::not_found);
  told.set("a.B", serving_status::not_serving);
  auto known_now = co_await check(R"({"service":"a.B"})");
  EXPECT_EQ(known_now.value_or(""), R"({"status":"NOT_SERVING"})");
  auto all = co_await call_json(via, known, "grpc.health.v1.Health/List", "{}");
  EXPECT_EQ(all.value_or(""),
            R"({"statuses":{"":{"status":"SERVING"},"a.B":{"status":"NOT_SERVING"}}})");
}

TEST_F(services_test, health_tells_what_was_set) {
  health told;
  add(told.make_handler(shard_));
  run(check_health(via_, known(), told));
}

task<> watch_health(caller& via, schema known, health& told) {
  auto watch = co_await json_call::start(via, known, "grpc.health.v1.Health/Watch");
  (void)co_await watch->write(R"({"service":"late"})");
  (void)co_await watch->finish_writing();
  auto first = co_await watch->read();
  EXPECT_EQ((*first).value_or(""), R"({"status":"SERVICE_UNKNOWN"})");
  told.set("other", serving_status::serving);
  told.set("late", serving_status::serving);
  auto second = co_await watch->read();
  EXPECT_EQ((*second).value_or(""), R"({"status":"SERVING"})");
  told.shut_down();
  told.set("late", serving_status::serving);  // comes too late
  auto third = co_await watch->read();
  EXPECT_EQ((*third).value_or(""), R"({"status":"NOT_SERVING"})");
  auto whole = co_await call_json(via, known, "grpc.health.v1.Health/Check", "{}");
  EXPECT_EQ(whole.value_or(""), R"({"status":"NOT_SERVING"})");
}

TEST_F(services_test, health_watch_follows_changes_and_the_end) {
  health told;
  add(told.make_handler(shard_));
  run(watch_health(via_, known(), told));
}

task<> abandon_watches(caller& via, schema known, health& told, router& serving) {
  std::vector<json_call> watches;
  for (int i = 0; i < 3; ++i) {
    auto watch = co_await json_call::start(via, known, "grpc.health.v1.Health/Watch");
    (void)co_await watch->write("{}");
    (void)co_await watch->finish_writing();
    (void)co_await watch->read();
    watches.push_back(std::move(*watch));
  }
  watches.erase(watches.begin() + 1);
  told.set("", serving_status::not_serving);
  for (auto& watch : watches) {
    auto next = co_await watch.read();
    EXPECT_EQ((*next).value_or(""), R"({"status":"NOT_SERVING"})");
  }
  watches.clear();
  co_await serving.idle();
}

TEST_F(services_test, an_abandoned_health_watch_leaves_the_others_alone) {
  health told;
  add(told.make_handler(shard_));
  run(abandon_watches(via_, known(), told, router_));
}

TEST_F(services_test, health_outlives_its_handlers) {
  health told;
  {
    router lone{shard_};
    ASSERT_TRUE(lone.add(told.make_handler(shard_)));
  }
  told.set("", serving_status::not_serving);
}

task<> reflect(caller& via, schema known, std::string package) {
  auto call =
      co_await json_call::start(via, known, package + ".ServerReflection/ServerReflectionInfo");
  const auto ask = [&](std::string request) -> task<std::string> {
    (void)co_await call->write(std::move(request));
    auto reply = co_await call->read();
    co_return (*reply).value_or("ended");
  };
  auto list = co_await ask(R"({"listServices":"*"})");
  EXPECT_TRUE(list.contains(R"({"name":"weft.describe.v1.DescribeService"})")) << list;
  EXPECT_TRUE(list.contains(package + ".ServerReflection")) << list;

  auto by_symbol = co_await ask(R"({"fileContainingSymbol":"weft.describe.v1.DescribeService"})");
  auto by_method =
      co_await ask(R"({"fileContainingSymbol":"weft.describe.v1.DescribeService.GetFiles"})");
  auto by_name = co_await ask(R"({"fileByFilename":"weft/describe/v1/describe.proto"})");
  for (const std::string& reply : {by_symbol, by_method, by_name}) {
    // The file and the four it imports.
    const auto start = reply.find(R"("fileDescriptorProto":[)");
    EXPECT_NE(start, std::string::npos) << reply;
    EXPECT_EQ(std::ranges::count(reply.substr(start), ',') + 1, 5) << reply;
  }

  auto extensions =
      co_await ask(R"({"allExtensionNumbersOfType":"google.protobuf.FileDescriptorSet"})");
  EXPECT_TRUE(extensions.contains(R"("baseTypeName":"google.protobuf.FileDescriptorSet")"));
  for (const char* unknown : {R"({"fileContainingSymbol":"no.Such"})", R"({"fileByFilename":"no"})",
                              R"({"allExtensionNumbersOfType":"no.Such"})",
                              R"({"fileContainingExtension":{"containingType":"no.Such"}})"}) {
    auto reply = co_await ask(unknown);
    EXPECT_TRUE(reply.contains(R"("errorCode":5)")) << reply;
  }
  auto nothing = co_await ask("{}");
  EXPECT_TRUE(nothing.contains(R"("errorCode":3)")) << nothing;
  (void)co_await call->finish_writing();
  auto end = co_await call->read();
  EXPECT_TRUE(end && !*end);
}

TEST_F(services_test, both_versions_of_reflection_answer_all_questions) {
  const auto served = [this] { return router_.services(); };
  add(make_reflection(reflection_version::v1, served));
  add(make_reflection(reflection_version::v1alpha, served));
  add(describe::make_handler(served));
  run(reflect(via_, known(), "grpc.reflection.v1"));
  run(reflect(via_, known(), "grpc.reflection.v1alpha"));
}

}  // namespace
}  // namespace weft::rpc::services
