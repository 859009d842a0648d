#include <array>
#include <chrono>
#include <format>

#include <openssl/bn.h>
#include <openssl/err.h>

#include <weft/tls/openssl.hpp>
#include <weft/tls/random.hpp>

namespace weft::tls {
namespace {

using general_names_ptr = std::unique_ptr<GENERAL_NAMES, freed_by<GENERAL_NAMES_free>>;
using general_name_ptr = std::unique_ptr<GENERAL_NAME, freed_by<GENERAL_NAME_free>>;

constexpr long hour = 3600;
constexpr long lifetime = 14 * 24 * hour;

// Built piece by piece, not from a configuration string: a name must not be able to say more than a
// name.
result<general_names_ptr> alternative_names(const std::vector<std::string>& names) {
  general_names_ptr list{sk_GENERAL_NAME_new_null()};
  for (const auto& name : names) {
    if (name.empty() || name.size() > 253 || name.find('\0') != std::string::npos)
      return fail(errc::invalid_argument, layer::tls,
                  std::format("\"{}\" cannot be a certificate's name", name.substr(0, 80)));
    general_name_ptr entry{GENERAL_NAME_new()};
    if (ASN1_OCTET_STRING* ip = a2i_IPADDRESS(name.c_str())) {
      GENERAL_NAME_set0_value(entry.get(), GEN_IPADD, ip);
    } else {
      ERR_clear_error();
      ASN1_IA5STRING* dns = ASN1_IA5STRING_new();
      ASN1_STRING_set(dns, name.data(), static_cast<int>(name.size()));
      GENERAL_NAME_set0_value(entry.get(), GEN_DNS, dns);
    }
    sk_GENERAL_NAME_push(list.get(), entry.release());
  }
  return list;
}

bool add_extension(X509* certificate, int kind, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, freed_by<X509_EXTENSION_free>> extension{
      X509V3_EXT_conf_nid(nullptr, &context, kind, value)};
  return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

result<void> set_serial(X509* certificate) {
  std::array<std::byte, 16> serial;
  if (auto filled = fill_random(serial); !filled) return filled;
  serial[0] = (serial[0] & std::byte{0x7f}) | std::byte{0x40};  // positive, and of constant length
  const std::unique_ptr<BIGNUM, freed_by<BN_free>> number{
      BN_bin2bn(reinterpret_cast<const unsigned char*>(serial.data()), serial.size(), nullptr)};
  BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate));
  return {};
}

}  // namespace

result<credentials> credentials::development(std::vector<std::string> names) {
  if (names.empty())
    return fail(errc::invalid_argument, layer::tls, "a certificate needs at least one name");
  auto alternatives = alternative_names(names);
  if (!alternatives) return std::unexpected{alternatives.error()};
  impl parts;
  parts.key.reset(EVP_EC_gen("P-256"));
  parts.leaf.reset(X509_new());
  parts.intermediates.reset(sk_X509_new_null());
  if (!parts.key || !parts.leaf) return fail_queue(errc::random, "cannot make a P-256 key");
  X509* leaf = parts.leaf.get();
  if (auto set = set_serial(leaf); !set) return std::unexpected{set.error()};
  X509_set_version(leaf, X509_VERSION_3);
  X509_gmtime_adj(X509_getm_notBefore(leaf), -hour);  // for clocks that differ a little
  X509_gmtime_adj(X509_getm_notAfter(leaf), lifetime - hour);
  X509_set_pubkey(leaf, parts.key.get());
  X509_NAME* subject = X509_get_subject_name(leaf);
  const auto* common = reinterpret_cast<const unsigned char*>("weft development");
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, common, -1, -1, 0);
  X509_set_issuer_name(leaf, subject);
  const bool complete =
      add_extension(leaf, NID_basic_constraints, "critical,CA:FALSE") &&
      add_extension(leaf, NID_key_usage, "critical,digitalSignature") &&
      add_extension(leaf, NID_ext_key_usage, "serverAuth,clientAuth") &&
      add_extension(leaf, NID_subject_key_identifier, "hash") &&
      X509_add1_ext_i2d(leaf, NID_subject_alt_name, alternatives->get(), 0, 0) == 1 &&
      X509_sign(leaf, parts.key.get(), EVP_sha256()) > 0;
  if (!complete) return fail_queue(errc::internal, "cannot make a development certificate");
  return impl::wrap(std::move(parts));
}

}  // namespace weft::tls
