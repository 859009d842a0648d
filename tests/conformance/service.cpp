#include "service.hpp"

#include <chrono>
#include <utility>

#include <weft/rpc/http/wire/percent.hpp>

#include "convert.hpp"

namespace weft::conformance {
namespace {

using request_info = v1::ConformancePayload::RequestInfo;
using requests_seen = google::protobuf::RepeatedPtrField<google::protobuf::Any>;

void note_query(std::string_view query, v1::ConformancePayload::ConnectGetInfo& to) {
  while (!query.empty()) {
    const auto pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const auto equals = std::min(pair.find('='), pair.size());
    v1::Header& parameter = *to.add_query_params();
    parameter.set_name(rpc::http::wire::decode_query(pair.substr(0, equals)));
    parameter.add_value(
        rpc::http::wire::decode_query(pair.substr(std::min(pair.size(), equals + 1))));
  }
}

request_info describe(const rpc::call_info& call, const requests_seen& requests) {
  request_info info;
  to_headers(call.metadata, *info.mutable_request_headers());
  if (call.deadline != never)
    info.set_timeout_ms(
        std::chrono::duration_cast<std::chrono::milliseconds>(call.deadline - io::now()).count());
  *info.mutable_requests() = requests;
  if (call.http_method == "GET") note_query(call.query, *info.mutable_connect_get_info());
  return info;
}

/// The error that a definition asks for; what the client would have learnt from a first response
/// goes along.
rpc::status failure(const v1::Error& wanted, const request_info* info) {
  rpc::status s = to_status(wanted);
  if (info != nullptr)
    s.add_detail(std::string{info->GetDescriptor()->full_name()}, info->SerializeAsString());
  return s;
}

template <class Message>
void note(requests_seen& seen, const Message& request) {
  seen.Add()->PackFrom(request);
}

task<rpc::result<>> wait(rpc::server_context& context, std::uint32_t milliseconds) {
  if (milliseconds == 0) co_return rpc::result<>{};
  auto slept =
      co_await context.shard().sleep_until(io::now() + std::chrono::milliseconds{milliseconds});
  if (!slept) co_return rpc::fail(rpc::code::cancelled, "nobody waits any more");
  co_return rpc::result<>{};
}

task<rpc::result<v1::ConformancePayload>> one_response(rpc::server_context& context,
                                                       const v1::UnaryResponseDefinition& wanted,
                                                       const requests_seen& requests) {
  v1::ConformancePayload payload;
  const request_info info = describe(context.info(), requests);
  if (!wanted.response_headers().empty()) {
    auto sent = co_await context.send_headers(to_metadata(wanted.response_headers()));
    if (!sent) co_return std::unexpected{std::move(sent).error()};
  }
  context.set_trailers(to_metadata(wanted.response_trailers()));
  if (auto waited = co_await wait(context, wanted.response_delay_ms()); !waited)
    co_return std::unexpected{std::move(waited).error()};
  if (wanted.has_error()) co_return std::unexpected{failure(wanted.error(), &info)};
  payload.set_data(wanted.response_data());
  *payload.mutable_request_info() = info;
  co_return payload;
}

/// The responses of a stream, one after the other.
template <class Response>
class responder {
 public:
  responder(rpc::server_context& context, rpc::writer<Response>& to) : context_{context}, to_{to} {}

  void define(const v1::StreamResponseDefinition& wanted) {
    wanted_ = wanted;
    context_.set_trailers(to_metadata(wanted_.response_trailers()));
  }
  bool done() const { return next_ >= wanted_.response_data_size(); }
  bool started() const { return next_ != 0; }

  /// Early, so that the client sees them before a delay.
  task<rpc::result<>> send_headers() {
    if (done() && wanted_.response_headers().empty()) co_return rpc::result<>{};
    co_return co_await context_.send_headers(to_metadata(wanted_.response_headers()));
  }
  task<rpc::result<>> send_next(request_info info) {
    Response response;
    response.mutable_payload()->set_data(wanted_.response_data(next_));
    *response.mutable_payload()->mutable_request_info() = std::move(info);
    if (auto waited = co_await wait(context_, wanted_.response_delay_ms()); !waited)
      co_return waited;
    ++next_;
    co_return co_await to_.write(response);
  }
  rpc::status end(const request_info& info) const {
    if (!wanted_.has_error()) return rpc::status{};
    return failure(wanted_.error(), started() ? nullptr : &info);
  }

 private:
  rpc::server_context& context_;
  rpc::writer<Response>& to_;
  v1::StreamResponseDefinition wanted_;
  int next_ = 0;
};

}  // namespace

task<rpc::result<v1::UnaryResponse>> service::Unary(rpc::server_context& context,
                                                    v1::UnaryRequest request) {
  requests_seen seen;
  note(seen, request);
  auto payload = co_await one_response(context, request.response_definition(), seen);
  if (!payload) co_return std::unexpected{std::move(payload).error()};
  v1::UnaryResponse response;
  *response.mutable_payload() = std::move(*payload);
  co_return response;
}

task<rpc::result<v1::IdempotentUnaryResponse>> service::IdempotentUnary(
    rpc::server_context& context, v1::IdempotentUnaryRequest request) {
  requests_seen seen;
  note(seen, request);
  auto payload = co_await one_response(context, request.response_definition(), seen);
  if (!payload) co_return std::unexpected{std::move(payload).error()};
  v1::IdempotentUnaryResponse response;
  *response.mutable_payload() = std::move(*payload);
  co_return response;
}

task<rpc::result<v1::ClientStreamResponse>> service::ClientStream(
    rpc::server_context& context, rpc::reader<v1::ClientStreamRequest>& requests) {
  requests_seen seen;
  v1::UnaryResponseDefinition wanted;
  while (true) {
    auto request = co_await requests.read();
    if (!request) co_return std::unexpected{std::move(request).error()};
    if (!*request) break;
    if (seen.empty()) wanted = (*request)->response_definition();
    note(seen, **request);
  }
  auto payload = co_await one_response(context, wanted, seen);
  if (!payload) co_return std::unexpected{std::move(payload).error()};
  v1::ClientStreamResponse response;
  *response.mutable_payload() = std::move(*payload);
  co_return response;
}

task<rpc::status> service::ServerStream(rpc::server_context& context,
                                        v1::ServerStreamRequest request,
                                        rpc::writer<v1::ServerStreamResponse>& responses) {
  requests_seen seen;
  note(seen, request);
  const request_info info = describe(context.info(), seen);
  responder<v1::ServerStreamResponse> answer{context, responses};
  answer.define(request.response_definition());
  if (auto sent = co_await answer.send_headers(); !sent) co_return std::move(sent).error();
  while (!answer.done()) {
    auto sent = co_await answer.send_next(answer.started() ? request_info{} : info);
    if (!sent) co_return std::move(sent).error();
  }
  co_return answer.end(info);
}

task<rpc::status> service::BidiStream(rpc::server_context& context,
                                      rpc::reader<v1::BidiStreamRequest>& requests,
                                      rpc::writer<v1::BidiStreamResponse>& responses) {
  requests_seen seen;
  responder<v1::BidiStreamResponse> answer{context, responses};
  bool full_duplex = false;
  bool first = true;
  while (true) {
    auto request = co_await requests.read();
    if (!request) co_return std::move(request).error();
    if (!*request) break;
    note(seen, **request);
    if (std::exchange(first, false)) {
      answer.define((*request)->response_definition());
      full_duplex = (*request)->full_duplex();
      if (full_duplex)
        if (auto sent = co_await answer.send_headers(); !sent) co_return std::move(sent).error();
    }
    if (!full_duplex) continue;
    if (answer.done()) break;
    request_info info;
    if (answer.started())
      *info.mutable_requests() = seen;
    else
      info = describe(context.info(), seen);
    if (auto sent = co_await answer.send_next(std::move(info)); !sent)
      co_return std::move(sent).error();
    seen.Clear();
  }
  if (!full_duplex)
    if (auto sent = co_await answer.send_headers(); !sent) co_return std::move(sent).error();
  const request_info info = describe(context.info(), seen);
  while (!answer.done()) {
    auto sent = co_await answer.send_next(answer.started() ? request_info{} : info);
    if (!sent) co_return std::move(sent).error();
  }
  co_return answer.end(info);
}

}  // namespace weft::conformance
