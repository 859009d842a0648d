#pragma once

#include <span>

#include <weft/base/slice.hpp>
#include <weft/io/task.hpp>

namespace weft::io {

/// A connected, reliable, full-duplex run of bytes: TLS over TCP, or one QUIC stream. What RPC over
/// "any byte stream" is written against. One reader and one writer at a time; same shard.
class byte_stream {
 public:
  virtual ~byte_stream() = default;

  /// Some bytes as soon as there are any (as much as has arrived, up to about 64 KiB); an empty
  /// slice at the peer's orderly end.
  virtual task<result<slice>> read() = 0;
  /// Takes all of `parts`, in order; completes when they are accepted by a bounded buffer, not when
  /// they are delivered. Parts are shared, not copied, where the transport allows.
  virtual task<result<>> write(std::span<const slice> parts) = 0;
  /// Orderly end of our direction, after all that was written.
  virtual task<result<>> finish() = 0;
  /// Drops everything at once. Safe beside a pending read or write, which complete with an error.
  virtual void abort() noexcept = 0;
};

}  // namespace weft::io
