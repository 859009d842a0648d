#pragma once

// Two endpoints joined by a pair of in-memory wires with a delay, on virtual time. In order and
// without loss unless a test says otherwise.

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <string>

#include <weft/quic/core/endpoint.hpp>

namespace weft::quic::core::test {

using namespace std::chrono_literals;

inline address local(int port) {
  return address::ipv4({127, 0, 0, 1}, static_cast<std::uint16_t>(port));
}
inline address far(int host, int port) {
  return address::ipv4({192, 0, 2, static_cast<std::uint8_t>(host)},
                       static_cast<std::uint16_t>(port));
}

inline const tls::credentials& identity() {
  static const auto made = tls::credentials::development().value();
  return made;
}

inline client_config client_defaults() {
  client_config config;
  config.tls.trusted = tls::trust::pinned({identity().public_key_fingerprint()});
  config.tls.alpn = {"test"};
  return config;
}
inline server_config server_defaults() {
  server_config config;
  config.tls.identity = identity();
  config.tls.alpn = {"test"};
  return config;
}

/// Text that says where it is, so that misplaced bytes are noticed.
inline std::string pattern(std::size_t size, std::size_t from = 0) {
  std::string text(size, ' ');
  for (std::size_t i = 0; i < size; ++i)
    text[i] = static_cast<char>('a' + ((from + i) * 7 + (from + i) / 251) % 26);
  return text;
}

struct flight {
  time_point at;
  bool to_server;
  path where;  ///< as the receiver sees it
  ecn mark;
  std::vector<std::byte> data;
  std::size_t segment;
};

class pair {
 public:
  explicit pair(client_config client = client_defaults(), server_config server = server_defaults(),
                endpoint_options client_side = {}, endpoint_options server_side = {})
      : config{std::move(client)} {
    client_endpoint = endpoint::create(std::move(client_side)).value();
    server_endpoint = endpoint::create(std::move(server_side)).value();
    EXPECT_TRUE(server_endpoint->listen(std::move(server)));
  }

  void connect() {
    auto made = client_endpoint->connect(way, "localhost", config, now);
    ASSERT_TRUE(made) << made.error().to_string();
    client = *made;
  }
  /// Connects and waits for both ends.
  void handshake() {
    connect();
    run_until([&] { return client_is(connection::state::established) && server != nullptr; });
    ASSERT_NE(server, nullptr) << (client ? client->close_reason().to_string() : "");
    run(5ms);
  }
  bool client_is(connection::state s) const { return client && client->current_state() == s; }

  /// Everything that happens at the present moment.
  void settle() {
    for (int turn = 0; turn < 1000; ++turn) {
      deliver();
      look(*client_endpoint, client_events);
      look(*server_endpoint, server_events);
      if (on_turn) on_turn();
      const bool sent = flush(*client_endpoint, true) | flush(*server_endpoint, false);
      if (!sent && (wire.empty() || earliest_arrival() > now)) return;
    }
  }
  time_point earliest_arrival() const {
    time_point first = never;
    for (const auto& f : wire) first = std::min(first, f.at);
    return first;
  }
  time_point next() const {
    if (client_endpoint->wants_transmit() || server_endpoint->wants_transmit()) return now;
    return std::min(
        {earliest_arrival(), client_endpoint->next_timeout(), server_endpoint->next_timeout()});
  }
  template <class Done>
  bool run_until(Done done, duration limit = 60s) {
    const time_point end = now + limit;
    for (std::size_t steps = 0; steps < 2'000'000; ++steps) {
      settle();
      if (done()) return true;
      const time_point at = next();
      if (at > end) {
        now = std::max(now, end);
        return false;
      }
      now = std::max(now, at);
      client_endpoint->handle_timeout(now);
      server_endpoint->handle_timeout(now);
    }
    ADD_FAILURE() << "time stands still";
    return false;
  }
  void run(duration d) {
    run_until([] { return false; }, d);
  }

  // Wires
  void deliver() {
    for (std::size_t i = 0; i < wire.size();) {
      if (wire[i].at > now) {
        ++i;
        continue;
      }
      flight f = std::move(wire[i]);
      wire.erase(wire.begin() + static_cast<std::ptrdiff_t>(i));
      auto& to = f.to_server ? *server_endpoint : *client_endpoint;
      to.handle_datagrams(f.where, f.mark, f.data, f.segment, now);
    }
  }
  bool flush(endpoint& from, bool from_client) {
    bool any = false;
    while (auto out = from.poll_transmit(buffer, now)) {
      any = true;
      ++trains;
      EXPECT_LE(out->size, 65'488u);
      for (std::size_t at = 0; at < out->size; at += out->segment) {
        const bytes one{buffer.data() + at, std::min(out->segment, out->size - at)};
        ++datagrams[one.size()];
        if (from_client)
          ++sent_by_client;
        else
          ++sent_by_server;
        if (mtu != 0 && one.size() > mtu) continue;
        flight f{now + delay,
                 from_client,
                 {out->path.remote, out->path.local},
                 out->ecn,
                 {one.begin(), one.end()},
                 one.size()};
        if (tamper && !tamper(f)) continue;
        wire.push_back(std::move(f));
      }
    }
    return any;
  }
  void look(endpoint& at, std::vector<connection_event::kind>& events) {
    while (connection* c = at.poll_connection()) {
      if (c->is_server() && !server) server = c;
      while (auto e = c->poll_event()) {
        events.push_back(e->what);
        if (e->what == connection_event::kind::incoming_stream && auto_accept)
          while (stream* s = c->accept_stream())
            (c->is_server() ? accepted : from_server).push_back(s);
      }
      while (stream* s = c->poll_stream()) {
        seen[s] |= s->take_events();
        if (auto_read) drain(*s);
      }
    }
  }
  void drain(stream& s) {
    auto& text = received[&s];
    for (slice piece; !(piece = s.read()).empty();) text += piece.text();
  }

  std::unique_ptr<endpoint> client_endpoint, server_endpoint;
  client_config config;
  connection* client = nullptr;
  connection* server = nullptr;
  time_point now{1s};
  duration delay = 1ms;
  std::size_t mtu = 0;
  path way{local(5000), local(443)};
  std::function<bool(flight&)> tamper;
  std::function<void()> on_turn;
  bool auto_accept = true, auto_read = true;

  std::deque<flight> wire;
  std::vector<std::byte> buffer = std::vector<std::byte>(65'536);
  std::vector<connection_event::kind> client_events, server_events;
  std::vector<stream*> accepted, from_server;
  std::map<stream*, std::uint8_t> seen;
  std::map<stream*, std::string> received;
  std::map<std::size_t, int> datagrams;  ///< count by size
  std::size_t trains = 0, sent_by_client = 0, sent_by_server = 0;
};

inline std::string read_all(stream& s) {
  std::string text;
  for (slice piece; !(piece = s.read()).empty();) text += piece.text();
  return text;
}

inline bool has(const std::vector<connection_event::kind>& events, connection_event::kind what) {
  return std::find(events.begin(), events.end(), what) != events.end();
}

struct transfer_result {
  bool complete;
  duration took;
};

/// Sends `size` bytes from the client on a stream of their own.
inline transfer_result transfer(pair& p, std::size_t size) {
  const std::string text = pattern(size);
  stream* s = p.client->open_stream(false).value();
  EXPECT_TRUE(s->write(slice::copy(text)));
  EXPECT_TRUE(s->finish());
  const auto known = p.accepted.size();
  const auto start = p.now;
  const bool done =
      p.run_until([&] { return p.accepted.size() > known && p.accepted.back()->at_end(); }, 60s);
  return {done && p.received[p.accepted.back()] == text, p.now - start};
}

}  // namespace weft::quic::core::test
