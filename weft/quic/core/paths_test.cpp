// How connections move between addresses.

#include <weft/quic/core/pair_test.hpp>

namespace weft::quic::core::test {
namespace {

using kind = connection_event::kind;

std::uint64_t sent_on(connection& c, const path& where) {
  std::uint64_t bytes = 0;
  for (const auto& p : c.paths())
    if (p.path == where) bytes += p.bytes_sent;
  return bytes;
}

class Migration : public testing::TestWithParam<bool> {};
TEST_P(Migration, ClientMovesWithItsStreams) {
  const bool immediate = GetParam();
  pair p;
  p.way = {far(1, 5000), far(2, 443)};
  p.mtu = 1472;
  p.handshake();
  p.run(2s);
  stream* s = p.client->open_stream(true).value();
  ASSERT_TRUE(s->write(slice::copy(pattern(1'000'000))));
  p.run(5ms);
  const path old = p.way, moved{far(9, 6000), far(2, 443)};
  bool old_is_dead = immediate;
  p.tamper = [&](flight& f) {
    const auto& client_end = f.to_server ? f.where.remote : f.where.local;
    return !(old_is_dead && client_end == old.local);
  };
  const auto result = p.client->migrate(moved, immediate, p.now);
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_TRUE(p.run_until([&] { return has(p.client_events, kind::path_changed); }, 10s));
  EXPECT_EQ(p.client->current_path(), moved);
  ASSERT_TRUE(s->finish());
  EXPECT_TRUE(p.run_until([&] { return !p.accepted.empty() && p.accepted[0]->at_end(); }, 30s));
  EXPECT_TRUE(p.received[p.accepted[0]] == pattern(1'000'000));
  EXPECT_TRUE(has(p.server_events, kind::path_changed));
  EXPECT_EQ(p.server->current_path().remote, moved.local);
  EXPECT_EQ(p.client->stats().migrations, 1u);
  p.run(1s);
  const auto settled = p.client->stats();
  const auto before = sent_on(*p.client, old);
  EXPECT_GT(before, 0u);
  stream* after = p.client->open_stream(false).value();
  ASSERT_TRUE(after->write(slice::copy(pattern(50'000))));
  p.run(1s);
  EXPECT_EQ(sent_on(*p.client, old), before);  // the old path is silent
  EXPECT_GT(sent_on(*p.client, moved), 50'000u);
  // The validation is over, so trains are trains again.
  const auto end = p.client->stats();
  EXPECT_GE(end.datagrams_sent - settled.datagrams_sent,
            3 * (end.trains_sent - settled.trains_sent));
}
INSTANTIATE_TEST_SUITE_P(Both, Migration, testing::Bool());

TEST(Paths, ManyMovesInARow) {
  pair p;
  p.handshake();
  for (int i = 0; i < 12; ++i) {
    p.run(2s);
    p.client_events.clear();
    const auto moved = p.client->migrate({local(6000 + i), local(443)}, false, p.now);
    ASSERT_TRUE(moved) << i << moved.error().to_string();
    EXPECT_TRUE(p.run_until([&] { return has(p.client_events, kind::path_changed); }, 5s)) << i;
  }
  EXPECT_TRUE(transfer(p, 100'000).complete);
}

TEST(Paths, MoveToADeadPathFailsAndTheOldOneStays) {
  pair p;
  p.handshake();
  p.run(1s);
  const path dead{local(7000), local(443)};
  p.tamper = [&](flight& f) { return f.where.remote != dead.local && f.where.local != dead.local; };
  ASSERT_TRUE(p.client->migrate(dead, false, p.now));
  EXPECT_TRUE(p.run_until([&] { return has(p.client_events, kind::migration_failed); }, 10s));
  EXPECT_EQ(p.client->current_path(), p.way);
  EXPECT_TRUE(transfer(p, 100'000).complete);
}

TEST(Paths, TooEarlyAndForbiddenAreTwoErrors) {
  auto server = server_defaults();
  server.transport.migration = false;
  pair p{client_defaults(), server};
  const path elsewhere{local(7000), local(443)};
  p.connect();
  const auto early = p.client->migrate(elsewhere, false, p.now);
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().code(), errc::exhausted);
  p.run(100ms);
  for (const bool immediate : {false, true}) {
    const auto forbidden = p.client->migrate(elsewhere, immediate, p.now);
    ASSERT_FALSE(forbidden);
    EXPECT_EQ(forbidden.error().code(), errc::unsupported);
    EXPECT_NE(forbidden.error().to_string().find("peer forbids"), std::string::npos);
  }
  EXPECT_EQ(p.client->current_path(), p.way);
  EXPECT_TRUE(transfer(p, 10'000).complete);
}

TEST(Paths, ServerFollowsARebinding) {
  pair p;
  p.handshake();
  p.run(1s);
  // The client knows nothing of it: a translator gives it another port.
  p.tamper = [&](flight& f) {
    if (f.to_server)
      f.where.remote = local(50'000);
    else if (f.where.local == local(50'000))
      f.where.local = p.way.local;
    return true;
  };
  EXPECT_TRUE(transfer(p, 300'000).complete);
  EXPECT_TRUE(p.run_until([&] { return has(p.server_events, kind::path_changed); }, 5s));
  EXPECT_EQ(p.server->current_path().remote, local(50'000));
  EXPECT_FALSE(has(p.client_events, kind::path_changed));
}

TEST(Paths, OnlyClientsMoveAndNotTooEarly) {
  pair p;
  p.connect();
  EXPECT_FALSE(p.client->migrate({local(7000), local(443)}, false, p.now));
  p.run(100ms);
  ASSERT_NE(p.server, nullptr);
  EXPECT_EQ(p.server->migrate({local(443), local(7000)}, false, p.now).error().code(),
            errc::unsupported);
  EXPECT_EQ(p.client->migrate(p.way, false, p.now).error().code(), errc::invalid_argument);
}

/// A translator between the ends: the client's port seen from outside changes while it knows
/// nothing of it, and the old one leads nowhere.
struct rebinding {
  explicit rebinding(pair& p) : p_{p} {
    p.tamper = [this](flight& f) {
      if (f.to_server) {
        f.where.remote = outside_;
        return true;
      }
      if (f.where.local != outside_ || swallow) return false;
      f.where.local = p_.way.local;
      return true;
    };
  }
  void rebind() { outside_ = outside_.with_port(static_cast<std::uint16_t>(outside_.port() + 1)); }
  bool swallow = false;  ///< nothing reaches the client

 private:
  pair& p_;
  address outside_ = p_.way.local;
};

TEST(Paths, TrainsAreTrainsAgainAfterARebinding) {
  pair p;
  p.way = {far(1, 5000), far(2, 443)};
  p.mtu = 1472;
  p.handshake();
  p.run(2s);
  rebinding translator{p};
  translator.rebind();
  EXPECT_TRUE(transfer(p, 100'000).complete);
  ASSERT_TRUE(has(p.server_events, kind::path_changed));
  p.run(5s);
  const auto before = p.server->stats();
  stream* s = p.server->open_stream(false).value();
  ASSERT_TRUE(s->write(slice::copy(pattern(1'000'000))));
  p.run(2s);
  const auto after = p.server->stats();
  EXPECT_GE(after.datagrams_sent - before.datagrams_sent,
            3 * (after.trains_sent - before.trains_sent));
}

/// Pings from the client's new port, of which none is answered with more than acknowledgements.
void ping_for(pair& p, duration length, duration pause = 100ms) {
  for (const time_point end = p.now + length; p.now < end; p.run(pause)) p.client->ping(p.now);
}

TEST(Paths, AWindowLostToARebindingDoesNotSilenceTheServer) {
  pair p;
  p.way = {far(1, 5000), far(2, 443)};
  p.mtu = 1472;
  p.delay = 10ms;
  p.handshake();
  p.run(2s);
  rebinding translator{p};
  stream* s = p.server->open_stream(false).value();
  ASSERT_TRUE(s->write(slice::copy(pattern(1'000'000))));
  ASSERT_TRUE(s->finish());
  p.run(25ms);
  // All that is under way is lost, and whatever it may send to a port that has to prove itself.
  translator.rebind();
  translator.swallow = true;
  std::erase_if(p.wire, [](const flight& f) { return !f.to_server; });
  ping_for(p, 300ms);
  const auto stuck = p.server->stats();
  ASSERT_GE(stuck.bytes_in_flight, stuck.congestion_window);
  translator.swallow = false;
  const auto arrived = [&] { return !p.from_server.empty() && p.from_server[0]->at_end(); };
  for (int i = 0; i < 100 && !arrived(); ++i) ping_for(p, 100ms);
  ASSERT_TRUE(arrived());
  EXPECT_TRUE(p.received[p.from_server[0]] == pattern(1'000'000));
}

/// It only reads, so it has nothing to send but answers to challenges and pings.
TEST(Paths, AWindowLostToPathResponsesDoesNotSilenceAReadingClient) {
  auto config = client_defaults();
  config.transport.keep_alive = 1s;
  pair p{config};
  p.way = {far(1, 5000), far(2, 443)};
  p.mtu = 1200;  // two lost answers fill the smallest window
  p.delay = 10ms;
  p.handshake();
  p.run(2s);
  rebinding translator{p};
  const auto through = p.tamper;
  bool lossy = true;
  p.tamper = [&](flight& f) {
    return through(f) && !(lossy && f.to_server && f.data.size() > 999);
  };
  const auto full = [&] {
    const auto stats = p.client->stats();
    return stats.bytes_in_flight >= stats.congestion_window;
  };
  for (int i = 0; i < 20 && !full(); ++i) {
    translator.rebind();
    ping_for(p, 50ms, 50ms);
  }
  ASSERT_TRUE(full());
  stream* s = p.server->open_stream(false).value();
  ASSERT_TRUE(s->write(slice::copy(pattern(100'000))));
  ASSERT_TRUE(s->finish());
  p.run(10s);
  lossy = false;
  const auto arrived = [&] { return !p.from_server.empty() && p.from_server[0]->at_end(); };
  EXPECT_TRUE(p.run_until(arrived, 15s));
}

/// Pacing held the ping back, and by then the library knew nothing of it any more: neither was it
/// sent, nor did the keep-alive's timer run again.
TEST(Paths, APingThatPacingHoldsBackDoesNotSilenceTheClient) {
  auto config = client_defaults();
  config.transport.keep_alive = 1s;
  pair p{config};
  p.way = {far(1, 5000), far(2, 443)};
  p.mtu = 1200;
  p.delay = 50ms;
  p.handshake();
  p.run(3s);
  rebinding translator{p};
  translator.rebind();
  // The answer to the server's challenge is lost, as is what the server says then.
  bool answered = false;
  const auto through = p.tamper;
  p.tamper = [&](flight& f) {
    answered = answered || (f.to_server && f.data.size() >= 1200);
    return !answered && through(f);
  };
  p.client->ping(p.now);
  ASSERT_TRUE(p.run_until([&] { return answered; }, 2s));
  p.client->ping(p.now);
  const auto before = p.sent_by_client;
  p.run(50ms);
  EXPECT_GT(p.sent_by_client, before);
  p.tamper = through;
  EXPECT_TRUE(p.run_until([&] { return has(p.server_events, kind::path_changed); }, 5s));
}

/// It proves the port that was asked, and takes the connection to another in one go.
TEST(Paths, AForgedCopyOfAnAnswerToAChallengeProvesNothing) {
  pair p;
  p.way = {far(1, 5000), far(2, 443)};
  p.handshake();
  p.run(2s);
  rebinding translator{p};
  const auto through = p.tamper;
  const address forged = far(66, 6666);
  bool asked = false, answered = false;
  p.tamper = [&](flight& f) {
    if (!through(f) || f.where.local == forged) return false;
    const bool full = f.data.size() >= 1200;
    asked = asked || (full && !f.to_server);
    const bool answer = asked && full && f.to_server;
    if (answer && !std::exchange(answered, true)) f.where.remote = forged;
    return true;
  };
  p.on_turn = [&] {
    const bool there = p.server->current_path().remote == forged;
    EXPECT_FALSE(there && has(p.server_events, kind::path_changed));
  };
  translator.rebind();
  stream* s = p.client->open_stream(false).value();  // enough for a challenge of full size
  ASSERT_TRUE(s->write(slice::copy(pattern(1000))));
  ASSERT_TRUE(p.run_until([&] { return p.server->current_path().remote == forged; }, 1s));
  EXPECT_TRUE(answered);
  p.run(10s);
  EXPECT_NE(p.server->current_path().remote, forged);
  EXPECT_TRUE(transfer(p, 100'000).complete);
}

TEST(Paths, ACloseForWhichAnUnprovenPathHasNoAllowanceIsToldLater) {
  pair p;
  p.way = {far(1, 5000), far(2, 443)};
  p.handshake();
  p.run(2s);
  rebinding translator{p};
  translator.rebind();
  translator.swallow = true;
  p.client->ping(p.now);
  p.run(1s);
  const auto before = p.sent_by_server;
  p.server->close(7, std::string(400, 'x'), p.now);
  p.settle();
  EXPECT_EQ(p.sent_by_server, before);  // a small datagram is no reason for a large one
  translator.swallow = false;
  p.client->ping(p.now);
  p.run(3ms);
  EXPECT_EQ(p.sent_by_server, before);
  EXPECT_EQ(p.client->current_state(), connection::state::established);
  stream* s = p.client->open_stream(false).value();
  ASSERT_TRUE(s->write(slice::copy(pattern(500))));
  p.run(5ms);
  EXPECT_EQ(p.client->current_state(), connection::state::closed);
  EXPECT_EQ(p.client->close_reason().detail(), 7u) << p.client->close_reason().to_string();
}

}  // namespace
}  // namespace weft::quic::core::test
