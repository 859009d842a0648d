#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <weft/base/address.hpp>
#include <weft/base/memory_budget.hpp>
#include <weft/base/slice.hpp>
#include <weft/http/core/fields.hpp>
#include <weft/io/byte_stream.hpp>
#include <weft/io/shard.hpp>
#include <weft/io/task.hpp>
#include <weft/quic/connection.hpp>

// HTTP as those who speak a protocol on top of it see it: exchanges of a request and a response,
// the same over HTTP/3 and HTTP/2.

namespace weft::http {

/// What carries the exchanges of one connection.
struct connection_info {
  std::string_view version;    ///< "h3" or "h2"
  std::string_view transport;  ///< "quic", "tls-tcp", "quic-one-stream"
  address local, remote;
  std::string group, cipher;
  std::string peer_subject;  ///< with mutual TLS
};

/// One request and its response, on either end. Shard's thread only; at most one pending read and
/// one pending write, which are independent of each other.
///
/// When the peer gives the exchange up, operations fail with errc::reset, `detail()` being the
/// `give_up`; a response that was complete before that stays readable. When the connection ends
/// they fail with the reason it ended, which for a request that the server did not look at
/// (GOAWAY) is errc::refused.
///
/// Cancelling a pending operation (Asio cancellation) completes it with errc::cancelled and leaves
/// the exchange usable.
///
/// Destroying it abandons what is unfinished: as `reset(give_up::cancelled)`, or for a server whose
/// response is complete, as `stop_reading(give_up::no_error)`. A finished sending side is still
/// delivered.
class exchange {
 public:
  virtual ~exchange() = default;

  virtual const connection_info& connection() const noexcept = 0;
  /// Server: there from the start. Client: what it sent.
  virtual const request_head& request() const noexcept = 0;

  // Receiving -------------------------------------------------------------------------------------
  /// Client: waits for the final response's head; interim responses (1xx) are skipped.
  virtual task<result<>> receive_head() = 0;
  /// Client: after `receive_head`, or as soon as it has come; null before.
  virtual const response_head* response() const noexcept = 0;
  /// The next content, as soon as there is any; an empty slice at the end, where trailers are
  /// complete. Returns flow-control credit for what it hands out. A client may read before it has
  /// seen the head.
  virtual task<result<slice>> read() = 0;
  /// As `read`, without waiting: nothing when it would have to.
  virtual std::optional<result<slice>> try_read() = 0;
  /// Empty until the end, and when there were none.
  virtual const field_list& trailers() const noexcept = 0;

  // Sending ---------------------------------------------------------------------------------------
  // Nothing leaves before the end of the turn: head, content and trailers of a small message share
  // packets and system calls. A head or trailers that exceed the peer's limit on field sections
  // fail with errc::too_large and change nothing: a smaller one may follow.
  /// Server: queues the response's head, with `end` and nothing else. Once.
  virtual result<> send_head(const response_head& head, bool end = false) = 0;
  /// Takes all of `data`, shared, not copied; `end` ends our side without trailers. Nothing,
  /// changing nothing, when the bounded buffer is full; an exchange's first write finds room.
  virtual std::optional<result<>> try_write(slice data, bool end = false) = 0;
  /// As `try_write`, waiting for room.
  virtual task<result<>> write(slice data, bool end = false) = 0;
  /// Ends our side, with a trailer section unless `trailers` is empty (an empty one is never sent).
  virtual result<> finish(const field_list& trailers) = 0;

  // Giving up -------------------------------------------------------------------------------------
  /// No more content from the peer, please; what it sends is dropped. Our side goes on. A server
  /// that answers before the request's end does this after `finish` (RFC 9114 §4.1).
  virtual void stop_reading(give_up why = give_up::no_error) noexcept = 0;
  /// Gives both directions up and tells the peer at once. Pending operations complete with
  /// errc::cancelled. A complete, unsent or undelivered own side is not taken back: then this is
  /// `stop_reading`.
  virtual void reset(give_up why) noexcept = 0;
  /// Calls `callback` inline, at most once, when the peer gives the exchange up or the connection
  /// ends, without anyone waiting in an operation. Replaces an earlier one; an empty function takes
  /// it back.
  virtual void on_abandoned(std::move_only_function<void(const error&)> callback) = 0;

  /// RFC 9218 urgency of our side: 0 most urgent, default 3. A server starts with what the client's
  /// `priority` field said.
  virtual void set_urgency(std::uint8_t urgency) noexcept = 0;
  /// The request may be a replay of a client's first flight (0-RTT; RFC 8470).
  virtual bool early_data() const noexcept = 0;
};

struct options {
  /// Largest header or trailer section taken from the peer, counted as `section_size()`. Told to
  /// the peer, and enforced: a larger one is answered with status 431 by a server, and fails with
  /// errc::too_large in a client.
  std::size_t max_field_section = std::size_t{16} << 10;
  /// Requests a client may have open at once; further ones are rejected unprocessed.
  std::size_t max_concurrent = 1'000;
  /// Bytes a peer may send ahead of `read`, per exchange and per connection (HTTP/2; over HTTP/3
  /// those of the QUIC transport count).
  std::size_t exchange_window = std::size_t{1} << 20;
  std::size_t connection_window = std::size_t{16} << 20;
  /// Content an exchange takes from `write` beyond what the transport has taken.
  std::size_t send_buffer = std::size_t{256} << 10;
  /// QPACK: bytes of dynamic table we let the peer use (RFC 9204 §5). It may block no stream.
  std::size_t qpack_table = 4096;
  /// Charged for header sections and content held for the peer. Null: unlimited.
  std::shared_ptr<memory_budget> memory{};
  /// Server over TCP: value of an `alt-svc` field (RFC 7838) for every response; empty: none.
  std::string alt_svc{};
  /// Server: a request's head must be complete so long after its beginning; over HTTP/2, where it
  /// holds everything else up, any field section, and the connection ends with errc::timed_out.
  duration section_timeout = std::chrono::seconds{30};
  /// HTTP/2: when so long nothing has come, the peer is asked for a sign of life (PING), and when
  /// none follows the connection ends with errc::timed_out. Zero: never. Over HTTP/3 the QUIC
  /// transport's `keep_alive` and `idle_timeout` count.
  duration keep_alive = duration::zero();
  duration keep_alive_timeout = std::chrono::seconds{20};
  /// A connection that so long had no open exchange is closed. Zero: never.
  duration max_idle = duration::zero();
};

struct connection_stats {
  std::uint64_t requests = 0;  ///< started
  std::uint64_t rejected = 0;  ///< by the limit on open ones, or while draining
  std::uint64_t resets_sent = 0, resets_received = 0;
  std::size_t open = 0;
};

/// Takes requests, inline, as soon as the head is there. Must not throw or block.
using request_handler = std::function<void(std::unique_ptr<exchange>)>;

/// The server's end of one connection. Starts on construction. Destroying it ends everything at
/// once; exchanges may outlive it and fail. Shard's thread only.
class server_connection {
 public:
  virtual ~server_connection() = default;
  virtual const connection_info& info() const noexcept = 0;
  /// GOAWAY: requests the client starts from now on are rejected unprocessed. Completes when the
  /// open exchanges have ended and their responses are handed to TCP or, over QUIC, the client has
  /// closed the connection, for which it is given a second; or when the peer is gone.
  virtual task<> drain() = 0;
  /// Ends open exchanges and the connection.
  virtual void close(give_up why, std::string_view reason) noexcept = 0;
  /// Completes with the reason when the connection is over.
  virtual task<error> finished() = 0;
  virtual connection_stats stats() const noexcept = 0;
};

/// The client's end of one connection. Shard's thread only. Destroying it ends everything at once;
/// exchanges may outlive it and fail.
class client_connection {
 public:
  virtual ~client_connection() = default;
  virtual const connection_info& info() const noexcept = 0;
  /// Queues a request; waits while the server lets us open no more. With `end` it has no content.
  /// errc::refused when the server is going away, errc::too_large where its limit on field sections
  /// does not allow the head.
  virtual task<result<std::unique_ptr<exchange>>> request(request_head head, bool end,
                                                          std::uint8_t urgency = 3) = 0;
  /// As `request`, without waiting: nothing, changing nothing, when it would have to.
  virtual std::optional<result<std::unique_ptr<exchange>>> try_request(
      request_head& head, bool end, std::uint8_t urgency = 3) = 0;
  /// New requests have a chance: neither over nor going away.
  virtual bool usable() const noexcept = 0;
  /// Starts nothing new; completes when open exchanges have ended.
  virtual task<> drain() = 0;
  virtual void close(give_up why, std::string_view reason) noexcept = 0;
  virtual task<error> finished() = 0;
  virtual connection_stats stats() const noexcept = 0;
  /// The QUIC connection beneath; null over TCP.
  virtual quic::connection* quic() noexcept = 0;
};

/// ALPN names (RFC 9114 §3.1, RFC 9113 §3.2).
inline constexpr std::string_view alpn_h3 = "h3";
inline constexpr std::string_view alpn_h2 = "h2";

/// HTTP/3 (RFC 9114) on a connection whose ALPN is "h3".
std::unique_ptr<server_connection> serve_h3(quic::connection connection, io::shard& shard,
                                            options opts, request_handler handler);
std::unique_ptr<client_connection> open_h3(quic::connection connection, io::shard& shard,
                                           options opts);

/// HTTP/2 (RFC 9113, prior knowledge) on any byte stream: TLS over TCP with ALPN "h2", or one QUIC
/// stream. `info.version` is set by this.
std::unique_ptr<server_connection> serve_h2(std::unique_ptr<io::byte_stream> stream,
                                            connection_info info, io::shard& shard, options opts,
                                            request_handler handler);
std::unique_ptr<client_connection> open_h2(std::unique_ptr<io::byte_stream> stream,
                                           connection_info info, io::shard& shard, options opts);

}  // namespace weft::http
