#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <weft/base/address.hpp>

namespace weft::udp {

/// Room for either family, at half the size of sockaddr_storage.
union socket_address {
  sockaddr any;
  sockaddr_in ipv4;
  sockaddr_in6 ipv6;
};

/// ::ffff:a.b.c.d as a.b.c.d, everything else as it is.
address normalised(const address& from) noexcept;
/// What the kernel reported; IPv4-mapped addresses come out as IPv4.
address from_socket_address(const socket_address& from) noexcept;
/// Writes `to` in the form a socket of `family` (AF_INET, AF_INET6) takes. 0: it cannot go there.
socklen_t to_socket_address(const address& to, int family, socket_address& out) noexcept;

}  // namespace weft::udp
