#include <weft/sim/plan.hpp>

#include <array>

namespace weft::sim {
namespace {

std::optional<std::uint64_t> some_point(random& source, std::uint64_t size) {
  return source.between(std::uint64_t{0}, size);
}

half_plan draw_half(random& source, const traffic_options& options, std::uint64_t size) {
  static constexpr std::array<std::size_t, 5> chunks{100, 1'000, 5'000, 16'384, 200'000};
  half_plan half{.size = size, .chunk = chunks[source.below(chunks.size())]};
  if (source.chance(0.2)) half.finish_later = source.between(0ns, 50ms);
  if (source.chance(options.slow)) {
    half.read_limit = source.between(std::uint64_t{500}, std::uint64_t{8'000});
    half.read_pause = source.between(1ms, 20ms);
  }
  half.wait_closed = source.chance(0.5);
  return half;
}

/// One thing that goes wrong, somewhere between the first and the last byte of either direction.
void draw_trouble(random& source, stream_plan& plan) {
  auto& actor = source.chance(0.5) ? plan.opener : plan.responder;
  auto& other = &actor == &plan.opener ? plan.responder : plan.opener;
  switch (source.below(5)) {
    case 0:
      actor.reset_at = some_point(source, actor.size);
      break;
    case 1:
      actor.stop_at = some_point(source, other.size);
      break;
    case 2:
      actor.abandon_at = some_point(source, actor.size + other.size);
      break;
    case 3:  // both sides at once
      actor.reset_at = some_point(source, actor.size);
      other.stop_at = some_point(source, actor.size);
      break;
    default:  // cancelled as a call is: everything, both ways
      actor.reset_at = some_point(source, actor.size);
      actor.stop_at = some_point(source, other.size);
  }
}

stream_plan draw_stream(random& source, const traffic_options& options) {
  stream_plan plan{.key = source.next()};
  plan.bidirectional = source.chance(0.75);
  plan.by_server = source.chance(plan.bidirectional ? 0.2 : 0.5);
  plan.start = source.between(0ns, options.spread);
  plan.urgency = static_cast<std::uint8_t>(source.chance(0.5) ? 3 : source.below(8));
  plan.incremental = source.chance(0.7);
  const auto size = [&] { return source.magnitude(0, options.largest); };
  plan.opener = draw_half(source, options, size());
  plan.responder = draw_half(source, options, plan.bidirectional ? size() : 0);
  plan.responder.answer_at_end = source.chance(0.5);
  if (source.chance(options.trouble)) draw_trouble(source, plan);
  return plan;
}

}  // namespace

traffic_plan draw_plan(random& source, const traffic_options& options) {
  traffic_plan plan;
  for (std::size_t i = 0; i < options.streams; ++i)
    plan.streams.push_back(draw_stream(source, options));
  for (std::size_t i = 0; i < options.datagrams; ++i)
    plan.datagrams.push_back({source.chance(0.5), source.between(0ns, options.spread),
                              source.between(std::uint64_t{8}, options.datagram_size)});
  for (std::size_t i = 0; i < options.key_updates; ++i)
    plan.key_updates.push_back({source.between(0ns, options.spread), source.chance(0.5)});
  // Updates are one end's business (quic::core::connection::update_keys).
  for (auto& [when, by_server] : plan.key_updates) by_server = plan.key_updates.front().second;
  return plan;
}

}  // namespace weft::sim
