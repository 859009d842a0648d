// Internal: drives an HTTP/2 session over a byte stream.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include <weft/http/core/h2_session.hpp>
#include <weft/http/exchange.hpp>
#include <weft/io/event.hpp>

namespace weft::http {

class h2_connection;

/// One exchange as its connection, its owner and their coroutines share it.
class h2_stream : public std::enable_shared_from_this<h2_stream> {
 public:
  h2_stream(std::shared_ptr<h2_connection> on, exchange_id id, request_head request);
  ~h2_stream();

  exchange_id id() const noexcept { return id_; }
  h2_connection& on() const noexcept { return *on_; }
  const request_head& request() const noexcept { return request_; }
  const response_head* response() const noexcept { return response_ ? &*response_ : nullptr; }
  const field_list& trailers() const noexcept { return trailers_; }

  static task<result<>> receive_head(std::shared_ptr<h2_stream> self);
  std::optional<result<slice>> try_read();
  static task<result<slice>> read(std::shared_ptr<h2_stream> self);
  result<> send_head(const response_head& head, bool end);
  std::optional<result<>> try_write(slice& data, bool end);
  static task<result<>> write(std::shared_ptr<h2_stream> self, slice data, bool end);
  result<> finish(const field_list& trailers);
  void stop_reading(give_up why) noexcept;
  void reset(give_up why) noexcept;
  void on_abandoned(std::move_only_function<void(const error&)> callback) {
    abandoned_ = std::move(callback);
  }
  void set_urgency(std::uint8_t urgency) noexcept;
  /// Its owner is gone.
  void release();

  /// What the session reported.
  void take(event::request&& head);
  void take(event::response&& head);
  void take(event::content&& content);
  void take(event::end&& end);
  void take(event::reset&& reset);
  void take(event::stopped&& stopped);
  void take(event::failed&& failed);
  /// The connection is over.
  void end_with(const error& why);
  /// Content of ours has left.
  void progressed();

 private:
  friend class h2_connection;
  bool charge(std::size_t count);
  bool has_content() const noexcept { return first_ != content_.size(); }
  void exhausted();
  void drop_content();
  void flush_gathered();
  void hold(slice content);
  void tell_abandoned(const error& why);
  std::optional<error> write_failure() const;

  std::shared_ptr<h2_connection> on_;
  const exchange_id id_;
  request_head request_;
  std::optional<response_head> response_;
  field_list trailers_;
  std::vector<slice> content_;  // from `first_` on
  std::size_t first_ = 0;
  buffer gathered_;  // short pieces behind `content_`
  std::size_t gathered_size_ = 0;
  std::size_t held_ = 0;          // bytes of content here
  std::size_t charged_ = 0;       // to the budget
  std::optional<error> failure_;  // of the peer's side
  std::optional<error> stopped_;  // of ours
  std::move_only_function<void(const error&)> abandoned_;
  io::event head_, readable_, writable_;
  bool ended_ = false;  // the peer's side, well
  bool stopped_reading_ = false;
  bool finished_ = false;  // our side
  bool released_ = false;
};
using h2_stream_ptr = std::shared_ptr<h2_stream>;

/// What both ends do alike. Kept alive by its exchanges and by its reader and writer.
class h2_connection : public std::enable_shared_from_this<h2_connection> {
 public:
  h2_connection(std::unique_ptr<io::byte_stream> stream, connection_info info, io::shard& shard,
                options opts, h2_role role, request_handler handler);
  ~h2_connection();
  h2_connection(const h2_connection&) = delete;
  h2_connection& operator=(const h2_connection&) = delete;

  /// Once, as soon as it can be referred to.
  void start();

  const connection_info& info() const noexcept { return info_; }
  const options& opts() const noexcept { return options_; }
  h2_role role() const noexcept { return role_; }
  h2_session& session() noexcept { return session_; }
  bool over() const noexcept { return over_.has_value(); }
  const error& reason() const noexcept { return *over_; }
  bool usable() const noexcept;
  connection_stats stats() const noexcept;

  /// There may be something to send: it leaves at the end of the turn.
  void changed();
  void count_reset() noexcept { ++stats_.resets_sent; }
  void count_reset_received() noexcept { ++stats_.resets_received; }
  /// The exchange is gone.
  void released(const h2_stream& stream);

  std::optional<result<std::unique_ptr<exchange>>> try_request(request_head& head, bool end,
                                                               std::uint8_t urgency);
  static task<result<std::unique_ptr<exchange>>> request(std::shared_ptr<h2_connection> self,
                                                         request_head head, bool end,
                                                         std::uint8_t urgency);
  static task<> drain(std::shared_ptr<h2_connection> self);
  void close(give_up why, std::string_view reason) noexcept;
  static task<error> finished(std::shared_ptr<h2_connection> self);

 private:
  using waiting_list = std::deque<std::shared_ptr<io::event>>;

  static task<> read_loop(std::shared_ptr<h2_connection> self);
  static task<> write_loop(std::shared_ptr<h2_connection> self);
  static task<bool> wait_in(waiting_list& list);
  static void wake_all(waiting_list& list);
  void wake_writer();
  void dispatch();
  void begin_request(exchange_id id, event::request&& head);
  void collected();
  void check_idle();
  void start_waiting();
  bool is_idle() const noexcept;
  result<std::unique_ptr<exchange>> begin_exchange(request_head head, bool end,
                                                   std::uint8_t urgency);
  std::optional<error> refusal() const;
  time_point next_check() const noexcept;
  void look_after();
  void check(time_point now);
  /// Ends all that runs. `orderly`: what is still to be said is, before the stream ends.
  void shut(error why, bool orderly) noexcept;
  error end_of_stream(std::optional<error> failed) const;

  io::shard& shard_;
  std::shared_ptr<io::byte_stream> stream_;
  options options_;
  h2_role role_;
  request_handler handler_;
  connection_info info_;
  h2_session session_;
  std::unordered_map<exchange_id, h2_stream_ptr> streams_;
  connection_stats stats_;
  std::optional<error> over_;
  io::event work_;       // for the writer
  io::event caught_up_;  // for the reader
  waiting_list idle_, ended_, requests_;
  io::timer patience_;
  io::timer watch_;
  time_point check_at_ = never;    // when `watch_` goes off
  time_point heard_ = never;       // last
  time_point pinged_ = never;      // without an answer yet
  time_point idle_since_ = never;  // no exchange is open
  bool flush_scheduled_ = false;
  bool writing_ = false;
  bool draining_ = false;
};

}  // namespace weft::http
