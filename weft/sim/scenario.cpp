#include <weft/sim/scenario.hpp>

#include <algorithm>
#include <array>

namespace weft::sim {
namespace {

using apply = void (*)(scenario&, random&);

template <class Change>
void both(scenario& s, Change change) {
  change(s.to_server);
  change(s.to_client);
}

void add_loss(scenario& s, random& r) {
  both(s, [&](link_options& l) { l.loss = r.uniform() * (r.chance(0.2) ? 0.25 : 0.06); });
}

void add_bursts(scenario& s, random& r) {
  both(s, [&](link_options& l) {
    l.bursts = {.enter = 0.002 + r.uniform() * 0.02,
                .leave = 0.1 + r.uniform() * 0.4,
                .loss = 0.5 + r.uniform() * 0.5};
  });
}

void add_reordering(scenario& s, random& r) {
  both(s, [&](link_options& l) {
    l.reorder = r.uniform() * 0.3;
    l.reorder_by = r.between(100us, 40ms);
    l.jitter = r.between(0us, 10ms);
  });
}

void add_duplication(scenario& s, random& r) {
  both(s, [&](link_options& l) { l.duplicate = r.uniform() * 0.5; });
}

void add_corruption(scenario& s, random& r) {
  both(s, [&](link_options& l) { l.corrupt = r.uniform() * 0.15; });
}

void add_rebinding(scenario& s, random& r) {
  for (auto count = r.between(std::uint64_t{1}, std::uint64_t{4}); count > 0; --count)
    s.rebindings.push_back(r.between(20ms, 2s));
}

void add_blackout(scenario& s, random& r) {
  for (auto count = r.between(std::uint64_t{1}, std::uint64_t{2}); count > 0; --count)
    s.blackouts.push_back({r.between(0ms, 1s), r.between(10ms, 3s)});
}

void make_mtu_small(scenario& s, random& r) {
  both(s, [&](link_options& l) {
    l.mtu = r.chance(0.5) ? 1200 : r.between(std::uint64_t{1200}, std::uint64_t{1472});
  });
}

void add_marks(scenario& s, random& r) {
  both(s, [&](link_options& l) {
    l.rate = r.between(std::uint64_t{500'000}, std::uint64_t{10'000'000});
    l.queue = 64 * 1024;
    l.mark_above = r.between(std::uint64_t{2'000}, std::uint64_t{20'000});
    l.bleach_ecn = r.chance(0.15);
  });
}

void make_narrow(scenario& s, random& r) {
  both(s, [&](link_options& l) {
    l.rate = r.between(std::uint64_t{100'000}, std::uint64_t{3'000'000});
    l.queue = r.between(std::uint64_t{6'000}, std::uint64_t{60'000});
  });
}

void add_migration(scenario& s, random& r) {
  for (auto count = r.between(std::uint64_t{1}, std::uint64_t{3}); count > 0; --count)
    s.migrations.push_back(r.between(50ms, 2s));
}

void add_forgery(scenario& s, random& r) {
  both(s, [&](link_options& l) { l.forge = r.uniform() * 0.05; });
}

void add_everything(scenario& s, random& r) {
  static constexpr std::array<apply, 11> all{
      add_loss,     add_bursts,     add_reordering, add_duplication, add_corruption, add_rebinding,
      add_blackout, make_mtu_small, add_marks,      make_narrow,     add_forgery};
  for (const auto& one : all)
    if (r.chance(0.5)) one(s, r);
  // Together they would starve the handshake.
  both(s, [](link_options& l) {
    l.loss = std::min(l.loss, 0.05);
    l.corrupt = std::min(l.corrupt, 0.05);
    l.bursts.enter = std::min(l.bursts.enter, 0.01);
  });
}

void nothing(scenario&, random&) {}

constexpr std::array<apply, trouble_kinds> makers{
    nothing,        add_loss,      add_bursts,   add_reordering, add_duplication,
    add_corruption, add_rebinding, add_blackout, make_mtu_small, add_marks,
    make_narrow,    add_migration, add_forgery,  add_everything};

/// Windows from tiny to default: small ones make flow control the usual state.
quic::transport_options draw_transport(random& r) {
  quic::transport_options t;
  t.handshake_timeout = 60s;
  t.idle_timeout = 60s;
  t.keep_alive = 1s;  // also notices that the way back has died
  t.stream_window = r.magnitude(8'000, 500'000);
  t.connection_window = t.stream_window + r.magnitude(4'000, 500'000);
  t.stream_send_buffer = r.magnitude(8'000, 300'000);
  t.connection_send_buffer = t.stream_send_buffer + r.magnitude(8'000, 300'000);
  t.max_bidi_streams = r.magnitude(2, 100);
  t.max_uni_streams = r.magnitude(2, 100);
  t.max_ack_delay = r.chance(0.5) ? 1ms : 25ms;
  t.ack_threshold = r.chance(0.7) ? 2 : 10;
  static constexpr std::array<quic::congestion, 3> controllers{
      quic::congestion::cubic, quic::congestion::bbr, quic::congestion::reno};
  t.controller = controllers[r.below(controllers.size())];
  t.path_mtu_discovery = r.chance(0.7);
  t.max_datagram_frame = r.chance(0.8) ? 1'200 : 0;
  return t;
}

void draw_links(scenario& s, random& r) {
  both(s, [&](link_options& l) {
    l.delay = r.between(100us, 60ms);
    l.jitter = r.chance(0.3) ? r.between(0us, 2ms) : 0ms;
    if (r.chance(0.3)) l.rate = r.between(std::uint64_t{1'000'000}, std::uint64_t{50'000'000});
    if (r.chance(0.1)) l.mtu = 65'507;
  });
}

}  // namespace

std::string_view to_string(trouble kind) noexcept {
  static constexpr std::array<std::string_view, trouble_kinds> names{
      "none",       "loss",      "bursts",   "reordering", "duplication",
      "corruption", "rebinding", "blackout", "small_mtu",  "ecn_marks",
      "narrow",     "migration", "forgery",  "everything"};
  return names[static_cast<std::size_t>(kind)];
}

scenario draw_scenario(random& source, trouble kind) {
  scenario s{.kind = kind};
  const double fate = source.uniform();
  s.end = fate < 0.85 ? ending::orderly : fate < 0.95 ? ending::abrupt : ending::vanishing;
  s.clients = source.chance(0.1) ? 3 : 1;
  s.ipv6 = source.chance(0.3);
  s.client = draw_transport(source);
  s.server = draw_transport(source);
  s.wake_late = source.chance(0.3) ? source.between(0us, 2ms) : 0ms;
  s.coalesce = source.chance(0.7);
  s.retry = source.chance(0.15);
  draw_links(s, source);
  s.traffic.streams = source.magnitude(1, 60);
  s.traffic.largest = source.chance(0.1) ? 300'000 : 60'000;
  s.traffic.spread = source.between(0ms, 1s);
  s.traffic.trouble = source.chance(0.3) ? 0.8 : 0.25;
  s.traffic.datagrams = source.below(30);
  s.traffic.key_updates = source.below(4);
  makers[static_cast<std::size_t>(kind)](s, source);
  return s;
}

}  // namespace weft::sim
