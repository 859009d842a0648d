#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <weft/io/shard.hpp>
#include <weft/io/task.hpp>
#include <weft/quic/core/options.hpp>
#include <weft/quic/stream.hpp>
#include <weft/udp/socket.hpp>

namespace weft::quic {

namespace detail {
class connection_state;
}

/// One QUIC connection. Move-only; shard's thread only. Destroying it closes the connection with
/// code 0; call `close` to say more, `closed` to wait for the end.
class connection {
 public:
  connection() noexcept;
  connection(connection&&) noexcept;
  connection& operator=(connection&&) noexcept;
  ~connection();
  explicit operator bool() const noexcept { return state_ != nullptr; }

  io::shard& shard() const noexcept;
  bool is_server() const noexcept;
  bool is_open() const noexcept;
  /// The handshake is done: what is sent or was received from now on is no replay.
  bool is_confirmed() const noexcept;
  /// Completes when the handshake is done; with early data that is later than `connect`. Then
  /// `session()` is complete and tells whether the early data was accepted.
  task<result<>> confirmed();
  const path& current_path() const noexcept;
  const tls::session_info& session() const noexcept;
  connection_stats stats() const;
  std::vector<path_stats> paths() const;
  /// Counters of the socket that carries the current path.
  const udp::counters& socket_counters() const noexcept;

  // Streams ---------------------------------------------------------------------------------------
  /// Waits while the peer's stream credit is used up.
  task<result<stream>> open_stream(direction d = direction::bidirectional);
  /// Without waiting: nothing when there is no credit.
  std::optional<result<stream>> try_open_stream(direction d = direction::bidirectional);
  /// The next stream the peer opens. One waiter at a time.
  task<result<stream>> accept_stream();
  /// Instead of `accept_stream`: each stream the peer opens is handed to `handler` inline, its
  /// first bytes already readable. Must not throw or block.
  void on_stream(std::move_only_function<void(stream)> handler);

  /// Sends now what streams have taken so far; without it that happens at the end of the turn. For
  /// who is woken by what arrives and goes on working in the same turn; of no effect elsewhere.
  void flush();
  /// Calls `handler` between the events of two streams, before the connection decides whether what
  /// was written so far leaves early: who collects writes makes them there. Replaces the one
  /// before.
  void before_sending(std::move_only_function<void()> handler);

  // Datagrams (RFC 9221) --------------------------------------------------------------------------
  std::size_t max_datagram() const noexcept;
  task<result<>> send_datagram(slice payload);
  task<result<slice>> receive_datagram();

  // Connection ------------------------------------------------------------------------------------
  /// Client: moves to a new local socket bound to `local` (port 0: any). Completes when the new
  /// path is validated; streams and calls go on meanwhile. `immediate` sends on the new path at
  /// once, for when the old address is gone.
  task<result<>> migrate(address local, bool immediate = false);
  /// Client: what a later connection to the same server can resume from. Empty until the server
  /// sent a ticket, shortly after the handshake.
  quic::resumption resumption() const;
  result<> update_keys();
  void close(std::uint64_t application_code = 0, std::string_view reason = {});
  /// Completes with the reason when the connection is over, at once when it is already.
  /// errc::closed, code 0: orderly.
  task<error> closed();
  /// Calls `callback` inline, once, when the connection ends. Several may be set.
  void on_closed(std::move_only_function<void(const error&)> callback);

 private:
  friend class detail::connection_state;
  explicit connection(std::shared_ptr<detail::connection_state> state) noexcept;
  std::shared_ptr<detail::connection_state> state_;
};

}  // namespace weft::quic
