#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <asio/cancellation_signal.hpp>

#include <weft/io/event.hpp>
#include <weft/rpc/native/broadcast.hpp>
#include <weft/rpc/native/list.hpp>
#include <weft/rpc/native/messages.hpp>
#include <weft/rpc/native/pipe.hpp>
#include <weft/rpc/native/session.hpp>

// The client's half of a call, whatever carries it.

namespace weft::rpc::native {

class native_client_call;
struct open_tag {};
struct unsent_tag {};

/// Numbers for method paths: asked for with a path's first call, used once the server agreed.
class method_numbers {
 public:
  wire::method_reference reference(std::string_view path);
  void acknowledged(std::uint64_t number);

 private:
  struct hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const noexcept {
      return std::hash<std::string_view>{}(text);
    }
  };
  struct entry {
    std::uint64_t number = 0;
    bool agreed = false;
  };
  std::unordered_map<std::string, entry, hash, std::equal_to<>> by_path_;
  std::vector<entry*> by_number_;
};

/// What all calls of one client session share. Lives until its last call has gone.
class client_core : public std::enable_shared_from_this<client_core> {
 public:
  client_core(io::shard& shard, session_options options, transport_info info);
  virtual ~client_core() = default;

  /// Why no call can be started now, if so.
  std::optional<status> refusal() const;
  /// Checks metadata against the server's limit.
  result<> admissible(const call_options& options) const;
  /// The request header of a call that starts now.
  result<> append_header(frame_buffer& to, const method& m, const call_options& options,
                         time_point deadline, std::size_t spare);
  compression allowed(compression wanted) const noexcept {
    return peer_.accepts(wanted) ? wanted : compression::identity;
  }
  wire::settings own_settings() const;
  /// GOAWAY: ends the calls from `number` on, which the server will not look at.
  void refuse_from(std::uint64_t number, const status& why) noexcept;
  /// The server has not looked at any call: ends them all, to be made elsewhere.
  void refuse_all(const status& why) noexcept;
  /// Ends every call with `why`.
  void end_all(const status& why) noexcept;
  task<> idle();

  io::shard& shard_;
  session_options options_;
  session_stats stats_;
  wire::settings peer_;
  method_numbers methods_;
  transport_info info_;
  std::optional<status> closed_;
  bool server_going_ = false;

 protected:
  /// No call runs any more.
  virtual void became_idle() {}

 private:
  friend class native_client_call;
  void send_soon(native_client_call& call);

  list<native_client_call, open_tag> open_;
  list<native_client_call, unsent_tag> unsent_;
  broadcast idle_event_;
  bool flush_scheduled_ = false;
};

class native_client_call : public client_call,
                           public pipe_owner,
                           public list_node<native_client_call, open_tag>,
                           public list_node<native_client_call, unsent_tag> {
 public:
  native_client_call(std::shared_ptr<client_core> core, const call_options& options);
  ~native_client_call() override;

  /// Queues the header; arms the deadline.
  result<> begin(const method& m, const call_options& options, time_point deadline);

  task<result<>> write(const outgoing& message, bool last) override;
  task<result<>> finish_writing() override;
  task<result<std::optional<payload>>> read() override;
  task<result<metadata>> read_headers() override;
  const metadata& headers() const noexcept override {
    return successor_ ? successor_->headers() : headers_;
  }
  const metadata& trailers() const noexcept override {
    return successor_ ? successor_->trailers() : trailers_;
  }
  void cancel(status why) override;

  /// The carrier or the server ended the call: as `cancel`, without telling the server.
  void end(status why);
  void abandoned(const error&) noexcept override {}
  /// Whether a GOAWAY from `first` on is about this call.
  virtual bool is_from(std::uint64_t first) const noexcept = 0;

 protected:
  void attach(pipe& p) { pipe_ = &p; }
  std::optional<status> known_outcome() const { return final_; }
  /// As `end`, and the server has not seen the call.
  void end_unseen(status why);
  /// For the derived destructor, while the pipe is still there.
  void give_up() noexcept;
  /// Chance to choose a carrier by the first message. `framed`: bytes of header and message.
  virtual task<result<>> before_first_write(std::size_t framed, bool last);
  /// The call ended before it had a pipe: whoever waits for one is to go on.
  virtual void stop_waiting() noexcept {}
  static constexpr std::size_t npos = static_cast<std::size_t>(-1);

 private:
  friend class client_core;
  task<result<>> send(slice frames, bool last);
  result<> sent(const weft::result<>& done);
  /// Frames that leave now; kept for another connection.
  slice outgoing_frames();
  void commit() noexcept;

  // Making it again elsewhere (client_move.cpp).
  struct placing;
  bool may_move() const noexcept { return final_ && unseen_ && keeping_; }
  void keep(slice frames);
  /// A frame's head, and the message behind it.
  task<result<>> send_both(slice head, slice body, bool last);
  task<result<>> write_elsewhere(const outgoing& message, bool last);
  task<> move();
  void stop_moving() noexcept;
  void drop_place() noexcept;
  task<std::unique_ptr<client_call>> find_place();
  task<result<>> send_again(client_call& to);
  static task<> place(std::shared_ptr<client_core> core, std::shared_ptr<placing> into,
                      const method& m, call_options options, time_point deadline);
  result<call_options> options_again() const;
  void send_header();
  void finish(status s) noexcept;
  result<std::optional<payload>> outcome() const;
  bool next_event(std::optional<payload>& message);
  task<result<std::optional<payload>>> read_on(bool headers_only);
  task<result<std::optional<payload>>> take_early();
  void take(weft::result<slice> arrived);

  std::shared_ptr<client_core> core_;
  pipe* pipe_ = nullptr;
  wire::call_parser parser_;
  frame_buffer unsent_;
  std::optional<payload> early_;  // a message met while headers were looked for
  std::optional<status> final_;
  metadata headers_, trailers_;
  response_info* response_;
  const method* method_ = nullptr;
  time_point until_ = never;
  std::unique_ptr<client_call> successor_;  // this call, on another connection
  std::shared_ptr<placing> placing_;
  slice kept_first_;
  std::vector<slice> kept_rest_;
  std::size_t kept_ = 0;
  broadcast moved_;
  io::timer deadline_;
  compression compression_;
  bool headers_known_ = false;
  bool write_ended_ = false;
  bool wait_for_ready_ = false;
  bool keeping_ = false;
  bool unseen_ = false;  // by the server
  bool moving_ = false;
  std::uint8_t moves_ = 0;
};

}  // namespace weft::rpc::native
