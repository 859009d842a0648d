// A second connection that resumes the first, with data in its first flight, over bad networks.

#include <gtest/gtest.h>

#include <format>
#include <map>

#include <weft/sim/pair.hpp>
#include <weft/sim/pattern.hpp>
#include <weft/sim/scenario.hpp>

namespace weft::sim {
namespace {

using quic::core::connection;
using quic::core::connection_event;
using quic::core::stream;
using kind = connection_event::kind;

constexpr std::uint64_t key = 99;
constexpr std::size_t question = 5'000;

/// Answers every stream with its own bytes; notes what each connection brought.
class echo final : public application {
 public:
  void on_ready(host&, connection& c) override {
    while (c.poll_event()) {
    }
    while (stream* s = c.accept_stream()) serve(*s);
    while (stream* s = c.poll_stream()) {
      s->take_events();
      serve(*s);
    }
  }
  std::map<connection*, std::uint64_t> received;
  std::size_t ended = 0;
  std::size_t early = 0;

 private:
  void serve(stream& s) {
    auto& offset = offsets_[&s];
    for (slice part = s.read(); !part.empty(); part = s.read()) {
      EXPECT_FALSE(find_difference(key, offset, part));
      offset += part.size();
      EXPECT_TRUE(s.write(part));
    }
    if (!s.at_end() || finished_[&s]) return;
    finished_[&s] = true;
    ++ended;
    early += s.early_data();
    EXPECT_TRUE(s.finish());
  }
  std::map<stream*, std::uint64_t> offsets_;
  std::map<stream*, bool> finished_;
};

/// Asks once, again if the early attempt was rejected.
class asker final : public application {
 public:
  void on_ready(host&, connection& c) override {
    while (const auto event = c.poll_event()) {
      if (event->what == kind::early_data_ready) ask(c);
      if (event->what == kind::early_data_rejected) rejected = true, ask(c);
      if (event->what == kind::handshake_done) done = true;
      if (event->what == kind::closed) closed = true;
    }
    while (stream* s = c.poll_stream()) s->take_events();
    if (done && !asked_) ask(c);
    if (!asked_) return;
    for (slice part = asked_->read(); !part.empty(); part = asked_->read()) {
      EXPECT_FALSE(find_difference(key, answered, part));
      answered += part.size();
    }
    answered_all = asked_->at_end();
  }
  bool done = false, closed = false, rejected = false, answered_all = false;
  std::uint64_t answered = 0;

 private:
  void ask(connection& c) {
    if (asked_) c.release(*asked_);
    const auto opened = c.open_stream(true);
    ASSERT_TRUE(opened) << opened.error().to_string();
    asked_ = *opened;
    EXPECT_TRUE(asked_->write(make_pattern(key, 0, question)));
    EXPECT_TRUE(asked_->finish());
  }
  stream* asked_ = nullptr;
};

link_options draw_link(random& r) {
  link_options l{.delay = r.between(1ms, 50ms), .jitter = r.between(0ms, 5ms)};
  l.loss = r.uniform() * 0.15;
  l.reorder = r.uniform() * 0.2;
  l.duplicate = r.uniform() * 0.2;
  l.corrupt = r.uniform() * 0.05;
  return l;
}

void resume_over_bad_network(std::uint64_t seed, bool server_forgets, std::size_t& accepted) {
  SCOPED_TRACE(std::format("seed {}", seed));
  world w{seed};
  random r{seed};
  echo answers;
  host* server = &w.add_host(address::ipv4({10, 0, 0, 2}, 443), &answers);
  host& client = w.add_host(address::ipv4({10, 0, 0, 1}, 40'000));
  w.net().between(client.where(), server->where()).options = draw_link(r);
  w.net().between(server->where(), client.where()).options = draw_link(r);
  auto server_config = test_server({.handshake_timeout = 60s});
  server_config.tls.early_data = true;
  if (r.chance(0.2)) server_config.retry_above = 0;
  ASSERT_TRUE(server->listen(server_config));
  auto client_config = test_client({.handshake_timeout = 60s});

  asker first;
  client.app = &first;
  connection* c = *client.connect(server->where(), "localhost", client_config);
  ASSERT_TRUE(w.run_until([&] { return first.answered_all && !c->resumption().empty(); }, 120s));
  EXPECT_FALSE(c->session().resumed);
  client_config.resume = c->resumption();
  client_config.early_data = true;
  client.endpoint().release(*c, w.now());
  w.wake(client);
  w.run_for(5s);

  // New keys on the server: the ticket is worth nothing any more.
  if (server_forgets) {
    ASSERT_TRUE(server->listen(server_config));
  }
  asker second;
  client.app = &second;
  c = *client.connect(server->where(), "localhost", client_config);
  ASSERT_TRUE(w.run_until([&] { return second.answered_all && second.done; }, 120s));
  EXPECT_EQ(second.answered, question);
  EXPECT_EQ(answers.ended, 2u);
  if (server_forgets) {
    EXPECT_FALSE(c->session().resumed);
    EXPECT_FALSE(c->session().early_data_accepted);
    EXPECT_EQ(answers.early, 0u);
  } else {
    EXPECT_TRUE(c->session().resumed);
    EXPECT_EQ(c->session().early_data_accepted, !second.rejected);
    accepted += c->session().early_data_accepted;
  }
  EXPECT_TRUE(w.faults().empty()) << w.faults().front();
  client.endpoint().release(*c, w.now());
}

TEST(resumption, carries_early_data_exactly_once) {
  std::size_t accepted = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) resume_over_bad_network(seed, false, accepted);
  EXPECT_GT(accepted, 30u);
}

TEST(resumption, survives_rejected_early_data) {
  std::size_t accepted = 0;
  for (std::uint64_t seed = 100; seed < 120; ++seed) resume_over_bad_network(seed, true, accepted);
}

}  // namespace
}  // namespace weft::sim
