#pragma once

#include <weft/tls/credentials.hpp>

namespace weft::sim {

/// A server's identity for simulations: the same key and certificate, byte for byte, in every run
/// (a fresh one would vary in size), valid from 2020 to 2099 for "localhost". Made once a process.
/// Its private key can be computed by anyone.
const tls::credentials& test_identity();
/// Trust in `test_identity()` and nobody else.
const tls::trust& test_trust();

}  // namespace weft::sim
