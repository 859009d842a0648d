#include <weft/tls/context.hpp>

#include <algorithm>
#include <format>

#include <openssl/err.h>

namespace weft::tls {

using detail::context_state;
using detail::handshake_notes;

namespace {

// AES-128-GCM first on both sides: the cheapest on processors with AES instructions, and the same
// for QUIC and TCP, so that the two compare alike.
constexpr const char* cipher_suites =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

template <class T>
void free_attached(void*, void* object, CRYPTO_EX_DATA*, int, long, void*) noexcept {
  delete static_cast<T*>(object);
}

int state_index() noexcept {
  static const int index =
      SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, free_attached<context_state>);
  return index;
}

int notes_index() noexcept {
  static const int index =
      SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, free_attached<handshake_notes>);
  return index;
}

void free_names(STACK_OF(OPENSSL_CSTRING) * names) noexcept {
  sk_OPENSSL_CSTRING_free(names);
}

std::string offered_groups(SSL_CTX* context) {
  const std::unique_ptr<STACK_OF(OPENSSL_CSTRING), freed_by<free_names>> names{
      sk_OPENSSL_CSTRING_new_null()};
  std::vector<std::string> list;
  if (SSL_CTX_get0_implemented_groups(context, 1, names.get()) == 1)
    for (int i = 0; i < sk_OPENSSL_CSTRING_num(names.get()); ++i)
      list.emplace_back(sk_OPENSSL_CSTRING_value(names.get(), i));
  return detail::join(list);
}

result<void> set_groups(SSL_CTX* context, const std::string& groups) {
  if (!groups.empty() && SSL_CTX_set1_groups_list(context, groups.c_str()) == 1) return {};
  ERR_clear_error();
  return fail(
      errc::invalid_argument, layer::tls,
      std::format("cannot use the key-exchange groups \"{}\"; this TLS library ({}) "
                  "offers {}",
                  groups, OpenSSL_version(OPENSSL_VERSION_STRING), offered_groups(context)));
}

result<void> check_alpn(const std::vector<std::string>& protocols) {
  for (const auto& protocol : protocols)
    if (protocol.empty() || protocol.size() > 255)
      return fail(errc::invalid_argument, layer::tls,
                  std::format("an ALPN protocol has 1 to 255 bytes, not {}", protocol.size()));
  return {};
}

result<void> use_identity(SSL_CTX* context, const credentials& identity) {
  const auto& parts = identity.internals();
  if (SSL_CTX_use_cert_and_key(context, parts.leaf.get(), parts.key.get(),
                               parts.intermediates.get(), 1) == 1)
    return {};
  return fail_queue(errc::invalid_argument, "this certificate cannot be used");
}

void log_key(const SSL* ssl, const char* line) noexcept {
  detail::state_of(SSL_get_SSL_CTX(ssl))->key_log(line);
}

int take_session(SSL* ssl, SSL_SESSION* session) noexcept {
  const auto* state = detail::state_of(SSL_get_SSL_CTX(ssl));
  if (state->new_session) state->new_session(ssl, session);
  return 0;  // OpenSSL keeps ownership
}

/// Splits a peer's ALPN list (RFC 7301 §3.1); nothing when it is malformed.
std::vector<std::string> split_alpn(std::span<const unsigned char> wire) {
  std::vector<std::string> protocols;
  while (!wire.empty()) {
    const std::size_t size = wire[0];
    if (size == 0 || size >= wire.size()) return {};
    protocols.emplace_back(reinterpret_cast<const char*>(wire.data()) + 1, size);
    wire = wire.subspan(1 + size);
  }
  return protocols;
}

// A peer's bytes go into an error text: only printable ones, and not many.
std::string printable(std::string text) {
  if (text.size() > 200) text.resize(200);
  for (char& c : text)
    if (c < 0x20 || c > 0x7e) c = '?';
  return text;
}

int select_alpn(SSL* ssl, const unsigned char** chosen, unsigned char* chosen_size,
                const unsigned char* offered, unsigned offered_size, void*) noexcept try {
  const auto* state = detail::state_of(SSL_get_SSL_CTX(ssl));
  const auto wanted = split_alpn({offered, offered_size});
  for (const auto& protocol : state->alpn) {
    if (!std::ranges::contains(wanted, protocol)) continue;
    *chosen = reinterpret_cast<const unsigned char*>(protocol.data());
    *chosen_size = static_cast<unsigned char>(protocol.size());
    return SSL_TLSEXT_ERR_OK;
  }
  if (auto* notes = detail::notes_of(ssl)) notes->offered_alpn = printable(detail::join(wanted));
  return SSL_TLSEXT_ERR_ALERT_FATAL;
} catch (...) {
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

// Without the extension OpenSSL would not ask `select_alpn`. A server that names its protocols
// wants one of them agreed on (cross-protocol attacks start where that is left open).
int demand_alpn(SSL* ssl, int* alert, void*) noexcept {
  const unsigned char* data = nullptr;
  std::size_t size = 0;
  constexpr unsigned extension = TLSEXT_TYPE_application_layer_protocol_negotiation;
  if (SSL_client_hello_get0_ext(ssl, extension, &data, &size) == 1) return SSL_CLIENT_HELLO_SUCCESS;
  // An old client is told about the version, not about ALPN.
  if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_supported_versions, &data, &size) != 1)
    return SSL_CLIENT_HELLO_SUCCESS;
  *alert = SSL_AD_NO_APPLICATION_PROTOCOL;
  return SSL_CLIENT_HELLO_ERROR;
}

result<std::shared_ptr<SSL_CTX>> make_context(const SSL_METHOD* method, const std::string& groups,
                                              const std::vector<std::string>& alpn,
                                              const std::function<void(std::string_view)>& log) {
  std::shared_ptr<SSL_CTX> context{SSL_CTX_new(method), SSL_CTX_free};
  if (!context) return fail_queue(errc::internal, "cannot make a TLS context");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
  SSL_CTX_set_max_proto_version(context.get(), TLS1_3_VERSION);
  if (SSL_CTX_set_ciphersuites(context.get(), cipher_suites) != 1)
    return fail_queue(errc::unsupported, "cannot use TLS 1.3 cipher suites");
  if (auto set = set_groups(context.get(), groups); !set) return std::unexpected{set.error()};
  if (auto good = check_alpn(alpn); !good) return std::unexpected{good.error()};
  SSL_CTX_set_mode(context.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_info_callback(context.get(), detail::watch_alerts);
  auto& state = detail::attach_state(context.get());
  state.groups = groups;
  state.alpn = alpn;
  state.key_log = log;
  if (log) SSL_CTX_set_keylog_callback(context.get(), log_key);
  return context;
}

result<void> verify_by(SSL_CTX* context, const trust& trusted, int mode) {
  using kind = trust::impl::kind;
  const auto& parts = trusted.internals();
  if (X509_STORE* anchors = parts.anchors()) SSL_CTX_set1_cert_store(context, anchors);
  if (parts.what == kind::pinned && parts.keys.empty())
    return fail(errc::invalid_argument, layer::tls, "no key is pinned, so nobody can be trusted");
  detail::state_of(context)->peer_trust = trusted;
  SSL_CTX_set_verify(context, mode, nullptr);
  SSL_CTX_set_cert_verify_callback(context, detail::verify_peer, nullptr);
  return {};
}

result<void> ask_for_client(SSL_CTX* context, const trust& trusted) {
  const int mode = SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
  if (auto set = verify_by(context, trusted, mode); !set) return set;
  const auto* authorities = trusted.internals().authorities.get();
  for (int i = 0; authorities && i < sk_X509_num(authorities); ++i)
    SSL_CTX_add_client_CA(context, sk_X509_value(authorities, i));
  return {};
}

void set_tickets(SSL_CTX* context, const server_options& options) {
  // Tickets carry the whole session, so nothing needs to be remembered here.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  if (!options.tickets) {
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
    SSL_CTX_set_num_tickets(context, 0);
  }
  if (options.tickets && options.early_data) {
    // QUIC wants exactly this value (RFC 9001 §4.6.1). OpenSSL's replay protection would make each
    // ticket good for one shard and one use.
    SSL_CTX_set_max_early_data(context, UINT32_MAX);
    SSL_CTX_set_options(context, SSL_OP_NO_ANTI_REPLAY);
  } else {
    SSL_CTX_set_max_early_data(context, 0);
  }
}

}  // namespace

result<std::shared_ptr<SSL_CTX>> make_server_context(const server_options& options) {
  if (options.identity.empty())
    return fail(errc::invalid_argument, layer::tls,
                "a server needs a certificate (credentials::files or ::development)");
  if (options.client_trust && options.client_trust->empty())
    return fail(errc::invalid_argument, layer::tls, "client_trust says nobody is to be trusted");
  auto made = make_context(TLS_server_method(), options.groups, options.alpn, options.key_log);
  if (!made) return made;
  SSL_CTX* context = made->get();
  detail::state_of(context)->server = true;
  if (auto used = use_identity(context, options.identity); !used)
    return std::unexpected{used.error()};
  // Our order, but ChaCha20 for clients that lead with it (they lack AES instructions).
  SSL_CTX_set_options(context, SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
  if (!options.alpn.empty()) {
    SSL_CTX_set_alpn_select_cb(context, select_alpn, nullptr);
    SSL_CTX_set_client_hello_cb(context, demand_alpn, nullptr);
  }
  // Needed for resumption where client certificates are verified.
  constexpr unsigned char session_context[] = {'w', 'e', 'f', 't'};
  SSL_CTX_set_session_id_context(context, session_context, sizeof session_context);
  set_tickets(context, options);
  if (options.client_trust)
    if (auto set = ask_for_client(context, *options.client_trust); !set)
      return std::unexpected{set.error()};
  return made;
}

result<std::shared_ptr<SSL_CTX>> make_client_context(const client_options& options) {
  if (options.trusted.empty())
    return fail(errc::invalid_argument, layer::tls, "a client needs somebody to trust");
  auto made = make_context(TLS_client_method(), options.groups, options.alpn, options.key_log);
  if (!made) return made;
  SSL_CTX* context = made->get();
  if (options.identity && !options.identity->empty())
    if (auto used = use_identity(context, *options.identity); !used)
      return std::unexpected{used.error()};
  if (auto set = verify_by(context, options.trusted, SSL_VERIFY_PEER); !set)
    return std::unexpected{set.error()};
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
  SSL_CTX_sess_set_new_cb(context, take_session);
  return made;
}

void on_new_session(SSL_CTX* context, std::function<void(SSL*, SSL_SESSION*)> hook) {
  detail::state_of(context)->new_session = std::move(hook);
}

namespace detail {

context_state* state_of(SSL_CTX* context) noexcept {
  return static_cast<context_state*>(SSL_CTX_get_ex_data(context, state_index()));
}

context_state& attach_state(SSL_CTX* context) {
  auto state = std::make_unique<context_state>();
  SSL_CTX_set_ex_data(context, state_index(), state.get());
  return *state.release();
}

handshake_notes* notes_of(SSL* ssl) noexcept {
  if (void* notes = SSL_get_ex_data(ssl, notes_index()))
    return static_cast<handshake_notes*>(notes);
  auto* notes = new (std::nothrow) handshake_notes;
  if (notes) SSL_set_ex_data(ssl, notes_index(), notes);
  return notes;
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) {
    if (!text.empty()) text += ", ";
    text += word;
  }
  return text;
}

}  // namespace detail
}  // namespace weft::tls
