#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include <weft/base/slice.hpp>
#include <weft/rpc/native/wire/registry.hpp>
#include <weft/rpc/native/wire/varint.hpp>

// Records: how several calls share one byte stream or lane (docs/specs/native.md §6).

namespace weft::rpc::native::wire {

struct record_tag {
  std::uint64_t call = 0;  ///< 0 on a byte stream: the control stream
  bool one_way = false;
  bool end = false;  ///< nothing follows from this side
  friend bool operator==(const record_tag&, const record_tag&) = default;
};

inline constexpr std::size_t max_record_head = 2 * max_varint_size;

constexpr std::uint64_t encoded(record_tag tag) noexcept {
  return tag.call << 2 | std::uint64_t{tag.one_way} << 1 | std::uint64_t{tag.end};
}
/// Length and tag in front of `piece` bytes.
constexpr std::size_t record_head_size(record_tag tag, std::size_t piece) noexcept {
  const std::size_t tag_size = varint_size(encoded(tag));
  return tag_size + varint_size(tag_size + piece);
}
constexpr std::byte* put_record_head(std::byte* target, record_tag tag,
                                     std::size_t piece) noexcept {
  target = put_varint(target, varint_size(encoded(tag)) + piece);
  return put_varint(target, encoded(tag));
}

/// What arrived of one record. Parts share memory with the input.
struct record_part {
  record_tag tag;
  slice bytes;
  bool first = false;  ///< of its record
  bool last = false;
};

/// Takes records apart without ever holding one. The first error is final.
class record_parser {
 public:
  /// `limit`: bytes a record may have behind its length.
  explicit record_parser(std::uint64_t limit) noexcept : limit_{limit} {}

  /// Feeds what follows; `next` must have returned nothing before.
  void push(slice input) noexcept { input_ = std::move(input); }
  weft::result<std::optional<record_part>> next();
  /// Between two records: the only place where an orderly end may come.
  bool at_boundary() const noexcept { return !in_piece_ && head_size_ == 0 && input_.empty(); }

 private:
  weft::result<bool> read_head();

  slice input_;
  std::array<std::byte, max_record_head> head_{};
  std::size_t head_size_ = 0;
  record_tag tag_{};
  std::uint64_t left_ = 0;
  std::uint64_t limit_;
  bool in_piece_ = false;
  bool first_ = false;
};

}  // namespace weft::rpc::native::wire
