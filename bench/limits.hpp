#pragma once

#include <functional>
#include <string>

#include <weft/base/error.hpp>
#include <weft/base/time.hpp>

#include "statistics.hpp"

namespace weft::bench {

struct limit_plan {
  unsigned repetitions = 5;
  duration measured{};
  int sender_cpu = 0, receiver_cpu = 1;
};

/// What this machine gives without RPC, measured in the same run: UDP trains with segmentation
/// offload and coalesced receive, one datagram's encryption, and bare TLS 1.3 over TCP. Bytes are
/// confirmed at the receiver.
weft::result<> measure_limits(const limit_plan& what, results& into,
                              const std::function<void(const std::string&)>& tell);

}  // namespace weft::bench
