#pragma once

#include <cstddef>

#include <weft/rpc/call.hpp>
#include <weft/rpc/native/wire/call_parser.hpp>
#include <weft/rpc/native/wire/control.hpp>

// What both ends of a call do alike with messages and failures.

namespace weft::rpc::native {

/// Frames being put together in one buffer.
class frame_buffer {
 public:
  bool empty() const noexcept { return used_ == 0; }
  std::size_t room() const noexcept { return memory_.size() - used_; }
  std::size_t used() const noexcept { return used_; }
  /// Room for `count` more bytes, whose end is then told by `commit`.
  std::byte* reserve(std::size_t count);
  void commit(const std::byte* end) noexcept {
    used_ = static_cast<std::size_t>(end - memory_.data());
  }
  slice take() {
    memory_.truncate(std::exchange(used_, 0));
    return std::exchange(memory_, buffer{}).freeze();
  }

 private:
  buffer memory_;
  std::size_t used_ = 0;
};

/// Appends `message` as a frame, compressed where that makes it smaller. `spare` bytes stay free
/// behind it.
result<> append_message(frame_buffer& to, const outgoing& message, compression algorithm,
                        std::size_t spare);

/// The message itself: decompressed, at most `limit` bytes.
result<payload> unpack(wire::received_message message, std::size_t limit);

/// As `to_status`, with what the native protocol's own codes say.
status status_of(const error& failure);

/// The text with which calls are turned down unseen; callers may try again.
status refused_status();

}  // namespace weft::rpc::native
