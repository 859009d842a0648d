// Links: weft_rpc_core
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include <weft/rpc/core/compression.hpp>

#include "../feeder.hpp"

// A compressed message, or a message to compress, in parts of any size and under any limit.
//
// Input: one byte (bits 0-1: algorithm, bit 2: compress the rest first, bit 3: cut off its end),
// three bytes of limit, one byte that draws the sizes of the parts, and the rest.

namespace {

using namespace weft;
using namespace weft::rpc;

payload split(bytes whole, std::uint8_t seed) {
  payload parts;
  std::uint32_t state = seed;
  while (!whole.empty()) {
    state = state * 1'664'525 + 1'013'904'223;
    // Small parts near the front, where headers are; larger ones later, so that it ends.
    const std::size_t wanted = 1 + (state >> 24) % (8 + parts.size());
    const bytes part = whole.first(std::min(wanted, whole.size()));
    parts.append(slice::copy(part));
    whole = whole.subspan(part.size());
  }
  return parts;
}

void expect(bool holds) {
  if (!holds) std::abort();
}

/// What `plain` came from: the same bytes must be enough room for it, and one less must not be.
void check_limits(compression algorithm, const payload& packed, const slice& plain) {
  const auto exact = decompress(algorithm, packed, plain.size());
  expect(exact && exact->text() == plain.text());
  if (plain.empty()) return;
  const auto less = decompress(algorithm, packed, plain.size() - 1);
  expect(!less && less.error().code() == code::resource_exhausted);
}

void receive(compression algorithm, bytes input, std::size_t limit, std::uint8_t seed) {
  const payload whole{slice::copy(input)};
  const payload parts = split(input, seed);
  const auto plain = decompress(algorithm, whole, limit);
  const auto again = decompress(algorithm, parts, limit);
  // libzstd has a decoder for frames in one piece and one for frames in parts, which differ on
  // blocks of no size: no encoder writes those, and they change no content.
  expect(algorithm == compression::zstd || plain.has_value() == again.has_value());
  for (const auto* each : {&plain, &again})
    expect(each->has_value() || each->error().code() == code::internal ||
           each->error().code() == code::resource_exhausted);
  if (!plain || !again) return;
  expect(plain->size() <= limit && plain->text() == again->text());
  check_limits(algorithm, parts, *plain);
}

void send(compression algorithm, bytes message, std::uint8_t seed) {
  const auto packed = compress(algorithm, message);
  expect(packed.has_value());
  const payload parts = split(packed->span(), seed);
  const auto plain = decompress(algorithm, parts, message.size());
  expect(plain && plain->text() == as_text(message));
  check_limits(algorithm, parts, *plain);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::feeder input{std::as_bytes(std::span{data, size})};
  const auto how = input.byte();
  const auto algorithm = static_cast<compression>(how & 3);
  const std::size_t limit = std::size_t{input.word()} * 256 + input.byte();
  const auto seed = input.byte();
  const bytes rest = input.take(size);
  if ((how & 4) == 0) {
    receive(algorithm, rest, limit, seed);
    return 0;
  }
  send(algorithm, rest, seed);
  if ((how & 8) != 0)
    if (const auto packed = compress(algorithm, rest); packed && !packed->empty())
      receive(algorithm, packed->span().first(limit % packed->size()), limit, seed);
  return 0;
}
