#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <weft/quic/core/options.hpp>
#include <weft/sim/link.hpp>
#include <weft/sim/plan.hpp>

namespace weft::sim {

/// What a simulated network does to its traffic.
enum class trouble : std::uint8_t {
  none,
  loss,
  bursts,
  reordering,
  duplication,
  corruption,
  rebinding,
  blackout,
  small_mtu,
  ecn_marks,
  narrow,     ///< low rate, short queue
  migration,  ///< the client moves to another address by itself
  forgery,    ///< somebody on the way copies datagrams from addresses of his own
  everything,
};
inline constexpr std::size_t trouble_kinds = 14;
std::string_view to_string(trouble kind) noexcept;

/// How a connection comes to its end.
enum class ending : std::uint8_t {
  orderly,    ///< all traffic done, windows proven whole, then closed
  abrupt,     ///< one side closes in the middle
  vanishing,  ///< the client is gone without a word
};

/// Everything about one run that is not drawn while it runs.
struct scenario {
  trouble kind = trouble::none;
  ending end = ending::orderly;
  std::size_t clients = 1;
  bool ipv6 = false;
  link_options to_server;
  link_options to_client;
  quic::transport_options client;
  quic::transport_options server;
  duration wake_late{};
  bool coalesce = true;
  bool retry = false;  ///< the server validates every address first
  traffic_options traffic;
  std::vector<duration> rebindings;  ///< after the handshake
  std::vector<duration> migrations;
  std::vector<std::pair<duration, duration>> blackouts;  ///< start and length
};

/// The scenario of `kind` that `source` determines.
scenario draw_scenario(random& source, trouble kind);

}  // namespace weft::sim
