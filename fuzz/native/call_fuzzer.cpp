// Links: weft_rpc_native_wire weft_rpc_core
#include <cstddef>
#include <cstdint>
#include <string>

#include <weft/rpc/core/compression.hpp>
#include <weft/rpc/native/wire/call_parser.hpp>

// First byte: bit 0 whose direction, the rest how the input is split. Both ways of splitting must
// agree.

namespace {

using namespace weft;
using namespace weft::rpc::native::wire;

constexpr parse_limits limits{.max_message = 64 * 1024, .max_metadata = 4 * 1024};

struct outcome {
  std::size_t events = 0;
  std::string messages;
  bool failed = false;
  friend bool operator==(const outcome&, const outcome&) = default;
};

outcome parse(call_parser::side from, bytes input, std::size_t step) {
  memory_budget budget{256 * 1024};
  call_parser parser{from, limits, &budget};
  outcome seen;
  const auto drain = [&] {
    while (!seen.failed) {
      auto event = parser.next();
      if (!event) {
        seen.failed = true;
        break;
      }
      if (!*event) break;
      ++seen.events;
      if (auto* m = std::get_if<received_message>(&**event)) {
        seen.messages += m->content.flatten().text();
        if (m->content.size() > limits.max_message) __builtin_trap();
        if (m->algorithm != rpc::compression::identity) {
          auto plain = rpc::decompress(m->algorithm, m->content, limits.max_message);
          if (plain && plain->size() > limits.max_message) __builtin_trap();
        }
      }
    }
  };
  while (!input.empty() && !seen.failed) {
    const std::size_t count = std::min(step, input.size());
    parser.push(slice::copy(input.first(count)));
    input = input.subspan(count);
    drain();
  }
  parser.finish();
  drain();
  return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto from = data[0] & 1 ? call_parser::side::server : call_parser::side::client;
  const bytes input{reinterpret_cast<const std::byte*>(data) + 1, size - 1};
  const outcome whole = parse(from, input, size);
  if (!(parse(from, input, 1 + (data[0] >> 1)) == whole)) __builtin_trap();
  return 0;
}
