#include <weft/quic/core/pair_test.hpp>

namespace weft::quic::core::test {
namespace {

using kind = connection_event::kind;

/// A pair whose server does nothing by itself, with one stream from the client that carried "hi".
struct one_stream : pair {
  explicit one_stream(client_config c = client_defaults(), server_config s = server_defaults())
      : pair{std::move(c), std::move(s)} {
    handshake();
    near = client->open_stream(true).value();
    EXPECT_TRUE(near->write(slice::copy("hi")));
    run(10ms);
    far = accepted.empty() ? nullptr : accepted.back();
    EXPECT_NE(far, nullptr);
  }
  stream* near = nullptr;
  stream* far = nullptr;
};

TEST(Stream, ResetReachesTheReaderAndDropsWhatIsUnread) {
  one_stream p;
  p.auto_read = false;
  ASSERT_TRUE(p.near->write(slice::copy("unread")));
  p.run(5ms);
  EXPECT_EQ(p.far->readable(), 6u);
  p.near->reset(7);
  EXPECT_EQ(p.near->write(slice::copy("x")).error().code(), errc::reset);
  p.run(5ms);
  EXPECT_EQ(p.far->reset_code(), 7u);
  EXPECT_EQ(p.far->readable(), 0u);
  EXPECT_FALSE(p.far->at_end());
  // The other direction goes on.
  ASSERT_TRUE(p.far->write(slice::copy("still here")));
  ASSERT_TRUE(p.far->finish());
  p.run(10ms);
  EXPECT_EQ(read_all(*p.near), "still here");
  EXPECT_TRUE(p.near->closed());
  EXPECT_TRUE(p.far->closed());
}

TEST(Stream, StopSendingReachesTheWriterAtOnce) {
  one_stream p;
  const auto asked = p.now;
  p.far->stop_sending(9);
  p.run_until([&] { return p.near->stopped_code().has_value(); });
  EXPECT_EQ(p.near->stopped_code(), 9u);
  EXPECT_NE(p.seen[p.near] & stopped, 0);
  EXPECT_LE(p.now - asked, p.delay + 1ms);
  const auto refused = p.near->write(slice::copy("x"));
  EXPECT_EQ(refused.error().code(), errc::stopped);
  EXPECT_EQ(refused.error().detail(), 9u);
  EXPECT_EQ(p.near->writable(), 0u);
}

TEST(Stream, CancellingACallAfterFinReachesAnIdleServerInHalfARoundTrip) {
  one_stream p;
  ASSERT_TRUE(p.near->finish());
  p.run(50ms);  // the FIN is acknowledged; only the server's answer is awaited
  const auto asked = p.now;
  p.near->stop_sending(3);
  EXPECT_TRUE(p.run_until([&] { return (p.seen[p.far] & stopped) != 0; }, 1s));
  EXPECT_LE(p.now - asked, p.delay + 1ms);
  EXPECT_EQ(p.far->stopped_code(), 3u);
}

/// Every order of what both ends can do to a stream, each pair of steps with and without time
/// between.
TEST(Stream, EveryOrderOfEndingsCloses) {
  const std::vector<std::function<void(stream&)>> steps = {
      [](stream& s) { (void)s.finish(); },
      [](stream& s) { s.reset(1); },
      [](stream& s) { s.stop_sending(2); },
      [](stream& s) { (void)s.write(slice::copy("data")); },
  };
  pair p;
  p.handshake();
  int round = 0;
  for (std::size_t a = 0; a < steps.size(); ++a)
    for (std::size_t b = 0; b < steps.size(); ++b)
      for (std::size_t c = 0; c < steps.size(); ++c)
        for (const bool apart : {false, true}) {
          SCOPED_TRACE(testing::Message() << a << b << c << apart);
          const std::size_t known = p.accepted.size();
          stream* near = p.client->open_stream(true).value();
          ASSERT_TRUE(near->write(slice::copy("first")));
          if (round % 2 == 0) p.run(3ms);
          ++round;
          steps[a](*near);
          if (apart) p.run(3ms);
          stream* far = p.accepted.size() > known ? p.accepted.back() : nullptr;
          if (far) steps[b](*far);
          if (apart) p.run(3ms);
          steps[c](*near);
          p.run(3ms);
          if (!far && p.accepted.size() > known) far = p.accepted.back();
          // Whatever is still open is abandoned on release.
          p.client->release(*near, 5);
          if (far) p.server->release(*far, 6);
          p.run(20ms);
        }
  EXPECT_FALSE(has(p.client_events, kind::closed)) << p.client->close_reason().to_string();
  EXPECT_FALSE(has(p.server_events, kind::closed)) << p.server->close_reason().to_string();
  p.run(1s);
  EXPECT_EQ(p.client->stats().streams_opened, static_cast<std::uint64_t>(round));
  EXPECT_EQ(p.client->stats().streams_closed, static_cast<std::uint64_t>(round));
  EXPECT_EQ(p.server->stats().streams_closed, p.server->stats().streams_accepted);
  EXPECT_EQ(p.server->stats().receive_buffered, 0u);
  EXPECT_EQ(p.client->stats().send_buffered, 0u);
}

TEST(Stream, FinWithoutBytesEndsTheStream) {
  pair p;
  p.handshake();
  stream* s = p.client->open_stream(false).value();
  ASSERT_TRUE(s->finish());
  EXPECT_TRUE(s->finish());
  EXPECT_EQ(s->write(slice::copy("x")).error().code(), errc::invalid_argument);
  p.run(10ms);
  ASSERT_EQ(p.accepted.size(), 1u);
  EXPECT_TRUE(p.accepted[0]->at_end());
  EXPECT_NE(p.seen[s] & drained, 0);
  EXPECT_TRUE(s->closed());
}

TEST(Stream, FinishedSideIsDeliveredAfterRelease) {
  pair p;
  p.handshake();
  const std::string text = pattern(300'000);
  stream* s = p.client->open_stream(false).value();
  ASSERT_TRUE(s->write(slice::copy(text)));
  ASSERT_TRUE(s->finish());
  p.client->release(*s);
  p.run(1s);
  ASSERT_EQ(p.accepted.size(), 1u);
  EXPECT_TRUE(p.received[p.accepted[0]] == text);
  EXPECT_TRUE(p.accepted[0]->at_end());
}

TEST(Stream, IdsRunOutAndAreRenewed) {
  auto server = server_defaults();
  server.transport.max_bidi_streams = 8;
  pair p{client_defaults(), server};
  p.handshake();
  int done = 0;
  bool blocked = false;
  std::vector<stream*> open;
  p.on_turn = [&] {
    for (auto*& s : p.accepted)
      if (s && s->at_end()) {
        (void)s->finish();
        p.server->release(*std::exchange(s, nullptr));
      }
    std::erase_if(open, [&](stream* s) {
      if (!s->at_end()) return false;
      p.client->release(*s);
      ++done;
      return true;
    });
    while (done + static_cast<int>(open.size()) < 200) {
      auto s = p.client->open_stream(true);
      if (!s) {
        EXPECT_EQ(s.error().code(), errc::exhausted);
        blocked = true;
        break;
      }
      EXPECT_TRUE((*s)->write(slice::copy("x")));
      EXPECT_TRUE((*s)->finish());
      open.push_back(*s);
    }
  };
  EXPECT_TRUE(p.run_until([&] { return done == 200; }));
  EXPECT_TRUE(blocked);
  EXPECT_TRUE(has(p.client_events, kind::stream_credit));
}

TEST(Stream, LongLivedStreamsDoNotHoldBackTheOthersCredit) {
  auto server = server_defaults();
  server.transport.max_uni_streams = 16;
  pair p{client_defaults(), server};
  p.handshake();
  for (int i = 0; i < 14; ++i)
    ASSERT_TRUE(p.client->open_stream(false).value()->write(slice::copy("stays")));
  p.run(10ms);
  for (int i = 0; i < 50; ++i) {
    auto s = p.client->open_stream(false);
    ASSERT_TRUE(s) << i;
    ASSERT_TRUE((*s)->finish());
    p.client->release(**s);
    p.run(10ms);
    p.server->release(*p.accepted.back());
    p.run(10ms);
  }
}

TEST(Stream, WindowIsRefundedWhenUnreadBytesAreDropped) {
  auto server = server_defaults();
  server.transport.stream_window = 64 * 1024;
  server.transport.connection_window = 128 * 1024;
  pair p{client_defaults(), server};
  p.auto_read = false;
  p.handshake();
  // Far more than the connection window passes through streams of which nobody reads a byte.
  for (int i = 0; i < 60; ++i) {
    SCOPED_TRACE(i);
    stream* s = p.client->open_stream(i % 2 == 0).value();
    ASSERT_TRUE(s->write(slice::copy(pattern(60'000))));
    const auto known = p.accepted.size();
    ASSERT_TRUE(p.run_until(
        [&] { return p.accepted.size() > known && p.accepted.back()->readable() == 60'000; }, 5s));
    stream* far = p.accepted.back();
    switch (i % 4) {
      case 0:
        s->reset(1);
        break;  // the writer gives up
      case 1:
        far->stop_sending(1);
        break;  // the reader does
      case 2:
        p.server->release(*far);
        break;  // the reader is gone
      default:
        ASSERT_TRUE(s->finish());  // complete, closed, and then dropped
        p.run(10ms);
        p.server->release(*far);
    }
    p.run(20ms);
    p.client->release(*s);
    if (i % 4 < 2) p.server->release(*far);
    p.run(20ms);
  }
  EXPECT_EQ(p.server->stats().receive_buffered, 0u);
}

TEST(Stream, ConnectionWindowBlocksAndWakes) {
  auto server = server_defaults();
  server.transport.stream_window = 1 << 20;
  server.transport.connection_window = 64 * 1024;
  pair p{client_defaults(), server};
  p.auto_read = false;
  p.handshake();
  stream* a = p.client->open_stream(true).value();
  stream* b = p.client->open_stream(true).value();
  stream* bare = p.client->open_stream(true).value();
  ASSERT_TRUE(a->write(slice::copy(pattern(200'000))));
  ASSERT_TRUE(b->write(slice::copy(pattern(200'000))));
  ASSERT_TRUE(a->finish());
  ASSERT_TRUE(b->finish());
  p.run(2s);
  std::size_t arrived = 0;
  for (auto* s : p.accepted) arrived += s->readable();
  EXPECT_EQ(arrived, 64u * 1024);
  // An end without bytes needs no credit.
  ASSERT_TRUE(bare->finish());
  p.run(100ms);
  ASSERT_EQ(p.accepted.size(), 3u);
  EXPECT_TRUE(p.accepted.back()->at_end());
  // Reading wakes the writer; nothing else happens at the client's end.
  p.auto_read = true;
  for (auto* s : p.accepted) p.drain(*s);
  EXPECT_TRUE(p.run_until([&] { return p.accepted[0]->at_end() && p.accepted[1]->at_end(); }, 10s));
  EXPECT_EQ(p.received[p.accepted[0]].size() + p.received[p.accepted[1]].size(), 400'000u);
}

TEST(Stream, StreamWindowBlocksOnlyItsStream) {
  auto server = server_defaults();
  server.transport.stream_window = 16 * 1024;
  pair p{client_defaults(), server};
  p.auto_read = false;
  p.handshake();
  stream* stuck = p.client->open_stream(true).value();
  ASSERT_TRUE(stuck->write(slice::copy(pattern(50'000))));
  p.run(100ms);
  stream* other = p.client->open_stream(true).value();
  ASSERT_TRUE(other->write(slice::copy("passes")));
  p.run(20ms);
  ASSERT_EQ(p.accepted.size(), 2u);
  EXPECT_EQ(p.accepted[0]->readable(), 16u * 1024);
  EXPECT_EQ(read_all(*p.accepted[1]), "passes");
  std::string got;
  p.run_until(
      [&] {
        got += read_all(*p.accepted[0]);
        return got.size() == 50'000;
      },
      5s);
  EXPECT_EQ(got.size(), 50'000u);
  EXPECT_TRUE(got == pattern(50'000));
}

TEST(Stream, SendBufferIsBoundedAndSaysWhenThereIsRoom) {
  auto client = client_defaults();
  client.transport.stream_send_buffer = 100'000;
  client.transport.connection_send_buffer = 150'000;
  pair p{client};
  p.handshake();
  stream* a = p.client->open_stream(true).value();
  stream* b = p.client->open_stream(true).value();
  EXPECT_EQ(a->writable(), 100'000u);
  ASSERT_TRUE(a->write(slice::copy(pattern(500'000))));  // one write may overshoot
  EXPECT_EQ(a->writable(), 0u);
  EXPECT_EQ(b->writable(), 0u);
  EXPECT_EQ(a->unacknowledged(), 500'000u);
  EXPECT_EQ(p.client->stats().send_buffered, 500'000u);
  p.seen.clear();
  EXPECT_TRUE(p.run_until([&] { return (p.seen[a] & writable) && (p.seen[b] & writable); }, 5s));
  EXPECT_GT(a->writable(), 0u);
  EXPECT_GT(b->writable(), 0u);
}

TEST(Stream, WrittenMemoryIsSharedUntilAcknowledged) {
  pair p;
  p.handshake();
  auto alive = std::make_shared<int>(0);
  std::string text = pattern(50'000);
  const char* memory = text.data();
  stream* s = p.client->open_stream(true).value();
  slice shared = slice::adopt(std::move(text));
  EXPECT_EQ(shared.text().data(), memory);
  ASSERT_TRUE(s->write(shared));
  shared = {};
  p.run(1s);
  EXPECT_EQ(s->unacknowledged(), 0u);
  EXPECT_TRUE(p.received[p.accepted[0]] == pattern(50'000));
}

TEST(Stream, UrgentBytesOvertakeBulk) {
  pair p;
  p.handshake();
  stream* bulk = p.client->open_stream(true).value();
  bulk->set_priority(7);
  ASSERT_TRUE(bulk->write(slice::copy(pattern(2'000'000))));
  p.run(3ms);
  stream* urgent = p.client->open_stream(true).value();
  urgent->set_priority(0);
  ASSERT_TRUE(urgent->write(slice::copy("now")));
  ASSERT_TRUE(urgent->finish());
  EXPECT_TRUE(p.run_until([&] { return p.accepted.size() == 2 && p.accepted[1]->at_end(); }, 1s));
  EXPECT_LT(p.received[p.accepted[0]].size(), 2'000'000u);
}

TEST(Stream, TinyUnreadPiecesDoNotGrowMemory) {
  pair p;
  p.auto_read = false;
  p.handshake();
  std::vector<stream*> streams;
  for (int i = 0; i < 16; ++i) streams.push_back(p.client->open_stream(true).value());
  for (int i = 0; i < 500; ++i) {
    for (auto* s : streams)
      ASSERT_TRUE(s->write(slice::copy(pattern(3, static_cast<std::size_t>(i) * 3))));
    p.run(1ms);
  }
  p.run(100ms);
  ASSERT_EQ(p.accepted.size(), 16u);
  for (auto* s : p.accepted) {
    EXPECT_EQ(s->readable(), 1500u);
    std::size_t pieces = 0;
    std::string text;
    for (slice piece; !(piece = s->read()).empty(); ++pieces) text += piece.text();
    EXPECT_TRUE(text == pattern(1500));
    EXPECT_LE(pieces, 3u);
  }
}

TEST(Stream, ReadTakesNoMoreThanAsked) {
  one_stream p;
  p.auto_read = false;
  ASSERT_TRUE(p.near->write(slice::copy("abcdef")));
  p.run(5ms);
  EXPECT_EQ(p.far->read(2).text(), "ab");
  EXPECT_EQ(p.far->read(0).size(), 0u);
  EXPECT_EQ(p.far->readable(), 4u);
  EXPECT_EQ(p.far->read(100).text(), "cdef");
}

TEST(Stream, EndsWithItsConnectionAndKeepsWhatArrived) {
  one_stream p;
  p.auto_read = false;
  ASSERT_TRUE(p.near->write(slice::copy("late words")));
  p.run(5ms);
  p.client->close(0, "", p.now);
  p.run(5ms);
  EXPECT_TRUE(p.far->connection_closed());
  EXPECT_TRUE(p.far->closed());
  EXPECT_EQ(read_all(*p.far), "late words");
  EXPECT_EQ(p.far->write(slice::copy("x")).error().code(), errc::closed);
  EXPECT_EQ(p.far->finish().error().code(), errc::closed);
  p.far->reset(1);
  p.far->stop_sending(1);
  p.far->set_priority(1);
  EXPECT_NE(p.far->take_events() | p.seen[p.far], 0);
  p.server->release(*p.far);
  p.client->release(*p.near);
}

}  // namespace
}  // namespace weft::quic::core::test
