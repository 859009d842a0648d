#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <weft/base/slice.hpp>

namespace weft {

/// First-in first-out slices; keeps its memory, so that a reused one does not allocate.
class slice_queue {
 public:
  bool empty() const noexcept { return head_ == items_.size(); }
  std::size_t size() const noexcept { return items_.size() - head_; }
  slice& front() noexcept { return items_[head_]; }
  slice& back() noexcept { return items_.back(); }
  slice& operator[](std::size_t index) noexcept { return items_[head_ + index]; }
  const slice& operator[](std::size_t index) const noexcept { return items_[head_ + index]; }
  void push_back(slice item) { items_.push_back(std::move(item)); }

  slice pop_front() noexcept {
    slice item = std::move(items_[head_++]);
    if (head_ == items_.size()) {
      clear();
    } else if (head_ >= 32 && head_ * 2 >= items_.size()) {
      items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(head_));
      head_ = 0;
    }
    return item;
  }
  void pop_back() noexcept {
    items_.pop_back();
    if (head_ == items_.size()) clear();
  }
  void clear() noexcept {
    items_.clear();
    head_ = 0;
    if (items_.capacity() > 1024) items_.shrink_to_fit();
  }

 private:
  std::vector<slice> items_;
  std::size_t head_ = 0;
};

}  // namespace weft
