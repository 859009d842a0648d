// conformance_client: what the suite's runner starts to test weft as a client. It reads what calls
// to make, makes each over a connection of its own, many at a time, and tells how they went.
//
// With --http3 it speaks HTTP/3 whatever is asked for.

#include <deque>
#include <print>
#include <thread>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>

#include <weft/http/exchange.hpp>
#include <weft/quic/endpoint.hpp>
#include <weft/rpc/connect/session.hpp>
#include <weft/rpc/grpc/session.hpp>
#include <weft/tcp/connector.hpp>

#include "call.hpp"
#include "frames.hpp"

using namespace weft;
using namespace weft::conformance;
using namespace std::chrono_literals;

namespace {

/// Calls over one transport.
class direct final : public rpc::caller {
 public:
  explicit direct(std::unique_ptr<rpc::transport> via) : via_{std::move(via)} {}
  task<rpc::result<std::unique_ptr<rpc::client_call>>> start(const rpc::method& m,
                                                             rpc::call_options options) override {
    const time_point deadline = options.timeout ? io::now() + *options.timeout : never;
    co_return co_await via_->start(m, options, deadline);
  }
  task<rpc::result<>> one_way(const rpc::method& m, rpc::call_options options,
                              const rpc::outgoing& message) override {
    co_return co_await via_->one_way(m, options, never, message);
  }

 private:
  std::unique_ptr<rpc::transport> via_;
};

result<tls::client_options> tls_options(const v1::ClientCompatRequest& wanted,
                                        std::string_view alpn) {
  tls::client_options options;
  options.alpn = {std::string{alpn}};
  auto trusted = tls::trust::pem(wanted.server_tls_cert());
  if (!trusted) return std::unexpected{std::move(trusted).error()};
  options.trusted = std::move(*trusted);
  if (wanted.has_client_tls_creds()) {
    const auto& creds = wanted.client_tls_creds();
    auto own = tls::credentials::pem(creds.cert(), creds.key());
    if (!own) return std::unexpected{std::move(own).error()};
    options.identity = std::make_shared<const tls::credentials>(std::move(*own));
  }
  return options;
}

/// A connection and what it needs to live.
struct link {
  std::optional<quic::endpoint> endpoint;
  std::unique_ptr<http::client_connection> connection;
};

task<result<>> connect_h3(io::shard& shard, const v1::ClientCompatRequest& wanted, address to,
                          link& into) {
  auto tls = tls_options(wanted, http::alpn_h3);
  if (!tls) co_return std::unexpected{std::move(tls).error()};
  auto endpoint = quic::endpoint::open(shard, {});
  if (!endpoint) co_return std::unexpected{std::move(endpoint).error()};
  into.endpoint.emplace(std::move(*endpoint));
  quic::client_config config;
  config.tls = std::move(*tls);
  auto connection = co_await into.endpoint->connect(to, wanted.host(), std::move(config));
  if (!connection) co_return std::unexpected{std::move(connection).error()};
  into.connection = http::open_h3(std::move(*connection), shard, {});
  co_return result<>{};
}

task<result<>> connect_h2(io::shard& shard, const v1::ClientCompatRequest& wanted, address to,
                          link& into) {
  auto tls = tls_options(wanted, http::alpn_h2);
  if (!tls) co_return std::unexpected{std::move(tls).error()};
  auto stream = co_await tcp::connect(shard, to, wanted.host(), std::move(*tls), io::now() + 10s);
  if (!stream) co_return std::unexpected{std::move(stream).error()};
  http::connection_info info{.transport = "tls-tcp",
                             .local = (*stream)->local_address(),
                             .remote = (*stream)->remote_address()};
  into.connection = http::open_h2(std::move(*stream), std::move(info), shard, {});
  co_return result<>{};
}

/// What the runner asks of any protocol.
void fill(rpc::http::client_options& options, const v1::ClientCompatRequest& wanted) {
  options.authority = wanted.host() + ":" + std::to_string(wanted.port());
  options.compress_from = 0;  // the suite's server looks at tiny messages
  if (wanted.codec() == v1::CODEC_JSON) options.codec = rpc::codec::json;
  if (wanted.message_receive_limit() != 0)
    options.limits.max_message = wanted.message_receive_limit();
  switch (wanted.compression()) {
    case v1::COMPRESSION_GZIP:
      options.compressions = {rpc::compression::gzip};
      break;
    case v1::COMPRESSION_BR:
      options.compressions = {rpc::compression::br};
      break;
    case v1::COMPRESSION_ZSTD:
      options.compressions = {rpc::compression::zstd};
      break;
    default:
      options.compressions = {};
  }
}

std::unique_ptr<rpc::transport> transport_for(const v1::ClientCompatRequest& wanted,
                                              std::unique_ptr<http::client_connection> over,
                                              io::shard& shard) {
  if (wanted.protocol() == v1::PROTOCOL_CONNECT) {
    rpc::connect::client_options options;
    fill(options, wanted);
    options.use_get = wanted.use_get_http_method();
    return rpc::connect::open(std::move(over), shard, std::move(options));
  }
  rpc::grpc::client_options options;
  fill(options, wanted);
  if (wanted.protocol() == v1::PROTOCOL_GRPC_WEB) options.dialect = rpc::grpc::dialect::grpc_web;
  return rpc::grpc::open(std::move(over), shard, std::move(options));
}

class caller_of_all {
 public:
  explicit caller_of_all(io::shard& shard) : shard_{shard} {}

  void start(v1::ClientCompatRequest wanted) {
    waiting_.push_back(std::move(wanted));
    start_waiting();
  }
  void no_more() {
    closed_ = true;
    stop_when_idle();
  }

 private:
  /// All calls at once would be more than the suite's server has patience for.
  static constexpr std::size_t most_running = 16;

  void start_waiting() {
    while (running_ < most_running && !waiting_.empty()) {
      ++running_;
      asio::co_spawn(shard_.get_executor(), run(*this, std::move(waiting_.front())),
                     asio::detached);
      waiting_.pop_front();
    }
  }
  static task<> run(caller_of_all& self, v1::ClientCompatRequest wanted) {
    v1::ClientCompatResponse response;
    response.set_test_name(wanted.test_name());
    co_await call(self.shard_, wanted, response);
    write_message(response);
    --self.running_;
    self.start_waiting();
    self.stop_when_idle();
  }
  static task<> call(io::shard& shard, const v1::ClientCompatRequest& wanted,
                     v1::ClientCompatResponse& response) {
    link over;
    const auto to = address::parse(wanted.host() + ":" + std::to_string(wanted.port()));
    result<> connected = to ? result<>{} : std::unexpected{to.error()};
    if (to && wanted.http_version() == v1::HTTP_VERSION_3)
      connected = co_await connect_h3(shard, wanted, *to, over);
    else if (to)
      connected = co_await connect_h2(shard, wanted, *to, over);
    if (!connected) {
      response.mutable_error()->set_message(connected.error().to_string());
      co_return;
    }
    direct via{transport_for(wanted, std::move(over.connection), shard)};
    *response.mutable_response() = co_await make_call(shard, via, wanted);
  }
  void stop_when_idle() {
    if (closed_ && running_ == 0) shard_.stop();
  }

  io::shard& shard_;
  std::deque<v1::ClientCompatRequest> waiting_;
  std::size_t running_ = 0;
  bool closed_ = false;
};

}  // namespace

int main(int argc, char* argv[]) {
  const bool http3 = argc > 1 && std::string_view{argv[1]} == "--http3";
  io::shard shard;
  caller_of_all calls{shard};
  const auto work = asio::make_work_guard(shard.context());
  std::thread input{[&] {
    while (auto wanted = read_message<v1::ClientCompatRequest>()) {
      if (http3) wanted->set_http_version(v1::HTTP_VERSION_3);
      shard.post([&calls, w = std::move(*wanted)]() mutable { calls.start(std::move(w)); });
    }
    shard.post([&calls] { calls.no_more(); });
  }};
  shard.run();
  input.join();
}
