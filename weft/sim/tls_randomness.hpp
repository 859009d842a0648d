#pragma once

#include <weft/sim/random.hpp>

namespace weft::sim {

/// While one lives, the TLS library draws this thread's random numbers (keys, nonces, salts) from
/// `source`: signatures then have the same length in every run, and a run can be repeated exactly.
/// Nests. Other threads are untouched. For tests only: nothing made meanwhile is secret.
class tls_randomness {
 public:
  explicit tls_randomness(random& source);
  tls_randomness(const tls_randomness&) = delete;
  tls_randomness& operator=(const tls_randomness&) = delete;
  ~tls_randomness();

 private:
  random* outer_;
};

}  // namespace weft::sim
