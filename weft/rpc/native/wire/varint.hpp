#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <weft/base/slice.hpp>

// Variable-length integers of RFC 9000 §16: two bits of length, then 6, 14, 30 or 62 bits of value.

namespace weft::rpc::native::wire {

inline constexpr std::uint64_t max_varint = (std::uint64_t{1} << 62) - 1;
inline constexpr std::size_t max_varint_size = 8;

constexpr std::size_t varint_size(std::uint64_t value) noexcept {
  return value < 64 ? 1 : value < 16384 ? 2 : value < 1073741824 ? 4 : 8;
}

/// Bytes of the integer that starts with `first`.
constexpr std::size_t varint_length(std::byte first) noexcept {
  return std::size_t{1} << (std::to_integer<unsigned>(first) >> 6);
}

/// Returns the end of what was written. Precondition: `value <= max_varint`, room for it.
constexpr std::byte* put_varint(std::byte* target, std::uint64_t value) noexcept {
  const std::size_t size = varint_size(value);
  const unsigned prefix = size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3;
  for (std::size_t i = size; i-- > 0; value >>= 8) target[i] = std::byte(value & 0xff);
  target[0] |= std::byte(prefix << 6);
  return target + size;
}

/// Precondition: `from` holds `varint_length(from[0])` bytes.
constexpr std::uint64_t decode_varint(const std::byte* from) noexcept {
  const std::size_t size = varint_length(*from);
  std::uint64_t value = std::to_integer<std::uint64_t>(*from) & 0x3f;
  for (std::size_t i = 1; i < size; ++i)
    value = value << 8 | std::to_integer<std::uint64_t>(from[i]);
  return value;
}

/// Reads from the front of a run of bytes that is all there. The first read past the end makes it
/// `failed` for good; reads then give zeros and nothing.
class cursor {
 public:
  explicit cursor(bytes from) noexcept : rest_{from} {}

  bool failed() const noexcept { return failed_; }
  bool at_end() const noexcept { return rest_.empty(); }
  std::size_t left() const noexcept { return rest_.size(); }

  std::uint64_t varint() noexcept {
    if (rest_.empty() || rest_.size() < varint_length(rest_[0])) return fail(), 0;
    const std::uint64_t value = decode_varint(rest_.data());
    rest_ = rest_.subspan(varint_length(rest_[0]));
    return value;
  }
  bytes take(std::uint64_t count) noexcept {
    if (count > rest_.size()) return fail(), bytes{};
    const bytes head = rest_.first(static_cast<std::size_t>(count));
    rest_ = rest_.subspan(head.size());
    return head;
  }
  /// A length, then as many bytes.
  bytes sized() noexcept { return take(varint()); }

 private:
  void fail() noexcept {
    failed_ = true;
    rest_ = {};
  }

  bytes rest_;
  bool failed_ = false;
};

/// Writes into memory whose size was computed before.
class sink {
 public:
  explicit sink(std::byte* target) noexcept : next_{target} {}
  std::byte* position() const noexcept { return next_; }
  sink& varint(std::uint64_t value) noexcept {
    next_ = put_varint(next_, value);
    return *this;
  }
  sink& raw(bytes from) noexcept {
    if (!from.empty()) std::memcpy(next_, from.data(), from.size());
    next_ += from.size();
    return *this;
  }
  sink& sized(std::string_view text) noexcept { return varint(text.size()).raw(as_bytes(text)); }

 private:
  std::byte* next_;
};

constexpr std::size_t sized_size(std::size_t content) noexcept {
  return varint_size(content) + content;
}

}  // namespace weft::rpc::native::wire
