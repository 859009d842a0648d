#pragma once

#include <memory>

#include <weft/quic/connection.hpp>
#include <weft/rpc/native/broadcast.hpp>
#include <weft/rpc/native/mux.hpp>
#include <weft/rpc/native/wire/control.hpp>

// What both ends of a session on a QUIC connection do alike: control streams and lanes.

namespace weft::rpc::native {

/// A QUIC stream as a call's pipe.
class quic_pipe final : public pipe {
 public:
  explicit quic_pipe(quic::stream s) noexcept : stream_{std::move(s)} {}

  std::optional<weft::result<slice>> try_read() override { return stream_.try_read(); }
  task<weft::result<slice>> read() override { return stream_.read(); }
  std::optional<weft::result<>> try_write(slice data, bool end) override;
  task<weft::result<>> write(slice data, bool end) override;
  void stop_reading(std::uint64_t code) noexcept override { stream_.stop_sending(code); }
  void abandon(std::uint64_t code) noexcept override;
  bool flushed() const noexcept override { return true; }
  task<> wait_flushed() override { co_return; }
  void set_urgency(std::uint8_t urgency) noexcept override { stream_.set_priority(urgency); }
  void set_owner(pipe_owner* owner) override;
  const quic::stream& stream() const noexcept { return stream_; }

 private:
  quic::stream stream_;
};

/// Owns the connection, its control streams and its lanes. Kept alive by its readers.
class quic_carrier : public mux_owner {
 public:
  quic_carrier(quic::connection connection, io::shard& shard, mux_config lanes,
               std::size_t max_record);
  virtual ~quic_carrier();

  bool over() const noexcept { return over_; }
  quic::connection& connection() noexcept { return connection_; }

 protected:
  /// Once, as soon as the session can be referred to. `self` owns `*this`.
  void begin(const std::shared_ptr<void>& self, const wire::settings& own);
  /// Ends all that runs, and the connection. Idempotent.
  void shut(const error& why) noexcept;
  void send(const wire::control_event& event);
  /// Opens our lanes, once.
  void open_lanes();

  virtual weft::result<> on_control(const wire::control_event& event) = 0;
  virtual void on_over(const error& why) noexcept = 0;
  /// The peer reset a lane. `number`: of the call whose record had begun there, or 0.
  virtual weft::result<> on_lane_reset(std::uint64_t number, const error& why) = 0;
  /// A call's stream.
  virtual void on_call_stream(quic::stream s) = 0;
  /// False: no more calls from lanes for now; `lane_room_` tells when to look again.
  virtual bool takes_lane_calls() const noexcept { return true; }

  weft::result<> control_bytes(bytes) override;
  void send_cancel(std::uint64_t number, std::uint64_t code) noexcept override;
  void send_credit(std::uint64_t, std::uint64_t) override {}
  void link_failed(const error& why) noexcept override { shut(why); }

  io::shard& shard_;
  quic::connection connection_;
  std::shared_ptr<mux> lanes_;
  broadcast over_event_;  ///< what `drained` and `finished` wait for may have changed
  broadcast lane_room_;

 private:
  void on_stream(quic::stream s);
  static task<> read_stream(std::shared_ptr<void> keep, quic_carrier& self, quic::stream s);
  task<weft::result<>> read_control(quic::stream& s, slice first);
  task<weft::result<>> read_lane(quic::stream& s, slice first);
  weft::result<> control_part(bytes content);
  static task<> write_control(std::shared_ptr<void> keep, quic_carrier& self);

  std::weak_ptr<void> self_;
  wire::control_parser control_;
  std::vector<std::byte> control_out_;
  io::event control_wake_;
  std::size_t max_record_;
  std::size_t peer_lanes_ = 0;
  bool peer_control_ = false;
  bool control_scheduled_ = false;
  bool over_ = false;
};

}  // namespace weft::rpc::native
