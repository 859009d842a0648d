// Internal.
#pragma once

#include <ngtcp2/ngtcp2.h>
#include <ngtcp2/ngtcp2_crypto.h>

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <weft/quic/core/connection.hpp>
#include <weft/quic/core/endpoint.hpp>
#include <weft/quic/core/hub.hpp>
#include <weft/quic/core/memory_account.hpp>
#include <weft/quic/core/native.hpp>
#include <weft/quic/core/pacer.hpp>
#include <weft/quic/core/scheduler.hpp>
#include <weft/quic/core/stand_ins.hpp>
#include <weft/quic/core/stream.hpp>
#include <weft/quic/core/tls_glue.hpp>

namespace weft::quic::core::detail {

class connection_impl;
struct packet_in_work;
using connection_hook = list_hook<connection_impl>;

/// How a server came to believe (or not) in a client's address.
struct accepted_initial {
  const ngtcp2_pkt_hd& header;
  address_validation::verdict token = address_validation::verdict::none;
  ngtcp2_cid original{};  ///< with verdict::retried
};

/// The lists through which connections tell the endpoint that they want something.
struct connection_lists;

/// The machine behind `connection`. The library's callbacks (callbacks.cpp) only change state and
/// note events; nothing here calls the owner.
class connection_impl final : public connection, public route_target, public timer_node {
 public:
  connection_impl(hub& shared, connection_lists& lists, const path& where,
                  const transport_options& options, bool server);
  ~connection_impl() override;

  result<> begin_client(std::string_view host, const client_config& config,
                        std::shared_ptr<SSL_CTX> context, time_point now);
  result<> begin_server(const accepted_initial& initial, const server_config& config,
                        std::shared_ptr<SSL_CTX> context, time_point now);

  // The endpoint's side ---------------------------------------------------------------------------
  void receive(const ngtcp2_path& native, const path& from, ecn mark, bytes datagram,
               time_point now);
  void expired(time_point now) override;
  void on_session(SSL_SESSION* session) noexcept;
  std::optional<transmit> write_train(mutable_bytes buffer, time_point now,
                                      std::size_t train_bytes);
  bool has_more() const noexcept { return more_; }
  /// An owner may see it: a server's after the handshake, or with permitted early data.
  bool announced() const noexcept { return announced_; }
  bool dead() const noexcept { return native_ == nullptr; }
  const tls_session& tls() const noexcept { return tls_; }
  std::vector<std::uint64_t>& ids() noexcept { return ids_; }
  std::vector<initial_id>& initial_ids() noexcept { return initial_ids_; }
  void add_initial_id(const ngtcp2_cid& id);
  /// Whether the current path surely leads to the peer: no limit of amplification holds on it.
  bool path_proven() const noexcept {
    return !server_ || (handshake_complete_ && !validating_ && path_ == known_path_);
  }
  /// CONNECTION_CLOSE may go out only as an answer: the path allowed no more bytes at the end.
  bool close_held() const noexcept { return close_held_; }
  void trace(std::string_view text) noexcept;

  // connection ------------------------------------------------------------------------------------
  bool is_server() const noexcept override { return server_; }
  state current_state() const noexcept override { return state_; }
  const error& close_reason() const noexcept override { return reason_; }
  const path& current_path() const noexcept override { return path_; }
  const tls::session_info& session() const noexcept override { return session_; }
  connection_stats stats() const override;
  std::vector<path_stats> paths() const override { return paths_; }
  quic::resumption resumption() const override { return resumption_.pack(); }
  std::optional<connection_event> poll_event() override;
  stream* poll_stream() override;
  result<stream*> open_stream(bool bidirectional) override;
  stream* accept_stream() override;
  void release(stream& s, std::uint64_t code) override;
  std::size_t max_datagram() const noexcept override;
  result<> send_datagram(slice payload) override;
  std::optional<slice> read_datagram() override;
  void close(std::uint64_t application_code, std::string_view reason, time_point now) override;
  result<> migrate(const path& to, bool immediate, time_point now) override;
  result<> update_keys(time_point now) override;
  void ping(time_point now) override;

  // For stream ------------------------------------------------------------------------------------
  slice read(stream& s, std::size_t limit);
  std::size_t writable(const stream& s) const noexcept;
  result<> write(stream& s, slice data);
  result<> finish(stream& s);
  void reset(stream& s, std::uint64_t code);
  void stop_sending(stream& s, std::uint64_t code);
  void set_priority(stream& s, std::uint8_t urgency, bool incremental);
  void events_taken(stream& s) noexcept;
  void wait_for_room(stream& s) noexcept;

  connection_hook dirty_hook;
  connection_hook ready_hook;
  connection_hook grave_hook;
  std::size_t index = 0;  ///< the endpoint's

 private:
  friend struct callbacks;
  using kind = connection_event::kind;

  // Life (connection_impl.cpp)
  result<> start(const ngtcp2_cid& dcid, const ngtcp2_cid& scid, std::uint32_t version,
                 const ngtcp2_settings& settings, const ngtcp2_transport_params& params);
  result<> resume(const client_config& config);
  std::uint64_t initial_window() const noexcept;
  std::uint64_t announced_window() const noexcept;
  ngtcp2_tstamp stamp(time_point now) noexcept;
  void after_library(time_point now);
  duration longest_hold() const noexcept;
  void fail_library(int code, time_point now);
  error explain(int code);
  error explain_versions() const;
  void note_versions(std::span<const std::uint32_t> offered);
  error explain_peer_close();
  void end(error why, std::vector<std::uint8_t> packet, bool linger, time_point now);
  std::vector<std::uint8_t> closing_packet(const ngtcp2_ccerr& why, time_point now);
  void signal(kind what) noexcept;
  void announce() noexcept;
  void make_ready() noexcept;
  void make_dirty() noexcept;
  void handshake_over();
  void refresh_path() noexcept;
  path real_path(const ngtcp2_path& known) const noexcept;
  path named(path where) const noexcept;
  void begin_window_anew(time_point now);
  time_point stuck_at(time_point now) noexcept;
  path_stats& stats_of(const path& where);
  void arm(time_point now);

  // Streams (streams.cpp)
  stream& new_stream(stream_id id, bool local);
  void recycle(stream& s) noexcept;
  void signal(stream& s, std::uint8_t events) noexcept;
  void end_stream(stream& s) noexcept;
  void end_streams() noexcept;
  void abandon(stream& s, std::uint64_t code) noexcept;
  void on_stream_data(stream& s, bytes data, bool fin);
  void append_received(stream& s, bytes data);
  void on_acknowledged(stream& s, std::size_t count) noexcept;
  void on_stream_closed(stream& s) noexcept;
  void drop_unsent(stream& s) noexcept;
  void shut(stream& s) noexcept;
  void shut_held() noexcept;
  void end_silent_streams(time_point now);
  void note_delivered(stream& s) noexcept;
  void doubt_fin(stream& s) noexcept;
  void settle_doubts(time_point now) noexcept;
  time_point settled_at(const stream& s) const noexcept;
  time_point silent_at(const stream& s) const noexcept;
  time_point next_silence() const noexcept;
  void drop_unread(stream& s) noexcept;
  void schedule(stream& s) noexcept;
  void unschedule(stream& s) noexcept;
  void return_credit(std::size_t count) noexcept;
  void grant_credit() noexcept;
  std::uint64_t window_target() noexcept;
  bool starved() const noexcept;
  void wake_writers() noexcept;
  void return_stream_credit(const stream& s) noexcept;
  bool has_room() const noexcept;
  void on_datagram(bytes payload);

  // Writing (write.cpp)
  static constexpr std::size_t max_segments = 64;
  struct written {
    ngtcp2_ssize size = 0;
    path where;
    ecn mark = ecn::not_ect;
  };
  written write_one(std::uint8_t* dest, std::size_t size, ngtcp2_tstamp now);
  ngtcp2_ssize fill_packet(packet_in_work& packet);
  /// One frame's worth. Returns as the library does, WRITE_MORE included.
  ngtcp2_ssize put_stream(packet_in_work& packet, stream* s);
  ngtcp2_ssize put_datagram(packet_in_work& packet);
  bool acknowledgement_made_work() noexcept;
  transmit account(const written& about, std::size_t size, std::size_t segment);
  void after_write(time_point now, bool wrote);
  std::uint64_t in_flight() const noexcept;
  void end_ping() noexcept;
  stream* next_stream() noexcept;
  void sent(stream& s, std::size_t count, bool fin) noexcept;
  bool may_hold(time_point now) const noexcept;
  bool nothing_queued() const noexcept;
  std::size_t train_room(std::size_t buffer, std::size_t full) noexcept;
  bool library_paces(duration round_trip) const noexcept;
  void pace(std::size_t size, time_point now) noexcept;
  std::optional<transmit> take_stash(mutable_bytes buffer);

  hub& hub_;
  connection_lists& lists_;
  ngtcp2_conn* native_ = nullptr;
  tls_session tls_;
  std::shared_ptr<SSL_CTX> context_;
  ngtcp2_crypto_conn_ref reference_{};
  transport_options options_;
  const bool server_;
  bool announced_ = false;
  bool may_announce_early_ = false;
  bool handshake_counted_ = false;
  bool handshake_complete_ = false;
  bool confirmed_ = false;
  bool early_attempted_ = false;
  bool random_failed_ = false;
  bool memory_failed_ = false;
  bool stateless_reset_ = false;
  bool keys_prepared_ = false;
  bool update_counted_ = false;  // the one under way
  bool path_news_ = false;
  bool path_validated_ = false;
  bool wrote_ = false;
  bool more_ = false;
  bool close_held_ = false;
  bool control_due_ = false;  // something besides acknowledgements must go out
  bool ping_due_ = false;
  bool want_streams_ = false;
  bool datagrams_turn_ = true;
  bool want_datagram_room_ = false;
  state state_ = state::handshaking;
  error reason_{errc::closed, layer::quic, "still open"};
  std::string peer_;                             // for messages
  std::vector<std::uint32_t> offered_versions_;  // by a Version Negotiation packet
  path path_;
  path known_path_;               // the one its owner was last told of
  std::optional<error> refused_;  // a handshake that TLS accepts and we do not
  tls::session_info session_;
  resumption_parts resumption_;
  std::uint32_t pending_events_ = 0;
  bool validating_ = false;  // whether the current or the next path leads to the peer
  stand_ins stand_ins_;
  time_point full_since_ = never;  // the congestion window, without a gap
  time_point still_since_ = never;
  std::uint64_t full_with_ = 0;

  std::vector<std::uint64_t> ids_;
  std::vector<initial_id> initial_ids_;
  std::vector<ngtcp2_cid> reset_tokens_;

  // Time. The library aborts when time runs backwards.
  ngtcp2_tstamp last_stamp_ = 0;
  time_point hold_until_ = never;
  std::size_t packets_since_write_ = 0;
  std::size_t bytes_since_write_ = 0;
  std::uint64_t lost_seen_ = 0;
  std::size_t full_seen_ = 0;
  pacer pacer_;
  bool paced_ = false;  // only what is not paced may go out

  // Streams
  std::deque<stream> storage_;
  std::vector<stream*> free_;
  intrusive_list<stream, &stream::all_hook_> all_;
  intrusive_list<stream, &stream::ready_hook_> ready_;
  intrusive_list<stream, &stream::incoming_hook_> incoming_;
  intrusive_list<stream, &stream::fin_hook_> fins_;
  intrusive_list<stream, &stream::room_hook_> waiting_for_room_;
  intrusive_list<stream, &stream::held_hook_> held_;          // wait for the handshake's end
  intrusive_list<stream, &stream::stopping_hook_> stopping_;  // stopped, not closed; oldest first
  intrusive_list<stream, &stream::doubt_hook_> doubts_;       // whether the FIN is acknowledged
  std::uint64_t acknowledged_at_ = 0;                         // bytes of any stream
  static constexpr std::size_t max_silent_streams = 10'000;
  std::size_t silent_streams_ = 0;
  scheduler scheduler_;
  std::size_t unsent_ready_ = 0;  // bytes the scheduler may send
  std::size_t send_buffered_ = 0;
  struct stream_credit {
    std::uint64_t limit = 0, granted = 0, opened = 0, returned = 0;
  } bidi_credit_, uni_credit_;

  // Receiving
  memory_account memory_;
  arena arena_{64 * 1024};
  std::size_t receive_buffered_ = 0;
  std::uint64_t arena_copied_ = 0;  // since nothing was unread
  std::uint64_t received_total_ = 0, granted_total_ = 0;
  std::uint64_t credit_due_ = 0, credit_step_ = 0;

  std::deque<slice> datagrams_out_, datagrams_in_;
  std::size_t datagrams_out_size_ = 0, datagrams_in_size_ = 0;

  std::vector<std::uint8_t> stash_;
  written stash_about_;

  std::vector<path_stats> paths_;
  std::size_t path_index_ = 0;
  mutable connection_stats counters_;
};

struct connection_lists {
  intrusive_list<connection_impl, &connection_impl::dirty_hook> dirty;
  intrusive_list<connection_impl, &connection_impl::ready_hook> ready;
  /// Ended without an owner ever knowing them.
  intrusive_list<connection_impl, &connection_impl::grave_hook> ended;
};

/// The table of functions the protocol library calls.
const ngtcp2_callbacks& client_callbacks() noexcept;
const ngtcp2_callbacks& server_callbacks() noexcept;
void write_qlog(void* user, std::uint32_t flags, const void* data, std::size_t size) noexcept;

}  // namespace weft::quic::core::detail
