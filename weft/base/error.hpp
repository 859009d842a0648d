#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

/// What went wrong, as far as a caller can act on it.
enum class errc : std::uint8_t {
  cancelled,    ///< the caller cancelled the operation
  timed_out,    ///< a deadline or idle timeout passed
  closed,       ///< the object was closed on this side, or in an orderly way by the peer
  reset,        ///< the peer abandoned a stream or connection; `error::detail` is its code
  stopped,      ///< the peer does not want more of a stream (STOP_SENDING); `detail` is its code
  refused,      ///< nobody listens there, or the peer turned the connection down
  unreachable,  ///< the network has no way to the address
  protocol,     ///< the peer broke a protocol; `detail` is the transport or application code
  tls,          ///< handshake or certificate failure; `detail` is the TLS alert where there is one
  too_large,    ///< a message, header list or buffer exceeds its limit
  exhausted,    ///< a memory budget, stream credit or other resource ran out
  invalid_argument,  ///< the caller asked for something that cannot be
  unsupported,       ///< this build, kernel or peer lacks the capability
  malformed,         ///< bytes that do not parse
  system,            ///< an operating-system call failed; `detail` is errno
  random,            ///< the random source failed
  internal,          ///< a defect in weft
};

/// Where it went wrong, named after the rooms data passes through.
enum class layer : std::uint8_t { base, io, udp, tcp, tls, quic, stream, http, rpc, app };

std::string_view to_string(errc code) noexcept;
std::string_view to_string(layer where) noexcept;

/// A failure a correct program can meet. A value: cheap to move, comparable by `code()`.
class [[nodiscard]] error {
 public:
  error(errc code, layer where, std::string message, std::uint64_t detail = 0) noexcept
      : message_{std::move(message)}, detail_{detail}, code_{code}, where_{where} {}

  errc code() const noexcept { return code_; }
  layer where() const noexcept { return where_; }
  /// Layer-specific number: errno, QUIC error code, TLS alert.
  std::uint64_t detail() const noexcept { return detail_; }
  /// One sentence for a person: what was offered, what was wanted, what to try.
  const std::string& message() const noexcept { return message_; }
  /// "quic: timed_out: no answer from 127.0.0.1:8443 within 5 s".
  std::string to_string() const;

  friend bool operator==(const error& e, errc code) noexcept { return e.code_ == code; }

 private:
  std::string message_;
  std::uint64_t detail_;
  errc code_;
  layer where_;
};

template <class T = void>
using result = std::expected<T, error>;

/// `return fail(errc::closed, layer::stream, "…");`
inline std::unexpected<error> fail(errc code, layer where, std::string message,
                                   std::uint64_t detail = 0) {
  return std::unexpected{error{code, where, std::move(message), detail}};
}

/// An errc::system error with the text of `number` (an errno value).
std::unexpected<error> fail_errno(layer where, std::string_view what, int number);

}  // namespace weft
