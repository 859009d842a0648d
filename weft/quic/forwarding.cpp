// Datagrams that reached the wrong shard of a server.

#include <algorithm>

#include <weft/quic/detail/endpoint_state.hpp>
#include <weft/quic/shard_group.hpp>

namespace weft::quic::detail {

result<> endpoint_state::join_group() {
  if (!config_.group) return {};
  if (std::ranges::all_of(config_.core.secret, [](auto octet) { return octet == 0; }))
    return fail(errc::invalid_argument, layer::quic,
                "the endpoints of a shard group need one secret, or they cannot read each other's "
                "connection ids");
  const bool joined =
      config_.group->join(config_.core.shard, [loop = shard_, weak = weak_from_this()] {
        loop->post([weak] {
          if (const auto self = weak.lock()) self->turn(nullptr);
        });
      });
  if (!joined)
    return fail(errc::invalid_argument, layer::quic,
                "another endpoint of the group has the same shard number");
  in_group_ = true;
  return {};
}

void endpoint_state::leave_group() noexcept {
  if (std::exchange(in_group_, false)) config_.group->leave(config_.core.shard);
}

bool endpoint_state::forwarded(const udp::train& from, bytes datagram) {
  const auto shard = core_->shard_of(datagram);
  return shard && *shard != config_.core.shard &&
         config_.group->forward(*shard, from.path, from.ecn, datagram);
}

// A coalesced train comes from one address, but its datagrams may belong to several connections.
void endpoint_state::take_train(const udp::train& t) {
  std::size_t begin = 0;
  if (in_group_) {
    const std::size_t step = t.segment == 0 ? t.payload.size() : t.segment;
    for (std::size_t at = 0, end = 0; at < t.payload.size(); at = end) {
      end = std::min(at + step, t.payload.size());
      if (!forwarded(t, t.payload.subspan(at, end - at))) continue;
      if (at > begin)
        core_->handle_datagrams(t.path, t.ecn, t.payload.subspan(begin, at - begin), t.segment,
                                now_);
      begin = end;
    }
  }
  if (begin < t.payload.size() || t.payload.empty())
    core_->handle_datagrams(t.path, t.ecn, t.payload.subspan(begin), t.segment, now_);
}

// Never sent on a second time, so that nothing circles.
void endpoint_state::take_forwarded() {
  if (!in_group_) return;
  for (const auto& each : config_.group->take(config_.core.shard))
    core_->handle_datagrams(each.from, each.mark, each.datagram, each.datagram.size(), now_);
}

}  // namespace weft::quic::detail
