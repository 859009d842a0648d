#include <gtest/gtest.h>
#include <ngtcp2/ngtcp2_crypto.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>

#include <array>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <weft/quic/core/connection_impl.hpp>
#include <weft/quic/core/packet_protection.hpp>
#include <weft/quic/core/pair_test.hpp>

namespace weft::quic::core::test {
namespace {

using namespace detail;
using kind = connection_event::kind;
using octet_string = std::vector<std::uint8_t>;

octet_string from_hex(std::string_view text) {
  octet_string out;
  for (std::size_t i = 0; i < text.size(); i += 2)
    out.push_back(
        static_cast<std::uint8_t>(std::stoi(std::string{text.substr(i, 2)}, nullptr, 16)));
  return out;
}

constexpr int tag_size = 16;

/// One key in both forms. OpenSSL's alone where there is no fast one.
struct keys {
  keys(aes of, const octet_string& key, const octet_string& mask_key = {})
      : cipher{const_cast<EVP_CIPHER*>(of == aes::bits_128 ? EVP_aes_128_gcm() : EVP_aes_256_gcm()),
               tag_size} {
    EXPECT_EQ(ngtcp2_crypto_aead_ctx_encrypt_init(&slow, &cipher, key.data(), 12), 0);
    EXPECT_EQ(ngtcp2_crypto_aead_ctx_decrypt_init(&slow_open, &cipher, key.data(), 12), 0);
    EXPECT_TRUE(make_fast(fast, of, key.data()));
    EXPECT_TRUE(is_fast(fast));
    EXPECT_FALSE(is_fast(slow));
    if (!mask_key.empty()) {
      EXPECT_TRUE(make_fast(mask, of, mask_key.data()));
    }
  }
  ~keys() {
    for (auto* context : {&slow, &slow_open, &fast}) delete_aead(nullptr, context, nullptr);
    if (mask.native_handle) delete_mask(nullptr, &mask, nullptr);
  }
  octet_string sealed(const ngtcp2_crypto_aead_ctx& by, const octet_string& plain,
                      const octet_string& nonce, const octet_string& header) const {
    octet_string out(plain.size() + tag_size);
    std::ranges::copy(plain, out.begin());  // in place, as the library does
    EXPECT_EQ(seal(out.data(), &cipher, &by, out.data(), plain.size(), nonce.data(), nonce.size(),
                   header.data(), header.size()),
              0);
    return out;
  }
  int opened(const ngtcp2_crypto_aead_ctx& by, octet_string& plain, const octet_string& sealed,
             const octet_string& nonce, const octet_string& header) const {
    plain.assign(sealed.size(), 0);
    const int failed = unseal(plain.data(), &cipher, &by, sealed.data(), sealed.size(),
                              nonce.data(), nonce.size(), header.data(), header.size());
    plain.resize(sealed.size() - tag_size);
    return failed;
  }

  ngtcp2_crypto_aead cipher;
  ngtcp2_crypto_aead_ctx slow{}, slow_open{}, fast{};
  ngtcp2_crypto_cipher_ctx mask{};
};

TEST(PacketProtection, IsFastWhereItsLibraryAndTheInstructionsAre) {
#ifdef WEFT_HAS_IPSEC_MB
  const bool possible = __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul") &&
                        __builtin_cpu_supports("sse4.2");
  EXPECT_EQ(has_fast_protection(), possible);
#else
  EXPECT_FALSE(has_fast_protection());
#endif
}

TEST(PacketProtection, ServerInitialOfRfc9001) {
  if (!has_fast_protection()) GTEST_SKIP() << "OpenSSL serves here";
  const keys k{aes::bits_128, from_hex("cf3a5331653c364c88f0f379b6067e37"),
               from_hex("c206b8d9b9f0f37644430b490eeaa314")};
  auto nonce = from_hex("0ac1493ca1905853b0bba03e");
  nonce.back() ^= 1;  // the packet number
  auto header = from_hex("c1000000010008f067a5502a4262b50040750001");
  const auto plain = from_hex(
      "02000000000600405a020000560303eefce7f7b37ba1d1632e96677825ddf73988cfc79825df566dc5430b9a04"
      "5a1200130100002e00330024001d00209d3c940d89690b84d08a60993c144eca684d1081287c834d5311bcf32b"
      "b9da1a002b00020304");
  const auto sealed = k.sealed(k.fast, plain, nonce, header);
  std::array<std::uint8_t, 16> mask{};
  const octet_string sample{sealed.begin() + 2, sealed.begin() + 18};  // 4 after the number's start
  EXPECT_EQ(sample, from_hex("2cd0991cd25b0aac406a5816b6394100"));
  ASSERT_EQ(header_mask(mask.data(), nullptr, &k.mask, sample.data()), 0);
  header.front() ^= mask[0] & 0x0f;
  header[18] ^= mask[1];
  header[19] ^= mask[2];
  header.insert(header.end(), sealed.begin(), sealed.end());
  EXPECT_EQ(header,
            from_hex("cf000000010008f067a5502a4262b5004075c0d95a482cd0991cd25b0aac406a5816b639"
                     "4100f37a1c69797554780bb38cc5a99f5ede4cf73c3ec2493a1839b3dbcba3f6ea46c5b768"
                     "4df3548e7ddeb9c3bf9c73cc3f3bded74b562bfb19fb84022f8ef4cdd93795d77d06edbb7a"
                     "af2f58891850abbdca3d20398c276456cbc42158407dd074ee"));
}

TEST(PacketProtection, FastAndSlowMakeTheSamePackets) {
  if (!has_fast_protection()) GTEST_SKIP() << "OpenSSL serves here";
  std::mt19937_64 random{7};
  const auto draw = [&](std::size_t size) {
    octet_string out(size);
    for (auto& octet : out) octet = static_cast<std::uint8_t>(random());
    return out;
  };
  std::vector<std::size_t> sizes;
  for (std::size_t size = 0; size < 600; ++size) sizes.push_back(size);
  for (int i = 0; i < 200; ++i) sizes.push_back(random() % 65'536);
  for (const auto of : {aes::bits_128, aes::bits_256}) {
    for (const auto size : sizes) {
      const keys k{of, draw(key_size(of))};
      const auto plain = draw(size), nonce = draw(12), header = draw(random() % 64);
      auto sealed = k.sealed(k.fast, plain, nonce, header);
      ASSERT_EQ(sealed, k.sealed(k.slow, plain, nonce, header)) << size;
      octet_string back;
      ASSERT_EQ(k.opened(k.fast, back, sealed, nonce, header), 0);
      ASSERT_EQ(back, plain);
      ASSERT_EQ(k.opened(k.slow_open, back, sealed, nonce, header), 0);
      sealed[random() % sealed.size()] ^= static_cast<std::uint8_t>(1u << random() % 8);
      ASSERT_EQ(k.opened(k.fast, back, sealed, nonce, header), NGTCP2_ERR_DECRYPT) << size;
      ASSERT_EQ(k.opened(k.slow_open, back, sealed, nonce, header), NGTCP2_ERR_DECRYPT);
    }
  }
}

TEST(PacketProtection, AHeaderThatIsNotTheSealedOneIsRefused) {
  if (!has_fast_protection()) GTEST_SKIP() << "OpenSSL serves here";
  const keys k{aes::bits_256, octet_string(32, 3)};
  const octet_string plain(1200, 1), nonce(12, 2);
  octet_string header(20, 4), back;
  const auto sealed = k.sealed(k.fast, plain, nonce, header);
  header[7] ^= 0x80;
  EXPECT_EQ(k.opened(k.fast, back, sealed, nonce, header), NGTCP2_ERR_DECRYPT);
}

TEST(PacketProtection, LessThanATagIsRefused) {
  if (!has_fast_protection()) GTEST_SKIP() << "OpenSSL serves here";
  const keys k{aes::bits_128, octet_string(16, 3)};
  std::array<std::uint8_t, 32> buffer{};
  for (std::size_t size = 0; size < tag_size; ++size)
    EXPECT_EQ(unseal(buffer.data(), &k.cipher, &k.fast, buffer.data(), size, buffer.data(), 12,
                     buffer.data(), 16),
              NGTCP2_ERR_DECRYPT);
}

TEST(PacketProtection, MasksAreThoseOfOpenssl) {
  if (!has_fast_protection()) GTEST_SKIP() << "OpenSSL serves here";
  std::mt19937_64 random{8};
  for (const auto of : {aes::bits_128, aes::bits_256}) {
    for (int i = 0; i < 200; ++i) {
      octet_string key(key_size(of)), sample(16);
      for (auto* text : {&key, &sample})
        for (auto& octet : *text) octet = static_cast<std::uint8_t>(random());
      ngtcp2_crypto_cipher_ctx fast{}, slow{EVP_CIPHER_CTX_new()};
      EVP_EncryptInit_ex(static_cast<EVP_CIPHER_CTX*>(slow.native_handle),
                         of == aes::bits_128 ? EVP_aes_128_ecb() : EVP_aes_256_ecb(), nullptr,
                         key.data(), nullptr);
      ASSERT_TRUE(make_fast(fast, of, key.data()));
      EXPECT_TRUE(is_fast(fast));
      std::array<std::uint8_t, 16> by_fast{}, by_slow{};
      ASSERT_EQ(header_mask(by_fast.data(), nullptr, &fast, sample.data()), 0);
      ASSERT_EQ(header_mask(by_slow.data(), nullptr, &slow, sample.data()), 0);
      EXPECT_TRUE(std::equal(by_fast.begin(), by_fast.begin() + 5, by_slow.begin()));
      delete_mask(nullptr, &fast, nullptr);
      delete_mask(nullptr, &slow, nullptr);
    }
  }
}

// Whole connections
// ---------------------------------------------------------------------------------

struct meeting {
  bool client_fast, server_fast;
  const char* cipher;
};

endpoint_options protecting(bool fast) {
  endpoint_options options;
  options.secret.fill(1);
  options.fast_protection = fast;
  return options;
}

const tls_session& tls_of(const connection* c) {
  return static_cast<const connection_impl*>(c)->tls();
}

struct protected_pair : pair {
  protected_pair(meeting of, client_config c = client_defaults(),
                 server_config s = server_defaults())
      : pair{std::move(c), std::move(s), protecting(of.client_fast), protecting(of.server_fast)},
        how{of} {}

  void dial() {
    connect();
    ASSERT_EQ(SSL_set_ciphersuites(tls_of(client).ssl(), how.cipher), 1);
  }
  void meet() {
    dial();
    established();
  }
  void established() {
    ASSERT_TRUE(run_until([&] { return client_is(connection::state::established) && server; }, 10s))
        << client->close_reason().to_string();
    run(5ms);
    EXPECT_EQ(client->session().cipher, how.cipher);
    const bool possible = has_fast_protection() && !std::string_view{how.cipher}.contains("CHACHA");
    EXPECT_EQ(tls_of(client).fast_directions(), possible && how.client_fast ? 2 : 0);
    EXPECT_EQ(tls_of(server).fast_directions(), possible && how.server_fast ? 2 : 0);
  }
  void exchange_text() {
    EXPECT_TRUE(transfer(*this, 300'000).complete);
    const auto text = pattern(100'000);
    const auto known = from_server.size();
    stream* s = server->open_stream(false).value();
    ASSERT_TRUE(s->write(slice::copy(text)));
    ASSERT_TRUE(s->finish());
    EXPECT_TRUE(
        run_until([&] { return from_server.size() > known && from_server.back()->at_end(); }, 10s));
    EXPECT_EQ(received[from_server.back()], text);
  }
  /// Both ends forget the connection, not what they learnt from it.
  void part() {
    config.resume = client->resumption();
    EXPECT_FALSE(config.resume.empty());
    client->close(0, "", now);
    run(1s);
    server_endpoint->release(*server, now);
    client_endpoint->release(*client, now);
    server = client = nullptr;
    client_events.clear();
    server_events.clear();
    accepted.clear();
    from_server.clear();
    seen.clear();
    received.clear();
  }
  stream* write_early() {
    settle();
    stream* s = client->open_stream(false).value();
    EXPECT_TRUE(s->write(slice::copy("early")));
    EXPECT_TRUE(s->finish());
    return s;
  }

  meeting how;
};

class Protection : public testing::TestWithParam<std::tuple<bool, bool, const char*>> {
 protected:
  meeting how() const {
    return {std::get<0>(GetParam()), std::get<1>(GetParam()), std::get<2>(GetParam())};
  }
  static server_config early_server() {
    auto server = server_defaults();
    server.tls.early_data = true;
    return server;
  }
};

std::string name_of(const testing::TestParamInfo<Protection::ParamType>& of) {
  const auto word = [](bool fast) { return fast ? "Fast" : "Openssl"; };
  const std::string_view cipher{std::get<2>(of.param)};
  return std::string{word(std::get<0>(of.param))} + word(std::get<1>(of.param)) +
         (cipher.contains("CHACHA") ? "Chacha"
          : cipher.contains("128")  ? "Aes128"
                                    : "Aes256");
}

INSTANTIATE_TEST_SUITE_P(All, Protection,
                         testing::Combine(testing::Bool(), testing::Bool(),
                                          testing::Values("TLS_AES_128_GCM_SHA256",
                                                          "TLS_AES_256_GCM_SHA384",
                                                          "TLS_CHACHA20_POLY1305_SHA256")),
                         name_of);

TEST_P(Protection, CarriesDataThroughKeyUpdates) {
  protected_pair p{how()};
  p.meet();
  p.exchange_text();
  const auto settle_keys = [&] {  // as in transport_test.cpp
    for (int k = 0; k < 2; ++k) {
      p.client->ping(p.now);
      p.server->ping(p.now);
      p.run(1s);
    }
  };
  for (int round = 0; round < 4; ++round) {
    settle_keys();
    connection* asking = round % 2 == 0 ? p.client : p.server;
    ASSERT_TRUE(asking->update_keys(p.now)) << round;
    p.exchange_text();
  }
  settle_keys();
  EXPECT_EQ(p.client->stats().key_updates, 4u);
  EXPECT_EQ(p.server->stats().key_updates, 4u);
  EXPECT_EQ(p.client->stats().packets_lost, 0u);
}

TEST_P(Protection, DropsPacketsWithAWrongTag) {
  protected_pair p{how()};
  p.meet();
  std::size_t spoilt[2] = {};
  int count = 0;
  p.tamper = [&](flight& f) {
    if (++count % 5 != 0) return true;
    f.data.back() ^= std::byte{1};
    ++spoilt[f.to_server];
    return true;
  };
  const auto discarded = p.server->stats().packets_discarded;
  p.exchange_text();
  EXPECT_GT(spoilt[0], 0u);
  EXPECT_GT(spoilt[1], 0u);
  EXPECT_GT(p.server->stats().packets_discarded, discarded);
}

TEST_P(Protection, AnswersARetry) {
  auto server = server_defaults();
  server.retry_above = 0;
  protected_pair p{how(), client_defaults(), server};
  p.meet();
  EXPECT_GE(p.server_endpoint->stats().retries, 1u);
  p.exchange_text();
}

TEST_P(Protection, AnswersAHelloRetryRequest) {
  auto client = client_defaults();
  client.tls.groups = "X25519MLKEM768:X25519";
  auto server = server_defaults();
  server.tls.groups = "X25519";
  protected_pair p{how(), client, server};
  const auto start = p.now;
  p.dial();
  p.run_until([&] { return p.client_is(connection::state::established); }, 10s);
  EXPECT_GE(p.now - start, 4 * p.delay);  // a second round trip
  p.established();
  EXPECT_EQ(p.client->session().group, "X25519");
  p.exchange_text();
}

TEST_P(Protection, ResumesASession) {
  protected_pair p{how()};
  p.meet();
  p.exchange_text();
  p.part();
  p.meet();
  EXPECT_TRUE(p.client->session().resumed);
  EXPECT_TRUE(p.server->session().resumed);
  p.exchange_text();
}

TEST_P(Protection, CarriesEarlyData) {
  protected_pair p{how(), client_defaults(), early_server()};
  p.meet();
  p.run(50ms);
  p.part();
  p.config.early_data = true;
  p.dial();
  p.write_early();
  ASSERT_TRUE(p.run_until([&] { return !p.accepted.empty() && p.accepted[0]->at_end(); }, 1s));
  EXPECT_TRUE(p.accepted[0]->early_data());
  EXPECT_EQ(p.received[p.accepted[0]], "early");
  p.established();
  EXPECT_TRUE(p.client->session().early_data_accepted);
  p.exchange_text();
}

TEST_P(Protection, GoesOnAfterEarlyDataWasRefused) {
  protected_pair p{how(), client_defaults(), early_server()};
  p.meet();
  p.run(50ms);
  p.part();
  p.config.early_data = true;
  // A server that cannot read the ticket.
  p.server_endpoint = endpoint::create(protecting(how().server_fast)).value();
  ASSERT_TRUE(p.server_endpoint->listen(early_server()));
  p.dial();
  p.write_early();
  ASSERT_TRUE(p.run_until([&] { return has(p.client_events, kind::early_data_rejected); }, 2s));
  p.established();
  EXPECT_FALSE(p.client->session().early_data_accepted);
  EXPECT_TRUE(p.accepted.empty());
  p.exchange_text();
}

// By itself, TLS offers early data again with its second hello. A server refuses that, and the
// library aborts at keys for it.
TEST_P(Protection, AnswersAHelloRetryRequestAfterEarlyData) {
  auto client = client_defaults();
  client.tls.groups = "X25519MLKEM768:X25519";
  protected_pair p{how(), client, early_server()};
  p.meet();
  p.run(50ms);
  p.part();
  p.config.early_data = true;
  auto other = early_server();
  other.tls.groups = "X25519";
  ASSERT_TRUE(p.server_endpoint->listen(other));
  p.dial();
  p.write_early();
  ASSERT_TRUE(p.run_until([&] { return has(p.client_events, kind::early_data_rejected); }, 2s))
      << p.client->close_reason().to_string();
  p.established();
  EXPECT_EQ(p.client->session().group, "X25519");
  p.exchange_text();
}

}  // namespace
}  // namespace weft::quic::core::test
