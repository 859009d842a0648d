// Streams whose ending the protocol library would lose.

#include <weft/quic/core/pair_test.hpp>

namespace weft::quic::core::test {
namespace {

using kind = connection_event::kind;

/// Calls `act` once, when the client's handshake is done and its last flight is not sent.
void when_keys_are_there(pair& p, std::function<void()> act) {
  p.on_turn = [&p, act = std::move(act), done = false]() mutable {
    if (std::exchange(done, done || has(p.client_events, kind::handshake_done))) return;
    if (done) act();
  };
}

TEST(Endings, ResetBeforeTheHandshakeIsLeftReachesThePeer) {
  for (const bool written : {false, true}) {
    SCOPED_TRACE(written);
    pair p;
    stream* near = nullptr;
    when_keys_are_there(p, [&] {
      near = p.client->open_stream(true).value();
      if (written) {
        ASSERT_TRUE(near->write(slice::copy("never mind")));
      }
      near->reset(7);
    });
    p.handshake();
    p.run(100ms);
    ASSERT_EQ(p.accepted.size(), 1u);
    EXPECT_EQ(p.accepted[0]->reset_code(), 7u);
    p.server->release(*p.accepted[0], 0);
    EXPECT_TRUE(p.run_until([&] { return near->closed(); }, 100ms));
    p.client->release(*near);
  }
}

TEST(Endings, ResetOfAnUnusedStreamReachesThePeer) {
  for (const bool both_ways : {false, true}) {
    SCOPED_TRACE(both_ways);
    pair p;
    p.handshake();
    stream* near = p.client->open_stream(both_ways).value();
    near->reset(8);
    p.run(50ms);
    ASSERT_EQ(p.accepted.size(), 1u);
    EXPECT_EQ(p.accepted[0]->reset_code(), 8u);
    p.server->release(*p.accepted[0], 0);
    EXPECT_TRUE(p.run_until([&] { return near->closed(); }, 100ms));
  }
}

TEST(Endings, ResetThatOvertakesTheStreamsFirstBytesOpensAndEndsIt) {
  pair p;
  p.handshake();
  stream* near = p.client->open_stream(true).value();
  std::size_t held = 0;
  p.tamper = [&](flight& f) {
    if (f.to_server && ++held) f.at += 20ms;
    return true;
  };
  ASSERT_TRUE(near->write(slice::copy(pattern(500))));
  p.run(2ms);
  p.tamper = nullptr;
  EXPECT_GT(held, 0u);
  near->reset(9);
  p.run(5ms);
  ASSERT_EQ(p.accepted.size(), 1u);
  EXPECT_EQ(p.accepted[0]->reset_code(), 9u);
  p.run(50ms);  // the bytes come
  EXPECT_TRUE(p.received[p.accepted[0]].empty());
  p.server->release(*p.accepted[0], 0);
  EXPECT_TRUE(p.run_until([&] { return near->closed(); }, 100ms));
}

TEST(Endings, StopSendingBeforeTheHandshakeIsLeftReachesThePeer) {
  pair p;
  stream* near = nullptr;
  when_keys_are_there(p, [&] {
    near = p.client->open_stream(true).value();
    ASSERT_TRUE(near->write(slice::copy("say nothing")));
    near->stop_sending(6);
  });
  p.handshake();
  p.run(100ms);
  ASSERT_EQ(p.accepted.size(), 1u);
  EXPECT_EQ(p.accepted[0]->stopped_code(), 6u);
  EXPECT_EQ(p.received[p.accepted[0]], "say nothing");
}

/// A client that sends all of a stream at once, and a server that stops it. The stream's beginning
/// arrives after its end, and STOP_SENDING only after everything is acknowledged.
struct late_stop : pair {
  explicit late_stop(server_config config = server_defaults())
      : pair{client_defaults(), std::move(config)} {
    auto_read = false;
    mtu = 1400;  // so that there are several datagrams
    handshake();
  }
  /// The answer's beginning arrives after its end.
  void answer_and_stop(stream& near, stream& far) {
    EXPECT_TRUE(near.write(slice::copy(pattern(12'000))));
    EXPECT_TRUE(near.finish());
    tamper = [first = true](flight& f) mutable {
      if (f.to_server && std::exchange(first, false)) f.at += 500us;
      return true;
    };
    run(1200us);
    EXPECT_FALSE(far.fin_received());
    tamper = [first = true](flight& f) mutable {
      if (!f.to_server && std::exchange(first, false)) f.at += 30ms;
      return true;
    };
    far.stop_sending(5);
    settle();
    tamper = nullptr;
  }
  stream* stop_one(bool both_ways) {
    stream* near = client->open_stream(both_ways).value();
    EXPECT_TRUE(near->write(slice::copy(pattern(12'000))));
    EXPECT_TRUE(near->finish());
    bool first = true;
    const std::size_t before = accepted.size();
    tamper = [first](flight& f) mutable {
      if (f.to_server && std::exchange(first, false)) f.at += 500us;
      return true;
    };
    run_until([&] { return accepted.size() > before; }, 20ms);
    stream* far = accepted.back();
    EXPECT_FALSE(far->fin_received());
    if (both_ways) far->reset(4);
    tamper = [first = true](flight& f) mutable {
      if (!f.to_server && std::exchange(first, false)) f.at += 30ms;
      return true;
    };
    far->stop_sending(5);
    settle();
    tamper = nullptr;
    return near;
  }
};

TEST(Endings, StopSendingWhileTheEndWaitsOutOfOrderClosesTheStream) {
  for (const bool both_ways : {false, true}) {
    SCOPED_TRACE(both_ways);
    late_stop p;
    stream* near = p.stop_one(both_ways);
    p.run(100ms);
    EXPECT_EQ(near->unacknowledged(), 0u);
    EXPECT_TRUE(p.run_until([&] { return p.accepted.back()->closed(); }, 5s));
    EXPECT_TRUE(near->closed());
  }
}

TEST(Endings, FinAcknowledgedTogetherWithBytesLetsAStoppedStreamClose) {
  late_stop p;
  stream* far = p.server->open_stream(true).value();
  ASSERT_TRUE(far->write(slice::copy("question, ")));
  p.run(50ms);
  ASSERT_EQ(p.from_server.size(), 1u);
  stream* near = p.from_server[0];
  // Bytes and the FIN after them are lost. Later packets tell of both at once, so that they go out
  // again as one frame.
  p.tamper = [](flight& f) { return f.to_server; };
  ASSERT_TRUE(far->write(slice::copy("the rest")));
  p.run(2ms);
  ASSERT_TRUE(far->finish());
  p.run(2ms);
  p.tamper = nullptr;
  stream* other = p.server->open_stream(false).value();
  for (int i = 0; i < 5; ++i, p.run(1ms)) ASSERT_TRUE(other->write(slice::copy("later")));
  p.run(100ms);
  EXPECT_EQ(read_all(*near), "question, the rest");
  EXPECT_TRUE(near->at_end());
  EXPECT_EQ(far->unacknowledged(), 0u);
  p.answer_and_stop(*near, *far);
  p.run(100ms);
  EXPECT_EQ(near->unacknowledged(), 0u);
  EXPECT_TRUE(p.run_until([&] { return far->closed(); }, 5s));
}

/// As above, on a stream that nobody stops. On a busy connection something is always under way.
TEST(Endings, FinAcknowledgedTogetherWithBytesIsDelivered) {
  for (const bool busy : {false, true}) {
    SCOPED_TRACE(busy);
    pair p;
    p.handshake();
    stream* near = p.client->open_stream(true).value();
    ASSERT_TRUE(near->write(slice::copy("question, ")));
    p.run(50ms);
    p.tamper = [](flight& f) { return !f.to_server; };
    ASSERT_TRUE(near->write(slice::copy("the rest")));
    p.run(2ms);
    ASSERT_TRUE(near->finish());
    p.run(2ms);
    p.tamper = nullptr;
    stream* other = p.client->open_stream(false).value();
    for (int i = 0; i < 5; ++i, p.run(1ms)) ASSERT_TRUE(other->write(slice::copy("later")));
    p.run(10ms);
    EXPECT_EQ(p.received[p.accepted[0]], "question, the rest");
    ASSERT_TRUE(p.accepted[0]->at_end());
    ASSERT_EQ(near->unacknowledged(), 0u);
    for (int i = 0; i < 1000 && !near->delivered(); ++i, p.run(1ms))
      if (busy) other->write(slice::copy("later still")).value();
    EXPECT_TRUE(near->delivered());
    EXPECT_NE(p.seen[near] & drained, 0);
  }
}

/// The bytes are acknowledged and the FIN after them is lost, again and again.
TEST(Endings, FinThatIsStillLostIsNotDelivered) {
  pair p;
  p.delay = 50ms;
  p.handshake();
  p.run(1s);
  stream* near = p.client->open_stream(true).value();
  ASSERT_TRUE(near->write(slice::copy("question")));
  p.run(5ms);
  ASSERT_TRUE(near->finish());
  bool through = false;
  p.tamper = [&](flight& f) { return through || !f.to_server; };
  p.run(130ms);
  ASSERT_EQ(near->unacknowledged(), 0u);
  for (int i = 0; i < 20; ++i, p.run(100ms)) ASSERT_FALSE(near->delivered());
  ASSERT_FALSE(p.accepted[0]->at_end());
  through = true;
  EXPECT_TRUE(p.run_until([&] { return near->delivered(); }, 10s));
  EXPECT_TRUE(p.accepted[0]->at_end());
}

TEST(Endings, StopSendingWhileTheEndWaitsOutOfOrderKeepsAllCredit) {
  auto config = server_defaults();
  config.transport.max_uni_streams = 4;
  config.transport.stream_window = config.transport.connection_window = 64 * 1024;
  late_stop p{config};
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(i);
    stream* near = p.stop_one(false);
    p.run(100ms);
    EXPECT_TRUE(near->closed());
    p.client->release(*near);
    p.server->release(*p.accepted.back());
    p.run(4s);
  }
  EXPECT_EQ(p.server->stats().streams_closed, p.server->stats().streams_accepted);
  stream* last = p.client->open_stream(false).value();
  ASSERT_TRUE(last->write(slice::copy(pattern(60'000))));
  p.auto_read = true;
  p.run(1s);
  EXPECT_EQ(p.received[p.accepted.back()].size(), 60'000u);
}

TEST(Endings, StoppedStreamStaysWhileItsOtherSideIsOpen) {
  late_stop p;
  stream* near = p.client->open_stream(true).value();
  ASSERT_TRUE(near->write(slice::copy("question")));
  ASSERT_TRUE(near->finish());
  p.run(20ms);
  p.accepted.back()->stop_sending(5);
  p.run(10s);
  EXPECT_FALSE(p.accepted.back()->closed());
  ASSERT_TRUE(p.accepted.back()->write(slice::copy("answer")));
  ASSERT_TRUE(p.accepted.back()->finish());
  EXPECT_TRUE(p.run_until([&] { return near->at_end() || near->readable() == 6; }, 1s));
  EXPECT_EQ(read_all(*near), "answer");
  EXPECT_TRUE(p.run_until([&] { return p.accepted.back()->closed(); }, 5s));
}

TEST(Endings, EndAcknowledgedBeforeItsBytesStillDrains) {
  pair p;
  p.handshake();
  stream* near = p.client->open_stream(true).value();
  ASSERT_TRUE(near->write(slice::copy("first")));
  p.run(20ms);
  bool dropped = false;
  p.tamper = [&](flight& f) { return !f.to_server || std::exchange(dropped, true); };
  ASSERT_TRUE(near->write(slice::copy("lost at first")));
  p.settle();
  EXPECT_TRUE(dropped);
  ASSERT_TRUE(near->finish());
  EXPECT_TRUE(p.run_until([&] { return (p.seen[near] & drained) != 0; }, 1s));
  EXPECT_TRUE(p.accepted.back()->at_end());
  EXPECT_EQ(near->unacknowledged(), 0u);
}

}  // namespace
}  // namespace weft::quic::core::test
