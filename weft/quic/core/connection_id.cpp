#include <weft/quic/core/connection_id.hpp>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <stdexcept>

#include <weft/quic/core/keys.hpp>

namespace weft::quic::core {

detail::key detail::derive_key(std::span<const std::uint8_t, 32> secret, std::string_view purpose) {
  key out{};
  unsigned size = 0;
  if (!HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
            reinterpret_cast<const unsigned char*>(purpose.data()), purpose.size(), out.data(),
            &size))
    throw std::runtime_error{"HMAC-SHA-256 is not available"};
  return out;
}

connection_id_mask connection_id_mask::derive(std::span<const std::uint8_t, 32> secret) {
  const auto key = detail::derive_key(secret, "weft connection id");
  connection_id_mask mask;
  std::memcpy(&mask.add, key.data(), 4);
  std::memcpy(&mask.multiply, key.data() + 4, 4);
  mask.multiply |= 1;
  return mask;
}

std::optional<std::span<const std::uint8_t, connection_id_size>> destination_of(bytes datagram) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(datagram.data());
  // RFC 8999 §5: long headers carry version and length in front of the id, short ones nothing.
  const bool is_long = !datagram.empty() && (data[0] & 0x80) != 0;
  const std::size_t offset = is_long ? 6 : 1;
  if (datagram.size() < offset + connection_id_size) return std::nullopt;
  if (is_long && data[5] != connection_id_size) return std::nullopt;
  return std::span<const std::uint8_t, connection_id_size>{data + offset, connection_id_size};
}

}  // namespace weft::quic::core
