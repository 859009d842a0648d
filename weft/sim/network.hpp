#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <weft/sim/link.hpp>

namespace weft::sim {

/// Interfaces joined by links, with address-translating routers in front of any of them. Pure: time
/// comes with every call. One seed and one sequence of calls give one outcome.
class network {
 public:
  explicit network(std::uint64_t seed) : random_{seed} {}

  /// Of links that nobody configured.
  link_options defaults;

  /// An address that sends and receives. Removed: all vanishes, as when a cable is pulled.
  void add_interface(const address& inside);
  void remove_interface(const address& inside);

  /// The link for datagrams from one interface (not: outer address) to another; made on demand.
  link& between(const address& from, const address& to);
  /// Both directions at once.
  void join(const address& a, const address& b, const link_options& options);

  /// From now on what `inside` sends seems to come from `outside`, and only what is sent to
  /// `outside` reaches it. A second call is a rebinding: the earlier outer address goes dead.
  void translate(const address& inside, const address& outside);
  /// The outer address of an interface, itself when nothing translates it.
  address outside_of(const address& inside) const;
  /// Whose outer address this is or ever was.
  address owner_of(const address& outside) const;

  void send(datagram d, time_point now);
  /// When the next datagram arrives, `never` if none is under way.
  time_point next_arrival() const noexcept;
  /// The next datagram that has arrived by `now`, addressed to the interface itself.
  std::optional<datagram> receive(time_point now);

  /// Datagrams from or to addresses that nobody has (any more).
  std::uint64_t unroutable() const noexcept { return unroutable_; }
  /// What was delivered from addresses that links forged, and what was sent to these in return:
  /// more than three times as much would make the sender an amplifier.
  struct forgery {
    std::uint64_t from_bytes = 0;
    std::uint64_t to_bytes = 0;
  };
  const std::map<address, forgery>& forgeries() const noexcept { return forgeries_; }
  /// Sums over all links.
  link_stats totals() const;

 private:
  struct in_flight {
    time_point when;
    std::uint64_t sequence;  ///< first sent, first received, among equals
    datagram what;
  };
  static bool later(const in_flight& a, const in_flight& b) noexcept {
    return std::pair{a.when, a.sequence} > std::pair{b.when, b.sequence};
  }

  random random_;
  std::map<address, bool> interfaces_;  ///< inside address → reachable
  std::map<address, address> outside_;  ///< inside → current outside
  std::map<address, address> owners_;   ///< outside, current or stale → inside
  std::map<std::pair<address, address>, std::unique_ptr<link>> links_;
  std::map<address, forgery> forgeries_;
  std::vector<in_flight> heap_;
  std::vector<arrival> arrivals_;
  std::uint64_t sequence_ = 0;
  std::uint64_t unroutable_ = 0;
};

}  // namespace weft::sim
