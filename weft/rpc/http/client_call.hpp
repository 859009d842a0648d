#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <asio/cancellation_signal.hpp>

#include <weft/http/exchange.hpp>
#include <weft/io/event.hpp>
#include <weft/rpc/broadcast.hpp>
#include <weft/rpc/core/list.hpp>
#include <weft/rpc/http/messages.hpp>

// The client's half of a call over HTTP, whatever the protocol, and the transport that starts them.

namespace weft::rpc::http {

struct client_options {
  rpc::limits limits{};
  /// What we can decompress, most wanted first.
  std::vector<compression> compressions = available_compressions();
  rpc::codec codec = rpc::codec::proto;
  /// Messages from this size on are compressed where a call asks for compression and it makes them
  /// smaller; 0: all are, whatever it makes of them. Bytes.
  std::size_t compress_from = http::compress_from;
  /// Budget for messages under assembly, shared by all calls of a process. Null: unlimited.
  std::shared_ptr<memory_budget> memory{};
  std::string authority;    ///< host and port, as in a URL
  std::string path_prefix;  ///< in front of every method's path: "/api"
  std::string user_agent = "weft/0.1";
  /// A transport of the same protocol, where a call goes on that its server turned away without
  /// looking at it (GOAWAY, H3_REQUEST_REJECTED, REFUSED_STREAM). What a call has written is kept
  /// for that until its response begins, up to a limit. Empty: such calls end with `unavailable`.
  std::function<task<result<std::shared_ptr<transport>>>(idempotency, bool wait_for_ready,
                                                         time_point deadline)>
      elsewhere{};
};

struct client_stats {
  std::uint64_t calls_started = 0, calls_finished = 0;
  std::uint64_t messages_sent = 0, messages_received = 0, cancels_sent = 0;
  std::size_t running = 0;
};

class client_call_base;
class client_transport;
struct open_tag {};

/// What all calls of one connection share. Lives until its last call has gone.
class client_core : public std::enable_shared_from_this<client_core> {
 public:
  client_core(std::unique_ptr<weft::http::client_connection> connection, io::shard& shard,
              client_options options);

  /// Why no call can be started now, if so.
  std::optional<status> refusal() const;
  void end_all(const status& why) noexcept;
  task<> idle();

  io::shard& shard() noexcept { return shard_; }
  weft::http::client_connection& connection() noexcept { return *connection_; }
  const client_options& options() const noexcept { return options_; }
  const std::string& accepted() const noexcept { return accepted_; }  ///< "zstd, gzip"
  const client_stats& stats() const noexcept { return stats_; }

 private:
  friend class client_call_base;
  friend class client_transport;
  std::unique_ptr<weft::http::client_connection> connection_;
  io::shard& shard_;
  client_options options_;
  std::string accepted_;
  client_stats stats_;
  list<client_call_base, open_tag> open_;
  broadcast idle_event_;
  std::optional<status> closed_;
};

/// Owns the exchange. Its own deadline is always `deadline_exceeded`, and its own cancellation what
/// `cancel` was given, whatever the server says of it meanwhile.
///
/// A protocol derives from this and answers the questions below, in this order: `fill_request`;
/// `on_head` once, unless the call ends before; `on_special` or `on_whole`; `on_end`.
class client_call_base : public client_call, public list_node<client_call_base, open_tag> {
 public:
  ~client_call_base() override;

  task<result<>> write(const outgoing& message, bool last) override;
  task<result<>> finish_writing() override;
  task<result<std::optional<payload>>> read() override;
  task<result<metadata>> read_headers() override;
  const metadata& headers() const noexcept override { return headers_; }
  const metadata& trailers() const noexcept override { return trailers_; }
  void cancel(status why) override;
  rpc::codec codec() const noexcept override { return core_->options().codec; }

 protected:
  /// `m` and `options` are needed no longer than until `fill_request` has returned.
  client_call_base(std::shared_ptr<client_core> core, const method& m, const call_options& options,
                   framing frame);

  // What a protocol says --------------------------------------------------------------------------
  /// Fills the request's head but for method, scheme, authority and path. `deadline` may be
  /// `never`.
  virtual result<> fill_request(weft::http::request_head& head, const method& m,
                                const call_options& options, time_point deadline) = 0;
  /// Name and value of the field that tells how much time is left.
  virtual std::pair<std::string_view, std::string> timeout_field(duration left) const = 0;
  /// True: the request waits for its only message, which `take_message` may put into the head.
  virtual bool starts_with_message() const noexcept { return false; }
  /// True: the request has no content. Otherwise `content` has been filled with all there is.
  virtual result<bool> take_message(weft::http::request_head&, const outgoing&,
                                    frame_buffer& /*content*/) {
    return false;
  }
  /// The response's head: sets `headers_`, `response_compression_` and, for an answer that is no
  /// message, `framing_`. A failure ends the call.
  virtual result<> on_head(const weft::http::response_head& head) = 0;
  /// An envelope with flags beyond `flag_compressed`; its content as it came. A status: how the
  /// call ended, nothing but the end may follow. Fails by default.
  virtual result<std::optional<status>> on_special(wire::envelope e);
  /// All of the content, when framing is `whole`; a message, or how the call failed.
  virtual result<payload> on_whole(payload body);
  /// The end, where nothing told before how the call ended: sets `trailers_`, says how.
  virtual status on_end(const weft::http::field_list& trailers) = 0;
  /// As in `server_call_base`.
  virtual weft::result<slice> decode_content(slice content) { return content; }
  virtual slice encode_content(slice content) { return content; }

  // What it may use -------------------------------------------------------------------------------
  const client_core& core() const noexcept { return *core_; }
  const weft::http::response_head* response() const noexcept {
    return exchange_ ? exchange_->response() : nullptr;
  }
  /// Any content came.
  bool had_content() const noexcept { return had_content_; }
  std::size_t max_message() const noexcept { return core_->options().limits.max_message; }
  std::size_t max_metadata() const noexcept { return core_->options().limits.max_metadata; }

  framing framing_;
  compression request_compression_;
  compression response_compression_ = compression::identity;
  metadata headers_, trailers_;

 private:
  friend class client_core;
  friend class client_transport;
  /// An exchange on its way. Not awaited directly: the deadline ends the wait, too.
  struct opening;
  /// Another connection on its way, likewise.
  struct placing;

  result<> begin(const method& m, const call_options& options, time_point deadline);
  /// Asks for the exchange, and waits for it until the call ends.
  task<result<>> obtain_exchange(bool end);
  task<weft::result<std::unique_ptr<weft::http::exchange>>> ask(bool end);
  static task<> open(std::shared_ptr<client_core> core, std::shared_ptr<opening> into);
  task<result<>> write_only(const outgoing& message);
  task<result<>> send(slice content, bool last);
  result<> sent(const weft::result<>& done);
  task<result<>> sent_elsewhere(const weft::http::exchange* from, error why);
  void look_at_head();
  bool next_event(std::optional<payload>& message);
  void take_envelope(wire::envelope e, std::optional<payload>& message);
  void take_special(wire::envelope e);
  void take_whole(std::optional<payload>& message);
  void take(weft::result<slice> arrived);
  task<result<std::optional<payload>>> read_on(bool headers_only);
  result<std::optional<payload>> outcome() const;
  void finish(status s) noexcept;
  void end_by_peer(const error& why);

  // Going on elsewhere (client_move.cpp)
  void keep(const slice& content);
  void commit() noexcept;
  bool may_move() const noexcept;
  bool goes_elsewhere(const weft::http::exchange* from, const error& why) const noexcept;
  task<bool> move(const weft::http::exchange* from, error why);
  task<std::optional<error>> go_on_elsewhere();
  task<std::shared_ptr<client_core>> find_place();
  void stop_moving() noexcept;
  static task<> place(std::shared_ptr<client_core> core, std::shared_ptr<placing> into,
                      idempotency level, bool wait_for_ready, time_point deadline);
  void join(std::shared_ptr<client_core> core);
  void renew_timeout();
  task<> send_again();

  std::shared_ptr<client_core> core_;
  std::unique_ptr<weft::http::exchange> exchange_;
  std::shared_ptr<opening> opening_;
  std::shared_ptr<placing> placing_;
  io::event moved_;
  std::vector<std::unique_ptr<weft::http::exchange>> left_;  ///< an operation may still return
  slice kept_first_;                                         ///< content, for another connection
  std::vector<slice> kept_rest_;
  std::size_t kept_ = 0;
  std::size_t keep_up_to_;
  weft::http::request_head head_;
  wire::envelope_parser parser_;
  whole_body whole_;
  frame_buffer unsent_;
  std::optional<status> final_;
  response_info* response_;
  io::timer deadline_timer_;
  time_point deadline_ = never;
  idempotency level_;
  bool wait_for_ready_;
  bool keeping_;
  bool moving_ = false;
  std::uint8_t moves_ = 0;
  std::uint8_t urgency_;
  bool head_seen_ = false;
  bool had_content_ = false;
  bool ended_ = false;  // the content
  bool write_ended_ = false;
};

/// A transport over one HTTP connection; the protocol makes the calls.
class client_transport : public transport {
 public:
  ~client_transport() override;

  task<result<std::unique_ptr<client_call>>> start(const method& m, const call_options& options,
                                                   time_point deadline) override;
  task<result<>> one_way(const method& m, const call_options& options, time_point deadline,
                         const outgoing& message) override;
  bool usable() const noexcept override;
  transport_info info() const override;
  void close(status why) noexcept override;
  task<> drain() override;

  const client_stats& stats() const noexcept { return core_->stats(); }
  weft::http::client_connection& connection() noexcept { return core_->connection(); }

 protected:
  client_transport(std::unique_ptr<weft::http::client_connection> connection, io::shard& shard,
                   client_options options);
  virtual std::unique_ptr<client_call_base> make_call(std::shared_ptr<client_core> core,
                                                      const method& m,
                                                      const call_options& options) = 0;

 private:
  friend class client_call_base;
  std::shared_ptr<client_core> core_;
};

}  // namespace weft::rpc::http
