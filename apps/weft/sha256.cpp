#include "sha256.hpp"

#include <openssl/evp.h>

#include <array>
#include <format>

namespace weft::app {

struct sha256::impl {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
};

sha256::sha256() : impl_{std::make_unique<impl>()} {
  EVP_DigestInit_ex(impl_->context, EVP_sha256(), nullptr);
}
sha256::~sha256() {
  EVP_MD_CTX_free(impl_->context);
}

void sha256::update(bytes data) {
  EVP_DigestUpdate(impl_->context, data.data(), data.size());
}

std::string sha256::hexadecimal() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  EVP_DigestFinal_ex(impl_->context, digest.data(), &size);
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += std::format("{:02x}", digest[i]);
  return text;
}

}  // namespace weft::app
