#include <weft/base/error.hpp>

#include <format>
#include <system_error>

namespace weft {

std::string_view to_string(errc code) noexcept {
  switch (code) {
    case errc::cancelled:
      return "cancelled";
    case errc::timed_out:
      return "timed_out";
    case errc::closed:
      return "closed";
    case errc::reset:
      return "reset";
    case errc::stopped:
      return "stopped";
    case errc::refused:
      return "refused";
    case errc::unreachable:
      return "unreachable";
    case errc::protocol:
      return "protocol";
    case errc::tls:
      return "tls";
    case errc::too_large:
      return "too_large";
    case errc::exhausted:
      return "exhausted";
    case errc::invalid_argument:
      return "invalid_argument";
    case errc::unsupported:
      return "unsupported";
    case errc::malformed:
      return "malformed";
    case errc::system:
      return "system";
    case errc::random:
      return "random";
    case errc::internal:
      return "internal";
  }
  return "unknown";
}

std::string_view to_string(layer where) noexcept {
  switch (where) {
    case layer::base:
      return "base";
    case layer::io:
      return "io";
    case layer::udp:
      return "udp";
    case layer::tcp:
      return "tcp";
    case layer::tls:
      return "tls";
    case layer::quic:
      return "quic";
    case layer::stream:
      return "stream";
    case layer::http:
      return "http";
    case layer::rpc:
      return "rpc";
    case layer::app:
      return "app";
  }
  return "unknown";
}

std::string error::to_string() const {
  return std::format("{}: {}: {}", weft::to_string(where_), weft::to_string(code_), message_);
}

std::unexpected<error> fail_errno(layer where, std::string_view what, int number) {
  return fail(errc::system, where,
              std::format("{}: {}", what, std::generic_category().message(number)),
              static_cast<std::uint64_t>(number));
}

}  // namespace weft
