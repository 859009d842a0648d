#include <weft/quic/shard_group.hpp>

#include <utility>

namespace weft::quic {

shard_group::counters shard_group::stats() const {
  const std::lock_guard lock{mutex_};
  return counters_;
}

bool shard_group::join(std::uint8_t shard, std::function<void()> wake) {
  const std::lock_guard lock{mutex_};
  auto& place = members_[shard];
  if (place) return false;
  place = member{.wake = std::move(wake), .letters = {}, .bytes = 0};
  return true;
}

void shard_group::leave(std::uint8_t shard) noexcept {
  const std::lock_guard lock{mutex_};
  members_[shard].reset();
}

bool shard_group::forward(std::uint8_t shard, const path& from, ecn mark, bytes datagram) {
  const std::lock_guard lock{mutex_};
  auto& to = members_[shard];
  if (!to) return false;
  if (to->bytes + datagram.size() > most_waiting) {
    ++counters_.dropped;
    return true;
  }
  ++counters_.forwarded;
  const bool first = to->letters.empty();
  to->bytes += datagram.size();
  to->letters.push_back({from, mark, {datagram.begin(), datagram.end()}});
  // Under the lock: whoever leaves may rely on not being called any more.
  if (first) to->wake();
  return true;
}

std::vector<shard_group::letter> shard_group::take(std::uint8_t shard) {
  const std::lock_guard lock{mutex_};
  auto& place = members_[shard];
  if (!place) return {};
  place->bytes = 0;
  return std::exchange(place->letters, {});
}

}  // namespace weft::quic
