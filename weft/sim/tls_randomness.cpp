// RAND_METHOD is deprecated in favour of providers, but it is the one seam that is asked first by
// every part of the library, needs no provider of our own, and can fall back per thread.
#define OPENSSL_SUPPRESS_DEPRECATED

#include <weft/sim/tls_randomness.hpp>

#include <openssl/rand.h>

#include <utility>

namespace weft::sim {
namespace {

thread_local random* current = nullptr;

int draw(unsigned char* out, int size) {
  if (!current) return RAND_OpenSSL()->bytes(out, size);
  current->fill({reinterpret_cast<std::byte*>(out), static_cast<std::size_t>(size)});
  return 1;
}

int status() {
  return 1;
}

const RAND_METHOD method{nullptr, draw, nullptr, nullptr, draw, status};

}  // namespace

tls_randomness::tls_randomness(random& source) : outer_{std::exchange(current, &source)} {
  static const int installed = RAND_set_rand_method(&method);
  (void)installed;
}

tls_randomness::~tls_randomness() {
  current = outer_;
}

}  // namespace weft::sim
