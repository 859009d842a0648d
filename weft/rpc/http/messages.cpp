#include <weft/rpc/http/messages.hpp>

#include <algorithm>
#include <limits>
#include <utility>

namespace weft::rpc::http {
namespace {

constexpr std::size_t largest = std::numeric_limits<std::uint32_t>::max();

std::unexpected<status> beyond_envelopes() {
  return fail(code::resource_exhausted, "a message of 4 GiB or more cannot be sent");
}

void append(frame_buffer& to, framing frame, std::uint8_t flags, bytes content, std::size_t spare) {
  const std::size_t head = frame == framing::envelope ? wire::envelope_head : 0;
  std::byte* at = to.reserve(head + content.size() + spare);
  if (head != 0) at = wire::write_envelope_head(at, flags, content.size());
  if (!content.empty()) std::memcpy(at, content.data(), content.size());
  to.commit(at + content.size());
}

}  // namespace

result<compression> append_bytes(frame_buffer& to, bytes content, framing frame, std::uint8_t flags,
                                 compression algorithm, std::size_t spare, std::size_t least) {
  if (content.size() > largest) return beyond_envelopes();
  if (algorithm != compression::identity && content.size() >= least) {
    auto packed = compress(algorithm, content);
    if (!packed) return std::unexpected{std::move(packed).error()};
    if (packed->size() < content.size() || least == 0) {
      append(to, frame, flags | wire::flag_compressed, *packed, spare);
      return algorithm;
    }
  }
  append(to, frame, flags, content, spare);
  return compression::identity;
}

result<compression> append_message(frame_buffer& to, const outgoing& message, rpc::codec codec,
                                   framing frame, compression algorithm, std::size_t spare,
                                   std::size_t least) {
  if (codec == rpc::codec::json) {
    auto text = message.json();
    if (!text) return std::unexpected{std::move(text).error()};
    return append_bytes(to, as_bytes(*text), frame, 0, algorithm, spare, least);
  }
  const std::size_t size = message.size();
  if (size > largest) return beyond_envelopes();
  if (algorithm != compression::identity && size >= least) {
    buffer plain = buffer::allocate(size);
    message.write_to(plain.data());
    return append_bytes(to, plain.span(), frame, 0, algorithm, spare, least);
  }
  // Straight into its place.
  const std::size_t head = frame == framing::envelope ? wire::envelope_head : 0;
  std::byte* at = to.reserve(head + size + spare);
  if (head != 0) at = wire::write_envelope_head(at, 0, size);
  message.write_to(at);
  to.commit(at + size);
  return compression::identity;
}

result<payload> unpack(payload content, bool compressed, compression algorithm, std::size_t limit) {
  if (compressed && algorithm == compression::identity)
    return fail(code::internal,
                "a message says that it is compressed, but the call names no compression");
  if (!compressed || content.empty()) {
    if (content.size() <= limit) return content;
    return fail(code::resource_exhausted, "a message of " + std::to_string(content.size()) +
                                              " bytes exceeds the limit of " +
                                              std::to_string(limit));
  }
  auto plain = decompress(algorithm, content, limit);
  if (!plain) return std::unexpected{std::move(plain).error()};
  return payload{std::move(*plain)};
}

result<> whole_body::append(slice content) {
  if (content.size() > limit_ - std::min(limit_, kept_.size()))
    return fail(code::resource_exhausted,
                "the message exceeds the limit of " + std::to_string(limit_) + " bytes");
  if (memory_ != nullptr) {
    if (!memory_->try_charge(content.size()))
      return fail(code::resource_exhausted,
                  "the memory for messages under assembly is used up; try again later");
    charged_ += content.size();
  }
  kept_.append(std::move(content));
  return {};
}

payload whole_body::take() noexcept {
  release();
  return std::exchange(kept_, payload{});
}

void whole_body::release() noexcept {
  if (charged_ != 0) memory_->release(std::exchange(charged_, 0));
}

status status_of(const error& failure) {
  if (failure.code() == errc::refused)
    return {code::unavailable,
            "the call was not looked at and can safely be retried: " + failure.message()};
  const bool of_stream = failure.where() == layer::stream || failure.where() == layer::http;
  const bool given_up = failure.code() == errc::reset || failure.code() == errc::stopped;
  if (!of_stream || !given_up) return to_status(failure);
  switch (static_cast<weft::http::give_up>(failure.detail())) {
    case weft::http::give_up::rejected:
      return {code::unavailable,
              "the peer rejected the call without looking at it; it can safely be retried"};
    case weft::http::give_up::cancelled:
      return {code::cancelled, "the peer cancelled the call"};
    case weft::http::give_up::excessive_load:
      return {code::resource_exhausted, "the peer gave the call up: excessive load"};
    default:
      return {code::internal, "the peer gave the call up: " + failure.message()};
  }
}

}  // namespace weft::rpc::http
