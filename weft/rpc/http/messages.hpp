#pragma once

#include <weft/http/core/fields.hpp>
#include <weft/rpc/call.hpp>
#include <weft/rpc/core/frame_buffer.hpp>
#include <weft/rpc/http/wire/envelope.hpp>

// What both ends of a call over HTTP do alike with messages and failures.

namespace weft::rpc::http {

/// How messages stand in a body: each in an envelope, or one that is all of it (Connect, unary).
enum class framing : std::uint8_t { envelope, whole };

/// Below this size compression costs more than it saves. Bytes.
inline constexpr std::size_t compress_from = 64;

/// Appends `message` in `codec`'s form, with an envelope or bare; from `least` bytes on compressed
/// where that makes it smaller, with a `least` of 0 always. Returns what it is compressed with.
/// `spare` bytes stay free behind it.
result<compression> append_message(frame_buffer& to, const outgoing& message, rpc::codec codec,
                                   framing frame, compression algorithm, std::size_t spare = 0,
                                   std::size_t least = compress_from);
/// As `append_message` for bytes that are ready. `flags`: an envelope's, of a protocol's own.
result<compression> append_bytes(frame_buffer& to, bytes content, framing frame, std::uint8_t flags,
                                 compression algorithm, std::size_t spare = 0,
                                 std::size_t least = compress_from);

/// The content itself: decompressed if `compressed`, at most `limit` bytes. `internal` when
/// `algorithm` is identity and the content says that it is compressed.
result<payload> unpack(payload content, bool compressed, compression algorithm, std::size_t limit);

/// A body that is one message, while it arrives.
class whole_body {
 public:
  /// `memory` is charged for what is kept. Null: unlimited. Outlives this.
  whole_body(std::size_t limit, memory_budget* memory) noexcept : limit_{limit}, memory_{memory} {}
  whole_body(const whole_body&) = delete;
  whole_body& operator=(const whole_body&) = delete;
  ~whole_body() { release(); }

  /// resource_exhausted beyond the limit or the budget.
  result<> append(slice content);
  /// Puts a message there that came in another way.
  void set(payload message) noexcept { kept_ = std::move(message); }
  payload take() noexcept;

 private:
  void release() noexcept;

  payload kept_;
  std::size_t limit_;
  memory_budget* memory_;
  std::size_t charged_ = 0;
};

/// As `to_status`, with what giving an exchange up means: `rejected` and refused ones are
/// `unavailable` and safe to retry, `excessive_load` is `resource_exhausted`, `cancelled` is
/// `cancelled`, all else `internal` (gRPC's proposal G2).
status status_of(const error& failure);

}  // namespace weft::rpc::http
