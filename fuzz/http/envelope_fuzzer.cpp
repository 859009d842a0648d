// Links: weft_rpc_http_wire weft_rpc_core
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <weft/rpc/core/compression.hpp>
#include <weft/rpc/http/wire/envelope.hpp>

// First byte: the compression, and how the input is split. Both ways of splitting must agree.

namespace {

using namespace weft;
using namespace weft::rpc::http::wire;

constexpr std::size_t limit = 64 * 1024;

struct outcome {
  std::size_t envelopes = 0, content = 0, plain = 0;
  bool failed = false, at_boundary = false;
  friend bool operator==(const outcome&, const outcome&) = default;
};

outcome parse(rpc::compression algorithm, bytes input, std::size_t step) {
  memory_budget budget;
  outcome seen;
  {
    envelope_parser parser{limit, &budget};
    while (!input.empty() && !seen.failed) {
      const std::size_t count = std::min(step, input.size());
      if (!parser.push(slice::copy(input.first(count)))) __builtin_trap();
      input = input.subspan(count);
      while (true) {
        auto next = parser.next();
        seen.failed = !next;
        if (!next || !*next) break;
        ++seen.envelopes;
        seen.content += (*next)->content.size();
        if ((*next)->content.size() > limit) __builtin_trap();
        if (((*next)->flags & flag_compressed) == 0) continue;
        auto plain = rpc::decompress(algorithm, (*next)->content, limit);
        if (plain && plain->size() > limit) __builtin_trap();
        if (plain) seen.plain += plain->size();
      }
    }
    seen.at_boundary = !seen.failed && parser.at_boundary();
  }
  if (budget.used() != 0) __builtin_trap();
  return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto algorithm = static_cast<rpc::compression>(data[0] & 3);
  const bytes input{reinterpret_cast<const std::byte*>(data) + 1, size - 1};
  const outcome whole = parse(algorithm, input, size);
  if (!(parse(algorithm, input, 1 + (data[0] >> 2)) == whole)) __builtin_trap();
  return 0;
}
