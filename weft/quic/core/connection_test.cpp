#include <weft/quic/core/pair_test.hpp>
#include <weft/tls/random.hpp>

namespace weft::quic::core::test {
namespace {

using kind = connection_event::kind;

TEST(Connection, HandshakeAgreesAndIsAnnounced) {
  pair p;
  p.handshake();
  EXPECT_TRUE(has(p.client_events, kind::handshake_done));
  EXPECT_TRUE(has(p.server_events, kind::handshake_done));
  EXPECT_EQ(p.client->session().alpn, "test");
  EXPECT_EQ(p.client->session().group, "X25519MLKEM768");
  EXPECT_EQ(p.server->session().alpn, "test");
  EXPECT_EQ(p.server_endpoint->stats().handshakes, 0u);
  EXPECT_EQ(p.server_endpoint->stats().accepted, 1u);
}

TEST(Connection, EchoOnABidirectionalStream) {
  pair p;
  p.handshake();
  stream* s = p.client->open_stream(true).value();
  ASSERT_TRUE(s->write(slice::copy("hello")));
  ASSERT_TRUE(s->finish());
  p.run_until([&] { return !p.accepted.empty() && p.accepted[0]->at_end(); });
  ASSERT_EQ(p.accepted.size(), 1u);
  EXPECT_EQ(p.received[p.accepted[0]], "hello");
  ASSERT_TRUE(p.accepted[0]->write(slice::copy("world")));
  ASSERT_TRUE(p.accepted[0]->finish());
  p.run_until([&] { return s->closed() && p.accepted[0]->closed(); });
  EXPECT_EQ(p.received[s], "world");
  EXPECT_TRUE(s->at_end());
  EXPECT_NE(p.seen[s] & drained, 0);
  EXPECT_NE(p.seen[s] & closed, 0);
  p.client->release(*s);
  p.server->release(*p.accepted[0]);
}

TEST(Connection, UnidirectionalStreamsBothWays) {
  pair p;
  p.handshake();
  stream* up = p.client->open_stream(false).value();
  stream* down = p.server->open_stream(false).value();
  EXPECT_FALSE(is_bidirectional(up->id()));
  EXPECT_TRUE(is_server_initiated(down->id()));
  ASSERT_TRUE(up->write(slice::copy("up")));
  ASSERT_TRUE(down->write(slice::copy("down")));
  ASSERT_TRUE(up->finish());
  ASSERT_TRUE(down->finish());
  p.run_until([&] { return up->closed() && down->closed(); });
  ASSERT_EQ(p.accepted.size(), 1u);
  ASSERT_EQ(p.from_server.size(), 1u);
  EXPECT_EQ(p.received[p.accepted[0]], "up");
  EXPECT_EQ(p.received[p.from_server[0]], "down");
  EXPECT_EQ(p.accepted[0]->write(slice::copy("x")).error().code(), errc::closed);
}

TEST(Connection, LargeTransferIsCompleteAndOrdered) {
  auto client = client_defaults();
  client.transport.stream_window = 256 * 1024;
  auto server = server_defaults();
  server.transport.stream_window = 256 * 1024;
  server.transport.connection_window = 512 * 1024;
  pair p{client, server};
  p.handshake();
  stream* s = p.client->open_stream(true).value();
  const std::string text = pattern(8 << 20);
  std::size_t written = 0;
  p.on_turn = [&] {
    while (written < text.size() && s->writable() > 0) {
      const auto part = std::min<std::size_t>(100'000, text.size() - written);
      ASSERT_TRUE(s->write(slice::copy(std::string_view{text}.substr(written, part))));
      written += part;
      if (written == text.size()) {
        ASSERT_TRUE(s->finish());
      }
    }
  };
  EXPECT_TRUE(p.run_until([&] { return !p.accepted.empty() && p.accepted[0]->at_end(); }));
  EXPECT_EQ(p.received[p.accepted[0]].size(), text.size());
  EXPECT_TRUE(p.received[p.accepted[0]] == text);
}

TEST(Connection, CloseReachesThePeerWithItsCode) {
  pair p;
  p.handshake();
  stream* s = p.client->open_stream(true).value();
  ASSERT_TRUE(s->write(slice::copy("x")));
  p.run(5ms);
  p.client->close(42, "enough", p.now);
  EXPECT_TRUE(s->connection_closed());
  EXPECT_EQ(s->write(slice::copy("y")).error().code(), errc::closed);
  p.run_until([&] { return has(p.server_events, kind::closed); });
  EXPECT_EQ(p.server->close_reason().code(), errc::reset);
  EXPECT_EQ(p.server->close_reason().detail(), 42u);
  EXPECT_NE(p.server->close_reason().message().find("enough"), std::string::npos);
  EXPECT_TRUE(has(p.client_events, kind::closed));
  EXPECT_EQ(p.client->current_state(), connection::state::closed);
  p.client_endpoint->release(*p.client, p.now);
  p.server_endpoint->release(*p.server, p.now);
  p.run(10s);
  EXPECT_EQ(p.server_endpoint->stats().connections, 0u);
  EXPECT_EQ(p.server_endpoint->next_timeout(), never);
  EXPECT_EQ(p.client_endpoint->next_timeout(), never);
}

TEST(Connection, TransportErrorReachesThePeerAsOne) {
  bool failing = false;
  endpoint_options server;
  server.random = [&](mutable_bytes out) { return !failing && tls::fill_random(out).has_value(); };
  pair p{client_defaults(), server_defaults(), {}, std::move(server)};
  p.handshake();
  p.run(100ms);
  failing = true;
  // The challenge of the new path needs random bytes.
  ASSERT_TRUE(p.client->migrate({local(7000), local(443)}, true, p.now));
  EXPECT_TRUE(p.run_until([&] { return has(p.client_events, kind::closed); }, 5s));
  EXPECT_EQ(p.server->close_reason().code(), errc::random);
  // RFC 9000 §20.1: INTERNAL_ERROR. An application's code 1 would be errc::reset.
  EXPECT_EQ(p.client->close_reason().code(), errc::protocol);
  EXPECT_EQ(p.client->close_reason().detail(), 1u);
  EXPECT_NE(p.client->close_reason().message().find("transport error 0x1"), std::string::npos);
}

TEST(Connection, IdleTimeoutEndsBothSilently) {
  auto client = client_defaults();
  client.transport.idle_timeout = 2s;
  pair p{client};
  p.handshake();
  const auto start = p.now;
  p.run_until([&] { return has(p.client_events, kind::closed); });
  EXPECT_EQ(p.client->close_reason().code(), errc::timed_out);
  EXPECT_NEAR(std::chrono::duration<double>(p.now - start).count(), 2.0, 0.1);
  p.run(100ms);
  EXPECT_TRUE(has(p.server_events, kind::closed));
  EXPECT_EQ(p.server->close_reason().code(), errc::timed_out);
}

TEST(Connection, KeepAliveKeepsItAlive) {
  auto client = client_defaults();
  client.transport.idle_timeout = 2s;
  client.transport.keep_alive = 500ms;
  pair p{client};
  p.handshake();
  p.run(20s);
  EXPECT_FALSE(has(p.client_events, kind::closed));
  EXPECT_FALSE(has(p.server_events, kind::closed));
}

TEST(Connection, HandshakeTimesOutWhenNobodyAnswers) {
  auto client = client_defaults();
  client.transport.handshake_timeout = 3s;
  pair p{client};
  p.tamper = [](flight& f) { return !f.to_server; };
  p.connect();
  const auto start = p.now;
  p.run_until([&] { return has(p.client_events, kind::closed); });
  EXPECT_EQ(p.client->close_reason().code(), errc::timed_out);
  EXPECT_EQ(p.client->close_reason().message().find("127.0.0.1:443") == std::string::npos, false);
  EXPECT_LE(p.now - start, 4s);
}

TEST(Connection, PingProvokesAnAnswer) {
  pair p;
  p.handshake();
  p.run(100ms);
  const auto before = p.client->stats().packets_received;
  p.client->ping(p.now);
  p.run(50ms);
  EXPECT_GT(p.client->stats().packets_received, before);
}

TEST(Connection, QuietConnectionDoesNotSpin) {
  pair p;
  p.handshake();
  p.run(1s);
  int wakes = 0;
  const auto end = p.now + 5s;
  while (p.next() < end) {
    p.now = p.next();
    p.client_endpoint->handle_timeout(p.now);
    p.server_endpoint->handle_timeout(p.now);
    p.settle();
    ++wakes;
  }
  EXPECT_LT(wakes, 10);
}

TEST(Connection, TimeMayStandStillOrBeGivenLate) {
  pair p;
  p.handshake();
  stream* s = p.client->open_stream(true).value();
  ASSERT_TRUE(s->write(slice::copy("x")));
  // Steps back: the library would abort; the core uses the latest time it has seen.
  p.client_endpoint->poll_transmit(p.buffer, p.now + 10ms);
  ASSERT_TRUE(s->write(slice::copy("y")));
  p.client_endpoint->poll_transmit(p.buffer, p.now);
  p.run(1s);
  EXPECT_FALSE(has(p.client_events, kind::closed));
}

}  // namespace
}  // namespace weft::quic::core::test
