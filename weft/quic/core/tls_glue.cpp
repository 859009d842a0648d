#include <weft/quic/core/tls_glue.hpp>

#include <openssl/err.h>
#include <openssl/sha.h>

#include <array>
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

}  // namespace

tls_session::tls_session(tls_session&& other) noexcept
    : ssl_{std::exchange(other.ssl_, nullptr)}, native_{std::exchange(other.native_, nullptr)} {}

tls_session& tls_session::operator=(tls_session&& other) noexcept {
  std::swap(ssl_, other.ssl_);
  std::swap(native_, other.native_);
  return *this;
}

void tls_session::reset() noexcept {
  // Freeing TLS must not call back into a connection that is going away.
  if (ssl_) SSL_set_app_data(ssl_, nullptr);
  if (native_) ngtcp2_crypto_ossl_ctx_del(std::exchange(native_, nullptr));
  if (ssl_) SSL_free(std::exchange(ssl_, nullptr));
}

result<tls_session> tls_session::make(SSL_CTX* context, ngtcp2_crypto_conn_ref* reference) {
  tls_session made;
  made.ssl_ = SSL_new(context);
  if (!made.ssl_ || ngtcp2_crypto_ossl_ctx_new(&made.native_, made.ssl_) != 0)
    return tls::fail_queue(errc::tls, "cannot begin a TLS handshake");
  SSL_set_app_data(made.ssl_, reference);
  return made;
}

result<tls_session> tls_session::client(SSL_CTX* context, const tls::client_options& options,
                                        std::string_view host, ngtcp2_crypto_conn_ref* reference) {
  auto made = make(context, reference);
  if (!made) return made;
  if (ngtcp2_crypto_ossl_configure_client_session(made->ssl_) != 0)
    return tls::fail_queue(errc::tls, "this TLS library cannot serve QUIC");
  SSL_set_connect_state(made->ssl_);
  if (auto ready = tls::prepare_client(made->ssl_, options, host); !ready)
    return std::unexpected{ready.error()};
  return made;
}

result<tls_session> tls_session::server(SSL_CTX* context, bool early_data,
                                        std::span<const std::uint8_t> limits,
                                        ngtcp2_crypto_conn_ref* reference) {
  auto made = make(context, reference);
  if (!made) return made;
  if (ngtcp2_crypto_ossl_configure_server_session(made->ssl_) != 0)
    return tls::fail_queue(errc::tls, "this TLS library cannot serve QUIC");
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
