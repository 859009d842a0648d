#include <weft/quic/core/fast_aes.hpp>

#ifdef WEFT_HAS_IPSEC_MB

#include <openssl/crypto.h>

#include <array>
#include <new>

namespace weft::quic::core::detail {
namespace {

/// The library's table of functions for this processor; null where it has none. What is called
/// through it here keeps no state in it, so all threads share one, until the process ends.
IMB_MGR* manager() noexcept {
  static IMB_MGR* const made = []() -> IMB_MGR* {
    constexpr std::uint64_t needed = IMB_FEATURE_AESNI | IMB_FEATURE_PCLMULQDQ;
    auto* fresh = alloc_mb_mgr(0);
    if (!fresh) return nullptr;
    IMB_ARCH chosen = IMB_ARCH_NONE;
    init_mb_mgr_auto(fresh, &chosen);
    const bool tested = (fresh->features & IMB_FEATURE_SELF_TEST) == 0 ||
                        (fresh->features & IMB_FEATURE_SELF_TEST_PASS) != 0;
    if (imb_get_errno(fresh) == 0 && chosen != IMB_ARCH_NONE && tested &&
        (fresh->features & needed) == needed)
      return fresh;
    free_mb_mgr(fresh);
    return nullptr;
  }();
  return made;
}

}  // namespace

bool fast_aead::present() noexcept {
  return manager() != nullptr;
}

fast_aead* fast_aead::make(aes kind, const std::uint8_t* key) noexcept {
  auto* made = new (std::nothrow) fast_aead;
  if (!made) return nullptr;
  auto* m = manager();
  if (kind == aes::bits_128) {
    IMB_AES128_GCM_PRE(m, key, &made->data_);
    made->seal_ = m->gcm128_enc;
    made->unseal_ = m->gcm128_dec;
  } else {
    IMB_AES256_GCM_PRE(m, key, &made->data_);
    made->seal_ = m->gcm256_enc;
    made->unseal_ = m->gcm256_dec;
  }
  return made;
}

void fast_aead::seal(std::uint8_t* dest, const std::uint8_t* plain, std::size_t size,
                     const std::uint8_t* nonce, const std::uint8_t* header,
                     std::size_t header_size) const noexcept {
  gcm_context_data state;
  seal_(&data_, &state, dest, plain, size, nonce, header, header_size, dest + size, tag_size);
}

bool fast_aead::unseal(std::uint8_t* dest, const std::uint8_t* sealed, std::size_t size,
                       const std::uint8_t* nonce, const std::uint8_t* header,
                       std::size_t header_size) const noexcept {
  if (size < tag_size) return false;
  gcm_context_data state;
  std::array<std::uint8_t, tag_size> tag;
  const std::size_t text = size - tag_size;
  unseal_(&data_, &state, dest, sealed, text, nonce, header, header_size, tag.data(), tag_size);
  return CRYPTO_memcmp(tag.data(), sealed + text, tag_size) == 0;
}

fast_mask* fast_mask::make(aes kind, const std::uint8_t* key) noexcept {
  auto* made = new (std::nothrow) fast_mask;
  if (!made) return nullptr;
  auto* m = manager();
  alignas(64) std::uint8_t unused[sizeof made->round_keys_];  // for deciphering
  if (kind == aes::bits_128) {
    IMB_AES_KEYEXP_128(m, key, made->round_keys_, unused);
    made->mask_ = m->aes_ecb_128_quic;
  } else {
    IMB_AES_KEYEXP_256(m, key, made->round_keys_, unused);
    made->mask_ = m->aes_ecb_256_quic;
  }
  OPENSSL_cleanse(unused, sizeof unused);
  return made;
}

void fast_mask::mask(std::uint8_t* dest, const std::uint8_t* sample) const noexcept {
  void* to[] = {dest};
  const void* const from[] = {sample};
  // Not by `imb_quic_hp_aes_ecb`, whose checks of its arguments take as long as AES.
  mask_(from, round_keys_, to, 1);
}

}  // namespace weft::quic::core::detail

#endif
