#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <asio/detached.hpp>

#include <weft/quic/endpoint.hpp>
#include <weft/rpc/native/test_support.hpp>
#include <weft/rpc/native/wire/control.hpp>
#include <weft/rpc/native/wire/header.hpp>
#include <weft/rpc/native/wire/record.hpp>

// For tests: native sessions on QUIC connections over loopback, all on one shard.

namespace weft::rpc::native::testing {

using namespace std::chrono_literals;

inline const tls::credentials& identity() {
  static const tls::credentials made = tls::credentials::development().value();
  return made;
}

/// Calls that wait until they are told to go on.
struct gate {
  std::vector<io::event*> waiting;  ///< null once released or cancelled
  std::size_t cancelled = 0;

  handlers::handler handler() {
    return [this](server_call& call) -> task<status> {
      auto message = co_await call.read();
      if (!message) co_return std::move(message).error();
      io::event released;
      const std::size_t index = waiting.size();
      waiting.push_back(&released);
      const bool on = co_await released.wait();
      waiting[index] = nullptr;
      if (!on) {
        ++cancelled;
        co_return status{code::cancelled, "the handler was cancelled"};
      }
      if (!*message) co_return status{};
      if (auto sent = co_await call.write(outgoing{(*message)->flatten()}); !sent)
        co_return std::move(sent).error();
      co_return status{};
    };
  }
  void release(std::size_t index) {
    if (auto* e = std::exchange(waiting.at(index), nullptr)) e->notify();
  }
  void release_all() {
    for (std::size_t i = 0; i < waiting.size(); ++i) release(i);
  }
};

/// A listening server that gives each connection a session.
struct quic_fixture : ::testing::Test {
  io::shard shard;
  std::shared_ptr<memory_budget> memory = std::make_shared<memory_budget>(std::size_t{64} << 20);
  handlers calls;
  gate held;
  session_options server_options{.memory = memory}, client_options;
  quic::server_config serving{.tls = {.identity = identity(), .alpn = {std::string{alpn}}},
                              .transport = {}};
  quic::client_config calling{
      .tls = {.trusted = tls::trust::pem(identity().certificate_pem()).value(),
              .alpn = {std::string{alpn}}},
      .transport = {}};
  std::optional<quic::endpoint> server, client;
  std::list<std::unique_ptr<server_session>> sessions;

  void SetUp() override { calls.on("/t/echo", echo).on("/t/hold", held.handler()); }
  void TearDown() override {
    ASSERT_TRUE(run(shard, end(*this)));
    EXPECT_EQ(calls.running, 0u);
    EXPECT_EQ(memory->used(), 0u) << "budget was not given back";
  }

  void listen() {
    quic::endpoint_config config;
    config.core.memory = memory;
    server.emplace(
        quic::endpoint::listen(shard, address::ipv4({127, 0, 0, 1}, 0), serving, config).value());
    client.emplace(quic::endpoint::open(shard, {}).value());
    asio::co_spawn(shard.get_executor(), accept(*this), asio::detached);
  }
  /// Runs a test's body, with the server listening.
  void play(task<> work) {
    listen();
    ASSERT_TRUE(run(shard, std::move(work))) << "the test hangs";
  }
  task<quic::connection> dial() {
    auto made = co_await client->connect(server->local_address(), "localhost", calling);
    if (!made) throw std::runtime_error{made.error().to_string()};
    co_return std::move(*made);
  }
  task<std::unique_ptr<transport>> connect() {
    co_return open(co_await dial(), shard, client_options);
  }
  /// Waits until `condition` holds; `run`'s limit ends tests that wait for ever.
  template <class Condition>
  task<> until(Condition condition) {
    while (!condition()) (void)co_await shard.sleep_until(io::now() + 200us);
  }
  std::size_t running() const {
    std::size_t sum = 0;
    for (const auto& s : sessions) sum += s->stats().running;
    return sum;
  }

 private:
  static task<> accept(quic_fixture& f) {
    while (true) {
      auto arrived = co_await f.server->accept();
      if (!arrived) co_return;
      f.sessions.push_back(serve(std::move(*arrived), f.shard, f.calls, f.server_options));
    }
  }
  static task<> end(quic_fixture& f) {
    f.sessions.clear();
    if (f.client) co_await f.client->drain(io::now() + 1s);
    if (f.server) co_await f.server->drain(io::now() + 1s);
    f.client.reset();
    f.server.reset();
    co_await settle(f.shard);
  }
};

// Bytes as a peer that heeds nothing would write them.

inline std::string varint(std::uint64_t value) {
  std::string out(wire::varint_size(value), '\0');
  wire::put_varint(reinterpret_cast<std::byte*>(out.data()), value);
  return out;
}
inline std::string frame(std::uint64_t type, std::string_view content) {
  return varint(type) + varint(content.size()) + std::string{content};
}
inline std::string control_bytes(const wire::control_event& event) {
  std::vector<std::byte> out;
  wire::append(out, event);
  return {reinterpret_cast<const char*>(out.data()), out.size()};
}
inline std::string header_bytes(std::string_view path) {
  const wire::request_header header{.method = {0, path}};
  std::string out(wire::encoded_size(header), '\0');
  wire::encode(header, reinterpret_cast<std::byte*>(out.data()));
  return out;
}
inline std::string message_bytes(std::string_view content) {
  return frame(0, content);
}
inline std::string record_bytes(wire::record_tag tag, std::string_view piece) {
  std::string out(wire::record_head_size(tag, piece.size()), '\0');
  wire::put_record_head(reinterpret_cast<std::byte*>(out.data()), tag, piece.size());
  return out + std::string{piece};
}
/// The beginning of every control stream.
inline std::string control_start() {
  return varint(0) + control_bytes(wire::settings{});
}

/// A peer's end of a QUIC connection, driven by bytes.
struct raw_peer {
  quic::connection connection;
  std::vector<quic::stream> streams;  ///< kept, so that they do not end by themselves

  /// Opens a stream that begins with `content`; it stays open.
  task<quic::stream*> send(quic::direction d, std::string content) {
    auto opened = co_await connection.open_stream(d);
    if (!opened) co_return nullptr;
    streams.push_back(std::move(*opened));
    quic::stream* s = &streams.back();
    if (!content.empty()) (void)co_await s->write(slice::copy(content));
    co_return s;
  }
  /// The next stream that carries a call, whatever else the peer opens meanwhile; null at the end.
  task<quic::stream*> next_call() {
    while (true) {
      auto opened = co_await connection.accept_stream();
      if (!opened) co_return nullptr;
      streams.push_back(std::move(*opened));
      if ((streams.back().id() & 2) == 0) co_return &streams.back();
    }
  }
};

/// All that comes until the end, or as much as came before it broke.
inline task<std::string> read_all(quic::stream& s) {
  std::string all;
  while (true) {
    auto part = co_await s.read();
    if (!part || part->empty()) co_return all;
    all += part->text();
  }
}

}  // namespace weft::rpc::native::testing
