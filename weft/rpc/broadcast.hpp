#pragma once

#include <weft/io/event.hpp>
#include <weft/rpc/core/list.hpp>

namespace weft::rpc {

/// As `io::event`, for any number of waiters.
class broadcast {
 public:
  /// True: notified. False: cancelled.
  task<bool> wait() {
    waiter self;
    waiting_.push_back(self);
    co_return co_await self.woken.wait();
  }
  /// Resumes all who wait now, inline. They may destroy this.
  void notify() {
    list<waiter, waiter> woken;
    woken.splice(waiting_);
    while (!woken.empty()) {
      waiter& next = woken.front();
      next.unlink();
      next.woken.notify();
    }
  }

 private:
  struct waiter : list_node<waiter, waiter> {
    io::event woken;
  };
  list<waiter, waiter> waiting_;
};

}  // namespace weft::rpc
