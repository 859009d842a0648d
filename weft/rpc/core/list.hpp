#pragma once

namespace weft::rpc {

/// Membership in one list; leaving scope leaves the list. `Tag` tells several of one object apart.
template <class T, class Tag>
class list_node {
 public:
  list_node() = default;
  list_node(const list_node&) = delete;
  list_node& operator=(const list_node&) = delete;
  ~list_node() { unlink(); }

  bool linked() const noexcept { return previous_ != nullptr; }
  void unlink() noexcept {
    if (previous_ == nullptr) return;
    previous_->next_ = next_;
    next_->previous_ = previous_;
    previous_ = next_ = nullptr;
  }

 private:
  template <class U, class V>
  friend class list;
  list_node* previous_ = nullptr;
  list_node* next_ = nullptr;
};

/// First in, first out; owns nothing. `T` derives from `list_node<T, Tag>`.
template <class T, class Tag>
class list {
 public:
  list() noexcept { head_.previous_ = head_.next_ = &head_; }
  list(const list&) = delete;
  list& operator=(const list&) = delete;
  ~list() {
    while (!empty()) head_.next_->unlink();
    head_.previous_ = head_.next_ = nullptr;
  }

  bool empty() const noexcept { return head_.next_ == &head_; }
  T& front() noexcept { return static_cast<T&>(*head_.next_); }
  void push_back(T& item) noexcept {
    list_node<T, Tag>& node = item;
    node.unlink();
    node.previous_ = head_.previous_;
    node.next_ = &head_;
    head_.previous_->next_ = &node;
    head_.previous_ = &node;
  }
  /// Takes over all of `other`.
  void splice(list& other) noexcept {
    while (!other.empty()) push_back(other.front());
  }

 private:
  list_node<T, Tag> head_;
};

}  // namespace weft::rpc
