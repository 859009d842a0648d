#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include <weft/base/slice.hpp>
#include <weft/rpc/core/compression.hpp>
#include <weft/rpc/native/wire/registry.hpp>
#include <weft/rpc/native/wire/varint.hpp>

// Frames of the control stream (docs/specs/native.md §4).

namespace weft::rpc::native::wire {

/// What one side told of itself. Members not sent keep their defaults.
struct settings {
  std::uint64_t max_message = max_varint;
  std::uint64_t max_metadata = default_max_metadata;
  std::vector<compression> compressions{};  ///< what it can decompress, most wanted first
  std::uint64_t max_calls = max_varint;
  std::uint64_t call_window = default_window;
  std::uint64_t one_way_window = default_window;

  bool accepts(compression algorithm) const noexcept;
  friend bool operator==(const settings&, const settings&) = default;
};

struct method_ack {
  std::uint64_t number;
  friend bool operator==(const method_ack&, const method_ack&) = default;
};
/// `call`: on a byte stream the call's number; on QUIC its stream id, or for a call on a lane twice
/// its number plus one (stream ids of calls are even).
struct cancel {
  std::uint64_t call;
  rpc::code code;
  friend bool operator==(const cancel&, const cancel&) = default;
};
/// From a server: calls from `first_refused` on (number or stream id) were not and will not be
/// looked at. From a client: 0, in answer, once it has no calls left.
struct goaway {
  std::uint64_t first_refused;
  friend bool operator==(const goaway&, const goaway&) = default;
};
struct credit {
  std::uint64_t call;  ///< 0: for one-way calls together
  std::uint64_t bytes;
  friend bool operator==(const credit&, const credit&) = default;
};
struct ping {
  std::uint64_t token;
  friend bool operator==(const ping&, const ping&) = default;
};
struct pong {
  std::uint64_t token;
  friend bool operator==(const pong&, const pong&) = default;
};

using control_event = std::variant<settings, method_ack, cancel, goaway, credit, ping, pong>;

/// Appends one frame.
void append(std::vector<std::byte>& out, const control_event& event);

/// Reads a control stream piecewise. The first error is final.
class control_parser {
 public:
  /// Feeds bytes that follow what was fed before; all events so far must have been taken.
  void push(bytes input) noexcept { input_ = input; }
  /// The next event; nothing when more bytes are needed. SETTINGS always comes first, exactly once.
  weft::result<std::optional<control_event>> next();
  bool has_settings() const noexcept { return has_settings_; }

 private:
  weft::result<bool> read_head();
  weft::result<std::optional<control_event>> decode(bytes content);

  bytes input_;
  std::array<std::byte, 2 * max_varint_size> head_{};
  std::size_t head_size_ = 0;
  std::vector<std::byte> content_;
  std::uint64_t type_ = 0;
  std::uint64_t left_ = 0;
  bool in_content_ = false;
  bool has_settings_ = false;
};

}  // namespace weft::rpc::native::wire
