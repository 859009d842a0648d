#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <weft/base/address.hpp>
#include <weft/base/error.hpp>
#include <weft/quic/core/options.hpp>
#include <weft/quic/core/stream.hpp>

namespace weft::quic::core {

class endpoint;

/// Something happened to a connection as a whole.
struct connection_event {
  enum class kind : std::uint8_t {
    handshake_done,       ///< keys are there: `session()` is complete, streams flow
    early_data_ready,     ///< client: streams may be opened, as 0-RTT
    early_data_rejected,  ///< client: streams opened early are gone; open and send again
    incoming_stream,      ///< `accept_stream()` has one
    stream_credit,     ///< a peer's MAX_STREAMS arrived after `open_stream` failed for lack of it
    datagram,          ///< `read_datagram()` has one
    datagram_room,     ///< `send_datagram` accepts again
    new_session,       ///< client: `resumption()` changed
    path_changed,      ///< `current_path()` changed: migration or rebinding, validated
    migration_failed,  ///< the new path did not validate; the old one stays
    closed,            ///< last event: `close_reason()` says why
  };
  kind what;
};

/// One QUIC connection as a state machine. Owned by its endpoint; the pointer stays valid until
/// `endpoint::release(connection)`. Never re-entered from its own events: they are queued and
/// polled. Every call that takes `now` expects a time not earlier than the last one.
class connection {
 public:
  enum class state : std::uint8_t { handshaking, established, closing, closed };

  virtual ~connection() = default;

  /// The owner's own pointer, untouched by the core.
  void* user = nullptr;

  virtual bool is_server() const noexcept = 0;
  virtual state current_state() const noexcept = 0;
  /// Why it ended; meaningful once `closed` (errc::closed with code 0: orderly).
  virtual const error& close_reason() const noexcept = 0;
  virtual const path& current_path() const noexcept = 0;
  virtual const tls::session_info& session() const noexcept = 0;
  virtual connection_stats stats() const = 0;
  virtual std::vector<path_stats> paths() const = 0;
  virtual quic::resumption resumption() const = 0;

  // Events ----------------------------------------------------------------------------------------
  virtual std::optional<connection_event> poll_event() = 0;
  /// The next stream with pending `stream_event`s, each at most once until its events are taken.
  virtual stream* poll_stream() = 0;

  // Streams ---------------------------------------------------------------------------------------
  /// errc::exhausted when the peer's stream credit is used up: wait for `stream_credit`.
  virtual result<stream*> open_stream(bool bidirectional) = 0;
  /// The next stream the peer opened, or null.
  virtual stream* accept_stream() = 0;
  /// The owner will not touch `s` again. A direction still open is abandoned: what is unread is
  /// dropped with STOP_SENDING(code), an unfinished send side is reset with `code`; a finished one
  /// is still delivered.
  virtual void release(stream& s, std::uint64_t code = 0) = 0;

  // Datagrams (RFC 9221) --------------------------------------------------------------------------
  /// Largest payload a DATAGRAM can carry now; 0 when the peer takes none.
  virtual std::size_t max_datagram() const noexcept = 0;
  /// errc::exhausted when the bounded queue is full, too_large, unsupported.
  virtual result<> send_datagram(slice payload) = 0;
  virtual std::optional<slice> read_datagram() = 0;

  // Connection ------------------------------------------------------------------------------------
  /// CONNECTION_CLOSE with an application code; streams end at once.
  virtual void close(std::uint64_t application_code, std::string_view reason, time_point now) = 0;
  /// Client, after the handshake: moves to another local address. `immediate` does not wait for the
  /// new path to validate (RFC 9000 §9.2): for when the old address is gone. errc::exhausted while
  /// it is too early (handshake not confirmed, no spare connection id): the same call will do a
  /// little later. errc::unsupported when the peer forbids it, or the connection is a server's.
  virtual result<> migrate(const path& to, bool immediate, time_point now) = 0;
  /// RFC 9001 §6. errc::exhausted while the last update, or the handshake, is not confirmed. One
  /// end's business: when both ends update while the way between them is cut, the library of the
  /// one whose update was not acknowledged never learns of the other's, and the connection is lost.
  virtual result<> update_keys(time_point now) = 0;
  virtual void ping(time_point now) = 0;

 protected:
  connection() = default;
};

}  // namespace weft::quic::core
