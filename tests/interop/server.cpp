// interop_server FOLDER: serves gRPC's test service in every protocol on one port until it is
// interrupted. Writes cert.pem to FOLDER and prints its address.

#include <filesystem>
#include <fstream>
#include <print>

#include <weft/rpc/host/server.hpp>

#include "grpc/testing/test.weft.h"

using namespace grpc::testing;
using namespace std::chrono_literals;
using namespace weft;

namespace {

constexpr std::string_view echo_initial = "x-grpc-test-echo-initial";
constexpr std::string_view echo_trailing = "x-grpc-test-echo-trailing-bin";

/// Custom metadata comes back: one field as initial metadata, one as trailing.
task<rpc::result<>> echo_metadata(rpc::server_context& context) {
  if (auto value = context.metadata().find(echo_trailing))
    context.set_trailers({{std::string{echo_trailing}, std::string{*value}}});
  auto value = context.metadata().find(echo_initial);
  if (!value) co_return rpc::result<>{};
  co_return co_await context.send_headers({{std::string{echo_initial}, std::string{*value}}});
}

rpc::status asked(const EchoStatus& wanted) {
  return {rpc::code_from_number(wanted.code()), wanted.message()};
}

template <class Size>
std::string zeros(Size count) {
  return std::string(static_cast<std::size_t>(std::max<Size>(count, 0)), '\0');
}

class service final : public TestService::handler {
  task<rpc::result<Empty>> EmptyCall(rpc::server_context&, Empty) override { co_return Empty{}; }

  task<rpc::result<SimpleResponse>> UnaryCall(rpc::server_context& context,
                                              SimpleRequest request) override {
    if (auto echoed = co_await echo_metadata(context); !echoed)
      co_return std::unexpected{echoed.error()};
    if (request.has_response_status() && request.response_status().code() != 0)
      co_return std::unexpected{asked(request.response_status())};
    if (request.response_compressed().value()) context.set_compression(rpc::compression::gzip);
    SimpleResponse response;
    response.mutable_payload()->set_body(zeros(request.response_size()));
    co_return response;
  }

  task<rpc::result<SimpleResponse>> CacheableUnaryCall(rpc::server_context& context,
                                                       SimpleRequest request) override {
    return UnaryCall(context, std::move(request));
  }

  task<rpc::status> respond(const StreamingOutputCallRequest& request, rpc::server_context& context,
                            rpc::writer<StreamingOutputCallResponse>& replies) {
    for (const auto& wanted : request.response_parameters()) {
      if (wanted.interval_us() > 0) {
        const auto until = io::now() + std::chrono::microseconds{wanted.interval_us()};
        if (!co_await context.shard().sleep_until(until))
          co_return rpc::status{rpc::code::cancelled, "cancelled"};
      }
      StreamingOutputCallResponse response;
      response.mutable_payload()->set_body(zeros(wanted.size()));
      if (auto sent = co_await replies.write(response); !sent) co_return sent.error();
    }
    co_return rpc::status{};
  }

  task<rpc::status> StreamingOutputCall(
      rpc::server_context& context, StreamingOutputCallRequest request,
      rpc::writer<StreamingOutputCallResponse>& replies) override {
    co_return co_await respond(request, context, replies);
  }

  task<rpc::result<StreamingInputCallResponse>> StreamingInputCall(
      rpc::server_context&, rpc::reader<StreamingInputCallRequest>& requests) override {
    std::size_t total = 0;
    while (true) {
      auto request = co_await requests.read();
      if (!request) co_return std::unexpected{request.error()};
      if (!*request) break;
      total += (*request)->payload().body().size();
    }
    StreamingInputCallResponse response;
    response.set_aggregated_payload_size(static_cast<std::int32_t>(total));
    co_return response;
  }

  task<rpc::status> FullDuplexCall(rpc::server_context& context,
                                   rpc::reader<StreamingOutputCallRequest>& requests,
                                   rpc::writer<StreamingOutputCallResponse>& replies) override {
    if (auto echoed = co_await echo_metadata(context); !echoed) co_return echoed.error();
    while (true) {
      auto request = co_await requests.read();
      if (!request) co_return request.error();
      if (!*request) co_return rpc::status{};
      if ((*request)->has_response_status() && (*request)->response_status().code() != 0)
        co_return asked((*request)->response_status());
      if (auto done = co_await respond(**request, context, replies); !done.ok()) co_return done;
    }
  }
};

}  // namespace

int main(int argc, char* argv[]) {
  if (argc != 2) return std::println(stderr, "usage: interop_server FOLDER"), 1;
  const auto identity = tls::credentials::development().value();
  std::ofstream{std::filesystem::path{argv[1]} / "cert.pem"} << identity.certificate_pem();
  runtime runtime;
  rpc::server server{runtime, {.listen = "127.0.0.1:0", .credentials = identity}};
  server.add<service>();
  if (auto started = server.start(); !started)
    return std::println(stderr, "interop_server: {}", started.error().to_string()), 1;
  std::println("{}", server.local_address().to_string());
  std::fflush(stdout);
  return runtime.run_until_signal([&] { server.shutdown(5s, [&] { runtime.stop(); }); });
}
