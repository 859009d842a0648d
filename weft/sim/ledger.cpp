#include <weft/sim/ledger.hpp>

#include <algorithm>
#include <format>

namespace weft::sim {
namespace {

std::uint64_t code(const stream_plan& plan, std::uint64_t kind) noexcept {
  return (scramble(plan.key + kind) & 0xffff'ff00) | kind;  // fits a varint
}

bool is_one_of(std::uint64_t seen, std::initializer_list<std::uint64_t> allowed) {
  return std::ranges::find(allowed, seen) != allowed.end();
}

/// Judges one direction; `complain` takes what is wrong.
template <class Complain>
void judge_way(const stream_record& s, int way, bool orderly, const Complain& complain) {
  const direction_record& d = s.ways[way];
  const bool from_opener = way == 0;
  if (d.read > d.written)
    complain(std::format("{} bytes read, only {} written", d.read, d.written));
  if (d.end_seen && (!d.finished || d.read != d.written))
    complain(
        std::format("end seen after {} of {} bytes, finished: {}", d.read, d.written, d.finished));
  const std::uint64_t stop = stop_code(*s.plan, way);
  const std::uint64_t receiver_abandon = abandon_code(*s.plan, !from_opener);
  if (d.stopped_by && !is_one_of(*d.stopped_by, {stop, receiver_abandon}))
    complain(std::format("stopped with {:#x}", *d.stopped_by));
  if (d.stopped_by && !d.stop_with && !d.receiver_abandoned)
    complain("stopped, but the receiver never asked");
  if (d.reset_seen) {
    const std::uint64_t sender_abandon = abandon_code(*s.plan, from_opener);
    if (!is_one_of(*d.reset_seen,
                   {reset_code(*s.plan, way), stop, sender_abandon, receiver_abandon}))
      complain(std::format("reset with {:#x}", *d.reset_seen));
    if (!d.reset_with && !d.sender_abandoned && !d.stop_with && !d.receiver_abandoned)
      complain("reset seen, but nobody reset it");
  }
  if (!orderly) return;
  if (d.orderly() && !d.end_seen) complain(std::format("no end seen after {} bytes", d.read));
  if (d.orderly() && d.written != (from_opener ? s.plan->opener : s.plan->responder).size)
    complain(std::format("only {} bytes written", d.written));
  const bool receiver_waits = !d.stop_with && !d.receiver_abandoned;
  if (receiver_waits && s.responder_seen && !d.end_seen && !d.reset_seen)
    complain(std::format("receiver left without end or reset after {} bytes", d.read));
}

}  // namespace

std::uint64_t reset_code(const stream_plan& plan, int direction) noexcept {
  return code(plan, 1 + static_cast<std::uint64_t>(direction));
}
std::uint64_t stop_code(const stream_plan& plan, int direction) noexcept {
  return code(plan, 3 + static_cast<std::uint64_t>(direction));
}
std::uint64_t abandon_code(const stream_plan& plan, bool opener) noexcept {
  return code(plan, opener ? 5 : 6);
}

ledger::ledger(const traffic_plan& plan) {
  streams.resize(plan.streams.size());
  for (std::size_t i = 0; i < streams.size(); ++i) streams[i].plan = &plan.streams[i];
}

void ledger::opened(stream_record& record, quic::core::stream_id id) {
  record.id = id;
  by_id_[id] = &record;
}

stream_record* ledger::find(quic::core::stream_id id) {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

bool ledger::settled() const noexcept {
  return std::ranges::all_of(streams, [](const stream_record& s) { return s.settled(); });
}

std::vector<std::string> ledger::judge(bool orderly) const {
  std::vector<std::string> complaints;
  for (const auto& s : streams) {
    if (s.id < 0) {
      if (orderly) complaints.push_back("a stream was never opened");
      continue;
    }
    for (int way = 0; way < (s.plan->bidirectional ? 2 : 1); ++way)
      judge_way(s, way, orderly, [&](const std::string& what) {
        complaints.push_back(
            std::format("stream {} {}: {}", s.id, way == 0 ? "out" : "back", what));
      });
    if (orderly && s.undisturbed() && !s.responder_seen)
      complaints.push_back(std::format("stream {} never reached the peer", s.id));
  }
  for (const auto& [number, copies] : datagrams_received)
    if (copies > 1) complaints.push_back(std::format("datagram {} came {} times", number, copies));
  return complaints;
}

std::string ledger::describe_unsettled() const {
  std::string text;
  for (const auto& s : streams) {
    if (s.settled()) continue;
    text +=
        std::format("\n  stream {} ({}{}):", s.id, s.plan->by_server ? "server's " : "client's ",
                    s.plan->bidirectional ? "bidi" : "uni");
    for (const auto& d : s.ways)
      text +=
          std::format(" [wrote {} fin {} reset {} stopped {} | read {} end {} reset {} stop {}]",
                      d.written, d.finished, d.reset_with.has_value(), d.stopped_by.has_value(),
                      d.read, d.end_seen, d.reset_seen.has_value(), d.stop_with.has_value());
    text += std::format(" opener released {}, responder seen {} released {}", s.opener_released,
                        s.responder_seen, s.responder_released);
  }
  return text;
}

}  // namespace weft::sim
