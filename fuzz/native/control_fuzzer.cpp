// Links: weft_rpc_native_wire weft_rpc_core
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <weft/rpc/native/wire/control.hpp>

// First byte: how the input is split. Both ways of splitting must agree; what was understood,
// encoded again, is understood the same.

namespace {

using namespace weft;
using namespace weft::rpc::native::wire;

struct outcome {
  std::vector<control_event> events;
  bool failed = false;
  friend bool operator==(const outcome&, const outcome&) = default;
};

outcome parse(bytes input, std::size_t step) {
  control_parser parser;
  outcome seen;
  while (!input.empty()) {
    const std::size_t count = std::min(step, input.size());
    parser.push(input.first(count));
    input = input.subspan(count);
    while (true) {
      auto event = parser.next();
      seen.failed = !event;
      if (seen.failed) return seen;
      if (!*event) break;
      seen.events.push_back(std::move(**event));
    }
  }
  return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const bytes input{reinterpret_cast<const std::byte*>(data) + 1, size - 1};
  const outcome seen = parse(input, size);
  if (!(parse(input, 1 + data[0]) == seen)) __builtin_trap();
  std::vector<std::byte> again;
  for (const auto& event : seen.events) append(again, event);
  if (parse(again, size).events != seen.events) __builtin_trap();
  return 0;
}
