#include <weft/rpc/native/wire/record.hpp>

#include <algorithm>

namespace weft::rpc::native::wire {

weft::result<bool> record_parser::read_head() {
  std::size_t length_size = 0;
  while (true) {
    length_size = head_size_ == 0 ? 1 : varint_length(head_[0]);
    const std::size_t wanted = head_size_ <= length_size
                                   ? length_size + 1
                                   : length_size + varint_length(head_[length_size]);
    if (head_size_ == length_size) {
      // Judged before the tag is waited for: an empty record has none.
      const std::uint64_t length = decode_varint(head_.data());
      if (length == 0) return malformed("a record without a tag");
      if (length > limit_)
        return wire_error(errc::too_large, error_code::too_large,
                          "a record of " + std::to_string(length) + " bytes, the limit is " +
                              std::to_string(limit_));
    }
    if (head_size_ > length_size && head_size_ == wanted) break;
    if (input_.empty()) return false;
    head_[head_size_++] = *input_.data();
    input_.drop_front(1);
  }
  const std::size_t tag_size = head_size_ - length_size;
  const std::uint64_t length = decode_varint(head_.data());
  const std::uint64_t tag = decode_varint(head_.data() + length_size);
  if (tag_size > length) return malformed("a record is shorter than its tag");
  tag_ = {tag >> 2, (tag & 2) != 0, (tag & 1) != 0};
  left_ = length - tag_size;
  head_size_ = 0;
  in_piece_ = first_ = true;
  return true;
}

weft::result<std::optional<record_part>> record_parser::next() {
  if (!in_piece_) {
    auto head = read_head();
    if (!head) return std::unexpected{std::move(head).error()};
    if (!*head) return std::nullopt;
  } else if (input_.empty()) {
    return std::nullopt;
  }
  const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(left_, input_.size()));
  left_ -= size;
  record_part part{tag_, input_.take_front(size), first_, left_ == 0};
  if (input_.empty()) input_ = {};
  first_ = false;
  in_piece_ = left_ != 0;
  return part;
}

}  // namespace weft::rpc::native::wire
