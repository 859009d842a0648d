// Internal.
#pragma once

#include <ngtcp2/ngtcp2.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include <weft/quic/core/address_validation.hpp>
#include <weft/quic/core/connection_id.hpp>
#include <weft/quic/core/intrusive_list.hpp>
#include <weft/quic/core/options.hpp>

namespace weft::quic::core::detail {

class connection_impl;
class hub;

/// What a connection id leads to: a live connection, or what is left of a closed one.
struct route_target {
  explicit route_target(bool is_live) noexcept : live{is_live} {}
  const bool live;
};

/// Our connection ids, as numbers. Open addressing: one cache line per look-up.
class id_table {
 public:
  route_target* find(std::uint64_t id) const noexcept;
  /// False when the id is taken.
  bool insert(std::uint64_t id, route_target& target);
  void replace(std::uint64_t id, route_target& target) noexcept;
  void erase(std::uint64_t id) noexcept;

 private:
  struct slot {
    std::uint64_t id = 0;
    route_target* target = nullptr;
  };
  std::size_t home(std::uint64_t id) const noexcept {
    return static_cast<std::size_t>((id * 0x9e3779b97f4a7c15u) >> 32) & (slots_.size() - 1);
  }
  std::size_t locate(std::uint64_t id) const noexcept;
  void grow();

  std::vector<slot> slots_;
  std::size_t used_ = 0;
};

/// A deadline's place in the heap. Base of whatever has one.
struct timer_node {
  timer_node() = default;
  timer_node(const timer_node&) = delete;
  timer_node& operator=(const timer_node&) = delete;
  /// Its time has come; it is out of the heap.
  virtual void expired(time_point now) = 0;

  static constexpr std::size_t nowhere = static_cast<std::size_t>(-1);
  time_point at = never;
  std::size_t place = nowhere;

 protected:
  ~timer_node() = default;
};

/// Deadlines, earliest first, movable in place.
class timer_heap {
 public:
  /// `never` takes the node out.
  void set(timer_node& node, time_point at);
  void erase(timer_node& node) noexcept;
  timer_node* earliest() const noexcept { return heap_.empty() ? nullptr : heap_.front(); }

 private:
  void up(std::size_t place) noexcept;
  void down(std::size_t place) noexcept;
  void put(std::size_t place, timer_node* node) noexcept {
    heap_[place] = node;
    node->place = place;
  }
  std::vector<timer_node*> heap_;
};

/// An id that a client chose for its first packets. Its address belongs to it: else whoever copies
/// a first packet and is faster than it would get all that follow.
struct initial_id {
  ngtcp2_cid id;
  address remote;
};

/// What remains of a connection that ended (RFC 9000 §10.2): it answers late packets with its
/// CONNECTION_CLOSE, ever more rarely, or swallows them when draining.
struct closing_record final : route_target, timer_node {
  explicit closing_record(hub& owner) noexcept : route_target{false}, home{owner} {}
  void expired(time_point now) override;

  hub& home;
  std::vector<std::uint64_t> ids;
  std::vector<initial_id> initial_ids;
  path where;
  bool proven = false;  ///< that `where` leads to the peer (RFC 9000 §8)
  std::vector<std::uint8_t> packet;
  std::uint32_t received = 0;
  std::uint32_t answer_at = 1;
};

/// A datagram that belongs to no live connection.
struct loose_datagram {
  path where;
  std::vector<std::uint8_t> data;
};

/// Limits answers to strangers: `burst` at once, refilled at `rate` per second.
class rate_limit {
 public:
  rate_limit(double rate, double burst) noexcept : rate_{rate}, burst_{burst}, left_{burst} {}
  bool allow(time_point now) noexcept;

 private:
  double rate_, burst_, left_;
  time_point last_{};
};

struct initial_id_hash {
  std::uint64_t seed = 0;
  std::size_t operator()(const ngtcp2_cid& id) const noexcept;
  std::size_t operator()(const initial_id& key) const noexcept;
};
struct initial_id_equal {
  bool operator()(const ngtcp2_cid& a, const ngtcp2_cid& b) const noexcept {
    return ngtcp2_cid_eq(&a, &b) != 0;
  }
  bool operator()(const initial_id& a, const initial_id& b) const noexcept {
    return (*this)(a.id, b.id) && a.remote == b.remote;
  }
};

/// What an endpoint's connections share: randomness, ids, lists of who has something to say.
class hub {
 public:
  explicit hub(endpoint_options options);

  /// False when the source fails.
  bool random(std::uint8_t* out, std::size_t size) const noexcept;
  fill_random random_filler() const {
    return [this](std::uint8_t* out, std::size_t size) { return random(out, size); };
  }
  /// Draws an id of ours for `target` and routes it. False when the random source fails.
  bool issue_id(route_target& target, ngtcp2_cid& out, std::uint64_t& number);
  bool draw_id(connection_id& out) const noexcept;
  /// The number an id of ours is stored under.
  static std::uint64_t number(const std::uint8_t* id) noexcept {
    std::uint64_t n;
    std::memcpy(&n, id, sizeof n);
    return n;
  }

  /// Puts a datagram in line; drops it when strangers have filled the line.
  void send(const path& where, std::vector<std::uint8_t> data);
  /// Takes over the ids of a connection that ended, until `until`.
  void bury(connection_impl& gone, std::vector<std::uint8_t> packet, time_point until);
  void forget(closing_record& record) noexcept;
  /// Answers a datagram of `size` bytes for a connection that ended.
  void answer_late(closing_record& record, const path& from, std::size_t size);

  endpoint_options options;
  connection_id_mask mask;
  address_validation validation;
  endpoint_stats stats;

  id_table routes;
  std::unordered_map<initial_id, route_target*, initial_id_hash, initial_id_equal> initial_routes;
  /// Tokens by which peers may reset our connections (RFC 9000 §10.3.1).
  std::unordered_map<ngtcp2_cid, connection_impl*, initial_id_hash, initial_id_equal> reset_routes;
  timer_heap timers;
  std::deque<loose_datagram> outbox;
  std::unordered_map<closing_record*, std::unique_ptr<closing_record>> graves;

 private:
  static constexpr std::size_t outbox_limit = 512;
  static constexpr std::size_t graves_limit = 65'536;
};

}  // namespace weft::quic::core::detail
