#include "call.hpp"

#include <chrono>

#include "connectrpc/conformance/v1/service.weft.h"
#include "convert.hpp"

namespace weft::conformance {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view service_name = "connectrpc.conformance.v1.ConformanceService";

const rpc::method& method_named(std::string_view name) {
  const auto methods = v1::ConformanceService::descriptor().methods;
  for (const rpc::method& each : methods)
    if (each.name == name) return each;
  return methods.front();
}

rpc::compression compression_of(v1::Compression wanted) {
  switch (wanted) {
    case v1::COMPRESSION_GZIP:
      return rpc::compression::gzip;
    case v1::COMPRESSION_BR:
      return rpc::compression::br;
    case v1::COMPRESSION_ZSTD:
      return rpc::compression::zstd;
    default:
      return rpc::compression::identity;
  }
}

/// One call and what is learnt of it.
class running {
 public:
  running(io::shard& shard, rpc::caller& via, const v1::ClientCompatRequest& wanted)
      : shard_{shard}, via_{via}, wanted_{wanted} {}

  rpc::call_options options() {
    rpc::call_options o;
    if (wanted_.has_timeout_ms()) o.timeout = milliseconds{wanted_.timeout_ms()};
    o.metadata = to_metadata(wanted_.request_headers());
    o.request_compression = compression_of(wanted_.compression());
    o.info = &info_;
    return o;
  }
  const v1::ClientCompatRequest& wanted() const { return wanted_; }
  rpc::caller& via() { return via_; }
  template <class Request>
  Request request(int index) const {
    Request message;
    (void)wanted_.request_messages(index).UnpackTo(&message);
    return message;
  }

  task<> delay_request() {
    if (wanted_.request_delay_ms() != 0)
      (void)co_await shard_.sleep_until(io::now() + milliseconds{wanted_.request_delay_ms()});
  }
  void take(v1::ConformancePayload payload) {
    *result_.add_payloads() = std::move(payload);
    ++received_;
    if (wanted_.cancel().has_after_num_responses() &&
        received_ == wanted_.cancel().after_num_responses())
      cancel();
  }
  void take(const rpc::status& failure) { *result_.mutable_error() = to_error(failure); }
  void unsent(int count) { result_.set_num_unsent_requests(count); }

  /// The call that cancelling ends.
  void watch(rpc::client_call& call) { call_ = &call; }
  void cancel() { call_->cancel({rpc::code::cancelled, "cancelled by the caller"}); }
  /// All requests are sent; our side is still open. True: it was cancelled instead.
  bool cancel_before_close() {
    if (!wanted_.has_cancel() || !wanted_.cancel().has_before_close_send()) return false;
    cancel();
    return true;
  }
  void cancel_after_close() {
    const auto& when = wanted_.cancel();
    if (!wanted_.has_cancel() || when.has_before_close_send() || when.has_after_num_responses())
      return;
    shard_.arm(cancel_at_, io::now() + milliseconds{when.after_close_send_ms()},
               [this](time_point) { cancel(); });
  }

  v1::ClientResponseResult finish() {
    call_ = nullptr;
    shard_.disarm(cancel_at_);
    to_headers(info_.headers, *result_.mutable_response_headers());
    to_headers(info_.trailers, *result_.mutable_response_trailers());
    return std::move(result_);
  }

 private:
  io::shard& shard_;
  rpc::caller& via_;
  const v1::ClientCompatRequest& wanted_;
  v1::ClientResponseResult result_;
  rpc::response_info info_;
  rpc::client_call* call_ = nullptr;
  io::timer cancel_at_;
  std::uint32_t received_ = 0;
};

template <class Request, class Response>
task<> unary(running& run) {
  // As rpc::unary_call, with the call at hand for those who cancel.
  const auto request = run.request<Request>(0);
  const auto encoded = rpc::encode(request);
  co_await run.delay_request();
  auto call = co_await run.via().start(method_named(run.wanted().method()), run.options());
  if (!call) {
    run.take(call.error());
    co_return;
  }
  run.watch(**call);
  (void)co_await (*call)->write(*encoded, true);
  run.cancel_after_close();
  auto reply = co_await rpc::read_reply<Response>(**call);
  if (!reply)
    run.take(reply.error());
  else if constexpr (requires { reply->payload(); })
    run.take(reply->payload());
}

task<> server_stream(running& run) {
  v1::ConformanceService::client client{run.via()};
  const auto request = run.request<v1::ServerStreamRequest>(0);
  co_await run.delay_request();
  auto stream = co_await client.ServerStream(request, run.options());
  if (!stream) {
    run.take(stream.error());
    co_return;
  }
  run.watch(stream->call());
  run.cancel_after_close();
  while (true) {
    auto response = co_await stream->read();
    if (!response) run.take(response.error());
    if (!response || !*response) co_return;
    run.take((*response)->payload());
  }
}

task<> client_stream(running& run) {
  v1::ConformanceService::client client{run.via()};
  auto stream = co_await client.ClientStream(run.options());
  if (!stream) {
    run.take(stream.error());
    co_return;
  }
  run.watch(stream->call());
  const int count = run.wanted().request_messages_size();
  for (int i = 0; i < count; ++i) {
    co_await run.delay_request();
    auto sent = co_await stream->write(run.request<v1::ClientStreamRequest>(i));
    if (sent) continue;
    run.unsent(count - i);
    break;
  }
  // `finish` ends our side, too; what is cancelled after that is cancelled while it waits.
  if (!run.cancel_before_close()) run.cancel_after_close();
  auto reply = co_await stream->finish();
  if (!reply)
    run.take(reply.error());
  else
    run.take(reply->payload());
}

/// True: there may be more.
task<bool> take_one(running& run,
                    rpc::bidi_stream<v1::BidiStreamRequest, v1::BidiStreamResponse>& stream) {
  auto response = co_await stream.read();
  if (!response) run.take(response.error());
  if (!response || !*response) co_return false;
  run.take((*response)->payload());
  co_return true;
}

task<> bidi_stream(running& run) {
  v1::ConformanceService::client client{run.via()};
  auto stream = co_await client.BidiStream(run.options());
  if (!stream) {
    run.take(stream.error());
    co_return;
  }
  run.watch(stream->call());
  const bool full_duplex = run.wanted().stream_type() == v1::STREAM_TYPE_FULL_DUPLEX_BIDI_STREAM;
  const int count = run.wanted().request_messages_size();
  bool more = true;
  for (int i = 0; i < count && more; ++i) {
    co_await run.delay_request();
    auto sent = co_await stream->write(run.request<v1::BidiStreamRequest>(i));
    if (!sent) {
      run.unsent(count - i);
      break;
    }
    if (full_duplex) more = co_await take_one(run, *stream);
  }
  if (!run.cancel_before_close()) {
    (void)co_await stream->finish_writing();
    run.cancel_after_close();
  }
  while (more) more = co_await take_one(run, *stream);
}

task<> dispatch(running& run) {
  const std::string& method = run.wanted().method();
  if (method == "Unary")
    co_await unary<v1::UnaryRequest, v1::UnaryResponse>(run);
  else if (method == "IdempotentUnary")
    co_await unary<v1::IdempotentUnaryRequest, v1::IdempotentUnaryResponse>(run);
  else if (method == "Unimplemented")
    co_await unary<v1::UnimplementedRequest, v1::UnimplementedResponse>(run);
  else if (method == "ServerStream")
    co_await server_stream(run);
  else if (method == "ClientStream")
    co_await client_stream(run);
  else if (method == "BidiStream")
    co_await bidi_stream(run);
  else
    run.take({rpc::code::internal, "no method of " + std::string{service_name} + ": " + method});
}

}  // namespace

task<v1::ClientResponseResult> make_call(io::shard& shard, rpc::caller& via,
                                         const v1::ClientCompatRequest& wanted) {
  running run{shard, via, wanted};
  co_await dispatch(run);
  co_return run.finish();
}

}  // namespace weft::conformance
