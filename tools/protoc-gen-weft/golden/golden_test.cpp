#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <asio/co_spawn.hpp>

#include "empty_service.weft.h"
#include "everything.weft.h"
#include "imports.weft.h"
#include "keywords.weft.h"
#include "messages_only.weft.h"
#include "no_package.weft.h"
#include "proto2_groups.weft.h"

#include <weft/rpc/loopback_fake.hpp>
#include <weft/rpc/router.hpp>

namespace weft::golden {
namespace {

using v1::AllKinds;
using v1::Reply;
using v1::Request;

class all_kinds final : public AllKinds::handler {
 public:
  task<rpc::result<Reply>> Unary(rpc::server_context&, Request request) override {
    co_return reply("unary " + request.name());
  }
  task<rpc::status> Server(rpc::server_context&, Request request,
                           rpc::writer<Reply>& responses) override {
    for (std::uint32_t i = 1; i <= request.times(); ++i)
      if (auto sent = co_await responses.write(reply(request.name() + std::to_string(i))); !sent)
        co_return sent.error();
    co_return rpc::status{};
  }
  task<rpc::result<Reply>> Client(rpc::server_context&, rpc::reader<Request>& requests) override {
    std::string all;
    for (;;) {
      auto request = co_await requests.read();
      if (!request) co_return std::unexpected{request.error()};
      if (!*request) co_return reply(all);
      all += (*request)->name();
    }
  }
  task<rpc::status> Chat(rpc::server_context&, rpc::reader<Request>& requests,
                         rpc::writer<Reply>& responses) override {
    for (;;) {
      auto request = co_await requests.read();
      if (!request) co_return request.error();
      if (!*request) co_return rpc::status{};
      if (auto sent = co_await responses.write(reply("hi " + (*request)->name())); !sent)
        co_return sent.error();
    }
  }

 private:
  static Reply reply(std::string text) {
    Reply result;
    result.set_text(std::move(text));
    return result;
  }
};

Request named(std::string name, std::uint32_t times = 0) {
  Request result;
  result.set_name(std::move(name));
  result.set_times(times);
  return result;
}

template <class Stream>
task<std::vector<std::string>> texts(Stream& stream) {
  std::vector<std::string> result;
  for (;;) {
    auto next = co_await stream.read();
    if (!next || !*next) co_return result;
    result.push_back((*next)->text());
  }
}

void run(io::shard& shard, task<> work) {
  asio::co_spawn(shard.get_executor(), std::move(work), [&](std::exception_ptr failure) {
    EXPECT_FALSE(failure);
    shard.stop();
  });
  shard.run();
}

task<> call_all_kinds(rpc::caller& via) {
  AllKinds::client client{via};
  auto unary = co_await client.Unary(named("a"));
  EXPECT_TRUE(unary && unary->text() == "unary a");

  auto server = co_await client.Server(named("b", 2));
  EXPECT_TRUE(server.has_value());
  if (server) {
    EXPECT_THAT(co_await texts(*server), testing::ElementsAre("b1", "b2"));
  }

  auto upload = co_await client.Client();
  EXPECT_TRUE(upload.has_value());
  if (upload) {
    EXPECT_TRUE(co_await upload->write(named("c")));
    EXPECT_TRUE(co_await upload->write(named("d")));
    auto end = co_await upload->finish();
    EXPECT_TRUE(end && end->text() == "cd");
  }

  auto chat = co_await client.Chat();
  EXPECT_TRUE(chat.has_value());
  if (chat) {
    EXPECT_TRUE(co_await chat->write(named("e")));
    EXPECT_TRUE(co_await chat->finish_writing());
    EXPECT_THAT(co_await texts(*chat), testing::ElementsAre("hi e"));
  }

  auto missing = co_await client.Read(named("f"));
  EXPECT_FALSE(missing.has_value());
  if (!missing) {
    EXPECT_EQ(missing.error().code(), rpc::code::unimplemented);
    EXPECT_EQ(missing.error().message(), "weft.golden.v1.AllKinds/Read is not implemented");
  }
}

TEST(generated, calls_of_every_kind_reach_their_handler) {
  io::shard shard;
  rpc::router router{shard};
  ASSERT_TRUE(router.add(std::make_shared<all_kinds>()));
  rpc::fake::loopback via{shard, router};
  run(shard, call_all_kinds(via));
}

class one_way_recorder final : public rpc::caller {
 public:
  task<rpc::result<std::unique_ptr<rpc::client_call>>> start(const rpc::method&,
                                                             rpc::call_options) override {
    co_return rpc::fail(rpc::code::internal, "a one-way call was made both ways");
  }
  task<rpc::result<>> one_way(const rpc::method& m, rpc::call_options options,
                              const rpc::outgoing& message) override {
    path = m.path;
    urgency = options.urgency;
    size = message.size();
    co_return rpc::result<>{};
  }
  std::string path;
  int urgency = -1;
  std::size_t size = 0;
};

task<> call_one_way(rpc::caller& via) {
  EXPECT_TRUE(co_await AllKinds::client{via}.one_way().Put(named("abc"), {.urgency = 7}));
}

TEST(generated, one_way_calls_pass_method_options_and_message) {
  io::shard shard;
  one_way_recorder via;
  run(shard, call_one_way(via));
  EXPECT_EQ(via.path, "/weft.golden.v1.AllKinds/Put");
  EXPECT_EQ(via.urgency, 7);
  EXPECT_EQ(via.size, named("abc").ByteSizeLong());
}

TEST(generated, the_method_table_says_kind_and_idempotency) {
  const auto& service = AllKinds::descriptor();
  EXPECT_EQ(service.name, "weft.golden.v1.AllKinds");
  ASSERT_EQ(service.methods.size(), 6u);
  EXPECT_EQ(service.methods[0].path, "/weft.golden.v1.AllKinds/Unary");
  EXPECT_EQ(service.methods[1].kind, rpc::call_kind::server_streaming);
  EXPECT_EQ(service.methods[2].kind, rpc::call_kind::client_streaming);
  EXPECT_EQ(service.methods[3].kind, rpc::call_kind::bidi_streaming);
  EXPECT_EQ(service.methods[3].level, rpc::idempotency::unknown);
  EXPECT_EQ(service.methods[4].level, rpc::idempotency::no_side_effects);
  EXPECT_EQ(service.methods[5].level, rpc::idempotency::idempotent);
}

TEST(generated, names_of_the_wire_stay_as_they_are) {
  using keywords::v1::operator_;
  EXPECT_EQ(operator_::descriptor().name, "weft.golden.keywords.v1.operator");
  EXPECT_EQ(operator_::descriptor().methods[0].path, "/weft.golden.keywords.v1.operator/delete");
  EXPECT_EQ(keywords::v1::client_::descriptor().methods[1].name, "client");
  EXPECT_EQ(::GoldenUnpackaged::descriptor().methods[0].path, "/GoldenUnpackaged/Ping");
}

/// Builds a service from nothing but its embedded descriptors.
void expect_complete(const rpc::service& service) {
  google::protobuf::DescriptorPool pool;
  for (const auto& bytes : service.files) {
    google::protobuf::FileDescriptorProto file;
    ASSERT_TRUE(file.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
    ASSERT_NE(pool.BuildFile(file), nullptr) << file.name();
  }
  const auto* found = pool.FindServiceByName(std::string{service.name});
  ASSERT_NE(found, nullptr) << service.name;
  ASSERT_EQ(static_cast<std::size_t>(found->method_count()), service.methods.size());
  for (int i = 0; i < found->method_count(); ++i) {
    EXPECT_EQ(found->method(i)->name(), service.methods[i].name);
    EXPECT_EQ(found->method(i)->client_streaming(), service.methods[i].client_streams());
    EXPECT_EQ(found->method(i)->server_streaming(), service.methods[i].server_streams());
  }
}

TEST(generated, embedded_descriptors_are_complete_and_in_order) {
  expect_complete(AllKinds::descriptor());
  expect_complete(v1::Streams::descriptor());
  expect_complete(keywords::v1::operator_::descriptor());
  expect_complete(keywords::v1::client_::descriptor());
  expect_complete(::GoldenUnpackaged::descriptor());
  expect_complete(empty::v1::Nothing::descriptor());
  expect_complete(proto2::Greet::descriptor());
  expect_complete(imports::v1::Imports::descriptor());
  EXPECT_EQ(imports::v1::Imports::descriptor().files.size(), 4u);
}

// Imported and nested messages, and proto3 optional, as a handler's author meets them.
class imported final : public imports::v1::Imports::handler {
  task<rpc::result<shared::v1::Envelope::Header::Deep>> Nested(
      rpc::server_context&, imports::v1::Outer::Inner request) override {
    shared::v1::Envelope::Header::Deep reply;
    reply.set_yes(request.has_when());
    co_return reply;
  }
};

task<> call_imported(rpc::caller& via) {
  imports::v1::Imports::client client{via};
  imports::v1::Outer::Inner request;
  request.mutable_when()->set_seconds(1);
  auto reply = co_await client.Nested(request);
  EXPECT_TRUE(reply && reply->yes());
}

TEST(generated, imported_and_nested_messages_are_usable) {
  io::shard shard;
  rpc::router router{shard};
  ASSERT_TRUE(router.add(std::make_shared<imported>()));
  rpc::fake::loopback via{shard, router};
  run(shard, call_imported(via));
}

}  // namespace
}  // namespace weft::golden
