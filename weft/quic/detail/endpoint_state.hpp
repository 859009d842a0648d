#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/io/shard.hpp>
#include <weft/quic/core/endpoint.hpp>
#include <weft/quic/detail/connection_state.hpp>
#include <weft/quic/detail/waiter.hpp>
#include <weft/quic/endpoint.hpp>
#include <weft/udp/socket.hpp>

namespace weft::quic::detail {

/// One UDP socket of an endpoint, and what is known about its use.
struct port {
  explicit port(udp::socket s) : socket{std::move(s)}, local{socket->local_address()} {}

  const udp::counters& counters() const noexcept { return open ? socket->counters() : last; }

  void close() noexcept {
    if (!std::exchange(open, false)) return;
    last = socket->counters();
    socket->close();
    if (waits == 0) socket.reset();
  }

  std::optional<udp::socket> socket;  ///< outlives `close()` until the waits on it have ended
  udp::counters last;                 ///< what a closed socket counted
  address local;
  bool open = true;
  int waits = 0;           ///< coroutines inside of the socket's waits
  std::size_t users = 0;   ///< connections whose current path it carries
  bool primary = false;    ///< connections start here, rather than moving here
  bool listening = false;  ///< never retired
  bool blocked = false;    ///< a wait for writability is under way

  bool carries(const address& from) const noexcept {
    return local == from || (local.port() == from.port() && local.is_unspecified() &&
                             (local.is_ipv6() || !from.is_ipv6()));
  }
};

/// The only driver of a `core::endpoint`. One turn: take what has arrived; hand out events,
/// resuming coroutines inline; send what they and the core produced, once; set one timer. What
/// coroutines do outside of a turn schedules one at the end of the shard's turn.
///
/// Resumed coroutines may do anything to any handle, this endpoint's included: whatever would pull
/// the ground from under the turn (releasing connections, closing sockets) is only noted, and done
/// at a safe place of a turn.
class endpoint_state : public std::enable_shared_from_this<endpoint_state> {
 public:
  endpoint_state(io::shard& shard, address local, endpoint_config config,
                 std::unique_ptr<core::endpoint> core);
  ~endpoint_state();

  static result<endpoint> open(io::shard& shard, address local, std::optional<server_config> server,
                               endpoint_config config);
  void handle_dropped();

  io::shard& shard() const noexcept { return *shard_; }
  core::endpoint& core() noexcept { return *core_; }
  const core::endpoint& core() const noexcept { return *core_; }
  waiter_hub& hub() noexcept { return hub_; }
  /// The socket that connections start on; null while there is none.
  const port* primary() const noexcept;
  const address& configured_address() const noexcept { return local_; }
  bool closed() const noexcept { return closed_; }
  /// Why the socket all connections depend on cannot be used any more.
  const std::optional<error>& failure() const noexcept { return failure_; }

  using self_ptr = std::shared_ptr<endpoint_state>;
  static task<result<connection>> connect(self_ptr self, address remote, std::string host,
                                          client_config config);
  static task<result<connection>> accept(self_ptr self);
  static task<> drain(self_ptr self, time_point deadline);
  void close(std::uint64_t code, std::string_view reason);

  // For connections and streams -------------------------------------------------------------------
  /// The time to give to the core: the turn's, or the clock's outside of one.
  time_point now() noexcept;
  /// The core has something to send, or somebody is to be woken: have a turn soon.
  void touch() {
    if (!in_turn_ && !scheduled_ && !finished_) schedule();
  }
  /// In the middle of a turn: sends what there is. The turn's end takes up what is left.
  void flush_early();
  /// Runs `work` in the next turn (or later in this one).
  void defer(std::move_only_function<void()> work);
  void wake_later(stream_ref s);
  /// `c` may be releasable now.
  void reap(connection_state& c);
  /// A socket on `local` (unspecified: any) that reaches `remote`, and the local address that
  /// datagrams to `remote` carry.
  result<std::pair<std::shared_ptr<port>, address>> open_port_towards(const address& local,
                                                                      const address& remote);
  /// Closes `p` once no connection uses it, not before `when`.
  void retire(std::shared_ptr<port> p, time_point when);
  void connection_ended(connection_state& c);
  void forget(connection_state& c) noexcept;

  /// The event loop is going away: drop all that waits, touch it no more.
  void abandon() noexcept;

 private:
  friend class endpoint_registry;
  struct retiring {
    std::shared_ptr<port> what;
    time_point when;
  };

  void schedule();
  void run_again();
  void turn(port* readable);
  void receive(port& from);
  result<> join_group();
  void leave_group() noexcept;
  void take_train(const udp::train& t);
  bool forwarded(const udp::train& from, bytes datagram);
  void take_forwarded();
  result<std::shared_ptr<port>> open_port(const address& local, bool listening);
  void dispatch();
  void accept_new(core::connection& c);
  std::shared_ptr<connection_state> adopt(core::connection& c, std::shared_ptr<port> carrier);
  void end_all(const error& why);
  bool run_noted_work();
  bool settle_drain();
  bool empty() const noexcept;
  bool flush();
  bool send(port& through, std::span<const udp::train> trains);
  void wait_until_writable(port& p);
  port* port_for(const address& local) noexcept;
  void arm_timer();
  void close_retired();
  void finish();
  void fail_port(port& p, const error& why);
  void hear_refusals(port& from);
  result<std::pair<std::shared_ptr<port>, address>> port_towards(const address& remote);
  result<address> source_towards(const address& bound, const address& remote);
  static task<> receive_loop(std::weak_ptr<endpoint_state> endpoint, std::shared_ptr<port> p);
  static task<> write_loop(std::weak_ptr<endpoint_state> endpoint, std::shared_ptr<port> p);

  /// Room for one train of any size behind a batch of small ones.
  static constexpr std::size_t large_batch = 32 * 1024;
  static constexpr std::size_t send_buffer_bytes = large_batch + udp::max_train_bytes;
  /// What one turn sends before it lets others run.
  static constexpr std::size_t flush_bytes = std::size_t{1} << 20;

  io::shard* shard_;
  address local_;
  endpoint_config config_;
  std::unique_ptr<core::endpoint> core_;
  waiter_hub hub_;
  io::timer timer_;
  time_point timer_deadline_ = never;
  bool timer_set_ = false;
  std::vector<std::shared_ptr<port>> ports_;
  std::vector<retiring> retiring_;
  std::function<void(const udp::train&)> on_train_;

  connection_state* connections_ = nullptr;
  std::size_t open_connections_ = 0;
  std::deque<std::shared_ptr<connection_state>> incoming_;
  wait_list acceptors_;
  wait_list drainers_;

  std::vector<std::shared_ptr<connection_state>> reap_;
  std::vector<stream_ref> woken_, spare_woken_;
  std::vector<std::move_only_function<void()>> deferred_;

  time_point now_{};
  self_ptr scheduled_self_;
  bool in_turn_ = false;
  bool scheduled_ = false;
  bool again_ = false;
  bool closed_ = false;
  bool draining_ = false;
  bool handle_gone_ = false;
  bool finished_ = false;   ///< sockets are closed, turns have ended
  bool abandoned_ = false;  ///< and the event loop is gone
  bool in_group_ = false;
  std::size_t blocked_ports_ = 0;
  std::optional<error> failure_;

  std::vector<std::byte> send_buffer_;

  endpoint_state* previous_ = nullptr;  ///< in the registry of the event loop
  endpoint_state* next_ = nullptr;
  class endpoint_registry* registry_ = nullptr;
};

}  // namespace weft::quic::detail
