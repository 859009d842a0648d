#include <weft/sim/link.hpp>

#include <algorithm>
#include <array>
#include <ranges>
#include <utility>

namespace weft::sim {
namespace {

duration time_for(std::size_t size, std::uint64_t rate) {
  return duration{static_cast<std::int64_t>(size * 1'000'000'000ull / rate)};
}

}  // namespace

void link::offer(datagram d, time_point now, std::vector<arrival>& out) {
  ++stats_.offered;
  stats_.offered_bytes += d.payload.size();
  if (!enters_queue(d, now) || !survives(now)) return;
  if (options.bleach_ecn) d.mark = ecn::not_ect;
  if (random_.chance(options.corrupt)) corrupt(d);
  const auto deliver = [&](time_point when) {
    ++stats_.delivered;
    stats_.delivered_bytes += d.payload.size();
    out.push_back({when, d});
  };
  deliver(arrival_time());
  if (random_.chance(options.duplicate)) {
    ++stats_.duplicated;
    deliver(transmitted_ + options.delay + random_.between(0ns, options.delay));
  }
  if (random_.chance(options.forge)) {
    ++stats_.forged;
    d.from = forged_address(d.from);
    if (random_.chance(0.3)) corrupt(d);
    deliver(transmitted_ + options.delay / 2 + random_.between(0ns, options.delay));
  }
}

bool link::enters_queue(datagram& d, time_point now) {
  const auto covers = [now](const interval& i) { return i.from <= now && now < i.to; };
  if (std::ranges::any_of(options.blackouts, covers)) {
    ++stats_.blacked_out;
    return false;
  }
  if (d.payload.size() > options.mtu) {
    ++stats_.too_large;
    return false;
  }
  if (options.rate == 0) {
    transmitted_ = now;
    return true;
  }
  const duration wait = std::max<duration>(transmitted_ - now, 0ns);
  const auto queued = static_cast<std::uint64_t>(static_cast<double>(wait.count()) * 1e-9 *
                                                 static_cast<double>(options.rate));
  if (queued + d.payload.size() > options.queue) {
    ++stats_.overflowed;
    return false;
  }
  if (queued >= options.mark_above && d.mark != ecn::not_ect) {
    d.mark = ecn::ce;
    ++stats_.marked;
  }
  transmitted_ = now + wait + time_for(d.payload.size(), options.rate);
  return true;
}

/// A burst is a matter of moments: packets seconds apart do not share one.
bool link::survives(time_point now) {
  constexpr duration pause = 1s;
  if (now - std::exchange(last_sent_, now) >= pause) bad_ = false;
  const auto& bursts = options.bursts;
  if (bursts.enter > 0) bad_ = bad_ ? !random_.chance(bursts.leave) : random_.chance(bursts.enter);
  const bool lost = (bad_ && random_.chance(bursts.loss)) || random_.chance(options.loss);
  stats_.lost += lost;
  return !lost;
}

time_point link::arrival_time() {
  time_point when = transmitted_ + options.delay;
  if (options.jitter > 0ns) when += random_.between(0ns, options.jitter);
  if (random_.chance(options.reorder)) {
    ++stats_.reordered;
    return when + random_.between(1ns, options.reorder_by);
  }
  last_arrival_ = std::max(when, last_arrival_);
  return last_arrival_;
}

/// From the ranges reserved for documentation (RFC 5737, RFC 3849).
address link::forged_address(const address& like) {
  const auto host = static_cast<std::uint8_t>(random_.between(std::uint64_t{1}, 254));
  const auto port = static_cast<std::uint16_t>(random_.between(std::uint64_t{1024}, 65'535));
  if (!like.is_ipv6()) return address::ipv4({203, 0, 113, host}, port);
  std::array<std::uint8_t, 16> v6{0x20, 0x01, 0x0d, 0xb8};
  v6.back() = host;
  return address::ipv6(v6, port);
}

void link::corrupt(datagram& d) {
  if (d.payload.empty()) return;
  ++stats_.corrupted;
  buffer damaged = buffer::allocate(d.payload.size());
  std::ranges::copy(d.payload.span(), damaged.data());
  const auto size = d.payload.size();
  switch (random_.below(8)) {
    case 0:  // cut short
      damaged.truncate(random_.between(std::uint64_t{1}, size));
      break;
    case 1: {  // a run overwritten
      const auto start = random_.below(size);
      random_.fill(damaged.span().subspan(start, random_.between(std::uint64_t{1}, size - start)));
      break;
    }
    default:  // a few bits; half of the time in the header, where they are believed longest
      for (auto flips = random_.between(std::uint64_t{1}, 4); flips > 0; --flips) {
        const auto reach = random_.chance(0.5) ? std::min<std::uint64_t>(size, 48) : size;
        damaged.data()[random_.below(reach)] ^= std::byte(1u << random_.below(8));
      }
  }
  d.payload = std::move(damaged).freeze();
}

}  // namespace weft::sim
