#include <weft/rpc/native/wire/header.hpp>

#include <algorithm>

namespace weft::rpc::native::wire {
namespace {

constexpr std::uint8_t default_urgency = 3;
constexpr std::size_t unseen_size = 2;  // an empty field

std::size_t metadata_size(const metadata& m) noexcept {
  std::size_t size = 0;
  for (const auto& [key, value] : m) size += sized_size(key.size()) + sized_size(value.size());
  return size;
}

std::size_t field_size(field id, std::size_t content) noexcept {
  return varint_size(static_cast<std::uint64_t>(id)) + sized_size(content);
}

std::size_t metadata_field_size(const metadata* m) noexcept {
  return m == nullptr || m->empty() ? 0 : field_size(field::metadata, metadata_size(*m));
}

void put_metadata_field(sink& out, const metadata* m) noexcept {
  if (m == nullptr || m->empty()) return;
  out.varint(static_cast<std::uint64_t>(field::metadata)).varint(metadata_size(*m));
  for (const auto& [key, value] : *m) out.sized(key).sized(value);
}

/// Microseconds, rounded up so that a deadline is never shortened on its way.
std::uint64_t microseconds(duration remaining) noexcept {
  if (remaining <= duration::zero()) return 0;
  return static_cast<std::uint64_t>(
      std::chrono::ceil<std::chrono::microseconds>(remaining).count());
}

/// `total`: the wire size of `into`, so that repeated fields cannot exceed the limit together. It
/// is kept, not counted anew: a frame has room for many fields that add nothing.
weft::result<> read_metadata(bytes content, std::size_t limit, metadata& into, std::size_t& total) {
  cursor in{content};
  while (!in.at_end()) {
    const bytes key = in.sized();
    const bytes value = in.sized();
    if (in.failed()) return malformed("a metadata entry exceeds its field");
    total += key.size() + value.size() + 32;
    if (total > limit)
      return wire_error(errc::too_large, error_code::too_large,
                        "metadata exceeds the limit of " + std::to_string(limit) + " bytes");
    // `add` would lower a key: on the wire it must be so already.
    if (!is_valid_key(as_text(key))) return malformed("a metadata key that must not travel");
    if (auto added = into.add(as_text(key), as_text(value)); !added)
      return malformed("metadata that must not travel: " + added.error().message());
  }
  return {};
}

weft::result<status_detail> read_detail(bytes content) {
  cursor in{content};
  const bytes type = in.sized();
  if (in.failed()) return malformed("a status detail exceeds its field");
  return status_detail{std::string{as_text(type)}, std::string{as_text(in.take(in.left()))}};
}

/// Calls `use(id, content)` for every field until one fails. Unknown ones are the callee's to skip.
template <class Use>
weft::result<> each_field(cursor& in, Use use) {
  while (!in.at_end()) {
    const std::uint64_t id = in.varint();
    const bytes content = in.sized();
    if (in.failed()) return malformed("a header field exceeds its frame");
    if (auto used = use(static_cast<field>(id), content); !used) return used;
  }
  return {};
}

weft::result<std::uint64_t> only_varint(bytes content, const char* what) {
  cursor in{content};
  const std::uint64_t value = in.varint();
  if (in.failed() || !in.at_end()) return malformed(std::string{what} + " is not one integer");
  return value;
}

std::size_t method_size(const method_reference& m) noexcept {
  const std::size_t path = m.path.empty() ? 0 : sized_size(m.path.size());
  return varint_size(m.number * 2 + (m.path.empty() || m.number == 0 ? 0 : 1)) + path;
}

std::size_t content_size(const request_header& h) noexcept {
  std::size_t size = method_size(h.method) + metadata_field_size(h.metadata);
  if (h.remaining) size += field_size(field::deadline, varint_size(microseconds(*h.remaining)));
  if (h.urgency != default_urgency) size += field_size(field::urgency, 1);
  return size;
}

std::size_t frame_size(call_frame type, std::size_t content) noexcept {
  return varint_size(static_cast<std::uint64_t>(type)) + sized_size(content);
}

void put_frame(sink& out, call_frame type, std::size_t content) noexcept {
  out.varint(static_cast<std::uint64_t>(type)).varint(content);
}

std::size_t detail_size(const status_detail& d) noexcept {
  return sized_size(d.type.size()) + d.value.size();
}

std::size_t content_size(const status& s, const metadata& trailers) noexcept {
  if (s.ok() && s.message().empty() && s.details().empty() && trailers.empty()) return 0;
  std::size_t size = varint_size(static_cast<std::uint64_t>(s.code())) +
                     sized_size(s.message().size()) + metadata_field_size(&trailers);
  for (const auto& d : s.details()) size += field_size(field::detail, detail_size(d));
  return size;
}

weft::result<method_reference> read_method(cursor& in) {
  const std::uint64_t reference = in.varint();
  if (in.failed()) return malformed("a request header without a method");
  method_reference method{reference / 2, {}};
  if (reference != 0 && reference % 2 == 0) return method;
  if (reference == 1) return malformed("method number 0 cannot be given");
  method.path = as_text(in.sized());
  if (in.failed()) return malformed("a method path exceeds its frame");
  if (method.path.size() > max_path)
    return wire_error(errc::too_large, error_code::too_large, "a method path is too long");
  if (method.path.empty() || method.path.front() != '/')
    return malformed("a method path must start with a slash");
  return method;
}

}  // namespace

std::size_t encoded_size(const request_header& header) noexcept {
  return frame_size(call_frame::header, content_size(header));
}

std::byte* encode(const request_header& h, std::byte* target) noexcept {
  sink out{target};
  put_frame(out, call_frame::header, content_size(h));
  const bool inline_path = !h.method.path.empty();
  out.varint(h.method.number * 2 + (inline_path && h.method.number != 0 ? 1 : 0));
  if (inline_path) out.sized(h.method.path);
  if (h.remaining) {
    const std::uint64_t left = microseconds(*h.remaining);
    out.varint(static_cast<std::uint64_t>(field::deadline)).varint(varint_size(left)).varint(left);
  }
  if (h.urgency != default_urgency)
    out.varint(static_cast<std::uint64_t>(field::urgency)).varint(1).varint(h.urgency & 7);
  put_metadata_field(out, h.metadata);
  return out.position();
}

weft::result<received_request> decode_request(bytes content, std::size_t max_metadata) {
  cursor in{content};
  received_request request;
  std::size_t held = 0;
  auto method = read_method(in);
  if (!method) return std::unexpected{std::move(method).error()};
  request.method = *method;
  auto fields = each_field(in, [&](field id, bytes value) -> weft::result<> {
    if (id == field::metadata) return read_metadata(value, max_metadata, request.metadata, held);
    if (id != field::deadline && id != field::urgency) return {};
    auto number = only_varint(value, "a header field");
    if (!number) return std::unexpected{std::move(number).error()};
    if (id == field::urgency) {
      request.urgency = static_cast<std::uint8_t>(std::min<std::uint64_t>(*number, 7));
    } else {
      // A century is as good as no deadline, and far from overflowing.
      constexpr std::uint64_t century = std::uint64_t{100} * 365 * 86400 * 1'000'000;
      if (*number <= century)
        request.remaining = std::chrono::microseconds{static_cast<std::int64_t>(*number)};
    }
    return {};
  });
  if (!fields) return std::unexpected{std::move(fields).error()};
  return request;
}

std::size_t encoded_size_of_headers(const metadata& headers) noexcept {
  return frame_size(call_frame::header, metadata_field_size(&headers));
}

std::byte* encode_headers(const metadata& headers, std::byte* target) noexcept {
  sink out{target};
  put_frame(out, call_frame::header, metadata_field_size(&headers));
  put_metadata_field(out, &headers);
  return out.position();
}

weft::result<metadata> decode_headers(bytes content, std::size_t max_metadata) {
  cursor in{content};
  metadata headers;
  std::size_t held = 0;
  auto fields = each_field(in, [&](field id, bytes value) -> weft::result<> {
    if (id == field::metadata) return read_metadata(value, max_metadata, headers, held);
    return {};
  });
  if (!fields) return std::unexpected{std::move(fields).error()};
  return headers;
}

std::size_t encoded_size(const status& s, const metadata& trailers) noexcept {
  return frame_size(call_frame::status, content_size(s, trailers));
}

std::byte* encode(const status& s, const metadata& trailers, std::byte* target) noexcept {
  sink out{target};
  const std::size_t content = content_size(s, trailers);
  put_frame(out, call_frame::status, content);
  if (content == 0) return out.position();
  out.varint(static_cast<std::uint64_t>(s.code())).sized(s.message());
  for (const auto& d : s.details()) {
    out.varint(static_cast<std::uint64_t>(field::detail)).varint(detail_size(d));
    out.sized(d.type).raw(as_bytes(d.value));
  }
  put_metadata_field(out, &trailers);
  return out.position();
}

namespace {

/// Without details, and with its code and message even where they are those of a mere OK.
std::size_t refusal_size(const status& s) noexcept {
  return varint_size(static_cast<std::uint64_t>(s.code())) + sized_size(s.message().size()) +
         unseen_size;
}

}  // namespace

std::size_t encoded_size_of_refusal(const status& s) noexcept {
  return frame_size(call_frame::status, refusal_size(s));
}

std::byte* encode_refusal(const status& s, std::byte* target) noexcept {
  sink out{target};
  put_frame(out, call_frame::status, refusal_size(s));
  out.varint(static_cast<std::uint64_t>(s.code())).sized(s.message());
  out.varint(static_cast<std::uint64_t>(field::unseen)).varint(0);
  return out.position();
}

status fitted(status s, const metadata& trailers, std::size_t max_metadata) {
  const std::size_t limit = max_metadata + header_allowance;
  if (content_size(s, trailers) <= limit) return s;
  status bare{s.code(), s.message()};
  const std::size_t size = content_size(bare, trailers);
  if (size <= limit) return bare;
  const std::size_t excess = size - limit;
  std::string text = s.message();
  text.resize(text.size() > excess ? text.size() - excess : 0);
  return status{s.code(), std::move(text)};
}

weft::result<received_status> decode_status(bytes content, std::size_t max_metadata) {
  received_status received;
  if (content.empty()) return received;
  cursor in{content};
  const std::uint64_t number = in.varint();
  const bytes text = in.sized();
  if (in.failed()) return malformed("a status exceeds its frame");
  std::vector<status_detail> details;
  std::size_t held = 0;
  auto fields = each_field(in, [&](field id, bytes value) -> weft::result<> {
    if (id == field::metadata) return read_metadata(value, max_metadata, received.trailers, held);
    if (id == field::unseen) received.unseen = true;
    if (id != field::detail) return {};
    auto detail = read_detail(value);
    if (!detail) return std::unexpected{std::move(detail).error()};
    details.push_back(std::move(*detail));
    return {};
  });
  if (!fields) return std::unexpected{std::move(fields).error()};
  received.status =
      status{code_from_number(number), std::string{as_text(text)}, std::move(details)};
  return received;
}

}  // namespace weft::rpc::native::wire
