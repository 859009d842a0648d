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
    scenario{"bidi-1k", load::bidi, kib, 1, false, "1 KiB messages and echoes, 5 000 a stream"},
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
    case variant::grpc_h3:
      return "grpc-h3";
    case variant::connect_h3:
      return "connect-h3";
    case variant::grpc_h2:
      return "grpc-h2";
  }
  return "unknown";
}

std::span<const scenario> all_scenarios() noexcept {
  return scenarios;
}

bool speaks_http(variant v) noexcept {
  return v == variant::grpc_h3 || v == variant::connect_h3 || v == variant::grpc_h2;
}

bool applies(const scenario& s, variant v) noexcept {
  if (speaks_http(v)) {
    const bool small = s.message == kib && s.in_flight <= 64;
    return s.load == load::bidi || (s.load == load::unary && (small || s.message == 2 * mib));
  }
  if (v != variant::lanes) return true;
  return s.load == load::unary && s.message <= kib;
}

}  // namespace weft::bench
