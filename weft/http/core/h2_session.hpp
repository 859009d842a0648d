// Internal: HTTP/2 (RFC 9113) with prior knowledge as a state machine.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <weft/base/time.hpp>
#include <weft/http/core/event.hpp>
#include <weft/http/core/h2_limits.hpp>

struct nghttp2_session;

namespace weft::http {

enum class h2_role : std::uint8_t { client, server };

struct h2_settings {
  std::size_t max_field_section = std::size_t{16} << 10;
  std::size_t max_concurrent = 1'000;
  /// Content the peer may send ahead of `consume`.
  std::size_t exchange_window = std::size_t{1} << 20;
  std::size_t connection_window = std::size_t{16} << 20;
};

/// One connection's HTTP/2.
class h2_session final : public session {
 public:
  h2_session(h2_role role, const h2_settings& settings);
  ~h2_session() override;

  /// Bytes of the peer; what is reported as content may share them. `now` never goes back. An error
  /// ends the connection: `detail()` is the code of RFC 9113 §7 that the GOAWAY carries, which the
  /// next `collect` yields.
  result<> receive(const slice& arrived, time_point now);
  /// Why the connection is over, which `collect` may find out as well.
  const std::optional<error>& failure() const noexcept { return failure_; }
  /// Appends what is to be sent, about `most` bytes at once. Frames are gathered in few slices;
  /// content is shared unless it is short. Reports events, too.
  void collect(std::vector<slice>& out, std::size_t most);
  /// There may be something to collect.
  bool wants_to_send() const noexcept;
  /// Frames that answer the peer and are not collected: what one that does not read makes us hold.
  std::size_t backlog() const noexcept;
  /// Exchanges whose queued content shrank since the last call.
  std::vector<exchange_id>& progressed() noexcept { return progressed_; }

  /// Client: the server lets us open another one now.
  bool may_request() const noexcept;
  /// Client: identifiers are not used up.
  bool has_identifiers() const noexcept;
  /// Client: queues a request. errc::invalid_argument for one that cannot be. Precondition:
  /// `may_request()`.
  result<exchange_id> request(const request_head& head, bool end, std::uint8_t urgency);

  /// Since when a header or trailer section of the peer has been under way; `never`: none is.
  time_point section_since() const noexcept { return sections_.since(); }
  /// Asks for a sign of life, which `pongs()` counts.
  void ping();
  std::uint64_t pongs() const noexcept { return pongs_; }
  /// Ends the connection with GOAWAY: all that is open is over, without events.
  void terminate(give_up why, std::string_view reason);
  /// What the peer's GOAWAY said, unless that it is merely leaving.
  const std::optional<error>& farewell() const noexcept { return farewell_; }

  result<> respond(exchange_id id, const response_head& head, bool end) override;
  void send(exchange_id id, slice data, bool end) override;
  result<> send_trailers(exchange_id id, const field_list& trailers) override;
  std::size_t unsent(exchange_id id) const noexcept override;
  void consume(exchange_id id, std::size_t count) override;
  void stop(exchange_id id, give_up why) override;
  void reset(exchange_id id, give_up why) override;
  void set_urgency(exchange_id id, std::uint8_t urgency) override;
  /// In two steps (RFC 9113 §6.8): new exchanges are turned away once the client has answered the
  /// first.
  void go_away() override;
  /// The last step is taken: the peer knows, and what it sent before has come.
  bool gone_away() const noexcept { return gone_away_; }
  bool peer_going_away() const noexcept override { return peer_going_away_; }
  std::size_t open_exchanges() const noexcept override { return streams_.size(); }
  /// Exchanges turned away by the session itself.
  std::uint64_t rejected() const noexcept { return rejected_; }

 private:
  struct callbacks;
  struct stream_state;
  struct line_list;

  stream_state* find(exchange_id id) const noexcept;
  stream_state& create(exchange_id id);
  void remove(exchange_id id);
  void resume(stream_state& s);
  void give_up_stream(stream_state& s, std::uint32_t code);
  void end_receiving(stream_state& s);
  void end_sending(stream_state& s);
  void refuse_too_large(stream_state& s);
  void reset_by_peer(stream_state& s, std::uint32_t code);
  void broken_by_peer(stream_state& s, std::string_view words, errc code = errc::protocol);
  void ponged(const std::uint8_t* payload);
  void take_priority(exchange_id id, std::string_view text);
  void take_farewell(std::uint32_t code, std::string_view reason);
  void window_opened(stream_state* s);
  void check_window(stream_state& s);
  void sent_reset(const stream_state* s, std::uint32_t code);
  bool fits_window(const stream_state& s) const noexcept;
  bool goes_first(const stream_state& s) const noexcept;
  void take_section(stream_state& s, bool end);
  void take_end(stream_state& s);
  void take_content(stream_state& s, bytes content);
  void ended_stream(stream_state& s, std::uint32_t code);
  void emit_content(stream_state& s, std::size_t count);
  result<> check_size(std::string_view what) const;
  result<> submit_response(stream_state& s, const response_head& head, bool end);
  void append(bytes from);
  slice shared(bytes from);
  bool spend(h2_allowance& allowance, std::string_view what);
  void fail_connection(std::uint32_t code, std::string message);
  std::string in_words(std::string_view fallback) const;
  void update_turn(stream_state& s);
  bool wait_for_more_urgent(stream_state& s);
  bool release_held();

  h2_role role_;
  h2_settings settings_;
  nghttp2_session* session_ = nullptr;
  std::unordered_map<exchange_id, std::unique_ptr<stream_state>> streams_;
  std::vector<std::unique_ptr<stream_state>> spare_;
  std::vector<exchange_id> progressed_;
  std::vector<exchange_id> held_;             // client: let more urgent ones go first
  std::array<std::uint32_t, 8> with_turn_{};  // client: could send content, by urgency
  const slice* arriving_ = nullptr;           // what `receive` was given
  std::vector<slice>* out_ = nullptr;         // what `collect` fills
  std::size_t room_ = 0;                      // left in it
  arena frames_, pieces_{16 * 1024};
  h2_section_watch sections_;
  h2_allowance resets_{1'000, 200};
  h2_allowance idle_frames_{10'000, 1'000};
  time_point now_{};
  std::unique_ptr<line_list> lines_;  // scratch
  std::string last_words_;            // of the library about what was wrong
  std::optional<error> failure_;
  std::optional<error> farewell_;
  std::uint64_t pongs_ = 0;
  std::uint64_t rejected_ = 0;
  bool peer_going_away_ = false;
  bool going_away_ = false;
  bool client_knows_ = false;  // of our departure
  bool gone_away_ = false;
  bool terminated_ = false;
};

}  // namespace weft::http
