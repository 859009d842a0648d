#include <format>

#include <openssl/err.h>

#include <weft/tls/context.hpp>

namespace weft::tls {
namespace {

std::string agreed_alpn(SSL* ssl) {
  const unsigned char* data = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(ssl, &data, &size);
  return {reinterpret_cast<const char*>(data), size};
}

std::string text_or_empty(const char* text) {
  return text ? text : "";
}

/// OpenSSL writes some groups' IANA names in small letters.
std::string group_name(SSL* ssl) {
  const std::string name = text_or_empty(SSL_get0_group_name(ssl));
  if (name == "x25519") return "X25519";
  if (name == "x448") return "X448";
  return name;
}

}  // namespace

session_info describe(SSL* ssl) {
  session_info info;
  info.alpn = agreed_alpn(ssl);
  info.group = group_name(ssl);
  if (const SSL_CIPHER* cipher = SSL_get_current_cipher(ssl))
    info.cipher = text_or_empty(SSL_CIPHER_standard_name(cipher));
  info.resumed = SSL_session_reused(ssl) == 1;
  info.early_data_accepted = SSL_get_early_data_status(ssl) == SSL_EARLY_DATA_ACCEPTED;
  if (X509* peer = SSL_get0_peer_certificate(ssl)) {
    info.peer_subject = subject_of(peer);
    if (auto print = fingerprint_of(peer)) info.peer_key = *print;
  }
  return info;
}

result<void> require_alpn(SSL* ssl, std::string_view peer) {
  const auto* state = detail::state_of(SSL_get_SSL_CTX(ssl));
  if (state->alpn.empty() || !agreed_alpn(ssl).empty()) return {};
  return fail(errc::tls, layer::tls,
              std::format("{} chose no application protocol (ALPN); offered {}", peer,
                          detail::join(state->alpn)),
              SSL_AD_NO_APPLICATION_PROTOCOL);
}

std::vector<std::uint8_t> serialize_session(SSL_SESSION* session) {
  const int size = i2d_SSL_SESSION(session, nullptr);
  if (size <= 0) return {};
  std::vector<std::uint8_t> text(static_cast<std::size_t>(size));
  unsigned char* out = text.data();
  i2d_SSL_SESSION(session, &out);
  return text;
}

result<session_ptr> parse_session(std::span<const std::uint8_t> text) {
  const unsigned char* in = text.data();
  session_ptr session{d2i_SSL_SESSION(nullptr, &in, static_cast<long>(text.size()))};
  if (!session) return fail_queue(errc::malformed, "this is no stored TLS session");
  if (in != text.data() + text.size())
    return fail(errc::malformed, layer::tls, "a stored TLS session has bytes after its end");
  return session;
}

}  // namespace weft::tls
