#include <random>

#include <weft/quic/core/pair_test.hpp>

namespace weft::quic::core::test {
namespace {

using kind = connection_event::kind;

/// Every datagram of a conversation, as it was on the wire.
std::vector<flight> recorded() {
  std::vector<flight> all;
  pair p;
  p.tamper = [&](flight& f) {
    all.push_back(f);
    return true;
  };
  p.handshake();
  stream* s = p.client->open_stream(true).value();
  (void)s->write(slice::copy(pattern(20'000)));
  p.run(50ms);
  return all;
}

TEST(Hostile, GarbageOfEverySizeIsDropped) {
  pair p;
  p.handshake();
  std::mt19937 random{1};
  for (int i = 0; i < 5000; ++i) {
    std::vector<std::byte> data(random() % 1500);
    for (auto& b : data) b = static_cast<std::byte>(random());
    p.server_endpoint->handle_datagrams({local(443), local(9)}, ecn::not_ect, data, data.size(),
                                        p.now);
    p.client_endpoint->handle_datagrams({local(5000), local(443)}, ecn::ce, data, 100, p.now);
  }
  p.run(100ms);
  EXPECT_FALSE(has(p.client_events, kind::closed));
  EXPECT_LE(p.server_endpoint->stats().connections, 2u);
}

TEST(Hostile, DamagedAndCutPacketsDoNoHarm) {
  std::mt19937 random{2};
  pair p;
  p.tamper = [&](flight& f) {
    if (f.data.empty()) return true;
    for (int copy = 0; copy < 3; ++copy) {
      flight bad = f;
      bad.at = p.now;
      if (copy == 0)
        bad.data.resize(random() % bad.data.size());
      else
        bad.data[random() % bad.data.size()] ^= static_cast<std::byte>(1 + random() % 255);
      bad.segment = bad.data.size();
      p.wire.push_back(std::move(bad));
    }
    return true;
  };
  p.handshake();
  ASSERT_TRUE(p.client_is(connection::state::established));
  stream* s = p.client->open_stream(true).value();
  ASSERT_TRUE(s->write(slice::copy(pattern(100'000))));
  ASSERT_TRUE(s->finish());
  EXPECT_TRUE(p.run_until([&] { return !p.accepted.empty() && p.accepted[0]->at_end(); }, 20s));
  EXPECT_TRUE(p.received[p.accepted[0]] == pattern(100'000));
}

TEST(Hostile, ReplayedConversationStartsNothingThatLasts) {
  const auto all = recorded();
  auto server = server_defaults();
  server.max_handshakes = 10;
  pair p{client_defaults(), server};
  for (int round = 0; round < 20; ++round)
    for (auto f : all)
      if (f.to_server)
        p.server_endpoint->handle_datagrams(f.where, f.mark, f.data, f.segment, p.now);
  EXPECT_LE(p.server_endpoint->stats().connections, 1u);
  p.run(60s);
  EXPECT_EQ(p.server_endpoint->stats().connections, 0u);
  EXPECT_EQ(p.server_endpoint->stats().handshakes, 0u);
}

TEST(Hostile, ReplayIntoTheLiveConnectionIsIgnored) {
  std::vector<flight> all;
  pair p;
  p.tamper = [&](flight& f) {
    all.push_back(f);
    return true;
  };
  p.handshake();
  stream* s = p.client->open_stream(true).value();
  ASSERT_TRUE(s->write(slice::copy(pattern(20'000))));
  p.run(50ms);
  const auto copies = all;
  for (const auto& f : copies) {
    auto from = f.where;
    if (f.to_server) from.remote = far(200, 1);  // even from elsewhere: it may not take the path
    (f.to_server ? *p.server_endpoint : *p.client_endpoint)
        .handle_datagrams(from, f.mark, f.data, f.segment, p.now);
  }
  p.run(1s);
  EXPECT_EQ(p.server->current_path().remote, local(5000));
  EXPECT_EQ(p.received[p.accepted[0]].size(), 20'000u);
  EXPECT_FALSE(has(p.server_events, kind::closed));
}

TEST(Hostile, ForgedCopyOfTheFirstPacketDoesNotPreventTheHandshake) {
  pair p;
  std::size_t forged = 0;
  p.tamper = [&](flight& f) {
    if (!f.to_server || has(p.client_events, kind::handshake_done)) return true;
    flight copy = f;
    copy.where.remote = far(9, 9);
    copy.at = p.now + p.delay / 2;
    p.wire.push_back(std::move(copy));
    ++forged;
    return true;
  };
  p.handshake();
  EXPECT_GE(forged, 2u);
  ASSERT_TRUE(p.client_is(connection::state::established));
  EXPECT_EQ(p.server->current_path().remote, local(5000));
  EXPECT_EQ(p.server_endpoint->stats().connections, 2u);
  // The one made for the copy goes away by itself, and its place with it.
  p.client->close(0, "", p.now);
  p.run(60s);
  p.server_endpoint->release(*p.server, p.now);
  EXPECT_EQ(p.server_endpoint->stats().connections, 0u);
  EXPECT_EQ(p.server_endpoint->stats().handshakes, 0u);
}

TEST(Hostile, FloodOfFirstPacketsIsBounded) {
  auto server = server_defaults();
  server.max_handshakes = 20;
  server.retry_above = 10;
  pair p{client_defaults(), server};
  auto crowd = endpoint::create({}).value();
  std::size_t answered = 0, sent = 0;
  for (int i = 0; i < 200; ++i) {
    const path way{far(i % 250, 1000 + i), local(443)};
    ASSERT_TRUE(crowd->connect(way, "localhost", p.config, p.now));
    while (auto out = crowd->poll_transmit(p.buffer, p.now)) {
      sent += out->size;
      p.server_endpoint->handle_datagrams({out->path.remote, out->path.local}, ecn::not_ect,
                                          bytes{p.buffer}.first(out->size), out->segment, p.now);
      while (auto answer = p.server_endpoint->poll_transmit(p.buffer, p.now))
        answered += answer->size;
    }
  }
  EXPECT_LE(p.server_endpoint->stats().connections, 20u);
  EXPECT_GT(p.server_endpoint->stats().retries, 100u);
  EXPECT_LE(answered, 3 * sent);
  // Nobody answers; all of it goes away by itself.
  p.run(30s);
  EXPECT_EQ(p.server_endpoint->stats().connections, 0u);
  p.handshake();
}

TEST(Hostile, ConnectionLimitHolds) {
  auto server = server_defaults();
  server.max_connections = 3;
  pair p{client_defaults(), server};
  for (int i = 0; i < 6; ++i) {
    p.connect();
    p.run(50ms);
  }
  EXPECT_EQ(p.server_endpoint->stats().connections, 3u);
  EXPECT_GT(p.server_endpoint->stats().dropped_overload, 0u);
}

TEST(Hostile, ClosedConnectionAnswersEverMoreRarely) {
  pair p;
  p.handshake();
  std::vector<flight> late;
  p.tamper = [&](flight& f) {
    if (f.to_server) late.push_back(f);
    return false;
  };
  stream* s = p.client->open_stream(true).value();
  ASSERT_TRUE(s->write(slice::copy("x")));
  p.run(1ms);
  ASSERT_FALSE(late.empty());
  p.server->close(1, "", p.now);
  p.server_endpoint->release(*p.server, p.now);
  while (p.server_endpoint->poll_transmit(p.buffer, p.now)) {
  }
  std::size_t answers = 0;
  for (int i = 0; i < 1000; ++i) {
    p.server_endpoint->handle_datagrams(late[0].where, ecn::not_ect, late[0].data, late[0].segment,
                                        p.now);
    while (p.server_endpoint->poll_transmit(p.buffer, p.now)) ++answers;
  }
  EXPECT_GE(answers, 5u);
  EXPECT_LE(answers, 11u);
  EXPECT_EQ(p.server_endpoint->stats().stateless_resets, 0u);
}

TEST(Hostile, ClosedConnectionDoesNotAmplifyToAForgedAddress) {
  pair p;
  p.way = {far(1, 5000), far(2, 443)};
  p.handshake();
  p.run(2s);
  // A copy of a small packet comes from somewhere else, and faster than the original.
  const address victim = far(66, 6666);
  std::size_t from_victim = 0, to_victim = 0;
  bool everything = false;  // what the server says reaches the client
  p.tamper = [&](flight& f) {
    if (!f.to_server) {
      if (f.where.local == victim) to_victim += f.data.size();
      return everything && f.where.local != victim;
    }
    if (from_victim > 0) return true;
    from_victim = f.data.size();
    f.where.remote = victim;
    return true;
  };
  stream* s = p.client->open_stream(true).value();
  ASSERT_TRUE(s->write(slice::copy("a small one")));
  EXPECT_TRUE(p.run_until([&] { return p.server->current_path().remote == victim; }, 100ms));
  p.server->close(7, "gone", p.now);
  const auto go_on = [&] {
    for (int i = 0; i < 5; ++i, p.run(1ms)) (void)s->write(slice::copy("still there?"));
  };
  go_on();
  EXPECT_GT(to_victim, 0u);
  EXPECT_LE(to_victim, 3 * from_victim);
  // The client sends from where it is, and is told there.
  everything = true;
  go_on();
  EXPECT_TRUE(has(p.client_events, kind::closed));
  EXPECT_EQ(p.client->close_reason().detail(), 7u);
  EXPECT_LE(to_victim, 3 * from_victim);
}

TEST(Hostile, ClosedConnectionAnswersAForgedDatagramWithAtMostThriceItsSize) {
  pair p;
  p.handshake();
  std::vector<flight> late;
  p.tamper = [&](flight& f) {
    if (f.to_server) late.push_back(f);
    return false;
  };
  p.client->ping(p.now);
  p.run(1ms);
  ASSERT_EQ(late.size(), 1u);
  p.server->close(1, std::string(400, 'x'), p.now);
  const auto answer_to = [&](const address& from) {
    while (p.server_endpoint->poll_transmit(p.buffer, p.now)) {
    }
    late[0].where.remote = from;
    p.server_endpoint->handle_datagrams(late[0].where, ecn::not_ect, late[0].data, late[0].segment,
                                        p.now);
    const auto answer = p.server_endpoint->poll_transmit(p.buffer, p.now);
    if (answer) {
      EXPECT_EQ(answer->path.remote, from);
    }
    return answer ? answer->size : 0;
  };
  ASSERT_LT(late[0].data.size(), 100u);
  EXPECT_EQ(answer_to(far(66, 6666)), 0u);
  EXPECT_GT(answer_to(p.way.local), 400u);
}

// Memory ------------------------------------------------------------------------------------------

TEST(Memory, BudgetBoundsWhatSlowReadersHoldAndNobodyStarves) {
  constexpr std::size_t limit = 4 << 20;
  endpoint_options side;
  side.memory = std::make_shared<memory_budget>(limit);
  pair p{client_defaults(), server_defaults(), {}, side};
  p.auto_read = false;
  std::vector<stream*> up;
  std::vector<connection*> clients;
  for (int i = 0; i < 8; ++i) {
    p.server = nullptr;
    p.handshake();
    stream* s = p.client->open_stream(false).value();
    ASSERT_TRUE(s->write(slice::copy(pattern(3 << 20))));
    ASSERT_TRUE(s->finish());
    up.push_back(s);
  }
  p.run(2s);
  std::size_t unread = 0;
  for (auto* s : p.accepted) unread += s->readable();
  EXPECT_LE(unread, limit + 8 * 64 * 1024u);
  EXPECT_LE(side.memory->used(), limit);
  // Slowly, everything still arrives, for every one of them.
  std::vector<std::size_t> got(p.accepted.size());
  EXPECT_TRUE(p.run_until(
      [&] {
        bool all = true;
        for (std::size_t i = 0; i < p.accepted.size(); ++i) {
          while (p.accepted[i]->readable() > 0) got[i] += p.accepted[i]->read().size();
          all &= p.accepted[i]->at_end();
        }
        return all && p.accepted.size() == 8;
      },
      300s));
  for (auto n : got) EXPECT_EQ(n, std::size_t{3} << 20);
  p.run(1s);
  EXPECT_LE(side.memory->used(), 8 * 128 * 1024u);
}

TEST(Memory, SendersStopAtTheBudgetAndGoOn) {
  endpoint_options side;
  side.memory = std::make_shared<memory_budget>(1 << 20);
  pair p{client_defaults(), server_defaults(), side};
  p.handshake();
  stream* s = p.client->open_stream(false).value();
  std::size_t written = 0;
  while (s->writable() > 0) {
    ASSERT_TRUE(s->write(slice::copy(pattern(100'000))));
    written += 100'000;
    ASSERT_LT(written, 3'000'000u);
  }
  EXPECT_LE(side.memory->used(), std::size_t{1} << 20);
  p.seen.clear();
  EXPECT_TRUE(p.run_until([&] { return (p.seen[s] & writable) != 0; }, 5s));
  EXPECT_GT(s->writable(), 0u);
}

TEST(Memory, EverythingIsGivenBack) {
  endpoint_options side;
  side.memory = std::make_shared<memory_budget>(64 << 20);
  {
    pair p{client_defaults(), server_defaults(), side, side};
    p.auto_read = false;
    p.handshake();
    for (int i = 0; i < 20; ++i) {
      stream* s = p.client->open_stream(i % 2 == 0).value();
      ASSERT_TRUE(s->write(slice::copy(pattern(200'000))));
      p.run(2ms);
    }
    EXPECT_GT(side.memory->used(), 0u);
  }
  EXPECT_EQ(side.memory->used(), 0u);
}

}  // namespace
}  // namespace weft::quic::core::test
