#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <weft/quic/connection.hpp>
#include <weft/quic/core/connection.hpp>
#include <weft/quic/detail/stream_state.hpp>
#include <weft/quic/detail/waiter.hpp>

namespace weft::quic::detail {

class endpoint_state;
struct port;

/// What stands behind a `connection`: the core's connection, its streams' memory and who waits for
/// it. Keeps itself alive from its creation until the handle and all its streams are gone; then the
/// endpoint, at a safe place of its turn, releases the core's connection.
class connection_state : public std::enable_shared_from_this<connection_state> {
 public:
  connection_state(std::shared_ptr<endpoint_state> owner, core::connection& c,
                   std::shared_ptr<port> carrier);
  ~connection_state();

  static connection make(std::shared_ptr<connection_state> state);
  void handle_dropped();

  core::connection& core() noexcept { return *core_; }
  const core::connection& core() const noexcept { return *core_; }
  endpoint_state& owner() noexcept { return *owner_; }
  const endpoint_state& owner() const noexcept { return *owner_; }
  const port& carrier() const noexcept { return *port_; }
  /// Set once the connection is over, as the owner has been told.
  const std::optional<error>& ended() const noexcept { return ended_; }
  error end_reason() const;
  bool is_confirmed() const noexcept { return handshake_done_; }

  // Operations: see `connection`. Static ones wait and hold the state themselves.
  using self_ptr = std::shared_ptr<connection_state>;
  static task<result<stream>> open_stream(self_ptr self, direction d);
  std::optional<result<stream>> try_open_stream(direction d);
  static task<result<stream>> accept_stream(self_ptr self);
  void on_stream(std::move_only_function<void(stream)> handler);
  void before_sending(std::move_only_function<void()> handler) {
    before_sending_ = std::move(handler);
  }
  static task<result<>> send_datagram(self_ptr self, slice payload);
  static task<result<slice>> receive_datagram(self_ptr self);
  static task<result<>> migrate(self_ptr self, address local, bool immediate);
  void close(std::uint64_t code, std::string_view reason);
  static task<error> closed(self_ptr self);
  void on_closed(std::move_only_function<void(const error&)> callback);
  static task<result<>> confirmed(self_ptr self);
  /// Completes when the handshake is done or early data may be sent; fails with why it did not.
  static task<result<>> ready(self_ptr self);

  // Turn ------------------------------------------------------------------------------------------
  /// Takes the core's events and resumes whom they concern.
  void dispatch();
  /// Tells everybody that it is over. Once; later calls do nothing.
  void end(error reason);
  /// Gives the connection up, in the next turn for its owner.
  void fail_with(error reason);
  void port_failed(const port& p, const error& why);
  /// True when neither handle nor stream is left and the endpoint may forget it.
  bool releasable() const noexcept { return !has_handle_ && !streams_; }
  /// Lets go of the core's connection and of itself.
  void release(time_point now);

  // Streams' memory -------------------------------------------------------------------------------
  void* allocate_stream();
  void free_stream(void* memory) noexcept;
  void add(stream_state& s) noexcept;
  void remove(stream_state& s) noexcept;
  void stream_gone();
  /// A stream has taken `count` bytes to send.
  void wrote(std::size_t count) noexcept { wrote_ += count; }

 private:
  friend class endpoint_state;

  void give_up(std::uint64_t code, std::string_view said, error why);
  void handle(core::connection_event event);
  void hand_out_streams();
  void begin_batch() noexcept;
  void share_batch();
  void grant_credit(bool bidirectional);
  void path_changed();
  void migration_failed();
  result<> start_migration(const address& local, bool immediate);
  void move_to(std::shared_ptr<port> next, bool at_once);
  wait_list& openers(bool bidirectional) noexcept { return openers_[bidirectional ? 0 : 1]; }

  static constexpr std::size_t chunk_streams = 32;
  struct chunk;

  core::connection* core_;
  std::shared_ptr<endpoint_state> owner_;
  std::shared_ptr<port> port_;
  std::shared_ptr<connection_state> self_;
  connection_state* previous_ = nullptr;
  connection_state* next_ = nullptr;

  std::optional<error> ended_;
  std::optional<error> given_up_;  ///< why this side closes it
  bool has_handle_ = false;
  bool ready_ = false;
  bool handshake_done_ = false;
  bool closing_ = false;
  bool handling_ = false;  ///< `on_stream_` is out, being called
  stream_state* streams_ = nullptr;

  /// What the streams wrote that one turn resumed.
  struct batch {
    unsigned streams = 0;
    std::size_t bytes = 0;
  };
  batch batch_, last_batch_;
  unsigned share_ = 0;     ///< streams that wrote since the last flush
  std::size_t wrote_ = 0;  ///< by the stream that runs

  wait_list openers_[2];
  wait_list acceptors_;
  wait_list closers_;
  wait_list ready_waiters_;
  wait_list confirmation_waiters_;
  wait_list datagram_senders_;
  wait_list datagram_receivers_;
  wait_list migrators_;
  std::move_only_function<void(stream)> on_stream_;
  std::move_only_function<void()> before_sending_;
  std::vector<std::move_only_function<void(const error&)>> on_closed_;

  std::shared_ptr<port> next_port_;  ///< of a migration that is not validated yet
  std::optional<bool> migrated_;     ///< outcome of the latest migration

  std::vector<std::unique_ptr<chunk>> chunks_;
  void* free_streams_ = nullptr;
};

}  // namespace weft::quic::detail
