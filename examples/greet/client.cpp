// greet_client ADDRESS:PORT FINGERPRINT: calls every method of greet/v1/greet.proto once. The
// server prints both arguments.

#include <print>

#include <asio/co_spawn.hpp>

#include <weft/rpc/host/channel.hpp>

#include "greet/v1/greet.weft.h"

using namespace std::chrono_literals;
using namespace greet::v1;
using namespace weft;

GreetRequest named(std::string name) {
  GreetRequest request;
  request.set_name(std::move(name));
  return request;
}

task<rpc::status> call_each_method(rpc::channel& channel) {
  GreetService::client client{channel};

  auto reply = co_await client.Greet(named("world"), {.timeout = 5s});
  if (!reply) co_return reply.error();
  std::println("{}", reply->greeting());

  auto greetings = co_await client.GreetStream(named("streamer"));
  if (!greetings) co_return greetings.error();
  while (true) {
    auto greeting = co_await greetings->read();
    if (!greeting) co_return greeting.error();
    if (!*greeting) break;  // the server has sent its last one
    std::println("{}", (*greeting)->greeting());
  }

  auto upload = co_await client.GreetCount();
  if (!upload) co_return upload.error();
  for (const char* name : {"alice", "bob", "carol"})
    if (auto sent = co_await upload->write(named(name)); !sent) co_return sent.error();
  auto count = co_await upload->finish();
  if (!count) co_return count.error();
  std::println("server counted {} requests", count->count());

  auto chat = co_await client.GreetChat();
  if (!chat) co_return chat.error();
  for (const char* name : {"alice", "bob", "carol"}) {
    if (auto sent = co_await chat->write(named(name)); !sent) co_return sent.error();
    auto greeting = co_await chat->read();
    if (!greeting) co_return greeting.error();
    if (!*greeting) co_return rpc::status{rpc::code::internal, "the chat ended early"};
    std::println("{}", (*greeting)->greeting());
  }
  if (auto ended = co_await chat->finish_writing(); !ended) co_return ended.error();
  auto end = co_await chat->read();
  co_return end ? rpc::status{} : end.error();
}

int main(int argc, char* argv[]) {
  if (argc != 3) return std::println(stderr, "usage: {} ADDRESS:PORT FINGERPRINT", argv[0]), 2;
  auto fingerprint = tls::parse_fingerprint(argv[2]);
  if (!fingerprint) return std::println(stderr, "{}", fingerprint.error().to_string()), 2;

  io::shard shard;
  rpc::channel channel{shard, argv[1], {.trust = tls::trust::pinned({*fingerprint})}};
  rpc::status outcome{rpc::code::unknown, "stopped"};
  asio::co_spawn(shard.get_executor(), call_each_method(channel),
                 [&](std::exception_ptr, rpc::status ended) {
                   outcome = std::move(ended);
                   shard.stop();
                 });
  shard.run();
  if (!outcome.ok()) std::println(stderr, "{}", outcome.to_string());
  return outcome.ok() ? 0 : 1;
}
