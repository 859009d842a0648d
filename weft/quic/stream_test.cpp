#include <gtest/gtest.h>

#include <asio/experimental/awaitable_operators.hpp>

#include <weft/io/event.hpp>
#include <weft/quic/test_support.hpp>

namespace weft::quic {
namespace {

using namespace asio::experimental::awaitable_operators;
using namespace test;

TEST(stream, echoes_both_ways) {
  pair p;
  p.serve();
  run(p.shard, [](pair& p) -> task<> {
    auto c = co_await p.connect();
    EXPECT_TRUE(c.is_open());
    EXPECT_FALSE(c.is_server());
    EXPECT_EQ(c.session().alpn, "test");
    auto s = must(co_await c.open_stream());
    must(co_await s.write(slice::copy("hello")));
    must(s.finish());
    EXPECT_EQ(must(co_await read_all(s)).text(), "hello");
    must(co_await s.drained());
    // The end stays the end.
    EXPECT_TRUE(must(co_await s.read()).empty());
    EXPECT_EQ((co_await s.write(slice::copy("more"))).error().code(), errc::invalid_argument);
  }(p));
}

TEST(stream, carries_one_way_from_either_side) {
  pair p;
  run(p.shard, [](pair& p) -> task<> {
    auto both = co_await meet(p);
    for (auto [from, to] : {std::pair{&both.client, &both.server}, {&both.server, &both.client}}) {
      auto out = must(co_await from->open_stream(direction::unidirectional));
      must(co_await out.write(slice::copy("one way")));
      must(out.finish());
      auto in = must(co_await to->accept_stream());
      EXPECT_EQ(must(co_await read_all(in)).text(), "one way");
      EXPECT_EQ((co_await out.read()).error().code(), errc::invalid_argument);
      EXPECT_EQ((co_await in.write(slice::copy("back"))).error().code(), errc::invalid_argument);
    }
  }(p));
}

TEST(stream, hands_incoming_streams_to_a_handler_with_their_first_bytes) {
  pair p;
  run(p.shard, [](pair& p) -> task<> {
    auto both = co_await meet(p);
    std::vector<std::string> seen;
    io::event done;
    both.server.on_stream([&](stream s) {
      auto first = s.try_read();
      seen.emplace_back(first && *first ? std::string{(*first)->text()} : "nothing");
      if (seen.size() == 3) done.notify();
    });
    for (int i = 0; i < 3; ++i) {
      auto s = must(co_await both.client.open_stream());
      must(co_await s.write(slice::copy("first bytes")));
      must(s.finish());
    }
    if (seen.size() < 3) co_await done.wait();
    EXPECT_EQ(seen, std::vector<std::string>(3, "first bytes"));
  }(p));
}

TEST(stream, reports_reset_and_stop_with_the_peers_codes) {
  pair p;
  run(p.shard, [](pair& p) -> task<> {
    auto both = co_await meet(p);
    auto ours = must(co_await both.client.open_stream());
    must(co_await ours.write(slice::copy("x")));
    auto theirs = must(co_await both.server.accept_stream());
    EXPECT_EQ(must(co_await theirs.read()).text(), "x");
    std::vector<error> abandoned;
    theirs.on_abandoned([&](const error& why) { abandoned.push_back(why); });
    ours.reset(7);
    auto got = co_await theirs.read();
    EXPECT_EQ(got.error().code(), errc::reset);
    EXPECT_EQ(got.error().detail(), 7);
    ours.stop_sending(9);
    EXPECT_EQ(co_await theirs.stopped(), 9);
    EXPECT_EQ(theirs.stopped_code(), 9);
    auto done = co_await theirs.write(slice::copy("y"));
    EXPECT_EQ(done.error().code(), errc::stopped);
    EXPECT_EQ(done.error().detail(), 9);
    EXPECT_EQ(abandoned.size(), 1);
    EXPECT_EQ(abandoned.at(0).code(), errc::reset);
    EXPECT_EQ((co_await ours.read()).error().code(), errc::closed);
    EXPECT_EQ((co_await ours.write(slice::copy("z"))).error().code(), errc::closed);
  }(p));
}

TEST(stream, dropping_it_abandons_what_is_unfinished) {
  pair p;
  run(p.shard, [](pair& p) -> task<> {
    auto both = co_await meet(p);
    stream theirs;
    {
      auto ours = must(co_await both.client.open_stream());
      must(co_await ours.write(slice::copy("x")));
      theirs = must(co_await both.server.accept_stream());
    }
    EXPECT_EQ(co_await theirs.stopped(), 0);
    for (;;) {
      auto got = co_await theirs.read();
      if (got && !got->empty()) continue;
      EXPECT_TRUE(!got && got.error().code() == errc::reset);
      break;
    }
    // A finished one is delivered although its handle is gone.
    {
      auto ours = must(co_await both.client.open_stream(direction::unidirectional));
      must(co_await ours.write(slice::copy("last words")));
      must(ours.finish());
    }
    auto in = must(co_await both.server.accept_stream());
    EXPECT_EQ(must(co_await read_all(in)).text(), "last words");
  }(p));
}

TEST(stream, waits_for_stream_credit_in_order) {
  transport_options few;
  few.max_bidi_streams = 4;
  pair p{few};
  p.serve();
  run(p.shard, [](pair& p) -> task<> {
    auto c = co_await p.connect();
    std::vector<stream> open;
    for (int i = 0; i < 4; ++i) open.push_back(must(co_await c.open_stream()));
    EXPECT_FALSE(c.try_open_stream().has_value());
    int finished = 0;
    io::event all;
    auto ex = co_await asio::this_coro::executor;
    for (int i = 0; i < 40; ++i)
      asio::co_spawn(
          ex,
          [](connection& c, int& finished, io::event& all) -> task<> {
            auto s = must(co_await c.open_stream());
            must(co_await s.write(slice::copy("a call")));
            must(s.finish());
            EXPECT_EQ(must(co_await read_all(s)).text(), "a call");
            if (++finished == 40) all.notify();
          }(c, finished, all),
          asio::detached);
    for (auto& s : open) {
      must(s.finish());
      EXPECT_TRUE(must(co_await s.read()).empty());
    }
    open.clear();
    if (finished < 40) co_await all.wait();
    EXPECT_EQ(finished, 40);
  }(p));
}

TEST(stream, many_at_once_echo_what_each_was_sent) {
  pair p;
  p.serve();
  run(p.shard, [](pair& p) -> task<> {
    auto c = co_await p.connect();
    int left = 500;
    io::event all;
    auto ex = co_await asio::this_coro::executor;
    for (std::uint32_t i = 0; i < 500; ++i)
      asio::co_spawn(
          ex,
          [](connection& c, std::uint32_t i, int& left, io::event& all) -> task<> {
            auto s = must(co_await c.open_stream());
            const slice sent = pattern(1 + i * 37, i);
            must(co_await s.write(sent));
            must(s.finish());
            const slice got = must(co_await read_all(s));
            EXPECT_EQ(sum_of(got), sum_of(sent));
            if (--left == 0) all.notify();
          }(c, i, left, all),
          asio::detached);
    if (left > 0) co_await all.wait();
    EXPECT_EQ(left, 0);
  }(p));
}

// A reader that stops holds the writer back, with bounded memory; a write larger than every budget
// completes once it reads on.
TEST(stream, backpressure_bounds_memory_and_lets_any_write_through) {
  transport_options small;
  small.stream_window = 256 << 10;
  small.connection_window = 512 << 10;
  small.stream_send_buffer = 256 << 10;
  small.connection_send_buffer = 512 << 10;
  pair p{small};
  run(p.shard, [](pair& p) -> task<> {
    auto both = co_await meet(p);
    for (auto [from, to] : {std::pair{&both.client, &both.server}, {&both.server, &both.client}}) {
      auto out = must(co_await from->open_stream());
      const slice data = pattern(8 << 20, 5);
      bool written = false;
      auto ex = co_await asio::this_coro::executor;
      asio::co_spawn(
          ex,
          [](stream& out, slice data, bool& written) -> task<> {
            must(co_await out.write(std::move(data)));
            written = true;
            must(out.finish());
          }(out, data, written),
          asio::detached);
      auto in = must(co_await to->accept_stream());
      // Until the windows are full nothing tells us so but silence.
      must(co_await p.shard.sleep_until(io::now() + 200ms));
      EXPECT_FALSE(written);
      EXPECT_LE(from->stats().send_buffered, 400u << 10);
      EXPECT_LE(to->stats().receive_buffered, 300u << 10);
      EXPECT_GE(to->stats().receive_buffered, 200u << 10);
      checksum got;
      for (;;) {
        const slice piece = must(co_await in.read());
        if (piece.empty()) break;
        got.add(piece);
        EXPECT_LE(from->stats().send_buffered, 600u << 10);
      }
      EXPECT_TRUE(written);
      EXPECT_EQ(got, sum_of(data));
    }
  }(p));
}

TEST(stream, every_wait_can_be_cancelled_and_leaves_the_stream_usable) {
  transport_options small;
  small.stream_window = small.connection_window = 64 << 10;
  small.stream_send_buffer = 64 << 10;
  small.max_bidi_streams = 2;
  small.max_datagram_frame = 1200;
  pair p{small};
  run(p.shard, [](pair& p) -> task<> {
    auto both = co_await meet(p);
    auto& c = both.client;
    auto s = must(co_await c.open_stream());
    auto other = must(co_await c.open_stream());
    const auto nothing = [&] { return after(p.shard, 20ms); };

    EXPECT_EQ((co_await (s.read() || nothing())).index(), 1);
    EXPECT_EQ((co_await (s.stopped() || nothing())).index(), 1);
    do {  // until the peer's window and our buffer are full
      EXPECT_EQ((co_await (s.write(pattern(1 << 20)) || nothing())).index(), 1);
    } while (c.stats().send_buffered < 64u << 10);
    EXPECT_EQ((co_await (s.drained() || nothing())).index(), 1);
    EXPECT_EQ((co_await (c.open_stream() || nothing())).index(), 1);
    EXPECT_EQ((co_await (c.accept_stream() || nothing())).index(), 1);
    EXPECT_EQ((co_await (c.receive_datagram() || nothing())).index(), 1);
    EXPECT_EQ((co_await (c.closed() || nothing())).index(), 1);
    EXPECT_EQ((co_await (p.server.accept() || nothing())).index(), 1);

    // All of it still works.
    auto theirs = must(co_await both.server.accept_stream());
    auto ex = co_await asio::this_coro::executor;
    asio::co_spawn(
        ex,
        [](stream s) -> task<> {
          must(co_await s.write(slice::copy("answer")));
          must(s.finish());
          while (auto got = co_await s.read())
            if (got->empty()) break;
        }(std::move(theirs)),
        asio::detached);
    EXPECT_EQ(must(co_await read_all(s)).text(), "answer");
    must(s.finish());
    must(co_await s.drained());
  }(p));
}

TEST(stream, can_be_drained_while_it_goes_on) {
  pair p;
  p.serve();
  run(p.shard, [](pair& p) -> task<> {
    auto c = co_await p.connect();
    auto s = must(co_await c.open_stream());
    for (std::size_t size : {1, 100, 300'000}) {
      must(co_await s.write(pattern(size)));
      must(co_await s.drained());
      for (std::size_t back = 0; back < size;) back += must(co_await s.read()).size();
    }
    must(co_await s.write(pattern(5)));
    must(s.finish());
    must(co_await s.drained());
    EXPECT_EQ(must(co_await read_all(s)).size(), 5u);
  }(p));
}

TEST(stream, dropping_it_beside_pending_operations_completes_them) {
  transport_options small;
  small.stream_window = small.connection_window = 64 << 10;
  small.stream_send_buffer = 64 << 10;
  pair p{small};
  run(p.shard, [](pair& p) -> task<> {
    auto both = co_await meet(p);
    auto s = std::make_unique<stream>(must(co_await both.client.open_stream()));
    std::vector<errc> codes;
    io::event all;
    auto ex = co_await asio::this_coro::executor;
    const auto note = [&](errc code) {
      codes.push_back(code);
      if (codes.size() == 2) all.notify();
    };
    asio::co_spawn(ex, s->read(),
                   [&](std::exception_ptr, result<slice> r) { note(r.error().code()); });
    asio::co_spawn(ex, s->write(pattern(1 << 20)),
                   [&](std::exception_ptr, result<> r) { note(r.error().code()); });
    co_await after(p.shard, 20ms);
    EXPECT_TRUE(codes.empty());
    s.reset();
    if (codes.size() < 2) co_await all.wait();
    EXPECT_EQ(codes, (std::vector{errc::closed, errc::closed}));
  }(p));
}

TEST(stream, as_byte_stream_reads_writes_and_ends) {
  pair p;
  p.serve();
  run(p.shard, [](pair& p) -> task<> {
    auto c = co_await p.connect();
    auto s = as_byte_stream(must(co_await c.open_stream()));
    const std::array parts{slice::copy("a"), pattern(300'000), slice::copy("z")};
    must(co_await s->write(parts));
    must(co_await s->finish());
    checksum got, sent;
    for (const auto& part : parts) sent.add(part);
    for (;;) {
      const slice piece = must(co_await s->read());
      if (piece.empty()) break;
      got.add(piece);
    }
    EXPECT_EQ(got, sent);
    auto aborted = as_byte_stream(must(co_await c.open_stream()));
    aborted->abort();
    EXPECT_FALSE(co_await aborted->read());
  }(p));
}

}  // namespace
}  // namespace weft::quic
