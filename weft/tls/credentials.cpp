#include <weft/tls/credentials.hpp>

#include <cerrno>
#include <format>
#include <fstream>
#include <sstream>

#include <openssl/err.h>
#include <openssl/pem.h>

#include <weft/tls/openssl.hpp>

namespace weft::tls {
namespace {

// Without a callback OpenSSL would ask for a passphrase on the terminal.
int no_passphrase(char*, int, int, void* asked) noexcept {
  *static_cast<bool*>(asked) = true;
  return -1;
}

bio_ptr reader(std::string_view text) {
  return bio_ptr{BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))};
}

std::string contents(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<std::size_t>(size)};
}

result<std::string> read_file(const std::filesystem::path& path) {
  errno = 0;
  std::ifstream file{path, std::ios::binary};
  std::ostringstream content;
  content << file.rdbuf();
  std::string text = std::move(content).str();
  if (!file || text.empty()) {
    if (errno != 0) return fail_errno(layer::tls, path.string(), errno);
    return fail(errc::malformed, layer::tls, std::format("{} is empty", path.string()));
  }
  return text;
}

error named(error e, const std::filesystem::path& file) {
  return error{e.code(), e.where(), std::format("{}: {}", file.string(), e.message()), e.detail()};
}

result<pkey_ptr> parse_key(std::string_view pem) {
  bio_ptr in = reader(pem);
  bool encrypted = false;
  pkey_ptr key{PEM_read_bio_PrivateKey(in.get(), nullptr, no_passphrase, &encrypted)};
  if (key) return key;
  if (encrypted) {
    ERR_clear_error();
    return fail(errc::unsupported, layer::tls,
                "the private key is encrypted; decrypt it first (openssl pkey -in … -out …)");
  }
  return fail_queue(errc::malformed, "no private key in this PEM text");
}

result<void> check_pair(X509* leaf, STACK_OF(X509) * others, EVP_PKEY* key) {
  if (X509_check_private_key(leaf, key) == 1) return {};
  ERR_clear_error();
  for (int i = 0; i < sk_X509_num(others); ++i) {
    const bool fits = X509_check_private_key(sk_X509_value(others, i), key) == 1;
    ERR_clear_error();
    if (fits)
      return fail(errc::invalid_argument, layer::tls,
                  std::format("the private key belongs to certificate {} of the chain, but the "
                              "leaf must come first",
                              i + 2));
  }
  return fail(
      errc::invalid_argument, layer::tls,
      std::format("the private key does not belong to the certificate ({})", subject_of(leaf)));
}

}  // namespace

result<credentials> credentials::impl::wrap(impl parts) {
  if (auto pair = check_pair(parts.leaf.get(), parts.intermediates.get(), parts.key.get()); !pair)
    return std::unexpected{pair.error()};
  auto print = fingerprint_of(parts.leaf.get());
  if (!print) return std::unexpected{print.error()};
  parts.print = *print;
  credentials made;
  made.impl_ = std::make_shared<const impl>(std::move(parts));
  return made;
}

result<credentials> credentials::pem(std::string_view chain, std::string_view key) {
  auto certificates = parse_certificates(chain);
  if (!certificates) return std::unexpected{certificates.error()};
  auto private_key = parse_key(key);
  if (!private_key) return std::unexpected{private_key.error()};
  impl parts;
  parts.leaf.reset(sk_X509_shift(certificates->get()));
  parts.intermediates = std::move(*certificates);
  parts.key = std::move(*private_key);
  return impl::wrap(std::move(parts));
}

result<credentials> credentials::files(const std::filesystem::path& chain,
                                       const std::filesystem::path& key) {
  auto chain_text = read_file(chain);
  if (!chain_text) return std::unexpected{chain_text.error()};
  auto key_text = read_file(key);
  if (!key_text) return std::unexpected{key_text.error()};
  auto certificates = parse_certificates(*chain_text);
  if (!certificates) return std::unexpected{named(certificates.error(), chain)};
  auto made = pem(*chain_text, *key_text);
  if (!made) return std::unexpected{named(made.error(), key)};
  return made;
}

std::string credentials::certificate_pem() const {
  bio_ptr out{BIO_new(BIO_s_mem())};
  PEM_write_bio_X509(out.get(), impl_->leaf.get());
  return contents(out.get());
}

std::string credentials::key_pem() const {
  bio_ptr out{BIO_new(BIO_s_mem())};
  PEM_write_bio_PrivateKey(out.get(), impl_->key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  return contents(out.get());
}

fingerprint credentials::public_key_fingerprint() const {
  return impl_->print;
}

trust trust::system_roots() {
  trust made;
  made.impl_ = std::make_shared<const impl>(impl::kind::system);
  return made;
}

result<trust> trust::pem(std::string_view authorities) {
  auto certificates = parse_certificates(authorities);
  if (!certificates) return std::unexpected{certificates.error()};
  auto parts = std::make_shared<impl>(impl::kind::authorities);
  parts->store.reset(X509_STORE_new());
  // Any certificate given is believed, not only self-signed ones.
  X509_STORE_set_flags(parts->store.get(), X509_V_FLAG_PARTIAL_CHAIN);
  for (int i = 0; i < sk_X509_num(certificates->get()); ++i)
    if (X509_STORE_add_cert(parts->store.get(), sk_X509_value(certificates->get(), i)) != 1)
      return fail_queue(errc::malformed, "cannot use this certificate authority");
  parts->authorities = std::move(*certificates);
  trust made;
  made.impl_ = std::move(parts);
  return made;
}

result<trust> trust::file(const std::filesystem::path& authorities) {
  auto text = read_file(authorities);
  if (!text) return std::unexpected{text.error()};
  auto made = pem(*text);
  if (!made) return std::unexpected{named(made.error(), authorities)};
  return made;
}

trust trust::pinned(std::vector<fingerprint> keys) {
  auto parts = std::make_shared<impl>(impl::kind::pinned);
  parts->keys = std::move(keys);
  trust made;
  made.impl_ = std::move(parts);
  return made;
}

trust trust::insecure_anyone() {
  trust made;
  made.impl_ = std::make_shared<const impl>(impl::kind::anyone);
  return made;
}

X509_STORE* trust::impl::anchors() const {
  if (what == kind::system)
    std::call_once(loaded, [this] {
      store.reset(X509_STORE_new());
      X509_STORE_set_default_paths(store.get());
      ERR_clear_error();  // a machine without authorities shows at verification, by name
    });
  return store.get();
}

}  // namespace weft::tls
