#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <weft/base/address.hpp>
#include <weft/base/slice.hpp>
#include <weft/base/time.hpp>
#include <weft/sim/random.hpp>

namespace weft::sim {

using namespace std::chrono_literals;

/// One UDP datagram under way. Its addresses are those on the wire: behind a translating router the
/// outer ones.
struct datagram {
  address from;
  address to;
  ecn mark = ecn::not_ect;
  slice payload;
};

/// Loss in bursts (Gilbert–Elliott): a two-state chain that steps once a datagram and turns good
/// in a pause.
struct burst_options {
  double enter = 0;  ///< probability of a good link turning bad
  double leave = 1;  ///< probability of a bad link turning good; bursts last 1/leave on average
  double loss = 1;   ///< loss while bad
};

struct interval {
  time_point from;
  time_point to;
};

/// One direction of a way between two hosts. Probabilities are per datagram.
struct link_options {
  duration delay = 10ms;           ///< propagation, one way
  duration jitter = 0ms;           ///< extra delay, uniform in [0, jitter], that keeps the order
  std::uint64_t rate = 0;          ///< bytes a second; 0: unlimited, so that no queue forms
  std::size_t queue = 128 * 1024;  ///< bytes that wait for the rate; more are dropped at the tail
  std::size_t mtu = 1472;          ///< largest UDP payload carried; larger ones vanish
  double loss = 0;
  burst_options bursts;
  double reorder = 0;  ///< share held back by up to `reorder_by`, overtaken by later ones
  duration reorder_by = 10ms;
  double duplicate = 0;
  double corrupt = 0;  ///< share with bits flipped, cut short or overwritten
  /// Share of which somebody on the way sends a copy from an address of his own, sometimes damaged,
  /// sometimes ahead of the original.
  double forge = 0;
  /// Queued bytes from which ECN-capable datagrams are marked "congestion experienced".
  std::size_t mark_above = std::numeric_limits<std::size_t>::max();
  bool bleach_ecn = false;          ///< erases ECN code points, as some routers do
  std::vector<interval> blackouts;  ///< everything offered meanwhile is lost
};

struct link_stats {
  std::uint64_t offered = 0, offered_bytes = 0, delivered = 0, delivered_bytes = 0;
  std::uint64_t lost = 0, overflowed = 0, too_large = 0, blacked_out = 0;
  std::uint64_t reordered = 0, duplicated = 0, corrupted = 0, forged = 0, marked = 0;
};

/// What became of a datagram.
struct arrival {
  time_point when;
  datagram what;
};

/// The model of one direction: serialisation and queue, then loss, then delay and mischief. Pure;
/// the same options, seed and calls give the same arrivals.
class link {
 public:
  link(link_options options, std::uint64_t seed) : options{std::move(options)}, random_{seed} {}

  /// May be changed at any time; counts from the next datagram on.
  link_options options;

  /// Appends what arrives and when (nothing, one or two copies) to `out`. `now` never decreases.
  void offer(datagram d, time_point now, std::vector<arrival>& out);
  const link_stats& stats() const noexcept { return stats_; }

 private:
  bool enters_queue(datagram& d, time_point now);
  bool survives(time_point now);
  time_point arrival_time();
  void corrupt(datagram& d);
  address forged_address(const address& like);

  random random_;
  link_stats stats_;
  time_point transmitted_{};  ///< when the last queued datagram has left
  time_point last_arrival_{};
  bool bad_ = false;
  time_point last_sent_{};
};

}  // namespace weft::sim
