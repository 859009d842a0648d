#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <weft/base/memory_budget.hpp>
#include <weft/base/slice_queue.hpp>
#include <weft/rpc/core/payload.hpp>

// Length-prefixed messages, as gRPC, gRPC-Web and Connect's streams send them: a byte of flags, a
// length of four bytes, big-endian, and the content. How the bytes are split on their way means
// nothing.

namespace weft::rpc::http::wire {

inline constexpr std::size_t envelope_head = 5;
inline constexpr std::uint8_t flag_compressed = 0x01;
inline constexpr std::uint8_t flag_connect_end = 0x02;
inline constexpr std::uint8_t flag_web_trailers = 0x80;

struct envelope {
  std::uint8_t flags = 0;
  payload content;
};

/// Writes the `envelope_head` bytes in front of `size` bytes of content; returns their end.
/// Precondition: `size` is below 4 GiB.
std::byte* write_envelope_head(std::byte* to, std::uint8_t flags, std::size_t size) noexcept;

/// Cuts a run of bytes into envelopes without copying them. Lengths are checked before anything is
/// kept.
class envelope_parser {
 public:
  /// `memory` is charged for what is pushed and not handed out yet. Null: unlimited. Outlives this.
  envelope_parser(std::size_t max_message, memory_budget* memory) noexcept
      : limit_{max_message}, memory_{memory} {}
  envelope_parser(const envelope_parser&) = delete;
  envelope_parser& operator=(const envelope_parser&) = delete;
  ~envelope_parser();

  /// resource_exhausted when the memory budget does not allow it.
  result<> push(slice arrived);
  /// The next whole envelope; nothing: more bytes are needed. resource_exhausted, from then on,
  /// when one is longer than the limit.
  result<std::optional<envelope>> next();
  /// Nothing is begun: an end here cuts nothing off.
  bool at_boundary() const noexcept { return held_ == 0 && !current_; }
  void set_limit(std::size_t max_message) noexcept { limit_ = max_message; }

 private:
  bool read_head();
  void release(std::size_t count) noexcept;

  slice_queue parts_;
  std::size_t held_ = 0;  ///< bytes in `parts_`
  std::size_t limit_;
  memory_budget* memory_;
  std::size_t charged_ = 0;
  std::optional<envelope> current_;
  std::size_t missing_ = 0;  ///< of `current_`
  std::optional<status> failed_;
};

}  // namespace weft::rpc::http::wire
