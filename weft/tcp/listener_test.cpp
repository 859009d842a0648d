#include <weft/tcp/listener.hpp>

#include <list>
#include <optional>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>
#include <asio/as_tuple.hpp>
#include <asio/detached.hpp>
#include <asio/experimental/awaitable_operators.hpp>
#include <asio/read.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/write.hpp>

#include <weft/tcp/connector.hpp>
#include <weft/tcp/test_loop.hpp>

namespace weft::tcp {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;
using namespace asio::experimental::awaitable_operators;

struct listening : loopback {
  listening() {
    options_.on_failed_handshake = [this](const error& e, const address& peer) {
      failures_.push_back(e.to_string());
      failed_codes_.push_back(e.code());
      EXPECT_TRUE(peer.is_loopback());
    };
  }

  void listen() { listener_ = must(listener::listen(shard_, any_port(), offered_, options_)); }
  address at() const { return listener_->local_address(); }

  /// Polls a condition that the loop brings about; the watchdog ends what never comes.
  template <class Condition>
  task<void> until(Condition condition) {
    while (!condition()) (void)co_await shard_.sleep_until(io::now() + 2ms);
  }

  task<void> one_good_client() {
    auto [client, server] =
        co_await (connect(shard_, at(), "localhost", wanted_, soon()) && listener_->accept());
    must(std::move(client));
    must(std::move(server));
  }

  listen_options options_;
  std::unique_ptr<listener> listener_;
  std::vector<std::string> failures_;
  std::vector<errc> failed_codes_;
};

task<void> loris(listening* t) {
  t->options_.handshake_timeout = 300ms;
  t->listen();
  socket_type silent = t->raw(t->at());
  socket_type slow = t->raw(t->at());
  slow.send(asio::buffer("\x16\x03\x01\x02", 4));  // a record that never comes
  co_await t->until([t] { return t->listener_->counters().accepted == 2; });
  co_await t->one_good_client();  // is not held up
  EXPECT_TRUE(t->failures_.empty());
  co_await t->until([t] { return t->failures_.size() == 2; });
  EXPECT_THAT(t->failed_codes_, testing::Each(errc::timed_out));
  EXPECT_THAT(t->failures_[0], HasSubstr("no TLS handshake with 127.0.0.1:"));
  EXPECT_EQ(t->listener_->counters().handshakes_failed, 2u);
  char byte;
  asio::error_code ended;
  silent.receive(asio::buffer(&byte, 1), 0, ended);
  EXPECT_TRUE(ended);
}
TEST_F(listening, slow_handshakes_time_out_and_hold_up_nobody) {
  run(loris(this));
}

task<void> garbage(listening* t) {
  t->listen();
  for (const std::string text : {"GET / HTTP/1.1\r\n\r\n", "SSH-2.0-x\r\n",
                                 "\x16\x03\x01\x40\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01"}) {
    const std::size_t before = t->failures_.size();
    socket_type socket = t->raw(t->at());
    socket.send(asio::buffer(text));
    std::array<char, 64> answer;
    const auto [failure, count] = co_await asio::async_read(
        socket, asio::buffer(answer), asio::as_tuple(asio::use_awaitable_t<executor>{}));
    // The alert arrives before the connection ends, and the end is no reset. What does not even
    // look like a record is not worth an alert.
    const bool is_record = text[0] == 0x16;
    EXPECT_EQ(failure, asio::error::eof);
    EXPECT_EQ(count, is_record ? 7u : 0u);
    if (is_record) {
      EXPECT_EQ(answer[0], 0x15);
    }
    co_await t->until([&] { return t->failures_.size() > before; });
  }
  EXPECT_THAT(t->failures_[0], HasSubstr("sent plain HTTP to a TLS port"));
  EXPECT_THAT(t->failures_[1], HasSubstr("sent something that is not TLS"));
  EXPECT_THAT(t->failed_codes_, testing::Each(errc::tls));
  co_await t->one_good_client();
}
TEST_F(listening, garbage_is_turned_down_in_an_orderly_way) {
  run(garbage(this));
}

task<void> vanish(listening* t) {
  t->listen();
  for (int i = 0; i < 20; ++i) {
    socket_type socket = t->raw(t->at());
    if (i % 2) socket.set_option(asio::socket_base::linger{true, 0});
  }
  co_await t->one_good_client();
}
TEST_F(listening, connections_that_vanish_do_no_harm) {
  run(vanish(this));
}

task<void> flood(listening* t) {
  t->options_.max_pending = 3;
  t->options_.handshake_timeout = 200ms;
  t->listen();
  std::list<socket_type> idle;
  for (int i = 0; i < 7; ++i) idle.push_back(t->raw(t->at()));
  co_await t->until([t] { return t->listener_->counters().accepted == 7; });
  EXPECT_EQ(t->listener_->counters().handshakes_started, 3u);
  co_await t->until([t] { return t->failures_.size() == 7; });
  EXPECT_EQ(t->listener_->counters().handshakes_started, 7u);
  EXPECT_THAT(t->failed_codes_, testing::Each(errc::timed_out));
  co_await t->one_good_client();
}
TEST_F(listening, handshakes_at_once_are_bounded) {
  run(flood(this));
}

/// A connection that comes from another address than `raw`'s.
socket_type from_elsewhere(listening* t) {
  socket_type socket{t->shard_.get_executor(), asio::ip::tcp::v4()};
  socket.bind({asio::ip::make_address("127.0.0.2"), 0});
  socket.connect(to_endpoint(t->at()).value());
  return socket;
}

task<void> greedy_source(listening* t) {
  t->options_.max_pending = 8;
  t->options_.max_waiting = 20;
  t->options_.handshake_timeout = 1h;
  t->listen();
  std::list<socket_type> silent;
  for (int i = 0; i < 50; ++i) silent.push_back(from_elsewhere(t));
  const auto& seen = t->listener_->counters();
  co_await t->until([&] { return seen.accepted == 50; });
  EXPECT_EQ(seen.handshakes_started, 8u);
  EXPECT_EQ(seen.turned_away, 50u - 8u - 20u);
  EXPECT_THAT(t->failures_.back(), HasSubstr("has 20 more connections waiting"));
  // No handshake of the flood ever ends by itself.
  for (int i = 0; i < 10; ++i) co_await t->one_good_client();
  EXPECT_THAT(t->failures_.back(), HasSubstr("made room for others"));
  EXPECT_THAT(t->failed_codes_, testing::Each(errc::exhausted));
  EXPECT_LE(seen.handshakes_failed, 10u);
}
TEST_F(listening, one_source_with_many_slow_handshakes_holds_up_only_itself) {
  run(greedy_source(this));
}

task<void> unaccepted(listening* t) {
  t->options_.max_pending = 2;
  t->listen();
  const auto made = must(connector::make(t->wanted_));
  std::vector<std::unique_ptr<stream>> clients;
  for (int i = 0; i < 2; ++i)
    clients.push_back(must(co_await made.connect(t->shard_, t->at(), "localhost", t->soon())));
  // The third waits in the backlog until somebody accepts.
  const auto late = co_await made.connect(t->shard_, t->at(), "localhost", io::now() + 100ms);
  EXPECT_EQ(late.error().code(), errc::timed_out) << late.error().to_string();
  must(co_await t->listener_->accept());
  must(co_await t->listener_->accept());
  co_await t->until([t] { return t->failures_.size() == 1; });  // the one that gave up
  co_await t->one_good_client();
}
TEST_F(listening, connections_nobody_accepts_are_bounded) {
  run(unaccepted(this));
}

/// Leaves this process without a free file descriptor while it lives.
struct no_descriptors {
  no_descriptors() {
    getrlimit(RLIMIT_NOFILE, &before);
    const int next = ::dup(0);
    rlimit now = before;
    now.rlim_cur = static_cast<rlim_t>(next);
    ::close(next);
    setrlimit(RLIMIT_NOFILE, &now);
    while ((fd = ::dup(0)) >= 0) taken.push_back(fd);
  }
  ~no_descriptors() {
    for (const int each : taken) ::close(each);
    setrlimit(RLIMIT_NOFILE, &before);
  }
  rlimit before;
  std::vector<int> taken;
  int fd = -1;
};

task<void> starve(listening* t) {
  t->listen();
  socket_type early = t->raw(t->at());
  const auto clients = must(connector::make(t->wanted_));
  socket_type waiting = t->raw(t->at());
  {
    socket_type third{t->shard_.get_executor(), asio::ip::tcp::v4()};
    no_descriptors none;
    third.connect(to_endpoint(t->at()).value());
    co_await t->until([t] { return t->listener_->counters().accept_errors >= 3; });
    EXPECT_LT(t->listener_->counters().accept_errors, 50u);  // it backs off rather than spin
  }
  co_await t->one_good_client();
}
TEST_F(listening, goes_on_after_running_out_of_descriptors) {
  run(starve(this));
}

task<void> share_port(listening* t) {
  t->options_.reuse_port = true;
  const auto tls = must(server_tls::make(*t->offered_));
  auto one = must(listener::listen(t->shard_, t->any_port(), tls, t->options_));
  auto two = must(listener::listen(t->shard_, one->local_address(), tls, t->options_));
  const auto clients = must(connector::make(t->wanted_));
  std::vector<std::unique_ptr<stream>> made;
  for (int i = 0; i < 200 && (one->counters().accepted == 0 || two->counters().accepted == 0); ++i)
    made.push_back(
        must(co_await clients.connect(t->shard_, one->local_address(), "localhost", t->soon())));
  EXPECT_GT(one->counters().accepted, 0u);
  EXPECT_GT(two->counters().accepted, 0u);
  t->options_.reuse_port = false;
  const auto third = listener::listen(t->shard_, one->local_address(), tls, t->options_);
  EXPECT_EQ(third.error().detail(), static_cast<std::uint64_t>(EADDRINUSE));
  EXPECT_THAT(third.error().message(), HasSubstr(one->local_address().to_string()));
}
TEST_F(listening, several_may_share_a_port) {
  run(share_port(this));
}

task<void> close_later(listening* t) {
  (void)co_await t->shard_.sleep_until(io::now() + 20ms);
  t->listener_->close();
}

task<void> close(listening* t) {
  t->listen();
  const address at = t->at();
  socket_type pending = t->raw(at);
  auto client = must(co_await connect(t->shard_, at, "localhost", t->wanted_, t->soon()));
  co_await t->until([t] { return t->listener_->counters().accepted == 2; });
  t->listener_->close();
  EXPECT_EQ((co_await t->listener_->accept()).error().code(), errc::closed);
  EXPECT_EQ((co_await client->read()).error().code(), errc::reset);
  const auto refused = co_await connect(t->shard_, at, "localhost", t->wanted_, t->soon());
  EXPECT_EQ(refused.error().code(), errc::refused) << refused.error().to_string();
  EXPECT_THAT(refused.error().message(), HasSubstr(at.to_string()));
  EXPECT_TRUE(t->failures_.empty());  // dropped by us, not failed

  t->listen();
  asio::co_spawn(t->shard_.get_executor(), close_later(t), asio::detached);
  EXPECT_EQ((co_await t->listener_->accept()).error().code(), errc::closed);
}
TEST_F(listening, close_drops_what_nobody_accepted) {
  run(close(this));
}

task<void> accept_and_drop(listening* t) {
  t->listen();
  asio::co_spawn(t->shard_.get_executor(), close_later(t), asio::detached);
  const auto got = co_await t->listener_->accept();
  EXPECT_EQ(got.error().code(), errc::closed);
  t->listener_.reset();  // inside close(), which resumed us
}
TEST_F(listening, may_be_destroyed_by_who_learns_that_it_closed) {
  run(accept_and_drop(this));
}

task<void> cancel_accept(listening* t) {
  t->listen();
  const auto got = co_await (t->listener_->accept() || t->shard_.sleep_until(io::now() + 20ms));
  EXPECT_EQ(got.index(), 1u);
  co_await t->one_good_client();
}
TEST_F(listening, a_cancelled_accept_loses_nothing) {
  run(cancel_accept(this));
}

task<void> turn_down(listening* t) {
  t->listen();
  t->wanted_.alpn = {"h2"};
  const auto got = co_await connect(t->shard_, t->at(), "localhost", t->wanted_, t->soon());
  EXPECT_EQ(got.error().code(), errc::tls);
  EXPECT_EQ(got.error().detail(), 120u);
  EXPECT_THAT(got.error().message(), HasSubstr("localhost (127.0.0.1:"));
  EXPECT_THAT(got.error().message(), HasSubstr("it speaks none of ours (ALPN): h2"));
  EXPECT_THAT(t->failures_.at(0), HasSubstr("offers ALPN h2, but this server speaks weft/1"));
  t->wanted_.alpn = {"weft/1"};
  const auto name = co_await connect(t->shard_, t->at(), "other.example", t->wanted_, t->soon());
  EXPECT_THAT(name.error().message(), HasSubstr("not for other.example"));
  co_await t->until([t] { return t->failures_.size() == 2; });
  EXPECT_THAT(t->failures_.at(1), HasSubstr("does not accept our certificate"));
  // Without a host, the address is what the certificate must name.
  auto by_address =
      co_await (connect(t->shard_, t->at(), "", t->wanted_, t->soon()) && t->listener_->accept());
  must(std::move(std::get<0>(by_address)));
}
TEST_F(listening, both_sides_learn_why_a_handshake_failed) {
  run(turn_down(this));
}

task<void> no_answer(listening* t) {
  asio::ip::tcp::acceptor mute{t->shard_.context(), to_endpoint(t->any_port()).value()};
  const address at = from_endpoint(mute.local_endpoint());
  const auto got = co_await connect(t->shard_, at, "localhost", t->wanted_, io::now() + 50ms);
  EXPECT_EQ(got.error().code(), errc::timed_out) << got.error().to_string();
  const auto cancelled = co_await (connect(t->shard_, at, "localhost", t->wanted_, t->soon()) ||
                                   t->shard_.sleep_until(io::now() + 20ms));
  EXPECT_EQ(cancelled.index(), 1u);
  const auto nowhere = co_await connect(t->shard_, address{}, "x", t->wanted_, t->soon());
  EXPECT_EQ(nowhere.error().code(), errc::invalid_argument);
  t->wanted_.groups = "curve9";
  const auto group = co_await connect(t->shard_, at, "localhost", t->wanted_, t->soon());
  EXPECT_EQ(group.error().code(), errc::invalid_argument);
}
TEST_F(listening, a_server_that_says_nothing_times_out) {
  run(no_answer(this));
}

TEST_F(listening, the_loop_may_end_with_everything_pending) {
  std::optional<io::shard> brief{std::in_place};
  auto held = must(listener::listen(*brief, any_port(), offered_));
  socket_type silent = raw(held->local_address());
  brief->post([&] { brief->stop(); });
  brief->run();
  held.reset();
  brief.reset();
}

}  // namespace
}  // namespace weft::tcp
