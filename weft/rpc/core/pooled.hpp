#pragma once

#include <cstddef>
#include <new>
#include <utility>

namespace weft::rpc {

/// Gives `T` (a final class) a free list per thread, so that calls come and go without the
/// allocator. `struct x final : pooled<x>`.
template <class T>
class pooled {
 public:
  static void* operator new(std::size_t size) {
    auto& list = free_list::of_thread();
    if (size != sizeof(T) || list.head == nullptr) return ::operator new(size);
    node* first = list.head;
    list.head = first->next;
    --list.count;
    return first;
  }
  static void operator delete(void* memory, std::size_t size) noexcept {
    auto& list = free_list::of_thread();
    if (size != sizeof(T) || list.closed || list.count >= most) return ::operator delete(memory);
    list.head = new (memory) node{list.head};
    ++list.count;
  }

 private:
  static constexpr std::size_t most = 1024;
  struct node {
    node* next;
  };
  struct free_list {
    node* head = nullptr;
    std::size_t count = 0;
    bool closed = false;

    static free_list& of_thread() noexcept {
      thread_local free_list list;
      return list;
    }
    ~free_list() {
      closed = true;
      while (head != nullptr) ::operator delete(std::exchange(head, head->next));
    }
  };
};

}  // namespace weft::rpc
