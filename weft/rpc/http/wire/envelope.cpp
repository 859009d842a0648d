#include <weft/rpc/http/wire/envelope.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace weft::rpc::http::wire {

std::byte* write_envelope_head(std::byte* to, std::uint8_t flags, std::size_t size) noexcept {
  *to++ = std::byte{flags};
  for (int shift = 24; shift >= 0; shift -= 8) *to++ = static_cast<std::byte>(size >> shift);
  return to;
}

envelope_parser::~envelope_parser() {
  release(charged_);
}

void envelope_parser::release(std::size_t count) noexcept {
  if (memory_ == nullptr) return;
  memory_->release(count);
  charged_ -= count;
}

result<> envelope_parser::push(slice arrived) {
  if (arrived.empty()) return {};
  if (memory_ != nullptr) {
    if (!memory_->try_charge(arrived.size()))
      return fail(code::resource_exhausted,
                  "the memory for messages under assembly is used up; try again later");
    charged_ += arrived.size();
  }
  held_ += arrived.size();
  parts_.push_back(std::move(arrived));
  return {};
}

/// Takes flags and length from the front. Precondition: they are there.
bool envelope_parser::read_head() {
  std::uint32_t size = 0;
  std::uint8_t flags = 0;
  for (std::size_t i = 0; i < envelope_head; ++i) {
    const auto byte = static_cast<std::uint8_t>(*parts_.front().data());
    parts_.front().drop_front(1);
    if (parts_.front().empty()) parts_.pop_front();
    if (i == 0)
      flags = byte;
    else
      size = size << 8 | byte;
  }
  held_ -= envelope_head;
  release(memory_ ? envelope_head : 0);
  if (size > limit_) {
    failed_ = status{code::resource_exhausted, "a message of " + std::to_string(size) +
                                                   " bytes exceeds the limit of " +
                                                   std::to_string(limit_)};
    return false;
  }
  current_.emplace(envelope{flags, {}});
  missing_ = size;
  return true;
}

result<std::optional<envelope>> envelope_parser::next() {
  if (failed_) return std::unexpected{*failed_};
  if (!current_) {
    if (held_ < envelope_head) return std::optional<envelope>{};
    if (!read_head()) return std::unexpected{*failed_};
  }
  while (missing_ != 0 && !parts_.empty()) {
    slice& front = parts_.front();
    const std::size_t count = std::min(front.size(), missing_);
    held_ -= count;
    missing_ -= count;
    if (count == front.size()) {
      current_->content.append(parts_.pop_front());
    } else {
      current_->content.append(front.take_front(count));
    }
  }
  if (missing_ != 0) return std::optional<envelope>{};
  if (memory_ != nullptr) release(current_->content.size());
  return std::exchange(current_, std::nullopt);
}

}  // namespace weft::rpc::http::wire
