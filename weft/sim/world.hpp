#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <weft/quic/core/endpoint.hpp>
#include <weft/sim/network.hpp>
#include <weft/sim/random.hpp>

namespace weft::sim {

class world;
class host;

/// What runs on top of a host's connections.
class application {
 public:
  virtual ~application() = default;
  /// `c` has events or streams to look at. A server's new connection comes with `c.user ==
  /// nullptr`.
  virtual void on_ready(host& at, quic::core::connection& c) = 0;
};

struct host_options {
  quic::endpoint_options endpoint;  ///< `random` and `secret` are replaced by seeded ones
  /// Datagrams that arrive together are handed over as one train, as kernels coalesce them.
  bool coalesce = true;
  /// Timers fire up to this much too late, as threads are woken late.
  duration wake_late = 0ns;
};

/// A machine with one endpoint and one or more addresses. Owned by its world.
class host {
 public:
  quic::core::endpoint& endpoint() noexcept { return *endpoint_; }
  /// The first address.
  const address& where() const noexcept { return addresses_.front(); }
  void add_address(const address& extra);
  void remove_address(const address& gone);

  result<> listen(quic::server_config config);
  result<quic::core::connection*> connect(const address& server, std::string_view name,
                                          quic::client_config config);
  /// Ends the endpoint with all its connections at once, as a crash does.
  void crash();
  bool running() const noexcept { return endpoint_ != nullptr; }

  application* app = nullptr;
  world& in() noexcept { return world_; }

 private:
  friend class world;
  host(world& in, const address& where, host_options options);
  bool has(const address& local) const noexcept;

  world& world_;
  host_options options_;
  std::vector<address> addresses_;
  random random_;
  std::unique_ptr<quic::core::endpoint> endpoint_;
  time_point wake_ = never;
  bool dirty_ = false;
};

/// Virtual time and everything that happens in it. One thread; a world with one seed, set up and
/// used the same way, runs the same way every time.
class world {
 public:
  explicit world(std::uint64_t seed);
  world(const world&) = delete;
  world& operator=(const world&) = delete;
  ~world();

  /// Throws when the endpoint cannot be made.
  host& add_host(const address& where, application* app = nullptr, host_options options = {});
  network& net() noexcept { return network_; }
  time_point now() const noexcept { return now_; }

  void at(time_point when, std::function<void()> action);
  void after(duration delay, std::function<void()> action) { at(now_ + delay, std::move(action)); }
  /// Something was done to a connection of `h` outside `application::on_ready`: look after it
  /// before time goes on.
  void wake(host& h) noexcept { h.dirty_ = true; }

  /// Performs everything due at the next moment. False when nothing will ever happen again.
  bool step();
  /// Until `done()` holds; false when it does not within `limit`, nothing is left to happen, or a
  /// fault was found.
  bool run_until(const std::function<bool()>& done, duration limit);
  void run_for(duration length);

  /// Broken promises of a core seen from outside: sending from a foreign address, never letting
  /// time go on, oversized trains.
  const std::vector<std::string>& faults() const noexcept { return faults_; }
  void fault(std::string what);

  /// Identifies everything that was put on the wire so far: times, addresses, marks and sizes. Not
  /// the bytes: TLS tickets contain the time of day.
  std::uint64_t trace_hash() const noexcept { return trace_hash_; }
  std::uint64_t datagrams_sent() const noexcept { return datagrams_sent_; }
  /// Receives one line for each datagram, and what applications add by `note`. Empty: none.
  std::function<void(std::string_view)> trace;
  void note(std::string_view line) const;
  bool tracing() const noexcept { return static_cast<bool>(trace); }

 private:
  friend class host;
  struct timer {
    time_point when;
    std::uint64_t sequence;
    std::function<void()> action;
  };
  static bool later(const timer& a, const timer& b) noexcept {
    return std::pair{a.when, a.sequence} > std::pair{b.when, b.sequence};
  }

  time_point next_moment() const;
  void fire_timers();
  void deliver();
  void hand_over(host& to, const std::vector<datagram>& train);
  void turn(host& h);
  bool transmit(host& h);
  void send(host& h, const quic::core::transmit& train, bytes payload);
  host* owner_of(const address& inside);

  random random_;
  random tls_random_;
  network network_;
  std::vector<std::unique_ptr<host>> hosts_;
  std::vector<timer> timers_;
  std::vector<std::byte> buffer_;
  std::vector<std::string> faults_;
  time_point now_{duration{1'000'000'000}};
  std::uint64_t sequence_ = 0;
  std::uint64_t steps_at_once_ = 0;
  std::uint64_t trace_hash_ = 0;
  std::uint64_t datagrams_sent_ = 0;
};

}  // namespace weft::sim
