#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <weft/base/address.hpp>
#include <weft/base/memory_budget.hpp>
#include <weft/base/time.hpp>
#include <weft/io/shard.hpp>
#include <weft/io/task.hpp>
#include <weft/rpc/core/compression.hpp>
#include <weft/rpc/core/metadata.hpp>
#include <weft/rpc/core/method.hpp>
#include <weft/rpc/core/payload.hpp>
#include <weft/rpc/core/status.hpp>

// What a wire protocol and the typed layer agree on: calls as sequences of untyped messages.
// Protocols (native, later gRPC and Connect) implement `server_call`, `client_call` and
// `transport`; generated code and `server` / `channel` use them.

namespace weft::rpc {

/// Limits on what a peer may make us hold. Bytes.
struct limits {
  std::size_t max_message = std::size_t{16} << 20;   ///< after decompression, and before
  std::size_t max_metadata = std::size_t{16} << 10;  ///< `metadata::wire_size()`
  std::size_t max_concurrent_calls = 10'000;         ///< per connection
};

// Server side
// ---------------------------------------------------------------------------------------

/// What a call's request said before its first message.
struct call_info {
  std::string_view path;  ///< "/greet.v1.GreetService/Greet"
  rpc::metadata metadata;
  time_point deadline = never;
  address peer;
  std::string_view protocol;   ///< "native", "grpc", …
  std::string_view transport;  ///< "quic", "quic-one-stream", "tls-tcp"
  std::string peer_subject;    ///< with mutual TLS
  bool early_data = false;     ///< may be a replay (0-RTT)
  bool one_way = false;
  rpc::codec codec = rpc::codec::proto;  ///< the form in which messages travel
  std::string_view http_method;          ///< "POST" or "GET"; empty without HTTP
  std::string_view query;                ///< of a GET, as it came
};

/// One call as a protocol presents it to a handler. Owned by the protocol; valid until the
/// handler's coroutine has ended. Shard's thread only.
class server_call {
 public:
  virtual ~server_call() = default;
  virtual const call_info& info() const noexcept = 0;
  /// The next request message; nothing when the client has sent its last one.
  virtual task<result<std::optional<payload>>> read() = 0;
  /// Sends initial metadata now rather than with the first message. At most once, before `write`.
  virtual task<result<>> send_headers(const metadata& headers) = 0;
  /// Sends one response message; completes when a bounded buffer has taken it. Cancelled before,
  /// it may have sent a part of the message: only the call's end can follow.
  virtual task<result<>> write(const outgoing& message) = 0;
  /// Trailing metadata, sent with the status.
  virtual void set_trailers(metadata trailers) = 0;
  /// Compression of what `write` sends, if the client accepts it.
  virtual void set_compression(compression algorithm) = 0;
};

/// Runs a call and returns its status; the protocol then sends status and trailers. The protocol
/// cancels the coroutine (Asio cancellation, terminal) when the client cancels, the deadline passes
/// or the connection ends.
class dispatcher {
 public:
  virtual ~dispatcher() = default;
  /// What is known of the method behind a path, if anything. Lives for ever.
  virtual const method* find(std::string_view /*path*/) const noexcept { return nullptr; }
  /// `unimplemented` for a path nobody serves. Never throws: a handler's exception becomes
  /// `unknown` (its text goes to the server's log, not to the peer).
  virtual task<status> dispatch(server_call& call) = 0;
};

// Client side
// ---------------------------------------------------------------------------------------

struct response_info {
  metadata headers, trailers;
  address peer;
  std::string transport;
};

/// How to make one call. Aggregate: `{.timeout = 200ms, .urgency = 1}`.
struct call_options {
  /// Remaining time from the start of the call, queueing and connecting included. The server learns
  /// what is left.
  std::optional<duration> timeout{};
  std::optional<time_point> deadline{};
  rpc::metadata metadata{};
  /// RFC 9218 urgency, 0 most urgent.
  std::uint8_t urgency = 3;
  compression request_compression = compression::identity;
  /// Wait for a connection rather than fail at once when the server cannot be reached.
  bool wait_for_ready = false;
  /// Filled when the call ends. Must outlive the call.
  response_info* info = nullptr;
};

/// One call as a client protocol presents it. Destroying it cancels what is unfinished (the server
/// is told). Shard's thread only; at most one pending read and one pending write.
class client_call {
 public:
  virtual ~client_call() = default;
  /// Sends one request message; `last` also ends our side. Completes when a bounded buffer has
  /// taken it. Fails with the call's status when that is already known. Cancelled before, it may
  /// have sent a part of the message: the call can only end.
  virtual task<result<>> write(const outgoing& message, bool last) = 0;
  /// Ends our side.
  virtual task<result<>> finish_writing() = 0;
  /// The next response message; nothing once the call ended well. Otherwise the call's status.
  virtual task<result<std::optional<payload>>> read() = 0;
  /// Initial metadata; waits for it.
  virtual task<result<metadata>> read_headers() = 0;
  /// Complete after `read` returned nothing or a status.
  virtual const metadata& headers() const noexcept = 0;
  virtual const metadata& trailers() const noexcept = 0;
  /// Ends the call with `why`; pending operations complete with it; the server is told at once.
  virtual void cancel(status why) = 0;
  /// The form in which messages travel.
  virtual rpc::codec codec() const noexcept { return rpc::codec::proto; }
};

/// What a transport can tell of itself.
struct transport_info {
  std::string_view name;  ///< "quic", "quic-one-stream", "tls-tcp"
  address local, remote;
  std::string group, cipher;
};

/// A connected way to a server, for one protocol. Shard's thread only.
class transport {
 public:
  virtual ~transport() = default;
  /// Starts a call: queues its header. Waits for stream credit where there is such a thing.
  /// `deadline` is `never` or absolute.
  virtual task<result<std::unique_ptr<client_call>>> start(const method& m,
                                                           const call_options& options,
                                                           time_point deadline) = 0;
  /// A call without reply: completes when a bounded buffer has taken it. Delivered at most once.
  virtual task<result<>> one_way(const method& m, const call_options& options, time_point deadline,
                                 const outgoing& message) = 0;
  /// No new calls: the server is going away or the connection is over. Running ones may go on.
  virtual bool usable() const noexcept = 0;
  virtual transport_info info() const = 0;
  /// Ends all calls with `why`.
  virtual void close(status why) noexcept = 0;
  /// Completes when running calls have ended and everything sent is acknowledged.
  virtual task<> drain() = 0;
};

/// Maps what lower rooms report to a status a caller can act on.
status to_status(const error& failure);

}  // namespace weft::rpc
