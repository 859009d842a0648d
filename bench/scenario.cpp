#include "scenario.hpp"

namespace weft::bench {
namespace {

constexpr std::size_t kib = 1024, mib = 1024 * kib;

constexpr std::array scenarios{
    scenario{"bulk-1452", load::bulk, 64 * kib, 1, true, "one stream, 1 452-byte datagrams"},
    scenario{"bulk-discovered", load::bulk, 64 * kib, 1, false, "one stream, path MTU discovered"},
    scenario{"unary-1k-c1", load::unary, kib, 1, false, "1 KiB echo, 1 in flight"},
    scenario{"unary-1k-c4", load::unary, kib, 4, false, "1 KiB echo, 4 in flight"},
    scenario{"unary-1k-c16", load::unary, kib, 16, false, "1 KiB echo, 16 in flight"},
    scenario{"unary-1k-c64", load::unary, kib, 64, false, "1 KiB echo, 64 in flight"},
    scenario{"unary-1k-c256", load::unary, kib, 256, false, "1 KiB echo, 256 in flight"},
    scenario{"unary-64k-c1", load::unary, 64 * kib, 1, false, "64 KiB echo, 1 in flight"},
    scenario{"unary-64k-c4", load::unary, 64 * kib, 4, false, "64 KiB echo, 4 in flight"},
    scenario{"unary-2m-c8", load::unary, 2 * mib, 8, false, "2 MiB echo, 8 in flight"},
    scenario{"oneway-1k", load::one_way, kib, 1, false, "1 KiB, no reply"},
};

}  // namespace

std::string_view to_string(variant v) noexcept {
  switch (v) {
    case variant::quic:
      return "quic";
    case variant::lanes:
      return "lanes";
    case variant::quic_one_stream:
      return "quic-one-stream";
    case variant::tls_tcp:
      return "tls-tcp";
  }
  return "unknown";
}

std::span<const scenario> all_scenarios() noexcept {
  return scenarios;
}

bool applies(const scenario& s, variant v) noexcept {
  if (v != variant::lanes) return true;
  return s.load == load::unary && s.message <= kib;
}

}  // namespace weft::bench
