#include <weft/sim/identity.hpp>

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <stdexcept>
#include <string>

#include <weft/sim/tls_randomness.hpp>

namespace weft::sim {
namespace {

template <class Type, void (*Free)(Type*)>
struct free_with {
  void operator()(Type* object) const { Free(object); }
};
using key_ptr = std::unique_ptr<EVP_PKEY, free_with<EVP_PKEY, EVP_PKEY_free>>;
using certificate_ptr = std::unique_ptr<X509, free_with<X509, X509_free>>;
using text_ptr = std::unique_ptr<BIO, free_with<BIO, BIO_free_all>>;

void require(bool done) {
  if (!done) throw std::runtime_error{"sim: the TLS library cannot make a test certificate"};
}

void add_extension(X509* certificate, int number, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, number, value);
  require(extension && X509_add_ext(certificate, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

certificate_ptr self_signed(EVP_PKEY* key) {
  certificate_ptr made{X509_new()};
  X509* certificate = made.get();
  require(certificate && X509_set_version(certificate, 2) == 1);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  ASN1_TIME_set_string(X509_getm_notBefore(certificate), "20200101000000Z");
  ASN1_TIME_set_string(X509_getm_notAfter(certificate), "20991231235959Z");
  X509_NAME* name = X509_get_subject_name(certificate);
  const auto* text = reinterpret_cast<const unsigned char*>("weft simulation");
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, text, -1, -1, 0);
  X509_set_issuer_name(certificate, name);
  X509_set_pubkey(certificate, key);
  add_extension(certificate, NID_basic_constraints, "critical,CA:TRUE");
  add_extension(certificate, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1,IP:::1");
  require(X509_sign(certificate, key, EVP_sha256()) > 0);
  return made;
}

std::string text_of(BIO* memory) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory, &data);
  return {data, static_cast<std::size_t>(size)};
}

struct made_identity {
  std::string certificate;
  std::string key;
};

made_identity make() {
  random source{0x77656674};
  const tls_randomness fixed{source};
  const key_ptr key{EVP_EC_gen("P-256")};
  require(key != nullptr);
  const certificate_ptr certificate = self_signed(key.get());
  const text_ptr certificate_text{BIO_new(BIO_s_mem())};
  const text_ptr key_text{BIO_new(BIO_s_mem())};
  require(PEM_write_bio_X509(certificate_text.get(), certificate.get()) == 1);
  require(PEM_write_bio_PrivateKey(key_text.get(), key.get(), nullptr, nullptr, 0, nullptr,
                                   nullptr) == 1);
  return {text_of(certificate_text.get()), text_of(key_text.get())};
}

const made_identity& identity_text() {
  static const made_identity made = make();
  return made;
}

}  // namespace

const tls::credentials& test_identity() {
  static const tls::credentials identity =
      tls::credentials::pem(identity_text().certificate, identity_text().key).value();
  return identity;
}

const tls::trust& test_trust() {
  static const tls::trust trust = tls::trust::pem(identity_text().certificate).value();
  return trust;
}

}  // namespace weft::sim
