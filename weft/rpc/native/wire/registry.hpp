#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <weft/base/error.hpp>
#include <weft/rpc/core/status.hpp>

// The numbers of docs/specs/native.md.

namespace weft::rpc::native::wire {

/// First varint of a unidirectional stream.
enum class stream_type : std::uint64_t { control = 0x00, lane = 0x01 };

/// Frames of a call.
enum class call_frame : std::uint64_t {
  message = 0x00,
  compressed_message = 0x01,
  header = 0x02,
  status = 0x03,
};

/// Frames of the control stream.
enum class control_frame : std::uint64_t {
  settings = 0x00,
  method_ack = 0x01,
  cancel = 0x02,
  goaway = 0x03,
  credit = 0x04,
  ping = 0x05,
  pong = 0x06,
};

/// Fields of request headers, response headers and statuses.
enum class field : std::uint64_t {
  metadata = 0x00,
  deadline = 0x01,
  urgency = 0x02,
  detail = 0x03,
  unseen = 0x04,  ///< in a status: nobody has looked at the call
};

enum class setting : std::uint64_t {
  max_message = 0x01,
  max_metadata = 0x02,
  compressions = 0x03,
  max_calls = 0x04,
  call_window = 0x05,
  one_way_window = 0x06,
};

/// Application error codes of QUIC's CONNECTION_CLOSE, RESET_STREAM and STOP_SENDING.
enum class error_code : std::uint64_t {
  none = 0x00,
  internal = 0x01,
  malformed = 0x02,        ///< bytes that do not parse
  unexpected = 0x03,       ///< a frame where it must not be
  settings = 0x04,         ///< missing, repeated or impossible settings
  critical_stream = 0x05,  ///< a control stream ended, or came twice
  flow_control = 0x06,     ///< more than the credit, or credit beyond the maximum
  excessive_load = 0x07,   ///< the peer makes work faster than it takes results
  too_large = 0x08,        ///< a declared length exceeds a limit
  unknown_stream = 0x09,   ///< a unidirectional stream of a type we do not know
  method = 0x0a,           ///< a method number given twice, to different paths
  refused = 0x0b,          ///< the call was not looked at: safe to try again
  too_many_lanes = 0x0c,
  call_base = 0x100,  ///< + a status code: the call ended with it
};

/// A stream error code that carries a status code.
constexpr std::uint64_t call_error(code c) noexcept {
  return static_cast<std::uint64_t>(error_code::call_base) + static_cast<std::uint64_t>(c);
}

// Values in force until the peer's SETTINGS arrive, and where they do not say otherwise.
inline constexpr std::uint64_t default_window = 64 * 1024;
inline constexpr std::size_t default_max_metadata = 16 * 1024;
inline constexpr std::size_t max_path = 1024;
/// Highest method number; a server may acknowledge fewer.
inline constexpr std::uint64_t max_methods = 256;
inline constexpr std::size_t max_lanes = 4;
/// What a header or status frame may hold beside metadata: path, fields, message text.
inline constexpr std::size_t header_allowance = 4 * 1024;
inline constexpr std::size_t max_control_payload = 4 * 1024;
/// Bytes of a call in one record on a byte stream.
inline constexpr std::size_t max_piece = 32 * 1024;

/// `detail()` of the resulting error is the wire's code.
inline std::unexpected<error> wire_error(errc kind, error_code code, std::string message) {
  return weft::fail(kind, layer::rpc, std::move(message), static_cast<std::uint64_t>(code));
}
inline std::unexpected<error> malformed(std::string message) {
  return wire_error(errc::malformed, error_code::malformed, std::move(message));
}
inline std::unexpected<error> unexpected(std::string message) {
  return wire_error(errc::protocol, error_code::unexpected, std::move(message));
}

}  // namespace weft::rpc::native::wire
