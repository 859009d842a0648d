// conformance_server: what the suite's runner starts to test weft as a server. It reads what is
// wanted, says where it listens, and serves until it is terminated.
//
// With --http3 it serves HTTP/3 whatever is wanted.

#include <print>
#include <vector>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>

#include <weft/http/exchange.hpp>
#include <weft/io/runtime.hpp>
#include <weft/quic/endpoint.hpp>
#include <weft/rpc/connect/session.hpp>
#include <weft/rpc/grpc/session.hpp>
#include <weft/rpc/router.hpp>
#include <weft/tcp/listener.hpp>

#include "connectrpc/conformance/v1/server_compat.pb.h"
#include "frames.hpp"
#include "service.hpp"

using namespace weft;
using namespace weft::conformance;

namespace {

/// Either the value, or the end of the program.
template <class T>
T must(result<T> outcome, std::string_view what) {
  if (outcome) return std::move(*outcome);
  std::println(stderr, "conformance_server: {}: {}", what, outcome.error().to_string());
  std::exit(1);
}

class serving {
 public:
  serving(io::shard& shard, const v1::ServerCompatRequest& wanted)
      : shard_{shard}, wanted_{wanted}, router_{shard} {
    (void)router_.add(std::make_shared<service>());
    rpc::http::server_options options;
    if (wanted.message_receive_limit() != 0)
      options.limits.max_message = wanted.message_receive_limit();
    core_ = std::make_shared<rpc::http::server_core>(shard, router_, std::move(options));
  }

  /// Begins to serve; returns where.
  address start() {
    const address any_port = address::ipv4({127, 0, 0, 1}, 0);
    if (wanted_.http_version() == v1::HTTP_VERSION_3) {
      quic::server_config config;
      config.tls = tls_options(http::alpn_h3);
      endpoint_.emplace(
          must(quic::endpoint::listen(shard_, any_port, std::move(config)), "listen"));
      asio::co_spawn(shard_.get_executor(), accept_quic(*this), asio::detached);
      return endpoint_->local_address();
    }
    listener_ =
        must(tcp::listener::listen(shard_, any_port,
                                   must(tcp::server_tls::make(tls_options(http::alpn_h2)), "TLS")),
             "listen");
    asio::co_spawn(shard_.get_executor(), accept_tcp(*this), asio::detached);
    return listener_->local_address();
  }

 private:
  tls::server_options tls_options(std::string_view alpn) const {
    tls::server_options options;
    const auto& creds = wanted_.server_creds();
    options.identity = must(tls::credentials::pem(creds.cert(), creds.key()), "own certificate");
    options.alpn = {std::string{alpn}};
    if (!wanted_.client_tls_cert().empty())
      options.client_trust = std::make_shared<const tls::trust>(
          must(tls::trust::pem(wanted_.client_tls_cert()), "clients' certificate"));
    return options;
  }
  http::request_handler handler() {
    return [core = core_](std::unique_ptr<http::exchange> e) {
      if (rpc::grpc::speaks(e->request()))
        rpc::grpc::serve(std::move(e), core);
      else
        rpc::connect::serve(std::move(e), core);
    };
  }
  /// Keeps a connection until it is over.
  static task<> see_off(std::unique_ptr<http::server_connection> connection) {
    (void)co_await connection->finished();
  }
  static task<> accept_quic(serving& self) {
    while (true) {
      auto connection = co_await self.endpoint_->accept();
      if (!connection) co_return;
      auto served = http::serve_h3(std::move(*connection), self.shard_, {}, self.handler());
      asio::co_spawn(self.shard_.get_executor(), see_off(std::move(served)), asio::detached);
    }
  }
  static task<> accept_tcp(serving& self) {
    while (true) {
      auto stream = co_await self.listener_->accept();
      if (!stream) co_return;
      http::connection_info info{.transport = "tls-tcp",
                                 .local = (*stream)->local_address(),
                                 .remote = (*stream)->remote_address(),
                                 .peer_subject = (*stream)->session().peer_subject};
      auto served =
          http::serve_h2(std::move(*stream), std::move(info), self.shard_, {}, self.handler());
      asio::co_spawn(self.shard_.get_executor(), see_off(std::move(served)), asio::detached);
    }
  }

  io::shard& shard_;
  v1::ServerCompatRequest wanted_;
  rpc::router router_;
  std::shared_ptr<rpc::http::server_core> core_;
  std::optional<quic::endpoint> endpoint_;
  std::unique_ptr<tcp::listener> listener_;
};

}  // namespace

int main(int argc, char* argv[]) {
  auto wanted = read_message<v1::ServerCompatRequest>();
  if (!wanted) return std::println(stderr, "conformance_server: no request on standard input"), 1;
  if (!wanted->use_tls())
    return std::println(stderr, "conformance_server: weft serves over TLS only"), 1;
  if (argc > 1 && std::string_view{argv[1]} == "--http3")
    wanted->set_http_version(v1::HTTP_VERSION_3);
  runtime runtime;
  serving server{runtime[0], *wanted};
  v1::ServerCompatResponse started;
  started.set_host("127.0.0.1");
  started.set_port(server.start().port());
  started.set_pem_cert(wanted->server_creds().cert());
  write_message(started);
  return runtime.run_until_signal();
}
