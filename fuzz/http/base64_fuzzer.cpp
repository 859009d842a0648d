// Links: weft_rpc_http_wire weft_rpc_core
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <weft/rpc/http/wire/base64.hpp>

// First byte: the alphabet. The rest is both text to decode and bytes to encode.

using namespace weft;
using namespace weft::rpc::http::wire;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto letters = data[0] & 1 ? alphabet::url : alphabet::standard;
  const std::string_view rest{reinterpret_cast<const char*>(data) + 1, size - 1};
  if (const auto decoded = base64_decode(rest, letters)) {
    const auto again = base64_encode(as_bytes(*decoded), letters);
    if (base64_decode(again, letters) != decoded) __builtin_trap();
  }
  for (const bool padding : {false, true})
    if (base64_decode(base64_encode(as_bytes(rest), letters, padding), letters) != rest)
      __builtin_trap();
  return 0;
}
