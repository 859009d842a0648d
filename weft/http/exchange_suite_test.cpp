#include <weft/http/exchange_suite.hpp>

#include <cstdlib>
#include <map>
#include <random>

#include <weft/http/core/h3_session.hpp>

namespace weft::http::test {
namespace {

// The ways to connect
// ------------------------------------------------------------------------------

class h3_link final : public link {
 public:
  ~h3_link() override {
    client.reset();
    server.reset();
  }
  task<> connect(io::shard& shard, options client_options, options server_options,
                 request_handler handler) override {
    auto serving = quic::test::serving();
    serving.tls.alpn = {std::string{alpn_h3}};
    auto calling = quic::test::calling();
    calling.tls.alpn = {std::string{alpn_h3}};
    listening_.emplace(
        must(quic::endpoint::listen(shard, quic::test::loopback(), std::move(serving))));
    opened_.emplace(must(quic::endpoint::open(shard, {})));
    auto ours = must(
        co_await opened_->connect(listening_->local_address(), "localhost", std::move(calling)));
    auto theirs = must(co_await listening_->accept());
    server = serve_h3(std::move(theirs), shard, std::move(server_options), std::move(handler));
    client = open_h3(std::move(ours), shard, std::move(client_options));
  }
  void cut() override { listening_.reset(); }

 private:
  std::optional<quic::endpoint> listening_, opened_;
};

INSTANTIATE_TEST_SUITE_P(versions, exchange_suite,
                         testing::Values(way{"h3", [] { return std::make_unique<h3_link>(); }}),
                         [](const auto& of) { return std::string{of.param.name}; });

// What holds
// ----------------------------------------------------------------------------------------

TEST_P(exchange_suite, a_request_is_answered_with_content_and_trailers) {
  run([](auto& t) -> task<> {
    co_await t.connect(echo);
    auto e = co_await t.ask(post("/x.Y/Z"));
    must(co_await e->write(slice::copy("hello"), true));
    must(co_await e->receive_head());
    EXPECT_EQ(e->response()->status, 200);
    EXPECT_EQ(e->response()->fields.find("path"), "/x.Y/Z");
    const std::string all = co_await rest_of(*e);
    EXPECT_EQ(all, "hello");
    EXPECT_EQ(e->trailers().find("count"), "5");
    EXPECT_EQ(e->connection().version, t.server().info().version);
    EXPECT_FALSE(e->connection().group.empty() && e->connection().transport != "memory");
    auto again = co_await e->read();
    EXPECT_TRUE(again && again->empty());
  }(*this));
}

TEST_P(exchange_suite, a_request_without_content_gets_a_response_without_any) {
  run([](auto& t) -> task<> {
    co_await t.connect([](exchange_ptr e) -> task<> {
      auto end = co_await e->read();
      EXPECT_TRUE(end && end->empty());
      must(e->send_head({.status = 404}, true));
      EXPECT_FALSE(e->try_write(slice::copy("late"))->has_value());
    });
    auto e = co_await t.ask(post(), true);
    must(co_await e->receive_head());
    EXPECT_EQ(e->response()->status, 404);
    const std::string all = co_await rest_of(*e);
    EXPECT_EQ(all, "");
    EXPECT_TRUE(e->trailers().empty());
  }(*this));
}

TEST_P(exchange_suite, much_content_goes_both_ways_at_once) {
  run([](auto& t) -> task<> {
    co_await t.connect(echo);
    auto e = co_await t.ask(post());
    constexpr std::size_t total = 24 << 20;
    const slice block = pattern(777'777);
    asio::co_spawn(
        t.shard_.get_executor(),
        [](exchange& e, slice block) -> task<> {
          for (std::size_t sent = 0; sent < total; sent += block.size())
            must(co_await e.write(block));
          must(e.finish({}));
        }(*e, block),
        asio::detached);
    quic::test::checksum got, want;
    for (;;) {
      auto next = must(co_await e->read());
      if (next.empty()) break;
      got.add(next);
    }
    while (want.count() < total) want.add(block);
    EXPECT_EQ(got, want);
  }(*this));
}

TEST_P(exchange_suite, content_that_comes_with_its_head_is_read_before_the_end) {
  run([](auto& t) -> task<> {
    co_await t.connect(echo);
    auto e = co_await t.ask(post());
    for (int i = 0; i < 3; ++i) {
      auto sent = e->try_write(slice::copy("ping"));  // the first leaves with the head
      EXPECT_TRUE(sent && *sent);
      std::string pong;
      while (pong.size() < 4) {
        auto piece = must(co_await e->read());
        if (piece.empty()) break;
        pong += piece.text();
      }
      EXPECT_EQ(pong, "ping");
    }
  }(*this));
}

TEST_P(exchange_suite, a_thousand_requests_are_open_at_once) {
  run([](auto& t) -> task<> {
    co_await t.connect(echo);
    std::vector<exchange_ptr> open;
    for (int i = 0; i < 900; ++i) {
      auto e = co_await t.ask(post("/n/" + std::to_string(i)));
      auto sent = e->try_write(slice::copy(std::to_string(i)));
      EXPECT_TRUE(sent && *sent);
      open.push_back(std::move(e));
    }
    std::ranges::shuffle(open, std::mt19937{1});
    for (auto& e : open) {
      must(e->finish({}));
      must(co_await e->receive_head());
      const std::string all = co_await rest_of(*e);
      EXPECT_EQ("/n/" + all, e->response()->fields.find("path"));
    }
    EXPECT_EQ(t.served_, 900);
  }(*this));
}

TEST_P(exchange_suite, requests_beyond_the_limit_wait_or_are_rejected_unprocessed) {
  run([](auto& t) -> task<> {
    co_await t.connect([&t](exchange_ptr e) { return t.await_abandoned(std::move(e)); }, {},
                       {.max_concurrent = 5});
    using namespace asio::experimental::awaitable_operators;
    std::vector<exchange_ptr> open;
    int rejected = 0, waiting = 0;
    for (int i = 0; i < 20; ++i) {
      request_head head = post();
      auto e = t.client().try_request(head, false);
      if (!e || !*e) break;
      open.push_back(std::move(**e));
    }
    (void)co_await t.shard_.sleep_until(io::now() + 50ms);
    for (std::size_t i = 5; i < open.size(); ++i) {
      auto head = co_await (open[i]->receive_head() || quic::test::after(t.shard_, 20ms));
      if (head.index() == 1) {
        ++waiting;
        continue;
      }
      const auto& failed = std::get<0>(head);
      if (failed) continue;
      EXPECT_EQ(failed.error().detail(), static_cast<std::uint64_t>(give_up::rejected))
          << failed.error().to_string();
      ++rejected;
    }
    EXPECT_EQ(t.served_, 5);
    EXPECT_EQ(rejected + waiting, static_cast<int>(open.size()) - 5);
    open.clear();
    co_await t.until([&] { return t.abandoned_.size() == 5; });
  }(*this));
}

TEST_P(exchange_suite, a_writer_waits_for_a_peer_that_does_not_read) {
  run([](auto& t) -> task<> {
    exchange_ptr held;
    co_await t.connect([&held](exchange_ptr e) -> task<> {
      held = std::move(e);
      co_return;
    });
    auto e = co_await t.ask(post());
    const slice block = pattern(64 << 10);
    std::size_t sent = 0;
    bool writing = true;
    asio::co_spawn(
        t.shard_.get_executor(),
        [](exchange& e, slice block, std::size_t& sent, bool& writing) -> task<> {
          while (writing) {
            auto done = co_await e.write(block);
            if (!done) break;
            sent += block.size();
          }
          must(e.finish({}));
          writing = false;
        }(*e, block, sent, writing),
        asio::detached);
    co_await t.until([&] { return held != nullptr; });
    std::size_t before = 1;
    while (before != sent) {
      before = sent;
      (void)co_await t.shard_.sleep_until(io::now() + 300ms);
    }
    EXPECT_GT(sent, 0u);
    EXPECT_LT(sent, std::size_t{64} << 20);
    // Other exchanges are not held up.
    std::swap(t.serve_, t.serve_);
    const std::size_t held_up = sent;
    writing = false;
    std::size_t got = 0;
    for (;;) {
      auto next = must(co_await held->read());
      if (next.empty()) break;
      got += next.size();
    }
    EXPECT_GE(got, held_up);
    EXPECT_EQ(got, sent);
    held.reset();
  }(*this));
}

TEST_P(exchange_suite, an_early_response_arrives_whole) {
  run([](auto& t) -> task<> {
    co_await t.connect([](exchange_ptr e) -> task<> {
      must(e->send_head({.status = 413}));
      must(co_await e->write(slice::copy("too much"), true));
      e->stop_reading(give_up::no_error);
    });
    auto e = co_await t.ask(post());
    const slice block = pattern(1 << 20);
    for (int i = 0; i < 1000; ++i) {
      auto sent = co_await e->write(block);
      if (sent) continue;
      EXPECT_EQ(sent.error().code(), errc::reset);
      EXPECT_EQ(sent.error().detail(), static_cast<std::uint64_t>(give_up::no_error));
      break;
    }
    must(co_await e->receive_head());
    EXPECT_EQ(e->response()->status, 413);
    const std::string all = co_await rest_of(*e);
    EXPECT_EQ(all, "too much");
  }(*this));
}

TEST_P(exchange_suite, a_handler_that_answers_and_goes_is_an_early_response) {
  run([](auto& t) -> task<> {
    co_await t.connect([](exchange_ptr e) -> task<> {
      must(e->send_head({.status = 200}, true));
      co_return;
    });
    auto e = co_await t.ask(post());
    must(co_await e->receive_head());
    const std::string all = co_await rest_of(*e);
    EXPECT_EQ(all, "");
  }(*this));
}

TEST_P(exchange_suite, the_server_learns_that_the_client_gave_up) {
  for (const bool by_reset : {true, false}) {
    abandoned_.clear();
    served_ = 0;
    run([](auto& t, bool by_reset) -> task<> {
      co_await t.connect([&t](exchange_ptr e) { return t.await_abandoned(std::move(e)); });
      auto e = co_await t.ask(post());
      co_await t.until([&] { return t.served_ != 0; });
      if (by_reset) {
        e->reset(give_up::cancelled);
        auto read = co_await e->read();
        EXPECT_EQ(read.error().code(), errc::cancelled);
      }
      e.reset();
      co_await t.until([&] { return t.abandoned_.size() == 1; });
      EXPECT_EQ(t.abandoned_[0].code(), errc::reset);
      EXPECT_EQ(t.abandoned_[0].detail(), static_cast<std::uint64_t>(give_up::cancelled));
    }(*this, by_reset));
  }
}

TEST_P(exchange_suite, the_client_learns_why_the_server_gave_up) {
  for (const give_up why :
       {give_up::cancelled, give_up::rejected, give_up::excessive_load, give_up::internal}) {
    run([](auto& t, give_up why) -> task<> {
      co_await t.connect([why](exchange_ptr e) -> task<> {
        e->reset(why);
        co_return;
      });
      auto e = co_await t.ask(post());
      auto head = co_await e->receive_head();
      EXPECT_EQ(head.error().code(), errc::reset) << head.error().to_string();
      EXPECT_EQ(head.error().detail(), static_cast<std::uint64_t>(why));
    }(*this, why));
  }
}

TEST_P(exchange_suite, a_dropped_unanswered_request_is_given_up) {
  run([](auto& t) -> task<> {
    co_await t.connect([](exchange_ptr) -> task<> { co_return; });
    auto e = co_await t.ask(post());
    auto head = co_await e->receive_head();
    EXPECT_EQ(head.error().code(), errc::reset);
  }(*this));
}

TEST_P(exchange_suite, a_complete_request_is_delivered_though_its_exchange_goes) {
  run([](auto& t) -> task<> {
    std::string got;
    co_await t.connect([&](exchange_ptr e) -> task<> {
      for (;;) {
        auto next = co_await e->read();
        if (!next || next->empty()) break;
        got += next->text();
      }
      (void)e->send_head({}, true);
    });
    auto e = co_await t.ask(post());
    must(co_await e->write(slice::copy("one way"), true));
    e.reset();
    co_await t.until([&] { return got == "one way"; });
  }(*this));
}

TEST_P(exchange_suite, trailers_beyond_the_clients_limit_are_an_error_of_the_server_alone) {
  run([](auto& t) -> task<> {
    result<> tried;
    co_await t.connect(
        [&tried](exchange_ptr e) -> task<> {
          must(e->send_head({}));
          tried = e->finish({{"x", std::string(600, 'x')}});
          must(e->finish({{"x", "small"}}));
          co_return;
        },
        {.max_field_section = 500});
    for (int i = 0; i < 2; ++i) {  // by the second the client's settings are there
      auto e = co_await t.ask(post(), true);
      must(co_await e->receive_head());
      auto rest = co_await e->read();
      while (rest && !rest->empty()) rest = co_await e->read();
      if (i == 1) {
        EXPECT_TRUE(rest);
        EXPECT_EQ(e->trailers().find("x"), "small");
      }
    }
    EXPECT_TRUE(!tried && tried.error() == errc::too_large);
  }(*this));
}

TEST_P(exchange_suite, a_connection_without_exchanges_is_closed_in_time) {
  run([](auto& t) -> task<> {
    co_await t.connect(echo, {}, {.max_idle = 1ms});
    auto why = co_await t.server().finished();
    // Over HTTP/3 the client, told to go, closes first.
    const bool left = why == errc::reset && why.detail() == 0x100 /* H3_NO_ERROR */;
    EXPECT_TRUE(why == errc::closed || left) << why.to_string();
    (void)co_await t.client().finished();
    EXPECT_FALSE(t.client().usable());
  }(*this));
}

TEST_P(exchange_suite, an_idle_client_closes_its_connection) {
  run([](auto& t) -> task<> {
    co_await t.connect(echo, {.max_idle = 1ms});
    auto why = co_await t.client().finished();
    EXPECT_EQ(why.code(), errc::closed) << why.to_string();
    (void)co_await t.server().finished();
  }(*this));
}

TEST_P(exchange_suite, fields_beyond_the_servers_limit_are_refused) {
  run([](auto& t) -> task<> {
    co_await t.connect(echo, {}, {.max_field_section = 500});
    auto first = co_await t.ask(post(), true);  // the server's settings are there after it
    must(co_await first->receive_head());
    request_head head = post();
    for (int i = 0; i < 30; ++i) head.fields.add_valid("x", "0123456789");
    auto e = co_await t.client().request(head, true);
    if (!e) {
      EXPECT_EQ(e.error().code(), errc::too_large);
    } else {
      must(co_await (*e)->receive_head());
      EXPECT_EQ((*e)->response()->status, 431);
    }
    EXPECT_EQ(t.served_, 1);
    auto after = co_await t.ask(post(), true);
    must(co_await after->receive_head());
  }(*this));
}

TEST_P(exchange_suite, cancelling_an_operation_leaves_the_exchange_usable) {
  run([](auto& t) -> task<> {
    using namespace asio::experimental::awaitable_operators;
    co_await t.connect(echo);
    auto e = co_await t.ask(post());
    must(co_await e->receive_head());
    auto both = co_await (e->read() || quic::test::after(t.shard_, 20ms));
    EXPECT_EQ(both.index(), 1u);
    must(co_await e->write(slice::copy("still here"), true));
    const std::string all = co_await rest_of(*e);
    EXPECT_EQ(all, "still here");
  }(*this));
}

TEST_P(exchange_suite, draining_lets_open_exchanges_end_and_refuses_new_ones) {
  run([](auto& t) -> task<> {
    co_await t.connect(echo);
    auto e = co_await t.ask(post());
    must(co_await e->receive_head());
    bool drained = false;
    asio::co_spawn(
        t.shard_.get_executor(),
        [](server_connection& s, bool& drained) -> task<> {
          co_await s.drain();
          drained = true;
        }(t.server(), drained),
        asio::detached);
    co_await t.until([&] { return !t.client().usable(); });
    auto late = co_await t.client().request(post(), true);
    EXPECT_EQ(late.error().code(), errc::refused);
    EXPECT_FALSE(drained);
    must(co_await e->write(slice::copy("last words"), true));
    const std::string all = co_await rest_of(*e);
    EXPECT_EQ(all, "last words");
    e.reset();
    co_await t.until([&] { return drained; });
  }(*this));
}

TEST_P(exchange_suite, a_request_that_meets_the_servers_farewell_is_let_in_or_never_left) {
  run([](auto& t) -> task<> {
    co_await t.connect(echo);
    auto first = co_await t.ask(post(), true);
    must(co_await first->receive_head());
    asio::co_spawn(t.shard_.get_executor(), t.server().drain(), asio::detached);
    result<> done;
    auto e = co_await t.client().request(post(), true);
    if (!e) {
      done = std::unexpected{e.error()};
    } else {
      done = co_await (*e)->receive_head();
    }
    if (done) {
      EXPECT_EQ(t.served_, 2);
    } else {
      EXPECT_EQ(done.error().code(), errc::refused) << done.error().to_string();
      EXPECT_EQ(t.served_, 1);
    }
  }(*this));
}

TEST_P(exchange_suite, the_end_of_a_connection_ends_its_exchanges) {
  run([](auto& t) -> task<> {
    co_await t.connect([&t](exchange_ptr e) { return t.await_abandoned(std::move(e)); });
    auto a = co_await t.ask(post());
    auto b = co_await t.ask(post());
    co_await t.until([&] { return t.served_ == 2; });
    t.client().close(give_up::no_error, "enough");
    auto read = co_await a->read();
    EXPECT_FALSE(read);
    EXPECT_FALSE(co_await b->write(slice::copy("x")));
    co_await t.until([&] { return t.abandoned_.size() == 2; });
    auto why = co_await t.server().finished();
    EXPECT_FALSE(why.message().empty());
    EXPECT_FALSE(t.client().usable());
  }(*this));
}

TEST_P(exchange_suite, exchanges_outlive_their_connections) {
  run([](auto& t) -> task<> {
    exchange_ptr held;
    co_await t.connect([&held](exchange_ptr e) -> task<> {
      held = std::move(e);
      co_return;
    });
    auto e = co_await t.ask(post());
    co_await t.until([&] { return held != nullptr; });
    t.link_->server.reset();
    t.link_->client.reset();
    EXPECT_FALSE(co_await e->read());
    EXPECT_FALSE(co_await held->read());
    EXPECT_FALSE(held->send_head({}));
    EXPECT_FALSE(co_await e->write(slice::copy("x")));
    e->reset(give_up::cancelled);
    held->stop_reading();
  }(*this));
}

TEST_P(exchange_suite, a_client_that_resets_in_a_loop_is_shown_the_door) {
  run([](auto& t) -> task<> {
    co_await t.connect([&t](exchange_ptr e) { return t.await_abandoned(std::move(e)); });
    int made = 0;
    for (; made < 50'000 && t.client().usable(); ++made) {
      auto e = co_await t.client().request(post(), false);
      if (!e) break;
      // So many at once that a slow machine, too, is faster than what is allowed.
      if (made % 20 == 0) (void)co_await t.shard_.sleep_until(io::now());
    }
    EXPECT_LT(made, 50'000);
    auto why = co_await t.client().finished();
    EXPECT_EQ(t.server().stats().open, 0u);
  }(*this));
}

/// Everything at once, and ends anywhere.
TEST_P(exchange_suite, survives_random_teardown) {
  std::mt19937 random{7};
  const auto chance = [&](unsigned in) { return random() % in == 0; };
  const int rounds = std::getenv("WEFT_TEST_FAST") ? 15 : 60;
  for (int round = 0; round < rounds; ++round) {
    run([](auto& t, auto& chance, std::mt19937& random) -> task<> {
      std::vector<exchange_ptr> kept;
      co_await t.connect([&](exchange_ptr e) -> task<> {
        if (chance(8)) co_return;
        if (chance(8)) e->reset(give_up::internal);
        if (chance(8)) {
          kept.push_back(std::move(e));
          co_return;
        }
        if (!e->send_head({})) co_return;
        for (;;) {
          auto next = co_await e->read();
          if (!next || next->empty() || chance(20)) break;
          auto sent = co_await e->write(std::move(*next), false);
          if (!sent) co_return;
        }
        if (chance(2)) (void)e->finish({{"t", "1"}});
      });
      int running = 0;
      for (int i = 0; i < 20; ++i) {
        ++running;
        asio::co_spawn(
            t.shard_.get_executor(),
            [](auto& t, auto& chance, std::mt19937& random) -> task<> {
              auto e = co_await t.client().request(post(), false);
              if (!e) co_return;
              for (int k = 0; k < 5; ++k) {
                auto sent = co_await (*e)->write(pattern(1 + random() % 100'000), chance(10));
                if (!sent || chance(10)) break;
                if (chance(3)) {
                  auto ready = (*e)->try_read();
                  if (ready && !*ready) break;
                }
              }
              if (chance(3)) co_return;
              if (chance(3)) (*e)->reset(give_up::cancelled);
              for (;;) {
                auto next = co_await (*e)->read();
                if (!next || next->empty() || chance(50)) co_return;
              }
            }(t, chance, random),
            [&running](std::exception_ptr failed) {
              --running;
              if (failed) std::rethrow_exception(failed);
            });
      }
      (void)co_await t.shard_.sleep_until(io::now() + std::chrono::microseconds{random() % 8000});
      switch (random() % 4) {
        case 0:
          t.link_->server.reset();
          break;
        case 1:
          t.link_->client->close(give_up::internal, "random");
          break;
        case 2:
          t.link_->cut();
          t.link_->client->close(give_up::internal, "cut");
          break;
        default:
          break;
      }
      kept.clear();
      if (t.link_->server) t.server().close(give_up::no_error, "the round is over");
      t.client().close(give_up::no_error, "the round is over");
      co_await t.until([&] { return running == 0; });
    }(*this, chance, random));
  }
}

/// A client of HTTP/3 that sends a byte at a time.
TEST(h3_raw, a_head_that_comes_in_pieces_is_waited_for) {
  io::shard shard;
  quic::test::run(shard, [](io::shard& shard) -> task<> {
    auto serving = quic::test::serving();
    serving.tls.alpn = {std::string{alpn_h3}};
    auto calling = quic::test::calling();
    calling.tls.alpn = {std::string{alpn_h3}};
    auto listening =
        must(quic::endpoint::listen(shard, quic::test::loopback(), std::move(serving)));
    auto opened = must(quic::endpoint::open(shard, {}));
    auto ours =
        must(co_await opened.connect(listening.local_address(), "localhost", std::move(calling)));
    auto theirs = must(co_await listening.accept());
    auto server = serve_h3(std::move(theirs), shard, {}, [](std::unique_ptr<exchange> e) {
      EXPECT_EQ(e->request().path, "/in/pieces");
      must(e->send_head({.status = 204}, true));
    });
    auto session = must(h3_session::make(end_of::client, {}));
    must(session->bind(2, 6, 10));
    request_head head{.authority = "weft.example", .path = "/in/pieces"};
    must(session->request(0, head, true, 3));
    std::map<std::int64_t, quic::stream> streams;
    for (;;) {
      auto next = must(session->next_write());
      if (!next) break;
      auto& s = streams[next->stream];
      if (!s)
        s = must(co_await ours.open_stream((next->stream & 2) != 0
                                               ? quic::direction::unidirectional
                                               : quic::direction::bidirectional));
      for (const slice& part : next->parts)
        for (std::size_t i = 0; i < part.size(); ++i) {
          must(co_await s.write(part.sub(i, 1)));
          (void)co_await shard.sleep_until(io::now() + 1ms);
        }
      if (next->fin) (void)s.finish();  // the server may have answered already
      must(session->taken(*next));
    }
    auto answer = must(co_await streams[0].read());
    EXPECT_FALSE(answer.empty());
  }(shard));
}

}  // namespace
}  // namespace weft::http::test
