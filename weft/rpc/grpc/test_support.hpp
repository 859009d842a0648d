// For tests: both ends of gRPC in memory.
#pragma once

#include <gtest/gtest.h>

#include <weft/rpc/grpc/session.hpp>
#include <weft/rpc/grpc/status_fields.hpp>
#include <weft/rpc/http/test_support.hpp>

namespace weft::rpc::grpc::testing {

using namespace weft::rpc::http::testing;
namespace wire = http::wire;
using envelopes = std::vector<std::pair<int, std::string>>;

/// The lines of a gRPC-Web trailer block.
inline weft::http::field_list lines_of(std::string_view block) {
  auto fields = from_block(block);
  EXPECT_TRUE(fields) << block;
  return fields.value_or(weft::http::field_list{});
}

inline std::string value_of(const weft::http::field_list& fields, std::string_view name) {
  return std::string{fields.find(name).value_or("(none)")};
}

class grpc_fixture : public ::testing::Test {
 public:
  grpc_fixture() { calls.on(echo_method, echo).on(chat_method, echo); }
  ~grpc_fixture() override {
    client.reset();
    core.reset();
    shard.run();  // what is left of ended calls goes
  }

  /// After all that changes `options`.
  memory_connection& connection() {
    if (!core) core = std::make_shared<http::server_core>(shard, calls, options);
    if (!raw)
      raw = std::make_unique<memory_connection>(
          shard, [c = core](std::unique_ptr<weft::http::exchange> e) { serve(std::move(e), c); });
    return *raw;
  }
  std::unique_ptr<weft::http::exchange> request(weft::http::request_head head, bool end = false) {
    return std::move(connection().try_request(head, end, 3)->value());
  }
  static task<> ask_for(grpc_fixture& self, weft::http::request_head head, std::string body,
                        reply& into) {
    auto e = self.request(std::move(head));
    (void)co_await e->write(slice::copy(body), true);
    into = co_await read_reply_of(*e);
  }
  /// One request with all of its content, and all of the response.
  reply ask(weft::http::request_head head, std::string body = {}) {
    reply got;
    EXPECT_TRUE(run(shard, ask_for(*this, std::move(head), std::move(body), got)));
    return got;
  }

  rpc::transport& open_client() {
    if (!client) {
      if (!raw) (void)connection();
      link = raw.get();
      client = open(std::move(raw), shard, settings);
    }
    return *client;
  }
  void restart_client(dialect d) {
    client.reset();
    raw.reset();
    settings.dialect = d;
  }
  /// The client talks to a server that answers so, after it has read the request.
  void answer_with(canned answer) {
    client.reset();
    raw = std::make_unique<memory_connection>(
        shard, [this, answer = std::move(answer)](std::unique_ptr<weft::http::exchange> e) {
          asio::co_spawn(shard.get_executor(), play(std::move(e), answer, request_body),
                         [](std::exception_ptr) {});
        });
  }
  outcome call(method m, std::vector<std::string> messages, call_options with = {}) {
    outcome got;
    EXPECT_TRUE(run(shard, run_call(open_client(), m, std::move(messages), std::move(with), got)));
    return got;
  }
  const weft::http::request_head& sent() const { return link->last->request; }
  std::string sent(std::string_view name) const { return value_of(sent().fields, name); }

  io::shard shard;
  handlers calls;
  http::server_options options;
  client_options settings;
  std::shared_ptr<http::server_core> core;
  std::unique_ptr<memory_connection> raw;
  std::unique_ptr<rpc::transport> client;
  memory_connection* link = nullptr;
  std::string request_body;
};

}  // namespace weft::rpc::grpc::testing
