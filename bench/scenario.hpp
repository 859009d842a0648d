#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace weft::bench {

/// How the same RPC code reaches the server.
enum class variant : std::uint8_t {
  quic,  ///< the native protocol, as the next three
  lanes,
  quic_one_stream,
  tls_tcp,
  grpc_h3,
  connect_h3,
  grpc_h2,  ///< over TLS/TCP
};

inline constexpr std::array all_variants{
    variant::quic,    variant::lanes,      variant::quic_one_stream, variant::tls_tcp,
    variant::grpc_h3, variant::connect_h3, variant::grpc_h2};
std::string_view to_string(variant v) noexcept;
bool speaks_http(variant v) noexcept;

enum class load : std::uint8_t {
  bulk,     ///< one client-streaming call, as fast as it goes
  unary,    ///< echo, `in_flight` at a time, closed loop
  one_way,  ///< calls without reply, as fast as they go
  bidi,     ///< a bidirectional stream of 5 000 messages and their echoes, one after another
};

struct scenario {
  std::string_view name;
  bench::load load;
  std::size_t message;  ///< bytes of a message's body
  unsigned in_flight;
  bool ethernet_datagrams;  ///< UDP payload held at 1 452 bytes; otherwise discovered
  std::string_view what;    ///< for people
};

std::span<const scenario> all_scenarios() noexcept;
/// Lanes exist for small unary and one-way calls only; HTTP runs in the cases of other systems.
bool applies(const scenario& s, variant v) noexcept;

}  // namespace weft::bench
