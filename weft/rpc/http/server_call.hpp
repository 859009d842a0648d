#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <asio/cancellation_signal.hpp>

#include <weft/http/exchange.hpp>
#include <weft/rpc/broadcast.hpp>
#include <weft/rpc/core/list.hpp>
#include <weft/rpc/http/messages.hpp>

// The server's half of a call over HTTP, whatever the protocol.

namespace weft::rpc::http {

struct server_options {
  rpc::limits limits{};
  /// What we can decompress and compress with, most wanted first.
  std::vector<compression> compressions = available_compressions();
  /// Budget for messages under assembly, shared by all calls of a process. Null: unlimited.
  std::shared_ptr<memory_budget> memory{};
  /// Web pages that may call from a browser, by origin ("https://app.example"); "*": any. Others
  /// get no CORS fields, and their browser withholds the answer.
  std::vector<std::string> origins{};
};

struct server_stats {
  std::uint64_t calls_started = 0, calls_finished = 0;
  std::uint64_t messages_sent = 0, messages_received = 0, cancels_received = 0;
  std::size_t running = 0;
};

class server_call_base;
struct running_tag {};
struct held_tag {};

/// What the calls of one shard share, whatever their connections and protocols. Lives until its
/// last call has ended. Shard's thread only.
class server_core : public std::enable_shared_from_this<server_core> {
 public:
  /// `calls` must outlive the running calls.
  server_core(io::shard& shard, dispatcher& calls, server_options options);

  /// Runs the call as a coroutine, from now on, inline.
  void start(std::unique_ptr<server_call_base> call);
  /// Cancels all running handlers; their calls end with `why`.
  void conclude_all(const status& why) noexcept;
  /// Completes when no call runs.
  task<> idle();

  io::shard& shard() noexcept { return shard_; }
  dispatcher& calls() noexcept { return calls_; }
  const server_options& options() const noexcept { return options_; }
  const std::string& accepted() const noexcept { return accepted_; }  ///< "zstd, gzip"
  const server_stats& stats() const noexcept { return stats_; }
  /// An empty head to fill and send at once: its memory is used again.
  weft::http::response_head& scratch_head() noexcept;
  weft::http::field_list& scratch_trailers() noexcept;

 private:
  friend class server_call_base;
  void hold(server_call_base& call);
  static task<> run(server_call_base& call);

  io::shard& shard_;
  dispatcher& calls_;
  server_options options_;
  std::string accepted_;
  server_stats stats_;
  list<server_call_base, running_tag> running_;
  list<server_call_base, held_tag> held_;
  broadcast idle_event_;
  weft::http::response_head head_;
  weft::http::field_list trailers_;
  bool release_scheduled_ = false;
};

/// Owns the exchange; cancels the handler when the client gives up or the deadline passes. Small
/// messages leave together at the end of the turn.
///
/// A protocol derives from this, answers the questions below and is started by
/// `server_core::start`. They are asked in this order: `begin`; `fill_head` once, when something of
/// a good response is to be sent; `conclude`, unless the client is gone.
class server_call_base : public server_call,
                         public list_node<server_call_base, running_tag>,
                         public list_node<server_call_base, held_tag> {
 public:
  ~server_call_base() override;

  const call_info& info() const noexcept override { return info_; }
  task<result<std::optional<payload>>> read() override;
  task<result<>> send_headers(const metadata& headers) override;
  task<result<>> write(const outgoing& message) override;
  void set_trailers(metadata trailers) override { trailers_ = std::move(trailers); }
  void set_compression(compression algorithm) override { chosen_ = algorithm; }

 protected:
  server_call_base(std::shared_ptr<server_core> core, std::unique_ptr<weft::http::exchange> e);

  // What a protocol says --------------------------------------------------------------------------
  /// Reads the request's head: sets `info_` (metadata, codec, protocol), `framing_`,
  /// `request_compression_`, `accepted_` and the deadline. A failure: `conclude` is called with it,
  /// no handler runs.
  virtual result<> begin() = 0;
  /// Adds content type and encoding to the head of a good response; initial metadata follows it.
  virtual void fill_head(weft::http::response_head& head) = 0;
  /// Sends how the call ended, and the end. `held()` is what of the messages is still to be sent,
  /// before it. The handler may have been cancelled; waiting is possible all the same.
  virtual task<> conclude(status s) = 0;
  /// An envelope of the client with flags beyond `flag_compressed`. Fails by default.
  virtual result<> on_special(wire::envelope e);
  /// Content as it came and as it goes; for codings of a protocol's own (gRPC-Web's text form).
  virtual weft::result<slice> decode_content(slice content) { return content; }
  virtual slice encode_content(slice content) { return content; }

  // What it may use -------------------------------------------------------------------------------
  /// The request's only message, which did not come as content.
  void set_message(payload message);
  /// From now. Arms the timer.
  void set_deadline(duration remaining);
  /// Queues the head of a good response, if that has not been done.
  weft::result<> ensure_head();
  /// What replies are compressed with: what the handler chose, otherwise what the request was
  /// compressed with, if the client accepts it.
  compression reply_compression() const noexcept;
  /// Sends the head and what is held, and with `end` ends the response's content. Waits for room as
  /// long as the deadline allows; false: the client is gone or was given up.
  task<bool> send_rest(bool end);
  /// Something of a good response was sent or is about to be.
  bool answered() const noexcept { return answered_; }
  frame_buffer& held() noexcept { return held_; }
  /// The handler wrote a message.
  bool replied() const noexcept { return replied_; }
  /// The deadline has passed.
  bool expired() const noexcept { return expired_; }

  std::shared_ptr<server_core> core_;
  std::unique_ptr<weft::http::exchange> exchange_;
  call_info info_;
  framing framing_ = framing::envelope;
  compression request_compression_ = compression::identity;
  compression message_compression_ = compression::identity;  ///< of the reply `held()`, when whole
  std::vector<compression> accepted_;                        ///< by the client
  metadata headers_, trailers_;

 private:
  friend class server_core;
  void watch();
  void abandoned(const error& why);
  void refused_head(const error& why);
  task<> end(status s);
  result<bool> take(std::optional<weft::result<slice>> arrived);
  result<bool> next_message(std::optional<payload>& message);
  result<> take_whole(std::optional<payload>& message);
  result<> unpack_into(std::optional<payload>& message, payload content, bool compressed);
  compression settled_compression();
  result<> keep_reply(const outgoing& message);
  task<result<>> send(slice content, bool end);
  task<result<>> flush_held();
  task<bool> send_last(slice content, bool end);
  void release_held();
  status end_status(status s) const;
  std::unexpected<status> fault(status why);

  wire::envelope_parser parser_;
  whole_body whole_;
  frame_buffer held_;
  slice backlog_;  // found no room at the end of a turn
  std::optional<compression> chosen_, settled_;
  std::optional<status> fault_;     // of what arrives
  std::optional<status> override_;  // what to end with, whatever the handler says
  asio::cancellation_signal cancel_;
  io::timer deadline_;
  bool request_ended_ = false;
  bool whole_given_ = false;  // a call with one message has handed it out
  bool answered_ = false;     // `headers_` are settled
  bool head_sent_ = false;
  bool replied_ = false;
  bool gone_ = false;
  bool expired_ = false;
  bool concluding_ = false;
};

}  // namespace weft::rpc::http
