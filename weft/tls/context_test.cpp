#include <weft/tls/context.hpp>

#include <gmock/gmock.h>
#include <openssl/err.h>
#include <openssl/pem.h>

namespace weft::tls {
namespace {

using testing::HasSubstr;

/// Two TLS ends joined in memory, driven by turns until both are done or stuck.
struct pair {
  ssl_ptr client, server;
  result<void> client_done, server_done;

  pair(SSL_CTX* client_context, SSL_CTX* server_context)
      : client{SSL_new(client_context)}, server{SSL_new(server_context)} {
    BIO *left = nullptr, *right = nullptr;
    BIO_new_bio_pair(&left, 256 * 1024, &right, 256 * 1024);
    SSL_set_bio(client.get(), left, left);
    SSL_set_bio(server.get(), right, right);
    SSL_set_connect_state(client.get());
    SSL_set_accept_state(server.get());
  }

  /// One step of one end; true once it is done or has failed.
  static bool step(SSL* ssl, result<void>& outcome, std::string_view peer) {
    if (!outcome) return true;
    ERR_clear_error();
    const int status = SSL_do_handshake(ssl);
    if (status == 1) return true;
    const int why = SSL_get_error(ssl, status);
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) return false;
    outcome = std::unexpected{handshake_error(ssl, peer)};
    return true;
  }

  void run() {
    for (int turn = 0; turn < 20; ++turn) {
      const bool left = step(client.get(), client_done, "server.example");
      const bool right = step(server.get(), server_done, "the client");
      if (left && right) break;
    }
    if (client_done) read_late(client.get(), client_done, "server.example");
    if (server_done) read_late(server.get(), server_done, "the client");
  }

  /// Tickets and late alerts (RFC 8446: the client is done before its certificate is judged).
  static void read_late(SSL* ssl, result<void>& outcome, std::string_view peer) {
    char byte = 0;
    ERR_clear_error();
    const int got = SSL_read(ssl, &byte, 1);
    if (got <= 0 && SSL_get_error(ssl, got) == SSL_ERROR_SSL)
      outcome = std::unexpected{handshake_error(ssl, peer)};
  }
};

credentials make(std::vector<std::string> names = {"localhost", "127.0.0.1", "::1"}) {
  return credentials::development(std::move(names)).value();
}

trust only(const credentials& who) {
  return trust::pem(who.certificate_pem()).value();
}

/// `base`'s key with a certificate that was valid in the past only.
credentials expired() {
  const credentials base = make();
  const std::string text = base.certificate_pem();
  const bio_ptr in{BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))};
  const x509_ptr certificate{PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr)};
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -20 * 86400);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), -86400);
  X509_sign(certificate.get(), base.internals().key.get(), EVP_sha256());
  const bio_ptr out{BIO_new(BIO_s_mem())};
  PEM_write_bio_X509(out.get(), certificate.get());
  char* data = nullptr;
  const long size = BIO_get_mem_data(out.get(), &data);
  return credentials::pem({data, static_cast<std::size_t>(size)}, base.key_pem()).value();
}

/// A certificate for `key`'s holder that `issuer` signs; nobody: self-signed. PEM.
std::string issue(const credentials& holder, const char* name, const credentials* issuer,
                  const char* issuer_name, bool authority) {
  const x509_ptr made{X509_dup(holder.internals().leaf.get())};
  while (X509_get_ext_count(made.get()) > 0) X509_EXTENSION_free(X509_delete_ext(made.get(), 0));
  const auto set = [](X509_NAME* where, const char* text) {
    while (X509_NAME_entry_count(where) > 0) X509_NAME_ENTRY_free(X509_NAME_delete_entry(where, 0));
    X509_NAME_add_entry_by_txt(where, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(text), -1, -1, 0);
  };
  set(X509_get_subject_name(made.get()), name);
  set(X509_get_issuer_name(made.get()), issuer_name);
  const auto add = [&](int kind, const std::string& value) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value.c_str());
    X509_add_ext(made.get(), extension, -1);
    X509_EXTENSION_free(extension);
  };
  add(NID_basic_constraints, authority ? "critical,CA:TRUE" : "critical,CA:FALSE");
  if (!authority) add(NID_subject_alt_name, std::string{"DNS:"} + name);
  X509_sign(made.get(), (issuer ? *issuer : holder).internals().key.get(), EVP_sha256());
  const bio_ptr out{BIO_new(BIO_s_mem())};
  PEM_write_bio_X509(out.get(), made.get());
  char* data = nullptr;
  const long size = BIO_get_mem_data(out.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

struct outcome {
  result<void> client, server;
  session_info client_session, server_session;
  std::string sni;
};

outcome shake(const client_options& wanted, const server_options& offered,
              std::string_view host = "localhost") {
  const auto client = make_client_context(wanted).value();
  const auto server = make_server_context(offered).value();
  pair both{client.get(), server.get()};
  if (auto ready = prepare_client(both.client.get(), wanted, host); !ready)
    return {.client = ready, .server = ready};
  both.run();
  outcome got{both.client_done, both.server_done, {}, {}, {}};
  if (got.client) got.client_session = describe(both.client.get());
  if (got.server) got.server_session = describe(both.server.get());
  if (const char* name = SSL_get_servername(both.server.get(), TLSEXT_NAMETYPE_host_name))
    got.sni = name;
  return got;
}

void expect_tls_error(const result<void>& got, std::uint64_t alert, std::string_view text) {
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code(), errc::tls) << got.error().to_string();
  EXPECT_EQ(got.error().detail(), alert) << got.error().to_string();
  EXPECT_THAT(got.error().message(), HasSubstr(text));
}

TEST(handshake, agrees_on_alpn_group_and_cipher) {
  const auto identity = make();
  const auto got = shake({.trusted = only(identity), .alpn = {"h3", "weft/1"}},
                         {.identity = identity, .alpn = {"weft/1", "h3"}});
  ASSERT_TRUE(got.client) << got.client.error().to_string();
  ASSERT_TRUE(got.server) << got.server.error().to_string();
  for (const auto& info : {got.client_session, got.server_session}) {
    EXPECT_EQ(info.alpn, "weft/1");  // the server's order counts
    EXPECT_EQ(info.group, "X25519MLKEM768");
    EXPECT_EQ(info.cipher, "TLS_AES_128_GCM_SHA256");
    EXPECT_FALSE(info.resumed);
    EXPECT_FALSE(info.early_data_accepted);
  }
  EXPECT_EQ(got.sni, "localhost");
  EXPECT_EQ(got.client_session.peer_subject, "CN=weft development");
  EXPECT_EQ(got.client_session.peer_key, identity.public_key_fingerprint());
  EXPECT_TRUE(got.server_session.peer_subject.empty());
}

TEST(handshake, verifies_addresses_and_sends_no_sni_for_them) {
  const auto identity = make();
  for (const auto* host : {"127.0.0.1", "::1", "[::1]"}) {
    const auto got = shake({.trusted = only(identity)}, {.identity = identity}, host);
    EXPECT_TRUE(got.client) << host << ": " << got.client.error().to_string();
    EXPECT_EQ(got.sni, "");
  }
  const auto other = shake({.trusted = only(identity)}, {.identity = identity}, "127.0.0.2");
  expect_tls_error(other.client, SSL_AD_BAD_CERTIFICATE,
                   "is valid for localhost, 127.0.0.1, ::1, not for 127.0.0.2");
}

TEST(handshake, refuses_the_wrong_name) {
  const auto identity = make({"a.example"});
  const auto got = shake({.trusted = only(identity)}, {.identity = identity}, "b.example");
  expect_tls_error(got.client, SSL_AD_BAD_CERTIFICATE,
                   "certificate of b.example is valid for a.example, not for b.example");
  expect_tls_error(got.server, SSL_AD_BAD_CERTIFICATE, "does not accept our certificate");
  const auto named = shake({.trusted = only(identity), .server_name = "a.example."},
                           {.identity = identity}, "b.example");
  EXPECT_TRUE(named.client) << named.client.error().to_string();
  EXPECT_EQ(named.sni, "a.example");
}

TEST(handshake, refuses_an_untrusted_certificate_and_says_what_to_pin) {
  const auto identity = make();
  const auto got = shake({.trusted = only(make())}, {.identity = identity});
  ASSERT_FALSE(got.client);
  expect_tls_error(got.client, got.client.error().detail(),
                   "certificate of localhost is not trusted: self-signed certificate; pass its CA");
  EXPECT_THAT(got.client.error().message(),
              HasSubstr(to_string(identity.public_key_fingerprint())));
  EXPECT_NE(got.client.error().detail(), 0u);
  EXPECT_FALSE(got.server);
  EXPECT_FALSE(shake({.trusted = trust::system_roots()}, {.identity = identity}).client);
}

TEST(handshake, refuses_an_expired_certificate) {
  const auto identity = expired();
  const auto got = shake({.trusted = only(identity)}, {.identity = identity});
  expect_tls_error(got.client, SSL_AD_CERTIFICATE_EXPIRED,
                   "certificate of localhost expired at 20");
}

TEST(handshake, follows_a_chain_to_any_certificate_that_is_trusted) {
  const auto root = make(), middle = make(), leaf = make();
  const std::string root_pem = issue(root, "root", nullptr, "root", true);
  const std::string middle_pem = issue(middle, "middle", &root, "root", true);
  const std::string leaf_pem = issue(leaf, "a.example", &middle, "middle", false);
  const auto whole = credentials::pem(leaf_pem + middle_pem, leaf.key_pem()).value();
  const auto alone = credentials::pem(leaf_pem, leaf.key_pem()).value();
  for (const auto& anchor : {root_pem, middle_pem, leaf_pem}) {
    const auto got =
        shake({.trusted = trust::pem(anchor).value()}, {.identity = whole}, "a.example");
    EXPECT_TRUE(got.client) << got.client.error().to_string();
    EXPECT_EQ(got.client_session.peer_subject, "CN=a.example");
  }
  const auto gap =
      shake({.trusted = trust::pem(root_pem).value()}, {.identity = alone}, "a.example");
  expect_tls_error(gap.client, SSL_AD_UNKNOWN_CA, "unable to get local issuer certificate");
  // A leaf is no authority: it cannot vouch for another.
  const auto forged_pem = issue(root, "b.example", &leaf, "a.example", false);
  const auto forged = credentials::pem(forged_pem + leaf_pem + middle_pem, root.key_pem()).value();
  const auto got =
      shake({.trusted = trust::pem(root_pem).value()}, {.identity = forged}, "b.example");
  ASSERT_FALSE(got.client);
  EXPECT_EQ(got.client.error().code(), errc::tls);
}

TEST(handshake, believes_a_pinned_key_whatever_its_name) {
  const auto identity = make({"somewhere.example"});
  const auto other = make();
  const auto good = shake({.trusted = trust::pinned({other.public_key_fingerprint(),
                                                     identity.public_key_fingerprint()})},
                          {.identity = identity}, "");
  EXPECT_TRUE(good.client) << good.client.error().to_string();
  const auto bad =
      shake({.trusted = trust::pinned({other.public_key_fingerprint()})}, {.identity = identity});
  expect_tls_error(bad.client, SSL_AD_BAD_CERTIFICATE, "its key is none of the 1 pinned");
  EXPECT_FALSE(make_client_context({.trusted = trust::pinned({})}));
}

TEST(handshake, insecure_anyone_takes_anyone) {
  const auto got =
      shake({.trusted = trust::insecure_anyone()}, {.identity = expired()}, "b.example");
  EXPECT_TRUE(got.client) << got.client.error().to_string();
}

TEST(handshake, needs_a_name_where_names_are_checked) {
  const auto identity = make();
  const auto got = shake({.trusted = only(identity)}, {.identity = identity}, "");
  ASSERT_FALSE(got.client);
  EXPECT_EQ(got.client.error().code(), errc::invalid_argument);
}

TEST(handshake, no_common_alpn_is_an_alert_that_says_both_lists) {
  const auto identity = make();
  const auto got = shake({.trusted = only(identity), .alpn = {"h2", "h3"}},
                         {.identity = identity, .alpn = {"weft/1"}});
  expect_tls_error(got.server, SSL_AD_NO_APPLICATION_PROTOCOL,
                   "the client offers ALPN h2, h3, but this server speaks weft/1");
  expect_tls_error(got.client, SSL_AD_NO_APPLICATION_PROTOCOL, "it speaks none of ours (ALPN): h2");
}

TEST(handshake, a_client_without_alpn_is_refused_where_the_server_names_protocols) {
  const auto identity = make();
  const auto got = shake({.trusted = only(identity)}, {.identity = identity, .alpn = {"weft/1"}});
  expect_tls_error(got.server, SSL_AD_NO_APPLICATION_PROTOCOL, "offers no ALPN protocol");
  EXPECT_FALSE(got.client);
}

TEST(handshake, a_server_without_alpn_is_noticed_by_the_client) {
  const auto identity = make();
  const client_options options{.trusted = only(identity), .alpn = {"weft/1"}};
  const auto client = make_client_context(options).value();
  const auto server = make_server_context({.identity = identity}).value();
  pair both{client.get(), server.get()};
  ASSERT_TRUE(prepare_client(both.client.get(), options, "localhost"));
  both.run();
  ASSERT_TRUE(both.client_done);
  expect_tls_error(require_alpn(both.client.get(), "localhost"), SSL_AD_NO_APPLICATION_PROTOCOL,
                   "offered weft/1");
  EXPECT_TRUE(require_alpn(both.server.get(), "the client"));
}

TEST(handshake, no_common_group_is_named) {
  const auto identity = make();
  const auto got = shake({.trusted = only(identity), .groups = "secp384r1"},
                         {.identity = identity, .groups = "X25519"});
  expect_tls_error(got.server, SSL_AD_HANDSHAKE_FAILURE, "none of our key-exchange groups X25519");
  expect_tls_error(got.client, SSL_AD_HANDSHAKE_FAILURE, "none of our groups secp384r1");
}

TEST(handshake, a_second_choice_group_costs_a_round_trip_but_works) {
  const auto identity = make();
  const auto got = shake({.trusted = only(identity)}, {.identity = identity, .groups = "X25519"});
  ASSERT_TRUE(got.client) << got.client.error().to_string();
  EXPECT_EQ(got.client_session.group, "X25519");
}

TEST(handshake, speaks_nothing_older_than_tls_1_3) {
  const auto identity = make();
  const client_options options{.trusted = only(identity), .alpn = {"weft/1"}};
  const auto client = make_client_context(options).value();
  SSL_CTX_set_min_proto_version(client.get(), TLS1_2_VERSION);
  SSL_CTX_set_max_proto_version(client.get(), TLS1_2_VERSION);
  const auto server = make_server_context({.identity = identity, .alpn = {"weft/1"}}).value();
  pair both{client.get(), server.get()};
  SSL_set1_groups_list(both.client.get(), "X25519");
  ASSERT_TRUE(prepare_client(both.client.get(), options, "localhost"));
  both.run();
  expect_tls_error(both.server_done, SSL_AD_PROTOCOL_VERSION, "only versions older than TLS 1.3");
  expect_tls_error(both.client_done, SSL_AD_PROTOCOL_VERSION, "it lacks TLS 1.3");
}

TEST(mutual_tls, shows_the_client_to_the_server) {
  const auto identity = make();
  const auto client = std::make_shared<credentials>(make({"client.example"}));
  const auto believed = std::make_shared<trust>(only(*client));
  const auto got = shake({.trusted = only(identity), .identity = client},
                         {.identity = identity, .client_trust = believed});
  ASSERT_TRUE(got.client) << got.client.error().to_string();
  ASSERT_TRUE(got.server) << got.server.error().to_string();
  EXPECT_EQ(got.server_session.peer_key, client->public_key_fingerprint());
  EXPECT_EQ(got.server_session.peer_subject, "CN=weft development");
}

TEST(mutual_tls, a_missing_client_certificate_is_named_on_both_sides) {
  const auto identity = make();
  const auto believed = std::make_shared<trust>(only(make()));
  const auto got =
      shake({.trusted = only(identity)}, {.identity = identity, .client_trust = believed});
  expect_tls_error(got.server, 116, "the client showed no client certificate");
  expect_tls_error(got.client, 116, "set client_options::identity");
}

TEST(mutual_tls, a_stranger_is_refused) {
  const auto identity = make();
  const auto stranger = std::make_shared<credentials>(make());
  for (const auto& believed :
       {only(make()), trust::pinned({identity.public_key_fingerprint()}), trust::system_roots()}) {
    const auto got =
        shake({.trusted = only(identity), .identity = stranger},
              {.identity = identity, .client_trust = std::make_shared<trust>(believed)});
    ASSERT_FALSE(got.server);
    EXPECT_THAT(got.server.error().message(), HasSubstr("the client's certificate is not trusted"));
    EXPECT_THAT(got.server.error().message(),
                HasSubstr(to_string(stranger->public_key_fingerprint())));
    ASSERT_FALSE(got.client);
    EXPECT_THAT(got.client.error().message(), HasSubstr("does not accept our certificate"));
  }
}

TEST(context, an_unknown_group_lists_what_there_is) {
  const auto got = make_client_context({.trusted = trust::insecure_anyone(), .groups = "curve9"});
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code(), errc::invalid_argument);
  EXPECT_THAT(got.error().message(), HasSubstr("\"curve9\""));
  EXPECT_THAT(got.error().message(), HasSubstr("X25519MLKEM768"));
  EXPECT_FALSE(make_server_context({.identity = make(), .groups = ""}));
}

TEST(context, missing_parts_are_invalid_arguments) {
  EXPECT_EQ(make_server_context({}).error().code(), errc::invalid_argument);
  EXPECT_EQ(make_client_context({.trusted = trust{}}).error().code(), errc::invalid_argument);
  EXPECT_EQ(make_server_context({.identity = make(), .alpn = {""}}).error().code(),
            errc::invalid_argument);
  EXPECT_EQ(
      make_server_context({.identity = make(), .alpn = {std::string(256, 'a')}}).error().code(),
      errc::invalid_argument);
}

TEST(context, logs_the_secrets_it_is_asked_to_log) {
  const auto identity = make();
  std::vector<std::string> client_lines, server_lines;
  const auto got =
      shake({.trusted = only(identity),
             .key_log = [&](std::string_view line) { client_lines.emplace_back(line); }},
            {.identity = identity,
             .key_log = [&](std::string_view line) { server_lines.emplace_back(line); }});
  ASSERT_TRUE(got.client);
  EXPECT_THAT(client_lines, testing::Contains(HasSubstr("CLIENT_TRAFFIC_SECRET_0 ")));
  std::ranges::sort(client_lines);
  std::ranges::sort(server_lines);
  EXPECT_EQ(client_lines, server_lines);
}

struct resumption : testing::Test {
  credentials identity = make();
  client_options wanted{.trusted = only(identity), .alpn = {"weft/1"}};
  server_options offered{.identity = identity, .alpn = {"weft/1"}};
  std::vector<std::vector<std::uint8_t>> tickets;
  session_info server_saw;

  void first(SSL_CTX* client, SSL_CTX* server) {
    on_new_session(client, [this](SSL*, SSL_SESSION* session) {
      tickets.push_back(serialize_session(session));
    });
    pair both{client, server};
    ASSERT_TRUE(prepare_client(both.client.get(), wanted, "localhost"));
    both.run();
    ASSERT_TRUE(both.client_done);
    EXPECT_FALSE(describe(both.client.get()).resumed);
  }

  session_info second(SSL_CTX* client, SSL_CTX* server) {
    pair both{client, server};
    EXPECT_TRUE(prepare_client(both.client.get(), wanted, "localhost"));
    const auto session = parse_session(tickets.back()).value();
    SSL_set_session(both.client.get(), session.get());
    both.run();
    EXPECT_TRUE(both.client_done && both.server_done);
    server_saw = describe(both.server.get());
    EXPECT_EQ(server_saw.resumed, describe(both.client.get()).resumed);
    return describe(both.client.get());
  }
};

TEST_F(resumption, works_from_a_stored_session) {
  offered.early_data = true;
  const auto client = make_client_context(wanted).value();
  const auto server = make_server_context(offered).value();
  first(client.get(), server.get());
  ASSERT_FALSE(tickets.empty());
  EXPECT_EQ(SSL_SESSION_get_max_early_data(parse_session(tickets.back())->get()), UINT32_MAX);
  // Another process's context with the same options may use it too.
  const auto other = make_client_context(wanted).value();
  const auto again = second(other.get(), server.get());
  EXPECT_TRUE(again.resumed);
  EXPECT_EQ(again.peer_key, identity.public_key_fingerprint());
}

TEST_F(resumption, without_early_data_tickets_do_not_promise_it) {
  const auto client = make_client_context(wanted).value();
  const auto server = make_server_context(offered).value();
  first(client.get(), server.get());
  ASSERT_FALSE(tickets.empty());
  EXPECT_EQ(SSL_SESSION_get_max_early_data(parse_session(tickets.back())->get()), 0u);
}

TEST_F(resumption, a_server_with_other_keys_falls_back_to_a_full_handshake) {
  const auto client = make_client_context(wanted).value();
  const auto server = make_server_context(offered).value();
  first(client.get(), server.get());
  ASSERT_FALSE(tickets.empty());
  const auto restarted = make_server_context(offered).value();
  EXPECT_FALSE(second(client.get(), restarted.get()).resumed);
}

TEST_F(resumption, no_tickets_when_they_are_off) {
  offered.tickets = false;
  const auto client = make_client_context(wanted).value();
  const auto server = make_server_context(offered).value();
  first(client.get(), server.get());
  EXPECT_TRUE(tickets.empty());
}

TEST_F(resumption, keeps_the_verified_client_identity) {
  const auto me = std::make_shared<credentials>(make());
  wanted.identity = me;
  offered.client_trust = std::make_shared<trust>(only(*me));
  const auto client = make_client_context(wanted).value();
  const auto server = make_server_context(offered).value();
  first(client.get(), server.get());
  ASSERT_FALSE(tickets.empty());
  EXPECT_TRUE(second(client.get(), server.get()).resumed);
  EXPECT_EQ(server_saw.peer_key, me->public_key_fingerprint());
}

TEST_F(resumption, damaged_sessions_do_not_parse) {
  const auto client = make_client_context(wanted).value();
  const auto server = make_server_context(offered).value();
  first(client.get(), server.get());
  ASSERT_FALSE(tickets.empty());
  auto longer = tickets.back();
  longer.push_back(0);
  EXPECT_EQ(parse_session(longer).error().code(), errc::malformed);
  const auto whole = std::span{tickets.back()};
  EXPECT_EQ(parse_session(whole.first(whole.size() / 2)).error().code(), errc::malformed);
  EXPECT_EQ(parse_session({}).error().code(), errc::malformed);
}

TEST(hostile, garbage_for_a_client_hello_is_an_error_not_a_crash) {
  const auto server = make_server_context({.identity = make()}).value();
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "plain HTTP"},
      {"SSH-2.0-OpenSSH_9.2\r\n", "not TLS"},
      {std::string_view{"\x16\x03\x01\xff\xff garbage", 15}, "not TLS"},
      {std::string_view{"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", 10}, "TLS with"},
      {std::string_view{"\x17\x03\x03\x00\x05hello", 10}, "not TLS"},
  };
  for (const auto& [bytes, text] : cases) {
    const ssl_ptr ssl{SSL_new(server.get())};
    BIO* in = BIO_new_mem_buf(bytes.data(), static_cast<int>(bytes.size()));
    SSL_set_bio(ssl.get(), in, BIO_new(BIO_s_mem()));
    SSL_set_accept_state(ssl.get());
    ERR_clear_error();
    EXPECT_LE(SSL_do_handshake(ssl.get()), 0);
    const error got = handshake_error(ssl.get(), "192.0.2.1:5");
    EXPECT_EQ(got.code(), errc::tls);
    EXPECT_THAT(got.message(), HasSubstr(text)) << got.message();
    EXPECT_EQ(ERR_peek_error(), 0u);
  }
}

}  // namespace
}  // namespace weft::tls
