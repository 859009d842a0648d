#pragma once

#include <cstdint>
#include <memory>

#include <weft/base/address.hpp>
#include <weft/base/time.hpp>
#include <weft/io/byte_stream.hpp>
#include <weft/io/shard.hpp>
#include <weft/tls/credentials.hpp>

namespace weft::tcp {

struct stream_counters {
  std::uint64_t bytes_read = 0;     ///< plaintext handed over by `read`
  std::uint64_t bytes_written = 0;  ///< plaintext accepted by `write`
  std::uint64_t wire_in = 0;        ///< ciphertext
  std::uint64_t wire_out = 0;
  /// Receive and send calls. A receive that had to sleep counts once; the event loop's own calls
  /// do not count.
  std::uint64_t system_calls = 0;
  /// How often a read or write was resumed by the event loop rather than done at once.
  std::uint64_t wake_ups = 0;
};

/// TLS 1.3 over TCP. Belongs to one shard; only that shard's thread may touch it.
///
/// Cancelling a pending operation completes it with errc::cancelled and loses no received data; a
/// cancelled `write` may have sent any part of its bytes. A connection that ends without TLS
/// close_notify is errc::reset. Destroying the stream before `finish` has completed is `abort`;
/// operations still pending then end with errc::closed.
class stream final : public io::byte_stream {
 public:
  struct impl;
  explicit stream(std::shared_ptr<impl> from) noexcept;
  ~stream() override;

  /// All that has arrived, up to 64 KiB.
  task<result<slice>> read() override;
  /// Completes when the kernel has taken all of it (its socket buffer is the bound).
  task<result<>> write(std::span<const slice> parts) override;
  /// Sends close_notify and ends our direction. Reading goes on.
  task<result<>> finish() override;
  void abort() noexcept override;

  const tls::session_info& session() const noexcept;
  const address& local_address() const noexcept;
  const address& remote_address() const noexcept;
  const stream_counters& counters() const noexcept;

 private:
  std::shared_ptr<impl> impl_;
};

}  // namespace weft::tcp
