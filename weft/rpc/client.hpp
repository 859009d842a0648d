#pragma once

#include <memory>
#include <optional>
#include <utility>

#include <weft/rpc/call.hpp>
#include <weft/rpc/codec.hpp>

// The client half of what generated code is made of.

namespace weft::rpc {

/// Starts calls: a channel, or anything between a generated client and one.
class caller {
 public:
  virtual ~caller() = default;
  virtual task<result<std::unique_ptr<client_call>>> start(const method& m,
                                                           call_options options) = 0;
  /// Without reply: completes when a bounded buffer has taken the message.
  virtual task<result<>> one_way(const method& m, call_options options,
                                 const outgoing& message) = 0;
};

/// The responses of a server-streaming call. Destroying it early cancels the call.
template <class Response>
class server_stream {
 public:
  explicit server_stream(std::unique_ptr<client_call> call) noexcept : call_{std::move(call)} {}

  /// The next message; nothing at the good end; the call's status otherwise.
  task<result<std::optional<Response>>> read() {
    auto next = co_await call_->read();
    if (!next) co_return std::unexpected{std::move(next).error()};
    if (!*next) co_return std::optional<Response>{};
    auto message = decode<Response>(**next);
    if (!message) co_return std::unexpected{std::move(message).error()};
    co_return std::optional<Response>{std::move(*message)};
  }
  client_call& call() noexcept { return *call_; }
  void cancel() { call_->cancel({code::cancelled, "cancelled by the caller"}); }

 protected:
  std::unique_ptr<client_call> call_;
};

/// A client-streaming call: write, then `finish` for the reply.
template <class Request, class Response>
class client_stream {
 public:
  explicit client_stream(std::unique_ptr<client_call> call) noexcept : call_{std::move(call)} {}

  /// Fails when the server wants no more; `finish` then tells how the call ended.
  task<result<>> write(const Request& message) {
    auto encoded = encode(message);
    if (!encoded) co_return std::unexpected{std::move(encoded).error()};
    co_return co_await call_->write(*encoded, false);
  }
  task<result<Response>> finish() {
    // A failure to end has its cause in the call's status, which the read reports.
    (void)co_await call_->finish_writing();
    co_return co_await read_reply<Response>(*call_);
  }
  client_call& call() noexcept { return *call_; }
  void cancel() { call_->cancel({code::cancelled, "cancelled by the caller"}); }

 private:
  std::unique_ptr<client_call> call_;
};

/// A bidirectional call: reading and writing are independent of each other.
template <class Request, class Response>
class bidi_stream : public server_stream<Response> {
 public:
  using server_stream<Response>::server_stream;

  task<result<>> write(const Request& message) {
    auto encoded = encode(message);
    if (!encoded) co_return std::unexpected{std::move(encoded).error()};
    co_return co_await this->call_->write(*encoded, false);
  }
  task<result<>> finish_writing() { co_return co_await this->call_->finish_writing(); }
};

/// The single reply of a call: `unimplemented` unless exactly one message comes with an OK status.
template <class Response>
task<result<Response>> read_reply(client_call& call) {
  auto first = co_await call.read();
  if (!first) co_return std::unexpected{std::move(first).error()};
  if (!*first) co_return fail(code::unimplemented, "the server ended the call without a reply");
  auto reply = decode<Response>(**first);
  auto second = co_await call.read();
  if (!second) co_return std::unexpected{std::move(second).error()};
  if (*second) co_return fail(code::unimplemented, "the server sent more than one reply");
  if (!reply) co_return fail(code::internal, std::move(reply).error().message());
  co_return std::move(*reply);
}

template <class Request, class Response>
task<result<Response>> unary_call(caller& via, const method& m, const Request& request,
                                  call_options options) {
  auto encoded = encode(request);
  if (!encoded) co_return std::unexpected{std::move(encoded).error()};
  auto call = co_await via.start(m, std::move(options));
  if (!call) co_return std::unexpected{std::move(call).error()};
  // A failed write has its cause in the call's status, which the read reports.
  (void)co_await (*call)->write(*encoded, true);
  co_return co_await read_reply<Response>(**call);
}

template <class Request, class Response>
task<result<server_stream<Response>>> server_streaming_call(caller& via, const method& m,
                                                            const Request& request,
                                                            call_options options) {
  auto encoded = encode(request);
  if (!encoded) co_return std::unexpected{std::move(encoded).error()};
  auto call = co_await via.start(m, std::move(options));
  if (!call) co_return std::unexpected{std::move(call).error()};
  (void)co_await (*call)->write(*encoded, true);
  co_return server_stream<Response>{std::move(*call)};
}

template <class Stream>
task<result<Stream>> streaming_call(caller& via, const method& m, call_options options) {
  auto call = co_await via.start(m, std::move(options));
  if (!call) co_return std::unexpected{std::move(call).error()};
  co_return Stream{std::move(*call)};
}

template <class Request>
task<result<>> one_way_call(caller& via, const method& m, const Request& request,
                            call_options options) {
  auto encoded = encode(request);
  if (!encoded) co_return std::unexpected{std::move(encoded).error()};
  co_return co_await via.one_way(m, std::move(options), *encoded);
}

}  // namespace weft::rpc
