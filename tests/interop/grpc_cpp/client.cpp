// grpc_cpp_client CA ADDRESS CASE: one of gRPC's interoperability cases, called by gRPC C++ over
// HTTP/2 in one QUIC stream of weft's. Exits with 0 when it holds.

#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>

#include <array>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <print>
#include <stdexcept>
#include <string>
#include <thread>

#include "bridge.hpp"
#include "test.grpc.pb.h"

namespace {

using namespace grpc::testing;
using namespace std::chrono_literals;
using stub = TestService::Stub;

struct failed : std::runtime_error {
  using runtime_error::runtime_error;
};

void expect(bool holds, const std::string& what) {
  if (!holds) throw failed{what};
}

void expect_status(const grpc::Status& got, grpc::StatusCode code) {
  expect(got.error_code() == code, "wanted status " + std::to_string(code) + ", got " +
                                       std::to_string(got.error_code()) + ": " +
                                       got.error_message());
}

std::string zeros(std::size_t size) {
  return std::string(size, '\0');
}

void expect_body(const Payload& got, std::size_t size) {
  expect(got.body() == zeros(size), "wanted " + std::to_string(size) + " zero bytes, got " +
                                        std::to_string(got.body().size()) + " bytes");
}

constexpr std::array sent_sizes{27182, 8, 1828, 45904};
constexpr std::array response_sizes{31415, 9, 2653, 58979};

void empty_unary(stub& client) {
  grpc::ClientContext context;
  Empty reply;
  expect_status(client.EmptyCall(&context, {}, &reply), grpc::OK);
}

void call_large(stub& client, grpc::ClientContext& context) {
  SimpleRequest request;
  request.set_response_size(314159);
  request.mutable_payload()->set_body(zeros(271828));
  SimpleResponse reply;
  expect_status(client.UnaryCall(&context, request, &reply), grpc::OK);
  expect_body(reply.payload(), 314159);
}

void large_unary(stub& client) {
  grpc::ClientContext context;
  call_large(client, context);
}

void client_compressed_unary(stub& client) {
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  call_large(client, context);
}

void send_all(stub& client, grpc::ClientContext& context) {
  StreamingInputCallResponse reply;
  auto writer = client.StreamingInputCall(&context, &reply);
  for (const int size : sent_sizes) {
    StreamingInputCallRequest request;
    request.mutable_payload()->set_body(zeros(static_cast<std::size_t>(size)));
    expect(writer->Write(request), "the server took no more");
  }
  expect(writer->WritesDone(), "the server took no end");
  expect_status(writer->Finish(), grpc::OK);
  expect(reply.aggregated_payload_size() == 74922, "the server counted otherwise");
}

void client_streaming(stub& client) {
  grpc::ClientContext context;
  send_all(client, context);
}

void client_compressed_streaming(stub& client) {
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  send_all(client, context);
}

void server_streaming(stub& client) {
  grpc::ClientContext context;
  StreamingOutputCallRequest request;
  for (const int size : response_sizes) request.add_response_parameters()->set_size(size);
  auto reader = client.StreamingOutputCall(&context, request);
  StreamingOutputCallResponse reply;
  for (const int size : response_sizes) {
    expect(reader->Read(&reply), "the stream ended early");
    expect_body(reply.payload(), static_cast<std::size_t>(size));
  }
  expect(!reader->Read(&reply), "the stream did not end");
  expect_status(reader->Finish(), grpc::OK);
}

StreamingOutputCallRequest one_response(int size, int sent) {
  StreamingOutputCallRequest request;
  request.add_response_parameters()->set_size(size);
  request.mutable_payload()->set_body(zeros(static_cast<std::size_t>(sent)));
  return request;
}

void ping_pong(stub& client) {
  grpc::ClientContext context;
  auto stream = client.FullDuplexCall(&context);
  StreamingOutputCallResponse reply;
  for (std::size_t i = 0; i < sent_sizes.size(); ++i) {
    expect(stream->Write(one_response(response_sizes[i], sent_sizes[i])), "nothing more is taken");
    expect(stream->Read(&reply), "the stream ended early");
    expect_body(reply.payload(), static_cast<std::size_t>(response_sizes[i]));
  }
  stream->WritesDone();
  expect(!stream->Read(&reply), "the stream did not end");
  expect_status(stream->Finish(), grpc::OK);
}

void empty_stream(stub& client) {
  grpc::ClientContext context;
  auto stream = client.FullDuplexCall(&context);
  stream->WritesDone();
  StreamingOutputCallResponse reply;
  expect(!stream->Read(&reply), "the stream did not end");
  expect_status(stream->Finish(), grpc::OK);
}

constexpr auto initial_key = "x-grpc-test-echo-initial";
constexpr auto trailing_key = "x-grpc-test-echo-trailing-bin";
constexpr auto initial_value = "test_initial_metadata_value";
constexpr auto trailing_value = "\x0a\x0b\x0a\x0b\x0a\x0b";

void with_metadata(grpc::ClientContext& context) {
  context.AddMetadata(initial_key, initial_value);
  context.AddMetadata(trailing_key, trailing_value);
}

void expect_metadata(const grpc::ClientContext& context) {
  const auto& initial = context.GetServerInitialMetadata();
  const auto& trailing = context.GetServerTrailingMetadata();
  const auto first = initial.find(initial_key), last = trailing.find(trailing_key);
  expect(first != initial.end() && first->second == initial_value, "initial metadata is wrong");
  expect(last != trailing.end() && last->second == trailing_value, "trailing metadata is wrong");
}

void custom_metadata(stub& client) {
  grpc::ClientContext unary, streamed;
  with_metadata(unary);
  SimpleRequest request;
  request.set_response_size(1);
  SimpleResponse response;
  expect_status(client.UnaryCall(&unary, request, &response), grpc::OK);
  expect_metadata(unary);

  with_metadata(streamed);
  auto stream = client.FullDuplexCall(&streamed);
  StreamingOutputCallResponse reply;
  expect(stream->Write(one_response(1, 1)) && stream->Read(&reply), "no answer");
  stream->WritesDone();
  expect(!stream->Read(&reply), "the stream did not end");
  expect_status(stream->Finish(), grpc::OK);
  expect_metadata(streamed);
}

void expect_message(const grpc::Status& got, const std::string& message) {
  expect_status(got, grpc::UNKNOWN);
  expect(got.error_message() == message, "the message is " + got.error_message());
}

void echo_status(stub& client, const std::string& message, bool streaming) {
  grpc::ClientContext unary, streamed;
  SimpleRequest request;
  request.mutable_response_status()->set_code(2);
  request.mutable_response_status()->set_message(message);
  SimpleResponse response;
  expect_message(client.UnaryCall(&unary, request, &response), message);
  if (!streaming) return;
  auto stream = client.FullDuplexCall(&streamed);
  StreamingOutputCallRequest first;
  *first.mutable_response_status() = request.response_status();
  expect(stream->Write(first), "nothing is taken");
  stream->WritesDone();
  StreamingOutputCallResponse reply;
  expect(!stream->Read(&reply), "a reply came");
  expect_message(stream->Finish(), message);
}

void status_code_and_message(stub& client) {
  echo_status(client, "test status message", true);
}

void special_status_message(stub& client) {
  echo_status(client,
              "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608\t\n",
              false);
}

void unimplemented_method(stub& client) {
  grpc::ClientContext context;
  Empty reply;
  expect_status(client.UnimplementedCall(&context, {}, &reply), grpc::UNIMPLEMENTED);
}

void cancel_after_begin(stub& client) {
  grpc::ClientContext context;
  StreamingInputCallResponse reply;
  auto writer = client.StreamingInputCall(&context, &reply);
  context.TryCancel();
  expect_status(writer->Finish(), grpc::CANCELLED);
}

void cancel_after_first_response(stub& client) {
  grpc::ClientContext context;
  auto stream = client.FullDuplexCall(&context);
  StreamingOutputCallResponse reply;
  expect(stream->Write(one_response(31415, 27182)) && stream->Read(&reply), "no answer");
  context.TryCancel();
  expect_status(stream->Finish(), grpc::CANCELLED);
}

void timeout_on_sleeping_server(stub& client) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 50ms);
  auto stream = client.FullDuplexCall(&context);
  auto request = one_response(1, 27182);
  request.mutable_response_parameters(0)->set_interval_us(10'000'000);
  stream->Write(request);
  expect_status(stream->Finish(), grpc::DEADLINE_EXCEEDED);
}

const std::map<std::string, void (*)(stub&)> cases{
    {"empty_unary", empty_unary},
    {"large_unary", large_unary},
    {"client_compressed_unary", client_compressed_unary},
    {"client_streaming", client_streaming},
    {"client_compressed_streaming", client_compressed_streaming},
    {"server_streaming", server_streaming},
    {"ping_pong", ping_pong},
    {"empty_stream", empty_stream},
    {"custom_metadata", custom_metadata},
    {"status_code_and_message", status_code_and_message},
    {"special_status_message", special_status_message},
    {"unimplemented_method", unimplemented_method},
    {"cancel_after_begin", cancel_after_begin},
    {"cancel_after_first_response", cancel_after_first_response},
    {"timeout_on_sleeping_server", timeout_on_sleeping_server},
};

void unimplemented_service(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  Empty reply;
  expect_status(UnimplementedService::NewStub(channel)->UnimplementedCall(&context, {}, &reply),
                grpc::UNIMPLEMENTED);
}

}  // namespace

int main(int argc, char* argv[]) {
  if (argc != 4) return std::println(stderr, "usage: grpc_cpp_client CA ADDRESS CASE"), 2;
  const std::string name = argv[3];
  weft::io::shard shard;
  std::promise<weft::result<int>> dialled;
  weft::interop::dial(shard, argv[2], argv[1],
                      [&](weft::result<int> end) { dialled.set_value(std::move(end)); });
  std::thread loop{[&] { shard.run(); }};
  int result = 1;
  try {
    auto end = dialled.get_future().get();
    if (!end) throw failed{end.error().to_string()};
    const auto channel = grpc::CreateInsecureChannelFromFd("localhost", *end);
    if (name == "unimplemented_service")
      unimplemented_service(channel);
    else
      cases.at(name)(*TestService::NewStub(channel));
    result = 0;
  } catch (const std::exception& e) {
    std::println(stderr, "grpc_cpp_client: {}: {}", name, e.what());
  }
  shard.stop();
  loop.join();
  // The stream's coroutines and the endpoint go with the process.
  std::fflush(nullptr);
  std::_Exit(result);
}
