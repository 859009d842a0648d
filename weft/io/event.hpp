#pragma once

#include <optional>
#include <utility>

#include <asio/any_completion_handler.hpp>
#include <asio/async_result.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/as_tuple.hpp>
#include <asio/bind_executor.hpp>

#include <weft/io/task.hpp>

namespace weft::io {

/// Lets one coroutine sleep until another part of the same shard calls `notify()`.
///
/// One waiter at a time. `notify()` resumes it inline, so the caller's state must be consistent
/// first; it is a no-op when nobody waits (check your condition before waiting). Cancelling the
/// waiter completes the wait with errc::cancelled. The event must outlive a pending wait or be
/// closed by `notify()` first.
class event {
 public:
  event() = default;
  event(const event&) = delete;
  event& operator=(const event&) = delete;

  bool waiting() const noexcept { return static_cast<bool>(handler_); }

  /// True: notified. False: cancelled.
  task<bool> wait() {
    const auto [failure] = co_await asio::async_initiate<
        decltype(asio::as_tuple(asio::use_awaitable_t<executor>{})), void(asio::error_code)>(
        [this](auto handler) { start(std::move(handler)); },
        asio::as_tuple(asio::use_awaitable_t<executor>{}));
    co_return !failure;
  }

  void notify() {
    if (handler_) complete({});
  }

 private:
  template <class Handler>
  void start(Handler handler) {
    auto slot = asio::get_associated_cancellation_slot(handler);
    handler_ = std::move(handler);
    if (!slot.is_connected()) return;
    slot.assign([this](asio::cancellation_type type) {
      if (type != asio::cancellation_type::none && handler_)
        complete(asio::error::operation_aborted);
    });
  }

  void complete(asio::error_code failure) {
    auto handler = std::exchange(handler_, nullptr);
    if (auto slot = asio::get_associated_cancellation_slot(handler); slot.is_connected())
      slot.clear();
    std::move(handler)(failure);
  }

  asio::any_completion_handler<void(asio::error_code)> handler_;
};

}  // namespace weft::io
