#include <weft/quic/core/settings.hpp>

#include <algorithm>

#include <weft/quic/core/address_validation.hpp>

namespace weft::quic::core::detail {
namespace {

constexpr std::size_t smallest_payload = NGTCP2_MAX_UDP_PAYLOAD_SIZE;
/// The largest that UDP over IPv6 carries without jumbograms; IPv4 carries 19 bytes more.
constexpr std::size_t largest_payload = 65'488;

ngtcp2_cc_algo native(congestion controller) noexcept {
  switch (controller) {
    case congestion::reno:
      return NGTCP2_CC_ALGO_RENO;
    case congestion::bbr:
      return NGTCP2_CC_ALGO_BBR;
    case congestion::cubic:
      break;
  }
  return NGTCP2_CC_ALGO_CUBIC;
}

}  // namespace

std::vector<std::uint16_t> mtu_probes(const transport_options& options, const path& where) {
  if (!options.path_mtu_discovery) return {};
  const std::size_t limit = std::min(options.max_udp_payload, largest_payload);
  std::vector<std::uint16_t> probes = options.mtu_probes;
  if (probes.empty()) {
    probes = where.remote.is_loopback() ? std::vector<std::uint16_t>{1452, 16'368, 65'488}
                                        : std::vector<std::uint16_t>{1452, 8972};
    // A limit that somebody chose is itself worth a probe.
    if (limit < largest_payload) probes.push_back(static_cast<std::uint16_t>(limit));
  }
  std::ranges::sort(probes);
  const auto [first, last] = std::ranges::unique(probes);
  probes.erase(first, last);
  std::erase_if(probes, [&](auto size) { return size <= smallest_payload || size > limit; });
  return probes;
}

ngtcp2_settings make_settings(const transport_options& options,
                              const std::vector<std::uint16_t>& probes, time_point now) {
  ngtcp2_settings settings;
  ngtcp2_settings_default(&settings);
  settings.initial_ts = to_native(now);
  settings.cc_algo = native(options.controller);
  // The library adds an acknowledgement to a packet only once it is due. So it is due at once, and
  // the connection decides when a packet is written for it alone (connection_impl::may_hold).
  settings.ack_thresh = 1;
  settings.handshake_timeout = options.handshake_timeout > 0s
                                   ? static_cast<ngtcp2_duration>(options.handshake_timeout.count())
                                   : UINT64_MAX;
  settings.no_pmtud = probes.empty();
  settings.max_tx_udp_payload_size = probes.empty() ? smallest_payload : probes.back();
  if (!probes.empty()) {
    settings.pmtud_probes = probes.data();
    settings.pmtud_probeslen = probes.size();
  }
  const auto versions = supported_versions();
  settings.preferred_versions = settings.available_versions = versions.data();
  settings.preferred_versionslen = settings.available_versionslen = versions.size();
  return settings;
}

ngtcp2_transport_params make_params(const transport_options& options, std::uint64_t window) {
  ngtcp2_transport_params params;
  ngtcp2_transport_params_default(&params);
  params.initial_max_data = window;
  params.initial_max_stream_data_bidi_local = options.stream_window;
  params.initial_max_stream_data_bidi_remote = options.stream_window;
  params.initial_max_stream_data_uni = options.stream_window;
  params.initial_max_streams_bidi = options.max_bidi_streams;
  params.initial_max_streams_uni = options.max_uni_streams;
  params.max_idle_timeout =
      static_cast<ngtcp2_duration>(std::max<duration::rep>(options.idle_timeout.count(), 0));
  params.max_udp_payload_size = NGTCP2_DEFAULT_MAX_RECV_UDP_PAYLOAD_SIZE;
  // One in use, spare ones for migrations in a row.
  params.active_connection_id_limit = 4;
  params.max_ack_delay = static_cast<ngtcp2_duration>(
      std::clamp<duration::rep>(options.max_ack_delay.count(), 0, 16'000'000'000));
  params.max_datagram_frame_size = options.max_datagram_frame;
  params.disable_active_migration = options.migration ? 0 : 1;
  return params;
}

}  // namespace weft::quic::core::detail
