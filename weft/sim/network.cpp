#include <weft/sim/network.hpp>

#include <algorithm>

namespace weft::sim {

void network::add_interface(const address& inside) {
  interfaces_[inside] = true;
}

void network::remove_interface(const address& inside) {
  interfaces_[inside] = false;
}

link& network::between(const address& from, const address& to) {
  auto& slot = links_[{from, to}];
  if (!slot) slot = std::make_unique<link>(defaults, random_.next());
  return *slot;
}

void network::join(const address& a, const address& b, const link_options& options) {
  between(a, b).options = options;
  between(b, a).options = options;
}

void network::translate(const address& inside, const address& outside) {
  outside_[inside] = outside;
  owners_[outside] = inside;
}

address network::outside_of(const address& inside) const {
  const auto found = outside_.find(inside);
  return found == outside_.end() ? inside : found->second;
}

address network::owner_of(const address& outside) const {
  const auto found = owners_.find(outside);
  return found == owners_.end() ? outside : found->second;
}

void network::send(datagram d, time_point now) {
  const address inside = d.from;
  if (const auto victim = forgeries_.find(d.to); victim != forgeries_.end())
    victim->second.to_bytes += d.payload.size();
  const address target = owner_of(d.to);
  const auto source = interfaces_.find(inside);
  if (source == interfaces_.end() || !source->second || !interfaces_.contains(target)) {
    ++unroutable_;
    return;
  }
  d.from = outside_of(inside);
  arrivals_.clear();
  between(inside, target).offer(std::move(d), now, arrivals_);
  const address outside = outside_of(inside);
  for (auto& a : arrivals_) {
    if (a.what.from != outside) forgeries_[a.what.from].from_bytes += a.what.payload.size();
    heap_.push_back({a.when, sequence_++, std::move(a.what)});
    std::ranges::push_heap(heap_, later);
  }
}

time_point network::next_arrival() const noexcept {
  return heap_.empty() ? never : heap_.front().when;
}

std::optional<datagram> network::receive(time_point now) {
  while (next_arrival() <= now) {
    std::ranges::pop_heap(heap_, later);
    datagram d = std::move(heap_.back().what);
    heap_.pop_back();
    const address inside = owner_of(d.to);
    const auto found = interfaces_.find(inside);
    if (found != interfaces_.end() && found->second && outside_of(inside) == d.to) {
      d.to = inside;
      return d;
    }
    ++unroutable_;
  }
  return std::nullopt;
}

link_stats network::totals() const {
  link_stats sum;
  for (const auto& [ends, each] : links_) {
    const link_stats& s = each->stats();
    sum.offered += s.offered, sum.offered_bytes += s.offered_bytes;
    sum.delivered += s.delivered;
    sum.delivered_bytes += s.delivered_bytes, sum.lost += s.lost;
    sum.overflowed += s.overflowed, sum.too_large += s.too_large;
    sum.blacked_out += s.blacked_out, sum.reordered += s.reordered;
    sum.duplicated += s.duplicated, sum.corrupted += s.corrupted, sum.forged += s.forged,
        sum.marked += s.marked;
  }
  return sum;
}

}  // namespace weft::sim
