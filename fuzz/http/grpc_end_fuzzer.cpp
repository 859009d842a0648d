// Links: weft_rpc_grpc
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <weft/rpc/grpc/status_fields.hpp>
#include <weft/rpc/grpc/text_form.hpp>

#include "../feeder.hpp"

// How a peer says that a gRPC call ended: gRPC-Web's lines of trailers, google.rpc.Status, and the
// text form around it all. The first byte chooses.

namespace {

using namespace weft;
using namespace weft::rpc::grpc;

void read_block(std::string_view block) {
  const auto fields = from_block(block);
  if (!fields) return;
  const auto again = from_block(to_block(*fields));
  if (!again || again->size() != fields->size()) __builtin_trap();
  const auto status = read_status(*fields);
  if (!status) return;
  http::field_list written;
  append_status(written, *status);
  if (read_status(written) != *status) __builtin_trap();
}

void read_details(std::string_view encoded) {
  const auto status = decode_details(encoded);
  if (status && decode_details(encode_details(*status)) != *status) __builtin_trap();
}

/// However text is cut, it means the same.
void read_text(fuzz::feeder& input) {
  text_decoder whole, cut;
  const std::size_t step = input.byte() + std::size_t{1};
  std::string all, joined;
  while (!input.empty()) {
    const bytes piece = input.take(step);
    all += as_text(piece);
    const auto part = cut.decode(piece);
    if (!part) return;
    joined += part->text();
  }
  const auto decoded = whole.decode(as_bytes(all));
  if (!decoded || decoded->text() != joined) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::feeder input{bytes{reinterpret_cast<const std::byte*>(data), size}};
  const auto choice = input.byte() % 3;
  if (choice == 2) {
    read_text(input);
    return 0;
  }
  const std::string_view text = as_text(input.take(size));
  if (choice == 0)
    read_block(text);
  else
    read_details(text);
  return 0;
}
