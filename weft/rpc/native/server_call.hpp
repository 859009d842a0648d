#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <asio/cancellation_signal.hpp>

#include <weft/io/event.hpp>
#include <weft/rpc/native/broadcast.hpp>
#include <weft/rpc/native/list.hpp>
#include <weft/rpc/native/messages.hpp>
#include <weft/rpc/native/pipe.hpp>
#include <weft/rpc/native/session.hpp>

// The server's half of a call, whatever carries it.

namespace weft::rpc::native {

/// How long a closing session waits for its client to see how calls ended.
inline constexpr duration wind_down_time = std::chrono::seconds{1};

class native_server_call;
struct running_tag {};
struct held_tag {};

/// Paths by the numbers a client gave them. A bounded number: others are simply not acknowledged.
class method_table {
 public:
  /// The path of a header's method. `acknowledge` is set when the client may use the number from
  /// now on. The result lives as long as the table, or is empty: keep the path yourself.
  weft::result<std::string_view> resolve(const wire::method_reference& method, bool& acknowledge);

 private:
  std::vector<std::unique_ptr<std::string>> paths_;  // by number
};

/// What all calls of one server session share. Lives until its last call has ended.
class server_core : public std::enable_shared_from_this<server_core> {
 public:
  server_core(io::shard& shard, dispatcher& calls, session_options options);
  virtual ~server_core() = default;

  /// Null: run it. Otherwise what to answer instead, or nothing to answer with at all.
  std::optional<status> refuse() const;
  /// Runs the call as a coroutine, from now on, inline.
  void start(std::unique_ptr<native_server_call> call);
  void end_all(const error& why) noexcept;
  /// Cancels all running handlers; their calls end with `why`.
  void conclude_all(const status& why) noexcept;
  /// Completes when no call runs.
  task<> idle();

  wire::settings own_settings() const;
  wire::parse_limits parse_limits() const noexcept {
    return {options_.limits.max_message, options_.limits.max_metadata};
  }

  io::shard& shard_;
  dispatcher& calls_;
  session_options options_;
  session_stats stats_;
  wire::settings peer_;
  method_table methods_;
  transport_info info_;
  std::string peer_subject_;

 protected:
  /// The client may use method `number` from now on.
  virtual void acknowledge_method(std::uint64_t number) = 0;
  /// There may be room for another.
  virtual void call_ended() {}

 private:
  friend class native_server_call;
  void hold(native_server_call& call);
  static task<> run(native_server_call& call);

  list<native_server_call, running_tag> running_;
  list<native_server_call, held_tag> held_;
  broadcast idle_event_;
  bool release_scheduled_ = false;
};

class native_server_call : public server_call,
                           public pipe_owner,
                           public list_node<native_server_call, running_tag>,
                           public list_node<native_server_call, held_tag> {
 public:
  native_server_call(std::shared_ptr<server_core> core, bool one_way);
  ~native_server_call() override;

  const call_info& info() const noexcept override { return info_; }
  task<result<std::optional<payload>>> read() override;
  task<result<>> send_headers(const metadata& headers) override;
  task<result<>> write(const outgoing& message) override;
  void set_trailers(metadata trailers) override { trailers_ = std::move(trailers); }
  void set_compression(compression algorithm) override { compression_ = algorithm; }

  void abandoned(const error& why) noexcept override;

 protected:
  /// To be called once by the derived class, whose member the pipe is.
  void attach(pipe& p) {
    pipe_ = &p;
    p.set_owner(this);
  }
  void set_early_data(bool early) noexcept { info_.early_data = early; }

 private:
  friend class server_core;
  task<result<>> receive_header();
  std::optional<result<>> try_header();
  result<> on_header(wire::received_request request);
  result<bool> take(std::optional<weft::result<slice>> arrived);
  void arm_deadline();
  void arm_header_timeout();
  task<> conclude(status s);
  void reset_late() noexcept;
  void give_up(const status& why) noexcept;
  void release_held();
  task<result<>> flush_held();
  task<result<>> send(slice frames);
  status end_status(status s) const;
  status fault(const error& why);
  bool drained();

  std::shared_ptr<server_core> core_;
  pipe* pipe_ = nullptr;
  call_info info_;
  std::string path_;
  wire::call_parser parser_;
  frame_buffer held_;
  metadata trailers_;
  std::optional<status> fault_;     // of what arrives
  std::optional<status> override_;  // what to end with, whatever the handler says
  asio::cancellation_signal cancel_;
  io::timer deadline_;
  compression compression_ = compression::identity;
  bool answered_ = false;  // something was written
  bool torn_ = false;      // a write was cancelled midway
  bool gone_ = false;
  bool expired_ = false;
  bool concluding_ = false;
};

}  // namespace weft::rpc::native
