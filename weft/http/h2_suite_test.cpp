#include <weft/http/exchange_suite.hpp>
#include <weft/http/test_pipe.hpp>
#include <weft/tcp/connector.hpp>
#include <weft/tcp/listener.hpp>

// HTTP/2 over each kind of byte stream.

namespace weft::http::test {
namespace {

class h2_link : public link {
 public:
  ~h2_link() override {
    client.reset();
    server.reset();
  }

 protected:
  void begin(std::unique_ptr<io::byte_stream> ours, std::unique_ptr<io::byte_stream> theirs,
             const connection_info& info, io::shard& shard, options client_options,
             options server_options, request_handler handler) {
    server =
        serve_h2(std::move(theirs), info, shard, std::move(server_options), std::move(handler));
    client = open_h2(std::move(ours), info, shard, std::move(client_options));
  }
};

class memory_link final : public h2_link {
 public:
  task<> connect(io::shard& shard, options client_options, options server_options,
                 request_handler handler) override {
    auto [ours, theirs] = pipe_end::make();
    begin(std::move(ours), std::move(theirs), {.transport = "memory"}, shard,
          std::move(client_options), std::move(server_options), std::move(handler));
    co_return;
  }
  void cut() override { server->close(give_up::internal, "cut"); }
};

class tcp_link final : public h2_link {
 public:
  task<> connect(io::shard& shard, options client_options, options server_options,
                 request_handler handler) override {
    using namespace asio::experimental::awaitable_operators;
    auto offered = std::make_shared<tls::server_options>(
        tls::server_options{.identity = quic::test::identity(), .alpn = {std::string{alpn_h2}}});
    tls::client_options wanted{
        .trusted = tls::trust::pem(quic::test::identity().certificate_pem()).value(),
        .alpn = {std::string{alpn_h2}}};
    auto listener = must(tcp::listener::listen(shard, quic::test::loopback(), std::move(offered)));
    auto [ours, theirs] = co_await (tcp::connect(shard, listener->local_address(), "localhost",
                                                 std::move(wanted), io::now() + 20s) &&
                                    listener->accept());
    auto stream = must(std::move(ours));
    const connection_info info{.transport = "tls-tcp", .group = stream->session().group};
    begin(std::move(stream), must(std::move(theirs)), info, shard, std::move(client_options),
          std::move(server_options), std::move(handler));
  }
  void cut() override { server->close(give_up::internal, "cut"); }
};

class quic_stream_link final : public h2_link {
 public:
  task<> connect(io::shard& shard, options client_options, options server_options,
                 request_handler handler) override {
    listening_.emplace(
        must(quic::endpoint::listen(shard, quic::test::loopback(), quic::test::serving())));
    opened_.emplace(must(quic::endpoint::open(shard, {})));
    client_connection_.emplace(must(co_await opened_->connect(listening_->local_address(),
                                                              "localhost", quic::test::calling())));
    server_connection_.emplace(must(co_await listening_->accept()));
    auto ours = must(co_await client_connection_->open_stream());
    must(co_await ours.write(slice::copy("x")));  // a stream is seen by its first byte
    auto theirs = must(co_await server_connection_->accept_stream());
    (void)must(co_await theirs.read());
    const connection_info info{.transport = "quic-one-stream",
                               .group = client_connection_->session().group};
    begin(quic::as_byte_stream(std::move(ours)), quic::as_byte_stream(std::move(theirs)), info,
          shard, std::move(client_options), std::move(server_options), std::move(handler));
  }
  void cut() override { listening_.reset(); }

 private:
  std::optional<quic::endpoint> listening_, opened_;
  std::optional<quic::connection> client_connection_, server_connection_;
};

INSTANTIATE_TEST_SUITE_P(
    h2, exchange_suite,
    testing::Values(way{"memory", [] { return std::make_unique<memory_link>(); }},
                    way{"tls_tcp", [] { return std::make_unique<tcp_link>(); }},
                    way{"quic_stream", [] { return std::make_unique<quic_stream_link>(); }}),
    [](const auto& of) { return std::string{of.param.name}; });

}  // namespace
}  // namespace weft::http::test
