// Internal.
#pragma once

// AES-GCM and AES header masks of the multi-buffer library (libipsec-mb), for one key each. Only
// packet_protection.cpp decides whether they are used. The keys may be used by any thread.

#include <cstddef>
#include <cstdint>

#include <weft/quic/core/packet_protection.hpp>

#ifdef WEFT_HAS_IPSEC_MB
#include <intel-ipsec-mb.h>
#endif

namespace weft::quic::core::detail {

#ifdef WEFT_HAS_IPSEC_MB

class fast_aead {
 public:
  static constexpr std::size_t tag_size = 16;

  /// Whether the processor has what the library needs. Without, no other function may be called.
  static bool present() noexcept;
  /// Null when memory has run out.
  static fast_aead* make(aes kind, const std::uint8_t* key) noexcept;

  /// Writes `size` bytes and the tag; `dest` may be `plain`. A nonce has 12 bytes.
  void seal(std::uint8_t* dest, const std::uint8_t* plain, std::size_t size,
            const std::uint8_t* nonce, const std::uint8_t* header,
            std::size_t header_size) const noexcept;
  /// Writes `size` bytes less the tag. False when the tag is wrong: nothing written counts then.
  bool unseal(std::uint8_t* dest, const std::uint8_t* sealed, std::size_t size,
              const std::uint8_t* nonce, const std::uint8_t* header,
              std::size_t header_size) const noexcept;

 private:
  // The library aligns it in C only.
  alignas(64) gcm_key_data data_;
  aes_gcm_enc_dec_t seal_;
  aes_gcm_enc_dec_t unseal_;
};

class fast_mask {
 public:
  static fast_mask* make(aes kind, const std::uint8_t* key) noexcept;
  /// Five bytes from a sample of sixteen.
  void mask(std::uint8_t* dest, const std::uint8_t* sample) const noexcept;

 private:
  alignas(64) std::uint8_t round_keys_[15 * 16];
  aes_ecb_quic_t mask_;
};

#else

class fast_aead {
 public:
  static constexpr std::size_t tag_size = 16;
  static bool present() noexcept { return false; }
  static fast_aead* make(aes, const std::uint8_t*) noexcept { return nullptr; }
  void seal(std::uint8_t*, const std::uint8_t*, std::size_t, const std::uint8_t*,
            const std::uint8_t*, std::size_t) const noexcept {}
  bool unseal(std::uint8_t*, const std::uint8_t*, std::size_t, const std::uint8_t*,
              const std::uint8_t*, std::size_t) const noexcept {
    return false;
  }
};

class fast_mask {
 public:
  static fast_mask* make(aes, const std::uint8_t*) noexcept { return nullptr; }
  void mask(std::uint8_t*, const std::uint8_t*) const noexcept {}
};

#endif

}  // namespace weft::quic::core::detail
