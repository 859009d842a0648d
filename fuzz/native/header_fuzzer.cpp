// Links: weft_rpc_native_wire weft_rpc_core
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include <weft/rpc/native/wire/header.hpp>

// The contents of HEADER and STATUS frames. What was understood, encoded again, is understood the
// same.
//
// Input: one byte (bits 0-1: what it is, the rest how much metadata is allowed), and the content.

namespace {

using namespace weft;
using namespace weft::rpc;
using namespace weft::rpc::native::wire;

void expect(bool holds) {
  if (!holds) std::abort();
}

/// Encodes into exactly the room that `size` promises and gives the frame's content.
template <class Encode>
std::vector<std::byte> content_of(std::size_t size, call_frame type, Encode encode) {
  std::vector<std::byte> frame(size);
  expect(encode(frame.data()) == frame.data() + size);
  cursor in{frame};
  expect(in.varint() == static_cast<std::uint64_t>(type));
  const bytes content = in.sized();
  expect(!in.failed() && in.at_end());
  return {content.begin(), content.end()};
}

void request(bytes input, std::size_t limit) {
  const auto read = decode_request(input, limit);
  if (!read) return;
  expect(read->metadata.wire_size() <= limit && read->urgency <= 7);
  expect(read->method.number != 0 || !read->method.path.empty());
  const request_header header{read->method, read->remaining, read->urgency, &read->metadata};
  const auto content = content_of(encoded_size(header), call_frame::header,
                                  [&](std::byte* to) { return encode(header, to); });
  const auto again = decode_request(content, limit);
  expect(again.has_value());
  expect(again->method.number == read->method.number && again->method.path == read->method.path);
  expect(again->remaining == read->remaining && again->urgency == read->urgency);
  expect(again->metadata == read->metadata);
}

void headers(bytes input, std::size_t limit) {
  const auto read = decode_headers(input, limit);
  if (!read) return;
  expect(read->wire_size() <= limit);
  const auto content = content_of(encoded_size_of_headers(*read), call_frame::header,
                                  [&](std::byte* to) { return encode_headers(*read, to); });
  expect(decode_headers(content, limit) == *read);
}

void ending(bytes input, std::size_t limit) {
  const auto read = decode_status(input, limit);
  if (!read) return;
  expect(read->trailers.wire_size() <= limit);
  const auto content =
      content_of(encoded_size(read->status, read->trailers), call_frame::status,
                 [&](std::byte* to) { return encode(read->status, read->trailers, to); });
  const auto again = decode_status(content, limit);
  expect(again && again->status == read->status && again->trailers == read->trailers);
  expect(!again->unseen);
  const status cut = fitted(read->status, read->trailers, limit);
  expect(encoded_size(cut, read->trailers) <= limit + header_allowance + 2 * max_varint_size);
}

void refusal(bytes input, std::size_t limit) {
  const auto read = decode_status(input, limit);
  if (!read || read->status.ok()) return;
  const status bare{read->status.code(), read->status.message()};
  const auto content = content_of(encoded_size_of_refusal(bare), call_frame::status,
                                  [&](std::byte* to) { return encode_refusal(bare, to); });
  const auto again = decode_status(content, limit);
  expect(again && again->unseen && again->status == bare && again->trailers.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const bytes content = std::as_bytes(std::span{data, size}).subspan(1);
  const std::size_t limit = std::size_t{data[0]} >> 2 << 5;
  switch (data[0] & 3) {
    case 0:
      request(content, limit);
      break;
    case 1:
      headers(content, limit);
      break;
    case 2:
      ending(content, limit);
      break;
    default:
      refusal(content, limit);
  }
  return 0;
}
