#pragma once

// For the tests of this folder: a client and a server on one shard, over real loopback sockets.

#include <gtest/gtest.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/experimental/awaitable_operators.hpp>

#include <weft/io/shard.hpp>
#include <weft/quic/endpoint.hpp>

namespace weft::quic::test {

using namespace std::chrono_literals;

inline const tls::credentials& identity() {
  static const tls::credentials made = tls::credentials::development().value();
  return made;
}

inline server_config serving(transport_options transport = {}) {
  server_config config;
  config.tls.identity = identity();
  config.tls.alpn = {"test"};
  config.transport = std::move(transport);
  return config;
}

inline client_config calling(transport_options transport = {}) {
  client_config config;
  config.tls.trusted = tls::trust::pem(identity().certificate_pem()).value();
  config.tls.alpn = {"test"};
  config.transport = std::move(transport);
  return config;
}

inline address loopback(std::uint16_t port = 0) {
  return address::ipv4({127, 0, 0, 1}, port);
}

/// Runs `work` on `shard` until it has finished. Fails, rather than hangs, after `limit`.
inline void run(io::shard& shard, task<> work, duration limit = 30s) {
  std::exception_ptr failure;
  bool done = false;
  asio::co_spawn(shard.get_executor(), std::move(work), [&](std::exception_ptr thrown) {
    failure = thrown;
    done = true;
    shard.stop();
  });
  io::timer watchdog;
  shard.arm(watchdog, io::now() + limit, [&](time_point) {
    ADD_FAILURE() << "the test hangs";
    shard.stop();
  });
  shard.run();
  shard.disarm(watchdog);
  if (failure) std::rethrow_exception(failure);
  ASSERT_TRUE(done);
}

/// The value, or a test failure with the error's text.
template <class T>
T must(result<T> r) {
  if (!r) throw std::runtime_error{r.error().to_string()};
  if constexpr (!std::is_void_v<T>) return std::move(*r);
}

/// Sleeps. Cancelled, it just ends.
inline task<> after(io::shard& shard, duration wait) {
  (void)co_await shard.sleep_until(io::now() + wait);
}

/// `size` bytes that differ along the way and from seed to seed.
inline slice pattern(std::size_t size, std::uint32_t seed = 1) {
  buffer made = buffer::allocate(size);
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (auto& octet : made.span()) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    octet = static_cast<std::byte>(state >> 56);
  }
  return std::move(made).freeze();
}

/// A checksum of a run of bytes that arrives in pieces (FNV-1a by 64-bit steps would depend on the
/// cuts, so bytewise).
class checksum {
 public:
  void add(bytes data) noexcept {
    for (const std::byte octet : data)
      value_ = (value_ ^ std::to_integer<unsigned>(octet)) * 0x100000001b3u;
    count_ += data.size();
  }
  std::uint64_t value() const noexcept { return value_; }
  std::size_t count() const noexcept { return count_; }
  friend bool operator==(const checksum&, const checksum&) = default;

 private:
  std::uint64_t value_ = 0xcbf29ce484222325u;
  std::size_t count_ = 0;
};

inline checksum sum_of(bytes data) {
  checksum made;
  made.add(data);
  return made;
}

/// Sends back what arrives, until the end.
inline task<> echo(stream s) {
  for (;;) {
    auto got = co_await s.read();
    if (!got) co_return;
    if (got->empty()) break;
    if (auto done = co_await s.write(std::move(*got)); !done) co_return;
  }
  (void)s.finish();
}

/// Reads to the end.
inline task<result<slice>> read_all(stream& s) {
  std::string all;
  for (;;) {
    auto got = co_await s.read();
    if (!got) co_return std::unexpected{got.error()};
    if (got->empty()) co_return slice::copy(all);
    all += got->text();
  }
}

inline task<> echo_streams(connection c) {
  auto ex = co_await asio::this_coro::executor;
  for (;;) {
    auto s = co_await c.accept_stream();
    if (!s) co_return;
    asio::co_spawn(ex, echo(std::move(*s)), asio::detached);
  }
}

/// Accepts connections and echoes their streams, until the endpoint closes.
inline task<> echo_server(endpoint& server) {
  auto ex = co_await asio::this_coro::executor;
  for (;;) {
    auto c = co_await server.accept();
    if (!c) co_return;
    asio::co_spawn(ex, echo_streams(std::move(*c)), asio::detached);
  }
}

/// A server that echoes and a client, on one shard.
struct pair {
  explicit pair(transport_options transport = {}, endpoint_config config = {})
      : transport{transport},
        server{must(endpoint::listen(shard, loopback(), serving(transport), config))},
        client{must(endpoint::open(shard, {}, config))} {}

  void serve() { asio::co_spawn(shard.get_executor(), echo_server(server), asio::detached); }
  task<connection> connect() {
    co_return must(
        co_await client.connect(server.local_address(), "localhost", calling(transport)));
  }

  transport_options transport;
  io::shard shard;
  endpoint server;
  endpoint client;
};

/// Both ends of one connection, without an echoing server.
struct ends {
  connection client, server;
};

inline task<ends> meet(pair& p) {
  using namespace asio::experimental::awaitable_operators;
  auto [ours, theirs] = co_await (p.connect() && p.server.accept());
  co_return ends{std::move(ours), must(std::move(theirs))};
}

}  // namespace weft::quic::test
