#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include <weft/tcp/stream.hpp>

namespace weft::tcp {

/// The TLS side of a server, made once. Listeners of several shards that share one accept each
/// other's tickets.
class server_tls {
 public:
  static result<server_tls> make(const tls::server_options& options);

  struct impl;
  const std::shared_ptr<impl>& internals() const noexcept { return impl_; }

 private:
  std::shared_ptr<impl> impl_;
};

struct listen_options {
  /// Several listeners (one a shard) on one port; the kernel spreads connections over them.
  bool reuse_port = false;
  int backlog = 1024;
  /// Connections in handshake or waiting for `accept`. More wait for their turn, which the sources
  /// (an IPv4 address, an IPv6 /64) get alike: one with few handshakes goes before one with many,
  /// and takes the place of the oldest of a source that has more than twice as many.
  std::size_t max_pending = 256;
  /// Connections that wait so. Beyond, the newest of the source with the most is turned away.
  std::size_t max_waiting = 1024;
  duration handshake_timeout = std::chrono::seconds{10};
  /// Told why a connection was turned down, on the shard's thread. Must not throw.
  std::function<void(const error&, const address& peer)> on_failed_handshake;
};

struct listener_counters {
  std::uint64_t accepted = 0;            ///< connections the kernel gave us
  std::uint64_t handshakes_started = 0;  ///< of these
  std::uint64_t handshakes_failed = 0;   ///< of these; timed-out and displaced ones included
  std::uint64_t turned_away = 0;         ///< of the accepted, before their handshake
  std::uint64_t accept_errors = 0;       ///< accept calls that failed, and were tried again
};

/// Accepts TLS connections on one shard. Handshakes run beside each other and beside accepting; one
/// that takes too long is dropped. Failing system calls never end it: it backs off and goes on.
class listener {
 public:
  /// `at` may have port 0. `shard` must outlive the listener and its streams.
  static result<std::unique_ptr<listener>> listen(io::shard& shard, const address& at,
                                                  const server_tls& tls,
                                                  listen_options options = {});
  static result<std::unique_ptr<listener>> listen(io::shard& shard, const address& at,
                                                  std::shared_ptr<const tls::server_options> tls,
                                                  listen_options options = {});

  struct impl;
  explicit listener(std::shared_ptr<impl> from) noexcept;
  /// As `close()`.
  ~listener();
  listener(const listener&) = delete;
  listener& operator=(const listener&) = delete;

  /// The next connection whose handshake is done. One call at a time. errc::closed after `close()`;
  /// errc::cancelled when cancelled, which loses no connection.
  task<result<std::unique_ptr<stream>>> accept();
  const address& local_address() const noexcept;
  const listener_counters& counters() const noexcept;
  /// Stops listening, drops handshakes in progress and connections nobody accepted.
  void close() noexcept;

 private:
  std::shared_ptr<impl> impl_;
};

}  // namespace weft::tcp
