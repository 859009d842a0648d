#include <weft/base/address.hpp>

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <format>

namespace weft {

address address::ipv4(std::array<std::uint8_t, 4> bytes, std::uint16_t port) noexcept {
  address result;
  std::ranges::copy(bytes, result.bytes_.begin());
  result.port_ = port;
  result.family_ = family::ipv4;
  return result;
}

address address::ipv6(const std::array<std::uint8_t, 16>& bytes, std::uint16_t port,
                      std::uint32_t scope) noexcept {
  address result;
  result.bytes_ = bytes;
  result.port_ = port;
  result.scope_ = scope;
  result.family_ = family::ipv6;
  return result;
}

namespace {

std::unexpected<error> not_an_address(std::string_view text) {
  return fail(errc::invalid_argument, layer::base,
              std::format("'{}' is not an address; write 127.0.0.1:8443 or [::1]:8443", text));
}

template <class Number>
bool parse_number(std::string_view text, Number& out) {
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), out);
  return failure == std::errc{} && end == text.data() + text.size();
}

}  // namespace

result<address> address::parse(std::string_view text) {
  const auto colon = text.rfind(':');
  std::uint16_t port = 0;
  if (colon == text.npos || !parse_number(text.substr(colon + 1), port))
    return not_an_address(text);
  std::string host{text.substr(0, colon)};
  if (host.size() < 2 || host.front() != '[') {
    std::array<std::uint8_t, 4> v4{};
    if (inet_pton(AF_INET, host.c_str(), v4.data()) != 1) return not_an_address(text);
    return ipv4(v4, port);
  }
  if (host.back() != ']') return not_an_address(text);
  host = host.substr(1, host.size() - 2);
  std::uint32_t scope = 0;
  if (const auto percent = host.find('%'); percent != host.npos) {
    if (!parse_number(std::string_view{host}.substr(percent + 1), scope))
      return not_an_address(text);
    host.resize(percent);
  }
  std::array<std::uint8_t, 16> v6{};
  if (inet_pton(AF_INET6, host.c_str(), v6.data()) != 1) return not_an_address(text);
  return ipv6(v6, port, scope);
}

bool address::is_loopback() const noexcept {
  if (family_ == family::ipv4) return bytes_[0] == 127;
  static constexpr std::array<std::uint8_t, 12> mapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (family_ == family::ipv6 && std::equal(mapped.begin(), mapped.end(), bytes_.begin()))
    return bytes_[12] == 127;
  return family_ == family::ipv6 && bytes_[15] == 1 &&
         std::all_of(bytes_.begin(), bytes_.begin() + 15, [](auto b) { return b == 0; });
}

bool address::is_unspecified() const noexcept {
  return std::ranges::all_of(bytes_, [](auto b) { return b == 0; });
}

address address::with_port(std::uint16_t port) const noexcept {
  address result = *this;
  result.port_ = port;
  return result;
}

std::string address::to_string() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (family_ == family::none) return "(none)";
  if (family_ == family::ipv4)
    return std::format("{}:{}", inet_ntop(AF_INET, bytes_.data(), text, sizeof text), port_);
  inet_ntop(AF_INET6, bytes_.data(), text, sizeof text);
  if (scope_ != 0) return std::format("[{}%{}]:{}", text, scope_, port_);
  return std::format("[{}]:{}", text, port_);
}

}  // namespace weft
