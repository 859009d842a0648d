// Internal: a server's part on one shard.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <random>

#include <weft/rpc/host/server.hpp>
#include <weft/rpc/host/session.hpp>
#include <weft/tcp/listener.hpp>

namespace weft::rpc::detail {

/// What all shards of a server share. Immutable once the server has started.
struct server_setup {
  server_options options;
  std::shared_ptr<memory_budget> memory;
  std::function<void(std::string_view)> log;
  quic::server_config quic;
  quic::endpoint_config endpoint;
  std::optional<tcp::server_tls> tls;
};

/// A server's part on one shard: sockets, router, sessions. That shard's thread only. Coroutines
/// hold it, so that it may be let go of while they unwind.
class shard_server : public std::enable_shared_from_this<shard_server> {
 public:
  shard_server(io::shard& shard, std::shared_ptr<const server_setup> setup);

  rpc::router& router() noexcept { return router_; }
  quic::endpoint& endpoint() noexcept { return *endpoint_; }

  weft::result<> add(std::shared_ptr<service_handler> handler);
  /// Binds QUIC to `at`, and TCP to the port that gave. errc::system (EADDRINUSE) when only one of
  /// the two was free.
  weft::result<> listen(const address& at, bool shared_port);
  /// Accepts from now on.
  void start();
  /// Stops accepting, refuses new calls, lets running ones end until `deadline`, then ends them.
  /// Calls `done` when nothing is left. Once.
  void shutdown(time_point deadline, std::function<void()> done);
  /// Moves the deadline of a running shutdown forward.
  void hurry(time_point deadline);
  /// Ends everything at once.
  void abandon() noexcept;

 private:
  using self_ptr = std::shared_ptr<shard_server>;
  using session_ptr = std::shared_ptr<session>;

  /// A session with what it needs to live.
  struct held_session {
    self_ptr owner;
    session_ptr held;  // goes first
  };

  static task<> accept_quic(self_ptr self);
  static task<> accept_tcp(self_ptr self);
  static task<> await_stream(self_ptr self, quic::connection connection);
  static task<> watch(self_ptr self, session* of);
  static task<> drain(held_session held, status why);
  static task<> refuse(self_ptr self, time_point deadline);
  static task<> finish(self_ptr self, std::function<void()> done);

  void serve_quic(quic::connection connection);
  void adopt(std::unique_ptr<session> made);
  void limit_age(session& of);
  void retire(session& old);
  void serve_stream(std::unique_ptr<io::byte_stream> stream, bool http, const transport_info& info,
                    std::string peer_subject);
  void end_sessions() noexcept;
  void spawn(task<> work);
  native::session_options session_options() const;
  weft::http::options http_options(bool over_tcp) const;

  io::shard& shard_;
  std::shared_ptr<const server_setup> setup_;
  rpc::router router_;
  std::shared_ptr<rpc::http::server_core> http_calls_;
  std::optional<quic::endpoint> endpoint_;
  std::unique_ptr<tcp::listener> listener_;
  std::list<session_ptr> sessions_;
  io::event session_ended_;
  io::timer deadline_;
  std::minstd_rand random_{std::random_device{}()};
  bool stopping_ = false;
};

}  // namespace weft::rpc::detail
