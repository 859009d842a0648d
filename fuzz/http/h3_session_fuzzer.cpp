// Links: weft_http_core
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include <weft/http/core/h3_session.hpp>

// First byte: whose peer speaks (bit 0). Then records: a byte that says on which of eight streams
// and whether it ends (bit 3), is reset (bit 4) or stopped (bit 5) by the peer, a byte of length,
// and so many bytes. A session of ours answers whatever the peer makes it report, as an application
// would.

namespace {

using namespace weft;
using namespace weft::http;

constexpr std::size_t most_events = 100'000;
constexpr std::size_t field_limit = 4096;

struct peer {
  std::unique_ptr<h3_session> session;
  std::map<std::int64_t, bool> over;  // streams that the peer ended, or was told to stop
  std::size_t answered = 0;
  time_point now{};
  bool serving;
  bool failed = false;
};

void answer(h3_session& session, event& each) {
  if (auto* request = std::get_if<event::request>(&each.what)) {
    if (request->head.fields.section_size() > field_limit) __builtin_trap();
    if (request->urgency > 7) __builtin_trap();
    (void)session.respond(each.id, {.fields = {{"x", "y"}}}, each.id % 16 == 4);
  } else if (auto* response = std::get_if<event::response>(&each.what)) {
    if (response->head.fields.section_size() > field_limit) __builtin_trap();
    if (each.id == 8) session.stop(each.id, give_up::cancelled);
  } else if (auto* content = std::get_if<event::content>(&each.what)) {
    if (content->data.empty()) __builtin_trap();
    session.send(each.id, content->data, false);
  } else if (auto* end = std::get_if<event::end>(&each.what)) {
    if (end->trailers.section_size() > field_limit) __builtin_trap();
    if (each.id % 16 == 8)
      (void)session.send_trailers(each.id, {{"t", "1"}});
    else
      session.send(each.id, {}, true);
  } else if (std::get_if<event::stopped>(&each.what)) {
    session.reset(each.id, give_up::cancelled);
  }
}

void settle(peer& p) {
  h3_session& session = *p.session;
  for (int round = 0; round < 100 && !p.failed; ++round) {
    for (event& each : std::exchange(session.events(), {})) {
      if (++p.answered > most_events) return;
      answer(session, each);
    }
    bool wrote = false;
    for (;;) {
      auto next = session.next_write();
      if (!next) return void(p.failed = true);
      if (!*next) break;
      wrote = true;
      if (!session.taken(**next)) return void(p.failed = true);
    }
    for (const h3_command& each : std::exchange(session.commands(), {}))
      if (each.does == h3_command::what::stop_sending) p.over[each.stream] = true;
    if (!wrote && session.events().empty()) return;
  }
}

/// The peer's: its control stream and another two, and five for requests.
std::int64_t stream_of(const peer& p, unsigned number) {
  if (number >= 3) return 4 * static_cast<std::int64_t>(number - 3);
  return 4 * static_cast<std::int64_t>(number) + (p.serving ? 2 : 3);
}

void say(peer& p, unsigned how, bytes what) {
  const std::int64_t id = stream_of(p, how & 7);
  const bool ours = !p.serving && (how & 7) >= 3;  // on requests that this end began
  if ((how & 32) != 0) p.session->receive_stop(id, 0x10c);
  if (p.over[id] || (ours && !p.session->is_open(id))) return;
  if ((how & 16) != 0) {
    p.over[id] = true;
    p.failed = !p.session->receive_reset(id, 0x10c);
    return;
  }
  const bool fin = (how & 8) != 0;
  p.over[id] = fin;
  p.now += std::chrono::milliseconds{1};
  if (!what.empty()) p.failed = !p.session->receive(id, slice::copy(what), false, p.now);
  if (fin && !p.failed) p.failed = !p.session->receive(id, {}, true, p.now);
}

void begin(peer& p) {
  p.session = *h3_session::make(p.serving ? end_of::server : end_of::client,
                                {.max_field_section = field_limit, .max_concurrent = 20});
  const std::int64_t first = p.serving ? 3 : 2;
  if (!p.session->bind(first, first + 4, first + 8)) __builtin_trap();
  if (p.serving) return;
  for (const std::int64_t id : {0, 4, 8, 12, 16})
    if (!p.session->request(id, {.authority = "a", .path = "/"}, id == 0, 3)) __builtin_trap();
  p.session->send(4, slice::copy("some content"), false);
  (void)p.session->send_trailers(12, {{"a", "b"}});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  peer p{.serving = (data[0] & 1) == 0};
  begin(p);
  settle(p);
  bytes input{reinterpret_cast<const std::byte*>(data) + 1, size - 1};
  while (!p.failed && input.size() >= 2) {
    const auto how = std::to_integer<unsigned>(input[0]);
    const std::size_t count = std::min(std::to_integer<std::size_t>(input[1]), input.size() - 2);
    say(p, how, input.subspan(2, count));
    input = input.subspan(2 + count);
    settle(p);
    if (p.session->open_exchanges() > 5) __builtin_trap();
  }
  return 0;
}
