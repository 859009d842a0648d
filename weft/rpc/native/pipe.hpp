#pragma once

#include <cstdint>
#include <optional>

#include <weft/base/slice.hpp>
#include <weft/io/task.hpp>

namespace weft::rpc::native {

/// Learns that nobody wants a pipe's bytes any more.
class pipe_owner {
 public:
  /// Inline, at most once, without anyone waiting: the peer gave the call up, or the carrier is
  /// gone.
  virtual void abandoned(const error& why) noexcept = 0;

 protected:
  ~pipe_owner() = default;
};

/// The two directions of one call as a carrier moves them: a QUIC stream, or a share of a byte
/// stream. One reader and one writer at a time. Destroying it gives up what is unfinished.
class pipe {
 public:
  virtual ~pipe() = default;

  /// The next bytes; an empty slice at the end; nothing when one would have to wait.
  virtual std::optional<weft::result<slice>> try_read() = 0;
  virtual task<weft::result<slice>> read() = 0;
  /// Takes all of `data`, and ends our direction with `end`. Nothing, changing nothing, when the
  /// bounded buffer is full; a pipe's first write always finds room.
  virtual std::optional<weft::result<>> try_write(slice data, bool end) = 0;
  virtual task<weft::result<>> write(slice data, bool end) = 0;
  /// No more bytes from the peer, please. What it sends is dropped.
  virtual void stop_reading(std::uint64_t code) noexcept = 0;
  /// Gives both directions up and tells the peer at once. Pending operations complete with an
  /// error, inline: the last thing this does, for they may destroy the pipe.
  virtual void abandon(std::uint64_t code) noexcept = 0;
  /// What was written will be sent even when the pipe goes.
  virtual bool flushed() const noexcept = 0;
  virtual task<> wait_flushed() = 0;
  virtual void set_urgency(std::uint8_t urgency) noexcept = 0;
  /// Told of the peer's giving up; null: nobody.
  virtual void set_owner(pipe_owner* owner) = 0;
};

}  // namespace weft::rpc::native
