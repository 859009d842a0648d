#include <weft/sim/traffic.hpp>

#include <algorithm>
#include <cstring>
#include <format>

#include <weft/sim/pattern.hpp>

namespace weft::sim {
namespace {

using quic::core::connection_event;
using quic::core::stream_id;

constexpr std::uint64_t datagram_key = 0x6461746167726d;
constexpr std::uint64_t bulk_key = 0x62756c6b;

}  // namespace

traffic_end::traffic_end(host& at, quic::core::connection& c, const traffic_plan& plan,
                         ledger& book)
    : host_{at}, connection_{c}, plan_{plan}, book_{book} {
  c.user = this;
}

traffic_end::~traffic_end() {
  *alive_ = false;
}

void traffic_end::expect(bool condition, stream_id id, std::string_view what) {
  if (!condition)
    host_.in().fault(
        std::format("{} stream {}: {}", connection_.is_server() ? "server" : "client", id, what));
}

template <class Text>
void traffic_end::tell(stream_id id, const Text& text) const {
  if (!host_.in().tracing()) return;
  host_.in().note(
      std::format("{} stream {}: {}", connection_.is_server() ? "server" : "client", id, text()));
}

void traffic_end::later(duration delay, std::function<void()> action) {
  host_.in().after(delay, [this, alive = alive_, action = std::move(action)] {
    if (!*alive || closed_) return;
    action();
    host_.in().wake(host_);
  });
}

// Connection --------------------------------------------------------------------------------------

void traffic_end::on_ready() {
  while (const auto event = connection_.poll_event()) handle(*event);
  while (quic::core::stream* s = connection_.accept_stream()) accept(*s);
  while (quic::core::stream* s = connection_.poll_stream()) look_at(*s);
  measure();
}

void traffic_end::handle(const connection_event& event) {
  using kind = connection_event::kind;
  if (closed_) host_.in().fault("an event after `closed`");
  switch (event.what) {
    case kind::handshake_done:
      if (!established_) start_plan();
      established_ = true;
      break;
    case kind::stream_credit:
      open_waiting();
      open_bulk();
      break;
    case kind::new_session:
      confirmed_ = true;
      break;
    case kind::datagram:
      read_datagrams();
      break;
    case kind::path_changed:
      ++path_changes_;
      break;
    case kind::closed:
      closed_ = true;
      host_.in().note(std::format("{} closed: {}", connection_.is_server() ? "server" : "client",
                                  connection_.close_reason().to_string()));
      lose_everything();
      break;
    default:
      break;
  }
}

void traffic_end::start_plan() {
  const bool server = connection_.is_server();
  for (auto& record : book_.streams)
    if (record.plan->by_server == server)
      later(record.plan->start, [this, &record] { open(record); });
  for (std::size_t i = 0; i < plan_.datagrams.size(); ++i)
    if (const auto& d = plan_.datagrams[i]; d.by_server == server)
      later(d.start, [this, i, size = d.size] { send_datagram(i, size); });
  for (const auto& [when, by_server] : plan_.key_updates)
    if (by_server == server) later(when, [this] { update_keys(); });
}

void traffic_end::update_keys() {
  const auto done = connection_.update_keys(host_.in().now());
  tell(-1, [&] { return "update of keys: " + (done ? "begun" : done.error().to_string()); });
}

void traffic_end::measure() {
  if (closed_) return;
  const auto stats = connection_.stats();
  most_received_ = std::max(most_received_, stats.receive_buffered);
  most_unsent_ = std::max(most_unsent_, stats.send_buffered);
}

/// The connection is over: its streams say so and are released in whatever state they are.
void traffic_end::lose_everything() {
  while (quic::core::stream* s = connection_.accept_stream()) accept(*s);
  while (!live_.empty()) {
    live_stream& l = live_.begin()->second;
    expect(l.stream->connection_closed(), l.stream->id(), "outlives its connection");
    expect(!l.stream->write(slice::copy("x")).has_value(), l.stream->id(),
           "takes bytes when closed");
    receive(l);
    release(l, 0);
  }
  release_bulk();
}

// Datagrams ---------------------------------------------------------------------------------------

void traffic_end::send_datagram(std::uint64_t number, std::size_t size) {
  size = std::min(size, connection_.max_datagram());
  if (size < sizeof number) return;
  buffer payload = buffer::allocate(size);
  std::memcpy(payload.data(), &number, sizeof number);
  fill_pattern(datagram_key + number, 0, payload.span().subspan(sizeof number));
  if (connection_.send_datagram(std::move(payload).freeze())) ++book_.datagrams_sent;
}

void traffic_end::read_datagrams() {
  while (const auto payload = connection_.read_datagram()) {
    std::uint64_t number = 0;
    expect(payload->size() >= sizeof number, -1, "datagram cut short");
    if (payload->size() < sizeof number) continue;
    std::memcpy(&number, payload->data(), sizeof number);
    const bytes rest = payload->span().subspan(sizeof number);
    expect(number < plan_.datagrams.size(), -1, "datagram nobody sent");
    expect(!find_difference(datagram_key + number, 0, rest), -1, "datagram damaged");
    ++book_.datagrams_received[number];
  }
}

// Opening and accepting ---------------------------------------------------------------------------

void traffic_end::open(stream_record& record) {
  if (!waiting_.empty()) return waiting_.push_back(&record);
  auto opened = connection_.open_stream(record.plan->bidirectional);
  if (!opened) {
    expect(opened.error() == errc::exhausted, -1, opened.error().to_string());
    return waiting_.push_back(&record);
  }
  quic::core::stream& s = **opened;
  expect(quic::core::is_server_initiated(s.id()) == connection_.is_server(), s.id(), "wrong id");
  expect(quic::core::is_bidirectional(s.id()) == record.plan->bidirectional, s.id(), "wrong kind");
  expect(!book_.find(s.id()), s.id(), "id given twice");
  tell(s.id(), [] { return "opened"; });
  book_.opened(record, s.id());
  s.set_priority(record.plan->urgency, record.plan->incremental);
  live_stream l{.stream = &s, .record = &record, .opener = true, .can_send = true};
  l.can_receive = record.plan->bidirectional;
  l.receive_over = !l.can_receive;
  live_.emplace(s.id(), l);
  progress(s.id());
}

void traffic_end::open_waiting() {
  auto waiting = std::exchange(waiting_, {});
  // Each kind has credit of its own: those still refused queue up again.
  for (stream_record* record : waiting) {
    auto others = std::exchange(waiting_, {});
    open(*record);
    waiting_.insert(waiting_.begin(), others.begin(), others.end());
  }
}

void traffic_end::accept(quic::core::stream& s) {
  expect(quic::core::is_server_initiated(s.id()) != connection_.is_server(), s.id(),
         "own, accepted");
  stream_record* record = book_.find(s.id());
  if (!record) {  // beside the plan: the bulk transfer
    expect(!peer_bulk_, s.id(), "nobody opened this");
    peer_bulk_ = &s;
    return read_bulk(s);
  }
  expect(!record->responder_seen, s.id(), "accepted twice");
  tell(s.id(), [] { return "accepted"; });
  record->responder_seen = true;
  live_stream l{.stream = &s, .record = record, .can_receive = true};
  l.can_send = record->plan->bidirectional;
  l.send_over = !l.can_send;
  if (l.can_send) s.set_priority(record->plan->urgency, record->plan->incremental);
  live_.emplace(s.id(), l);
  progress(s.id());
}

void traffic_end::look_at(quic::core::stream& s) {
  if (&s == bulk_) {
    s.take_events();
    return pump_bulk();
  }
  if (&s == peer_bulk_) {
    s.take_events();
    return read_bulk(s);
  }
  const auto found = live_.find(s.id());
  expect(found != live_.end() && found->second.stream == &s, s.id(), "events after its release");
  const unsigned events = s.take_events();
  tell(s.id(), [&] { return std::format("events {:#x}", events); });
  if (found != live_.end()) progress(found->second);
}

void traffic_end::progress(stream_id id) {
  if (const auto found = live_.find(id); found != live_.end()) progress(found->second);
}

void traffic_end::progress(live_stream& l) {
  receive(l);
  send(l);
  if (!cut_short(l)) release_when_done(l);
}

// Sending -----------------------------------------------------------------------------------------

void traffic_end::send(live_stream& l) {
  if (!l.can_send || l.send_over) return;
  if (const auto stopped = l.stream->stopped_code()) {
    l.out().stopped_by = *stopped;
    l.send_over = true;
    return;
  }
  if (l.half().answer_at_end && !l.receive_over) return;
  while (!l.send_over && write_chunk(l)) {
  }
}

bool traffic_end::write_chunk(live_stream& l) {
  direction_record& out = l.out();
  const half_plan& half = l.half();
  const std::uint64_t stop = std::min(half.size, half.reset_at.value_or(half.size));
  if (out.written == stop && half.reset_at) {
    out.reset_with = reset_code(*l.record->plan, l.out_way());
    l.stream->reset(*out.reset_with);
    tell(l.stream->id(), [&] { return std::format("reset after {}", out.written); });
    l.send_over = true;
    return false;
  }
  if (out.written == half.size) {
    if (!l.finishing) finish(l);
    return false;
  }
  if (l.stream->writable() == 0) return false;
  const auto count =
      static_cast<std::size_t>(std::min<std::uint64_t>(half.chunk, stop - out.written));
  const auto done =
      l.stream->write(make_pattern(l.record->plan->pattern(l.out_way()), out.written, count));
  if (done) {
    out.written += count;
    return true;
  }
  expect(done.error() == errc::stopped || done.error() == errc::closed, l.stream->id(),
         done.error().to_string());
  return false;
}

void traffic_end::finish(live_stream& l) {
  const auto now = [this, id = l.stream->id()] {
    const auto found = live_.find(id);
    if (found == live_.end() || found->second.send_over) return;
    live_stream& l = found->second;
    const auto done = l.stream->finish();
    if (!done) return expect(done.error() == errc::stopped, id, done.error().to_string());
    l.out().finished = true;
    tell(id, [&] { return std::format("finished after {}", l.out().written); });
    l.send_over = true;
  };
  if (l.half().finish_later == 0ns) return now();
  l.finishing = true;
  later(l.half().finish_later, [this, now, id = l.stream->id()] {
    now();
    progress(id);
  });
}

// Receiving ---------------------------------------------------------------------------------------

void traffic_end::receive(live_stream& l) {
  if (!l.can_receive || l.receive_over || l.pausing) return;
  const half_plan& half = l.half();
  while (!l.receive_over) {
    const std::uint64_t until_stop = half.stop_at ? *half.stop_at - l.in().read : ~std::uint64_t{0};
    if (until_stop == 0) {
      l.in().stop_with = stop_code(*l.record->plan, l.in_way());
      l.stream->stop_sending(*l.in().stop_with);
      tell(l.stream->id(), [&] { return std::format("stop after {}", l.in().read); });
      l.receive_over = true;
      return;
    }
    const auto limit = std::min<std::uint64_t>(half.read_limit, until_stop);
    const slice data = l.stream->read(static_cast<std::size_t>(limit));
    if (data.empty()) break;
    expect(data.size() <= limit, l.stream->id(), "read gave more than asked for");
    take(l, data);
    if (half.read_pause > 0ns && !closed_) {
      l.pausing = true;
      return later(half.read_pause, [this, id = l.stream->id()] {
        if (const auto found = live_.find(id); found != live_.end()) {
          found->second.pausing = false;
          progress(found->second);
        }
      });
    }
  }
  notice_end(l);
}

void traffic_end::take(live_stream& l, const slice& data) {
  direction_record& in = l.in();
  if (const auto wrong = find_difference(l.record->plan->pattern(l.in_way()), in.read, data))
    expect(false, l.stream->id(), std::format("byte {} is wrong", *wrong));
  in.read += data.size();
  expect(in.read <= in.written, l.stream->id(), "more read than was written");
}

void traffic_end::notice_end(live_stream& l) {
  if (l.receive_over) return;
  if (l.stream->at_end()) {
    tell(l.stream->id(), [&] { return std::format("end after {}", l.in().read); });
    l.in().end_seen = true;
    l.receive_over = true;
  } else if (const auto code = l.stream->reset_code()) {
    tell(l.stream->id(), [&] { return std::format("was reset after {}", l.in().read); });
    l.in().reset_seen = *code;
    l.receive_over = true;
  }
}

// Releasing ---------------------------------------------------------------------------------------

/// Abandons the stream where the plan says so.
bool traffic_end::cut_short(live_stream& l) {
  const auto& at = l.half().abandon_at;
  if (!at || l.in().read + l.out().written < *at) return false;
  if (l.send_over && l.receive_over) return false;
  if (!l.send_over) l.out().sender_abandoned = true;
  if (!l.receive_over) l.in().receiver_abandoned = true;
  release(l, abandon_code(*l.record->plan, l.opener));
  return true;
}

void traffic_end::release_when_done(live_stream& l) {
  if (l.stream->closed() && !l.pausing && !closed_) {
    expect(l.send_over || l.finishing, l.stream->id(), "closed while still sending");
    expect(l.receive_over, l.stream->id(), "closed without end or reset");
  }
  if (!l.send_over || !l.receive_over) return;
  if (l.half().wait_closed && !l.stream->closed()) return;
  release(l, 0);
}

void traffic_end::release(live_stream& l, std::uint64_t code) {
  (l.opener ? l.record->opener_released : l.record->responder_released) = true;
  quic::core::stream* s = l.stream;
  tell(s->id(), [&] { return std::format("released with {:#x}, closed: {}", code, s->closed()); });
  live_.erase(s->id());
  connection_.release(*s, code);
}

// Bulk --------------------------------------------------------------------------------------------

void traffic_end::send_bulk(std::uint64_t size) {
  bulk_left_ = size;
  open_bulk();
  host_.in().wake(host_);
}

/// Waits for stream credit if need be.
void traffic_end::open_bulk() {
  if (bulk_ || bulk_left_ == 0) return;
  const auto opened = connection_.open_stream(false);
  if (!opened) return expect(opened.error() == errc::exhausted, -1, opened.error().to_string());
  bulk_ = *opened;
  pump_bulk();
}

void traffic_end::pump_bulk() {
  while (bulk_left_ > 0 && bulk_->writable() > 0) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(bulk_left_, 16'384));
    if (!bulk_->write(make_pattern(bulk_key, bulk_written_, count))) return;
    bulk_written_ += count;
    bulk_left_ -= count;
    if (bulk_left_ == 0) expect(bulk_->finish().has_value(), bulk_->id(), "cannot finish");
  }
}

void traffic_end::read_bulk(quic::core::stream& s) {
  for (slice data = s.read(); !data.empty(); data = s.read()) {
    expect(!find_difference(bulk_key, bulk_received_, data), s.id(), "bulk byte is wrong");
    bulk_received_ += data.size();
  }
  bulk_ended_ = s.at_end();
}

void traffic_end::release_bulk() {
  for (auto** s : {&bulk_, &peer_bulk_})
    if (*s) connection_.release(*std::exchange(*s, nullptr));
}

}  // namespace weft::sim
