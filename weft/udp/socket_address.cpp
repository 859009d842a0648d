#include <weft/udp/socket_address.hpp>

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

namespace weft::udp {

namespace {

constexpr std::size_t ipv4_bytes = 4;
constexpr std::array<std::uint8_t, 12> mapped_prefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool is_mapped(const std::uint8_t* bytes) noexcept {
  return std::equal(mapped_prefix.begin(), mapped_prefix.end(), bytes);
}

address ipv4_of(const std::uint8_t* bytes, std::uint16_t port) noexcept {
  return address::ipv4({bytes[0], bytes[1], bytes[2], bytes[3]}, port);
}

}  // namespace

address normalised(const address& from) noexcept {
  if (!from.is_ipv6() || !is_mapped(from.bytes().data())) return from;
  return ipv4_of(from.bytes().data() + mapped_prefix.size(), from.port());
}

address from_socket_address(const socket_address& from) noexcept {
  if (from.any.sa_family == AF_INET) {
    std::uint8_t bytes[ipv4_bytes];
    std::memcpy(bytes, &from.ipv4.sin_addr, sizeof bytes);
    return ipv4_of(bytes, ntohs(from.ipv4.sin_port));
  }
  if (from.any.sa_family != AF_INET6) return {};
  const std::uint8_t* bytes = from.ipv6.sin6_addr.s6_addr;
  const std::uint16_t port = ntohs(from.ipv6.sin6_port);
  if (is_mapped(bytes)) return ipv4_of(bytes + mapped_prefix.size(), port);
  std::array<std::uint8_t, 16> copy;
  std::copy_n(bytes, copy.size(), copy.begin());
  return address::ipv6(copy, port, from.ipv6.sin6_scope_id);
}

socklen_t to_socket_address(const address& given, int family, socket_address& out) noexcept {
  const address to = normalised(given);
  if (to.ip_family() == address::family::none) return 0;
  if (family == AF_INET) {
    if (to.is_ipv6()) return 0;
    out.ipv4 = sockaddr_in{.sin_family = AF_INET, .sin_port = htons(to.port())};
    std::memcpy(&out.ipv4.sin_addr, to.bytes().data(), ipv4_bytes);
    return sizeof out.ipv4;
  }
  out.ipv6 = sockaddr_in6{
      .sin6_family = AF_INET6, .sin6_port = htons(to.port()), .sin6_scope_id = to.scope()};
  std::uint8_t* bytes = out.ipv6.sin6_addr.s6_addr;
  if (to.is_ipv6()) {
    std::ranges::copy(to.bytes(), bytes);
  } else {
    std::ranges::copy(mapped_prefix, bytes);
    std::copy_n(to.bytes().data(), ipv4_bytes, bytes + mapped_prefix.size());
  }
  return sizeof out.ipv6;
}

}  // namespace weft::udp
