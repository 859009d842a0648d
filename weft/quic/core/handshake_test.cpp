#include <set>

#include <weft/quic/core/pair_test.hpp>

namespace weft::quic::core::test {
namespace {

using kind = connection_event::kind;

std::string why(pair& p) {
  p.connect();
  p.run_until([&] { return has(p.client_events, kind::closed); }, 15s);
  return p.client->close_reason().to_string();
}

TEST(Handshake, PostQuantumHelloSpansTwoDatagramsAndStillArrives) {
  pair p;
  std::size_t first_flight = 0;
  p.tamper = [&](flight& f) {
    if (f.to_server && !p.server && p.server_endpoint->stats().connections == 0) ++first_flight;
    return true;
  };
  p.handshake();
  EXPECT_EQ(first_flight, 2u);
  EXPECT_EQ(p.server_endpoint->stats().accepted, 1u);
}

TEST(Handshake, PostQuantumHelloArrivesInTheWrongOrder) {
  pair p;
  bool swapped = false;
  p.on_turn = [&] {
    if (!swapped && p.wire.size() == 2) {
      std::swap(p.wire[0].data, p.wire[1].data);
      std::swap(p.wire[0].segment, p.wire[1].segment);
      swapped = true;
    }
  };
  p.handshake();
  EXPECT_TRUE(swapped);
  EXPECT_EQ(p.server_endpoint->stats().connections, 1u);
}

TEST(Handshake, SurvivesLossOfAnyOneDatagram) {
  for (int lost = 0; lost < 8; ++lost) {
    SCOPED_TRACE(lost);
    pair p;
    int count = 0;
    p.tamper = [&](flight&) { return count++ != lost; };
    p.handshake();
  }
}

TEST(Handshake, GroupsCanBeChosen) {
  for (const auto& [groups, agreed] :
       {std::pair{"SecP384r1MLKEM1024", "SecP384r1MLKEM1024"}, std::pair{"X25519", "X25519"}}) {
    auto client = client_defaults();
    client.tls.groups = groups;
    pair p{client};
    p.handshake();
    EXPECT_EQ(p.client->session().group, agreed);
  }
}

TEST(Handshake, WrongPinIsAnError) {
  auto client = client_defaults();
  client.tls.trusted = tls::trust::pinned({tls::fingerprint{}});
  pair p{client};
  const auto text = why(p);
  EXPECT_NE(text.find("tls"), std::string::npos) << text;
  EXPECT_EQ(p.client->close_reason().code(), errc::tls);
  p.run(1s);
  EXPECT_EQ(p.server, nullptr);
  EXPECT_EQ(p.server_endpoint->stats().handshakes, 0u);
  EXPECT_EQ(p.server_endpoint->stats().handshakes_failed, 1u);
  EXPECT_EQ(p.server_endpoint->stats().connections, 0u);
}

TEST(Handshake, NoCommonProtocolIsAnError) {
  auto client = client_defaults();
  client.tls.alpn = {"other"};
  pair p{client};
  why(p);
  EXPECT_EQ(p.client->close_reason().code(), errc::tls);
}

TEST(Handshake, MutualTls) {
  auto client = client_defaults();
  const auto mine = tls::credentials::development({"client"}).value();
  client.tls.identity = std::make_shared<tls::credentials>(mine);
  auto server = server_defaults();
  server.tls.client_trust =
      std::make_shared<tls::trust>(tls::trust::pinned({mine.public_key_fingerprint()}));
  {
    pair p{client, server};
    p.handshake();
    EXPECT_EQ(p.server->session().peer_key, mine.public_key_fingerprint());
  }
  client.tls.identity = nullptr;
  pair p{client, server};
  why(p);
  EXPECT_EQ(p.client->close_reason().code(), errc::tls) << p.client->close_reason().to_string();
  EXPECT_EQ(p.server, nullptr);
}

TEST(Handshake, KeyLogIsWritten) {
  std::string lines;
  auto client = client_defaults();
  client.tls.key_log = [&](std::string_view line) { lines += line; };
  pair p{client};
  p.handshake();
  EXPECT_NE(lines.find("CLIENT_TRAFFIC_SECRET_0"), std::string::npos);
}

/// A pair that has met before: `config.resume` is set.
struct acquaintances : pair {
  acquaintances(client_config c, server_config s) : pair{std::move(c), std::move(s)} {
    handshake();
    run(50ms);
    config.resume = client->resumption();
    EXPECT_FALSE(config.resume.empty());
    client->close(0, "", now);
    run(1s);
    server_endpoint->release(*server, now);
    client_endpoint->release(*client, now);
    server = client = nullptr;
    client_events.clear();
    server_events.clear();
    accepted.clear();
    seen.clear();
    received.clear();
  }
};

server_config early_server() {
  auto server = server_defaults();
  server.tls.early_data = true;
  return server;
}

TEST(Resumption, SkipsTheCertificate) {
  acquaintances p{client_defaults(), server_defaults()};
  p.handshake();
  EXPECT_TRUE(p.client->session().resumed);
  EXPECT_TRUE(p.server->session().resumed);
  EXPECT_FALSE(p.client->session().early_data_accepted);
}

TEST(Resumption, GarbageIsNotFatal) {
  acquaintances p{client_defaults(), early_server()};
  p.config.early_data = true;
  const auto good = p.config.resume.state;
  for (std::size_t cut = 0; cut < good.size(); cut += 37) {
    p.config.resume.state.assign(good.begin(), good.begin() + static_cast<long>(cut));
    auto made = p.client_endpoint->connect(p.way, "localhost", p.config, p.now);
    EXPECT_TRUE(made);
  }
  for (std::size_t at = 0; at < good.size(); at += 11) {
    p.config.resume.state = good;
    p.config.resume.state[at] ^= 0x5a;
    (void)p.client_endpoint->connect(p.way, "localhost", p.config, p.now);
  }
}

TEST(EarlyData, ArrivesWithTheFirstFlight) {
  acquaintances p{client_defaults(), early_server()};
  p.config.early_data = true;
  p.connect();
  p.settle();
  ASSERT_TRUE(has(p.client_events, kind::early_data_ready));
  stream* s = p.client->open_stream(true).value();
  ASSERT_TRUE(s->write(slice::copy("early")));
  ASSERT_TRUE(s->finish());
  const auto start = p.now;
  EXPECT_TRUE(p.run_until([&] { return !p.accepted.empty() && p.accepted[0]->at_end(); }, 1s));
  EXPECT_LE(p.now - start, p.delay + 500us);
  EXPECT_TRUE(p.accepted[0]->early_data());
  EXPECT_EQ(p.received[p.accepted[0]], "early");
  EXPECT_EQ(p.server->current_state(), connection::state::handshaking);
  p.run(100ms);
  EXPECT_TRUE(p.client->session().early_data_accepted);
  EXPECT_FALSE(has(p.client_events, kind::early_data_rejected));
  EXPECT_TRUE(has(p.server_events, kind::handshake_done));
  stream* later = p.client->open_stream(true).value();
  ASSERT_TRUE(later->write(slice::copy("later")));
  p.run(20ms);
  ASSERT_EQ(p.accepted.size(), 2u);
  EXPECT_FALSE(p.accepted[1]->early_data());
}

TEST(EarlyData, RejectionEndsItsStreamsAndTheConnectionGoesOn) {
  acquaintances p{client_defaults(), early_server()};
  p.config.early_data = true;
  // A server with other keys: it cannot read the ticket.
  p.server_endpoint = endpoint::create({}).value();
  ASSERT_TRUE(p.server_endpoint->listen(early_server()));
  p.connect();
  p.settle();
  std::vector<stream*> early;
  for (int i = 0; i < 5; ++i) {
    early.push_back(p.client->open_stream(i % 2 == 0).value());
    ASSERT_TRUE(early.back()->write(slice::copy(pattern(3000))));
    if (i % 2 == 1) {
      ASSERT_TRUE(early.back()->finish());
    }
  }
  p.client->release(*early.back());
  early.pop_back();
  EXPECT_TRUE(p.run_until([&] { return has(p.client_events, kind::early_data_rejected); }, 2s));
  for (auto* s : early) {
    EXPECT_TRUE(s->closed());
    EXPECT_NE(p.seen[s] & closed, 0);
    EXPECT_EQ(s->write(slice::copy("x")).error().code(), errc::closed);
    p.client->release(*s);
  }
  EXPECT_EQ(p.client->stats().send_buffered, 0u);
  EXPECT_TRUE(p.accepted.empty());
  stream* again = p.client->open_stream(true).value();
  ASSERT_TRUE(again->write(slice::copy("again")));
  ASSERT_TRUE(again->finish());
  EXPECT_TRUE(p.run_until([&] { return !p.accepted.empty() && p.accepted[0]->at_end(); }, 2s));
  EXPECT_EQ(p.received[p.accepted[0]], "again");
}

TEST(EarlyData, ServerWithLowerLimitsDoesNotResume) {
  acquaintances p{client_defaults(), early_server()};
  auto lower = early_server();
  lower.transport.stream_window = 1000;
  ASSERT_TRUE(p.server_endpoint->listen(lower));
  p.config.early_data = true;
  p.connect();
  p.settle();
  stream* s = p.client->open_stream(true).value();
  ASSERT_TRUE(s->write(slice::copy(pattern(5000))));
  p.run(1s);
  EXPECT_FALSE(has(p.client_events, kind::closed)) << p.client->close_reason().to_string();
  EXPECT_TRUE(has(p.client_events, kind::early_data_rejected));
}

TEST(EarlyData, IsNotShownBeforeTheClientIsAuthenticated) {
  auto client = client_defaults();
  const auto mine = tls::credentials::development({"client"}).value();
  client.tls.identity = std::make_shared<tls::credentials>(mine);
  auto server = early_server();
  server.tls.client_trust =
      std::make_shared<tls::trust>(tls::trust::pinned({mine.public_key_fingerprint()}));
  acquaintances p{client, server};
  p.config.early_data = true;
  p.connect();
  p.settle();
  if (auto s = p.client->open_stream(true)) (void)(*s)->write(slice::copy("early"));
  p.run_until([&] { return p.server != nullptr; }, 2s);
  ASSERT_NE(p.server, nullptr);
  EXPECT_EQ(p.server->current_state(), connection::state::established);
}

TEST(Random, FailureIsAVisibleError) {
  endpoint_options failing;
  failing.random = [](mutable_bytes) { return false; };
  const auto made = endpoint::create(failing);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), errc::random);
}

TEST(Random, FailureLaterFailsConnectOrEndsTheConnection) {
  std::set<errc> seen;
  for (int budget = 0; budget < 40; ++budget) {
    SCOPED_TRACE(budget);
    int left = 1000;
    endpoint_options options;
    options.random = [&](mutable_bytes out) {
      for (auto& b : out) b = static_cast<std::byte>(left * 31 + (&b - out.data()));
      return left-- > 0;
    };
    pair p{client_defaults(), server_defaults(), options};
    left = budget;
    auto connected = p.client_endpoint->connect(p.way, "localhost", p.config, p.now);
    if (!connected) {
      EXPECT_EQ(connected.error().code(), errc::random);
      seen.insert(errc::random);
      continue;
    }
    p.client = *connected;
    p.run(500ms);
    if (p.client->current_state() == connection::state::established) break;
    EXPECT_EQ(p.client->close_reason().code(), errc::random)
        << p.client->close_reason().to_string();
  }
  EXPECT_TRUE(seen.contains(errc::random));
}

}  // namespace
}  // namespace weft::quic::core::test
