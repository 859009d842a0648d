#pragma once

#include <gtest/gtest.h>

#include <weft/rpc/connect/session.hpp>
#include <weft/rpc/http/test_support.hpp>
#include <weft/rpc/http/wire/envelope.hpp>

// For tests: both ends of Connect in memory.

namespace weft::rpc::connect::testing {

using namespace weft::rpc::http::testing;
namespace wire = http::wire;

class connect_fixture : public ::testing::Test {
 public:
  connect_fixture() { calls.on(echo_method, echo).on(pure_method, echo).on(chat_method, echo); }
  ~connect_fixture() override {
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
  static task<> ask_for(connect_fixture& self, weft::http::request_head head, std::string body,
                        reply& into) {
    auto e = self.request(std::move(head));
    (void)co_await e->write(slice::copy(body), true);
    into = co_await read_reply_of(*e);
  }
  /// One request with all of its content, and all of the response.
  reply ask(weft::http::request_head head, std::string body = {}) {
    reply got;
    EXPECT_TRUE(run(shard, ask_for(*this, std::move(head), std::move(body), got)));
    shard.post([] {});
    return got;
  }
  reply ask_get(std::string path, weft::http::field_list fields = {}) {
    weft::http::request_head head;
    head.method = "GET";
    head.path = std::move(path);
    head.fields = std::move(fields);
    return ask(std::move(head));
  }

  io::shard shard;
  handlers calls;
  http::server_options options;
  std::shared_ptr<http::server_core> core;
  std::unique_ptr<memory_connection> raw;
};

}  // namespace weft::rpc::connect::testing
