#include <format>

#include <arpa/inet.h>
#include <openssl/crypto.h>
#include <openssl/err.h>

#include <weft/tls/context.hpp>

namespace weft::tls {
namespace {

using kind = trust::impl::kind;

std::string date_of(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return "an unreadable date";
  return std::format("{:04}-{:02}-{:02} {:02}:{:02} UTC", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min);
}

std::string print_of(X509* certificate) {
  const auto print = fingerprint_of(certificate);
  if (print) return to_string(*print);
  ERR_clear_error();
  return "(unreadable key)";
}

/// Compares with every pin, always, so that time tells nothing about which one was near.
bool is_pinned(const std::vector<fingerprint>& pins, const fingerprint& shown) {
  int matches = 0;
  for (const auto& pin : pins)
    matches += CRYPTO_memcmp(pin.data(), shown.data(), shown.size()) == 0 ? 1 : 0;
  return matches != 0;
}

std::string whose(const detail::handshake_notes& notes, bool server) {
  if (server) return "the client's certificate";
  return notes.host.empty() ? "the server's certificate" : "certificate of " + notes.host;
}

std::string describe_problem(X509* leaf, int reason, const std::string& host, bool server) {
  const auto text = X509_verify_cert_error_string(reason);
  switch (reason) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return std::format("is valid for {}, not for {}; dial it by such a name, or set server_name",
                         names_of(leaf), host);
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return std::format("expired at {}; renew it, or check this machine's clock",
                         date_of(X509_get0_notAfter(leaf)));
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return std::format("is not valid before {}; check both machines' clocks",
                         date_of(X509_get0_notBefore(leaf)));
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
      return std::format("is not trusted: {}; {} its CA (trust::pem, trust::file) or pin {}", text,
                         server ? "add" : "pass", print_of(leaf));
    default:
      return std::format("is not trusted: {} ({})", text, subject_of(leaf));
  }
}

bool verify_pinned(X509_STORE_CTX* store, const trust::impl& trusted, std::string& problem) {
  X509* leaf = X509_STORE_CTX_get0_cert(store);
  const auto shown = fingerprint_of(leaf);
  if (shown && is_pinned(trusted.keys, *shown)) {
    X509_STORE_CTX_set_error(store, X509_V_OK);
    return true;
  }
  ERR_clear_error();
  X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_UNTRUSTED);
  problem = std::format(
      "is not trusted: its key is none of the {} pinned; if the key was changed on purpose, pin {}",
      trusted.keys.size(), print_of(leaf));
  return false;
}

bool verify_chain(X509_STORE_CTX* store, const std::string& host, bool server,
                  std::string& problem) {
  if (X509_verify_cert(store) > 0) return true;
  int reason = X509_STORE_CTX_get_error(store);
  if (reason == X509_V_OK) reason = X509_V_ERR_UNSPECIFIED;
  X509_STORE_CTX_set_error(store, reason);
  // The certificate at fault may be an intermediate: dates are of that one.
  X509* faulty = X509_STORE_CTX_get_current_cert(store);
  if (!faulty) faulty = X509_STORE_CTX_get0_cert(store);
  problem = describe_problem(faulty, reason, host, server);
  return false;
}

bool is_address(const std::string& host) {
  unsigned char bytes[16];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

/// "[fe80::1%eth0]" → "fe80::1"; "example.com." → "example.com".
std::string plain_host(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.contains(':')) host = host.substr(0, host.find('%'));
  if (host.ends_with('.')) host.remove_suffix(1);
  return std::string{host};
}

result<void> expect_host(SSL* ssl, const std::string& host) {
  if (is_address(host)) {
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str()) == 1) return {};
  } else {
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (SSL_set_tlsext_host_name(ssl, host.c_str()) == 1 && SSL_set1_host(ssl, host.c_str()) == 1)
      return {};
  }
  return fail_queue(errc::invalid_argument,
                    std::format("\"{}\" is no host name or address", host.substr(0, 80)));
}

result<void> offer_alpn(SSL* ssl, const std::vector<std::string>& protocols) {
  std::vector<unsigned char> wire;
  for (const auto& protocol : protocols) {
    wire.push_back(static_cast<unsigned char>(protocol.size()));
    wire.insert(wire.end(), protocol.begin(), protocol.end());
  }
  if (wire.empty()) return {};
  // This call alone returns 0 for success.
  if (SSL_set_alpn_protos(ssl, wire.data(), static_cast<unsigned>(wire.size())) == 0) return {};
  return fail_queue(errc::invalid_argument, "cannot offer these ALPN protocols");
}

}  // namespace

result<void> prepare_client(SSL* ssl, const client_options& options, std::string_view host) {
  const std::string name = plain_host(options.server_name.empty() ? host : options.server_name);
  auto* notes = detail::notes_of(ssl);
  if (!notes) return fail(errc::exhausted, layer::tls, "no memory for a handshake");
  notes->host = name;
  const auto what = options.trusted.internals().what;
  const bool by_name = what == kind::system || what == kind::authorities;
  if (name.empty() && by_name)
    return fail(errc::invalid_argument, layer::tls,
                "no host name to check the server's certificate against; set server_name");
  if (!name.empty())
    if (auto set = expect_host(ssl, name); !set) return set;
  return offer_alpn(ssl, options.alpn);
}

namespace detail {

int verify_peer(X509_STORE_CTX* store, void*) noexcept try {
  auto* ssl =
      static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  const auto* state = state_of(SSL_get_SSL_CTX(ssl));
  auto* notes = notes_of(ssl);
  if (!notes) return 0;
  const auto& trusted = state->peer_trust->internals();
  std::string problem;
  if (trusted.what == kind::anyone) {
    X509_STORE_CTX_set_error(store, X509_V_OK);
    return 1;
  }
  const bool good = trusted.what == kind::pinned
                        ? verify_pinned(store, trusted, problem)
                        : verify_chain(store, notes->host, state->server, problem);
  if (!good) notes->peer_problem = whose(*notes, state->server) + " " + problem;
  return good ? 1 : 0;
} catch (...) {
  X509_STORE_CTX_set_error(store, X509_V_ERR_OUT_OF_MEM);
  return 0;
}

}  // namespace detail
}  // namespace weft::tls
