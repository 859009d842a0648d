#include <format>

#include <openssl/err.h>

#include <weft/tls/context.hpp>

namespace weft::tls {
namespace {

// RFC 8446 §6. The names are what other people's logs say.
std::string alert_name(std::uint8_t alert) {
  std::string name = SSL_alert_desc_string_long(alert);
  if (alert == SSL_AD_NO_APPLICATION_PROTOCOL) name = "no application protocol";
  if (alert == 116) name = "certificate required";
  if (name == "unknown" || name.empty()) return std::format("alert {}", alert);
  return std::format("{} (alert {})", name, alert);
}

std::string hint(SSL* ssl, std::uint8_t alert) {
  const auto* state = detail::state_of(SSL_get_SSL_CTX(ssl));
  switch (alert) {
    case SSL_AD_NO_APPLICATION_PROTOCOL:
      return std::format("; it speaks none of ours (ALPN): {}", detail::join(state->alpn));
    case SSL_AD_PROTOCOL_VERSION:
      return "; it lacks TLS 1.3, and weft speaks nothing older";
    case SSL_AD_HANDSHAKE_FAILURE:
      return std::format(
          "; perhaps it has none of our groups {} or does not accept our certificate",
          state->groups);
    case 116:
      return "; it wants a client certificate: set client_options::identity";
    case SSL_AD_UNKNOWN_CA:
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
    case SSL_AD_CERTIFICATE_UNKNOWN:
    case SSL_AD_CERTIFICATE_EXPIRED:
      return std::format("; it does not accept our certificate{}",
                         state->server ? "" : " (client_options::identity)");
    default:
      return "";
  }
}

/// What this side found wrong, from the reason codes in OpenSSL's queue. Empty: nothing known.
std::string own_reason(SSL* ssl, int reason, const detail::handshake_notes& notes) {
  const auto* state = detail::state_of(SSL_get_SSL_CTX(ssl));
  switch (reason) {
    case SSL_R_NO_APPLICATION_PROTOCOL:
      return std::format("offers ALPN {}, but this server speaks {}", notes.offered_alpn,
                         detail::join(state->alpn));
    case SSL_R_CALLBACK_FAILED:
      return std::format("offers no ALPN protocol, but this server wants one of {}",
                         detail::join(state->alpn));
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return "showed no client certificate";
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_VERSION_TOO_LOW:
      return "speaks only versions older than TLS 1.3";
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
      return "sent plain HTTP to a TLS port";
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_DATA_LENGTH_TOO_LONG:
    case SSL_R_ENCRYPTED_LENGTH_TOO_LONG:
    case SSL_R_UNEXPECTED_MESSAGE:
    case SSL_R_RECORD_LENGTH_MISMATCH:
      return "sent something that is not TLS";
    case SSL_R_NO_SUITABLE_KEY_SHARE:
    case SSL_R_NO_SUITABLE_GROUPS:
    case SSL_R_NO_SHARED_GROUPS:
      return std::format("has none of our key-exchange groups {}", state->groups);
    case SSL_R_NO_SHARED_CIPHER:
      return "has none of our cipher suites";
    case SSL_R_UNEXPECTED_EOF_WHILE_READING:
      return "closed the connection during the handshake";
    default:
      return "";
  }
}

}  // namespace

error handshake_error(SSL* ssl, std::string_view peer, std::optional<std::uint8_t> received) {
  static const detail::handshake_notes nothing;
  const unsigned long first = ERR_peek_error();
  const int reason = ERR_GET_LIB(first) == ERR_LIB_SSL ? ERR_GET_REASON(first) : 0;
  const auto* noted = detail::notes_of(ssl);
  const auto& notes = noted ? *noted : nothing;
  if (!received && notes.alert_received != 0) received = notes.alert_received;
  if (!received && reason > SSL_AD_REASON_OFFSET && reason < SSL_AD_REASON_OFFSET + 256)
    received = static_cast<std::uint8_t>(reason - SSL_AD_REASON_OFFSET);

  if (!notes.peer_problem.empty()) {
    ERR_clear_error();
    return error{errc::tls, layer::tls, notes.peer_problem, notes.alert_sent};
  }
  if (received) {
    ERR_clear_error();
    return error{errc::tls, layer::tls,
                 std::format("{} ended the TLS connection: {}{}", peer, alert_name(*received),
                             hint(ssl, *received)),
                 *received};
  }
  if (const std::string why = own_reason(ssl, reason, notes); !why.empty()) {
    ERR_clear_error();
    return error{errc::tls, layer::tls, std::format("{} {}", peer, why), notes.alert_sent};
  }
  const error rest = queue_error(errc::tls, std::format("TLS with {} failed", peer));
  return error{errc::tls, layer::tls, rest.message(), notes.alert_sent};
}

namespace detail {

void watch_alerts(const SSL* ssl, int where, int value) noexcept {
  if ((where & SSL_CB_ALERT) == 0) return;
  auto* notes = notes_of(const_cast<SSL*>(ssl));
  const auto alert = static_cast<std::uint8_t>(value & 0xff);
  if (!notes || alert == SSL_AD_CLOSE_NOTIFY || alert == SSL_AD_USER_CANCELLED) return;
  ((where & SSL_CB_READ) != 0 ? notes->alert_received : notes->alert_sent) = alert;
}

}  // namespace detail
}  // namespace weft::tls
