#include <weft/quic/stream_socket.hpp>

#include <gtest/gtest.h>

#include <asio/as_tuple.hpp>
#include <asio/bind_cancellation_slot.hpp>
#include <asio/read.hpp>
#include <asio/read_until.hpp>
#include <asio/ssl.hpp>
#include <asio/streambuf.hpp>
#include <asio/write.hpp>

#include <weft/io/event.hpp>
#include <weft/quic/test_support.hpp>

namespace weft::quic {
namespace {

using namespace test;

constexpr auto tuple = asio::as_tuple(asio::use_awaitable_t<executor>{});

// What Asio's composed operations and asio::ssl ask of a next layer.
template <class Stream>
concept async_stream = requires(Stream& s, asio::mutable_buffer in, asio::const_buffer out,
                                void (*done)(asio::error_code, std::size_t)) {
  typename Stream::executor_type;
  { s.get_executor() } -> std::same_as<typename Stream::executor_type>;
  { s.lowest_layer() } -> std::same_as<typename Stream::lowest_layer_type&>;
  s.async_read_some(in, done);
  s.async_write_some(out, done);
};
static_assert(async_stream<stream_socket>);
static_assert(std::is_nothrow_move_constructible_v<stream_socket>);
static_assert(std::is_nothrow_move_assignable_v<stream_socket>);
static_assert(!std::is_copy_constructible_v<stream_socket>);

struct sockets {
  ends both;
  stream_socket client, server;
};

task<sockets> plug(pair& p) {
  auto both = co_await meet(p);
  auto out = must(co_await both.client.open_stream());
  must(co_await out.write(slice::copy("!")));
  auto in = must(co_await both.server.accept_stream());
  EXPECT_EQ(must(co_await in.read()).text(), "!");
  const auto ex = p.shard.get_executor();
  co_return sockets{std::move(both), {ex, std::move(out)}, {ex, std::move(in)}};
}

TEST(stream_socket, answers_lines_like_any_asio_stream) {
  pair p;
  run(p.shard, [](pair& p) -> task<> {
    auto s = co_await plug(p);
    auto ex = co_await asio::this_coro::executor;
    asio::co_spawn(
        ex,
        [](stream_socket& socket) -> task<> {
          std::string text;
          for (;;) {
            auto [failure, size] = co_await asio::async_read_until(
                socket, asio::dynamic_buffer(text), "\r\n\r\n", tuple);
            if (failure) break;
            const std::string answer = "HTTP/1.1 200 OK\r\n\r\n" + text.substr(0, size);
            text.erase(0, size);
            co_await asio::async_write(socket, asio::buffer(answer), tuple);
          }
          asio::error_code failure;
          socket.shutdown_send(failure);
          EXPECT_FALSE(failure);
        }(s.server),
        asio::detached);
    for (int i = 0; i < 100; ++i) {
      const std::string request = "GET /" + std::to_string(i) + "\r\n\r\n";
      co_await asio::async_write(s.client, asio::buffer(request), tuple);
      std::string answer(19 + request.size(), '?');
      auto [failure, size] = co_await asio::async_read(s.client, asio::buffer(answer), tuple);
      EXPECT_FALSE(failure);
      EXPECT_EQ(answer, "HTTP/1.1 200 OK\r\n\r\n" + request);
    }
    asio::error_code failure;
    s.client.shutdown_send(failure);
    char octet;
    auto [end, size] = co_await s.client.async_read_some(asio::buffer(&octet, 1), tuple);
    EXPECT_EQ(end, asio::error::eof);
    EXPECT_EQ(size, 0);
  }(p));
}

TEST(stream_socket, carries_asio_ssl) {
  pair p;
  run(p.shard, [](pair& p) -> task<> {
    namespace ssl = asio::ssl;
    auto s = co_await plug(p);
    ssl::context server_side{ssl::context::tlsv13_server}, client_side{ssl::context::tlsv13_client};
    const std::string chain = identity().certificate_pem(), key = identity().key_pem();
    server_side.use_certificate_chain(asio::buffer(chain));
    server_side.use_private_key(asio::buffer(key), ssl::context::pem);
    client_side.add_certificate_authority(asio::buffer(chain));
    client_side.set_verify_mode(ssl::verify_peer);
    ssl::stream<stream_socket> server{std::move(s.server), server_side};
    ssl::stream<stream_socket> client{std::move(s.client), client_side};
    auto ex = co_await asio::this_coro::executor;
    io::event over;
    bool done = false;
    asio::co_spawn(
        ex,
        [](ssl::stream<stream_socket>& server) -> task<> {
          auto [failed] = co_await server.async_handshake(ssl::stream_base::server, tuple);
          EXPECT_FALSE(failed) << failed.message();
          std::vector<char> room(16'384);
          for (;;) {
            auto [failure, size] = co_await server.async_read_some(asio::buffer(room), tuple);
            if (failure) break;
            co_await asio::async_write(server, asio::buffer(room, size), tuple);
          }
          co_await server.async_shutdown(tuple);
        }(server),
        [&](std::exception_ptr) {
          done = true;
          over.notify();
        });
    auto [failed] = co_await client.async_handshake(ssl::stream_base::client, tuple);
    EXPECT_FALSE(failed) << failed.message();
    const slice sent = pattern(3 << 20);
    asio::co_spawn(
        ex,
        [](ssl::stream<stream_socket>& client, slice sent) -> task<> {
          auto [failure, size] =
              co_await asio::async_write(client, asio::buffer(sent.data(), sent.size()), tuple);
          EXPECT_FALSE(failure);
          EXPECT_EQ(size, sent.size());
        }(client, sent),
        asio::detached);
    std::vector<std::byte> got(sent.size());
    auto [failure, size] = co_await asio::async_read(client, asio::buffer(got), tuple);
    EXPECT_FALSE(failure);
    EXPECT_TRUE(std::ranges::equal(got, sent.span()));
    auto [shut] = co_await client.async_shutdown(tuple);
    EXPECT_TRUE(!shut || shut == asio::error::eof) << shut.message();
    if (!done) co_await over.wait();
  }(p));
}

TEST(stream_socket, maps_errors_and_handles_nothing) {
  pair p;
  run(p.shard, [](pair& p) -> task<> {
    auto s = co_await plug(p);
    char room[8];
    {
      auto [failure, size] = co_await s.client.async_read_some(asio::buffer(room, 0), tuple);
      EXPECT_FALSE(failure);
      auto [failure2, size2] = co_await s.client.async_write_some(asio::buffer(room, 0), tuple);
      EXPECT_FALSE(failure2);
      EXPECT_EQ(size + size2, 0);
    }
    // Partial or total cancellation: nothing was lost, so the next read goes on.
    for (const auto kind : {asio::cancellation_type::partial, asio::cancellation_type::total}) {
      asio::cancellation_signal signal;
      asio::error_code outcome;
      io::event done;
      s.client.async_read_some(
          asio::buffer(room),
          asio::bind_cancellation_slot(signal.slot(), [&](asio::error_code failure, std::size_t) {
            outcome = failure;
            done.notify();
          }));
      co_await after(p.shard, 1ms);
      signal.emit(kind);
      EXPECT_FALSE(outcome);
      co_await done.wait();
      EXPECT_EQ(outcome, asio::error::operation_aborted);
    }
    co_await asio::async_write(s.server, asio::buffer("ok", 2), tuple);
    auto [fine, size] = co_await s.client.async_read_some(asio::buffer(room), tuple);
    EXPECT_FALSE(fine);
    EXPECT_EQ(size, 2);
    // A callback is never run inside of the call that starts the operation.
    bool inside = true, called = false;
    s.client.async_write_some(asio::buffer("x", 1), [&](asio::error_code, std::size_t) {
      called = true;
      EXPECT_FALSE(inside);
    });
    inside = false;
    co_await after(p.shard, 1ms);
    EXPECT_TRUE(called);
    s.server.close();
    EXPECT_FALSE(s.server.is_open());
    auto [reset, nothing] = co_await s.client.async_read_some(asio::buffer(room), tuple);
    EXPECT_EQ(reset, asio::error::connection_reset);
    auto [closed, nothing2] = co_await s.server.async_read_some(asio::buffer(room), tuple);
    EXPECT_EQ(closed, asio::error::bad_descriptor);
    auto [pipe, nothing3] = co_await asio::async_write(s.client, asio::buffer("x", 1), tuple);
    EXPECT_EQ(pipe, asio::error::broken_pipe);
  }(p));
}

TEST(stream_socket, closes_beside_a_blocked_read_and_write_and_moves) {
  transport_options small;
  small.stream_window = small.connection_window = 64 << 10;
  small.stream_send_buffer = 64 << 10;
  pair p{small};
  run(p.shard, [](pair& p) -> task<> {
    auto s = co_await plug(p);
    std::vector<asio::error_code> ended;
    io::event all;
    const auto note = [&](asio::error_code failure, std::size_t) {
      ended.push_back(failure);
      if (ended.size() == 2) all.notify();
    };
    const slice much = pattern(4 << 20);
    char room[8];
    asio::async_write(s.client, asio::buffer(much.data(), much.size()), note);
    s.client.async_read_some(asio::buffer(room), note);
    co_await after(p.shard, 20ms);
    EXPECT_TRUE(ended.empty());
    auto moved = std::move(s.client);
    moved.close();
    if (ended.size() < 2) co_await all.wait();
    EXPECT_EQ(ended, std::vector(2, asio::error_code{asio::error::operation_aborted}));
  }(p));
}

}  // namespace
}  // namespace weft::quic
