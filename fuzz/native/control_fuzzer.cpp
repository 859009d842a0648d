// Links: weft_rpc_native_wire weft_rpc_core
#include <cstddef>
#include <cstdint>

#include <weft/rpc/native/wire/control.hpp>

// First byte: how the input is split. Both ways of splitting must agree; what parses must encode.

namespace {

using namespace weft;
using namespace weft::rpc::native::wire;

std::pair<std::size_t, bool> parse(bytes input, std::size_t step) {
  control_parser parser;
  std::size_t events = 0;
  std::vector<std::byte> again;
  while (!input.empty()) {
    const std::size_t count = std::min(step, input.size());
    parser.push(input.first(count));
    input = input.subspan(count);
    while (true) {
      auto event = parser.next();
      if (!event) return {events, false};
      if (!*event) break;
      ++events;
      append(again, **event);
    }
  }
  return {events, true};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const bytes input{reinterpret_cast<const std::byte*>(data) + 1, size - 1};
  if (parse(input, size) != parse(input, 1 + data[0])) __builtin_trap();
  return 0;
}
