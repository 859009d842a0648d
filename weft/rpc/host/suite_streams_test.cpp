#include <weft/rpc/host/suite_fixture.hpp>

// Streaming each way: order, backpressure, abrupt ends.

namespace weft::rpc::suite {
namespace {

using bidi = bidi_stream<text, text>;
using upload = client_stream<text, text>;

WEFT_SUITE(streams);

task<result<std::vector<std::string>>> read_all(server_stream<text>& from) {
  std::vector<std::string> all;
  for (;;) {
    auto next = co_await from.read();
    if (!next) co_return std::unexpected{std::move(next).error()};
    if (!*next) co_return all;
    all.push_back((*next)->value());
  }
}

WEFT_SUITE_TEST(streams, from_the_server) {
  for (int length : {0, 1, 2000}) {
    auto stream = co_await server_streaming_call<text, text>(t.channel(), methods[count],
                                                             value(std::to_string(length)), {});
    auto all = co_await read_all(*stream);
    EXPECT_TRUE(all.has_value()) << all.error().to_string();
    EXPECT_EQ(all->size(), static_cast<std::size_t>(length));
    for (int i = 0; i < length; ++i)
      EXPECT_EQ(all->at(static_cast<std::size_t>(i)), std::to_string(i));
  }
}

WEFT_SUITE_TEST(streams, an_error_comes_after_the_messages_before_it) {
  auto stream =
      co_await server_streaming_call<text, text>(t.channel(), methods[count], value("3"), {});
  for (int i = 0; i < 3; ++i) {
    auto next = co_await stream->read();
    EXPECT_TRUE(next && *next && (*next)->value() == std::to_string(i));
  }
  auto end = co_await stream->read();
  EXPECT_EQ(end.error(), (status{code::data_loss, "three is no number"}));
  EXPECT_EQ((co_await stream->read()).error().code(), code::data_loss) << "and stays";
}

WEFT_SUITE_TEST(streams, from_the_client) {
  for (int length : {0, 1, 2000}) {
    auto stream = co_await streaming_call<upload>(t.channel(), methods[join], {});
    std::string all;
    for (int i = 0; i < length; ++i) {
      all += std::to_string(i);
      EXPECT_TRUE(co_await stream->write(value(std::to_string(i))));
    }
    auto reply = co_await stream->finish();
    EXPECT_TRUE(reply && reply->value() == all);
  }
}

WEFT_SUITE_TEST(streams, both_ways_in_turns) {
  auto stream = co_await streaming_call<bidi>(t.channel(), methods[chat], {});
  for (int i = 0; i < 200; ++i) {
    EXPECT_TRUE(co_await stream->write(value(std::to_string(i))));
    auto next = co_await stream->read();
    EXPECT_TRUE(next && *next && (*next)->value() == std::to_string(i));
  }
  EXPECT_TRUE(co_await stream->finish_writing());
  auto end = co_await stream->read();
  EXPECT_TRUE(end && !*end);
}

task<> write_many(bidi& stream, int messages, std::size_t size) {
  for (int i = 0; i < messages; ++i)
    EXPECT_TRUE(co_await stream.write(value(std::string(size, static_cast<char>('a' + i % 26)))));
  EXPECT_TRUE(co_await stream.finish_writing());
}

WEFT_SUITE_TEST(streams, both_ways_at_once) {
  auto stream = co_await streaming_call<bidi>(t.channel(), methods[chat], {});
  constexpr int messages = 300;
  t.beside(write_many(*stream, messages, 20'000));
  auto all = co_await read_all(*stream);
  EXPECT_TRUE(all.has_value());
  EXPECT_EQ(all->size(), 300u);
  for (std::size_t i = 0; i < all->size(); ++i)
    EXPECT_EQ(all->at(i), std::string(20'000, static_cast<char>('a' + i % 26)));
}

WEFT_SUITE_TEST(streams, the_server_may_end_before_the_client) {
  auto stream = co_await streaming_call<upload>(t.channel(), methods[join], {});
  EXPECT_TRUE(co_await stream->write(value("stop")));
  result<> written;
  while (written) written = co_await stream->write(value(std::string(10'000, 'x')));
  EXPECT_EQ(code_of(co_await stream->finish()), code::out_of_range);
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
}

WEFT_SUITE_TEST(streams, a_client_that_drops_its_stream_reaches_the_handler) {
  {
    auto stream = co_await streaming_call<upload>(t.channel(), methods[join], {});
    EXPECT_TRUE(co_await stream->write(value("a")));
    co_await t.until([&] { return t.probe_->seen_path == "/t.Suite/Join"; });
  }
  co_await t.until([&] { return t.probe_->finished == 1; });
  EXPECT_EQ(t.probe_->cancelled, 1);
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
}

/// Waits until `count` has not moved for a while.
task<std::size_t> resting(carriers& t, const std::size_t& count) {
  std::size_t before = 0;
  do {
    before = count;
    co_await t.settle(100ms);
  } while (count != before || count == 0);
  co_return before;
}

// Windows, send buffers of both ends and the kernel's socket buffers, generously.
constexpr std::size_t most_in_between = std::size_t{24} << 20;

WEFT_SUITE_TEST(streams, a_slow_reader_stops_the_server) {
  constexpr std::size_t total = std::size_t{64} << 20;
  auto stream = co_await server_streaming_call<text, text>(t.channel(), methods[flood],
                                                           value(std::to_string(total)), {});
  const std::size_t ahead = co_await resting(t, t.probe_->written);
  EXPECT_LT(ahead, most_in_between);
  EXPECT_EQ(code_of(co_await t.call(echo, "x", {.timeout = 5s})), code::ok)
      << "others are not held up";
  std::size_t got = 0;
  for (;;) {
    auto next = co_await stream->read();
    EXPECT_TRUE(next.has_value());
    if (!next || !*next) break;
    got += (*next)->value().size();
    EXPECT_LT(t.probe_->written - std::min(got, t.probe_->written), most_in_between);
  }
  EXPECT_EQ(got, total);
}

WEFT_SUITE_TEST(streams, dropping_a_stream_frees_a_blocked_server) {
  {
    auto stream = co_await server_streaming_call<text, text>(
        t.channel(), methods[flood], value(std::to_string(std::size_t{1} << 30)), {});
    (void)co_await resting(t, t.probe_->written);
  }
  co_await t.until([&] { return t.probe_->finished == 1; });
  EXPECT_EQ(t.probe_->cancelled, 1);
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
}

WEFT_SUITE_TEST(streams, a_handler_that_gives_up_midway_in_a_message_is_told_by_its_code) {
  auto stream = co_await server_streaming_call<text, text>(t.channel(), methods[flood],
                                                           value("until told"), {});
  (void)co_await resting(t, t.probe_->written);
  t.probe_->release(0);
  result<std::optional<text>> next;
  do next = co_await stream->read();
  while (next && *next);
  EXPECT_EQ(next.error().code(), code::aborted) << next.error().to_string();
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
}

WEFT_SUITE_TEST(streams, shared_messages_arrive_whole) {
  for (const std::size_t size : {1, 8'191, 8'192, 65'536, 3'000'000}) {
    const text sent = value(std::string(size, 's'));
    const slice ready = slice::adopt(sent.SerializeAsString());
    auto call = co_await t.channel().start(methods[chat], {});
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(co_await (*call)->write(outgoing{ready}, i == 2));
      auto back = co_await (*call)->read();
      EXPECT_TRUE(back && *back) << size;
      if (!back || !*back) break;
      EXPECT_EQ(decode<text>(**back)->value(), sent.value()) << size;
    }
    auto end = co_await (*call)->read();
    EXPECT_TRUE(end && !*end);
  }
}

task<> pour(upload& into, std::size_t blocks, std::size_t& sent, bool& done) {
  const text block = value(std::string(64 * 1024, 'p'));
  for (std::size_t i = 0; i < blocks; ++i) {
    if (auto written = co_await into.write(block); !written) break;
    sent += block.value().size();
  }
  done = true;
}

WEFT_SUITE_TEST(streams, a_slow_handler_stops_the_client) {
  auto stream = co_await streaming_call<upload>(t.channel(), methods[sink], {});
  constexpr std::size_t blocks = 1000;
  std::size_t sent = 0;
  bool done = false;
  t.beside(pour(*stream, blocks, sent, done));
  const std::size_t ahead = co_await resting(t, sent);
  EXPECT_LT(ahead, most_in_between);
  EXPECT_FALSE(done);
  EXPECT_EQ(code_of(co_await t.call(echo, "x", {.timeout = 5s})), code::ok)
      << "others are not held up";
  t.probe_->sink_open = true;
  co_await t.until([&] { return done; });
  auto reply = co_await stream->finish();
  EXPECT_TRUE(reply && reply->value() == std::to_string(blocks * 64 * 1024));
}

WEFT_SUITE_TEST(streams, cancelling_frees_a_blocked_client) {
  auto stream = co_await streaming_call<upload>(t.channel(), methods[sink], {});
  std::size_t sent = 0;
  bool done = false;
  t.beside(pour(*stream, 100'000, sent, done));
  (void)co_await resting(t, sent);
  stream->cancel();
  co_await t.until([&] { return done && t.probe_->cancelled == 1; });
}

WEFT_SUITE_TEST(streams, a_write_cancelled_midway_in_a_message_ends_the_call) {
  using namespace asio::experimental::awaitable_operators;
  auto call = co_await t.channel().start(methods[sink], {});
  const slice block = slice::adopt(value(std::string(300'000, 'p')).SerializeAsString());
  std::size_t sent = 0;
  io::event told;
  const auto pouring = [](client_call& c, const slice& b, io::event& e, std::size_t& n) -> task<> {
    while ((co_await (c.write(outgoing{b}, false) || e.wait())).index() == 0) ++n;
  };
  t.beside(pouring(**call, block, told, sent));
  (void)co_await resting(t, sent);
  told.notify();
  co_await t.until([&] { return t.probe_->cancelled == 1; });
  EXPECT_EQ((co_await (*call)->write(outgoing{block}, true)).error().code(), code::cancelled);
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
}

WEFT_SUITE_TEST(streams, a_lost_server_frees_a_blocked_client) {
  auto stream = co_await streaming_call<upload>(t.channel(), methods[sink], {});
  std::size_t sent = 0;
  bool done = false;
  t.beside(pour(*stream, 100'000, sent, done));
  (void)co_await resting(t, sent);
  t.server_.reset();
  co_await t.until([&] { return done; });
  EXPECT_EQ(code_of(co_await stream->finish()), code::unavailable);
}

WEFT_SUITE_TEST(streams, a_deadline_ends_a_stream_midway_on_both_sides) {
  auto stream = co_await server_streaming_call<text, text>(
      t.channel(), methods[flood], value(std::to_string(std::size_t{1} << 30)), {.timeout = 300ms});
  EXPECT_TRUE((co_await stream->read()).has_value());
  (void)co_await resting(t, t.probe_->written);
  co_await t.until([&] { return t.probe_->finished == 1; });
  result<std::optional<text>> next;
  do next = co_await stream->read();
  while (next && *next);
  EXPECT_EQ(next.error().code(), code::deadline_exceeded);
  EXPECT_EQ(t.probe_->cancelled, 1);
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
}

task<> chat_once(carriers& t, int id, int& done) {
  auto stream = co_await streaming_call<bidi>(t.channel(), methods[chat], {});
  EXPECT_TRUE(stream.has_value());
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(co_await stream->write(value(std::to_string(id))));
    auto next = co_await stream->read();
    EXPECT_TRUE(next && *next && (*next)->value() == std::to_string(id));
  }
  EXPECT_TRUE(co_await stream->finish_writing());
  auto end = co_await stream->read();
  EXPECT_TRUE(end && !*end);
  ++done;
}

WEFT_SUITE_TEST(streams, three_hundred_at_once) {
  EXPECT_TRUE(co_await t.channel().connect());
  int done = 0;
  for (int i = 0; i < 300; ++i) t.beside(chat_once(t, i, done));
  co_await t.until([&] { return done == 300; });
}

}  // namespace
}  // namespace weft::rpc::suite
