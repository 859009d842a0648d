#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

using bytes = std::span<const std::byte>;
using mutable_bytes = std::span<std::byte>;

inline bytes as_bytes(std::string_view text) noexcept {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string_view as_text(bytes b) noexcept {
  return {reinterpret_cast<const char*>(b.data()), b.size()};
}

namespace detail {

/// Header in front of (or beside) shared memory. Counted atomically: a slice may outlive its
/// thread.
struct storage {
  std::atomic<std::uint32_t> references{1};
  std::uint32_t size_class = 0;
  void (*destroy)(storage*) noexcept = nullptr;

  void acquire() noexcept { references.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    if (references.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy(this);
  }
};

}  // namespace detail

/// A shared, immutable run of bytes. Copies share memory; the memory lives until the last copy
/// goes. Thread-safe as shared_ptr is: distinct slices over the same memory may be used by distinct
/// threads.
class slice {
 public:
  slice() = default;
  slice(const slice& other) noexcept
      : data_{other.data_}, size_{other.size_}, owner_{other.owner_} {
    if (owner_) owner_->acquire();
  }
  slice(slice&& other) noexcept
      : data_{std::exchange(other.data_, nullptr)},
        size_{std::exchange(other.size_, 0)},
        owner_{std::exchange(other.owner_, nullptr)} {}
  slice& operator=(slice other) noexcept {
    swap(other);
    return *this;
  }
  ~slice() {
    if (owner_) owner_->release();
  }

  /// A copy of `from` in pooled memory.
  static slice copy(bytes from);
  static slice copy(std::string_view from) { return copy(as_bytes(from)); }
  /// Takes over the string's memory.
  static slice adopt(std::string&& from);
  /// Points at memory that outlives every copy, such as a string literal or an embedded file.
  static slice borrow(bytes from) noexcept { return slice{from.data(), from.size(), nullptr}; }

  const std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  operator bytes() const noexcept { return {data_, size_}; }
  bytes span() const noexcept { return {data_, size_}; }
  std::string_view text() const noexcept { return as_text(span()); }

  /// Shares `[offset, offset + count)`. Precondition: within bounds.
  slice sub(std::size_t offset, std::size_t count) const noexcept {
    slice part{*this};
    part.data_ += offset;
    part.size_ = count;
    return part;
  }
  void drop_front(std::size_t count) noexcept {
    data_ += count;
    size_ -= count;
  }
  /// Shares the first `count` bytes and removes them from this slice.
  slice take_front(std::size_t count) noexcept {
    slice head = sub(0, count);
    drop_front(count);
    return head;
  }
  void swap(slice& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(owner_, other.owner_);
  }

 private:
  friend class buffer;
  friend class arena;
  slice(const std::byte* data, std::size_t size, detail::storage* owner) noexcept
      : data_{data}, size_{size}, owner_{owner} {}

  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  detail::storage* owner_ = nullptr;
};

/// Writable memory with one owner, from a per-thread pool of size classes (fresh memory costs page
/// faults; steady state allocates nothing). Becomes an immutable slice by `freeze()`.
class buffer {
 public:
  buffer() = default;
  /// At least `size` bytes, uninitialised; `size()` is exactly `size`.
  static buffer allocate(std::size_t size);

  buffer(buffer&& other) noexcept
      : data_{std::exchange(other.data_, nullptr)},
        size_{std::exchange(other.size_, 0)},
        owner_{std::exchange(other.owner_, nullptr)} {}
  buffer& operator=(buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(owner_, other.owner_);
    return *this;
  }
  ~buffer() {
    if (owner_) owner_->release();
  }

  std::byte* data() noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  operator mutable_bytes() noexcept { return {data_, size_}; }
  mutable_bytes span() noexcept { return {data_, size_}; }
  void truncate(std::size_t size) noexcept { size_ = size; }
  slice freeze() && noexcept {
    return slice{std::exchange(data_, nullptr), std::exchange(size_, 0),
                 std::exchange(owner_, nullptr)};
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  detail::storage* owner_ = nullptr;
};

/// Bump allocator that copies small arrivals into shared chunks, so that many short slices cost one
/// allocation. One owner, one thread. A chunk lives while any slice of it does: callers that keep
/// few bytes of many chunks must bound that themselves.
class arena {
 public:
  explicit arena(std::size_t chunk_size = 64 * 1024) noexcept : chunk_size_{chunk_size} {}
  arena(const arena&) = delete;
  arena& operator=(const arena&) = delete;
  ~arena() { reset(); }

  /// A copy of `from`.
  slice copy(bytes from);
  /// Appends a copy of `from` to `tail` in place when `tail` is this arena's latest slice and the
  /// chunk has room; returns false, changing nothing, otherwise.
  bool extend(slice& tail, bytes from);
  /// Lets go of the current chunk.
  void reset() noexcept;

 private:
  detail::storage* chunk_ = nullptr;
  std::byte* next_ = nullptr;
  std::byte* end_ = nullptr;
  std::size_t chunk_size_;
};

}  // namespace weft
