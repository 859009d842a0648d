#include <algorithm>
#include <array>
#include <chrono>
#include <format>

#include <weft/quic/core/connection_impl.hpp>

namespace weft::quic::core::detail {

// How a connection ends, and what is said about it.

namespace {

std::string list_of(std::span<const std::uint32_t> versions) {
  std::string text;
  for (const auto version : versions)
    text += std::format("{}{:#x}", text.empty() ? "" : ", ", version);
  return text;
}

}  // namespace

void connection_impl::fail_library(int code, time_point now) {
  if (code == NGTCP2_ERR_CLOSING) return;
  if (code == NGTCP2_ERR_DRAINING) return end(explain_peer_close(), {}, true, now);
  const bool silent =
      code == NGTCP2_ERR_IDLE_CLOSE || code == NGTCP2_ERR_DROP_CONN || code == NGTCP2_ERR_RETRY;
  error why = explain(code);
  if (silent) return end(std::move(why), {}, false, now);
  ngtcp2_ccerr native;
  ngtcp2_ccerr_default(&native);
  if (code == NGTCP2_ERR_CRYPTO)
    ngtcp2_ccerr_set_tls_alert(&native, ngtcp2_conn_get_tls_alert2(native_), nullptr, 0);
  else
    ngtcp2_ccerr_set_liberr(&native, code, nullptr, 0);
  auto packet = closing_packet(native, now);
  end(std::move(why), std::move(packet), true, now);
}

error connection_impl::explain(int code) {
  switch (code) {
    case NGTCP2_ERR_IDLE_CLOSE:
      return {errc::timed_out, layer::quic, std::format("nothing heard from {}", peer_)};
    case NGTCP2_ERR_HANDSHAKE_TIMEOUT:
      return {errc::timed_out, layer::quic,
              std::format("no complete handshake with {} within {}", peer_,
                          std::chrono::duration_cast<std::chrono::milliseconds>(
                              options_.handshake_timeout))};
    case NGTCP2_ERR_CRYPTO:
      return tls::handshake_error(tls_.ssl(), peer_);
    case NGTCP2_ERR_RECV_VERSION_NEGOTIATION:
    case NGTCP2_ERR_VERSION_NEGOTIATION_FAILURE:
      return explain_versions();
    case NGTCP2_ERR_NOMEM:
      return {errc::exhausted, layer::quic, "out of memory"};
    case NGTCP2_ERR_CALLBACK_FAILURE:
      if (random_failed_)
        return {errc::random, layer::quic, "the random source failed; the connection was given up"};
      if (memory_failed_) return {errc::exhausted, layer::quic, "out of memory"};
      return {errc::internal, layer::quic, "a QUIC callback failed"};
    case NGTCP2_ERR_NO_VIABLE_PATH:
      return {errc::unreachable, layer::quic, std::format("no path to {} works any more", peer_)};
    case NGTCP2_ERR_DROP_CONN:
    case NGTCP2_ERR_RETRY:
      return {errc::protocol, layer::quic, std::format("{} sent an unusable Initial", peer_)};
    default:
      break;
  }
  return {errc::protocol, layer::quic,
          std::format("{} broke the protocol: {}", peer_, ngtcp2_strerror(code)),
          ngtcp2_err_infer_quic_transport_error_code(code)};
}

void connection_impl::note_versions(std::span<const std::uint32_t> offered) {
  // Reserved ones (RFC 9000 §15) say nothing, and the list is as long as a datagram lets it be.
  offered_versions_.clear();
  for (const auto version : offered)
    if ((version & 0x0f0f0f0f) != 0x0a0a0a0a && offered_versions_.size() < 8)
      offered_versions_.push_back(version);
}

/// A connection is not begun anew with a version that both know (docs/decisions/0004).
error connection_impl::explain_versions() const {
  const auto known = supported_versions();
  const bool common =
      std::ranges::find_first_of(offered_versions_, known) != offered_versions_.end();
  return {
      errc::unsupported, layer::quic,
      std::format("{} {}; it offers {}, wanted is one of {}", peer_,
                  common ? std::format("takes no connection that begins with QUIC version {:#x}",
                                       known.front())
                         : "speaks none of the QUIC versions this side does",
                  offered_versions_.empty() ? "none" : list_of(offered_versions_), list_of(known))};
}

error connection_impl::explain_peer_close() {
  if (stateless_reset_)
    return {errc::reset, layer::quic,
            std::format("{} knows nothing of this connection any more", peer_)};
  const auto* why = ngtcp2_conn_get_ccerr2(native_);
  const std::string said =
      why->reasonlen
          ? std::format(": {}", std::string_view{reinterpret_cast<const char*>(why->reason),
                                                 why->reasonlen})
          : "";
  const std::uint64_t code = why->error_code;
  if (why->type == NGTCP2_CCERR_TYPE_APPLICATION) {
    if (code == 0) return {errc::closed, layer::quic, std::format("{} closed{}", peer_, said)};
    return {errc::reset, layer::quic, std::format("{} closed with code {}{}", peer_, code, said),
            code};
  }
  if (code == NGTCP2_NO_ERROR)
    return {errc::closed, layer::quic, std::format("{} closed{}", peer_, said)};
  if (code == NGTCP2_CONNECTION_REFUSED || code == NGTCP2_INVALID_TOKEN)
    return {errc::refused, layer::quic, std::format("{} refuses connections{}", peer_, said), code};
  if ((code & ~std::uint64_t{0xff}) == NGTCP2_CRYPTO_ERROR)
    return tls::handshake_error(tls_.ssl(), peer_, static_cast<std::uint8_t>(code));
  return {errc::protocol, layer::quic,
          std::format("{} gave up with transport error {:#x}{}", peer_, code, said), code};
}

std::vector<std::uint8_t> connection_impl::closing_packet(const ngtcp2_ccerr& why, time_point now) {
  std::vector<std::uint8_t> packet(NGTCP2_MAX_UDP_PAYLOAD_SIZE);
  ngtcp2_pkt_info info;
  const auto write = [&] {
    return ngtcp2_conn_write_connection_close(native_, nullptr, &info, packet.data(), packet.size(),
                                              &why, stamp(now));
  };
  auto size = write();
  // An error of our own may have come in the middle of a packet, where the library aborts when it
  // is given one to read.
  const bool ours =
      why.type == NGTCP2_CCERR_TYPE_TRANSPORT && why.error_code == NGTCP2_INTERNAL_ERROR;
  if (size == NGTCP2_ERR_NOBUF && server_ && !ours) {
    // An unproven path lets nothing out now, yet later datagrams will allow an answer, which has to
    // be written while there are keys. To the library this is a datagram that it cannot read.
    static constexpr std::array<std::uint8_t, NGTCP2_MAX_UDP_PAYLOAD_SIZE> nothing{};
    const native_path where{named(path_)};
    ngtcp2_conn_read_pkt(native_, where.get(), nullptr, nothing.data(), nothing.size(), stamp(now));
    size = write();
    close_held_ = true;
  }
  packet.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return packet;
}

/// The one way a connection ends. `linger`: its ids answer or swallow late packets for 3 PTO.
void connection_impl::end(error why, std::vector<std::uint8_t> packet, bool linger,
                          time_point now) {
  if (!native_) return;
  counters_ = stats();
  counters_.send_buffered = counters_.receive_buffered = 0;
  reason_ = std::move(why);
  if (handshake_counted_ && !handshake_complete_) {
    --hub_.stats.handshakes;
    ++hub_.stats.handshakes_failed;
  }
  const auto pto = from_native_duration(ngtcp2_conn_get_pto2(native_));
  if (!packet.empty() && !close_held_) {
    auto& on_path = stats_of(path_);
    ++on_path.datagrams_sent;
    on_path.bytes_sent += packet.size();
  }
  hub_.timers.erase(*this);
  lists_.dirty.erase(*this);
  for (const auto& token : reset_tokens_) hub_.reset_routes.erase(token);
  reset_tokens_.clear();
  hub_.bury(*this, std::move(packet), linger ? now + 3 * pto : time_point{});
  end_streams();
  tls_.reset();
  ngtcp2_conn_del(std::exchange(native_, nullptr));
  datagrams_out_.clear();
  more_ = false;
  stash_.clear();
  state_ = state_ == state::closing ? state::closing : state::closed;
  if (announced_)
    signal(kind::closed);
  else
    lists_.ended.push_back(*this);
}

void connection_impl::close(std::uint64_t application_code, std::string_view reason,
                            time_point now) {
  if (!native_) return;
  state_ = state::closing;
  reason = reason.substr(0, 512);
  ngtcp2_ccerr why;
  ngtcp2_ccerr_set_application_error(
      &why, application_code, reinterpret_cast<const std::uint8_t*>(reason.data()), reason.size());
  auto packet = closing_packet(why, now);
  end(error{errc::closed, layer::quic, "closed by this side", application_code}, std::move(packet),
      true, now);
}

}  // namespace weft::quic::core::detail
