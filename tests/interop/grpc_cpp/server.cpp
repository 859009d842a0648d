// grpc_cpp_server FOLDER: gRPC C++ serves its test service over HTTP/2 in the first stream of each
// QUIC connection of weft's, until it is interrupted. Writes cert.pem to FOLDER, prints its
// address.

#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>

#include <chrono>
#include <cstdio>
#include <print>
#include <string>
#include <thread>

#include "bridge.hpp"
#include "test.grpc.pb.h"

namespace {

using namespace grpc::testing;

std::string zeros(std::int32_t size) {
  return std::string(static_cast<std::size_t>(std::max(size, 0)), '\0');
}

void echo_metadata(grpc::ServerContext& context) {
  const auto& sent = context.client_metadata();
  if (auto found = sent.find("x-grpc-test-echo-initial"); found != sent.end())
    context.AddInitialMetadata("x-grpc-test-echo-initial",
                               {found->second.data(), found->second.size()});
  if (auto found = sent.find("x-grpc-test-echo-trailing-bin"); found != sent.end())
    context.AddTrailingMetadata("x-grpc-test-echo-trailing-bin",
                                {found->second.data(), found->second.size()});
}

grpc::Status asked(const EchoStatus& wanted) {
  return {static_cast<grpc::StatusCode>(wanted.code()), wanted.message()};
}

/// False: the client is gone.
template <class Writer>
bool respond(grpc::ServerContext& context, const StreamingOutputCallRequest& request,
             Writer& writer) {
  for (const auto& wanted : request.response_parameters()) {
    const auto until =
        std::chrono::steady_clock::now() + std::chrono::microseconds{wanted.interval_us()};
    while (std::chrono::steady_clock::now() < until) {
      if (context.IsCancelled()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    StreamingOutputCallResponse response;
    response.mutable_payload()->set_body(zeros(wanted.size()));
    if (!writer.Write(response)) return false;
  }
  return true;
}

class service final : public TestService::Service {
  grpc::Status EmptyCall(grpc::ServerContext*, const Empty*, Empty*) override { return {}; }

  grpc::Status UnaryCall(grpc::ServerContext* context, const SimpleRequest* request,
                         SimpleResponse* response) override {
    echo_metadata(*context);
    if (request->response_status().code() != 0) return asked(request->response_status());
    response->mutable_payload()->set_body(zeros(request->response_size()));
    return {};
  }

  grpc::Status StreamingOutputCall(
      grpc::ServerContext* context, const StreamingOutputCallRequest* request,
      grpc::ServerWriter<StreamingOutputCallResponse>* writer) override {
    return respond(*context, *request, *writer) ? grpc::Status{} : grpc::Status::CANCELLED;
  }

  grpc::Status StreamingInputCall(grpc::ServerContext*,
                                  grpc::ServerReader<StreamingInputCallRequest>* reader,
                                  StreamingInputCallResponse* response) override {
    StreamingInputCallRequest request;
    std::size_t total = 0;
    while (reader->Read(&request)) total += request.payload().body().size();
    response->set_aggregated_payload_size(static_cast<std::int32_t>(total));
    return {};
  }

  grpc::Status FullDuplexCall(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<StreamingOutputCallResponse, StreamingOutputCallRequest>* stream)
      override {
    echo_metadata(*context);
    StreamingOutputCallRequest request;
    while (stream->Read(&request)) {
      if (request.response_status().code() != 0) return asked(request.response_status());
      if (!respond(*context, request, *stream)) return grpc::Status::CANCELLED;
    }
    return {};
  }
};

}  // namespace

int main(int argc, char* argv[]) {
  if (argc != 2) return std::println(stderr, "usage: grpc_cpp_server FOLDER"), 2;
  service service;
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  weft::io::shard shard;
  auto address = weft::interop::listen(
      shard, argv[1], [&](int end) { grpc::AddInsecureChannelFromFd(server.get(), end); });
  if (!address) return std::println(stderr, "grpc_cpp_server: {}", address.error().to_string()), 1;
  std::println("{}", *address);
  std::fflush(stdout);
  shard.run();
}
