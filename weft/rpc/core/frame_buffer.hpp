#pragma once

#include <cstddef>
#include <cstring>
#include <utility>

#include <weft/base/slice.hpp>

namespace weft::rpc {

/// Frames being put together in one buffer.
class frame_buffer {
 public:
  bool empty() const noexcept { return used_ == 0; }
  std::size_t room() const noexcept { return memory_.size() - used_; }
  std::size_t used() const noexcept { return used_; }
  /// Room for `count` more bytes, whose end is then told by `commit`.
  std::byte* reserve(std::size_t count);
  void commit(const std::byte* end) noexcept {
    used_ = static_cast<std::size_t>(end - memory_.data());
  }
  slice take() {
    memory_.truncate(std::exchange(used_, 0));
    return std::exchange(memory_, buffer{}).freeze();
  }

 private:
  buffer memory_;
  std::size_t used_ = 0;
};

inline std::byte* frame_buffer::reserve(std::size_t count) {
  if (room() < count) {
    buffer larger = buffer::allocate(used_ + count);
    if (used_ != 0) std::memcpy(larger.data(), memory_.data(), used_);
    memory_ = std::move(larger);
  }
  return memory_.data() + used_;
}

}  // namespace weft::rpc
