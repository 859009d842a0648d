// cli_server FOLDER: serves cli/v1/cli.proto on several ports, each with another set-up, until it
// is interrupted. Writes cert.pem, key.pem, other.pem to FOLDER and prints one line a port: NAME
// ADDRESS.

#include <filesystem>
#include <fstream>
#include <memory>
#include <print>
#include <vector>

#include <weft/rpc/host/server.hpp>

#include "cli/v1/cli.weft.h"

using namespace std::chrono_literals;
using namespace cli::v1;
using namespace weft;

namespace {

class service final : public CliService::handler {
  task<rpc::result<Text>> Echo(rpc::server_context& context, Text request) override {
    rpc::metadata headers;
    for (const auto& [key, value] : context.metadata())
      if (key.starts_with("x-")) (void)headers.add(key, value);
    (void)headers.add("seen-protocol", context.info().protocol);
    (void)headers.add("seen-transport", context.info().transport);
    (void)headers.add("seen-codec", context.info().codec == rpc::codec::json ? "json" : "proto");
    if (!context.info().http_method.empty())
      (void)headers.add("seen-method", context.info().http_method);
    context.set_trailers({{"farewell", "bye"}});
    if (auto sent = co_await context.send_headers(headers); !sent)
      co_return std::unexpected{sent.error()};
    co_return request;
  }

  task<rpc::result<Text>> Fail(rpc::server_context&, FailRequest request) override {
    co_return rpc::fail(rpc::code_from_number(request.code()), request.message());
  }

  task<rpc::result<Text>> Hang(rpc::server_context& context, Text) override {
    (void)co_await context.shard().sleep_until(never);
    co_return rpc::fail(rpc::code::cancelled, "cancelled");
  }

  task<rpc::status> Count(rpc::server_context&, Text request, rpc::writer<Text>& replies) override {
    for (std::int64_t i = 1; i <= request.number(); ++i) {
      Text reply;
      reply.set_number(i);
      if (auto sent = co_await replies.write(reply); !sent) co_return sent.error();
    }
    co_return rpc::status{};
  }

  task<rpc::result<Text>> Join(rpc::server_context&, rpc::reader<Text>& requests) override {
    Text all;
    while (true) {
      auto request = co_await requests.read();
      if (!request) co_return std::unexpected{request.error()};
      if (!*request) co_return all;
      all.mutable_text()->append((*request)->text());
      all.set_number(all.number() + 1);
    }
  }

  task<rpc::status> Chat(rpc::server_context&, rpc::reader<Text>& requests,
                         rpc::writer<Text>& replies) override {
    while (true) {
      auto request = co_await requests.read();
      if (!request) co_return request.error();
      if (!*request) co_return rpc::status{};
      if ((*request)->text() == "end") co_return rpc::status{rpc::code::aborted, "as was asked"};
      if (auto sent = co_await replies.write(**request); !sent) co_return sent.error();
    }
  }
};

void write_file(const std::filesystem::path& name, const std::string& text) {
  std::ofstream{name} << text;
}

}  // namespace

int main(int argc, char* argv[]) {
  if (argc != 2) return std::println(stderr, "usage: cli_server FOLDER"), 1;
  const std::filesystem::path folder = argv[1];
  const auto identity = tls::credentials::development().value();
  const auto other = tls::credentials::development({"elsewhere.example"}).value();
  write_file(folder / "cert.pem", identity.certificate_pem());
  write_file(folder / "key.pem", identity.key_pem());
  write_file(folder / "other.pem", other.certificate_pem());
  const auto own =
      std::make_shared<const tls::trust>(tls::trust::pem(identity.certificate_pem()).value());

  runtime runtime;
  const rpc::server_options all{.listen = "127.0.0.1:0", .credentials = identity};
  std::vector<std::pair<std::string, rpc::server_options>> set_ups(7, {"all", all});
  set_ups[1].first = "native-only";
  set_ups[1].second.http = false;
  set_ups[2].first = "quic-only";
  set_ups[2].second.tcp = false;
  set_ups[3].first = "reflection-only";
  set_ups[3].second.describe = false;
  set_ups[4].first = "undescribed";
  set_ups[4].second.describe = set_ups[4].second.reflection = false;
  set_ups[5].first = "mutual";
  set_ups[5].second.client_trust = own;
  set_ups[6].first = "elsewhere";
  set_ups[6].second.credentials = other;

  std::vector<std::unique_ptr<rpc::server>> servers;
  for (auto& [name, options] : set_ups) {
    auto& server = servers.emplace_back(std::make_unique<rpc::server>(runtime, options));
    server->add<service>();
    if (auto started = server->start(); !started)
      return std::println(stderr, "{}", started.error().to_string()), 1;
    std::println("{} {}", name, server->local_address().to_string());
  }
  std::println("ready {}", tls::to_string(identity.public_key_fingerprint()));
  std::fflush(stdout);
  std::size_t running = servers.size();
  return runtime.run_until_signal([&] {
    for (auto& server : servers)
      server->shutdown(5s, [&] {
        if (--running == 0) runtime.stop();
      });
  });
}
