#pragma once

#include <cstddef>

namespace weft::quic::core::detail {

/// Membership of one list, as a member of the listed object.
template <class T>
struct list_hook {
  T* previous = nullptr;
  T* next = nullptr;
  bool linked = false;
};

/// Doubly linked list through a hook in its elements; owns nothing and allocates nothing.
template <class T, list_hook<T> T::* Hook>
class intrusive_list {
 public:
  bool empty() const noexcept { return head_ == nullptr; }
  T* front() const noexcept { return head_; }
  static T* next(const T& item) noexcept { return (item.*Hook).next; }
  static bool contains(const T& item) noexcept { return (item.*Hook).linked; }

  /// Does nothing when `item` is in the list already.
  void push_back(T& item) noexcept {
    auto& hook = item.*Hook;
    if (hook.linked) return;
    hook = {tail_, nullptr, true};
    (tail_ ? (tail_->*Hook).next : head_) = &item;
    tail_ = &item;
  }
  /// Does nothing when `item` is not in the list.
  void erase(T& item) noexcept {
    auto& hook = item.*Hook;
    if (!hook.linked) return;
    (hook.previous ? (hook.previous->*Hook).next : head_) = hook.next;
    (hook.next ? (hook.next->*Hook).previous : tail_) = hook.previous;
    hook = {};
  }
  T* pop_front() noexcept {
    T* item = head_;
    if (item) erase(*item);
    return item;
  }

 private:
  T* head_ = nullptr;
  T* tail_ = nullptr;
};

}  // namespace weft::quic::core::detail
