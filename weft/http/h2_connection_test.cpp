#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>

#include <weft/http/core/h2_test_frames.hpp>
#include <weft/http/exchange_suite.hpp>
#include <weft/http/test_pipe.hpp>
#include <weft/tcp/listener.hpp>

namespace weft::http::test {
namespace {

using testing::HasSubstr;
using exchange_ptr = std::unique_ptr<exchange>;

/// A server's end whose client is a bare byte stream.
class h2_bare : public testing::Test {
 protected:
  void run(task<> test) { quic::test::run(shard_, std::move(test)); }
  void serve(options opts = {}, request_handler handler = {}) {
    auto [ours, theirs] = pipe_end::make();
    peer_ = std::move(ours);
    if (!handler) handler = [this](exchange_ptr e) { kept_.push_back(std::move(e)); };
    server_ = serve_h2(std::move(theirs), {.transport = "memory"}, shard_, std::move(opts),
                       std::move(handler));
  }
  task<> say(std::string text) {
    const slice part = slice::copy(text);
    must(co_await peer_->write({&part, 1}));
  }
  task<> until(std::function<bool()> holds) {
    for (int i = 0; i < 10'000 && !holds(); ++i) (void)co_await shard_.sleep_until(io::now());
    EXPECT_TRUE(holds());
  }
  /// Reads until a frame of this type has come.
  task<frames::seen_frame> await_frame(std::uint8_t type) {
    for (;;) {
      for (const auto& each : frames::cut(heard_))
        if (each.type == type) co_return each;
      auto more = must(co_await peer_->read());
      if (more.empty()) throw std::runtime_error{"the server ended"};
      heard_ += more.text();
    }
  }

  io::shard shard_;
  std::unique_ptr<pipe_end> peer_;
  std::unique_ptr<server_connection> server_;
  std::vector<exchange_ptr> kept_;
  std::string heard_;
};

TEST_F(h2_bare, a_peer_that_makes_us_answer_and_reads_nothing_is_shown_the_door) {
  run([](auto& t) -> task<> {
    t.serve();
    co_await t.say(frames::greeting());
    std::string block;
    for (int i = 0; i < 100; ++i) block += frames::frame(frames::ping, frames::none, 0, "12345678");
    for (int said = 0; said < 1'000; ++said) co_await t.say(block);
    auto why = co_await t.server_->finished();
    EXPECT_EQ(why.code(), errc::exhausted) << why.to_string();
    EXPECT_EQ(why.detail(), 11u);
  }(*this));
}

TEST_F(h2_bare, a_field_section_that_never_ends_ends_the_connection) {
  for (const bool trailers : {false, true}) {
    SCOPED_TRACE(trailers);
    heard_.clear();
    run([](auto& t, bool trailers) -> task<> {
      t.serve({.section_timeout = 1ms});
      co_await t.say(frames::greeting() + (trailers ? frames::request(1, false) : ""));
      co_await t.say(frames::frame(frames::headers, trailers ? frames::end_stream : frames::none, 1,
                                   frames::hpack({{"x", "y"}})));
      auto why = co_await t.server_->finished();
      EXPECT_EQ(why.code(), errc::timed_out) << why.to_string();
      const auto last = co_await t.await_frame(frames::goaway);
      EXPECT_EQ(last.payload.substr(4, 4), frames::number(11, 4));
      t.kept_.clear();
    }(*this, trailers));
  }
}

TEST_F(h2_bare, a_peer_without_a_sign_of_life_is_given_up) {
  run([](auto& t) -> task<> {
    t.serve({.keep_alive = 1ms, .keep_alive_timeout = 1ms});
    co_await t.say(frames::greeting());
    auto why = co_await t.server_->finished();
    EXPECT_EQ(why.code(), errc::timed_out) << why.to_string();
  }(*this));
}

TEST_F(h2_bare, a_peer_that_answers_pings_stays) {
  run([](auto& t) -> task<> {
    t.serve({.keep_alive = 1ms, .keep_alive_timeout = 1min});
    co_await t.say(frames::greeting());
    for (int i = 0; i < 5; ++i) {
      const auto asked = co_await t.await_frame(frames::ping);
      EXPECT_EQ(asked.flags, frames::none);
      t.heard_.clear();
      co_await t.say(frames::frame(frames::ping, frames::ack, 0, asked.payload));
    }
    co_await t.say(frames::request(1, true));
    co_await t.until([&] { return t.kept_.size() == 1; });
    t.kept_.clear();
  }(*this));
}

TEST_F(h2_bare, handlers_that_outlive_their_exchanges_are_bounded) {
  run([](auto& t) -> task<> {
    t.serve({.max_concurrent = 10});
    co_await t.say(frames::greeting());
    for (std::uint32_t i = 0; i < 300; ++i)
      co_await t.say(frames::request(2 * i + 1, false) +
                     frames::frame(frames::rst_stream, 0, 2 * i + 1, frames::number(8, 4)));
    co_await t.until([&] { return t.server_->stats().rejected != 0; });
    EXPECT_EQ(t.kept_.size(), 120u);
    EXPECT_EQ(t.server_->stats().open, 120u);
    t.kept_.clear();
    EXPECT_EQ(t.server_->stats().open, 0u);
  }(*this));
}

TEST_F(h2_bare, the_memory_budget_bounds_content_and_is_given_back) {
  auto budget = std::make_shared<memory_budget>(50'000);
  run([](auto& t, auto& budget) -> task<> {
    t.serve({.memory = budget});
    co_await t.say(frames::greeting() + frames::request(1, false) + frames::request(3, false));
    co_await t.until([&] { return t.kept_.size() == 2; });
    for (int i = 0; i < 3; ++i)
      co_await t.say(frames::frame(frames::data, 0, 1, std::string(10'000, 'x')));
    co_await t.until([&] { return budget->used() >= 30'000; });
    for (int i = 0; i < 3; ++i)
      co_await t.say(frames::frame(frames::data, 0, 3, std::string(10'000, 'y')));
    auto rst = co_await t.await_frame(frames::rst_stream);
    EXPECT_EQ(rst.stream, 3u);
    EXPECT_EQ(rst.payload, frames::number(11, 4));
    EXPECT_LE(budget->peak(), 50'000u);
    auto failed = co_await t.kept_[1]->read();
    EXPECT_EQ(failed.error().code(), errc::exhausted);
    for (int i = 0; i < 3; ++i) {
      std::size_t got = 0;
      while (got < 10'000) got += must(co_await t.kept_[0]->read()).size();
    }
    t.kept_.clear();
  }(*this, budget));
  EXPECT_EQ(budget->used(), 0u);
}

TEST_F(h2_bare, tiny_pieces_that_nobody_reads_cost_little_more_than_they_say) {
  run([](auto& t) -> task<> {
    t.serve();
    co_await t.say(frames::greeting() + frames::request(1, false));
    co_await t.until([&] { return t.kept_.size() == 1; });
    std::string sent;
    for (int i = 0; i < 5'000; ++i) {
      sent += static_cast<char>('a' + i % 26);
      co_await t.say(frames::frame(frames::data, 0, 1, sent.substr(sent.size() - 1)));
    }
    co_await t.say(frames::frame(frames::data, frames::end_stream, 1, "."));
    std::string got;
    int reads = 0;
    for (;; ++reads) {
      (void)co_await t.shard_.sleep_until(io::now() + 20ms);
      auto next = must(co_await t.kept_[0]->read());
      if (next.empty()) break;
      got += next.text();
    }
    EXPECT_EQ(got, sent + ".");
    EXPECT_LE(reads, 10);
    t.kept_.clear();
  }(*this));
}

TEST_F(h2_bare, responses_announce_the_other_version) {
  run([](auto& t) -> task<> {
    t.serve({.alt_svc = "h3=\":443\""}, [](exchange_ptr e) { must(e->send_head({}, true)); });
    co_await t.say(frames::greeting() + frames::request(1, true));
    auto head = co_await t.await_frame(frames::headers);
    EXPECT_EQ(head.stream, 1u);
    EXPECT_GT(head.payload.size(), 8u);
  }(*this));
}

TEST_F(h2_bare, a_peer_of_another_protocol_ends_it_with_a_word) {
  run([](auto& t) -> task<> {
    t.serve();
    co_await t.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    auto why = co_await t.server_->finished();
    EXPECT_THAT(why.message(), HasSubstr("does not speak HTTP/2"));
    auto bye = co_await t.await_frame(frames::goaway);
    EXPECT_EQ(bye.payload.substr(4, 4), frames::number(1, 4));
  }(*this));
}

TEST_F(h2_bare, a_broken_connection_ends_all_at_once) {
  run([](auto& t) -> task<> {
    t.serve();
    co_await t.say(frames::greeting() + frames::request(1, false));
    co_await t.until([&] { return t.kept_.size() == 1; });
    error seen{errc::internal, layer::http, ""};
    t.kept_[0]->on_abandoned([&](const error& why) { seen = why; });
    t.peer_->abort();
    auto why = co_await t.server_->finished();
    EXPECT_EQ(why.code(), errc::reset);
    EXPECT_EQ(seen.code(), errc::reset);
    EXPECT_FALSE(co_await t.kept_[0]->read());
  }(*this));
}

/// Both ends of weft's over a pipe.
class h2_pipe : public testing::Test {
 protected:
  void run(task<> test) { quic::test::run(shard_, std::move(test)); }
  void connect(options client, options server) {
    auto [ours, theirs] = pipe_end::make();
    server_ = serve_h2(std::move(theirs), {.transport = "memory"}, shard_, std::move(server),
                       [this](exchange_ptr e) { kept_.push_back(std::move(e)); });
    client_ = open_h2(std::move(ours), {.transport = "memory"}, shard_, std::move(client));
  }
  task<> until(std::function<bool()> holds) {
    for (int i = 0; i < 10'000 && !holds(); ++i) (void)co_await shard_.sleep_until(io::now());
    EXPECT_TRUE(holds());
  }
  static request_head post() { return {.authority = "a.example", .path = "/"}; }

  io::shard shard_;
  std::unique_ptr<client_connection> client_;
  std::unique_ptr<server_connection> server_;
  std::vector<exchange_ptr> kept_;
};

TEST_F(h2_pipe, requests_wait_their_turn_and_can_be_cancelled_meanwhile) {
  run([](auto& t) -> task<> {
    using namespace asio::experimental::awaitable_operators;
    t.connect({}, {.max_concurrent = 1});
    auto first = must(co_await t.client_->request(post(), true));
    co_await t.until([&] { return t.kept_.size() == 1; });
    request_head head = post();
    EXPECT_FALSE(t.client_->try_request(head, true));
    EXPECT_EQ(head.path, "/");
    auto gone = co_await (t.client_->request(post(), true) || quic::test::after(t.shard_, 5ms));
    EXPECT_EQ(gone.index(), 1u);
    exchange_ptr second, third;
    const auto begin = [](auto& t, exchange_ptr& into) -> task<> {
      into = must(co_await t.client_->request(post(), true));
    };
    asio::co_spawn(t.shard_.get_executor(), begin(t, second), asio::detached);
    asio::co_spawn(t.shard_.get_executor(), begin(t, third), asio::detached);
    (void)co_await t.shard_.sleep_until(io::now() + 5ms);
    EXPECT_FALSE(second);
    must(t.kept_[0]->send_head({}, true));
    co_await t.until([&] { return second != nullptr && t.kept_.size() == 2; });
    EXPECT_FALSE(third);
    second.reset();
    co_await t.until([&] { return third != nullptr && t.kept_.size() == 3; });
    t.kept_.clear();
  }(*this));
}

TEST_F(h2_pipe, requests_that_wait_learn_that_the_server_leaves) {
  run([](auto& t) -> task<> {
    t.connect({}, {.max_concurrent = 1});
    auto first = must(co_await t.client_->request(post(), true));
    co_await t.until([&] { return t.kept_.size() == 1; });
    std::optional<error> told;
    asio::co_spawn(
        t.shard_.get_executor(),
        [](auto& t, std::optional<error>& told) -> task<> {
          auto e = co_await t.client_->request(post(), true);
          if (!e) told = e.error();
        }(t, told),
        asio::detached);
    asio::co_spawn(t.shard_.get_executor(), t.server_->drain(), asio::detached);
    co_await t.until([&] { return told.has_value(); });
    EXPECT_EQ(told->code(), errc::refused);
    t.kept_.clear();
  }(*this));
}

TEST_F(h2_pipe, what_a_writer_may_leave_here_is_bounded) {
  run([](auto& t) -> task<> {
    t.connect({.send_buffer = 100'000}, {.exchange_window = 65'535});
    auto e = must(co_await t.client_->request(post(), false));
    const slice block = pattern(10'000);
    std::size_t taken = 0;
    for (int rounds = 0; rounds < 200; ++rounds) {
      while (e->try_write(block)) taken += block.size();
      (void)co_await t.shard_.sleep_until(io::now());
    }
    EXPECT_GE(taken, 100'000u);
    EXPECT_LE(taken, 65'535u + 120'000u);
    // The first write of another finds room all the same.
    auto other = must(co_await t.client_->request(post(), false));
    auto done = other->try_write(slice::copy(std::string(300'000, 'x')));
    EXPECT_TRUE(done && *done);
    t.kept_.clear();
  }(*this));
}

TEST_F(h2_pipe, operations_pending_on_a_destroyed_exchange_end) {
  run([](auto& t) -> task<> {
    t.connect({.send_buffer = 1'000}, {});
    int ended = 0;
    auto e = must(co_await t.client_->request(post(), false));
    must(co_await e->write(pattern(5 << 20)));
    asio::co_spawn(
        t.shard_.get_executor(),
        [](exchange& e, int& ended) -> task<> {
          auto got = co_await e.read();
          EXPECT_EQ(got.error().code(), errc::closed);
          ++ended;
        }(*e, ended),
        asio::detached);
    asio::co_spawn(
        t.shard_.get_executor(),
        [](exchange& e, int& ended) -> task<> {
          auto got = co_await e.write(pattern(1));
          EXPECT_EQ(got.error().code(), errc::closed);
          ++ended;
        }(*e, ended),
        asio::detached);
    (void)co_await t.shard_.sleep_until(io::now() + 5ms);
    EXPECT_EQ(ended, 0);
    e.reset();
    co_await t.until([&] { return ended == 2; });
    t.kept_.clear();
  }(*this));
}

// curl, where it is installed
// --------------------------------------------------------------------------------

bool has_curl() {
  return std::system("curl --version 2>/dev/null | grep -q 'HTTP2'") == 0;
}

/// Answers with the request's line and content, or with much.
task<> answer(exchange_ptr e) {
  std::string all = e->request().method + ' ' + e->request().path + '\n';
  for (;;) {
    auto next = co_await e->read();
    if (!next) co_return;
    if (next->empty()) break;
    all += next->text();
  }
  must(e->send_head({.fields = {{"content-type", "text/plain"}, {"x-weft", "yes"}}}));
  if (e->request().path == "/large") all = std::string(5'000'000, 'L');
  (void)co_await e->write(slice::copy(all), e->request().path != "/trailers");
  if (e->request().path == "/trailers") (void)e->finish({{"x-end", "well"}});
}

task<> accept_all(io::shard& shard, tcp::listener& listener,
                  std::vector<std::unique_ptr<server_connection>>& open) {
  for (;;) {
    auto stream = co_await listener.accept();
    if (!stream) co_return;
    open.push_back(
        serve_h2(std::move(*stream), {.transport = "tls-tcp"}, shard, {}, [&shard](exchange_ptr e) {
          asio::co_spawn(shard.get_executor(), answer(std::move(e)), asio::detached);
        }));
  }
}

std::string output_of(const std::string& command) {
  std::string all;
  FILE* pipe = popen(command.c_str(), "r");
  char part[4096];
  for (std::size_t got; (got = fread(part, 1, sizeof part, pipe)) != 0;) all.append(part, got);
  pclose(pipe);
  return all;
}

TEST(h2_interop, curl_gets_and_posts) {
  if (!has_curl()) GTEST_SKIP() << "needs a curl with HTTP/2";
  io::shard shard;
  auto offered = std::make_shared<tls::server_options>(
      tls::server_options{.identity = quic::test::identity(), .alpn = {std::string{alpn_h2}}});
  auto listener = must(tcp::listener::listen(shard, quic::test::loopback(), std::move(offered)));
  std::vector<std::unique_ptr<server_connection>> open;
  asio::co_spawn(shard.get_executor(), accept_all(shard, *listener, open), asio::detached);
  std::string got, posted, large, trailers, many;
  std::thread callers{[&, port = listener->local_address().port()] {
    const std::string url = "https://localhost:" + std::to_string(port);
    const std::string curl = "timeout 20 curl -sk --http2 ";
    got = output_of(curl + "-i " + url + "/path?query=1");
    posted = output_of("head -c 2000000 /dev/zero | tr '\\0' 'z' | " + curl + "--data-binary @- " +
                       url + "/up");
    large = output_of(curl + url + "/large");
    trailers = output_of(curl + "-v " + url + "/trailers 2>&1");
    many = output_of(curl + "--parallel --parallel-max 20 '" + url + "/n/[1-50]'");
    shard.post([&] { shard.stop(); });
  }};
  shard.run();
  callers.join();
  EXPECT_THAT(got, HasSubstr("HTTP/2 200"));
  EXPECT_THAT(got, HasSubstr("x-weft: yes"));
  EXPECT_THAT(got, HasSubstr("GET /path?query=1\n"));
  EXPECT_EQ(posted, "POST /up\n" + std::string(2'000'000, 'z'));
  EXPECT_EQ(large.size(), 5'000'000u);
  EXPECT_THAT(trailers, HasSubstr("x-end: well"));
  EXPECT_EQ(std::ranges::count(many, '\n'), 50);
}

}  // namespace
}  // namespace weft::http::test
