// Links: weft_rpc_native_wire weft_rpc_core
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include <weft/rpc/native/wire/control.hpp>

// The content of a SETTINGS frame, put behind a true header so that no input is lost on framing.

namespace {

using namespace weft;
using namespace weft::rpc;
using namespace weft::rpc::native::wire;

void expect(bool holds) {
  if (!holds) std::abort();
}

std::vector<std::byte> frame_of(bytes content) {
  std::vector<std::byte> frame(2 * max_varint_size + content.size());
  sink out{frame.data()};
  out.varint(static_cast<std::uint64_t>(control_frame::settings)).varint(content.size());
  out.raw(content);
  frame.resize(static_cast<std::size_t>(out.position() - frame.data()));
  return frame;
}

weft::result<std::optional<control_event>> read(bytes frame) {
  control_parser parser;
  parser.push(frame);
  auto event = parser.next();
  if (event) expect(*event && std::holds_alternative<settings>(**event) && parser.has_settings());
  return event;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto event = read(frame_of(std::as_bytes(std::span{data, size})));
  if (!event) {
    expect(event.error().code() == errc::protocol || event.error().code() == errc::too_large);
    return 0;
  }
  expect(size <= max_control_payload);
  const auto& s = std::get<settings>(**event);
  expect(s.call_window >= default_window && s.one_way_window >= default_window);
  expect(s.accepts(compression::identity));
  for (const auto each : s.compressions) {
    expect(each != compression::identity && to_string(each) != "unknown");
    expect(std::ranges::count(s.compressions, each) == 1);
  }
  std::vector<std::byte> again;
  append(again, s);
  const auto read_again = read(again);
  expect(read_again && *read_again == *event);
  return 0;
}
