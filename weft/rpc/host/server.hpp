#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <weft/io/runtime.hpp>
#include <weft/quic/endpoint.hpp>
#include <weft/rpc/handler.hpp>
#include <weft/rpc/interceptor.hpp>
#include <weft/rpc/router.hpp>
#include <weft/rpc/services/health.hpp>
#include <weft/tls/credentials.hpp>

namespace weft::rpc {

struct server_options {
  /// "127.0.0.1:8443", "[::]:8443"; port 0: any.
  std::string listen = "[::]:8443";
  tls::credentials credentials;
  /// Ask clients for certificates signed by these.
  std::shared_ptr<const tls::trust> client_trust;
  rpc::limits limits{};
  /// HTTP/2 over TLS/TCP heeds `keep_alive`, too.
  quic::transport_options transport{};
  /// Also answer TLS 1.3 over TCP, on the same port number.
  bool tcp = true;
  /// Also answer gRPC, gRPC-Web and Connect: over HTTP/3 on QUIC, over HTTP/2 on TLS/TCP.
  bool http = true;
  /// Web pages that may call from a browser, by origin ("https://app.example"); "*": any.
  std::vector<std::string> origins{};
  /// Answer gRPC's health checks: for the whole server and each service, until `shutdown`.
  bool health = true;
  /// Answer gRPC's server reflection, as grpcurl and buf ask it.
  bool reflection = true;
  /// Bytes held for peers by all connections of this server.
  std::size_t memory_limit = std::size_t{1} << 30;
  /// What a compressed response may use, most wanted first.
  std::vector<compression> compressions = available_compressions();
  std::vector<std::shared_ptr<server_interceptor>> interceptors{};
  /// Lets clients call methods by JSON without knowing the .proto (`weft call`).
  bool describe = true;
  bool early_data = false;
  /// After so long, give or take a tenth, a connection's client is told to make new calls on
  /// another one, so that clients spread anew over servers. Zero: never.
  duration max_connection_age = duration::zero();
  /// What the old connection's running calls then get, before they end with `unavailable`.
  duration max_connection_age_grace = std::chrono::seconds{30};
  udp::options socket{};
  quic::loop_options loop{};
  std::function<void(std::string_view)> key_log{};
  /// Receives one line per fault in a handler or connection, on the thread of its shard. Empty:
  /// standard error.
  std::function<void(std::string_view)> log{};
};

/// Serves services on every shard of a runtime: the native protocol over QUIC, and over TLS/TCP on
/// the same port, where also gRPC, gRPC-Web and Connect are understood. Create, `add`, `start`; the
/// runtime runs it.
///
/// Start it before the runtime runs, or, with one shard, on that shard. Destroying it ends all
/// calls at once: after `shutdown` is done, when the runtime has stopped, or, with one shard, on
/// that shard.
class server {
 public:
  server(runtime& on, server_options options);
  ~server();
  server(const server&) = delete;
  server& operator=(const server&) = delete;

  /// One instance of `Handler` per shard, so that handlers need no locks. `arguments` are copied
  /// into each. Before `start`.
  template <class Handler, class... Arguments>
  void add(const Arguments&... arguments) {
    add_factory([arguments...](io::shard&) -> std::shared_ptr<service_handler> {
      return std::make_shared<Handler>(arguments...);
    });
  }
  /// As `add`, made by `factory(shard)` on each shard.
  void add_factory(std::function<std::shared_ptr<service_handler>(io::shard&)> factory);

  /// Binds and listens; from then on clients are answered as soon as the runtime runs.
  weft::result<> start();
  /// The bound address, port included. After `start`.
  address local_address() const;
  /// Graceful: refuses new calls, lets running ones finish until `grace` has passed, then ends them
  /// with `unavailable`, closes, and calls `done` on shard 0. Thread-safe; later calls only
  /// shorten.
  void shutdown(duration grace, std::function<void()> done = {});

  /// What health checks are told. Thread-safe.
  services::health& health() noexcept;

  /// One shard's parts, for tests and figures; from that shard's thread.
  rpc::router& router(std::size_t shard);
  quic::endpoint& endpoint(std::size_t shard);
  const memory_budget& memory() const noexcept;
  /// Datagrams that the kernel gave to the wrong shard, and that were passed on. Thread-safe.
  std::uint64_t forwarded_datagrams() const;

 private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace weft::rpc
