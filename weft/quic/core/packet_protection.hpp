// Internal.
#pragma once

// Packet protection (RFC 9001 §5): AES through the multi-buffer library where it is at hand, all
// else through OpenSSL. docs/decisions/0007 says why.

#include <ngtcp2/ngtcp2.h>

#include <cstddef>
#include <cstdint>

namespace weft::quic::core::detail {

enum class aes : std::uint8_t { none, bits_128, bits_256 };

constexpr std::size_t key_size(aes kind) noexcept {
  return kind == aes::none ? 0 : kind == aes::bits_128 ? 16 : 32;
}

/// Whether this build has the library, the processor what it needs, and its results are those of
/// OpenSSL. Found out once a process.
bool has_fast_protection() noexcept;

/// Contexts of ours. False when there is no fast protection of this kind, or no memory: OpenSSL's
/// serve then.
bool make_fast(ngtcp2_crypto_aead_ctx& made, aes kind, const std::uint8_t* key) noexcept;
bool make_fast(ngtcp2_crypto_cipher_ctx& made, aes kind, const std::uint8_t* key) noexcept;
/// Puts one in the place of OpenSSL's, if it can.
void quicken(ngtcp2_crypto_aead_ctx& context, aes kind, const std::uint8_t* key) noexcept;
bool is_fast(const ngtcp2_crypto_aead_ctx& context) noexcept;
bool is_fast(const ngtcp2_crypto_cipher_ctx& context) noexcept;

// The protocol library's callbacks, for contexts of both kinds.

int seal(std::uint8_t* dest, const ngtcp2_crypto_aead* cipher,
         const ngtcp2_crypto_aead_ctx* context, const std::uint8_t* plain, std::size_t size,
         const std::uint8_t* nonce, std::size_t nonce_size, const std::uint8_t* header,
         std::size_t header_size) noexcept;
int unseal(std::uint8_t* dest, const ngtcp2_crypto_aead* cipher,
           const ngtcp2_crypto_aead_ctx* context, const std::uint8_t* sealed, std::size_t size,
           const std::uint8_t* nonce, std::size_t nonce_size, const std::uint8_t* header,
           std::size_t header_size) noexcept;
int header_mask(std::uint8_t* dest, const ngtcp2_crypto_cipher* cipher,
                const ngtcp2_crypto_cipher_ctx* context, const std::uint8_t* sample) noexcept;
void delete_aead(ngtcp2_conn* native, ngtcp2_crypto_aead_ctx* context, void* user) noexcept;
void delete_mask(ngtcp2_conn* native, ngtcp2_crypto_cipher_ctx* context, void* user) noexcept;

}  // namespace weft::quic::core::detail
