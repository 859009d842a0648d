// interop_client --ca FILE [--over h2|stream|h3] [--protocol grpc|grpcweb|connect] [--json] ADDRESS
// CASE: runs one of gRPC's interoperability cases against a server. Exits with 0 when it holds.

#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <print>
#include <sstream>
#include <stdexcept>

#include <CLI/CLI.hpp>
#include <asio/co_spawn.hpp>

#include <weft/rpc/host/channel.hpp>

#include "grpc/testing/test.weft.h"

using namespace grpc::testing;
using namespace std::chrono_literals;
using namespace weft;

namespace {

struct failed : std::runtime_error {
  using runtime_error::runtime_error;
};

template <class... Args>
void expect(bool holds, std::format_string<Args...> what, Args&&... args) {
  if (!holds) throw failed{std::format(what, std::forward<Args>(args)...)};
}

template <class T>
T must(rpc::result<T> outcome) {
  if (!outcome) throw failed{outcome.error().to_string()};
  if constexpr (!std::is_void_v<T>) return std::move(*outcome);
}

template <class T>
void expect_status(const rpc::result<T>& outcome, rpc::code code) {
  expect(!outcome && outcome.error().code() == code, "wanted {}, got {}", to_string(code),
         outcome ? "a reply" : outcome.error().to_string());
}

std::string zeros(std::size_t size) {
  return std::string(size, '\0');
}

void expect_body(const Payload& got, std::size_t size) {
  expect(got.body() == zeros(size), "wanted {} zero bytes, got {} bytes", size, got.body().size());
}

constexpr std::array sent_sizes{27182, 8, 1828, 45904};
constexpr std::array response_sizes{31415, 9, 2653, 58979};

SimpleRequest large_request() {
  SimpleRequest request;
  request.set_response_size(314159);
  request.mutable_payload()->set_body(zeros(271828));
  return request;
}

StreamingOutputCallRequest one_response(int size, std::size_t sent) {
  StreamingOutputCallRequest request;
  request.add_response_parameters()->set_size(size);
  request.mutable_payload()->set_body(zeros(sent));
  return request;
}

using test_client = TestService::client;

task<> empty_unary(rpc::channel& channel) {
  must(co_await test_client{channel}.EmptyCall(Empty{}));
}

task<> large_unary(rpc::channel& channel) {
  auto reply = must(co_await test_client{channel}.UnaryCall(large_request()));
  expect_body(reply.payload(), 314159);
}

task<> client_compressed_unary(rpc::channel& channel) {
  auto reply = must(co_await test_client{channel}.UnaryCall(
      large_request(), {.request_compression = rpc::compression::gzip}));
  expect_body(reply.payload(), 314159);
}

task<> server_compressed_unary(rpc::channel& channel) {
  auto request = large_request();
  request.mutable_response_compressed()->set_value(true);
  auto reply = must(co_await test_client{channel}.UnaryCall(request));
  expect_body(reply.payload(), 314159);
}

task<> cacheable_unary(rpc::channel& channel) {
  SimpleRequest request;
  request.set_response_size(1000);
  auto reply = must(co_await test_client{channel}.CacheableUnaryCall(request));
  expect_body(reply.payload(), 1000);
}

task<> send_all(test_client client, rpc::call_options options) {
  auto stream = must(co_await client.StreamingInputCall(std::move(options)));
  for (const int size : sent_sizes) {
    StreamingInputCallRequest request;
    request.mutable_payload()->set_body(zeros(static_cast<std::size_t>(size)));
    must(co_await stream.write(request));
  }
  auto reply = must(co_await stream.finish());
  expect(reply.aggregated_payload_size() == 74922, "the server counted {} bytes",
         reply.aggregated_payload_size());
}

task<> client_streaming(rpc::channel& channel) {
  return send_all(test_client{channel}, {});
}

task<> client_compressed_streaming(rpc::channel& channel) {
  return send_all(test_client{channel}, {.request_compression = rpc::compression::gzip});
}

task<> server_streaming(rpc::channel& channel) {
  StreamingOutputCallRequest request;
  for (const int size : response_sizes) request.add_response_parameters()->set_size(size);
  auto stream = must(co_await test_client{channel}.StreamingOutputCall(request));
  for (const int size : response_sizes) {
    auto reply = must(co_await stream.read());
    expect(reply.has_value(), "the stream ended early");
    expect_body(reply->payload(), static_cast<std::size_t>(size));
  }
  expect(!must(co_await stream.read()), "the stream did not end");
}

task<> ping_pong(rpc::channel& channel) {
  auto stream = must(co_await test_client{channel}.FullDuplexCall());
  for (std::size_t i = 0; i < sent_sizes.size(); ++i) {
    must(co_await stream.write(
        one_response(response_sizes[i], static_cast<std::size_t>(sent_sizes[i]))));
    auto reply = must(co_await stream.read());
    expect(reply.has_value(), "the stream ended early");
    expect_body(reply->payload(), static_cast<std::size_t>(response_sizes[i]));
  }
  must(co_await stream.finish_writing());
  expect(!must(co_await stream.read()), "the stream did not end");
}

task<> empty_stream(rpc::channel& channel) {
  auto stream = must(co_await test_client{channel}.FullDuplexCall());
  must(co_await stream.finish_writing());
  expect(!must(co_await stream.read()), "the stream did not end");
}

constexpr std::string_view initial_key = "x-grpc-test-echo-initial";
constexpr std::string_view trailing_key = "x-grpc-test-echo-trailing-bin";
constexpr std::string_view initial_value = "test_initial_metadata_value";
constexpr std::string_view trailing_value = "\x0a\x0b\x0a\x0b\x0a\x0b";

rpc::call_options with_metadata(rpc::response_info& info) {
  return {.metadata = {{std::string{initial_key}, std::string{initial_value}},
                       {std::string{trailing_key}, std::string{trailing_value}}},
          .info = &info};
}

void expect_metadata(const rpc::response_info& info) {
  expect(info.headers.find(initial_key) == initial_value, "the initial metadata is {}",
         info.headers.find(initial_key).value_or("missing"));
  expect(info.trailers.find(trailing_key) == trailing_value, "the trailing metadata is wrong");
}

task<> custom_metadata(rpc::channel& channel) {
  test_client client{channel};
  rpc::response_info unary;
  SimpleRequest request;
  request.set_response_size(1);
  must(co_await client.UnaryCall(request, with_metadata(unary)));
  expect_metadata(unary);

  rpc::response_info streamed;
  auto stream = must(co_await client.FullDuplexCall(with_metadata(streamed)));
  must(co_await stream.write(one_response(1, 1)));
  must(co_await stream.read());
  must(co_await stream.finish_writing());
  expect(!must(co_await stream.read()), "the stream did not end");
  expect_metadata(streamed);
}

task<> expect_message(test_client client, std::string message, bool streaming) {
  EchoStatus wanted;
  wanted.set_code(2);
  wanted.set_message(message);
  const rpc::status status{rpc::code::unknown, message};
  SimpleRequest request;
  *request.mutable_response_status() = wanted;
  const auto reply = co_await client.UnaryCall(request);
  expect(!reply && reply.error() == status, "got {}",
         reply ? "a reply" : reply.error().to_string());
  if (!streaming) co_return;
  auto stream = must(co_await client.FullDuplexCall());
  StreamingOutputCallRequest first;
  *first.mutable_response_status() = wanted;
  must(co_await stream.write(first));
  (void)co_await stream.finish_writing();
  const auto next = co_await stream.read();
  expect(!next && next.error() == status, "got {}", next ? "a reply" : next.error().to_string());
}

task<> status_code_and_message(rpc::channel& channel) {
  return expect_message(test_client{channel}, "test status message", true);
}

task<> special_status_message(rpc::channel& channel) {
  return expect_message(
      test_client{channel},
      "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608\t\n", false);
}

task<> unimplemented_method(rpc::channel& channel) {
  expect_status(co_await test_client{channel}.UnimplementedCall(Empty{}), rpc::code::unimplemented);
}

task<> unimplemented_service(rpc::channel& channel) {
  expect_status(co_await UnimplementedService::client{channel}.UnimplementedCall(Empty{}),
                rpc::code::unimplemented);
}

task<> cancel_after_begin(rpc::channel& channel) {
  auto stream = must(co_await test_client{channel}.StreamingInputCall());
  stream.cancel();
  expect_status(co_await stream.finish(), rpc::code::cancelled);
}

task<> cancel_after_first_response(rpc::channel& channel) {
  auto stream = must(co_await test_client{channel}.FullDuplexCall());
  must(co_await stream.write(one_response(31415, 27182)));
  must(co_await stream.read());
  stream.cancel();
  expect_status(co_await stream.read(), rpc::code::cancelled);
}

task<> timeout_on_sleeping_server(rpc::channel& channel) {
  auto stream = co_await test_client{channel}.FullDuplexCall({.timeout = 50ms});
  // On a slow machine the handshake alone may take as long.
  if (!stream) co_return expect_status(stream, rpc::code::deadline_exceeded);
  auto request = one_response(1, 27182);
  request.mutable_response_parameters(0)->set_interval_us(10'000'000);
  (void)co_await stream->write(request);
  expect_status(co_await stream->read(), rpc::code::deadline_exceeded);
}

using test_case = task<> (*)(rpc::channel&);
const std::map<std::string, test_case> cases{
    {"empty_unary", empty_unary},
    {"large_unary", large_unary},
    {"client_compressed_unary", client_compressed_unary},
    {"server_compressed_unary", server_compressed_unary},
    {"cacheable_unary", cacheable_unary},
    {"client_streaming", client_streaming},
    {"client_compressed_streaming", client_compressed_streaming},
    {"server_streaming", server_streaming},
    {"ping_pong", ping_pong},
    {"empty_stream", empty_stream},
    {"custom_metadata", custom_metadata},
    {"status_code_and_message", status_code_and_message},
    {"special_status_message", special_status_message},
    {"unimplemented_method", unimplemented_method},
    {"unimplemented_service", unimplemented_service},
    {"cancel_after_begin", cancel_after_begin},
    {"cancel_after_first_response", cancel_after_first_response},
    {"timeout_on_sleeping_server", timeout_on_sleeping_server},
};

const std::map<std::string, rpc::carrier> carriers{{"h2", rpc::carrier::tls_tcp},
                                                   {"stream", rpc::carrier::quic_one_stream},
                                                   {"h3", rpc::carrier::quic}};
const std::map<std::string, rpc::protocol> protocols{{"grpc", rpc::protocol::grpc},
                                                     {"grpcweb", rpc::protocol::grpc_web},
                                                     {"connect", rpc::protocol::connect}};

std::string read_file(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream{name}.rdbuf();
  return text.str();
}

}  // namespace

int main(int argc, char* argv[]) {
  CLI::App app{"Runs one of gRPC's interoperability cases against a server."};
  std::string ca, over = "h3", protocol = "grpc", address, name;
  bool json = false;
  app.add_option("--ca", ca, "Certificate of the server")->required();
  app.add_option("--over", over)->check(CLI::IsMember(carriers));
  app.add_option("--protocol", protocol)->check(CLI::IsMember(protocols));
  app.add_flag("--json", json);
  app.add_option("address", address)->required();
  app.add_option("case", name)->required()->check(CLI::IsMember(cases));
  CLI11_PARSE(app, argc, argv);

  auto trust = tls::trust::pem(read_file(ca));
  if (!trust) return std::println(stderr, "{}", trust.error().to_string()), 1;
  rpc::channel_options options{.trust = std::move(*trust), .server_name = "localhost"};
  options.carrier = carriers.at(over);
  options.protocol = protocols.at(protocol);
  options.codec = json ? rpc::codec::json : rpc::codec::proto;
  options.connect_get = true;

  io::shard shard;
  rpc::channel channel{shard, address, std::move(options)};
  io::timer alarm;
  shard.arm(alarm, io::now() + 20s, [](time_point) {
    std::println(stderr, "interop_client: the case takes too long");
    std::_Exit(1);
  });
  std::string failure;
  asio::co_spawn(shard.get_executor(), cases.at(name)(channel), [&](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const std::exception& e) {
      failure = e.what();
    }
    shard.stop();
  });
  shard.run();
  if (failure.empty()) return 0;
  std::println(stderr, "interop_client: {}: {}", name, failure);
  return 1;
}
