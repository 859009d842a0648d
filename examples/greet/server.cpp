// greet_server [ADDRESS:PORT]: serves greet/v1/greet.proto until it is interrupted.

#include <print>

#include <weft/rpc/host/server.hpp>

#include "greet/v1/greet.weft.h"

using namespace std::chrono_literals;
using namespace greet::v1;
using namespace weft;

class greeter final : public GreetService::handler {
  task<rpc::result<GreetResponse>> Greet(rpc::server_context&, GreetRequest request) override {
    co_return greeting("Hello, " + request.name() + "!");
  }

  task<rpc::status> GreetStream(rpc::server_context&, GreetRequest request,
                                rpc::writer<GreetResponse>& responses) override {
    const auto count = request.count() == 0 ? 3 : request.count();
    for (auto i = 1u; i <= count; ++i) {
      const auto response = greeting(std::format("Hello {}, {}!", i, request.name()));
      if (auto sent = co_await responses.write(response); !sent) co_return sent.error();
    }
    co_return rpc::status{};
  }

  task<rpc::result<GreetCountResponse>> GreetCount(rpc::server_context&,
                                                   rpc::reader<GreetRequest>& requests) override {
    GreetCountResponse response;
    while (true) {
      auto request = co_await requests.read();
      if (!request) co_return std::unexpected{request.error()};
      if (!*request) co_return response;  // the client has sent its last one
      response.set_count(response.count() + 1);
    }
  }

  task<rpc::status> GreetChat(rpc::server_context&, rpc::reader<GreetRequest>& requests,
                              rpc::writer<GreetResponse>& responses) override {
    while (true) {
      auto request = co_await requests.read();
      if (!request) co_return request.error();
      if (!*request) co_return rpc::status{};
      const auto response = greeting("Hi, " + (*request)->name() + "!");
      if (auto sent = co_await responses.write(response); !sent) co_return sent.error();
    }
  }

  static GreetResponse greeting(std::string text) {
    GreetResponse response;
    response.set_greeting(std::move(text));
    return response;
  }
};

int main(int argc, char* argv[]) {
  auto identity = tls::credentials::development();  // in production: tls::credentials::files
  if (!identity) return std::println(stderr, "{}", identity.error().to_string()), 1;

  runtime runtime;  // one shard; {.shards = 0}: one per processor
  rpc::server server{runtime,
                     {.listen = argc > 1 ? argv[1] : "127.0.0.1:8443", .credentials = *identity}};
  server.add<greeter>();  // one instance per shard, so it needs no locks
  if (auto started = server.start(); !started)
    return std::println(stderr, "{}", started.error().to_string()), 1;

  std::println("greet_client {} {}", server.local_address().to_string(),
               tls::to_string(identity->public_key_fingerprint()));
  std::fflush(stdout);
  return runtime.run_until_signal([&] { server.shutdown(5s, [&runtime] { runtime.stop(); }); });
}
