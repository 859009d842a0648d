#include <weft/tls/credentials.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <unistd.h>

#include <weft/tls/openssl.hpp>
#include <weft/tls/random.hpp>

namespace weft::tls {
namespace {

using testing::HasSubstr;

TEST(fingerprints, are_written_and_read_back) {
  fingerprint print{};
  for (std::size_t i = 0; i < print.size(); ++i) print[i] = static_cast<std::uint8_t>(i * 9);
  const std::string text = to_string(print);
  EXPECT_EQ(text.substr(0, 13), "sha256:000912");
  EXPECT_EQ(parse_fingerprint(text).value(), print);
  EXPECT_EQ(parse_fingerprint(text.substr(7)).value(), print);
  for (const std::string& bad : {std::string{}, text + "0", text.substr(0, text.size() - 1),
                                 "sha1:" + text.substr(7), text.substr(0, 69) + "+1"})
    EXPECT_EQ(parse_fingerprint(bad).error().code(), errc::malformed) << bad;
}

TEST(development, makes_a_p256_certificate_for_names_and_addresses) {
  const auto made = credentials::development({"a.example", "10.1.2.3", "fe80::1"}).value();
  X509* leaf = made.internals().leaf.get();
  EXPECT_EQ(names_of(leaf), "a.example, 10.1.2.3, fe80::1");
  EXPECT_EQ(EVP_PKEY_get_bits(X509_get0_pubkey(leaf)), 256);
  int days = 0, seconds = 0;
  ASN1_TIME_diff(&days, &seconds, X509_get0_notBefore(leaf), X509_get0_notAfter(leaf));
  EXPECT_EQ(days, 14);
  EXPECT_EQ(seconds, 0);
  EXPECT_LT(X509_cmp_current_time(X509_get0_notBefore(leaf)), 0);
  EXPECT_EQ(made.public_key_fingerprint(), fingerprint_of(leaf).value());
}

TEST(development, a_name_cannot_smuggle_in_another) {
  const auto made = credentials::development({"a.example,DNS:bank.example"}).value();
  EXPECT_EQ(names_of(made.internals().leaf.get()), "a.example,DNS:bank.example");
  EXPECT_EQ(X509_check_host(made.internals().leaf.get(), "bank.example", 0, 0, nullptr), 0);
  EXPECT_FALSE(credentials::development({}));
  EXPECT_FALSE(credentials::development({""}));
  EXPECT_FALSE(credentials::development({std::string{"a\0b", 3}}));
}

TEST(development, each_is_its_own) {
  const auto one = credentials::development().value();
  const auto two = credentials::development().value();
  EXPECT_NE(one.public_key_fingerprint(), two.public_key_fingerprint());
  EXPECT_NE(one.certificate_pem(), two.certificate_pem());
}

TEST(pem, round_trips) {
  const auto made = credentials::development().value();
  const auto again = credentials::pem(made.certificate_pem(), made.key_pem());
  ASSERT_TRUE(again) << again.error().to_string();
  EXPECT_EQ(again->public_key_fingerprint(), made.public_key_fingerprint());
  EXPECT_EQ(again->certificate_pem(), made.certificate_pem());
  EXPECT_EQ(again->key_pem(), made.key_pem());
}

TEST(pem, explains_what_is_wrong) {
  const auto one = credentials::development().value();
  const auto two = credentials::development().value();
  const auto message = [](const auto& got) { return got ? "no error" : got.error().message(); };
  EXPECT_THAT(message(credentials::pem(one.certificate_pem(), two.key_pem())),
              HasSubstr("does not belong to the certificate"));
  EXPECT_THAT(
      message(credentials::pem(two.certificate_pem() + one.certificate_pem(), one.key_pem())),
      HasSubstr("belongs to certificate 2 of the chain"));
  EXPECT_THAT(message(credentials::pem(one.key_pem(), one.key_pem())), HasSubstr("no certificate"));
  EXPECT_THAT(message(credentials::pem(one.certificate_pem(), "")), HasSubstr("no private key"));
  std::string broken = one.certificate_pem();
  broken[100] = '*';
  EXPECT_THAT(message(credentials::pem(broken, one.key_pem())), HasSubstr("does not parse"));
  EXPECT_FALSE(trust::pem("nothing"));
  EXPECT_EQ(ERR_peek_error(), 0u);
}

TEST(pem, does_not_ask_for_a_passphrase) {
  const auto made = credentials::development().value();
  const bio_ptr out{BIO_new(BIO_s_mem())};
  PEM_write_bio_PrivateKey(out.get(), made.internals().key.get(), EVP_aes_128_cbc(),
                           reinterpret_cast<const unsigned char*>("secret"), 6, nullptr, nullptr);
  char* data = nullptr;
  const long size = BIO_get_mem_data(out.get(), &data);
  const auto got = credentials::pem(made.certificate_pem(), {data, static_cast<std::size_t>(size)});
  ASSERT_FALSE(got);
  EXPECT_THAT(got.error().message(), HasSubstr("encrypted"));
}

TEST(files, are_read_and_named_in_errors) {
  const auto folder =
      std::filesystem::path{testing::TempDir()} / ("weft-tls-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const auto made = credentials::development().value();
  std::ofstream{folder / "cert.pem"} << made.certificate_pem();
  std::ofstream{folder / "key.pem"} << made.key_pem();
  std::ofstream{folder / "empty.pem"};
  const auto read = credentials::files(folder / "cert.pem", folder / "key.pem");
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->public_key_fingerprint(), made.public_key_fingerprint());
  const auto missing = credentials::files(folder / "cert.pem", folder / "none.pem");
  EXPECT_EQ(missing.error().code(), errc::system);
  EXPECT_THAT(missing.error().message(), HasSubstr("none.pem"));
  EXPECT_THAT(trust::file(folder / "empty.pem").error().message(), HasSubstr("empty.pem"));
  EXPECT_THAT(trust::file(folder / "key.pem").error().message(), HasSubstr("key.pem"));
  EXPECT_FALSE(trust::file(folder).has_value());
  EXPECT_TRUE(trust::file(folder / "cert.pem"));
  std::filesystem::remove_all(folder);
}

TEST(random_source, fills_and_reports_failure) {
  std::array<std::byte, 32> one{}, two{};
  ASSERT_TRUE(fill_random(one));
  ASSERT_TRUE(random_source{}.fill(two));
  EXPECT_NE(one, two);
  const random_source broken{+[](mutable_bytes out) noexcept {
    std::ranges::fill(out.first(out.size() / 2), std::byte{7});
    return false;
  }};
  const auto got = broken.fill(one);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code(), errc::random);
  EXPECT_EQ(one, (std::array<std::byte, 32>{}));
}

}  // namespace
}  // namespace weft::tls
