#pragma once

#include <memory>
#include <span>
#include <string>

#include <weft/rpc/call.hpp>
#include <weft/rpc/codec.hpp>
#include <weft/rpc/server_context.hpp>

// The server half of what generated code is made of.

namespace weft::rpc {

/// Messages a client streams to a handler. Valid while the handler runs.
template <class Message>
class reader {
 public:
  explicit reader(server_call& call) noexcept : call_{call} {}
  reader(const reader&) = delete;
  reader& operator=(const reader&) = delete;

  /// The next message; nothing when the client has sent its last one. A status when the call is
  /// over or the message does not parse: return it.
  task<result<std::optional<Message>>> read() {
    auto next = co_await call_.read();
    if (!next) co_return std::unexpected{std::move(next).error()};
    if (!*next) co_return std::optional<Message>{};
    auto message = decode<Message>(**next);
    if (!message) co_return std::unexpected{std::move(message).error()};
    co_return std::optional<Message>{std::move(*message)};
  }

 private:
  server_call& call_;
};

/// Messages a handler streams to its client. Valid while the handler runs.
template <class Message>
class writer {
 public:
  explicit writer(server_call& call) noexcept : call_{call} {}
  writer(const writer&) = delete;
  writer& operator=(const writer&) = delete;

  /// Completes when a bounded buffer has taken the message. A status when nobody wants it any more:
  /// return it.
  task<result<>> write(const Message& message) {
    auto encoded = encode(message);
    if (!encoded) co_return std::unexpected{std::move(encoded).error()};
    co_return co_await call_.write(*encoded);
  }

 private:
  server_call& call_;
};

/// What generated handler interfaces implement: a service and how to run its methods.
class service_handler {
 public:
  virtual ~service_handler() = default;
  virtual const service& descriptor() const noexcept = 0;
  /// Runs the method with index `method` of `descriptor().methods`.
  virtual task<status> invoke(std::size_t method, server_context& context, server_call& call) = 0;
};

/// Reads the single request of a unary or server-streaming call; `unimplemented` unless there is
/// exactly one (gRPC's rule on cardinality).
template <class Request>
task<result<Request>> read_single(server_call& call) {
  auto first = co_await call.read();
  if (!first) co_return std::unexpected{std::move(first).error()};
  if (!*first) co_return fail(code::unimplemented, "the call needs one request message, got none");
  auto request = decode<Request>(**first);
  if (!request) co_return std::unexpected{std::move(request).error()};
  if (call.info().one_way) co_return std::move(*request);
  auto second = co_await call.read();
  if (!second) co_return std::unexpected{std::move(second).error()};
  if (*second) co_return fail(code::unimplemented, "the call takes one request message, got more");
  co_return std::move(*request);
}

template <class Reply>
task<status> write_reply(server_call& call, result<Reply> reply) {
  if (!reply) co_return std::move(reply).error();
  auto encoded = encode(*reply);
  if (!encoded) co_return std::move(encoded).error();
  auto written = co_await call.write(*encoded);
  co_return written ? status{} : std::move(written).error();
}

}  // namespace weft::rpc
