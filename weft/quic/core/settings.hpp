// Internal.
#pragma once

#include <ngtcp2/ngtcp2.h>

#include <vector>

#include <weft/quic/core/native.hpp>
#include <weft/quic/core/options.hpp>

namespace weft::quic::core::detail {

/// UDP payload sizes to look for on `where`, ascending. Empty: stay at 1200.
std::vector<std::uint16_t> mtu_probes(const transport_options& options, const path& where);

/// `probes` must live until the connection is made, which copies them.
ngtcp2_settings make_settings(const transport_options& options,
                              const std::vector<std::uint16_t>& probes, time_point now);
/// `window`: the connection window to begin with.
ngtcp2_transport_params make_params(const transport_options& options, std::uint64_t window);

}  // namespace weft::quic::core::detail
