#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include <weft/base/slice.hpp>

namespace weft::rpc {

/// One message's bytes as they arrived: a chain of slices, most often a single one.
class payload {
 public:
  payload() = default;
  explicit payload(slice single) : first_{std::move(single)}, size_{first_.size()} {}

  void append(slice part) {
    size_ += part.size();
    if (first_.empty())
      first_ = std::move(part);
    else if (!part.empty())
      rest_.push_back(std::move(part));
  }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  bool contiguous() const noexcept { return rest_.empty(); }
  std::size_t parts() const noexcept { return (first_.empty() ? 0 : 1) + rest_.size(); }
  const slice& part(std::size_t index) const noexcept {
    return index == 0 ? first_ : rest_[index - 1];
  }
  /// All bytes in one slice; copies only when there are several parts.
  slice flatten() const;

 private:
  slice first_;
  std::vector<slice> rest_;
  std::size_t size_ = 0;
};

/// A message on its way out: its size, and how to write it. Lets a protocol place the bytes right
/// behind its own frame header. Refers to the message: valid during the call it is passed to.
class outgoing {
 public:
  using writer = void (*)(const void* message, std::byte* target, std::size_t size);
  outgoing(const void* message, std::size_t size, writer write) noexcept
      : message_{message}, size_{size}, write_{write} {}
  /// Bytes that are ready as they are.
  explicit outgoing(bytes ready) noexcept
      : message_{ready.data()}, size_{ready.size()}, write_{nullptr} {}

  std::size_t size() const noexcept { return size_; }
  /// Writes exactly `size()` bytes.
  void write_to(std::byte* target) const {
    if (write_)
      write_(message_, target, size_);
    else if (size_ != 0)
      std::memcpy(target, message_, size_);
  }

 private:
  const void* message_;
  std::size_t size_;
  writer write_;
};

}  // namespace weft::rpc
