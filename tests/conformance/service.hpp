#pragma once

#include "connectrpc/conformance/v1/service.weft.h"

namespace weft::conformance {

namespace v1 = connectrpc::conformance::v1;

/// Does what a request's response definition says, and tells what it saw of the request.
class service final : public v1::ConformanceService::handler {
 public:
  task<rpc::result<v1::UnaryResponse>> Unary(rpc::server_context& context,
                                             v1::UnaryRequest request) override;
  task<rpc::result<v1::IdempotentUnaryResponse>> IdempotentUnary(
      rpc::server_context& context, v1::IdempotentUnaryRequest request) override;
  task<rpc::status> ServerStream(rpc::server_context& context, v1::ServerStreamRequest request,
                                 rpc::writer<v1::ServerStreamResponse>& responses) override;
  task<rpc::result<v1::ClientStreamResponse>> ClientStream(
      rpc::server_context& context, rpc::reader<v1::ClientStreamRequest>& requests) override;
  task<rpc::status> BidiStream(rpc::server_context& context,
                               rpc::reader<v1::BidiStreamRequest>& requests,
                               rpc::writer<v1::BidiStreamResponse>& responses) override;
};

}  // namespace weft::conformance
