#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include <weft/base/error.hpp>

namespace weft {

/// An IP address and port, IPv4 or IPv6. A plain value, free of operating-system types.
class address {
 public:
  enum class family : std::uint8_t { none, ipv4, ipv6 };

  address() = default;
  /// `bytes` in network order.
  static address ipv4(std::array<std::uint8_t, 4> bytes, std::uint16_t port) noexcept;
  static address ipv6(const std::array<std::uint8_t, 16>& bytes, std::uint16_t port,
                      std::uint32_t scope = 0) noexcept;
  /// Numeric forms only, no name look-up: "127.0.0.1:8443", "[::1]:8443", "[fe80::1%2]:1".
  static result<address> parse(std::string_view text);

  family ip_family() const noexcept { return family_; }
  bool is_ipv6() const noexcept { return family_ == family::ipv6; }
  bool is_loopback() const noexcept;
  bool is_unspecified() const noexcept;
  std::uint16_t port() const noexcept { return port_; }
  std::uint32_t scope() const noexcept { return scope_; }
  /// 4 or 16 significant bytes, network order.
  const std::array<std::uint8_t, 16>& bytes() const noexcept { return bytes_; }
  address with_port(std::uint16_t port) const noexcept;
  /// "127.0.0.1:8443", "[::1]:8443".
  std::string to_string() const;

  friend auto operator<=>(const address&, const address&) = default;
  friend bool operator==(const address&, const address&) = default;

 private:
  std::array<std::uint8_t, 16> bytes_{};
  std::uint32_t scope_ = 0;
  std::uint16_t port_ = 0;
  family family_ = family::none;
};

/// The two ends of a datagram's way (RFC 9000 §9).
struct path {
  address local;
  address remote;
  friend bool operator==(const path&, const path&) = default;
};

/// Explicit congestion notification code points (RFC 3168), as they stand in the IP header.
enum class ecn : std::uint8_t { not_ect = 0, ect1 = 1, ect0 = 2, ce = 3 };

}  // namespace weft
