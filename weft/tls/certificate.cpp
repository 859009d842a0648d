#include <array>
#include <charconv>
#include <format>

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/sha.h>

#include <weft/tls/openssl.hpp>

namespace weft::tls {
namespace {

constexpr std::string_view prefix = "sha256:";

std::string name_text(const GENERAL_NAME* name) {
  int kind = 0;
  const auto* value = static_cast<const ASN1_STRING*>(GENERAL_NAME_get0_value(name, &kind));
  if (kind != GEN_DNS && kind != GEN_IPADD) return {};
  const auto* data = ASN1_STRING_get0_data(value);
  const auto size = static_cast<std::size_t>(ASN1_STRING_length(value));
  if (kind == GEN_DNS) return {reinterpret_cast<const char*>(data), size};
  char text[INET6_ADDRSTRLEN] = {};
  if (size != 4 && size != 16) return {};
  inet_ntop(size == 4 ? AF_INET : AF_INET6, data, text, sizeof text);
  return text;
}

}  // namespace

std::string to_string(const fingerprint& print) {
  std::string text{prefix};
  for (const auto byte : print) text += std::format("{:02x}", byte);
  return text;
}

result<fingerprint> parse_fingerprint(std::string_view text) {
  std::string_view digits = text;
  if (digits.starts_with(prefix)) digits.remove_prefix(prefix.size());
  fingerprint print{};
  bool good = digits.size() == 2 * print.size();
  for (std::size_t i = 0; good && i < print.size(); ++i) {
    const char* first = digits.data() + 2 * i;
    const auto [end, failure] = std::from_chars(first, first + 2, print[i], 16);
    good = failure == std::errc{} && end == first + 2;
  }
  if (good) return print;
  return fail(errc::malformed, layer::tls,
              std::format("\"{}\" is no fingerprint; wanted sha256: and 64 hexadecimal digits",
                          text.substr(0, 80)));
}

error queue_error(errc code, std::string_view what) {
  std::string text{what};
  std::string_view separator = ": ";
  while (const unsigned long number = ERR_get_error()) {
    const char* reason = ERR_reason_error_string(number);
    char plain[160];
    if (!reason) ERR_error_string_n(number, plain, sizeof plain);
    text.append(separator).append(reason ? reason : plain);
    separator = "; ";
  }
  return error{code, layer::tls, std::move(text)};
}

result<x509_stack_ptr> parse_certificates(std::string_view pem) {
  bio_ptr in{BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()))};
  x509_stack_ptr list{sk_X509_new_null()};
  ERR_clear_error();
  while (X509* certificate = PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr))
    sk_X509_push(list.get(), certificate);
  const unsigned long end = ERR_peek_last_error();
  const bool orderly =
      ERR_GET_LIB(end) == ERR_LIB_PEM && ERR_GET_REASON(end) == PEM_R_NO_START_LINE;
  if (!orderly) return fail_queue(errc::malformed, "a certificate does not parse");
  ERR_clear_error();
  if (sk_X509_num(list.get()) == 0)
    return fail(errc::malformed, layer::tls,
                "no certificate in this PEM text (wanted -----BEGIN CERTIFICATE-----)");
  return list;
}

result<fingerprint> fingerprint_of(X509* certificate) {
  unsigned char* spki = nullptr;
  const int size = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(certificate), &spki);
  if (size <= 0) return fail_queue(errc::malformed, "the certificate has no usable public key");
  fingerprint print;
  SHA256(spki, static_cast<std::size_t>(size), print.data());
  OPENSSL_free(spki);
  return print;
}

std::string subject_of(X509* certificate) {
  bio_ptr out{BIO_new(BIO_s_mem())};
  X509_NAME_print_ex(out.get(), X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253);
  char* data = nullptr;
  const long size = BIO_get_mem_data(out.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

std::string names_of(X509* certificate) {
  const std::unique_ptr<GENERAL_NAMES, freed_by<GENERAL_NAMES_free>> names{
      static_cast<GENERAL_NAMES*>(
          X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr))};
  std::string text;
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const std::string name = name_text(sk_GENERAL_NAME_value(names.get(), i));
    if (name.empty()) continue;
    if (text.size() > 200) return text + ", …";
    if (!text.empty()) text += ", ";
    text += name;
  }
  return text.empty() ? "no host" : text;
}

}  // namespace weft::tls
