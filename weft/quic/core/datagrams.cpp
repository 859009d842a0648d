#include <algorithm>
#include <format>

#include <weft/quic/core/connection_impl.hpp>

namespace weft::quic::core::detail {

// DATAGRAM frames (RFC 9221) and their bounded queues.

namespace {
constexpr std::size_t datagram_queue_bytes = 1024 * 1024;
constexpr std::size_t datagram_queue_count = 1024;
}  // namespace

std::size_t connection_impl::max_datagram() const noexcept {
  if (!native_) return 0;
  const auto* peer = ngtcp2_conn_get_remote_transport_params2(native_);
  if (!peer || peer->max_datagram_frame_size == 0) return 0;
  // RFC 9221 §4, RFC 9000 §17.3.1: type, length up to 4 bytes | flags, id, packet number, tag.
  const std::size_t frame = 1 + 4;
  const std::size_t packet = 1 + ngtcp2_conn_get_dcid2(native_)->datalen + 4 + 16;
  const std::size_t fits = ngtcp2_conn_get_path_max_tx_udp_payload_size2(native_) - packet - frame;
  const std::uint64_t peer_takes =
      peer->max_datagram_frame_size > frame ? peer->max_datagram_frame_size - frame : 0;
  return static_cast<std::size_t>(std::min<std::uint64_t>(fits, peer_takes));
}

result<> connection_impl::send_datagram(slice payload) {
  if (!native_) return fail(errc::closed, layer::quic, "the connection has ended");
  const std::size_t most = max_datagram();
  if (most == 0) return fail(errc::unsupported, layer::quic, "the peer takes no datagrams");
  if (payload.size() > most)
    return fail(
        errc::too_large, layer::quic,
        std::format("a datagram carries at most {} bytes now, not {}", most, payload.size()));
  if (datagrams_out_.size() >= datagram_queue_count ||
      datagrams_out_size_ + payload.size() > datagram_queue_bytes) {
    want_datagram_room_ = true;
    return fail(errc::exhausted, layer::quic, "the datagram queue is full; wait for datagram_room");
  }
  datagrams_out_size_ += payload.size();
  datagrams_out_.push_back(std::move(payload));
  make_dirty();
  return {};
}

void connection_impl::on_datagram(bytes payload) {
  while (!datagrams_in_.empty() && (datagrams_in_.size() >= datagram_queue_count ||
                                    datagrams_in_size_ + payload.size() > datagram_queue_bytes)) {
    datagrams_in_size_ -= datagrams_in_.front().size();
    datagrams_in_.pop_front();
    ++counters_.datagrams_dropped;
  }
  datagrams_in_.push_back(slice::copy(payload));
  datagrams_in_size_ += payload.size();
  signal(kind::datagram);
}

std::optional<slice> connection_impl::read_datagram() {
  if (datagrams_in_.empty()) return std::nullopt;
  slice payload = std::move(datagrams_in_.front());
  datagrams_in_.pop_front();
  datagrams_in_size_ -= payload.size();
  return payload;
}

}  // namespace weft::quic::core::detail
