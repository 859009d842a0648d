// Internal: HTTP/3 (RFC 9114, QPACK RFC 9204) as a state machine.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <unordered_map>

#include <weft/base/time.hpp>
#include <weft/http/core/event.hpp>

struct nghttp3_conn;

namespace weft::http {

enum class end_of { client, server };

struct h3_settings {
  std::size_t max_field_section = std::size_t{16} << 10;
  std::size_t qpack_table = 4096;
  std::size_t max_concurrent = 1'000;
};

/// Bytes for one stream.
struct h3_write {
  std::int64_t stream;
  /// Content is shared with what was given to `send`; frame headers and field sections are copies.
  std::vector<slice> parts;
  bool fin;
};

/// What the driver has to do to a stream, beside writing to it.
struct h3_command {
  enum class what : std::uint8_t { reset, stop_sending, prioritise };
  std::int64_t stream;
  what does;
  std::uint64_t code;  ///< or the urgency
};

/// One connection's HTTP/3. Errors of `receive` and others are connection errors whose `detail()`
/// is the code to close with (RFC 9114 §8.1); after one the session is of no more use.
class h3_session final : public session {
 public:
  static result<std::unique_ptr<h3_session>> make(end_of side, const h3_settings& settings);
  ~h3_session() override;

  /// The ids of three unidirectional streams of ours, before anything else.
  result<> bind(std::int64_t control, std::int64_t encoder, std::int64_t decoder);

  /// Bytes of a peer's stream; a view into `data` may be kept.
  /// `now` never goes back.
  result<> receive(std::int64_t stream, const slice& data, bool fin, time_point now);
  /// The peer reset its side of a stream.
  result<> receive_reset(std::int64_t stream, std::uint64_t code);
  /// The peer asked us to stop sending.
  void receive_stop(std::int64_t stream, std::uint64_t code);

  /// Client: a request on a bidirectional stream that the driver has opened.
  result<> request(std::int64_t stream, const request_head& head, bool end, std::uint8_t urgency);

  /// What to write next, null: nothing. All of it must be taken, or its stream blocked. It stays
  /// until the next call, and may be moved from once it is taken.
  result<h3_write*> next_write();
  /// The transport took what `next_write` gave.
  result<> taken(const h3_write& written);
  /// The transport has no room: nothing of this stream until `unblock`.
  void block(std::int64_t stream);
  void unblock(std::int64_t stream);
  std::vector<h3_command>& commands() noexcept { return commands_; }

  result<> respond(exchange_id id, const response_head& head, bool end) override;
  void send(exchange_id id, slice data, bool end) override;
  result<> send_trailers(exchange_id id, const field_list& trailers) override;
  std::size_t unsent(exchange_id id) const noexcept override;
  void consume(exchange_id, std::size_t) override {}  // QUIC's flow control is the driver's
  void stop(exchange_id id, give_up why) override;
  void reset(exchange_id id, give_up why) override;
  void set_urgency(exchange_id id, std::uint8_t urgency) override;
  /// Server: tells the client to go elsewhere, while what it sent before it knew is still let in;
  /// to be followed by `go_away` (RFC 9114 §5.2). Idempotent.
  void announce_departure();
  void go_away() override;
  bool peer_going_away() const noexcept override { return peer_going_away_; }
  /// Client: requests on streams from this on will not be looked at.
  std::int64_t refused_from() const noexcept { return refused_from_; }
  std::size_t open_exchanges() const noexcept override { return open_; }
  /// Either side goes on.
  bool is_open(exchange_id id) const noexcept { return streams_.contains(id); }
  /// More of the peer's side is wanted. True for a stream not seen before.
  bool is_receiving(exchange_id id) const noexcept;
  /// The peer's limit on field sections.
  std::uint64_t peer_max_field_section() const noexcept { return peer_max_section_; }

 private:
  struct callbacks;
  struct stream_state;

  h3_session(end_of side, const h3_settings& settings);
  stream_state* find(exchange_id id) const noexcept;
  stream_state& create(exchange_id id);
  result<> submit(stream_state& s, const response_head& head, bool end);
  void resume(const stream_state& s);
  void expect_requests_from(std::int64_t stream);
  std::uint8_t urgency_of(exchange_id id) const noexcept;
  bool is_peers_control(std::int64_t stream, const slice& data);
  void take_urgencies();
  void end_receiving(stream_state& s);
  void end_sending(stream_state& s);
  void close_finished();
  void refuse_too_large(stream_state& s);
  void refused_message(stream_state& s, std::uint64_t code);
  slice shared(const std::uint8_t* data, std::size_t size) const;
  slice joined(const stream_state* s, const void* data, std::size_t size) const;
  void command(std::int64_t stream, h3_command::what does, std::uint64_t code) {
    commands_.push_back({stream, does, code});
  }

  end_of side_;
  h3_settings settings_;
  nghttp3_conn* conn_ = nullptr;
  std::unordered_map<exchange_id, std::unique_ptr<stream_state>> streams_;
  std::vector<std::unique_ptr<stream_state>> spare_;
  std::vector<exchange_id> finished_, too_large_;
  std::vector<h3_command> commands_;
  h3_write write_{};                         // what `next_write` gave; its memory is used again
  const slice* arriving_ = nullptr;          // what `receive` was given
  std::vector<std::int64_t> other_streams_;  // the peer's, that are not its control stream
  std::int64_t peer_control_ = -1;
  std::uint64_t expected_requests_ = 0;
  std::size_t open_ = 0;
  std::int64_t refused_from_ = INT64_MAX;
  std::uint64_t peer_max_section_ = UINT64_MAX;
  bool peer_going_away_ = false;
  bool announced_ = false, going_away_ = false;
  bool ran_dry_ = false;  // the library asked for content
};

}  // namespace weft::http
