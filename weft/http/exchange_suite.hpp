// For tests: what holds for exchanges over every version, run against each way to connect.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include <weft/http/exchange.hpp>
#include <weft/io/event.hpp>
#include <weft/quic/test_support.hpp>

namespace weft::http::test {

using namespace std::chrono_literals;
using quic::test::must;
using quic::test::pattern;
using quic::test::sum_of;

/// A server and a client that are connected, on one shard. `exchanges` gets what the server
/// receives.
class link {
 public:
  virtual ~link() = default;
  virtual task<> connect(io::shard& shard, options client, options server,
                         request_handler handler) = 0;
  /// As if the network had gone, or the process at the other end.
  virtual void cut() = 0;

  std::unique_ptr<server_connection> server;
  std::unique_ptr<client_connection> client;
};

struct way {
  const char* name;
  std::function<std::unique_ptr<link>()> make;
};

class exchange_suite : public testing::TestWithParam<way> {
 protected:
  using exchange_ptr = std::unique_ptr<exchange>;

  void run(task<> test, duration limit = 60s) {
    quic::test::run(shard_, std::move(test), limit);
    link_.reset();
  }
  /// Serves each request by `handler`, a coroutine of its own.
  task<> connect(std::function<task<>(exchange_ptr)> handler, options client = {},
                 options server = {}) {
    serve_ = std::move(handler);
    link_ = GetParam().make();
    co_await link_->connect(shard_, std::move(client), std::move(server), [this](exchange_ptr e) {
      ++served_;
      asio::co_spawn(shard_.get_executor(), serve_(std::move(e)), asio::detached);
    });
  }
  client_connection& client() { return *link_->client; }
  server_connection& server() { return *link_->server; }
  task<exchange_ptr> ask(request_head head, bool end = false) {
    co_return must(co_await client().request(std::move(head), end));
  }

  static request_head post(std::string path = "/a.B/C") {
    request_head head{.method = "POST", .authority = "weft.example", .path = std::move(path)};
    head.fields = {{"content-type", "application/test"}};
    return head;
  }
  static task<std::string> rest_of(exchange& e) {
    std::string all;
    for (;;) {
      auto next = must(co_await e.read());
      if (next.empty()) co_return all;
      all += next.text();
    }
  }
  /// Answers with what it got, and says in a trailer how much that was.
  static task<> echo(exchange_ptr e) {
    response_head head;
    head.fields.add_valid("path", e->request().path);
    must(e->send_head(head));
    std::size_t count = 0;
    for (;;) {
      auto next = co_await e->read();
      if (!next) co_return;
      if (next->empty()) break;
      count += next->size();
      auto sent = co_await e->write(std::move(*next));
      if (!sent) co_return;
    }
    field_list trailers;
    trailers.add_valid("count", std::to_string(count));
    must(e->finish(trailers));
  }
  /// Waits until the exchange is given up.
  task<> await_abandoned(exchange_ptr e) {
    io::event told;
    e->on_abandoned([&](const error& why) {
      abandoned_.push_back(why);
      told.notify();
    });
    const bool woken = co_await told.wait();
    EXPECT_TRUE(woken);
  }
  task<> until(std::function<bool()> holds) {
    for (int i = 0; i < 20'000 && !holds(); ++i) (void)co_await shard_.sleep_until(io::now() + 1ms);
    EXPECT_TRUE(holds());
  }

  io::shard shard_;
  std::function<task<>(exchange_ptr)> serve_;
  std::unique_ptr<link> link_;
  std::vector<error> abandoned_;
  int served_ = 0;
};

}  // namespace weft::http::test
