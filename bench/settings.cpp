#include "settings.hpp"

#include <malloc.h>

#include <cstdio>

namespace weft::bench {

quic::transport_options transport_settings(bool ethernet_datagrams) {
  using namespace std::chrono_literals;
  quic::transport_options options;
  options.idle_timeout = 10min;  // a variant waits while the others have their turn
  if (ethernet_datagrams) options.max_udp_payload = ethernet_payload;
  return options;
}

rpc::limits limit_settings() {
  rpc::limits limits;
  limits.max_message = std::size_t{4} << 20;
  return limits;
}

void keep_freed_memory() noexcept {
  constexpr int gib = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, gib);
  mallopt(M_TRIM_THRESHOLD, gib);
}

int report_failure(const error& failure) {
  std::fprintf(stderr, "weft-bench: %s\n", failure.to_string().c_str());
  return 1;
}

}  // namespace weft::bench
