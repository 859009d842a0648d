#pragma once

#include <deque>
#include <memory>
#include <string>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>

#include <weft/io/event.hpp>
#include <weft/rpc/client.hpp>
#include <weft/rpc/handler.hpp>

// For tests: calls that reach a dispatcher without any transport. Messages are copied across.

namespace weft::rpc::fake {

/// What both ends of one call share.
struct wire {
  call_info info;
  std::deque<payload> requests, replies;
  bool requests_ended = false;
  std::optional<status> end;
  io::event server_wakes, client_wakes;
  metadata headers, trailers;
  compression replies_with = compression::identity;
  asio::cancellation_signal cancelled;
};

inline payload copy_of(const outgoing& message) {
  buffer bytes = buffer::allocate(message.size());
  message.write_to(bytes.data());
  return payload{std::move(bytes).freeze()};
}

class server_end final : public server_call {
 public:
  explicit server_end(std::shared_ptr<wire> w) noexcept : wire_{std::move(w)} {}
  const call_info& info() const noexcept override { return wire_->info; }
  task<result<std::optional<payload>>> read() override {
    while (wire_->requests.empty() && !wire_->requests_ended)
      if (!co_await wire_->server_wakes.wait()) co_return fail(code::cancelled, "cancelled");
    if (wire_->requests.empty()) co_return std::optional<payload>{};
    std::optional next{std::move(wire_->requests.front())};
    wire_->requests.pop_front();
    co_return next;
  }
  task<result<>> send_headers(const metadata& headers) override {
    wire_->headers = headers;
    co_return result<>{};
  }
  task<result<>> write(const outgoing& message) override {
    wire_->replies.push_back(copy_of(message));
    wire_->client_wakes.notify();
    co_return result<>{};
  }
  void set_trailers(metadata trailers) override { wire_->trailers = std::move(trailers); }
  void set_compression(compression algorithm) override { wire_->replies_with = algorithm; }

 private:
  std::shared_ptr<wire> wire_;
};

class client_end final : public client_call {
 public:
  explicit client_end(std::shared_ptr<wire> w) noexcept : wire_{std::move(w)} {}
  ~client_end() override { wire_->cancelled.emit(asio::cancellation_type::terminal); }
  task<result<>> write(const outgoing& message, bool last) override {
    if (wire_->end) co_return std::unexpected{*wire_->end};
    wire_->requests.push_back(copy_of(message));
    wire_->requests_ended |= last;
    wire_->server_wakes.notify();
    co_return result<>{};
  }
  task<result<>> finish_writing() override {
    wire_->requests_ended = true;
    wire_->server_wakes.notify();
    co_return result<>{};
  }
  task<result<std::optional<payload>>> read() override {
    while (wire_->replies.empty() && !wire_->end) (void)co_await wire_->client_wakes.wait();
    if (!wire_->replies.empty()) {
      std::optional next{std::move(wire_->replies.front())};
      wire_->replies.pop_front();
      co_return next;
    }
    if (!wire_->end->ok()) co_return std::unexpected{*wire_->end};
    co_return std::optional<payload>{};
  }
  task<result<metadata>> read_headers() override { co_return wire_->headers; }
  const metadata& headers() const noexcept override { return wire_->headers; }
  const metadata& trailers() const noexcept override { return wire_->trailers; }
  void cancel(status why) override {
    wire_->end = std::move(why);
    wire_->cancelled.emit(asio::cancellation_type::terminal);
    wire_->client_wakes.notify();
  }

 private:
  std::shared_ptr<wire> wire_;
};

class loopback final : public caller {
 public:
  loopback(io::shard& shard, dispatcher& calls) : shard_{shard}, calls_{calls} {}

  task<result<std::unique_ptr<client_call>>> start(const method& m, call_options options) override {
    co_return std::make_unique<client_end>(spawn(m, std::move(options), false));
  }
  task<result<>> one_way(const method& m, call_options options, const outgoing& message) override {
    auto w = spawn(m, std::move(options), true);
    w->requests.push_back(copy_of(message));
    w->requests_ended = true;
    co_return result<>{};
  }

  bool early_data = false;  ///< of the calls from now on

 private:
  static task<> serve(dispatcher& calls, std::shared_ptr<wire> w) {
    server_end call{w};
    status end = co_await calls.dispatch(call);
    if (!w->end) w->end = std::move(end);
    w->client_wakes.notify();
  }
  std::shared_ptr<wire> spawn(const method& m, call_options options, bool one_way) {
    auto w = std::make_shared<wire>();
    w->info.path = m.path;
    w->info.metadata = std::move(options.metadata);
    w->info.protocol = "fake";
    w->info.one_way = one_way;
    w->info.early_data = early_data;
    asio::co_spawn(shard_.get_executor(), serve(calls_, w),
                   asio::bind_cancellation_slot(
                       w->cancelled.slot(),
                       [w](std::exception_ptr failure) {  // the signal must outlive the coroutine
                         if (failure) std::rethrow_exception(failure);
                       }));
    return w;
  }

  io::shard& shard_;
  dispatcher& calls_;
};

}  // namespace weft::rpc::fake
