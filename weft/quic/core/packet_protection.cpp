#include <weft/quic/core/packet_protection.hpp>

#include <ngtcp2/ngtcp2_crypto.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include <weft/quic/core/fast_aes.hpp>

namespace weft::quic::core::detail {
namespace {

// Our contexts and OpenSSL's meet in the same callbacks. Both are aligned, so the lowest bit of the
// handle is free to tell ours.
constexpr std::uintptr_t ours = 1;

bool is_fast(const void* handle) noexcept {
  return (reinterpret_cast<std::uintptr_t>(handle) & ours) != 0;
}
template <class Key>
Key* key_in(void* handle) noexcept {
  return reinterpret_cast<Key*>(reinterpret_cast<std::uintptr_t>(handle) & ~ours);
}
template <class Key>
void* handle_of(Key* key) noexcept {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(key) | ours);
}

/// Keys do not stay in memory that is given back.
template <class Key>
void destroy(Key* key) noexcept {
  OPENSSL_cleanse(key, sizeof *key);
  delete key;
}
template <class Key>
struct destroyer {
  void operator()(Key* key) const noexcept { destroy(key); }
};
template <class Key>
using owned = std::unique_ptr<Key, destroyer<Key>>;

// The check
// -----------------------------------------------------------------------------------------

struct evp_end {
  void operator()(EVP_CIPHER_CTX* context) const noexcept { EVP_CIPHER_CTX_free(context); }
};
using evp_context = std::unique_ptr<EVP_CIPHER_CTX, evp_end>;

struct check_input {
  aes kind;
  std::array<std::uint8_t, 32> key;
  std::array<std::uint8_t, 12> nonce;
  std::array<std::uint8_t, 20> header;
};

bool seal_by_openssl(const check_input& in, std::span<const std::uint8_t> plain,
                     std::span<std::uint8_t> sealed) {
  const evp_context context{EVP_CIPHER_CTX_new()};
  const auto* cipher = in.kind == aes::bits_128 ? EVP_aes_128_gcm() : EVP_aes_256_gcm();
  const auto size = static_cast<int>(plain.size());
  int done = 0;
  return context &&
         EVP_EncryptInit_ex(context.get(), cipher, nullptr, in.key.data(), in.nonce.data()) == 1 &&
         EVP_EncryptUpdate(context.get(), nullptr, &done, in.header.data(),
                           static_cast<int>(in.header.size())) == 1 &&
         EVP_EncryptUpdate(context.get(), sealed.data(), &done, plain.data(), size) == 1 &&
         EVP_EncryptFinal_ex(context.get(), sealed.data() + done, &done) == 1 &&
         EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_GET_TAG, fast_aead::tag_size,
                             sealed.data() + plain.size()) == 1;
}

bool mask_by_openssl(const check_input& in, const std::uint8_t* sample, std::uint8_t* mask) {
  const evp_context context{EVP_CIPHER_CTX_new()};
  const auto* cipher = in.kind == aes::bits_128 ? EVP_aes_128_ecb() : EVP_aes_256_ecb();
  int done = 0;
  return context &&
         EVP_EncryptInit_ex(context.get(), cipher, nullptr, in.key.data(), nullptr) == 1 &&
         EVP_EncryptUpdate(context.get(), mask, &done, sample, 16) == 1;
}

bool agrees_on(const check_input& in, std::span<const std::uint8_t> plain) {
  const owned<fast_aead> key{fast_aead::make(in.kind, in.key.data())};
  if (!key) return false;
  std::vector<std::uint8_t> expected(plain.size() + fast_aead::tag_size), sealed = expected;
  if (!seal_by_openssl(in, plain, expected)) return false;
  key->seal(sealed.data(), plain.data(), plain.size(), in.nonce.data(), in.header.data(),
            in.header.size());
  if (sealed != expected) return false;
  std::vector<std::uint8_t> opened(plain.size() + 1);
  const auto unseal = [&] {
    return key->unseal(opened.data(), sealed.data(), sealed.size(), in.nonce.data(),
                       in.header.data(), in.header.size());
  };
  if (!unseal() || !std::ranges::equal(plain, std::span{opened}.first(plain.size()))) return false;
  sealed.back() ^= 1;
  return !unseal();
}

bool agrees_on_mask(const check_input& in, const std::uint8_t* sample) {
  const owned<fast_mask> key{fast_mask::make(in.kind, in.key.data())};
  std::array<std::uint8_t, 16> expected{}, mask{};
  if (!key || !mask_by_openssl(in, sample, expected.data())) return false;
  key->mask(mask.data(), sample);
  return std::equal(mask.begin(), mask.begin() + NGTCP2_HP_MASKLEN, expected.begin());
}

bool check() {
  if (!fast_aead::present()) return false;
  check_input in{};
  std::vector<std::uint8_t> text(65'536);
  std::uint8_t next = 1;
  const auto fill = [&](auto& bytes) {
    for (auto& byte : bytes) byte = next = static_cast<std::uint8_t>(next * 5 + 3 + (next >> 3));
  };
  fill(text);
  for (const auto kind : {aes::bits_128, aes::bits_256}) {
    in.kind = kind;
    for (const std::size_t size : {0, 1, 16, 63, 255, 256, 257, 1172, 1436, 16'352, 65'500}) {
      fill(in.key);
      fill(in.nonce);
      fill(in.header);
      if (!agrees_on(in, std::span{text}.first(size)) || !agrees_on_mask(in, text.data() + size))
        return false;
    }
  }
  return true;
}

}  // namespace

bool has_fast_protection() noexcept {
  static const bool good = [] {
    try {
      return check();
    } catch (const std::bad_alloc&) {
      return false;
    }
  }();
  return good;
}

// Contexts
// ------------------------------------------------------------------------------------------

bool is_fast(const ngtcp2_crypto_aead_ctx& context) noexcept {
  return is_fast(context.native_handle);
}
bool is_fast(const ngtcp2_crypto_cipher_ctx& context) noexcept {
  return is_fast(context.native_handle);
}

bool make_fast(ngtcp2_crypto_aead_ctx& made, aes kind, const std::uint8_t* key) noexcept {
  if (kind == aes::none || !has_fast_protection()) return false;
  auto* fresh = fast_aead::make(kind, key);
  if (fresh) made.native_handle = handle_of(fresh);
  return fresh != nullptr;
}

bool make_fast(ngtcp2_crypto_cipher_ctx& made, aes kind, const std::uint8_t* key) noexcept {
  if (kind == aes::none || !has_fast_protection()) return false;
  auto* fresh = fast_mask::make(kind, key);
  if (fresh) made.native_handle = handle_of(fresh);
  return fresh != nullptr;
}

void quicken(ngtcp2_crypto_aead_ctx& context, aes kind, const std::uint8_t* key) noexcept {
  ngtcp2_crypto_aead_ctx fresh{};
  if (!make_fast(fresh, kind, key)) return;
  std::swap(context, fresh);
  if (fresh.native_handle) delete_aead(nullptr, &fresh, nullptr);
}

void delete_aead(ngtcp2_conn* native, ngtcp2_crypto_aead_ctx* context, void* user) noexcept {
  if (!is_fast(context->native_handle))
    return ngtcp2_crypto_delete_crypto_aead_ctx_cb(native, context, user);
  destroy(key_in<fast_aead>(context->native_handle));
  context->native_handle = nullptr;
}

void delete_mask(ngtcp2_conn* native, ngtcp2_crypto_cipher_ctx* context, void* user) noexcept {
  if (!is_fast(context->native_handle))
    return ngtcp2_crypto_delete_crypto_cipher_ctx_cb(native, context, user);
  destroy(key_in<fast_mask>(context->native_handle));
  context->native_handle = nullptr;
}

// Packets
// -------------------------------------------------------------------------------------------

int seal(std::uint8_t* dest, const ngtcp2_crypto_aead* cipher,
         const ngtcp2_crypto_aead_ctx* context, const std::uint8_t* plain, std::size_t size,
         const std::uint8_t* nonce, std::size_t nonce_size, const std::uint8_t* header,
         std::size_t header_size) noexcept {
  if (!is_fast(context->native_handle))
    return ngtcp2_crypto_encrypt_cb(dest, cipher, context, plain, size, nonce, nonce_size, header,
                                    header_size);
  key_in<fast_aead>(context->native_handle)->seal(dest, plain, size, nonce, header, header_size);
  return 0;
}

int unseal(std::uint8_t* dest, const ngtcp2_crypto_aead* cipher,
           const ngtcp2_crypto_aead_ctx* context, const std::uint8_t* sealed, std::size_t size,
           const std::uint8_t* nonce, std::size_t nonce_size, const std::uint8_t* header,
           std::size_t header_size) noexcept {
  if (!is_fast(context->native_handle))
    return ngtcp2_crypto_decrypt_cb(dest, cipher, context, sealed, size, nonce, nonce_size, header,
                                    header_size);
  const auto* key = key_in<fast_aead>(context->native_handle);
  return key->unseal(dest, sealed, size, nonce, header, header_size) ? 0 : NGTCP2_ERR_DECRYPT;
}

int header_mask(std::uint8_t* dest, const ngtcp2_crypto_cipher* cipher,
                const ngtcp2_crypto_cipher_ctx* context, const std::uint8_t* sample) noexcept {
  if (!is_fast(context->native_handle))
    return ngtcp2_crypto_hp_mask_cb(dest, cipher, context, sample);
  key_in<fast_mask>(context->native_handle)->mask(dest, sample);
  return 0;
}

}  // namespace weft::quic::core::detail
