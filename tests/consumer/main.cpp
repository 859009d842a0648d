// Server and client in one process, against the installed package.

#include <print>

#include <asio/co_spawn.hpp>

#include <weft/rpc/host/channel.hpp>
#include <weft/rpc/host/server.hpp>

#include "echo/v1/echo.weft.h"

using namespace std::chrono_literals;
using echo::v1::EchoService;
using echo::v1::Text;

class echo_service final : public EchoService::handler {
  weft::task<weft::rpc::result<Text>> Echo(weft::rpc::server_context&, Text request) override {
    request.set_text("echo: " + request.text());
    co_return request;
  }
};

weft::task<int> call(weft::rpc::channel& channel) {
  EchoService::client client{channel};
  Text request;
  request.set_text("over the installed package");
  auto reply = co_await client.Echo(request, {.timeout = 10s});
  if (!reply) co_return std::println("{}", reply.error().to_string()), 1;
  std::println("{}", reply->text());
  co_return 0;
}

int main() {
  auto identity = weft::tls::credentials::development();
  if (!identity) return std::println("{}", identity.error().to_string()), 1;

  weft::runtime runtime;
  weft::rpc::server server{runtime, {.listen = "127.0.0.1:0", .credentials = *identity}};
  server.add<echo_service>();
  if (auto started = server.start(); !started)
    return std::println("{}", started.error().to_string()), 1;

  weft::rpc::channel channel{
      runtime[0],
      server.local_address().to_string(),
      {.trust = weft::tls::trust::pinned({identity->public_key_fingerprint()})}};
  int result = 1;
  asio::co_spawn(runtime[0].get_executor(), call(channel), [&](std::exception_ptr, int returned) {
    result = returned;
    runtime.stop();
  });
  runtime.run();
  return result;
}
