#pragma once

// Internal to weft: the two users of TLS (QUIC and TCP) build their handshakes from here. It shows
// OpenSSL's types, so no public header may include it.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <openssl/ssl.h>

#include <weft/tls/credentials.hpp>
#include <weft/tls/openssl.hpp>

namespace weft::tls {

/// TLS 1.3 only. The contexts keep everything they need alive themselves and may be shared by
/// threads; `key_log` and session hooks are then called from each of them.
///
/// With `early_data`, OpenSSL's own replay protection is off (tickets stay stateless and are usable
/// on every shard): whoever reads early data must restrict it to idempotent work.
result<std::shared_ptr<SSL_CTX>> make_server_context(const server_options& options);
result<std::shared_ptr<SSL_CTX>> make_client_context(const client_options& options);

/// Readies one client handshake: SNI, the name or address to verify, ALPN. `options` must be those
/// `ssl`'s context was made from; `host` is what was dialled and yields to `options.server_name`.
result<void> prepare_client(SSL* ssl, const client_options& options, std::string_view host);

/// `hook` sees every session (ticket) a server of this client context sends; the session is the
/// caller's to keep only by SSL_SESSION_up_ref or `serialize_session`. Set before any handshake.
void on_new_session(SSL_CTX* context, std::function<void(SSL*, SSL_SESSION*)> hook);

/// What a finished handshake agreed on.
session_info describe(SSL* ssl);
/// Fails when this side wanted an application protocol and none was agreed on. Call once the
/// handshake is done (a server refuses earlier by itself).
result<void> require_alpn(SSL* ssl, std::string_view peer);

/// Turns a failed handshake (or a fatal alert after it) into one error for a person. Consumes this
/// thread's OpenSSL error queue. `peer` names the other side in the text. `received` is the alert
/// the peer sent, where the caller knows it (QUIC's 0x100 + alert); over TCP it is noticed here.
error handshake_error(SSL* ssl, std::string_view peer, std::optional<std::uint8_t> received = {});

/// A session for later resumption, also by another process. Holds secrets.
std::vector<std::uint8_t> serialize_session(SSL_SESSION* session);
result<session_ptr> parse_session(std::span<const std::uint8_t> text);

namespace detail {

/// Lives in the SSL_CTX.
struct context_state {
  bool server = false;
  std::vector<std::string> alpn;
  std::string groups;
  std::optional<trust> peer_trust;
  std::function<void(std::string_view)> key_log;
  std::function<void(SSL*, SSL_SESSION*)> new_session;
};

/// Lives in the SSL: what happened during one handshake, for the error text.
struct handshake_notes {
  std::string host;             ///< client: the name or address verified
  std::string offered_alpn;     ///< server: what the client offered
  std::string peer_problem;     ///< why we turned the peer's certificate down
  std::uint8_t alert_sent = 0;  ///< 0: none (a close_notify is not noted)
  std::uint8_t alert_received = 0;
};

context_state* state_of(SSL_CTX* context) noexcept;
handshake_notes* notes_of(SSL* ssl) noexcept;
/// Makes `context` its state. Throws bad_alloc.
context_state& attach_state(SSL_CTX* context);
/// SSL_CTX_set_cert_verify_callback: checks by the context's trust and notes the reason.
int verify_peer(X509_STORE_CTX* store, void*) noexcept;
void watch_alerts(const SSL* ssl, int where, int value) noexcept;
std::string join(const std::vector<std::string>& words);

}  // namespace detail
}  // namespace weft::tls
