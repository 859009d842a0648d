// Links: weft_http_core
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <weft/http/core/h2_session.hpp>

// First byte: whose peer speaks (bit 0), whether its preface is left out (bit 1), and how the rest
// is cut. A session of ours answers whatever the peer makes it report, as an application would.

namespace {

using namespace weft;
using namespace weft::http;

constexpr std::size_t most_events = 100'000;

void settle(h2_session& session, std::size_t& answered) {
  for (int round = 0; round < 100; ++round) {
    for (event& each : std::exchange(session.events(), {})) {
      if (++answered > most_events) return;
      if (auto* request = std::get_if<event::request>(&each.what)) {
        if (request->head.fields.section_size() > 4096) __builtin_trap();
        session.set_urgency(each.id, request->urgency);
        (void)session.respond(each.id, {.fields = {{"x", "y"}}}, each.id % 8 == 1);
      } else if (auto* content = std::get_if<event::content>(&each.what)) {
        if (content->data.empty()) __builtin_trap();
        session.send(each.id, content->data, false);
        session.consume(each.id, content->data.size());
      } else if (std::get_if<event::end>(&each.what)) {
        if (each.id % 8 == 3)
          session.send_trailers(each.id, {{"t", "1"}});
        else
          session.send(each.id, {}, true);
      } else if (std::get_if<event::stopped>(&each.what)) {
        session.reset(each.id, give_up::cancelled);
      } else if (std::get_if<event::response>(&each.what)) {
        if (each.id % 4 == 1) session.stop(each.id, give_up::cancelled);
      }
    }
    std::vector<slice> out;
    session.collect(out, 4096);
    if (out.empty() && session.events().empty()) return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const bool serving = (data[0] & 1) == 0;
  h2_session session{serving ? h2_role::server : h2_role::client,
                     {.max_field_section = 4096,
                      .max_concurrent = 20,
                      .exchange_window = 65'535,
                      .connection_window = 100'000}};
  std::size_t answered = 0;
  if (!serving)
    for (int i = 0; i < 3; ++i) {
      auto id = session.request({.authority = "a", .path = "/"}, i == 0, 3);
      if (id && i == 1) session.send(*id, slice::copy("some content"), false);
      if (id && i == 2) session.send_trailers(*id, {{"a", "b"}});
    }
  settle(session, answered);
  time_point now{};
  bool open = true;
  if (serving && (data[0] & 2) == 0)
    open = session.receive(slice::copy("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), now).has_value();
  bytes input{reinterpret_cast<const std::byte*>(data) + 1, size - 1};
  const std::size_t step = (data[0] >> 2) == 0 ? input.size() : data[0] >> 2;
  while (open && !input.empty()) {
    const std::size_t count = std::min(step, input.size());
    now += std::chrono::milliseconds{1};
    open = session.receive(slice::copy(input.first(count)), now).has_value();
    input = input.subspan(count);
    settle(session, answered);
    if (session.open_exchanges() > 40) __builtin_trap();
  }
  if (!open && !session.failure()) __builtin_trap();
  settle(session, answered);
  return 0;
}
