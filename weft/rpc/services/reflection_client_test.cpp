#include <weft/rpc/services/reflection_client.hpp>

#include <algorithm>
#include <functional>
#include <map>

#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

#include <weft/rpc/describe.hpp>
#include <weft/rpc/loopback_fake.hpp>
#include <weft/rpc/router.hpp>
#include <weft/rpc/services/reflection_dialect.hpp>

namespace weft::rpc::services {
namespace {

namespace pb = google::protobuf;

/// Answers each question as a test says: by the question's text.
class scripted final : public service_handler {
 public:
  using answers = std::map<std::string, std::function<void(fields)>>;

  scripted(reflection_version version, answers script)
      : speaks_{dialect_of(version)}, script_{std::move(script)} {}
  const service& descriptor() const noexcept override { return speaks_.self; }

  task<status> invoke(std::size_t, server_context&, server_call& call) override {
    for (;;) {
      const auto asked = speaks_.make("ServerReflectionRequest");
      auto read = co_await read_into(call, *asked);
      if (!read) co_return std::move(read).error();
      if (!*read) co_return status{};
      const fields question{*asked};
      const std::string text =
          question.text(std::string{question.chosen("message_request")}.c_str());
      questions.push_back(text);
      const auto found = script_.find(text);
      if (found == script_.end()) co_return status{};
      const auto answer = speaks_.make("ServerReflectionResponse");
      found->second(fields{*answer});
      if (auto written = co_await write(call, *answer); !written)
        co_return std::move(written).error();
    }
  }

  std::vector<std::string> questions;

 private:
  const dialect& speaks_;
  answers script_;
};

/// A file with a message named after it, and a service if it is named so.
std::string file(const std::string& name, const std::vector<std::string>& imports,
                 bool with_service = false) {
  pb::FileDescriptorProto made;
  made.set_name(name);
  made.set_package("t");
  made.set_syntax("proto3");
  for (const auto& each : imports) made.add_dependency(each);
  made.add_message_type()->set_name("M_" + name);
  if (with_service) {
    auto* added = made.add_service();
    added->set_name("S");
    auto* method = added->add_method();
    method->set_name("Do");
    method->set_input_type(".t.M_" + name);
    method->set_output_type(".t.M_" + name);
  }
  return made.SerializeAsString();
}

std::function<void(fields)> sends(std::vector<std::string> files) {
  return [files = std::move(files)](fields answer) {
    fields list = answer.nested("file_descriptor_response");
    for (const auto& each : files) list.append("file_descriptor_proto", each);
  };
}

std::function<void(fields)> refuses(code why) {
  return [why](fields answer) {
    fields error = answer.nested("error_response");
    error.set("error_code", static_cast<int>(why));
    error.set("error_message", std::string{"no such thing"});
  };
}

class reflection_client : public testing::Test {
 protected:
  std::shared_ptr<scripted> serve(scripted::answers script,
                                  reflection_version version = reflection_version::v1) {
    auto handler = std::make_shared<scripted>(version, std::move(script));
    EXPECT_TRUE(router_.add(handler));
    return handler;
  }
  result<schema> ask(std::vector<std::string> services = {"t.S"}, reflection_limits most = {}) {
    return wait(reflected_schema(via_, std::move(services), {}, most));
  }
  template <class T>
  T wait(task<T> work) {
    std::optional<T> outcome;
    asio::co_spawn(shard_.get_executor(), std::move(work),
                   [&](std::exception_ptr failure, T ended) {
                     shard_.stop();
                     if (failure) std::rethrow_exception(failure);
                     outcome = std::move(ended);
                   });
    shard_.run();
    return std::move(*outcome);
  }

  io::shard shard_;
  router router_{shard_};
  fake::loopback via_{shard_, router_};
};

TEST_F(reflection_client, understands_our_own_server_in_both_versions) {
  for (const auto version : {reflection_version::v1, reflection_version::v1alpha}) {
    router served{shard_};
    fake::loopback via{shard_, served};
    const auto all = [&served] { return served.services(); };
    ASSERT_TRUE(served.add(make_reflection(version, all)));
    ASSERT_TRUE(served.add(describe::make_handler(all)));
    const auto names = wait(reflected_services(via));
    ASSERT_TRUE(names) << names.error().to_string();
    EXPECT_TRUE(std::ranges::contains(*names, describe::service_name));
    const auto known = wait(reflected_schema(via, *names));
    ASSERT_TRUE(known) << known.error().to_string();
    const auto methods = known->methods(describe::service_name);
    ASSERT_EQ(methods.size(), 2u);
    EXPECT_EQ(methods[1].path, "/weft.describe.v1.DescribeService/GetFiles");
    EXPECT_EQ(methods[1].reply, "google.protobuf.FileDescriptorSet");
  }
}

TEST_F(reflection_client, asks_for_imports_that_were_not_sent_along) {
  const auto served = serve({{"t.S", sends({file("a", {"b", "c"}, true)})},
                             {"b", sends({file("b", {"d"})})},
                             {"c", sends({file("c", {"d"})})},
                             {"d", sends({file("d", {})})}});
  const auto known = ask();
  ASSERT_TRUE(known) << known.error().to_string();
  EXPECT_EQ(known->methods("t.S").size(), 1u);
  EXPECT_EQ(served->questions.size(), 4u) << "each file is asked for once";
}

TEST_F(reflection_client, takes_imports_in_any_order) {
  serve({{"t.S", sends({file("a", {"b"}, true), file("c", {}), file("b", {"c"})})}});
  const auto known = ask();
  EXPECT_TRUE(known) << known.error().to_string();
}

TEST_F(reflection_client, has_protobufs_own_files_where_a_server_lacks_them) {
  serve({{"t.S", sends({file("a", {"google/protobuf/any.proto"}, true)})},
         {"google/protobuf/any.proto", refuses(code::not_found)}});
  const auto known = ask();
  EXPECT_TRUE(known) << known.error().to_string();
}

TEST_F(reflection_client, asks_v1alpha_only_when_v1_is_unknown) {
  const auto old = serve({{"t.S", sends({file("a", {}, true)})}}, reflection_version::v1alpha);
  EXPECT_TRUE(ask());
  const auto young = serve({{"t.S", refuses(code::not_found)}});
  const auto refused = ask();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), code::not_found);
  EXPECT_EQ(old->questions.size(), 1u);
}

TEST_F(reflection_client, is_unimplemented_where_neither_version_is_served) {
  EXPECT_EQ(ask().error().code(), code::unimplemented);
  EXPECT_EQ(wait(reflected_services(via_)).error().code(), code::unimplemented);
}

TEST_F(reflection_client, hostile_circle_of_imports) {
  serve({{"t.S", sends({file("a", {"b"}, true)})}, {"b", sends({file("b", {"a"})})}});
  const auto known = ask();
  ASSERT_FALSE(known);
  EXPECT_EQ(known.error().code(), code::internal);
  EXPECT_TRUE(known.error().message().contains("circle")) << known.error().message();
}

TEST_F(reflection_client, hostile_file_that_imports_itself) {
  serve({{"t.S", sends({file("a", {"a"}, true)})}});
  EXPECT_EQ(ask().error().code(), code::internal);
}

TEST_F(reflection_client, hostile_answer_with_another_file) {
  serve({{"t.S", sends({file("a", {"b"}, true)})}, {"b", sends({file("x", {})})}});
  const auto known = ask();
  ASSERT_FALSE(known);
  EXPECT_TRUE(known.error().message().contains("does not send b")) << known.error().message();
}

TEST_F(reflection_client, hostile_import_that_nobody_has) {
  serve({{"t.S", sends({file("a", {"b"}, true)})}, {"b", refuses(code::not_found)}});
  const auto known = ask();
  ASSERT_FALSE(known);
  EXPECT_EQ(known.error().code(), code::not_found);
  EXPECT_TRUE(known.error().message().contains("\"b\"")) << known.error().message();
}

TEST_F(reflection_client, hostile_bytes_that_are_no_descriptor) {
  serve({{"t.S", sends({"\xff\xff\xff\xff"})}});
  EXPECT_EQ(ask().error().code(), code::internal);
}

TEST_F(reflection_client, hostile_descriptor_without_a_name) {
  serve({{"t.S", sends({std::string{}})}});
  EXPECT_EQ(ask().error().code(), code::internal);
}

TEST_F(reflection_client, hostile_names_that_collide) {
  serve({{"t.S", sends({file("a", {"b"}, true), [] {
                          pb::FileDescriptorProto other;
                          other.ParseFromString(file("a", {}, true));
                          other.set_name("b");
                          return other.SerializeAsString();
                        }()})}});
  const auto known = ask();
  ASSERT_FALSE(known);
  EXPECT_TRUE(known.error().message().contains("do not hold together"));
}

TEST_F(reflection_client, hostile_answer_to_another_question) {
  serve({{"t.S", [](fields answer) { answer.nested("list_services_response"); }}});
  EXPECT_EQ(ask().error().code(), code::internal);
}

TEST_F(reflection_client, hostile_end_without_an_answer) {
  serve({});
  EXPECT_EQ(ask().error().code(), code::internal);
}

TEST_F(reflection_client, hostile_error_that_claims_to_be_none) {
  serve({{"t.S", refuses(code::ok)}});
  EXPECT_EQ(ask().error().code(), code::unknown);
}

TEST_F(reflection_client, hostile_chain_without_end_is_bounded) {
  scripted::answers script{{"t.S", sends({file("0", {"1"}, true)})}};
  for (int i = 1; i < 60; ++i) {
    const std::string name = std::to_string(i);
    script[name] = sends({file(name, {std::to_string(i + 1)})});
  }
  const auto served = serve(std::move(script));
  const auto known = ask({"t.S"}, {.files = 50});
  ASSERT_FALSE(known);
  EXPECT_EQ(known.error().code(), code::resource_exhausted);
  EXPECT_EQ(served->questions.size(), 51u);
}

TEST_F(reflection_client, hostile_volume_is_bounded) {
  serve({{"t.S", sends({file("a", {}, true), file("a", {}, true), file("a", {}, true)})}});
  EXPECT_TRUE(ask());
  const auto known = ask({"t.S"}, {.bytes = 2 * file("a", {}, true).size()});
  ASSERT_FALSE(known) << "files that come twice count twice";
  EXPECT_EQ(known.error().code(), code::resource_exhausted);
}

TEST_F(reflection_client, long_chain_of_imports_needs_no_deep_stack) {
  std::vector<std::string> all{file("0", {"1"}, true)};
  constexpr int length = 3000;
  for (int i = 1; i < length; ++i)
    all.push_back(file(std::to_string(i), i + 1 < length ? std::vector{std::to_string(i + 1)}
                                                         : std::vector<std::string>{}));
  serve({{"t.S", sends(std::move(all))}});
  const auto known = ask();
  EXPECT_TRUE(known) << known.error().to_string();
}

}  // namespace
}  // namespace weft::rpc::services
