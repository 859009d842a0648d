// Links: weft_rpc_http_wire weft_rpc_core
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <weft/rpc/http/wire/encodings.hpp>
#include <weft/rpc/http/wire/fields.hpp>
#include <weft/rpc/http/wire/media_type.hpp>
#include <weft/rpc/http/wire/percent.hpp>
#include <weft/rpc/http/wire/timeout.hpp>

// Short texts of a peer's: content types, timeouts, lists, queries, metadata. Lines are
// "name:value".

namespace {

using namespace weft;
using namespace weft::rpc::http::wire;

void read_fields(std::string_view text) {
  http::field_list fields;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const auto colon = line.find(':');
    if (colon != line.npos) (void)fields.add(line.substr(0, colon), line.substr(colon + 1));
  }
  rpc::metadata headers, trailers;
  if (!read_metadata(headers, fields, 1000, "trailer-")) return;
  if (!read_prefixed(trailers, fields, 1000, "trailer-")) return;
  http::field_list again;
  append_metadata(again, headers);
  rpc::metadata same;
  if (!read_metadata(same, again, 4000)) __builtin_trap();
  if (same.size() != headers.size()) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  (void)parse_media_type(text);
  if (const auto timeout = parse_grpc_timeout(text))
    if (const auto again = parse_grpc_timeout(grpc_timeout(*timeout)); !again) __builtin_trap();
  if (const auto timeout = parse_connect_timeout(text))
    if (!parse_connect_timeout(connect_timeout(*timeout))) __builtin_trap();
  (void)parse_accepted(text, rpc::available_compressions());
  if (decode_message(encode_message(text)) != text) __builtin_trap();
  if (decode_query(encode_query(text)) != text) __builtin_trap();
  (void)decode_message(text);
  (void)find_query(text, "message");
  read_fields(text);
  return 0;
}
