#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include <weft/base/memory_budget.hpp>
#include <weft/io/event.hpp>
#include <weft/io/shard.hpp>
#include <weft/rpc/core/payload.hpp>
#include <weft/rpc/native/broadcast.hpp>
#include <weft/rpc/native/list.hpp>
#include <weft/rpc/native/pipe.hpp>
#include <weft/rpc/native/wire/record.hpp>

// Many calls on one run of bytes (docs/specs/native.md §6): the records of a TLS connection, of one
// QUIC stream, or of lanes.

namespace weft::rpc::native {

class mux;

/// First in, first out; the first slice without memory of its own.
class slice_queue {
 public:
  bool empty() const noexcept { return bytes_ == 0; }
  std::size_t bytes() const noexcept { return bytes_; }
  void push(slice part) {
    if (part.empty()) return;
    bytes_ += part.size();
    if (first_.empty())
      first_ = std::move(part);
    else
      rest_.push_back(std::move(part));
  }
  /// Up to `most` bytes from the front, all of one slice. Precondition: not empty.
  slice pop(std::size_t most);
  /// Copies small slices together, so that none pins much more memory than it has bytes.
  void compact();
  void clear() noexcept {
    first_ = {};
    rest_.clear();
    head_ = bytes_ = 0;
  }

 private:
  slice first_;
  std::vector<slice> rest_;
  std::size_t head_ = 0;  // of `rest_`
  std::size_t bytes_ = 0;
};

/// Where records go: one long-lived run of bytes, written in batches.
class link {
 public:
  virtual ~link() = default;
  virtual task<weft::result<>> write(std::span<const slice> parts) = 0;
  /// Completes when the peer has all that was written, where the carrier can tell.
  virtual task<weft::result<>> delivered() { co_return weft::result<>{}; }
};

struct ready_tag {};
struct unsettled_tag {};

/// One call's share of a mux.
class mux_stream : public pipe,
                   public list_node<mux_stream, ready_tag>,
                   public list_node<mux_stream, unsettled_tag> {
 public:
  /// Registers with `m`, which must outlive it.
  mux_stream(mux& m, wire::record_tag tag);
  ~mux_stream() override;

  std::optional<weft::result<slice>> try_read() override;
  task<weft::result<slice>> read() override;
  std::optional<weft::result<>> try_write(slice data, bool end) override;
  task<weft::result<>> write(slice data, bool end) override;
  void stop_reading(std::uint64_t code) noexcept override;
  void abandon(std::uint64_t code) noexcept override;
  void set_urgency(std::uint8_t urgency) noexcept override { urgency_ = urgency & 7; }
  void set_owner(pipe_owner* owner) override { owner_ = owner; }

  std::uint64_t number() const noexcept { return number_; }
  bool one_way() const noexcept { return one_way_; }
  /// One-way bytes that arrived, to be given back when the call is over.
  std::uint64_t received() const noexcept { return received_; }
  /// All that was written is on its way: the stream may go without loss.
  bool flushed() const noexcept override { return outbox_.empty() && (!out_end_ || out_done_); }
  task<> wait_flushed() override;

 private:
  friend class mux;
  bool sendable() const noexcept;
  weft::result<> accept(slice part, bool end);
  /// Bytes are waiting that nobody asks for: let them not pin what they arrived in, and be counted.
  void settle();
  void consumed(std::size_t count);
  void release_charge(std::size_t keep) noexcept;
  void fail(const error& why) noexcept;
  void wake_all() noexcept;

  mux* mux_;
  std::uint64_t number_;
  pipe_owner* owner_ = nullptr;
  std::optional<error> failure_;       // of the call, or of all
  std::optional<error> read_failure_;  // of what arrives only
  io::event readable_, writable_;
  slice_queue inbox_, outbox_;
  std::uint64_t send_credit_ = 0;
  std::uint64_t window_ = 0;          // what it may have under way
  std::uint64_t receive_window_ = 0;  // what the peer may still send
  std::uint64_t returned_ = 0;        // consumed, not yet told
  std::uint64_t received_ = 0;
  std::size_t charged_ = 0;
  bool* destroyed_ = nullptr;
  std::uint8_t urgency_ = 3;
  bool one_way_ = false;
  bool in_end_ = false, stopped_ = false;
  bool write_stopped_ = false;
  bool out_end_ = false, out_done_ = false;
};

/// What a mux leaves to its session.
class mux_owner {
 public:
  /// The peer starts a call: a stream for it, or null to ignore it.
  virtual mux_stream* open_stream(wire::record_tag tag) = 0;
  /// The first bytes of a stream from `open_stream` are readable.
  virtual void opened(mux_stream& s) = 0;
  virtual weft::result<> control_bytes(bytes content) = 0;
  /// CANCEL for `number`, by way of the control stream.
  virtual void send_cancel(std::uint64_t number, std::uint64_t code) noexcept = 0;
  virtual void send_credit(std::uint64_t number, std::uint64_t bytes) = 0;
  /// Writing failed: the carrier is gone.
  virtual void link_failed(const error& why) noexcept = 0;

 protected:
  ~mux_owner() = default;
};

struct mux_config {
  bool is_server = false;
  /// Credit per call and for one-way calls. Lanes have none: QUIC's own is enough there.
  bool flow_control = true;
  std::uint64_t call_window = std::uint64_t{256} << 10;
  /// A call's window doubles up to this as its reader takes what arrives: a window that is smaller
  /// than what is on its way makes both ends wait for each other.
  std::uint64_t largest_call_window = std::uint64_t{4} << 20;
  /// What all calls' windows together may grow by.
  std::uint64_t window_growth = std::uint64_t{16} << 20;
  std::uint64_t one_way_window = std::uint64_t{1} << 20;
  /// What a call without credit of its own (one-way, or on a lane) may hold before it is read.
  std::size_t max_unread = 0;
  std::shared_ptr<memory_budget> memory;
};

/// Shares links among calls: fair by urgency and turns, bounded in both directions. Shard's thread.
class mux : public std::enable_shared_from_this<mux> {
 public:
  mux(io::shard& shard, mux_config config, mux_owner& owner);
  ~mux();

  /// Adds a way out; its writer runs until `stop`.
  void add_link(std::unique_ptr<link> l);
  std::size_t links() const noexcept { return links_.size(); }

  /// One parsed part of a record that arrived. An error is the peer's and ends the connection.
  weft::result<> receive(wire::record_part part);
  /// Between two parts: when half of what a turn usually makes is there, it is written. The other
  /// side works on it while this one goes on, where both would take turns otherwise.
  /// True when something was written.
  bool share_batch();
  /// All that arrived together has been handed to `receive`.
  void end_of_batch();

  /// Client: the number of the next call.
  std::uint64_t next_number() noexcept { return ++last_number_; }
  std::uint64_t last_number() const noexcept { return last_number_; }
  /// A call the client may start now on the one-way window.
  bool one_way_credit() const noexcept { return !config_.flow_control || one_way_credit_ > 0; }
  /// Completes when one-way credit came, or the mux failed.
  task<> wait_one_way_credit();
  /// A one-way call has been dealt with.
  void return_one_way(std::uint64_t count);

  weft::result<> on_credit(std::uint64_t number, std::uint64_t count);
  void on_cancel(std::uint64_t number, error why) noexcept;
  /// The peer's SETTINGS.
  void peer_windows(std::uint64_t call_window, std::uint64_t one_way_window);

  /// Appends control bytes, which leave in front of the next batch.
  void send_control(bytes content);
  /// Sends one record at once, in order, beside all limits: a refusal.
  void send_record(wire::record_tag tag, bytes content);
  const mux_config& config() const noexcept { return config_; }
  /// Bytes waiting for the peer to read.
  std::size_t backlog() const noexcept;
  /// So many, beyond what calls alone may queue, that nothing more should be made of its input.
  bool congested() const noexcept;
  /// Completes when the backlog is small again or the mux failed.
  task<> backlog_gone();
  /// Completes when all has been handed to the links.
  task<> written();
  /// As `written`, and the peer has it, where the carrier can tell.
  task<> delivered();

  /// Ends all streams with `why`; nothing is sent any more.
  void stop(const error& why) noexcept;
  bool stopped() const noexcept { return failure_.has_value(); }
  io::shard& shard() noexcept { return shard_; }

 private:
  friend class mux_stream;
  struct out_link {
    std::unique_ptr<link> to;
    std::vector<slice> queue, writing;
    std::vector<std::byte> control;
    arena small;  // records that are copied rather than shared
    std::array<list<mux_stream, ready_tag>, 8> ready;
    std::size_t bytes = 0;      // of `queue`
    std::size_t in_flight = 0;  // of `writing`
    io::event wake;
    bool scheduled = false, pumping = false;
  };

  /// What the calls make in one turn of the loop.
  struct batch {
    unsigned records = 0;
    std::size_t bytes = 0;
  };

  out_link& link_of(const mux_stream& s) noexcept;
  void schedule(mux_stream& s);
  void pump(out_link& l);
  void emit(out_link& l, mux_stream& s);
  void put(out_link& l, wire::record_tag tag, slice content);
  void copy_to(out_link& l, bytes content);
  void wake_soon(out_link& l);
  void take_batch(out_link& l);
  bool is_new(wire::record_tag tag, bool first) const noexcept;
  std::uint64_t widen(std::uint64_t window) noexcept;
  static task<> write_loop(std::shared_ptr<mux> self, std::shared_ptr<out_link> l);

  io::shard& shard_;
  mux_config config_;
  mux_owner& owner_;
  std::vector<std::shared_ptr<out_link>> links_;
  std::unordered_map<std::uint64_t, mux_stream*> streams_;
  list<mux_stream, unsettled_tag> unsettled_;
  broadcast one_way_event_, written_event_;
  io::event backlog_event_;  // the reader
  std::optional<error> failure_;
  std::uint64_t last_number_ = 0;
  std::uint64_t peer_call_window_ = wire::default_window;
  std::uint64_t peer_one_way_window_ = wire::default_window;
  std::int64_t one_way_credit_ = wire::default_window;
  std::int64_t one_way_receive_ = 0;
  std::uint64_t one_way_returned_ = 0;
  std::uint64_t window_growth_ = 0;  // in use
  batch batch_, last_batch_;
  unsigned shared_ = 0;  // records of the batch that left early
};

}  // namespace weft::rpc::native
