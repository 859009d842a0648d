#include <weft/rpc/native/quic_test_support.hpp>

// Servers that break the protocol on a QUIC connection: each call ends with one clear status.

namespace weft::rpc::native {
namespace {

using namespace testing;
using enum quic::direction;

struct quic_hostile_server : quic_fixture {
  using script = std::function<task<>(raw_peer&)>;

  /// A client's unary call, by lane or not, meets a server that acts out `acts`; its status.
  status meet(script acts, bool lanes = false, bool survives = false) {
    outcome_ = {};
    client_options.lanes = lanes;
    server.emplace(
        quic::endpoint::listen(shard, address::ipv4({127, 0, 0, 1}, 0), serving, {}).value());
    client.emplace(quic::endpoint::open(shard, {}).value());
    EXPECT_TRUE(run(shard, [](quic_hostile_server& f, script acts, bool survives) -> task<> {
      f.over_ = false;
      asio::co_spawn(f.shard.get_executor(), act(f, std::move(acts)), asio::detached);
      auto calls = co_await f.connect();
      auto reply = co_await unary(*calls, method_of("/t/x"), "request");
      f.outcome_ = reply ? status{} : reply.error();
      EXPECT_EQ(calls->usable(), survives);
      calls.reset();
      co_await f.until([&] { return f.over_; });
    }(*this, std::move(acts), survives)));
    return outcome_;
  }

 private:
  static task<> act(quic_hostile_server& f, script acts) {
    auto arrived = co_await f.server->accept();
    if (arrived) {
      raw_peer evil{std::move(*arrived), {}};
      evil.streams.reserve(1000);
      co_await acts(evil);
      (void)co_await evil.connection.closed();
    }
    f.over_ = true;
  }

  status outcome_;
  bool over_ = false;
};

/// Sends `bytes` on unidirectional streams.
quic_hostile_server::script sends(std::vector<std::string> streams, bool end = false) {
  return [=](raw_peer& evil) -> task<> {
    for (const auto& each : streams) {
      quic::stream* s = co_await evil.send(unidirectional, each);
      if (s != nullptr && end) (void)s->finish();
    }
  };
}

#define EXPECT_STATUS(outcome, wanted, saying)                                     \
  do {                                                                             \
    const status seen = (outcome);                                                 \
    EXPECT_EQ(seen.code(), wanted) << seen.to_string();                            \
    EXPECT_NE(seen.message().find(saying), std::string::npos) << seen.to_string(); \
  } while (false)

TEST_F(quic_hostile_server, a_second_control_stream) {
  EXPECT_STATUS(meet(sends({control_start(), control_start()})), code::unavailable,
                "a second control stream");
}
TEST_F(quic_hostile_server, a_control_stream_that_ends) {
  EXPECT_STATUS(meet(sends({control_start()}, true)), code::unavailable,
                "ended its control stream");
}
TEST_F(quic_hostile_server, garbage_on_a_control_stream) {
  EXPECT_STATUS(meet(sends({varint(0) + "SSH-2.0-OpenSSH"})), code::unavailable, "settings");
}
TEST_F(quic_hostile_server, a_control_frame_of_any_length) {
  EXPECT_STATUS(meet(sends({control_start() + varint(3) + varint(wire::max_varint)})),
                code::unavailable, "too long");
}
TEST_F(quic_hostile_server, acknowledgements_of_methods_nobody_named) {
  std::string acks = control_start();
  for (std::uint64_t n : {0u, 2u, 257u, 1'000'000u}) acks += control_bytes(wire::method_ack{n});
  auto answers = [acks](raw_peer& evil) -> task<> {
    (void)co_await evil.send(unidirectional, acks);
    quic::stream* call = co_await evil.next_call();
    if (call == nullptr) co_return;
    (void)co_await call->write(slice::copy(message_bytes("reply") + frame(3, "")));
    (void)call->finish();
  };
  EXPECT_EQ(meet(answers, false, true).code(), code::ok);
}

/// A GOAWAY that grows takes nothing back: what was refused once may run elsewhere by now.
TEST_F(quic_hostile_server, goaways_that_grow) {
  const std::string growing =
      control_bytes(wire::goaway{0}) + control_bytes(wire::goaway{1'000'000});
  EXPECT_STATUS(meet(sends({control_start() + growing})), code::unavailable, "safely be retried");
}
TEST_F(quic_hostile_server, calls_from_the_server) {
  auto calls_back = [](raw_peer& evil) -> task<> {
    (void)co_await evil.send(unidirectional, control_start());
    quic::stream* s = co_await evil.send(bidirectional, header_bytes("/t/x"));
    const auto why = co_await s->stopped();
    EXPECT_EQ(why, std::optional{static_cast<std::uint64_t>(wire::error_code::unknown_stream)});
    quic::stream* call = co_await evil.next_call();
    if (call == nullptr) co_return;
    (void)co_await call->write(slice::copy(message_bytes("reply") + frame(3, "")));
    (void)call->finish();
  };
  EXPECT_EQ(meet(calls_back, false, true).code(), code::ok);
}

// Replies
// ----------------------------------------------------------------------------------------------

quic_hostile_server::script replies(std::string content, bool end = true) {
  return [=](raw_peer& evil) -> task<> {
    (void)co_await evil.send(unidirectional, control_start());
    quic::stream* call = co_await evil.next_call();
    if (call == nullptr) co_return;
    (void)co_await call->write(slice::copy(content));
    if (end) (void)call->finish();
  };
}

TEST_F(quic_hostile_server, replies_of_any_length) {
  EXPECT_EQ(meet(replies(varint(0) + varint(wire::max_varint), false), false, true).code(),
            code::resource_exhausted);
  EXPECT_EQ(meet(replies(varint(3) + varint(wire::max_varint), false), false, true).code(),
            code::resource_exhausted);
}
TEST_F(quic_hostile_server, replies_that_end_without_a_status) {
  for (const auto& each : {std::string{}, message_bytes("x"), std::string{"\x00\x0axy", 4}}) {
    const status seen = meet(replies(each), false, true);
    EXPECT_EQ(seen.code(), code::internal) << seen.to_string();
    EXPECT_FALSE(seen.message().empty());
  }
}
TEST_F(quic_hostile_server, garbage_for_a_reply) {
  const status seen = meet(replies("\x03\x05\xff\xff\xff\xff\xff"), false, true);
  EXPECT_EQ(seen.code(), code::internal) << seen.to_string();
}

// Replies on lanes
// -------------------------------------------------------------------------------------

std::string lane(std::string records) {
  return varint(1) + records;
}

TEST_F(quic_hostile_server, replies_to_calls_nobody_made) {
  std::string records;
  for (std::uint64_t n = 2; n < 1000; ++n)
    records += record_bytes({n * 12'345, false, true}, message_bytes("x") + frame(3, ""));
  records += record_bytes({1, false, true}, message_bytes("x") + frame(3, ""));
  EXPECT_EQ(meet(
                [=](raw_peer& evil) -> task<> {
                  (void)co_await evil.send(unidirectional, control_start());
                  // The call is under way: its record has come on the client's first lane.
                  for (int i = 0; i < 2; ++i) {
                    auto theirs = co_await evil.connection.accept_stream();
                    if (!theirs) co_return;
                    (void)co_await theirs->read();
                    evil.streams.push_back(std::move(*theirs));
                  }
                  (void)co_await evil.send(unidirectional, lane(records));
                },
                true, true)
                .code(),
            code::ok);
}
TEST_F(quic_hostile_server, a_lane_of_replies_that_is_reset) {
  auto resets = [](raw_peer& evil) -> task<> {
    (void)co_await evil.send(unidirectional, control_start());
    quic::stream* s = co_await evil.send(unidirectional, lane("\x20"));
    (void)co_await s->drained();
    s->reset(1);
  };
  EXPECT_STATUS(meet(resets, true), code::unavailable, "reset a lane of replies");
}
TEST_F(quic_hostile_server, a_record_of_any_length_on_a_lane) {
  EXPECT_EQ(meet(sends({control_start(), lane(varint(wire::max_varint))}), true).code(),
            code::unavailable);
}
TEST_F(quic_hostile_server, more_lanes_than_allowed) {
  EXPECT_STATUS(meet(sends(std::vector<std::string>(5, lane(""))), true), code::unavailable,
                "lanes");
}

}  // namespace
}  // namespace weft::rpc::native
