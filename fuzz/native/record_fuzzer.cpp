// Links: weft_rpc_native_wire weft_rpc_core
#include <cstddef>
#include <cstdint>

#include <weft/rpc/native/wire/record.hpp>

// First byte: how the input is split. Both ways of splitting must agree.

namespace {

using namespace weft;
using namespace weft::rpc::native::wire;

struct outcome {
  std::size_t records = 0, content = 0;
  bool failed = false;
  friend bool operator==(const outcome&, const outcome&) = default;
};

outcome parse(bytes input, std::size_t step) {
  record_parser parser{4096};
  outcome seen;
  while (!input.empty()) {
    const std::size_t count = std::min(step, input.size());
    parser.push(slice::copy(input.first(count)));
    input = input.subspan(count);
    while (true) {
      auto part = parser.next();
      if (!part) {
        seen.failed = true;
        return seen;
      }
      if (!*part) break;
      seen.records += (*part)->last;
      seen.content += (*part)->bytes.size();
    }
  }
  return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const bytes input{reinterpret_cast<const std::byte*>(data) + 1, size - 1};
  if (!(parse(input, size) == parse(input, 1 + data[0]))) __builtin_trap();
  return 0;
}
