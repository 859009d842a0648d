#include <weft/rpc/native/wire/call_parser.hpp>

#include <algorithm>

namespace weft::rpc::native::wire {
namespace {

/// A part of at least this many bytes is shared; smaller ones would pin much larger buffers, and
/// are put together in memory of their own.
constexpr std::size_t share_from = 16 * 1024;
constexpr std::size_t gather_chunk = share_from;

bool is_message(std::uint64_t type) noexcept {
  return type == static_cast<std::uint64_t>(call_frame::message) ||
         type == static_cast<std::uint64_t>(call_frame::compressed_message);
}

bool is_known(std::uint64_t type) noexcept {
  return type <= static_cast<std::uint64_t>(call_frame::status);
}

}  // namespace

bool message_assembly::begin(std::size_t size) {
  reset();
  if (budget_ != nullptr) {
    if (!budget_->try_charge(size)) return false;
    charged_ = size;
  }
  missing_ = size;
  return true;
}

void message_assembly::gather(bytes part) {
  while (!part.empty()) {
    if (gathering_.size() == 0) {
      gathering_ = buffer::allocate(std::min(missing_, gather_chunk));
      gathered_ = 0;
    }
    const std::size_t count = std::min(part.size(), gathering_.size() - gathered_);
    std::memcpy(gathering_.data() + gathered_, part.data(), count);
    gathered_ += count;
    missing_ -= count;
    part = part.subspan(count);
    if (gathered_ < gathering_.size()) continue;
    parts_.append(std::move(gathering_).freeze());
    gathering_ = buffer{};
    gathered_ = 0;
  }
}

void message_assembly::add(slice part) {
  // While a buffer is being filled everything goes there; it is at most one chunk or a small
  // message.
  if (gathering_.size() != 0) {
    const std::size_t count = std::min(part.size(), gathering_.size() - gathered_);
    gather(part.span().first(count));
    part.drop_front(count);
  }
  if (part.empty()) return;
  if (part.size() < share_from) return gather(part);
  missing_ -= part.size();
  parts_.append(std::move(part));
}

payload message_assembly::take() {
  payload whole = std::exchange(parts_, payload{});
  reset();
  return whole;
}

void message_assembly::reset() noexcept {
  parts_ = payload{};
  gathering_ = buffer{};
  gathered_ = missing_ = 0;
  if (charged_ != 0) budget_->release(std::exchange(charged_, 0));
}

slice call_parser::take(std::uint64_t most) noexcept {
  const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(most, input_.size()));
  left_ -= size;
  if (size == input_.size()) return std::exchange(input_, slice{});
  return input_.take_front(size);
}

weft::result<bool> call_parser::read_head() {
  while (true) {
    const std::size_t type_size = head_size_ == 0 ? 1 : varint_length(head_[0]);
    const std::size_t wanted =
        head_size_ <= type_size ? type_size + 1 : type_size + varint_length(head_[type_size]);
    if (head_size_ > type_size && head_size_ == wanted) break;
    if (input_.empty()) return false;
    head_[head_size_++] = *input_.data();
    input_.drop_front(1);
  }
  type_ = decode_varint(head_.data());
  left_ = decode_varint(head_.data() + varint_length(head_[0]));
  head_size_ = 0;
  if (auto admitted = admit(); !admitted) return std::unexpected{std::move(admitted).error()};
  in_frame_ = true;
  return true;
}

/// Judges a frame by its type and declared length, before anything is kept of it.
weft::result<> call_parser::admit() {
  if (!is_known(type_)) return {};
  if (stage_ == stage::done) return unexpected("a frame after the end of the call");
  const auto type = static_cast<call_frame>(type_);
  if (is_message(type_)) {
    if (from_ == side::client && stage_ == stage::start)
      return unexpected("a message before the call's header");
    stage_ = stage::messages;
    wants_algorithm_ = type == call_frame::compressed_message;
    algorithm_ = compression::identity;
    if (wants_algorithm_ && left_ == 0) return malformed("a compressed message without algorithm");
    const std::uint64_t size = left_ - (wants_algorithm_ ? 1 : 0);
    if (size > limits_.max_message)
      return wire_error(errc::too_large, error_code::too_large,
                        "a message of " + std::to_string(size) + " bytes exceeds the limit of " +
                            std::to_string(limits_.max_message));
    return {};
  }
  if (type == call_frame::header && stage_ != stage::start)
    return unexpected("a header after the call's start");
  if (type == call_frame::status && from_ == side::client)
    return unexpected("a status from a client");
  if (left_ > limits_.max_metadata + header_allowance)
    return wire_error(errc::too_large, error_code::too_large,
                      "a header of " + std::to_string(left_) + " bytes exceeds the limit of " +
                          std::to_string(limits_.max_metadata + header_allowance));
  block_.clear();
  return {};
}

call_parser::outcome call_parser::next() {
  while (true) {
    if (!in_frame_) {
      auto head = read_head();
      if (!head) return std::unexpected{std::move(head).error()};
      if (!*head) return at_end();
    }
    outcome event;
    if (is_message(type_)) {
      event = read_message();
    } else if (is_known(type_)) {
      event = read_block();
    } else {
      (void)take(left_);
      in_frame_ = left_ != 0;
      if (!in_frame_) continue;
    }
    if (!event || *event) return event;
    if (in_frame_) return at_end();
  }
}

call_parser::outcome call_parser::at_end() {
  if (!finished_ || ended_) return std::nullopt;
  ended_ = true;
  if (in_frame_ || head_size_ != 0) return malformed("the call's stream ended inside a frame");
  if (from_ == side::server) {
    if (stage_ != stage::done) return malformed("the server ended the call without a status");
    return std::nullopt;
  }
  if (stage_ == stage::start) return malformed("the call's stream ended before its header");
  stage_ = stage::done;
  return call_end{};
}

call_parser::outcome call_parser::read_block() {
  slice part = take(left_);
  if (left_ == 0 && block_.empty()) {
    in_frame_ = false;
    held_ = std::move(part);
    return decode_block(held_);
  }
  block_.insert(block_.end(), part.data(), part.data() + part.size());
  if (left_ != 0) return std::nullopt;
  in_frame_ = false;
  return decode_block(block_);
}

call_parser::outcome call_parser::decode_block(bytes content) {
  const auto wrap = [](auto decoded) -> outcome {
    if (!decoded) return std::unexpected{std::move(decoded).error()};
    return call_event{std::move(*decoded)};
  };
  if (static_cast<call_frame>(type_) == call_frame::status) {
    stage_ = stage::done;
    return wrap(decode_status(content, limits_.max_metadata));
  }
  stage_ = stage::messages;
  if (from_ == side::client) return wrap(decode_request(content, limits_.max_metadata));
  auto headers = decode_headers(content, limits_.max_metadata);
  if (!headers) return std::unexpected{std::move(headers).error()};
  return call_event{received_headers{std::move(*headers)}};
}

call_parser::outcome call_parser::read_message() {
  if (wants_algorithm_) {
    if (input_.empty()) return std::nullopt;
    const auto number = std::to_integer<std::uint64_t>(*take(1).data());
    if (number == 0 || number > static_cast<std::uint64_t>(compression::br))
      return wire_error(errc::unsupported, error_code::malformed,
                        "compression algorithm " + std::to_string(number) + " is not known");
    algorithm_ = static_cast<compression>(number);
    wants_algorithm_ = false;
  }
  if (!assembling_ && left_ <= input_.size()) {
    in_frame_ = false;
    return call_event{received_message{payload{take(left_)}, algorithm_}};
  }
  if (!assembling_) {
    if (!assembly_.begin(static_cast<std::size_t>(left_)))
      return wire_error(errc::exhausted, error_code::excessive_load,
                        "no memory left for a message of " + std::to_string(left_) + " bytes");
    assembling_ = true;
  }
  if (slice part = take(left_); !part.empty()) assembly_.add(std::move(part));
  if (left_ != 0) return std::nullopt;
  assembling_ = in_frame_ = false;
  return call_event{received_message{assembly_.take(), algorithm_}};
}

}  // namespace weft::rpc::native::wire
