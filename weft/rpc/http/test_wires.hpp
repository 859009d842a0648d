// For tests: a server and a client over each version of HTTP, and calls to try them with.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <weft/http/test_pipe.hpp>
#include <weft/quic/test_support.hpp>
#include <weft/rpc/http/test_support.hpp>

namespace weft::rpc::http::testing {

using quic::test::must;

/// Both ends of a connection, on one shard.
struct wires {
  std::optional<quic::endpoint> listening, opened;
  std::unique_ptr<weft::http::server_connection> server;
  std::unique_ptr<weft::http::client_connection> client;
};

using way = std::function<task<>(io::shard&, wires&, weft::http::request_handler)>;

struct named_way {
  const char* name;
  way connect;
};

/// Sockets and TLS.
inline task<> over_h3(io::shard& shard, wires& to, weft::http::request_handler handler) {
  auto serving = quic::test::serving();
  serving.tls.alpn = {std::string{weft::http::alpn_h3}};
  auto calling = quic::test::calling();
  calling.tls.alpn = {std::string{weft::http::alpn_h3}};
  to.listening.emplace(
      must(quic::endpoint::listen(shard, quic::test::loopback(), std::move(serving))));
  to.opened.emplace(must(quic::endpoint::open(shard, {})));
  auto ours = must(
      co_await to.opened->connect(to.listening->local_address(), "localhost", std::move(calling)));
  auto theirs = must(co_await to.listening->accept());
  to.server = weft::http::serve_h3(std::move(theirs), shard, {}, std::move(handler));
  to.client = weft::http::open_h3(std::move(ours), shard, {});
}

/// A byte stream in memory, which cuts what goes through wherever it likes.
inline task<> over_h2(io::shard& shard, wires& to, weft::http::request_handler handler) {
  auto [ours, theirs] = weft::http::test::pipe_end::make();
  const weft::http::connection_info info{.transport = "memory"};
  to.server = weft::http::serve_h2(std::move(theirs), info, shard, {}, std::move(handler));
  to.client = weft::http::open_h2(std::move(ours), info, shard, {});
  co_return;
}

/// The single reply of a call.
inline task<result<std::string>> ask(rpc::transport& t, method m, std::string text,
                                     call_options options = {}) {
  const time_point deadline = options.timeout ? io::now() + *options.timeout : never;
  auto call = co_await t.start(m, options, deadline);
  if (!call) co_return std::unexpected{std::move(call).error()};
  (void)co_await (*call)->write(text_message{text}, true);
  auto reply = co_await (*call)->read();
  if (!reply) co_return std::unexpected{std::move(reply).error()};
  if (!*reply) co_return fail(code::unimplemented, "no reply");
  auto end = co_await (*call)->read();
  if (!end) co_return std::unexpected{std::move(end).error()};
  co_return text_of(**reply);
}

}  // namespace weft::rpc::http::testing
