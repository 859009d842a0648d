#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <weft/base/address.hpp>
#include <weft/base/memory_budget.hpp>
#include <weft/base/slice.hpp>
#include <weft/base/time.hpp>
#include <weft/tls/credentials.hpp>

namespace weft::quic {

using namespace std::chrono_literals;

enum class congestion : std::uint8_t { cubic, reno, bbr };

/// Transport behaviour of one connection. Sizes in bytes.
struct transport_options {
  duration handshake_timeout = 10s;
  /// Silence after which the connection is given up; the smaller of both ends' values counts.
  duration idle_timeout = 30s;
  /// PING after this much silence; zero: none. Keep below half the idle timeout.
  duration keep_alive = 0s;
  duration max_ack_delay = 1ms;
  /// Ack-eliciting packets received before an acknowledgement is sent at once (RFC 9000 §13.2.2).
  std::size_t ack_threshold = 2;

  /// Flow-control windows we grant (RFC 9000 §4).
  std::uint64_t stream_window = std::uint64_t{4} << 20;
  std::uint64_t connection_window = std::uint64_t{16} << 20;
  /// Streams the peer may have open at once; credit is renewed in batches as they close.
  std::uint64_t max_bidi_streams = 1024;
  std::uint64_t max_uni_streams = 128;
  /// Bytes a stream, and all of a connection, keeps for sending: queued plus unacknowledged. A
  /// single write larger than either still completes, piece by piece.
  std::size_t stream_send_buffer = std::size_t{4} << 20;
  std::size_t connection_send_buffer = std::size_t{32} << 20;

  congestion controller = congestion::cubic;
  bool pacing = true;
  bool ecn = true;
  /// Largest UDP payload to look for, and the sizes tried on the way. No probes given: chosen by
  /// address (loopback and jumbo paths are searched beyond 1 452). Without discovery datagrams stay
  /// at 1 200 bytes, which every path carries.
  bool path_mtu_discovery = true;
  std::size_t max_udp_payload = 65'488;
  std::vector<std::uint16_t> mtu_probes;

  /// Whether a server's clients may move to other addresses of theirs (RFC 9000 §9). Behind a load
  /// balancer that goes by addresses they must not. A translator's new port is followed anyway.
  bool migration = true;

  /// RFC 9221; 0: not offered.
  std::size_t max_datagram_frame = 0;
  /// Receives qlog (JSON-SEQ) as it is written. Empty: none.
  std::function<void(std::string_view)> qlog;
};

/// Source of random bytes. Injectable, so that its failure is testable. Returns false on failure.
using random_source = std::function<bool(mutable_bytes)>;

/// What a client keeps to resume a session: TLS ticket, transport parameters, address token.
/// Opaque; may be stored. Only for the server name it came from.
struct resumption {
  std::vector<std::uint8_t> state;
  bool empty() const noexcept { return state.empty(); }
};

struct client_config {
  tls::client_options tls;
  transport_options transport;
  /// From an earlier connection's `connection::resumption()`. Empty: full handshake.
  quic::resumption resume;
  /// With `resume`: allow streams before the handshake is done. Whatever is written then can be
  /// replayed by an attacker: for idempotent work only.
  bool early_data = false;
};

struct server_config {
  tls::server_options tls;
  transport_options transport;
  /// Answer with Retry once this many handshakes are unfinished (RFC 9000 §8.1.2). 0: always.
  std::size_t retry_above = 64;
  std::size_t max_handshakes = 4096;
  std::size_t max_connections = 65'536;
};

struct endpoint_options {
  /// Carried, masked, in every connection id this endpoint issues; see `shard_of`.
  std::uint8_t shard = 0;
  /// Keys stateless-reset tokens, address tokens and the connection-id mask. All shards of a
  /// server, and its next incarnation, share it. All zero: drawn from `random`.
  std::array<std::uint8_t, 32> secret{};
  random_source random;  ///< empty: the operating system's, through the TLS library
  std::shared_ptr<memory_budget> memory;  ///< empty: unlimited
  /// Protect packets by what is fastest on this machine. False: through the TLS library alone, as
  /// where only a validated library may see keys.
  bool fast_protection = true;
};

/// Figures of one connection at one moment.
struct connection_stats {
  duration smoothed_rtt{}, min_rtt{}, latest_rtt{}, rtt_variance{};
  std::uint64_t congestion_window = 0, bytes_in_flight = 0, slow_start_threshold = 0;
  std::uint64_t packets_sent = 0, bytes_sent = 0, packets_received = 0, bytes_received = 0;
  std::uint64_t packets_lost = 0, bytes_lost = 0, packets_discarded = 0;
  std::uint64_t trains_sent = 0, datagrams_sent = 0, padded_datagrams = 0;
  std::uint64_t streams_opened = 0, streams_accepted = 0, streams_closed = 0;
  /// The peer's key updates are counted some probe time-outs after they happened.
  std::uint64_t key_updates = 0, migrations = 0;
  /// DATAGRAM payloads given up in our queues, either way: overflow, or a path grown too narrow.
  std::uint64_t datagrams_dropped = 0;
  std::size_t path_mtu = 0;       ///< UDP payload bytes
  std::size_t send_buffered = 0;  ///< queued plus unacknowledged
  std::size_t receive_buffered = 0;
};

/// Per-path counts, kept for the current and earlier paths of a connection.
struct path_stats {
  weft::path path;
  std::uint64_t datagrams_sent = 0, datagrams_received = 0;
  std::uint64_t bytes_sent = 0, bytes_received = 0;
};

/// Figures of an endpoint: what it did with datagrams that belong to no connection.
struct endpoint_stats {
  std::uint64_t datagrams_received = 0;
  std::uint64_t dropped_unknown = 0;  ///< neither ours nor an Initial
  std::uint64_t dropped_malformed = 0;
  std::uint64_t dropped_overload = 0;  ///< handshake or connection limit
  std::uint64_t wrong_shard = 0;
  std::uint64_t version_negotiations = 0, retries = 0, stateless_resets = 0;
  std::uint64_t tokens_rejected = 0;
  std::uint64_t accepted = 0, handshakes_failed = 0;
  std::size_t connections = 0, handshakes = 0;
};

}  // namespace weft::quic
