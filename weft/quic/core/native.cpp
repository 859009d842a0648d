#include <weft/quic/core/native.hpp>

namespace weft::quic::core::detail {
namespace {

// Host order without <arpa/inet.h>: the ports are the only multi-byte numbers here.
std::uint16_t swap_port(std::uint16_t port) noexcept {
  std::uint8_t wire[2] = {static_cast<std::uint8_t>(port >> 8), static_cast<std::uint8_t>(port)};
  std::memcpy(&port, wire, 2);
  return port;
}

}  // namespace

ngtcp2_socklen to_native(const address& from, ngtcp2_sockaddr_union& to) noexcept {
  std::memset(&to, 0, sizeof to);
  if (from.ip_family() == address::family::ipv4) {
    to.in.sin_family = AF_INET;
    to.in.sin_port = swap_port(from.port());
    std::memcpy(&to.in.sin_addr, from.bytes().data(), 4);
    return sizeof to.in;
  }
  to.in6.sin6_family = AF_INET6;
  to.in6.sin6_port = swap_port(from.port());
  std::memcpy(&to.in6.sin6_addr, from.bytes().data(), 16);
  to.in6.sin6_scope_id = from.scope();
  return sizeof to.in6;
}

address from_native(const ngtcp2_addr& from) noexcept {
  if (from.addrlen == 0) return {};
  if (from.addr->sa_family == AF_INET) {
    ngtcp2_sockaddr_in in;
    std::memcpy(&in, from.addr, sizeof in);
    std::array<std::uint8_t, 4> bytes;
    std::memcpy(bytes.data(), &in.sin_addr, 4);
    return address::ipv4(bytes, swap_port(in.sin_port));
  }
  ngtcp2_sockaddr_in6 in6;
  std::memcpy(&in6, from.addr, sizeof in6);
  std::array<std::uint8_t, 16> bytes;
  std::memcpy(bytes.data(), &in6.sin6_addr, 16);
  return address::ipv6(bytes, swap_port(in6.sin6_port), in6.sin6_scope_id);
}

path from_native(const ngtcp2_path& from) noexcept {
  return {from_native(from.local), from_native(from.remote)};
}

bool same_address(const ngtcp2_addr& a, const address& b) noexcept {
  if (a.addrlen == 0) return b.ip_family() == address::family::none;
  if (a.addr->sa_family == AF_INET) {
    const auto* in = reinterpret_cast<const ngtcp2_sockaddr_in*>(a.addr);
    return b.ip_family() == address::family::ipv4 && swap_port(in->sin_port) == b.port() &&
           std::memcmp(&in->sin_addr, b.bytes().data(), 4) == 0;
  }
  const auto* in6 = reinterpret_cast<const ngtcp2_sockaddr_in6*>(a.addr);
  return b.ip_family() == address::family::ipv6 && swap_port(in6->sin6_port) == b.port() &&
         in6->sin6_scope_id == b.scope() && std::memcmp(&in6->sin6_addr, b.bytes().data(), 16) == 0;
}

native_path::native_path(const path& from) noexcept {
  const auto local = to_native(from.local, local_);
  const auto remote = to_native(from.remote, remote_);
  path_ = {{&local_.sa, local}, {&remote_.sa, remote}, nullptr};
}

}  // namespace weft::quic::core::detail
