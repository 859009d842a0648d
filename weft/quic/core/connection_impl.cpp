#include <weft/quic/core/connection_impl.hpp>

#include <openssl/err.h>

#include <algorithm>
#include <array>
#include <bit>
#include <format>

#include <weft/quic/core/settings.hpp>

namespace weft::quic::core::detail {
namespace {

std::span<const std::uint8_t> limits_of(const ngtcp2_transport_params& params,
                                        std::array<std::uint64_t, 8>& out) noexcept {
  out = {params.initial_max_data,
         params.initial_max_stream_data_bidi_local,
         params.initial_max_stream_data_bidi_remote,
         params.initial_max_stream_data_uni,
         params.initial_max_streams_bidi,
         params.initial_max_streams_uni,
         params.max_datagram_frame_size,
         params.active_connection_id_limit};
  return {reinterpret_cast<const std::uint8_t*>(out.data()), sizeof out};
}

}  // namespace

connection_impl::connection_impl(hub& shared, connection_lists& lists, const path& where,
                                 const transport_options& options, bool server)
    : route_target{true},
      hub_{shared},
      lists_{lists},
      options_{options},
      server_{server},
      peer_{where.remote.to_string()},
      path_{where},
      known_path_{where},
      memory_{shared.options.memory} {
  if (options_.max_udp_payload < NGTCP2_MAX_UDP_PAYLOAD_SIZE)
    options_.max_udp_payload = NGTCP2_MAX_UDP_PAYLOAD_SIZE;
  bidi_credit_.limit = bidi_credit_.granted = options_.max_bidi_streams;
  uni_credit_.limit = uni_credit_.granted = options_.max_uni_streams;
  paths_.push_back({where});
}

connection_impl::~connection_impl() {
  if (native_) {
    end(error{errc::closed, layer::quic, "released"}, {}, false, {});
  } else if (!ids_.empty()) {
    // It never began: nothing may lead to it.
    if (handshake_counted_ && !handshake_complete_) --hub_.stats.handshakes;
    hub_.bury(*this, {}, time_point{});
  }
  hub_.timers.erase(*this);
  lists_.dirty.erase(*this);
  lists_.ready.erase(*this);
  lists_.ended.erase(*this);
}

// Beginning ---------------------------------------------------------------------------------------

std::uint64_t connection_impl::initial_window() const noexcept {
  const auto& budget = hub_.options.memory;
  if (!budget) return options_.connection_window;
  // What many connections were promised at once cannot be taken back, so a full process promises
  // little; the rest follows as the connection reads.
  const std::uint64_t left = budget->limit() - std::min(budget->used(), budget->limit());
  return std::min(options_.connection_window,
                  std::max<std::uint64_t>(left / 16, memory_account::guaranteed));
}

// The library holds MAX_DATA back until a share of the window it began with is due. So with a
// budget a connection begins with what it always may have, else a grant under pressure would never
// be told; the rest of its window goes out with its first packets.
std::uint64_t connection_impl::announced_window() const noexcept {
  const std::uint64_t window = initial_window();
  return hub_.options.memory ? std::min<std::uint64_t>(window, memory_account::guaranteed) : window;
}

result<> connection_impl::start(const ngtcp2_cid& dcid, const ngtcp2_cid& scid,
                                std::uint32_t version, const ngtcp2_settings& settings,
                                const ngtcp2_transport_params& params) {
  granted_total_ = params.initial_max_data;
  credit_step_ = granted_total_ / 8;
  credit_due_ = options_.connection_window - std::min(options_.connection_window, granted_total_);
  auto with = settings;
  with.rand_ctx.native_handle = this;
  if (options_.qlog) with.qlog_write = write_qlog;
  last_stamp_ = settings.initial_ts;
  const native_path where{path_};
  const int failed =
      server_ ? ngtcp2_conn_server_new(&native_, &dcid, &scid, where.get(), version,
                                       &server_callbacks(), &with, &params, nullptr, this)
              : ngtcp2_conn_client_new(&native_, &dcid, &scid, where.get(), version,
                                       &client_callbacks(), &with, &params, nullptr, this);
  if (failed != 0) {
    native_ = nullptr;
    return fail(errc::internal, layer::quic,
                std::format("cannot make a connection: {}", ngtcp2_strerror(failed)));
  }
  reference_.get_conn = [](ngtcp2_crypto_conn_ref* reference) {
    return static_cast<connection_impl*>(reference->user_data)->native_;
  };
  reference_.user_data = this;
  ngtcp2_conn_set_tls_native_handle(native_, tls_.native());
  if (options_.keep_alive > 0s)
    ngtcp2_conn_set_keep_alive_timeout(native_,
                                       static_cast<ngtcp2_duration>(options_.keep_alive.count()));
  if (random_failed_)
    return fail(errc::random, layer::quic, "the random source failed while connecting");
  return {};
}

result<> connection_impl::begin_client(std::string_view host, const client_config& config,
                                       std::shared_ptr<SSL_CTX> context, time_point now) {
  context_ = std::move(context);
  announced_ = true;
  ngtcp2_cid scid, dcid;
  std::uint64_t id = 0;
  dcid.datalen = 16;
  if (!hub_.random(dcid.data, dcid.datalen) || !hub_.issue_id(*this, scid, id))
    return fail(errc::random, layer::quic,
                "the random source failed, so no connection id was drawn");
  ids_.push_back(id);
  reference_.user_data = this;
  auto session = tls_session::client(context_.get(), config.tls, host, hub_.options.fast_protection,
                                     &reference_);
  if (!session) return std::unexpected{session.error()};
  tls_ = std::move(*session);
  resumption_ = resumption_parts::unpack(config.resume);
  const auto probes = mtu_probes(options_, path_);
  auto settings = make_settings(options_, probes, now);
  if (!resumption_.token.empty()) {
    settings.token = resumption_.token.data();
    settings.tokenlen = resumption_.token.size();
    settings.token_type = NGTCP2_TOKEN_TYPE_NEW_TOKEN;
  }
  const auto params = make_params(options_, announced_window());
  if (auto started = start(dcid, scid, NGTCP2_PROTO_VER_V1, settings, params); !started)
    return started;
  if (auto resumed = resume(config); !resumed) return resumed;
  // A token serves one connection (RFC 9000 §8.1.3).
  resumption_.token.clear();
  control_due_ = true;
  make_dirty();
  return {};
}

result<> connection_impl::resume(const client_config& config) {
  if (resumption_.session.empty()) return {};
  auto session = tls::parse_session(resumption_.session);
  if (!session) {
    ERR_clear_error();
    resumption_ = {};
    return {};
  }
  SSL_set_session(tls_.ssl(), session->get());
  if (!config.early_data || SSL_SESSION_get_max_early_data(session->get()) == 0 ||
      resumption_.params.empty())
    return {};
  if (ngtcp2_conn_decode_and_set_0rtt_transport_params(native_, resumption_.params.data(),
                                                       resumption_.params.size()) != 0)
    return {};
  SSL_set_quic_tls_early_data_enabled(tls_.ssl(), 1);
  early_attempted_ = true;
  signal(kind::early_data_ready);
  return {};
}

result<> connection_impl::begin_server(const accepted_initial& initial, const server_config& config,
                                       std::shared_ptr<SSL_CTX> context, time_point now) {
  using verdict = address_validation::verdict;
  context_ = std::move(context);
  // Early data precedes the client's certificate, so mutual TLS waits for the whole handshake.
  may_announce_early_ = config.tls.early_data && !config.tls.client_trust;
  ngtcp2_cid scid;
  std::uint64_t id = 0;
  if (!hub_.issue_id(*this, scid, id))
    return fail(errc::random, layer::quic,
                "the random source failed, so no connection id was drawn");
  ids_.push_back(id);
  const auto probes = mtu_probes(options_, path_);
  auto settings = make_settings(options_, probes, now);
  auto params = make_params(options_, announced_window());
  params.original_dcid_present = 1;
  params.original_dcid = initial.header.dcid;
  if (initial.token == verdict::retried) {
    params.original_dcid = initial.original;
    params.retry_scid = initial.header.dcid;
    params.retry_scid_present = 1;
  }
  if (initial.token == verdict::retried || initial.token == verdict::known) {
    settings.token = initial.header.token;
    settings.tokenlen = initial.header.tokenlen;
    settings.token_type =
        initial.token == verdict::retried ? NGTCP2_TOKEN_TYPE_RETRY : NGTCP2_TOKEN_TYPE_NEW_TOKEN;
  }
  ngtcp2_stateless_reset_token reset;
  if (hub_.validation.reset_token({scid.data, scid.datalen}, reset)) {
    params.stateless_reset_token_present = 1;
    std::memcpy(params.stateless_reset_token, reset.data, sizeof reset.data);
  }
  reference_.user_data = this;
  std::array<std::uint64_t, 8> numbers;
  auto session =
      tls_session::server(context_.get(), config.tls.early_data && config.tls.tickets,
                          limits_of(params, numbers), hub_.options.fast_protection, &reference_);
  if (!session) return std::unexpected{session.error()};
  tls_ = std::move(*session);
  ++hub_.stats.handshakes;
  handshake_counted_ = true;
  add_initial_id(initial.header.dcid);
  return start(initial.header.scid, scid, initial.header.version, settings, params);
}

void connection_impl::add_initial_id(const ngtcp2_cid& id) {
  const initial_id key{id, path_.remote};
  if (hub_.initial_routes.emplace(key, this).second) initial_ids_.push_back(key);
}

// Input -------------------------------------------------------------------------------------------

ngtcp2_tstamp connection_impl::stamp(time_point now) noexcept {
  last_stamp_ = std::max(last_stamp_, to_native(now));
  return last_stamp_;
}

void connection_impl::receive(const ngtcp2_path& native, const path& from, ecn mark, bytes datagram,
                              time_point now) {
  if (!native_) return;
  auto& on_path = stats_of(from);
  ++on_path.datagrams_received;
  on_path.bytes_received += datagram.size();
  ngtcp2_pkt_info info{};
  if (options_.ecn) info.ecn = static_cast<std::uint8_t>(mark);
  if (from == path_ && stuck_at(now) <= now) begin_window_anew(now);
  const auto read = [&](const ngtcp2_path& as) {
    return ngtcp2_conn_read_pkt(native_, &as, &info, octets(datagram), datagram.size(), stamp(now));
  };
  const int failed = stand_ins_.empty() ? read(native) : read(*native_path{named(from)}.get());
  after_library(now);
  if (!native_) return;
  if (failed != 0) return fail_library(failed, now);
  bytes_since_write_ += datagram.size();
  if (packets_since_write_++ == 0) hold_until_ = now + longest_hold();
  make_dirty();
}

/// Long enough for the answer to a call; the whole delay that was announced when acknowledgements
/// are meant to be rare.
duration connection_impl::longest_hold() const noexcept {
  constexpr std::size_t usual_threshold = 2;
  if (options_.ack_threshold > usual_threshold) return options_.max_ack_delay;
  return std::min<duration>(200us, options_.max_ack_delay / 2 + 50us);
}

void connection_impl::expired(time_point now) {
  if (!native_) return;
  if (from_native(ngtcp2_conn_get_expiry2(native_)) <= now) {
    const int failed = ngtcp2_conn_handle_expiry(native_, stamp(now));
    after_library(now);
    if (!native_) return;
    if (failed != 0) return fail_library(failed, now);
  }
  settle_doubts(now);
  end_silent_streams(now);
  if (!native_) return;
  if (!server_ && stuck_at(now) <= now) begin_window_anew(now);
  control_due_ = true;
  make_dirty();
}

/// Things that callbacks may only note.
void connection_impl::after_library(time_point now) {
  if (path_news_) refresh_path();
  if (refused_) {
    ngtcp2_ccerr why;
    ngtcp2_ccerr_set_tls_alert(&why, static_cast<std::uint8_t>(refused_->detail()), nullptr, 0);
    auto packet = closing_packet(why, now);
    return end(std::move(*refused_), std::move(packet), true, now);
  }
  if (random_failed_) {
    const auto last_words = std::string_view{"random source failed"};
    ngtcp2_ccerr why;
    ngtcp2_ccerr_set_transport_error(&why, NGTCP2_INTERNAL_ERROR,
                                     reinterpret_cast<const std::uint8_t*>(last_words.data()),
                                     last_words.size());
    auto packet = closing_packet(why, now);
    end(error{errc::random, layer::quic, "the random source failed; the connection was given up"},
        std::move(packet), true, now);
  }
}

// Events ------------------------------------------------------------------------------------------

void connection_impl::make_ready() noexcept {
  if (announced_) lists_.ready.push_back(*this);
}
void connection_impl::make_dirty() noexcept {
  if (native_) lists_.dirty.push_back(*this);
}

void connection_impl::signal(kind what) noexcept {
  pending_events_ |= 1u << static_cast<unsigned>(what);
  make_ready();
}

void connection_impl::announce() noexcept {
  if (announced_) return;
  announced_ = true;
  make_ready();
}

std::optional<connection_event> connection_impl::poll_event() {
  if (pending_events_ == 0) return std::nullopt;
  // The kinds are declared in the order in which they make sense together.
  const int bit = std::countr_zero(pending_events_);
  pending_events_ &= pending_events_ - 1;
  const auto what = static_cast<kind>(bit);
  if (what == kind::closed) state_ = state::closed;
  return connection_event{what};
}

void connection_impl::handshake_over() {
  handshake_complete_ = true;
  session_ = tls::describe(tls_.ssl());
  state_ = state::established;
  if (handshake_counted_) {
    --hub_.stats.handshakes;
    ++hub_.stats.accepted;
  }
  announce();
  signal(kind::handshake_done);
}

void connection_impl::on_session(SSL_SESSION* session) noexcept {
  try {
    resumption_.session = tls::serialize_session(session);
  } catch (const std::bad_alloc&) {
    return;
  }
  signal(kind::new_session);
}

// Commands ----------------------------------------------------------------------------------------

result<> connection_impl::update_keys(time_point now) {
  if (!native_) return fail(errc::closed, layer::quic, "the connection has ended");
  // Asked earlier, the library aborts.
  if (!confirmed_)
    return fail(errc::exhausted, layer::quic,
                "keys cannot be updated before the handshake is confirmed");
  if (ngtcp2_conn_initiate_key_update(native_, stamp(now)) != 0)
    return fail(errc::exhausted, layer::quic, "the last key update is not confirmed yet");
  ++counters_.key_updates;
  update_counted_ = true;
  control_due_ = true;
  make_dirty();
  return {};
}

void connection_impl::ping(time_point now) {
  if (!native_ || !handshake_complete_) return;
  // The library sends PING only as keep-alive, so one is made due.
  ngtcp2_conn_set_keep_alive_timeout(native_, 1);
  ping_due_ = true;
  const int failed = ngtcp2_conn_handle_expiry(native_, stamp(now + 1ns));
  after_library(now);
  if (!native_) return;
  if (failed != 0) return fail_library(failed, now);
  control_due_ = true;
  make_dirty();
}

connection_stats connection_impl::stats() const {
  if (!native_) return counters_;
  auto& s = counters_;
  ngtcp2_conn_info info;
  ngtcp2_conn_get_conn_info2(native_, &info);
  s.smoothed_rtt = from_native_duration(info.smoothed_rtt);
  s.min_rtt = from_native_duration(info.min_rtt);
  s.latest_rtt = from_native_duration(info.latest_rtt);
  s.rtt_variance = from_native_duration(info.rttvar);
  s.congestion_window = info.cwnd;
  s.bytes_in_flight = info.bytes_in_flight;
  s.slow_start_threshold = info.ssthresh;
  s.packets_sent = info.pkt_sent;
  s.bytes_sent = info.bytes_sent;
  s.packets_received = info.pkt_recv;
  s.bytes_received = info.bytes_recv;
  s.packets_lost = info.pkt_lost;
  s.bytes_lost = info.bytes_lost;
  s.packets_discarded = info.pkt_discarded;
  s.path_mtu = ngtcp2_conn_get_path_max_tx_udp_payload_size2(native_);
  s.send_buffered = send_buffered_;
  s.receive_buffered = receive_buffered_;
  return s;
}

// qlog --------------------------------------------------------------------------------------------

void connection_impl::trace(std::string_view text) noexcept {
  try {
    options_.qlog(text);
  } catch (...) {
    // A log that cannot be written must not end what it describes.
  }
}

void write_qlog(void* user, std::uint32_t, const void* data, std::size_t size) noexcept {
  if (size > 0) static_cast<connection_impl*>(user)->trace({static_cast<const char*>(data), size});
}

}  // namespace weft::quic::core::detail
