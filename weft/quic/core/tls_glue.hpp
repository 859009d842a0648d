// Internal.
#pragma once

#include <ngtcp2/ngtcp2_crypto.h>
#include <ngtcp2/ngtcp2_crypto_ossl.h>
#include <openssl/ssl.h>

#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <weft/quic/core/options.hpp>
#include <weft/quic/core/packet_protection.hpp>
#include <weft/tls/context.hpp>

namespace weft::quic::core::detail {

class connection_impl;

/// What the functions that TLS calls work on; it stays in its place.
struct tls_exchange {
  ngtcp2_crypto_conn_ref* reference = nullptr;  ///< null: the connection is going away
  bool fast = true;                             ///< see endpoint_options::fast_protection
  int fast_directions = 0;                      ///< how many got fast keys
  ngtcp2_encryption_level sending = NGTCP2_ENCRYPTION_LEVEL_INITIAL;
  /// Handshake bytes in order. The first `lent` pieces are TLS's to read until it gives them back.
  std::deque<std::vector<std::uint8_t>> received;
  std::size_t lent = 0;
  std::size_t given_back = 0;  ///< bytes of the first piece
};

/// The TLS half of one connection. The protocol library drives it through `native()`.
class tls_session {
 public:
  tls_session() = default;
  tls_session(tls_session&& other) noexcept;
  tls_session& operator=(tls_session&& other) noexcept;
  ~tls_session() { reset(); }

  /// `reference` finds the connection again from inside TLS; it must outlive the session.
  static result<tls_session> client(SSL_CTX* context, const tls::client_options& options,
                                    std::string_view host, bool fast_protection,
                                    ngtcp2_crypto_conn_ref* reference);
  /// Tickets are good only for connections with the same `limits` (RFC 9001 §4.6.1: a server may
  /// not lower what a client remembers).
  static result<tls_session> server(SSL_CTX* context, bool early_data,
                                    std::span<const std::uint8_t> limits, bool fast_protection,
                                    ngtcp2_crypto_conn_ref* reference);

  SSL* ssl() const noexcept { return ssl_; }
  void* native() const noexcept { return native_; }
  /// Handshake bytes from the peer, in order, for TLS to read when it is driven next.
  void receive(std::span<const std::uint8_t> data);
  /// Which kind of AES may protect packets by `quicken`; none where it must not.
  aes fast_cipher() const noexcept;
  int fast_directions() const noexcept { return exchange_ ? exchange_->fast_directions : 0; }
  /// Before the protocol library's connection is deleted.
  void reset() noexcept;

 private:
  static result<tls_session> make(SSL_CTX* context, bool fast_protection,
                                  ngtcp2_crypto_conn_ref* reference);

  SSL* ssl_ = nullptr;
  std::unique_ptr<tls_exchange> exchange_;
  ngtcp2_crypto_ossl_ctx* native_ = nullptr;
};

/// What `quic::resumption` holds.
struct resumption_parts {
  std::vector<std::uint8_t> session;
  std::vector<std::uint8_t> params;  ///< the server's transport parameters
  std::vector<std::uint8_t> token;   ///< from NEW_TOKEN

  resumption pack() const;
  /// Anything that is not a packed one gives empty parts: resumption is only an optimisation.
  static resumption_parts unpack(const resumption& packed);
};

/// One-time preparation of the crypto library; safe to repeat.
result<> prepare_crypto();

}  // namespace weft::quic::core::detail
