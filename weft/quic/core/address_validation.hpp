// Internal.
#pragma once

// Answers that need no connection: tokens, Retry, version negotiation, stateless reset.

#include <ngtcp2/ngtcp2.h>
#include <ngtcp2/ngtcp2_crypto.h>

#include <span>
#include <vector>

#include <weft/quic/core/connection_id.hpp>
#include <weft/quic/core/keys.hpp>
#include <weft/quic/core/native.hpp>

namespace weft::quic::core::detail {

/// Fills the buffer or says so.
using fill_random = std::function<bool(std::uint8_t*, std::size_t)>;

/// The versions this build speaks, wanted first.
std::span<const std::uint32_t> supported_versions() noexcept;

/// Makes and checks what a server hands to clients instead of keeping state about them. All shards
/// with one secret accept each other's.
class address_validation {
 public:
  /// RFC 9000 §8.1.3: short for Retry, which is answered at once; NEW_TOKEN is for later visits.
  static constexpr duration retry_lifetime = std::chrono::seconds{10};
  static constexpr duration token_lifetime = std::chrono::hours{24};

  enum class verdict : std::uint8_t { none, retried, known, bad_retry, bad_token };

  explicit address_validation(std::span<const std::uint8_t, 32> secret);

  /// Judges the token of an Initial. `retried`: `original` is the client's first connection id.
  verdict judge(const ngtcp2_pkt_hd& header, const address& remote, ngtcp2_cid& original,
                time_point now) const;
  /// An encoded Retry, empty when that fails.
  std::vector<std::uint8_t> retry(const ngtcp2_pkt_hd& header, const address& remote,
                                  const connection_id& ours, time_point now) const;
  /// A token for NEW_TOKEN.
  std::vector<std::uint8_t> token(const address& remote, time_point now) const;
  /// CONNECTION_CLOSE(INVALID_TOKEN) for a Retry token that is not ours (RFC 9000 §8.1.3).
  static std::vector<std::uint8_t> refuse_token(const ngtcp2_pkt_hd& header);
  static std::vector<std::uint8_t> version_negotiation(const ngtcp2_version_cid& header,
                                                       std::uint8_t random);

  bool reset_token(std::span<const std::uint8_t> id, ngtcp2_stateless_reset_token& out) const;
  /// RFC 9000 §10.3; shorter than `trigger` bytes. Empty when that is not possible.
  std::vector<std::uint8_t> stateless_reset(std::span<const std::uint8_t> id, std::size_t trigger,
                                            const fill_random& random) const;

 private:
  key token_key_;
  key reset_key_;
};

}  // namespace weft::quic::core::detail
