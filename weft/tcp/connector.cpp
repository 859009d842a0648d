#include <weft/tcp/connector.hpp>

#include <format>

#include <asio/as_tuple.hpp>
#include <asio/use_awaitable.hpp>

#include <weft/tcp/connection.hpp>

namespace weft::tcp {

struct connector::impl {
  tls::client_options options;
  std::shared_ptr<SSL_CTX> context;
};

namespace {

std::string host_of(const address& to) {
  const std::string text = to.to_string();
  return text.substr(0, text.rfind(':'));
}

/// A TCP connection before `deadline`.
task<result<socket_type>> dial(io::shard& shard, address to, time_point deadline) {
  const auto endpoint = to_endpoint(to);
  if (!endpoint) co_return std::unexpected{endpoint.error()};
  socket_type socket{shard.get_executor()};
  bool expired = false;
  io::timer alarm;
  shard.arm(alarm, deadline, [&](time_point) {
    expired = true;
    asio::error_code ignored;
    socket.cancel(ignored);
  });
  const auto [failure] =
      co_await socket.async_connect(*endpoint, asio::as_tuple(asio::use_awaitable_t<executor>{}));
  const std::string what = "connecting to " + to.to_string();
  if (expired && failure) co_return fail(errc::timed_out, layer::tcp, what + ": no answer in time");
  if (failure == asio::error::operation_aborted)
    co_return fail(errc::cancelled, layer::tcp, what + ": cancelled");
  if (failure) co_return std::unexpected{socket_error(what, failure.value())};
  co_return socket;
}

}  // namespace

result<connector> connector::make(tls::client_options options) {
  auto context = tls::make_client_context(options);
  if (!context) return std::unexpected{context.error()};
  connector made;
  made.impl_ = std::make_shared<const impl>(impl{std::move(options), std::move(*context)});
  return made;
}

task<result<std::unique_ptr<stream>>> connector::connect(io::shard& shard, address to,
                                                         std::string host,
                                                         time_point deadline) const {
  const auto keep = impl_;
  if ((co_await asio::this_coro::cancellation_state).cancelled() != asio::cancellation_type::none)
    co_return fail(errc::cancelled, layer::tcp, "cancelled before connecting");
  if (host.empty()) host = host_of(to);
  tls::ssl_ptr ssl{SSL_new(keep->context.get())};
  if (!ssl) co_return std::unexpected{tls::queue_error(errc::exhausted, "no memory for TLS")};
  SSL_set_connect_state(ssl.get());
  if (auto ready = tls::prepare_client(ssl.get(), keep->options, host); !ready)
    co_return std::unexpected{ready.error()};
  auto socket = co_await dial(shard, to, deadline);
  if (!socket) co_return std::unexpected{socket.error()};
  const std::string peer = std::format("{} ({})", host, to.to_string());
  auto made = std::make_shared<stream::impl>(shard, std::move(*socket), std::move(ssl), peer);
  auto opened = std::make_unique<stream>(made);
  if ((co_await asio::this_coro::cancellation_state).cancelled() != asio::cancellation_type::none)
    co_return fail(errc::cancelled, layer::tcp, "cancelled before the TLS handshake");
  auto agreed = co_await made->handshake(deadline);
  if (agreed) co_return opened;
  made->finished = true;  // closes in order, so that the alert arrives
  co_return std::unexpected{agreed.error()};
}

task<result<std::unique_ptr<stream>>> connect(io::shard& shard, address to, std::string host,
                                              tls::client_options options, time_point deadline) {
  const auto made = connector::make(std::move(options));
  if (!made) co_return std::unexpected{made.error()};
  if ((co_await asio::this_coro::cancellation_state).cancelled() != asio::cancellation_type::none)
    co_return fail(errc::cancelled, layer::tcp, "cancelled before connecting");
  co_return co_await made->connect(shard, to, std::move(host), deadline);
}

}  // namespace weft::tcp
