#include <weft/tls/random.hpp>

#include <algorithm>
#include <climits>
#include <format>

#include <openssl/rand.h>

#include <weft/tls/openssl.hpp>

namespace weft::tls {
namespace {

bool library_fill(mutable_bytes out) noexcept {
  while (!out.empty()) {
    const std::size_t part = std::min<std::size_t>(out.size(), INT_MAX);
    auto* target = reinterpret_cast<unsigned char*>(out.data());
    if (RAND_bytes(target, static_cast<int>(part)) != 1) return false;
    out = out.subspan(part);
  }
  return true;
}

}  // namespace

random_source::random_source() noexcept : fill_{library_fill} {}

result<> random_source::fill(mutable_bytes out) const {
  if (fill_(out)) return {};
  std::ranges::fill(out, std::byte{0});
  return fail_queue(errc::random, std::format("the random source gave no {} bytes", out.size()));
}

result<> fill_random(mutable_bytes out) {
  return random_source{}.fill(out);
}

}  // namespace weft::tls
