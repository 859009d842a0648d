#include <set>

#include <weft/quic/core/pair_test.hpp>

namespace weft::quic::core::test {
namespace {

using kind = connection_event::kind;

TEST(Transport, LoopbackPathIsFoundToCarryTheLargestDatagram) {
  pair p;
  p.handshake();
  p.run(1s);
  EXPECT_EQ(p.client->stats().path_mtu, 65'488u);
  EXPECT_EQ(p.server->stats().path_mtu, 65'488u);
  EXPECT_TRUE(transfer(p, 3'000'000).complete);
  EXPECT_GT(p.datagrams[65'488], 10);
}

TEST(Transport, JumboPathIsFound) {
  pair p;
  p.way = {far(1, 5000), far(2, 443)};
  p.handshake();
  p.run(1s);
  EXPECT_EQ(p.client->stats().path_mtu, 8972u);
  EXPECT_EQ(p.server->stats().path_mtu, 8972u);
}

TEST(Transport, OrdinaryPathStaysAtItsSize) {
  pair p;
  p.way = {far(1, 5000), far(2, 443)};
  p.mtu = 1472;
  p.handshake();
  p.run(10s);
  EXPECT_EQ(p.client->stats().path_mtu, 1452u);
  EXPECT_TRUE(transfer(p, 1'000'000).complete);
  EXPECT_EQ(p.client->stats().packets_lost, 0u);
}

TEST(Transport, LostProbesLeaveRoomForARequest) {
  // Two of the largest probes are more than the first window.
  auto server = server_defaults();
  server.transport.path_mtu_discovery = false;
  pair p{client_defaults(), server};
  p.way = {far(1, 5000), far(2, 443)};
  p.mtu = 1472;
  p.delay = 10ms;
  p.handshake();
  for (const auto pause : {50ms, 500ms, 5'000ms}) {
    p.run(pause);
    const auto [complete, took] = transfer(p, 5'000);
    EXPECT_TRUE(complete);
    EXPECT_LT(took, 1s);
  }
}

TEST(Transport, ChosenSizeIsUsedExactly) {
  auto client = client_defaults();
  client.transport.max_udp_payload = 1452;
  pair p{client};
  p.handshake();
  p.run(100ms);
  p.datagrams.clear();
  EXPECT_TRUE(transfer(p, 3'000'000).complete);
  EXPECT_EQ(p.client->stats().path_mtu, 1452u);
  EXPECT_GT(p.datagrams[1452], 2000);
}

TEST(Transport, WithoutDiscoveryDatagramsStaySmall) {
  auto client = client_defaults();
  client.transport.path_mtu_discovery = false;
  pair p{client};
  p.handshake();
  p.run(1s);
  EXPECT_EQ(p.client->stats().path_mtu, 1200u);
}

TEST(Transport, TrainsAreFullAndManySmallStreamsShareThem) {
  auto client = client_defaults();
  client.transport.max_udp_payload = 1452;
  client.transport.pacing = false;
  auto server = server_defaults();
  server.transport.max_uni_streams = 4096;
  pair p{client, server};
  p.handshake();
  EXPECT_TRUE(transfer(p, 4'000'000).complete);  // opens the window
  p.trains = 0;
  p.sent_by_client = 0;
  for (int i = 0; i < 500; ++i) {
    stream* s = p.client->open_stream(false).value();
    ASSERT_TRUE(s->write(slice::copy(pattern(1024))));
    ASSERT_TRUE(s->finish());
  }
  const auto before = p.client->stats();
  while (p.client_endpoint->poll_transmit(p.buffer, p.now)) {
  }
  const auto after = p.client->stats();
  const auto datagrams = after.datagrams_sent - before.datagrams_sent;
  const auto trains = after.trains_sent - before.trains_sent;
  EXPECT_GE(datagrams, 350u);
  EXPECT_LE(datagrams, 420u);
  EXPECT_GE(datagrams / trains, 20u);
}

TEST(Transport, SmallMessagesAreNeverPadded) {
  pair p;
  p.handshake();
  p.run(1s);
  ASSERT_EQ(p.client->stats().path_mtu, 65'488u);
  p.datagrams.clear();
  for (int i = 0; i < 20; ++i) {
    stream* s = p.client->open_stream(false).value();
    ASSERT_TRUE(s->write(slice::copy(pattern(100))));
    ASSERT_TRUE(s->finish());
    p.run(3ms);
  }
  for (const auto& [size, count] : p.datagrams) EXPECT_LT(size, 200u);
}

TEST(Transport, ABlockedWindowIsNotPadded) {
  auto server = server_defaults();
  server.transport.connection_window = 64 * 1024;
  pair p{client_defaults(), server};
  p.auto_read = false;
  p.handshake();
  p.run(1s);
  const auto before = p.client->stats().bytes_sent;
  stream* s = p.client->open_stream(false).value();
  ASSERT_TRUE(s->write(slice::copy(pattern(500'000))));
  p.run(50ms);
  // Each read opens the window a little; what goes out is about what was let in.
  for (int i = 0; i < 20; ++i) {
    for (std::size_t got = 0; got < 20'000;) {
      const auto piece = p.accepted[0]->read(20'000 - got);
      if (piece.empty()) break;
      got += piece.size();
    }
    p.run(10ms);
  }
  const auto sent = p.client->stats().bytes_sent - before;
  EXPECT_GT(sent, 300'000u);
  EXPECT_LT(sent, 550'000u);
}

TEST(Transport, AcknowledgementRidesOnTheAnswer) {
  pair p;
  p.handshake();
  p.run(1s);
  stream* s = p.client->open_stream(true).value();
  ASSERT_TRUE(s->write(slice::copy("0")));
  int calls = 0;
  std::size_t echoed = 0, got = 0;
  p.run(20ms);
  p.sent_by_client = p.sent_by_server = 0;
  p.datagrams.clear();
  stream* far = p.accepted[0];
  echoed = p.received[far].size();
  p.on_turn = [&] {
    if (p.received[far].size() > echoed) {
      echoed = p.received[far].size();
      ASSERT_TRUE(far->write(slice::copy("a")));
    }
    if (p.received[s].size() > got) {
      got = p.received[s].size();
      if (++calls < 100) {
        ASSERT_TRUE(s->write(slice::copy("q")));
      }
    }
  };
  ASSERT_TRUE(s->write(slice::copy("q")));
  EXPECT_TRUE(p.run_until([&] { return calls == 100; }));
  EXPECT_LE(p.sent_by_client, 110u);
  EXPECT_LE(p.sent_by_server, 110u);
}

class Controllers : public testing::TestWithParam<congestion> {};
TEST_P(Controllers, CarryBulkThroughLoss) {
  auto client = client_defaults();
  client.transport.controller = GetParam();
  client.transport.max_udp_payload = 1452;
  pair p{client};
  p.handshake();
  std::uint32_t seed = 1;
  p.tamper = [&](flight&) {
    seed = seed * 1664525 + 1013904223;
    return seed % 100 >= 1;
  };
  const auto result = transfer(p, 2'000'000);
  EXPECT_TRUE(result.complete);
  EXPECT_GT(p.client->stats().packets_lost, 0u);
}
INSTANTIATE_TEST_SUITE_P(All, Controllers,
                         testing::Values(congestion::cubic, congestion::reno, congestion::bbr));

TEST(Transport, PacingSpreadsAWindowOverTheRoundTrip) {
  std::size_t paced = 0;
  for (const bool pacing : {true, false}) {
    auto client = client_defaults();
    client.transport.pacing = pacing;
    client.transport.max_udp_payload = 1452;
    pair p{client};
    p.delay = 20ms;
    p.handshake();
    EXPECT_TRUE(transfer(p, 1'000'000).complete);
    std::set<time_point> moments;
    p.tamper = [&](flight& f) {
      if (f.to_server) moments.insert(f.at);
      return true;
    };
    EXPECT_TRUE(transfer(p, 1'000'000).complete);
    if (pacing)
      paced = moments.size();
    else
      EXPECT_GT(paced, 2 * moments.size());
  }
}

TEST(Transport, CongestionMarksAreSeenAndSlowTheSender) {
  auto client = client_defaults();
  client.transport.max_udp_payload = 1452;
  pair p{client};
  p.handshake();
  int marked = 0, ect = 0;
  p.tamper = [&](flight& f) {
    if (f.to_server && f.mark == ecn::ect0) {
      ++ect;
      if (ect % 50 == 0) {
        f.mark = ecn::ce;
        ++marked;
      }
    }
    return true;
  };
  EXPECT_TRUE(transfer(p, 3'000'000).complete);
  EXPECT_GT(ect, 1000);
  EXPECT_GT(marked, 10);
  EXPECT_EQ(p.client->stats().packets_lost, 0u);
  EXPECT_LT(p.client->stats().slow_start_threshold, 10'000'000u);
}

TEST(Transport, NoMarksWhenNotWanted) {
  auto client = client_defaults();
  client.transport.ecn = false;
  pair p{client};
  bool marked = false;
  p.tamper = [&](flight& f) {
    marked |= f.to_server && f.mark != ecn::not_ect;
    return true;
  };
  p.handshake();
  EXPECT_TRUE(transfer(p, 100'000).complete);
  EXPECT_FALSE(marked);
}

TEST(Transport, KeysAreUpdated) {
  pair p;
  p.handshake();
  EXPECT_TRUE(transfer(p, 10'000).complete);
  for (int i = 0; i < 3; ++i) {
    // An update counts once something sent with the new keys is acknowledged, and the next keys are
    // made when something arrives later.
    for (int k = 0; k < 2; ++k) {
      p.client->ping(p.now);
      p.server->ping(p.now);
      p.run(1s);
    }
    const auto updated = i % 2 == 0 ? p.client->update_keys(p.now) : p.server->update_keys(p.now);
    ASSERT_TRUE(updated) << i << updated.error().to_string();
    const auto& asked = i % 2 == 0 ? p.client : p.server;
    EXPECT_EQ(asked->stats().key_updates, static_cast<std::uint64_t>(i) + 1) << "at once";
    EXPECT_TRUE(transfer(p, 10'000).complete);
  }
  for (int k = 0; k < 2; ++k) {
    p.client->ping(p.now);
    p.server->ping(p.now);
    p.run(1s);
  }
  EXPECT_EQ(p.client->stats().key_updates, 3u);
  EXPECT_EQ(p.server->stats().key_updates, 3u);
}

TEST(Transport, CommandsBeforeTheHandshakeIsConfirmedSaySo) {
  pair p;
  std::string update, move;
  p.on_turn = [&] {
    if (!has(p.client_events, kind::handshake_done) || !update.empty()) return;
    update = p.client->update_keys(p.now).error().to_string();
    move = p.client->migrate({local(5001), local(443)}, true, p.now).error().to_string();
  };
  p.handshake();
  EXPECT_NE(update.find("handshake is confirmed"), std::string::npos) << update;
  EXPECT_NE(move.find("handshake is confirmed"), std::string::npos) << move;
  EXPECT_TRUE(p.client->update_keys(p.now));
  const auto again = p.client->update_keys(p.now);
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().to_string().find("last key update"), std::string::npos);
}

TEST(Transport, CommandsBeforeTheHandshakeAreRefused) {
  pair p;
  p.connect();
  EXPECT_EQ(p.client->update_keys(p.now).error().code(), errc::exhausted);
  EXPECT_EQ(p.client->migrate({local(1), local(2)}, true, p.now).error().code(), errc::exhausted);
  EXPECT_FALSE(p.client->open_stream(true));
  EXPECT_FALSE(p.client->send_datagram(slice::copy("x")));
  p.client->ping(p.now);
  p.settle();
  EXPECT_FALSE(p.client->update_keys(p.now));
  p.run(100ms);
  EXPECT_TRUE(p.client_is(connection::state::established));
}

TEST(Transport, DatagramsGoBothWays) {
  auto client = client_defaults();
  client.transport.max_datagram_frame = 65'535;
  auto server = server_defaults();
  server.transport.max_datagram_frame = 1000;
  pair p{client, server};
  p.handshake();
  p.run(1s);
  EXPECT_EQ(p.client->max_datagram(), 995u);
  EXPECT_GT(p.server->max_datagram(), 60'000u);
  EXPECT_EQ(p.client->send_datagram(slice::copy(pattern(996))).error().code(), errc::too_large);
  ASSERT_TRUE(p.client->send_datagram(slice::copy(pattern(995))));
  ASSERT_TRUE(p.server->send_datagram(slice::copy(pattern(p.server->max_datagram()))));
  p.run(10ms);
  EXPECT_TRUE(has(p.server_events, kind::datagram));
  EXPECT_EQ(p.server->read_datagram()->text(), pattern(995));
  EXPECT_EQ(p.client->read_datagram()->size(), p.server->max_datagram());
  EXPECT_FALSE(p.client->read_datagram());
}

TEST(Transport, DatagramsAreRefusedByAPeerWithoutThem) {
  pair p;
  p.handshake();
  EXPECT_EQ(p.client->max_datagram(), 0u);
  EXPECT_EQ(p.client->send_datagram(slice::copy("x")).error().code(), errc::unsupported);
}

TEST(Transport, DatagramQueuesAreBounded) {
  auto client = client_defaults();
  client.transport.max_datagram_frame = 65'535;
  auto server = server_defaults();
  server.transport.max_datagram_frame = 65'535;
  pair p{client, server};
  p.handshake();
  std::size_t sent = 0;
  while (p.client->send_datagram(slice::copy(pattern(1000)))) ++sent;
  EXPECT_LE(sent, 1024u);
  p.run(2s);
  EXPECT_TRUE(has(p.client_events, kind::datagram_room));
  for (int round = 0; round < 10; ++round) {
    while (p.client->send_datagram(slice::copy(pattern(1000)))) ++sent;
    p.run(1s);
  }
  std::size_t kept = 0;
  while (p.server->read_datagram()) ++kept;
  EXPECT_LE(kept, 1024u);
  EXPECT_EQ(p.server->stats().datagrams_dropped + kept, sent);
}

TEST(Transport, EqualDatagramsTravelInTrains) {
  auto client = client_defaults();
  client.transport.pacing = false;
  client.transport.max_udp_payload = 1452;
  auto server = server_defaults();
  server.transport.max_datagram_frame = 65'535;
  pair p{client, server};
  p.handshake();
  EXPECT_TRUE(transfer(p, 2'000'000).complete);
  for (int i = 0; i < 400; ++i) ASSERT_TRUE(p.client->send_datagram(slice::copy(pattern(1024))));
  const auto before = p.client->stats();
  while (p.client_endpoint->poll_transmit(p.buffer, p.now)) {
  }
  const auto after = p.client->stats();
  EXPECT_GE(
      (after.datagrams_sent - before.datagrams_sent) / (after.trains_sent - before.trains_sent),
      20u);
}

TEST(Transport, QlogIsWritten) {
  std::string log;
  auto client = client_defaults();
  client.transport.qlog = [&](std::string_view text) { log += text; };
  pair p{client};
  p.handshake();
  p.client->close(0, "", p.now);
  EXPECT_EQ(log.front(), '\x1e');
  EXPECT_NE(log.find("packet_sent"), std::string::npos);
  EXPECT_NE(log.find("packet_received"), std::string::npos);
}

}  // namespace
}  // namespace weft::quic::core::test
