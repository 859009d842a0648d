// Links: weft_rpc_http_wire weft_rpc_core
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <weft/rpc/http/wire/error_json.hpp>

// Errors and ends of streams. What was understood is understood the same when it is said again.

using namespace weft::rpc;
using namespace weft::rpc::http::wire;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  if (const auto failure = error_from_json(text, code::unknown)) {
    if (failure->ok()) __builtin_trap();
    if (error_from_json(error_to_json(*failure), code::ok) != *failure) __builtin_trap();
  }
  if (const auto end = end_from_json(text)) {
    const auto again = end_from_json(end_to_json(end->status, end->trailers));
    if (!again || again->status != end->status) __builtin_trap();
    if (again->trailers.wire_size() != end->trailers.wire_size()) __builtin_trap();
  }
  return 0;
}
