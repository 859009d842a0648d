#pragma once

#include <utility>

#include <asio/any_completion_handler.hpp>
#include <asio/associated_cancellation_slot.hpp>
#include <asio/async_result.hpp>
#include <asio/deferred.hpp>
#include <asio/execution_context.hpp>
#include <asio/post.hpp>
#include <asio/this_coro.hpp>

#include <weft/io/task.hpp>

namespace weft::io {

class event;

namespace detail {

/// One suspended `event::wait`. Lives in that coroutine's frame, which its handler owns: so it
/// lives exactly until the handler has been called or dropped.
struct waiter {
  asio::any_completion_handler<void(bool)> handler;
  event* owner = nullptr;  // null once notified, cancelled or dropped
  waiter* previous = nullptr;
  waiter* next = nullptr;
};

/// Every wait in progress on one event loop, so that the loop's end destroys coroutines that wait
/// for each other (or for themselves) in a circle, which would leak otherwise.
class waiters final : public asio::execution_context::service {
 public:
  static inline asio::execution_context::id id;

  explicit waiters(asio::execution_context& context) : service{context} {
    head_.previous = head_.next = &head_;
  }

  void link(waiter& w) noexcept {
    w.previous = &head_;
    w.next = head_.next;
    w.next->previous = head_.next = &w;
  }
  static void unlink(waiter& w) noexcept {
    w.previous->next = w.next;
    w.next->previous = w.previous;
  }

 private:
  void shutdown() noexcept override;

  waiter head_;
};

}  // namespace detail

/// Lets one coroutine sleep until another part of the same shard calls `notify()`.
///
/// One waiter at a time. `notify()` resumes it inline, so the caller's state must be consistent
/// first; it is a no-op when nobody waits (check your condition before waiting). The resumed
/// coroutine may destroy the event or wait again.
///
/// Cancelling the waiter (any cancellation type) completes the wait with `false`, not inline but on
/// the loop's next step; from the moment of cancellation `notify()` no longer reaches it. A
/// coroutine that is already cancelled does not wait at all.
///
/// An event destroyed with a waiter destroys the suspended coroutine (on the loop's next step)
/// without resuming it; so does the end of the event loop. The event itself may outlive the loop.
class event {
 public:
  event() = default;
  event(const event&) = delete;
  event& operator=(const event&) = delete;
  ~event() {
    if (waiter_) drop();
  }

  bool waiting() const noexcept { return waiter_ != nullptr; }

  /// True: notified. False: cancelled.
  task<bool> wait() {
    const auto cancelled = (co_await asio::this_coro::cancellation_state).cancelled();
    if (cancelled != asio::cancellation_type::none) co_return false;
    const executor loop = co_await asio::this_coro::executor;
    if (!waiters_) waiters_ = &asio::use_service<detail::waiters>(loop.context());
    detail::waiter self;
    // The initiation runs once this coroutine is suspended; `self` lives in its frame.
    co_return co_await asio::async_initiate<const asio::deferred_t, void(bool)>(
        [this, &self, loop](auto handler) { start(self, loop, std::move(handler)); },
        asio::deferred);
  }

  void notify() {
    if (waiter_) detach()(true);
  }

 private:
  friend class detail::waiters;
  using handler_type = asio::any_completion_handler<void(bool)>;

  template <class Handler>
  void start(detail::waiter& self, executor loop, Handler handler) {
    self.handler = std::move(handler);
    self.owner = this;
    waiter_ = &self;
    waiters_->link(self);
    // The slot of the type-erased handler: wrapping put a filter of its own into the original slot,
    // which assigning to the original would destroy.
    auto slot = asio::get_associated_cancellation_slot(self.handler);
    if (!slot.is_connected()) return;
    slot.assign([&self, loop](asio::cancellation_type type) {
      if (type == asio::cancellation_type::none || !self.owner) return;
      // Not inline: whoever emits may be in the middle of a loop over several operations.
      asio::post(loop, [handler = self.owner->detach()]() mutable { std::move(handler)(false); });
    });
  }

  handler_type detach() noexcept {
    detail::waiter& self = *std::exchange(waiter_, nullptr);
    detail::waiters::unlink(self);
    self.owner = nullptr;
    return std::move(self.handler);
  }

  void drop() noexcept {
    auto handler = detach();
    if (auto slot = asio::get_associated_cancellation_slot(handler); slot.is_connected())
      slot.clear();
  }

  detail::waiter* waiter_ = nullptr;
  detail::waiters* waiters_ = nullptr;
};

inline void detail::waiters::shutdown() noexcept {
  while (head_.next != &head_) head_.next->owner->drop();
}

}  // namespace weft::io
