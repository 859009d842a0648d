#include "bridge.hpp"

#include <sys/socket.h>

#include <array>
#include <fstream>
#include <memory>
#include <utility>

#include <asio/as_tuple.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/write.hpp>

#include <weft/quic/stream_socket.hpp>

namespace weft::interop {
namespace {

constexpr std::string_view http2_in_a_stream = "weft-h2/1";
using local_socket = asio::basic_stream_socket<asio::local::stream_protocol, executor>;
constexpr auto awaited = asio::as_tuple(asio::use_awaitable_t<executor>{});

struct pumped {
  std::shared_ptr<quic::connection> connection;
  quic::stream_socket quic;
  local_socket local;
};

/// `end` keeps both alive.
template <class From, class To, class End>
task<> pump(From& from, To& to, End end) {
  std::array<char, 16 * 1024> block;
  while (true) {
    const auto [failed, count] = co_await from.async_read_some(asio::buffer(block), awaited);
    if (failed) break;
    const auto [broken, sent] = co_await asio::async_write(to, asio::buffer(block, count), awaited);
    if (broken) break;
  }
  asio::error_code ignored;
  end(ignored);
}

/// Joins `stream` to a new socket pair; the descriptor is its other end.
result<int> join(io::shard& shard, std::shared_ptr<quic::connection> connection, quic::stream s) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return fail(errc::system, layer::app, "no socket pair could be made");
  const auto on = shard.get_executor();
  const auto both =
      std::make_shared<pumped>(std::move(connection), quic::stream_socket{on, std::move(s)},
                               local_socket{on, asio::local::stream_protocol{}, ends[0]});
  asio::co_spawn(
      on,
      pump(both->local, both->quic, [both](asio::error_code& e) { both->quic.shutdown_send(e); }),
      asio::detached);
  asio::co_spawn(on,
                 pump(both->quic, both->local,
                      [both](asio::error_code& e) {
                        (void)both->local.shutdown(local_socket::shutdown_send, e);
                      }),
                 asio::detached);
  return ends[1];
}

task<result<int>> connect(io::shard& shard, std::string address, std::filesystem::path ca) {
  auto trust = tls::trust::file(ca);
  if (!trust) co_return std::unexpected{trust.error()};
  auto to = address::parse(address);
  if (!to) co_return std::unexpected{to.error()};
  auto made = quic::endpoint::open(shard, {});
  if (!made) co_return std::unexpected{made.error()};
  static std::optional<quic::endpoint> endpoint;  // lives as long as the program's one connection
  endpoint = std::move(*made);
  auto connection = co_await endpoint->connect(
      *to, "localhost",
      {.tls = {.trusted = std::move(*trust), .alpn = {std::string{http2_in_a_stream}}}});
  if (!connection) co_return std::unexpected{connection.error()};
  auto stream = co_await connection->open_stream();
  if (!stream) co_return std::unexpected{stream.error()};
  co_return join(shard, std::make_shared<quic::connection>(std::move(*connection)),
                 std::move(*stream));
}

task<> accept(std::shared_ptr<quic::endpoint> on, std::function<void(int)> accepted) {
  while (true) {
    auto connection = co_await on->accept();
    if (!connection) co_return;
    const auto shared = std::make_shared<quic::connection>(std::move(*connection));
    auto stream = co_await shared->accept_stream();
    if (!stream) continue;
    if (auto end = join(on->shard(), shared, std::move(*stream))) accepted(*end);
  }
}

}  // namespace

void dial(io::shard& shard, const std::string& address, const std::filesystem::path& ca,
          std::function<void(result<int>)> ready) {
  asio::co_spawn(shard.get_executor(), connect(shard, address, ca),
                 [ready = std::move(ready)](std::exception_ptr thrown, result<int> end) {
                   if (thrown) std::rethrow_exception(thrown);
                   ready(std::move(end));
                 });
}

result<std::string> listen(io::shard& shard, const std::filesystem::path& folder,
                           std::function<void(int)> accepted) {
  auto identity = tls::credentials::development();
  if (!identity) return std::unexpected{identity.error()};
  std::ofstream{folder / "cert.pem"} << identity->certificate_pem();
  auto made = quic::endpoint::listen(
      shard, address::parse("127.0.0.1:0").value(),
      {.tls = {.identity = *identity, .alpn = {std::string{http2_in_a_stream}}}});
  if (!made) return std::unexpected{made.error()};
  const auto endpoint = std::make_shared<quic::endpoint>(std::move(*made));
  const std::string where = endpoint->local_address().to_string();
  asio::co_spawn(shard.get_executor(), accept(endpoint, std::move(accepted)), asio::detached);
  return where;
}

}  // namespace weft::interop
