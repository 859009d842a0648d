#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <weft/sim/ledger.hpp>
#include <weft/sim/world.hpp>

namespace weft::sim {

/// One end of a connection that carries out its part of a plan, checks every byte that arrives, and
/// writes what it does and sees into the ledger shared with the other end. What contradicts the
/// core's contract on the spot becomes a fault of the world.
class traffic_end {
 public:
  traffic_end(host& at, quic::core::connection& c, const traffic_plan& plan, ledger& book);
  traffic_end(const traffic_end&) = delete;
  traffic_end& operator=(const traffic_end&) = delete;
  /// Leaves the connection without an owner; its streams must not be ready any more.
  ~traffic_end();

  /// Takes events and streams and acts on them.
  void on_ready();

  /// A stream of `size` pattern bytes to the peer, beside the plan: more than the windows, to prove
  /// that they are whole again.
  void send_bulk(std::uint64_t size);
  bool bulk_sent() const noexcept { return bulk_ && bulk_->closed(); }
  std::uint64_t bulk_received() const noexcept { return bulk_received_; }
  bool bulk_ended() const noexcept { return bulk_ended_; }
  /// Lets go of the bulk streams.
  void release_bulk();

  bool established() const noexcept { return established_; }
  /// Client: the peer has confirmed the handshake (seen by its first ticket or token). Before, it
  /// must not change its address (RFC 9000 §9).
  bool confirmed() const noexcept { return confirmed_; }
  bool closed() const noexcept { return closed_; }
  quic::core::connection& connection() noexcept { return connection_; }
  std::size_t live_streams() const noexcept { return live_.size(); }
  /// Highest figures seen.
  std::size_t most_received() const noexcept { return most_received_; }
  std::size_t most_unsent() const noexcept { return most_unsent_; }
  std::uint64_t path_changes() const noexcept { return path_changes_; }

 private:
  struct live_stream {
    quic::core::stream* stream = nullptr;
    stream_record* record = nullptr;
    bool opener = false;
    bool can_send = false, can_receive = false;
    bool send_over = false, receive_over = false;
    bool pausing = false;    ///< a slow reader between two reads
    bool finishing = false;  ///< `finish()` comes later
    const half_plan& half() const {
      return opener ? record->plan->opener : record->plan->responder;
    }
    direction_record& out() const { return record->ways[opener ? 0 : 1]; }
    direction_record& in() const { return record->ways[opener ? 1 : 0]; }
    int out_way() const { return opener ? 0 : 1; }
    int in_way() const { return opener ? 1 : 0; }
  };

  void handle(const quic::core::connection_event& event);
  void start_plan();
  void open(stream_record& record);
  void open_waiting();
  void accept(quic::core::stream& s);
  void look_at(quic::core::stream& s);
  void progress(quic::core::stream_id id);
  void progress(live_stream& l);
  void send(live_stream& l);
  bool write_chunk(live_stream& l);
  void finish(live_stream& l);
  void receive(live_stream& l);
  void take(live_stream& l, const slice& data);
  void notice_end(live_stream& l);
  bool cut_short(live_stream& l);
  void release_when_done(live_stream& l);
  void release(live_stream& l, std::uint64_t code);
  void lose_everything();
  void send_datagram(std::uint64_t number, std::size_t size);
  void read_datagrams();
  void open_bulk();
  void pump_bulk();
  void read_bulk(quic::core::stream& s);
  void update_keys();
  void measure();
  void expect(bool condition, quic::core::stream_id id, std::string_view what);
  template <class Text>
  void tell(quic::core::stream_id id, const Text& text) const;
  void later(duration delay, std::function<void()> action);

  host& host_;
  quic::core::connection& connection_;
  const traffic_plan& plan_;
  ledger& book_;
  std::map<quic::core::stream_id, live_stream> live_;
  std::deque<stream_record*> waiting_;  ///< for stream credit
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  quic::core::stream* bulk_ = nullptr;
  quic::core::stream* peer_bulk_ = nullptr;
  std::uint64_t bulk_left_ = 0, bulk_written_ = 0, bulk_received_ = 0;
  bool bulk_ended_ = false;
  bool established_ = false;
  bool confirmed_ = false;
  bool closed_ = false;
  std::size_t most_received_ = 0, most_unsent_ = 0;
  std::uint64_t path_changes_ = 0;
};

}  // namespace weft::sim
