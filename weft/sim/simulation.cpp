#include <weft/sim/simulation.hpp>

#include <algorithm>
#include <array>
#include <format>

#include <weft/sim/pair.hpp>

namespace weft::sim {
namespace {

constexpr duration patience = 600s;  // of virtual time, for all traffic
constexpr std::uint64_t close_code = 0x77;
constexpr std::uint16_t server_port = 443;

}  // namespace

simulation::simulation(std::uint64_t seed, trouble kind)
    : random_{seed},
      scenario_{draw_scenario(random_, kind)},
      server_memory_{std::make_shared<memory_budget>()},
      client_memory_{std::make_shared<memory_budget>()},
      world_{random_.next()} {}

simulation::~simulation() = default;

outcome simulation::run() {
  set_up();
  carry_out();
  const time_point end = world_.now();
  tear_down();
  auto& faults = outcome_.faults;
  faults.insert(faults.begin(), world_.faults().begin(), world_.faults().end());
  outcome_.trace_hash = world_.trace_hash();
  outcome_.datagrams = world_.datagrams_sent();
  outcome_.virtual_time = end.time_since_epoch() - 1s;
  outcome_.links = world_.net().totals();
  return outcome_;
}

void simulation::demand(bool met, const std::string& what) {
  if (!met) outcome_.faults.push_back(what);
}

// Setting up --------------------------------------------------------------------------------------

address simulation::client_address(std::size_t number, std::uint16_t port) const {
  const auto last = static_cast<std::uint8_t>(number + 1);
  std::array<std::uint8_t, 16> v6{0xfd, 0, 0, 1};
  v6.back() = last;
  return scenario_.ipv6 ? address::ipv6(v6, port) : address::ipv4({10, 0, 1, last}, port);
}

/// Of a client's router, after it was moved to another network `moves` times.
address simulation::outer_address(std::size_t number, std::size_t moves) const {
  return client_address(100 + 20 * number + moves, 50'000);
}

void simulation::set_up() {
  const auto where = scenario_.ipv6 ? address::ipv6({0xfd}, server_port)
                                    : address::ipv4({10, 0, 0, 1}, server_port);
  host_options options{.coalesce = scenario_.coalesce, .wake_late = scenario_.wake_late};
  options.endpoint.memory = server_memory_;
  server_ = &world_.add_host(where, this, options);
  auto config = test_server(scenario_.server);
  if (scenario_.retry) config.retry_above = 0;
  const auto listening = server_->listen(std::move(config));
  demand(listening.has_value(), "the server does not listen");
  for (std::size_t n = 0; n < scenario_.clients; ++n) add_client(n);
}

void simulation::add_client(std::size_t number) {
  auto s = std::make_unique<session>();
  s->plan = draw_plan(random_, scenario_.traffic);
  s->book = std::make_unique<ledger>(s->plan);
  const address inside = client_address(number, 40'000);
  host_options options{.coalesce = scenario_.coalesce, .wake_late = scenario_.wake_late};
  options.endpoint.memory = client_memory_;
  s->machine = &world_.add_host(inside, this, options);
  world_.net().between(inside, server_->where()).options = scenario_.to_server;
  world_.net().between(server_->where(), inside).options = scenario_.to_client;
  if (scenario_.migrations.empty()) world_.net().translate(inside, outer_address(number, 0));
  auto made = s->machine->connect(server_->where(), "localhost", test_client(scenario_.client));
  demand(made.has_value(), "cannot connect");
  if (made) {
    s->connection = *made;
    s->client = std::make_unique<traffic_end>(*s->machine, **made, s->plan, *s->book);
  }
  sessions_.push_back(std::move(s));
}

void simulation::on_ready(host& at, quic::core::connection& c) {
  if (!c.user) {
    if (over_) return;
    const address owner = world_.net().owner_of(c.current_path().remote);
    for (std::size_t n = 0; n < sessions_.size(); ++n) {
      session& s = *sessions_[n];
      if (s.server || !c.is_server() || s.machine->where() != owner) continue;
      s.server = std::make_unique<traffic_end>(at, c, s.plan, *s.book);
      schedule_trouble(s, n);
      break;
    }
  }
  if (!c.user)
    return world_.fault("a connection nobody made, from " + c.current_path().remote.to_string());
  static_cast<traffic_end*>(c.user)->on_ready();
}

// Trouble -----------------------------------------------------------------------------------------

void simulation::schedule_trouble(session& s, std::size_t number) {
  auto& to_server = world_.net().between(s.machine->where(), server_->where()).options;
  auto& to_client = world_.net().between(server_->where(), s.machine->where()).options;
  for (const duration when : scenario_.rebindings)
    world_.after(when, [this, &s, number] { rebind(s, number); });
  for (const duration when : scenario_.migrations)
    world_.after(when, [this, &s, number] { migrate(s, number); });
  for (const auto& [when, length] : scenario_.blackouts) {
    const interval dark{world_.now() + when, world_.now() + when + length};
    to_server.blackouts.push_back(dark);
    to_client.blackouts.push_back(dark);
  }
}

void simulation::rebind(session& s, std::size_t number) {
  if (over_ || !s.client || s.client->closed()) return;
  if (!s.client->confirmed()) return world_.after(100ms, [this, &s, number] { rebind(s, number); });
  ++s.moves;
  // Mostly another port, now and then another address.
  const auto outer = outer_address(number, random_.chance(0.3) ? s.moves : 0)
                         .with_port(static_cast<std::uint16_t>(50'000 + s.moves));
  world_.note("rebinding to " + outer.to_string());
  world_.net().translate(s.machine->where(), outer);
}

void simulation::migrate(session& s, std::size_t number) {
  if (!s.client || s.client->closed() || !s.client->established() || over_) return;
  ++s.moves;
  const address to = client_address(number + 10u * s.moves, 41'000);
  s.machine->add_address(to);
  world_.net().between(to, server_->where()).options = scenario_.to_server;
  world_.net().between(server_->where(), to).options = scenario_.to_client;
  const bool immediate = random_.chance(0.5);
  const address from = s.connection->current_path().local;
  world_.note(std::format("migrating to {}{}", to.to_string(), immediate ? " at once" : ""));
  const auto started = s.connection->migrate({to, server_->where()}, immediate, world_.now());
  if (started && immediate && from != to) s.machine->remove_address(from);
  world_.wake(*s.machine);
}

// Carrying out ------------------------------------------------------------------------------------

bool simulation::everyone(const std::function<bool(session&)>& holds) {
  return std::ranges::all_of(sessions_, [&](const auto& s) { return holds(*s); });
}

void simulation::carry_out() {
  if (!outcome_.faults.empty()) return;
  const bool ready = world_.run_until(
      [&] {
        return everyone([](session& s) {
          return s.server && s.client->established() && s.server->established();
        });
      },
      60s);
  demand(ready, "the handshake does not finish" + describe());
  if (!ready) return;
  switch (scenario_.end) {
    case ending::orderly:
      return finish_orderly();
    case ending::abrupt:
      return finish_abruptly();
    case ending::vanishing:
      return finish_vanishing();
  }
}

void simulation::finish_orderly() {
  const bool settled = world_.run_until(
      [&] { return everyone([](session& s) { return s.book->settled(); }); }, patience);
  demand(settled, "the traffic does not end" + describe());
  if (!settled) return;
  world_.run_for(2s);  // streams that only the opener knew of
  prove_windows();
  if (!outcome_.faults.empty() || !world_.faults().empty()) return;
  check_ends(true);
  for (auto& s : sessions_) {
    auto& closer = random_.chance(0.5) ? *s->client : *s->server;
    closer.connection().close(close_code, "done", world_.now());
    world_.wake(*s->machine);
    world_.wake(*server_);
  }
  const auto closed = [](session& s) { return s.client->closed() && s.server->closed(); };
  demand(world_.run_until([&] { return everyone(closed); }, 200s), "does not close" + describe());
}

/// A bulk transfer each way, larger than all windows: completes only if no credit leaked before.
void simulation::prove_windows() {
  const std::uint64_t size =
      50'000 + 2 * std::max(scenario_.client.connection_window, scenario_.server.connection_window);
  for (auto& s : sessions_) {
    s->client->send_bulk(size);
    s->server->send_bulk(size);
  }
  const auto done = [size](session& s) {
    return s.client->bulk_ended() && s.server->bulk_ended() && s.client->bulk_sent() &&
           s.server->bulk_sent() && s.client->bulk_received() == size &&
           s.server->bulk_received() == size;
  };
  demand(world_.run_until([&] { return everyone(done); }, patience),
         "the bulk transfer does not end: a window leaked?" + describe());
  outcome_.bytes_checked += sessions_.size() * 2 * size;
  for (auto& s : sessions_) {
    s->client->release_bulk();
    s->server->release_bulk();
  }
  const auto empty = [](traffic_end& end) {
    const auto stats = end.connection().stats();
    return stats.send_buffered == 0 && stats.receive_buffered == 0 && end.live_streams() == 0;
  };
  const auto quiet = [&](session& s) { return empty(*s.client) && empty(*s.server); };
  demand(world_.run_until([&] { return everyone(quiet); }, 60s),
         "buffers never empty" + describe());
}

void simulation::finish_abruptly() {
  world_.run_for(random_.between(0ns, 2 * scenario_.traffic.spread + 100ms));
  for (auto& s : sessions_) {
    auto& closer = random_.chance(0.5) ? *s->client : *s->server;
    if (!closer.closed()) closer.connection().close(close_code, "enough", world_.now());
    world_.wake(*s->machine);
    world_.wake(*server_);
  }
  const auto closed = [](session& s) { return s.client->closed() && s.server->closed(); };
  demand(world_.run_until([&] { return everyone(closed); }, 200s), "does not close" + describe());
  check_ends(false);
}

void simulation::finish_vanishing() {
  world_.run_for(random_.between(0ns, 2 * scenario_.traffic.spread + 100ms));
  for (auto& s : sessions_) {
    s->client.reset();
    s->machine->crash();
  }
  const bool closed = world_.run_until(
      [&] { return everyone([](session& s) { return s.server->closed(); }); }, 600s);
  demand(closed, "a vanished client is never given up" + describe());
  check_ends(false);
}

// Checking ----------------------------------------------------------------------------------------

void simulation::check_ends(bool orderly) {
  for (const auto& [victim, bytes] : world_.net().forgeries())
    demand(bytes.to_bytes <= 3 * bytes.from_bytes,
           std::format("{} bytes from {} were answered by {}", bytes.from_bytes, victim.to_string(),
                       bytes.to_bytes));
  for (auto& s : sessions_) {
    for (auto& complaint : s->book->judge(orderly)) demand(false, complaint);
    for (const auto& record : s->book->streams)
      outcome_.bytes_checked += record.ways[0].read + record.ways[1].read;
    for (traffic_end* end : {s->client.get(), s->server.get()}) {
      if (!end) continue;
      outcome_.path_changes += end->path_changes();
      const auto& own = end == s->client.get() ? scenario_.client : scenario_.server;
      demand(end->most_received() <= own.connection_window,
             std::format("{} bytes received and unread, window {}", end->most_received(),
                         own.connection_window));
      // One write may overshoot on each stream.
      demand(
          end->most_unsent() <= own.connection_send_buffer + 200'000 + own.stream_send_buffer,
          std::format("{} bytes unsent, limit {}", end->most_unsent(), own.connection_send_buffer));
    }
  }
}

void simulation::tear_down() {
  over_ = true;
  const bool clean = outcome_.faults.empty() && world_.faults().empty();
  for (auto& s : sessions_) {
    if (s->client && s->machine->running())
      s->machine->endpoint().release(s->client->connection(), world_.now());
    if (s->server) server_->endpoint().release(s->server->connection(), world_.now());
    s->client.reset();
    s->server.reset();
    if (s->machine->running()) world_.wake(*s->machine);
  }
  world_.wake(*server_);
  if (clean) {
    world_.run_for(100s);
    demand(server_->endpoint().stats().connections == 0,
           std::format("{} connections left", server_->endpoint().stats().connections));
    check_memory();
  }
  for (auto& s : sessions_) s->machine->crash();
  server_->crash();
  if (clean) check_memory();
}

void simulation::check_memory() {
  const std::size_t each = scenario_.client.connection_window + scenario_.server.connection_window +
                           scenario_.client.connection_send_buffer +
                           scenario_.server.connection_send_buffer + 1'000'000;
  for (const auto& [budget, name] :
       {std::pair{server_memory_, "server"}, {client_memory_, "client"}}) {
    demand(budget->used() == 0, std::format("{} still holds {} bytes", name, budget->used()));
    demand(budget->peak() <= each * sessions_.size(),
           std::format("{} held up to {} bytes", name, budget->peak()));
  }
}

std::string simulation::describe() const {
  std::string text;
  for (const auto& s : sessions_) {
    for (const traffic_end* end : {s->client.get(), s->server.get()}) {
      if (!end) continue;
      auto& c = const_cast<traffic_end*>(end)->connection();
      const auto stats = c.stats();
      text += std::format(
          "\n  {}: state {}, sent {} lost {} received {}, cwnd {} flight {}, send {} receive {}, "
          "bulk got {}{}",
          c.is_server() ? "server" : "client", static_cast<int>(c.current_state()),
          stats.packets_sent, stats.packets_lost, stats.packets_received, stats.congestion_window,
          stats.bytes_in_flight, stats.send_buffered, stats.receive_buffered, end->bulk_received(),
          end->closed() ? ", closed: " + c.close_reason().to_string() : "");
    }
    text += s->book->describe_unsettled();
  }
  return text;
}

}  // namespace weft::sim
