#include <weft/quic/core/tls_glue.hpp>

#include <openssl/core_dispatch.h>
#include <openssl/err.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace weft::quic::core::detail {
namespace {

constexpr std::array<std::uint8_t, 4> magic{'w', 'e', 'f', 1};

void put(std::vector<std::uint8_t>& out, const std::vector<std::uint8_t>& part) {
  const auto size = static_cast<std::uint32_t>(part.size());
  for (int shift = 24; shift >= 0; shift -= 8)
    out.push_back(static_cast<std::uint8_t>(size >> shift));
  out.insert(out.end(), part.begin(), part.end());
}

bool take(std::span<const std::uint8_t>& in, std::vector<std::uint8_t>& part) {
  if (in.size() < 4) return false;
  const std::size_t size = std::size_t{in[0]} << 24 | std::size_t{in[1]} << 16 |
                           std::size_t{in[2]} << 8 | std::size_t{in[3]};
  in = in.subspan(4);
  if (size > in.size()) return false;
  part.assign(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(size));
  in = in.subspan(size);
  return true;
}

aes fast_cipher_of(const tls_exchange& exchange, SSL* ssl) noexcept {
  const auto* agreed = SSL_get_current_cipher(ssl);
  if (!exchange.fast || !agreed) return aes::none;
  switch (SSL_CIPHER_get_cipher_nid(agreed)) {
    case NID_aes_128_gcm:
      return aes::bits_128;
    case NID_aes_256_gcm:
      return aes::bits_256;
    default:
      return aes::none;
  }
}

std::optional<ngtcp2_encryption_level> native_level(std::uint32_t level) noexcept {
  switch (level) {
    case OSSL_RECORD_PROTECTION_LEVEL_NONE:
      return NGTCP2_ENCRYPTION_LEVEL_INITIAL;
    case OSSL_RECORD_PROTECTION_LEVEL_EARLY:
      return NGTCP2_ENCRYPTION_LEVEL_0RTT;
    case OSSL_RECORD_PROTECTION_LEVEL_HANDSHAKE:
      return NGTCP2_ENCRYPTION_LEVEL_HANDSHAKE;
    case OSSL_RECORD_PROTECTION_LEVEL_APPLICATION:
      return NGTCP2_ENCRYPTION_LEVEL_1RTT;
    default:
      return std::nullopt;
  }
}

/// HKDF-Expand-Label (RFC 8446 §7.1) without a context.
bool expand(std::span<std::uint8_t> out, const ngtcp2_crypto_md& hash,
            std::span<const std::uint8_t> secret, std::string_view label) noexcept {
  constexpr std::string_view prefix = "tls13 ";
  std::array<std::uint8_t, 32> info{0, static_cast<std::uint8_t>(out.size()),
                                    static_cast<std::uint8_t>(prefix.size() + label.size())};
  auto end = std::copy(prefix.begin(), prefix.end(), info.begin() + 3);
  end = std::copy(label.begin(), label.end(), end);
  *end++ = 0;
  return ngtcp2_crypto_hkdf_expand(out.data(), out.size(), &hash, secret.data(), secret.size(),
                                   info.data(), static_cast<std::size_t>(end - info.begin())) == 0;
}

/// Fast contexts of one direction on their way into a connection.
struct fast_keys {
  std::array<std::uint8_t, 12> iv;
  ngtcp2_crypto_aead_ctx aead{};
  ngtcp2_crypto_cipher_ctx mask{};

  fast_keys() = default;
  fast_keys(const fast_keys&) = delete;
  fast_keys& operator=(const fast_keys&) = delete;
  ~fast_keys() {
    if (aead.native_handle) delete_aead(nullptr, &aead, nullptr);
    if (mask.native_handle) delete_mask(nullptr, &mask, nullptr);
  }

  /// RFC 9001 §5.1, RFC 9369 §3.3.2.
  bool make(const ngtcp2_crypto_md& hash, aes kind, bool version_2,
            std::span<const std::uint8_t> secret) noexcept {
    std::array<std::uint8_t, 32> buffer;
    const std::span key{buffer.data(), key_size(kind)};
    const bool made = expand(iv, hash, secret, version_2 ? "quicv2 iv" : "quic iv") &&
                      expand(key, hash, secret, version_2 ? "quicv2 key" : "quic key") &&
                      make_fast(aead, kind, key.data()) &&
                      expand(key, hash, secret, version_2 ? "quicv2 hp" : "quic hp") &&
                      make_fast(mask, kind, key.data());
    OPENSSL_cleanse(buffer.data(), buffer.size());
    return made;
  }
};

bool install_keys(tls_exchange& exchange, SSL* ssl, ngtcp2_encryption_level level, bool sending,
                  std::span<const std::uint8_t> secret) noexcept {
  auto* native = exchange.reference->get_conn(exchange.reference);
  const auto kind = fast_cipher_of(exchange, ssl);
  // The last level carries nearly every packet; the others are left to the library.
  if (level == NGTCP2_ENCRYPTION_LEVEL_1RTT && kind != aes::none) {
    const bool version_2 = ngtcp2_conn_get_negotiated_version2(native) == NGTCP2_PROTO_VER_V2;
    fast_keys keys;
    if (keys.make(ngtcp2_conn_get_crypto_ctx2(native)->md, kind, version_2, secret)) {
      const auto install = sending ? ngtcp2_conn_install_tx_key : ngtcp2_conn_install_rx_key;
      if (install(native, secret.data(), secret.size(), &keys.aead, keys.iv.data(), keys.iv.size(),
                  &keys.mask) != 0)
        return false;
      keys.aead.native_handle = keys.mask.native_handle = nullptr;  // the connection's now
      ++exchange.fast_directions;
      return true;
    }
  }
  const auto install =
      sending ? ngtcp2_crypto_derive_and_install_tx_key : ngtcp2_crypto_derive_and_install_rx_key;
  return install(native, nullptr, nullptr, nullptr, level, secret.data(), secret.size()) == 0;
}

// What TLS calls. 1: done, 0: the handshake fails.
// ---------------------------------------------------

tls_exchange& exchange_of(void* argument) noexcept {
  return *static_cast<tls_exchange*>(argument);
}
ngtcp2_conn* native_of(const tls_exchange& exchange) noexcept {
  return exchange.reference->get_conn(exchange.reference);
}

int send(SSL*, const unsigned char* data, std::size_t size, std::size_t* taken,
         void* argument) noexcept {
  const auto& exchange = exchange_of(argument);
  *taken = size;
  if (!exchange.reference) return 1;
  auto* native = native_of(exchange);
  const int failed = ngtcp2_conn_submit_crypto_data(native, exchange.sending, data, size);
  if (failed != 0) ngtcp2_conn_set_tls_error(native, failed);
  return failed == 0 ? 1 : 0;
}

int lend_received(SSL*, const unsigned char** data, std::size_t* size, void* argument) noexcept {
  auto& exchange = exchange_of(argument);
  *data = nullptr;
  *size = 0;
  if (exchange.lent == exchange.received.size()) return 1;
  const auto& piece = exchange.received[exchange.lent++];
  *data = piece.data();
  *size = piece.size();
  return 1;
}

int take_back_received(SSL*, std::size_t size, void* argument) noexcept {
  auto& exchange = exchange_of(argument);
  exchange.given_back += size;
  while (exchange.lent > 0 && exchange.given_back >= exchange.received.front().size()) {
    exchange.given_back -= exchange.received.front().size();
    exchange.received.pop_front();
    --exchange.lent;
  }
  return 1;
}

int take_secret(SSL* ssl, std::uint32_t tls_level, int sending, const unsigned char* secret,
                std::size_t size, void* argument) noexcept {
  auto& exchange = exchange_of(argument);
  if (!exchange.reference) return 1;
  const auto level = native_level(tls_level);
  if (!level) return 0;
  // Early data is offered once. Else TLS offers it again with the hello that answers a
  // HelloRetryRequest, against RFC 8446 §4.1.2, and the library aborts at a second set of keys.
  if (*level == NGTCP2_ENCRYPTION_LEVEL_0RTT && sending != 0)
    SSL_SESSION_set_max_early_data(SSL_get0_session(ssl), 0);
  if (!install_keys(exchange, ssl, *level, sending != 0, {secret, size})) return 0;
  // TLS itself sends nothing with the keys of early data.
  if (sending != 0 && *level != NGTCP2_ENCRYPTION_LEVEL_0RTT) exchange.sending = *level;
  return 1;
}

int take_params(SSL*, const unsigned char* params, std::size_t size, void* argument) noexcept {
  const auto& exchange = exchange_of(argument);
  if (!exchange.reference) return 1;
  auto* native = native_of(exchange);
  const int failed = ngtcp2_conn_decode_and_set_remote_transport_params(native, params, size);
  if (failed != 0) ngtcp2_conn_set_tls_error(native, failed);
  return failed == 0 ? 1 : 0;
}

int take_alert(SSL*, unsigned char alert, void* argument) noexcept {
  const auto& exchange = exchange_of(argument);
  if (exchange.reference) ngtcp2_conn_set_tls_alert(native_of(exchange), alert);
  return 1;
}

template <class Function>
OSSL_DISPATCH entry(int id, Function* function) noexcept {
  return {id, reinterpret_cast<void (*)()>(function)};
}

const OSSL_DISPATCH* what_tls_calls() noexcept {
  static const OSSL_DISPATCH table[] = {
      entry(OSSL_FUNC_SSL_QUIC_TLS_CRYPTO_SEND, send),
      entry(OSSL_FUNC_SSL_QUIC_TLS_CRYPTO_RECV_RCD, lend_received),
      entry(OSSL_FUNC_SSL_QUIC_TLS_CRYPTO_RELEASE_RCD, take_back_received),
      entry(OSSL_FUNC_SSL_QUIC_TLS_YIELD_SECRET, take_secret),
      entry(OSSL_FUNC_SSL_QUIC_TLS_GOT_TRANSPORT_PARAMS, take_params),
      entry(OSSL_FUNC_SSL_QUIC_TLS_ALERT, take_alert),
      OSSL_DISPATCH_END,
  };
  return table;
}

}  // namespace

tls_session::tls_session(tls_session&& other) noexcept
    : ssl_{std::exchange(other.ssl_, nullptr)},
      exchange_{std::move(other.exchange_)},
      native_{std::exchange(other.native_, nullptr)} {}

tls_session& tls_session::operator=(tls_session&& other) noexcept {
  std::swap(ssl_, other.ssl_);
  std::swap(exchange_, other.exchange_);
  std::swap(native_, other.native_);
  return *this;
}

void tls_session::reset() noexcept {
  // Freeing TLS must not call back into a connection that is going away.
  if (exchange_) exchange_->reference = nullptr;
  if (ssl_) SSL_set_app_data(ssl_, nullptr);
  if (native_) ngtcp2_crypto_ossl_ctx_del(std::exchange(native_, nullptr));
  if (ssl_) SSL_free(std::exchange(ssl_, nullptr));
  exchange_.reset();
}

result<tls_session> tls_session::make(SSL_CTX* context, bool fast_protection,
                                      ngtcp2_crypto_conn_ref* reference) {
  tls_session made;
  made.exchange_ = std::make_unique<tls_exchange>();
  made.exchange_->reference = reference;
  made.exchange_->fast = fast_protection;
  made.ssl_ = SSL_new(context);
  if (!made.ssl_ || ngtcp2_crypto_ossl_ctx_new(&made.native_, made.ssl_) != 0)
    return tls::fail_queue(errc::tls, "cannot begin a TLS handshake");
  SSL_set_app_data(made.ssl_, reference);
  if (SSL_set_quic_tls_cbs(made.ssl_, what_tls_calls(), made.exchange_.get()) != 1)
    return tls::fail_queue(errc::tls, "this TLS library cannot serve QUIC");
  return made;
}

void tls_session::receive(std::span<const std::uint8_t> data) {
  if (!data.empty()) exchange_->received.emplace_back(data.begin(), data.end());
}

aes tls_session::fast_cipher() const noexcept {
  return exchange_ ? fast_cipher_of(*exchange_, ssl_) : aes::none;
}

result<tls_session> tls_session::client(SSL_CTX* context, const tls::client_options& options,
                                        std::string_view host, bool fast_protection,
                                        ngtcp2_crypto_conn_ref* reference) {
  auto made = make(context, fast_protection, reference);
  if (!made) return made;
  SSL_set_connect_state(made->ssl_);
  if (auto ready = tls::prepare_client(made->ssl_, options, host); !ready)
    return std::unexpected{ready.error()};
  return made;
}

result<tls_session> tls_session::server(SSL_CTX* context, bool early_data,
                                        std::span<const std::uint8_t> limits, bool fast_protection,
                                        ngtcp2_crypto_conn_ref* reference) {
  auto made = make(context, fast_protection, reference);
  if (!made) return made;
  std::array<std::uint8_t, SHA256_DIGEST_LENGTH> bound;
  SHA256(limits.data(), limits.size(), bound.data());
  SSL_set_session_id_context(made->ssl_, bound.data(), bound.size());
  SSL_set_accept_state(made->ssl_);
  if (early_data) SSL_set_quic_tls_early_data_enabled(made->ssl_, 1);
  return made;
}

resumption resumption_parts::pack() const {
  resumption packed;
  if (session.empty() && token.empty()) return packed;
  packed.state.assign(magic.begin(), magic.end());
  put(packed.state, session);
  put(packed.state, params);
  put(packed.state, token);
  return packed;
}

resumption_parts resumption_parts::unpack(const resumption& packed) {
  resumption_parts parts;
  std::span<const std::uint8_t> in{packed.state};
  if (in.size() < magic.size() || !std::equal(magic.begin(), magic.end(), in.begin())) return parts;
  in = in.subspan(magic.size());
  if (take(in, parts.session) && take(in, parts.params) && take(in, parts.token)) return parts;
  return {};
}

result<> prepare_crypto() {
  static const int failed = ngtcp2_crypto_ossl_init();
  if (failed != 0) return fail(errc::tls, layer::quic, "the TLS library lacks what QUIC needs");
  return {};
}

}  // namespace weft::quic::core::detail
