#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <weft/io/byte_stream.hpp>
#include <weft/quic/connection.hpp>
#include <weft/rpc/call.hpp>

// weft's own protocol (docs/specs/native.md) over its three carriers. One protocol, two shapes: on
// a QUIC connection a stream per call; on any one byte stream all calls share it, with call
// numbers.

namespace weft::rpc::native {

/// ALPN of the native protocol: on QUIC and on TLS/TCP.
inline constexpr std::string_view alpn = "weft/1";
/// ALPN of a QUIC connection whose first bidirectional stream carries all calls.
inline constexpr std::string_view alpn_one_stream = "weft-one-stream/1";

struct session_options {
  rpc::limits limits{};
  /// What we can decompress, most wanted first; told to the peer in SETTINGS.
  std::vector<compression> compressions = available_compressions();
  /// Budget for messages under assembly, shared by all sessions of a process. Null: unlimited.
  std::shared_ptr<memory_budget> memory{};
  /// Client: send small unary calls over shared lanes.
  bool lanes = false;
  /// Client: makes a call on another connection that this one's server has not looked at, and never
  /// will. What the call has written is kept for that until its first response, up to a limit.
  /// Empty: such calls end with `unavailable`.
  std::function<task<result<std::unique_ptr<client_call>>>(const method&, call_options,
                                                           time_point deadline)>
      elsewhere{};
  /// Server: a call whose header is not complete so long after its first byte ends with
  /// `deadline_exceeded`. `duration::max()`: never.
  duration header_timeout = std::chrono::seconds{30};
};

struct session_stats {
  std::uint64_t calls_started = 0, calls_finished = 0, one_way = 0, lane_calls = 0;
  std::uint64_t messages_sent = 0, messages_received = 0, cancels_sent = 0, cancels_received = 0;
  std::size_t running = 0;
};

/// The server's end of one connection: reads calls, runs each through `dispatcher` as a coroutine
/// of its own on the connection's shard, sends what comes back. Starts on construction. Destroying
/// it ends everything at once. Shard's thread only.
class server_session {
 public:
  virtual ~server_session() = default;
  /// GOAWAY: calls the client starts from now on are refused, to be retried elsewhere. Completes
  /// when running calls have ended and their replies are acknowledged (or the peer is gone).
  virtual task<> drain() = 0;
  /// Ends running calls with `why`, then the connection.
  virtual void close(status why) noexcept = 0;
  /// Completes when the connection is over and no handler of it runs any more.
  virtual task<> finished() = 0;
  virtual session_stats stats() const noexcept = 0;
};

/// `info.name` tells "quic", "quic-one-stream" or "tls-tcp". `dispatcher` must outlive the session.
std::unique_ptr<server_session> serve(quic::connection connection, io::shard& shard,
                                      dispatcher& calls, session_options options);
std::unique_ptr<server_session> serve(std::unique_ptr<io::byte_stream> stream, transport_info info,
                                      std::string peer_subject, io::shard& shard, dispatcher& calls,
                                      session_options options);

/// The client's end. Usable at once: calls may be queued before the server's SETTINGS arrive.
std::unique_ptr<transport> open(quic::connection connection, io::shard& shard,
                                session_options options);
std::unique_ptr<transport> open(std::unique_ptr<io::byte_stream> stream, transport_info info,
                                io::shard& shard, session_options options);

/// The connection under a transport made from one; null otherwise.
quic::connection* connection_of(transport& t) noexcept;

}  // namespace weft::rpc::native
