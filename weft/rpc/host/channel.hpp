#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <weft/quic/endpoint.hpp>
#include <weft/rpc/client.hpp>
#include <weft/rpc/core/retry.hpp>
#include <weft/rpc/interceptor.hpp>
#include <weft/tls/credentials.hpp>

namespace weft::rpc {

/// What carries a channel's calls. The choice is the caller's; weft never falls back silently.
enum class carrier : std::uint8_t {
  quic,             ///< a stream per call
  quic_one_stream,  ///< all calls share one QUIC stream, as they would share a TCP connection
  tls_tcp,          ///< TLS 1.3 over TCP
};

/// How a channel's calls are written. All are understood by every weft server.
enum class protocol : std::uint8_t {
  native,    ///< weft's own
  grpc,      ///< over HTTP/3 on QUIC, over HTTP/2 on the other carriers
  grpc_web,  ///< as gRPC, without HTTP trailers
  connect,   ///< over HTTP as gRPC is; unary calls are plain requests
};

struct channel_options {
  tls::trust trust = tls::trust::system_roots();
  /// Checked against the certificate; empty: the host of the target.
  std::string server_name;
  std::shared_ptr<const tls::credentials> identity;  ///< mutual TLS
  rpc::carrier carrier = rpc::carrier::quic;
  rpc::protocol protocol = rpc::protocol::native;
  /// The form of messages over HTTP.
  rpc::codec codec = rpc::codec::proto;
  /// Connect: call methods without side effects by GET, which caches understand.
  bool connect_get = false;
  rpc::limits limits{};
  /// HTTP/2 over TLS/TCP heeds `keep_alive`, too.
  quic::transport_options transport{};
  /// Small unary calls may share long-lived streams instead of opening one each. One-way calls
  /// always do.
  bool lanes = false;
  /// What responses may be compressed with.
  std::vector<compression> accept = available_compressions();
  std::vector<std::shared_ptr<client_interceptor>> interceptors{};
  /// Trying failed calls of safe methods again; interceptors see one call. Off unless
  /// `max_attempts` is more than one. What a server turned away unseen is made again anyhow, and is
  /// not an attempt.
  retry_options retry{};
  /// Allow calls of methods without side effects, or idempotent, in a resumed connection's first
  /// flight (0-RTT). One-way calls always wait for the handshake.
  bool early_data = false;
  std::string groups = tls::default_groups;
  udp::options socket{};
  quic::loop_options loop{};
  /// Pause before reconnecting after a failure: doubles from the first to the second, ±20 %.
  duration reconnect_first = std::chrono::milliseconds{100};
  duration reconnect_longest = std::chrono::seconds{20};
  std::function<void(std::string_view)> key_log{};
};

/// A way to a server that connects by itself, on the first call, and again when it has to. A call
/// that a server turned away unseen, because it goes away, is made again on the next connection,
/// whatever its method, as long as its request is not large; one that was looked at never is.
/// Shard's thread only. Destroying it cancels its calls.
class channel final : public caller {
 public:
  /// `target`: "greet.example:8443", "127.0.0.1:8443", "[::1]:8443".
  channel(io::shard& shard, std::string target, channel_options options = {});
  ~channel() override;
  channel(const channel&) = delete;
  channel& operator=(const channel&) = delete;

  task<result<std::unique_ptr<client_call>>> start(const method& m, call_options options) override;
  task<result<>> one_way(const method& m, call_options options, const outgoing& message) override;

  /// Connects now; OK when connected.
  task<result<>> connect(std::optional<time_point> deadline = {});
  bool connected() const noexcept;
  transport_info info() const;
  /// The connection under it, for migration and figures; null over TCP or when not connected.
  quic::connection* connection() noexcept;
  /// Waits for running calls, then closes.
  task<> shutdown();

 private:
  struct impl;
  std::shared_ptr<impl> impl_;
};

}  // namespace weft::rpc
