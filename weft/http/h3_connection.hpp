// Internal: drives an HTTP/3 session over a QUIC connection.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include <weft/base/slice_queue.hpp>
#include <weft/http/core/h3_session.hpp>
#include <weft/http/exchange.hpp>
#include <weft/io/event.hpp>

namespace weft::http {

class h3_connection;
class h3_exchange;

/// One request stream and what is still to be written to it. Lives until both its exchange is gone
/// and our side is written.
struct h3_stream {
  explicit h3_stream(quic::stream s) noexcept : stream{std::move(s)}, id{stream.id()} {}

  quic::stream stream;
  const exchange_id id;
  h3_exchange* user = nullptr;
  bool begun = false;   // a request was handed over
  slice_queue pending;  // what the transport has no room for
  bool pending_fin = false;
  bool pushing = false;  // somebody waits for room
  io::timer patience;    // for a request's head
};
using h3_stream_ptr = std::shared_ptr<h3_stream>;

/// Allows so many give-ups at once, and so many a second after that: a client that opens and
/// resets in a loop makes work and never waits for any.
class reset_allowance {
 public:
  /// False: too many.
  bool take(time_point now) noexcept;

 private:
  static constexpr double burst = 1'000, per_second = 200;
  double left_ = burst;
  time_point since_{};
};

/// What both ends do alike. Kept alive by its exchanges and coroutines.
class h3_connection : public std::enable_shared_from_this<h3_connection> {
 public:
  h3_connection(quic::connection connection, io::shard& shard, options opts, end_of side,
                request_handler handler);
  ~h3_connection();
  h3_connection(const h3_connection&) = delete;
  h3_connection& operator=(const h3_connection&) = delete;

  /// Once, as soon as it can be referred to.
  void start();

  const connection_info& info() const noexcept { return info_; }
  const options& opts() const noexcept { return options_; }
  io::shard& shard() noexcept { return shard_; }
  h3_session& session() noexcept { return *session_; }
  quic::connection& transport() noexcept { return connection_; }
  connection_stats& stats() noexcept { return stats_; }
  bool over() const noexcept { return over_.has_value(); }
  const error& reason() const noexcept { return *over_; }
  bool usable() const noexcept;

  /// Feeds what `stream` gave, and hands out what follows from it.
  void feed(h3_stream& stream, result<slice> arrived);
  /// Feeds all that is there without waiting, until `stream` has more content than a reader needs.
  void feed_ready(const h3_stream_ptr& stream);
  /// Flushes at the end of the turn.
  void changed();
  /// The exchange is gone.
  void released(h3_exchange& exchange, const h3_stream_ptr& stream);

  std::optional<result<std::unique_ptr<exchange>>> try_request(request_head& head, bool end,
                                                               std::uint8_t urgency);
  task<result<std::unique_ptr<exchange>>> request(request_head head, bool end,
                                                  std::uint8_t urgency);
  task<> drain();
  void close(give_up why, std::string_view reason) noexcept;
  task<error> finished();

 private:
  void shut(error why) noexcept;
  void fail_with(const error& why);
  void on_stream(quic::stream s);
  void serve_request(quic::stream s);
  void watch(const h3_stream_ptr& stream);
  void gave_up(const h3_stream_ptr& stream, const error& why);
  void dispatch();
  void begin_request(const h3_stream_ptr& stream, event::request head);
  static task<> await_head(std::shared_ptr<h3_connection> self, h3_stream_ptr stream);
  static task<> read_unidirectional(std::shared_ptr<h3_connection> self, quic::stream s);
  static task<> push(std::shared_ptr<h3_connection> self, h3_stream_ptr stream);
  void flush();
  void write(h3_write& w);
  void obey();
  void forget_finished(const h3_stream_ptr& stream);
  void maybe_idle();
  void leave_when_idle();
  static task<bool> wait_in(std::vector<std::shared_ptr<io::event>>& list);
  void rest(time_point now);
  void announce_departure();
  void go_away();
  duration notice() const;
  task<bool> wait_until(time_point at);
  result<std::unique_ptr<exchange>> begin_exchange(quic::stream s, request_head head, bool end,
                                                   std::uint8_t urgency);

  io::shard& shard_;
  quic::connection connection_;
  options options_;
  end_of side_;
  request_handler handler_;
  connection_info info_;
  std::unique_ptr<h3_session> session_;
  std::vector<quic::stream> own_;  // control and QPACK
  std::unordered_map<exchange_id, h3_stream_ptr> streams_;
  std::vector<event> events_;  // from `next_event_` on
  std::size_t next_event_ = 0;
  reset_allowance allowance_;
  connection_stats stats_;
  std::optional<error> over_;
  std::vector<std::shared_ptr<io::event>> idle_, ended_;
  io::timer rest_;
  bool flush_scheduled_ = false;
  bool leaving_ = false;   // the server has told the client to go elsewhere
  bool draining_ = false;  // new requests are turned away
};

class h3_exchange final : public exchange {
 public:
  h3_exchange(std::shared_ptr<h3_connection> on, h3_stream_ptr stream, request_head request);
  ~h3_exchange() override;

  const connection_info& connection() const noexcept override { return on_->info(); }
  const request_head& request() const noexcept override { return request_; }
  task<result<>> receive_head() override;
  const response_head* response() const noexcept override {
    return response_ ? &*response_ : nullptr;
  }
  task<result<slice>> read() override;
  std::optional<result<slice>> try_read() override;
  const field_list& trailers() const noexcept override { return trailers_; }
  result<> send_head(const response_head& head, bool end) override;
  std::optional<result<>> try_write(slice data, bool end) override;
  task<result<>> write(slice data, bool end) override;
  result<> finish(const field_list& trailers) override;
  void stop_reading(give_up why) noexcept override;
  void reset(give_up why) noexcept override;
  void on_abandoned(std::move_only_function<void(const error&)> callback) override {
    abandoned_ = std::move(callback);
  }
  void set_urgency(std::uint8_t urgency) noexcept override;
  bool early_data() const noexcept override { return stream_->stream.early_data(); }

 private:
  friend class h3_connection;
  void take(event& e);
  void end_with(const error& why);
  void tell_abandoned(const error& why);
  bool wants_more() const noexcept;
  std::optional<error> write_failure() const;

  std::shared_ptr<h3_connection> on_;
  h3_stream_ptr stream_;
  request_head request_;
  std::optional<response_head> response_;
  slice_queue content_;
  std::size_t held_ = 0;  // bytes in `content_`
  field_list trailers_;
  std::optional<error> failure_;  // of the peer's side
  std::optional<error> stopped_;  // of ours
  std::move_only_function<void(const error&)> abandoned_;
  io::event writable_;
  bool ended_ = false;  // the peer's side, well
  bool stopped_reading_ = false;
  bool finished_ = false;  // our side
};

}  // namespace weft::http
