#include <weft/rpc/native/quic_test_support.hpp>

// Clients that break the protocol on a QUIC connection. Each ends in one clear error, holds a
// bounded amount of memory, and leaves other connections alone.

namespace weft::rpc::native {
namespace {

using namespace testing;
using enum quic::direction;

constexpr std::size_t mib = std::size_t{1} << 20;

/// What one hostile connection may make the server hold here, with the windows set below.
constexpr std::size_t held_at_most = 4 * mib;

struct quic_hostile : quic_fixture {
  void SetUp() override {
    quic_fixture::SetUp();
    serving.transport.stream_window = 256 * 1024;
    serving.transport.connection_window = 1 * mib;
    server_options.limits.max_concurrent_calls = 10;
  }

  /// Runs `attack` on a connection of its own while another client's call runs, which must not
  /// notice.
  template <class Attack>
  void withstand(Attack attack) {
    play([](quic_hostile& f, Attack attack) -> task<> {
      auto bystander = co_await f.connect();
      auto running = co_await bystander->start(method_of("/t/hold"), {}, never);
      EXPECT_TRUE(co_await (*running)->write(outgoing{as_bytes("mine")}, true));
      co_await f.until([&] { return f.held.waiting.size() == 1; });
      {
        raw_peer evil{co_await f.dial(), {}};
        evil.streams.reserve(10'000);
        co_await attack(f, evil);
      }
      EXPECT_LT(f.memory->peak(), held_at_most);
      co_await f.until([&] { return f.running() == 1; });
      auto still = co_await unary(*bystander, method_of("/t/echo"), "still");
      EXPECT_EQ(still.value_or(""), "still");
      f.held.release(0);
      auto reply = co_await (*running)->read();
      EXPECT_TRUE(reply && *reply && text_of(**reply) == "mine");
    }(*this, std::move(attack)));
  }

  /// `inputs`, each on a unidirectional stream, end the connection with `wanted`.
  void expect_closed(std::vector<std::string> inputs, wire::error_code wanted,
                     std::string_view saying, bool end = false) {
    withstand([=](quic_hostile&, raw_peer& evil) -> task<> {
      for (const auto& input : inputs) {
        quic::stream* s = co_await evil.send(unidirectional, input);
        if (s != nullptr && end) (void)s->finish();
      }
      const error why = co_await evil.connection.closed();
      EXPECT_EQ(why.code(), errc::reset) << why.to_string();
      EXPECT_EQ(why.detail(), static_cast<std::uint64_t>(wanted)) << why.to_string();
      EXPECT_NE(why.message().find(saying), std::string::npos) << why.to_string();
    });
  }
  /// `input` on a call's stream is answered with a status of `wanted`, and the connection goes on.
  void expect_answer(std::string input, code wanted, bool end = true) {
    withstand([=](quic_hostile& f, raw_peer& evil) -> task<> {
      (void)co_await evil.send(unidirectional, control_start());
      quic::stream* s = co_await evil.send(bidirectional, input);
      if (end) (void)s->finish();
      const std::string answer = co_await read_all(*s);
      EXPECT_GT(answer.size(), 2u);
      if (answer.size() <= 2) co_return;
      EXPECT_EQ(answer[0], 3) << "a STATUS";
      const auto length = wire::varint_length(std::byte(answer[1]));
      auto read = wire::decode_status(as_bytes(std::string_view{answer}.substr(1 + length)), 16384);
      EXPECT_TRUE(read);
      EXPECT_EQ(read->status.code(), wanted) << read->status.to_string();
      EXPECT_FALSE(read->status.message().empty());
      co_await expect_service(f, evil);
    });
  }
  /// A raw connection is still served.
  static task<> expect_service(quic_hostile& f, raw_peer& evil) {
    quic::stream* s =
        co_await evil.send(bidirectional, header_bytes("/t/echo") + message_bytes("ok"));
    if (s == nullptr) {
      ADD_FAILURE() << "no stream";
      co_return;
    }
    (void)s->finish();
    // The answer, then a status that says OK.
    const std::string answer = co_await read_all(*s);
    EXPECT_EQ(answer, message_bytes("ok") + frame(3, ""));
    EXPECT_TRUE(evil.connection.is_open());
    (void)f;
  }
};

// Control streams
// ---------------------------------------------------------------------------------------

TEST_F(quic_hostile, a_second_control_stream) {
  expect_closed({control_start(), control_start()}, wire::error_code::critical_stream,
                "a second control stream");
}
TEST_F(quic_hostile, a_control_stream_that_ends) {
  expect_closed({control_start()}, wire::error_code::critical_stream, "ended its control stream",
                true);
}
TEST_F(quic_hostile, a_control_stream_that_is_reset) {
  withstand([](quic_hostile& f, raw_peer& evil) -> task<> {
    quic::stream* s = co_await evil.send(unidirectional, control_start());
    co_await expect_service(f, evil);
    s->reset(7);
    const error why = co_await evil.connection.closed();
    EXPECT_EQ(why.detail(), static_cast<std::uint64_t>(wire::error_code::critical_stream));
  });
}
TEST_F(quic_hostile, control_frames_before_settings) {
  expect_closed({varint(0) + control_bytes(wire::ping{1})}, wire::error_code::settings,
                "without settings");
}
TEST_F(quic_hostile, settings_twice) {
  expect_closed({control_start() + control_bytes(wire::settings{})}, wire::error_code::settings,
                "settings");
}
TEST_F(quic_hostile, one_setting_twice) {
  const std::string setting = varint(1) + varint(1) + varint(5);
  expect_closed({varint(0) + frame(0, setting + setting)}, wire::error_code::settings, "");
}
TEST_F(quic_hostile, a_window_below_its_minimum) {
  expect_closed({varint(0) + frame(0, varint(5) + varint(1) + varint(5))},
                wire::error_code::settings, "");
}
TEST_F(quic_hostile, a_control_frame_of_any_length) {
  expect_closed({control_start() + varint(1) + varint(wire::max_varint)},
                wire::error_code::too_large, "too long");
}
TEST_F(quic_hostile, garbage_on_a_control_stream) {
  expect_closed({varint(0) + "GET / HTTP/1.1\r\n"}, wire::error_code::settings, "");
}
TEST_F(quic_hostile, truncated_contents_of_control_frames) {
  expect_closed({control_start() + frame(2, "\xff")}, wire::error_code::malformed, "");
}

TEST_F(quic_hostile, unknown_settings_frames_and_streams_are_ignored) {
  withstand([](quic_hostile& f, raw_peer& evil) -> task<> {
    const std::string settings = varint(0x21) + varint(3) + "abc" + varint(0x4000) + varint(0);
    const std::string unknown = frame(0x7, "x") + frame(0x3fff'ffff, std::string(70'000, 'u'));
    (void)co_await evil.send(unidirectional, varint(0) + frame(0, settings) + unknown);
    for (std::uint64_t type : {2u, 0x21u, 0x3fff'ffffu}) {
      quic::stream* s = co_await evil.send(unidirectional, varint(type) + std::string(5000, 'z'));
      const auto why = co_await s->stopped();
      EXPECT_EQ(why, std::optional{static_cast<std::uint64_t>(wire::error_code::unknown_stream)});
    }
    co_await expect_service(f, evil);
  });
}

/// One frame of an unknown type, without an end: read on, and not kept.
TEST_F(quic_hostile, an_endless_frame_of_an_unknown_type) {
  withstand([](quic_hostile& f, raw_peer& evil) -> task<> {
    quic::stream* s = co_await evil.send(unidirectional,
                                         control_start() + varint(0x77) + varint(wire::max_varint));
    const slice block = slice::copy(std::string(64 * 1024, 'e'));
    for (int i = 0; i < 256; ++i) EXPECT_TRUE(co_await s->write(block));
    EXPECT_TRUE(co_await s->drained()) << "16 MiB were taken";
    co_await expect_service(f, evil);
  });
}

TEST_F(quic_hostile, cancels_of_calls_nobody_made) {
  withstand([](quic_hostile& f, raw_peer& evil) -> task<> {
    quic::stream* s = co_await evil.send(unidirectional, control_start());
    std::string flood;
    for (std::uint64_t i = 0; i < 2000; ++i)
      flood += control_bytes(wire::cancel{i * 1'000'003, code::cancelled});
    for (int i = 0; i < 50; ++i) EXPECT_TRUE(co_await s->write(slice::copy(flood)));
    EXPECT_TRUE(co_await s->drained());
    co_await expect_service(f, evil);
  });
}

TEST_F(quic_hostile, goaways_that_answer_nothing) {
  withstand([](quic_hostile& f, raw_peer& evil) -> task<> {
    std::string frames;
    for (std::uint64_t first : {0u, 4u, 400u, 0u}) frames += control_bytes(wire::goaway{first});
    (void)co_await evil.send(unidirectional, control_start() + frames);
    co_await expect_service(f, evil);
  });
}

TEST_F(quic_hostile, pings_from_a_peer_that_reads_no_answers) {
  calling.transport.stream_window = 1000;
  calling.transport.connection_window = 4000;
  withstand([](quic_hostile&, raw_peer& evil) -> task<> {
    quic::stream* s = co_await evil.send(unidirectional, control_start());
    std::string flood;
    for (int i = 0; i < 5000; ++i) flood += control_bytes(wire::ping{wire::max_varint});
    const slice block = slice::copy(flood);
    while (co_await s->write(block)) {
    }
    const error why = co_await evil.connection.closed();
    EXPECT_EQ(why.detail(), static_cast<std::uint64_t>(wire::error_code::excessive_load))
        << why.to_string();
  });
}

// Lanes
// -------------------------------------------------------------------------------------------------

std::string lane(std::string records) {
  return varint(1) + records;
}
std::string call_record(std::uint64_t number, std::string_view path, bool one_way = false) {
  return record_bytes({number, one_way, true}, header_bytes(path) + message_bytes("m"));
}

TEST_F(quic_hostile, a_record_of_any_length_on_a_lane) {
  expect_closed({control_start(), lane(varint(wire::max_varint) + varint(5))},
                wire::error_code::too_large, "");
}
TEST_F(quic_hostile, a_record_shorter_than_its_tag) {
  expect_closed({control_start(), lane(varint(0) + varint(5))}, wire::error_code::malformed, "");
}
TEST_F(quic_hostile, control_records_on_a_lane) {
  expect_closed({control_start(), lane(record_bytes({0, false, false}, "x"))},
                wire::error_code::unexpected, "no call");
}
TEST_F(quic_hostile, a_call_number_used_by_a_running_call) {
  expect_closed({control_start(), lane(call_record(9, "/t/hold") + call_record(9, "/t/hold"))},
                wire::error_code::unexpected, "behind the end");
}
TEST_F(quic_hostile, a_lane_that_ends_inside_a_record) {
  withstand([](quic_hostile&, raw_peer& evil) -> task<> {
    (void)co_await evil.send(unidirectional, control_start());
    const std::string whole = call_record(1, "/t/echo");
    quic::stream* s = co_await evil.send(unidirectional, lane(whole.substr(0, whole.size() - 1)));
    (void)s->finish();
    const error why = co_await evil.connection.closed();
    EXPECT_EQ(why.detail(), static_cast<std::uint64_t>(wire::error_code::malformed));
    EXPECT_NE(why.message().find("inside a record"), std::string::npos) << why.to_string();
  });
}
TEST_F(quic_hostile, more_lanes_than_allowed) {
  const std::vector<std::string> inputs(5, lane(""));
  expect_closed(inputs, wire::error_code::too_many_lanes, "lanes");
}

/// The call whose record had begun ends with its lane; what held its place is free again.
TEST_F(quic_hostile, lanes_reset_inside_records) {
  withstand([](quic_hostile& f, raw_peer& evil) -> task<> {
    (void)co_await evil.send(unidirectional, control_start());
    for (std::uint64_t i = 1; i <= 50; ++i) {
      const std::string whole = call_record(i, "/t/echo", i % 2 == 0);
      quic::stream* s = co_await evil.send(unidirectional, lane(whole.substr(0, whole.size() - 1)));
      co_await f.until([&] { return f.running() == 2; });
      s->reset(1);
      co_await f.until([&] { return f.running() == 1; });
    }
    co_await expect_service(f, evil);
  });
}

/// More calls than may run at a time stay on the lane, unread, by flow control.
TEST_F(quic_hostile, more_calls_on_lanes_than_may_run) {
  withstand([](quic_hostile& f, raw_peer& evil) -> task<> {
    (void)co_await evil.send(unidirectional, control_start());
    quic::stream* s = co_await evil.send(unidirectional, lane(""));
    const std::string filler(1000, 'f');
    std::uint64_t number = 0;
    bool full = false;
    while (!full && number < 100'000) {
      const std::string record =
          record_bytes({++number, true, true}, header_bytes("/t/hold") + message_bytes(filler));
      slice part = slice::copy(record);
      for (int turns = 0;; ++turns) {
        if (s->try_write(part)) break;
        full = turns == 50;
        if (full) break;
        co_await settle(f.shard);
      }
    }
    EXPECT_TRUE(full) << "the client is stopped";
    EXPECT_EQ(f.running(), 11u);
    EXPECT_EQ(f.held.waiting.size(), 11u);
    for (std::size_t i = 1; i < 11; ++i) f.held.release(i);
    co_await f.until([&] { return f.held.waiting.size() == 21; });
  });
  EXPECT_EQ(held.cancelled, 10u) << "they end with their connection";
}

TEST_F(quic_hostile, garbage_inside_a_lanes_record_ends_only_its_call) {
  withstand([](quic_hostile& f, raw_peer& evil) -> task<> {
    (void)co_await evil.send(unidirectional, control_start());
    std::string records;
    for (std::uint64_t i = 1; i <= 100; ++i)
      records += record_bytes({i, i % 2 == 0, true}, std::string(i, static_cast<char>(i)));
    (void)co_await evil.send(unidirectional, lane(records));
    co_await f.until([&] { return f.sessions.back()->stats().calls_finished == 100; });
    co_await expect_service(f, evil);
  });
}

// Calls' streams
// ---------------------------------------------------------------------------------------

TEST_F(quic_hostile, a_header_beyond_the_limit) {
  expect_answer(varint(2) + varint(mib), code::resource_exhausted, false);
}
TEST_F(quic_hostile, a_header_of_any_length) {
  expect_answer(varint(2) + varint(wire::max_varint), code::resource_exhausted, false);
}
TEST_F(quic_hostile, a_message_of_any_length) {
  expect_answer(header_bytes("/t/echo") + varint(0) + varint(wire::max_varint),
                code::resource_exhausted, false);
}
TEST_F(quic_hostile, an_unknown_compression) {
  expect_answer(header_bytes("/t/echo") + frame(1, "\x7fwhat"), code::unimplemented);
}
TEST_F(quic_hostile, a_call_without_header) {
  expect_answer(message_bytes("x"), code::internal);
}
TEST_F(quic_hostile, a_call_of_nothing) {
  expect_answer("", code::internal);
}
TEST_F(quic_hostile, a_call_that_ends_inside_a_frame) {
  expect_answer(header_bytes("/t/echo") + varint(0) + varint(10) + "short", code::internal);
}
TEST_F(quic_hostile, a_method_number_never_agreed) {
  expect_answer(frame(2, varint(2 * 77)), code::internal);
}
TEST_F(quic_hostile, garbage_on_a_calls_stream) {
  expect_answer("GET / HTTP/1.1\r\nhost: there\r\n\r\n", code::internal);
}

TEST_F(quic_hostile, a_header_that_never_ends) {
  server_options.header_timeout = 20ms;
  expect_answer("\x02\x20\x01", code::deadline_exceeded, false);
}
TEST_F(quic_hostile, headers_that_never_end_give_their_places_back) {
  server_options.header_timeout = 20ms;
  withstand([](quic_hostile& f, raw_peer& evil) -> task<> {
    (void)co_await evil.send(unidirectional, control_start());
    for (int i = 0; i < 10; ++i) (void)co_await evil.send(bidirectional, "\x02\x20");
    (void)co_await evil.send(unidirectional,
                             lane(record_bytes({1, false, true}, "\x02\x20").substr(0, 3)));
    co_await f.until([&] { return f.sessions.back()->stats().calls_started >= 10; });
    co_await f.until([&] { return f.running() == 1; });
    co_await expect_service(f, evil);
  });
}

TEST_F(quic_hostile, more_streams_than_calls_may_run) {
  withstand([](quic_hostile& f, raw_peer& evil) -> task<> {
    (void)co_await evil.send(unidirectional, control_start());
    const std::string request = header_bytes("/t/hold") + message_bytes("x");
    for (int i = 0; i < 500; ++i) (void)co_await evil.send(bidirectional, request);
    co_await f.until([&] { return f.held.waiting.size() == 11; });
    std::size_t refused = 0;
    for (std::size_t i = 11; i < evil.streams.size(); ++i) {
      const std::string answer = co_await read_all(evil.streams[i]);
      if (answer.contains("safely be retried")) ++refused;
    }
    EXPECT_EQ(refused, 490u);
    EXPECT_EQ(f.running(), 11u);
  });
  EXPECT_EQ(held.cancelled, 10u);
}

TEST_F(quic_hostile, calls_reset_as_soon_as_made) {
  withstand([](quic_hostile& f, raw_peer& evil) -> task<> {
    (void)co_await evil.send(unidirectional, control_start());
    const slice request = slice::copy(header_bytes("/t/hold") + message_bytes("x"));
    for (int i = 0; i < 5000; ++i) {
      auto opened = co_await evil.connection.open_stream();
      EXPECT_TRUE(opened);
      if (!opened) co_return;
      (void)opened->try_write(request);
      if (i % 3 == 0) co_await settle(f.shard);
      opened->reset(wire::call_error(code::cancelled));
      opened->stop_sending(wire::call_error(code::cancelled));
      EXPECT_LE(f.running(), 11u);
    }
    co_await f.until([&] { return f.running() == 1; });
    co_await expect_service(f, evil);
  });
}

/// A window full of a call nobody reads, and a connection full of them.
TEST_F(quic_hostile, requests_nobody_reads) {
  gate* held_calls = &held;
  calls.on("/t/deaf", [held_calls](server_call&) -> task<status> {
    io::event released;
    held_calls->waiting.push_back(&released);
    const std::size_t index = held_calls->waiting.size() - 1;
    (void)co_await released.wait();
    held_calls->waiting[index] = nullptr;
    co_return status{};
  });
  withstand([](quic_hostile& f, raw_peer& evil) -> task<> {
    (void)co_await evil.send(unidirectional, control_start());
    const slice block = slice::copy(std::string(64 * 1024, 'd'));
    for (int i = 0; i < 10; ++i) {
      quic::stream* s =
          co_await evil.send(bidirectional, header_bytes("/t/deaf") + varint(0) + varint(15 * mib));
      for (int j = 0; j < 16 && s->try_write(block); ++j) {
      }
    }
    co_await f.until([&] { return f.held.waiting.size() == 11; });
    co_await settle(f.shard);
    EXPECT_EQ(f.running(), 11u);
  });
}

}  // namespace
}  // namespace weft::rpc::native
