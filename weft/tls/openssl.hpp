#pragma once

// Internal to weft: OpenSSL's types under weft's ownership. Not for public headers.

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <weft/tls/credentials.hpp>

namespace weft::tls {

template <auto Free>
struct freed_by {
  template <class T>
  void operator()(T* object) const noexcept {
    Free(object);
  }
};

inline void free_bio(BIO* bio) noexcept {
  BIO_free_all(bio);
}
inline void free_certificates(STACK_OF(X509) * list) noexcept {
  sk_X509_pop_free(list, X509_free);
}

using bio_ptr = std::unique_ptr<BIO, freed_by<free_bio>>;
using x509_ptr = std::unique_ptr<X509, freed_by<X509_free>>;
using x509_stack_ptr = std::unique_ptr<STACK_OF(X509), freed_by<free_certificates>>;
using pkey_ptr = std::unique_ptr<EVP_PKEY, freed_by<EVP_PKEY_free>>;
using store_ptr = std::unique_ptr<X509_STORE, freed_by<X509_STORE_free>>;
using ssl_ptr = std::unique_ptr<SSL, freed_by<SSL_free>>;
using session_ptr = std::unique_ptr<SSL_SESSION, freed_by<SSL_SESSION_free>>;

/// Empties this thread's OpenSSL error queue into "what: reason; reason".
error queue_error(errc code, std::string_view what);
inline std::unexpected<error> fail_queue(errc code, std::string_view what) {
  return std::unexpected{queue_error(code, what)};
}

/// All certificates of a PEM text, in order; errc::malformed when there is none.
result<x509_stack_ptr> parse_certificates(std::string_view pem);
result<fingerprint> fingerprint_of(X509* certificate);
/// One line, RFC 2253: "CN=localhost,O=weft".
std::string subject_of(X509* certificate);
/// The names a certificate is valid for: "localhost, 127.0.0.1".
std::string names_of(X509* certificate);

struct credentials::impl {
  x509_ptr leaf;
  x509_stack_ptr intermediates;
  pkey_ptr key;
  fingerprint print{};

  static result<credentials> wrap(impl parts);
};

struct trust::impl {
  enum class kind : std::uint8_t { system, authorities, pinned, anyone };

  explicit impl(kind what) : what{what} {}

  /// The trust anchors; those of the system are read at the first call. Null for the other kinds.
  X509_STORE* anchors() const;

  kind what;
  std::vector<fingerprint> keys;
  x509_stack_ptr authorities;
  mutable store_ptr store;
  mutable std::once_flag loaded;
};

}  // namespace weft::tls
