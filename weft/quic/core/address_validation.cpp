#include <weft/quic/core/address_validation.hpp>

#include <algorithm>
#include <array>

namespace weft::quic::core::detail {
namespace {

constexpr std::array<std::uint32_t, 2> versions{NGTCP2_PROTO_VER_V1, NGTCP2_PROTO_VER_V2};

std::vector<std::uint8_t> sized(std::vector<std::uint8_t> buffer, ngtcp2_ssize size) {
  buffer.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return buffer;
}

ngtcp2_duration nanoseconds(duration d) {
  return static_cast<ngtcp2_duration>(d.count());
}

}  // namespace

std::span<const std::uint32_t> supported_versions() noexcept {
  return versions;
}

address_validation::address_validation(std::span<const std::uint8_t, 32> secret)
    : token_key_{derive_key(secret, "weft address token")},
      reset_key_{derive_key(secret, "weft stateless reset")} {}

address_validation::verdict address_validation::judge(const ngtcp2_pkt_hd& header,
                                                      const address& remote, ngtcp2_cid& original,
                                                      time_point now) const {
  if (header.tokenlen == 0) return verdict::none;
  ngtcp2_sockaddr_union native;
  const auto size = to_native(remote, native);
  if (header.token[0] == NGTCP2_CRYPTO_TOKEN_MAGIC_RETRY2) {
    const int failed = ngtcp2_crypto_verify_retry_token2(
        &original, header.token, header.tokenlen, token_key_.data(), token_key_.size(),
        header.version, &native.sa, size, &header.dcid, nanoseconds(retry_lifetime),
        to_native(now));
    if (failed == 0) return verdict::retried;
    // Unreadable: perhaps from another server; it counts as no token. Ours but wrong: refuse.
    return failed == NGTCP2_CRYPTO_ERR_VERIFY_TOKEN ? verdict::bad_retry : verdict::bad_token;
  }
  if (header.token[0] == NGTCP2_CRYPTO_TOKEN_MAGIC_REGULAR &&
      ngtcp2_crypto_verify_regular_token(header.token, header.tokenlen, token_key_.data(),
                                         token_key_.size(), &native.sa, size,
                                         nanoseconds(token_lifetime), to_native(now)) == 0)
    return verdict::known;
  return verdict::bad_token;
}

std::vector<std::uint8_t> address_validation::retry(const ngtcp2_pkt_hd& header,
                                                    const address& remote,
                                                    const connection_id& ours,
                                                    time_point now) const {
  ngtcp2_sockaddr_union native;
  const auto size = to_native(remote, native);
  ngtcp2_cid scid;
  ngtcp2_cid_init(&scid, ours.data(), ours.size());
  std::array<std::uint8_t, NGTCP2_CRYPTO_MAX_RETRY_TOKENLEN2> token;
  const auto token_size = ngtcp2_crypto_generate_retry_token2(
      token.data(), token_key_.data(), token_key_.size(), header.version, &native.sa, size, &scid,
      &header.dcid, to_native(now));
  if (token_size < 0) return {};
  std::vector<std::uint8_t> packet(NGTCP2_MAX_UDP_PAYLOAD_SIZE);
  const auto written =
      ngtcp2_crypto_write_retry(packet.data(), packet.size(), header.version, &header.scid, &scid,
                                &header.dcid, token.data(), static_cast<std::size_t>(token_size));
  return sized(std::move(packet), written);
}

std::vector<std::uint8_t> address_validation::token(const address& remote, time_point now) const {
  ngtcp2_sockaddr_union native;
  const auto size = to_native(remote, native);
  std::vector<std::uint8_t> token(NGTCP2_CRYPTO_MAX_REGULAR_TOKENLEN);
  const auto written = ngtcp2_crypto_generate_regular_token(
      token.data(), token_key_.data(), token_key_.size(), &native.sa, size, to_native(now));
  return sized(std::move(token), written);
}

std::vector<std::uint8_t> address_validation::refuse_token(const ngtcp2_pkt_hd& header) {
  std::vector<std::uint8_t> packet(NGTCP2_MAX_UDP_PAYLOAD_SIZE);
  const auto written = ngtcp2_crypto_write_connection_close(
      packet.data(), packet.size(), header.version, &header.scid, &header.dcid,
      NGTCP2_INVALID_TOKEN, nullptr, 0);
  return sized(std::move(packet), written);
}

std::vector<std::uint8_t> address_validation::version_negotiation(const ngtcp2_version_cid& header,
                                                                  std::uint8_t random) {
  // RFC 9368 §6: one reserved version keeps clients from depending on the list.
  const std::array<std::uint32_t, 3> offered{0x0a0a0a0au | std::uint32_t{random & 0xf0u} << 24,
                                             versions[0], versions[1]};
  std::vector<std::uint8_t> packet(7 + header.dcidlen + header.scidlen + 4 * offered.size());
  const auto written = ngtcp2_pkt_write_version_negotiation(
      packet.data(), packet.size(), random, header.scid, header.scidlen, header.dcid,
      header.dcidlen, offered.data(), offered.size());
  return sized(std::move(packet), written);
}

bool address_validation::reset_token(std::span<const std::uint8_t> id,
                                     ngtcp2_stateless_reset_token& out) const {
  ngtcp2_cid cid;
  ngtcp2_cid_init(&cid, id.data(), id.size());
  return ngtcp2_crypto_generate_stateless_reset_token(out.data, reset_key_.data(),
                                                      reset_key_.size(), &cid) == 0;
}

std::vector<std::uint8_t> address_validation::stateless_reset(std::span<const std::uint8_t> id,
                                                              std::size_t trigger,
                                                              const fill_random& random) const {
  // Long enough to look like any packet with the longest connection id, always shorter than what
  // it answers, so that two endpoints cannot keep answering each other (RFC 9000 §10.3.3).
  constexpr std::size_t usual = 43, smallest = 21;
  const std::size_t size = std::min(usual, trigger - std::min<std::size_t>(trigger, 1));
  if (size < smallest) return {};
  std::array<std::uint8_t, usual> filling;
  const std::size_t filling_size = size - NGTCP2_STATELESS_RESET_TOKENLEN;
  ngtcp2_stateless_reset_token token;
  if (!random(filling.data(), filling_size) || !reset_token(id, token)) return {};
  std::vector<std::uint8_t> packet(size);
  const auto written = ngtcp2_pkt_write_stateless_reset2(packet.data(), packet.size(), &token,
                                                         filling.data(), filling_size);
  return sized(std::move(packet), written);
}

}  // namespace weft::quic::core::detail
