#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <weft/base/error.hpp>
#include <weft/base/slice.hpp>

namespace weft::tls {

/// SHA-256 of a certificate's SubjectPublicKeyInfo (RFC 7469 §2.4).
using fingerprint = std::array<std::uint8_t, 32>;
/// "sha256:3b1f…" (64 hexadecimal digits), and back.
std::string to_string(const fingerprint& print);
result<fingerprint> parse_fingerprint(std::string_view text);

/// A certificate chain with its private key. Immutable, shared, usable from any thread.
class credentials {
 public:
  /// PEM files: leaf first, and its key.
  static result<credentials> files(const std::filesystem::path& chain,
                                   const std::filesystem::path& key);
  static result<credentials> pem(std::string_view chain, std::string_view key);
  /// A fresh self-signed P-256 certificate for development and tests; valid for 14 days.
  static result<credentials> development(std::vector<std::string> names = {"localhost", "127.0.0.1",
                                                                           "::1"});
  /// The leaf certificate, PEM: what a development client trusts.
  std::string certificate_pem() const;
  /// The key, PEM, to keep a development identity across restarts.
  std::string key_pem() const;
  fingerprint public_key_fingerprint() const;
  /// Default-constructed: there is nothing in it, and no other member may be called.
  bool empty() const noexcept { return !impl_; }

  struct impl;
  const impl& internals() const noexcept { return *impl_; }

 private:
  std::shared_ptr<const impl> impl_;
};

/// Whom to believe. Immutable, shared, usable from any thread.
class trust {
 public:
  /// The machine's certificate authorities, read at the first use.
  static trust system_roots();
  /// PEM: every certificate in it is believed, whether it is a root, an intermediate or a leaf.
  static result<trust> pem(std::string_view authorities);
  static result<trust> file(const std::filesystem::path& authorities);
  /// Exactly these public keys, whoever signed them, whatever name they carry and however old the
  /// certificate is.
  static trust pinned(std::vector<fingerprint> keys);
  /// Nobody is checked. For tests against throw-away servers, and named so that it is noticed.
  static trust insecure_anyone();
  /// Default-constructed: nobody is believed, and no other member may be called.
  bool empty() const noexcept { return !impl_; }

  struct impl;
  const impl& internals() const noexcept { return *impl_; }

 private:
  std::shared_ptr<const impl> impl_;
};

/// Key-exchange groups by their IANA names, most wanted first; only the first gets a key share.
/// The default leads with a post-quantum hybrid.
inline const std::string default_groups = "X25519MLKEM768:SecP384r1MLKEM1024:X25519:secp256r1";

struct server_options {
  credentials identity;
  /// Offered protocols must meet one of these, ours preferred in this order (RFC 7301).
  std::vector<std::string> alpn;
  std::string groups = default_groups;
  /// Ask clients for a certificate and verify it (mutual TLS).
  std::shared_ptr<const trust> client_trust;
  /// Accept resumption, and data in the first flight for work the application marks safe.
  bool tickets = true;
  bool early_data = false;
  /// Called with one NSS key-log line per secret, on the thread of the handshake. Whoever holds
  /// these lines can read the traffic. Must not throw.
  std::function<void(std::string_view)> key_log;
};

struct client_options {
  trust trusted = trust::system_roots();
  /// Checked against the certificate, and sent as SNI when it is a name. Empty: the host dialled.
  std::string server_name;
  std::vector<std::string> alpn;
  std::string groups = default_groups;
  /// Mutual TLS.
  std::shared_ptr<const credentials> identity;
  std::function<void(std::string_view)> key_log;
};

/// What a finished handshake agreed on.
struct session_info {
  std::string alpn;
  std::string group;   ///< "X25519MLKEM768"
  std::string cipher;  ///< "TLS_AES_128_GCM_SHA256"
  bool resumed = false;
  bool early_data_accepted = false;
  /// Set when the peer showed a certificate.
  std::string peer_subject;
  fingerprint peer_key{};
};

}  // namespace weft::tls
