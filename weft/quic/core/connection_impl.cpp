#include <weft/quic/core/connection_impl.hpp>

#include <openssl/err.h>

#include <algorithm>
#include <array>
#include <bit>
#include <format>

#include <weft/quic/core/settings.hpp>

namespace weft::quic::core::detail {
namespace {

duration from_native_duration(ngtcp2_duration d) noexcept {
  return duration{static_cast<std::int64_t>(std::min<ngtcp2_duration>(d, INT64_MAX))};
}

std::string list_of(std::span<const std::uint32_t> versions) {
  std::string text;
  for (const auto version : versions)
    text += std::format("{}{:#x}", text.empty() ? "" : ", ", version);
  return text;
}

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
  auto session = tls_session::client(context_.get(), config.tls, host, &reference_);
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
  auto session = tls_session::server(context_.get(), config.tls.early_data && config.tls.tickets,
                                     limits_of(params, numbers), &reference_);
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

void connection_impl::refresh_path() noexcept {
  path_news_ = false;
  const auto* current = ngtcp2_conn_get_path2(native_);
  if (!same_path(*current, path_)) path_ = real_path(*current);
  if (!std::exchange(path_validated_, false) || path_ == known_path_) return;
  known_path_ = path_;
  ++counters_.migrations;
  signal(kind::path_changed);
}

path connection_impl::real_path(const ngtcp2_path& known) const noexcept {
  const path where = from_native(known);
  if (stand_ins_.empty()) return where;
  return {stand_ins_.real(where.local), stand_ins_.real(where.remote)};
}

/// What the library knows a path as.
path connection_impl::named(path where) const noexcept {
  address& changing = server_ ? where.remote : where.local;
  changing = stand_ins_.name_of(changing);
  return where;
}

/// When the library will have been stuck long enough (see stand_ins): its window is full, a few
/// probes' time passes without anything that leaves or enters it, and no timer of a probe runs. The
/// library does not show that timer, but its pauses double, so one that runs goes off before long.
time_point connection_impl::stuck_at(time_point now) noexcept {
  const bool matters = !nothing_queued() || (server_ && validating_);
  if (!confirmed_ || !matters || ngtcp2_conn_get_cwnd_left2(native_) > 0)
    return full_since_ = never;
  ngtcp2_conn_info info;
  ngtcp2_conn_get_conn_info2(native_, &info);
  const auto before = std::exchange(full_with_, info.bytes_in_flight);
  if (full_since_ == never || info.bytes_in_flight < before) full_since_ = still_since_ = now;
  if (info.bytes_in_flight != before) still_since_ = now;
  const duration pto = from_native_duration(ngtcp2_conn_get_pto2(native_));
  const auto next = from_native(ngtcp2_conn_get_expiry2(native_));
  if (next <= still_since_ + (still_since_ - full_since_) + 8 * pto) return never;
  return still_since_ + 6 * pto;
}

void connection_impl::begin_window_anew(time_point now) {
  full_since_ = never;
  if (!stand_ins_.rename(server_ ? path_.remote : path_.local)) return;
  // A server's library finds out by itself. Where the peer forbids a client to move, or has no
  // connection id left for it, the next datagram tries again.
  if (server_) return;
  const native_path fresh{named(path_)};
  if (ngtcp2_conn_initiate_immediate_migration(native_, fresh.get(), stamp(now)) != 0)
    stand_ins_.undo();
}

path_stats& connection_impl::stats_of(const path& where) {
  if (paths_[path_index_].path == where) return paths_[path_index_];
  for (path_index_ = 0; path_index_ < paths_.size(); ++path_index_)
    if (paths_[path_index_].path == where) return paths_[path_index_];
  // Forged source addresses must not grow this: the oldest that is not in use makes room.
  constexpr std::size_t most_paths = 16;
  if (paths_.size() >= most_paths)
    paths_.erase(std::ranges::find_if(paths_, [&](auto& p) { return p.path != path_; }));
  paths_.push_back({where});
  path_index_ = paths_.size() - 1;
  return paths_.back();
}

// Ending ------------------------------------------------------------------------------------------

void connection_impl::fail_library(int code, time_point now) {
  if (code == NGTCP2_ERR_CLOSING) return;
  if (code == NGTCP2_ERR_DRAINING) return end(explain_peer_close(), {}, true, now);
  const bool silent =
      code == NGTCP2_ERR_IDLE_CLOSE || code == NGTCP2_ERR_DROP_CONN || code == NGTCP2_ERR_RETRY;
  error why = explain(code);
  if (silent) return end(std::move(why), {}, false, now);
  ngtcp2_ccerr native;
  ngtcp2_ccerr_default(&native);
  if (code == NGTCP2_ERR_CRYPTO)
    ngtcp2_ccerr_set_tls_alert(&native, ngtcp2_conn_get_tls_alert2(native_), nullptr, 0);
  else
    ngtcp2_ccerr_set_liberr(&native, code, nullptr, 0);
  auto packet = closing_packet(native, now);
  end(std::move(why), std::move(packet), true, now);
}

error connection_impl::explain(int code) {
  switch (code) {
    case NGTCP2_ERR_IDLE_CLOSE:
      return {errc::timed_out, layer::quic, std::format("nothing heard from {}", peer_)};
    case NGTCP2_ERR_HANDSHAKE_TIMEOUT:
      return {errc::timed_out, layer::quic,
              std::format("no complete handshake with {} within {}", peer_,
                          std::chrono::duration_cast<std::chrono::milliseconds>(
                              options_.handshake_timeout))};
    case NGTCP2_ERR_CRYPTO:
      return tls::handshake_error(tls_.ssl(), peer_);
    case NGTCP2_ERR_RECV_VERSION_NEGOTIATION:
    case NGTCP2_ERR_VERSION_NEGOTIATION_FAILURE:
      return {errc::unsupported, layer::quic,
              std::format("{} speaks none of the QUIC versions this side does; it offers {}, "
                          "wanted is one of {}",
                          peer_, offered_versions_.empty() ? "others" : offered_versions_,
                          list_of(supported_versions()))};
    case NGTCP2_ERR_NOMEM:
      return {errc::exhausted, layer::quic, "out of memory"};
    case NGTCP2_ERR_CALLBACK_FAILURE:
      if (random_failed_)
        return {errc::random, layer::quic, "the random source failed; the connection was given up"};
      if (memory_failed_) return {errc::exhausted, layer::quic, "out of memory"};
      return {errc::internal, layer::quic, "a QUIC callback failed"};
    case NGTCP2_ERR_NO_VIABLE_PATH:
      return {errc::unreachable, layer::quic, std::format("no path to {} works any more", peer_)};
    case NGTCP2_ERR_DROP_CONN:
    case NGTCP2_ERR_RETRY:
      return {errc::protocol, layer::quic, std::format("{} sent an unusable Initial", peer_)};
    default:
      break;
  }
  return {errc::protocol, layer::quic,
          std::format("{} broke the protocol: {}", peer_, ngtcp2_strerror(code)),
          ngtcp2_err_infer_quic_transport_error_code(code)};
}

void connection_impl::note_versions(std::span<const std::uint32_t> offered) {
  // Reserved ones (RFC 9000 §15) say nothing, and the list is as long as a datagram lets it be.
  std::vector<std::uint32_t> real;
  for (const auto version : offered)
    if ((version & 0x0f0f0f0f) != 0x0a0a0a0a && real.size() < 8) real.push_back(version);
  offered_versions_ = real.empty() ? "none" : list_of(real);
}

error connection_impl::explain_peer_close() {
  if (stateless_reset_)
    return {errc::reset, layer::quic,
            std::format("{} knows nothing of this connection any more", peer_)};
  const auto* why = ngtcp2_conn_get_ccerr2(native_);
  const std::string said =
      why->reasonlen
          ? std::format(": {}", std::string_view{reinterpret_cast<const char*>(why->reason),
                                                 why->reasonlen})
          : "";
  const std::uint64_t code = why->error_code;
  if (why->type == NGTCP2_CCERR_TYPE_APPLICATION) {
    if (code == 0) return {errc::closed, layer::quic, std::format("{} closed{}", peer_, said)};
    return {errc::reset, layer::quic, std::format("{} closed with code {}{}", peer_, code, said),
            code};
  }
  if (code == NGTCP2_NO_ERROR)
    return {errc::closed, layer::quic, std::format("{} closed{}", peer_, said)};
  if (code == NGTCP2_CONNECTION_REFUSED || code == NGTCP2_INVALID_TOKEN)
    return {errc::refused, layer::quic, std::format("{} refuses connections{}", peer_, said), code};
  if ((code & ~std::uint64_t{0xff}) == NGTCP2_CRYPTO_ERROR)
    return tls::handshake_error(tls_.ssl(), peer_, static_cast<std::uint8_t>(code));
  return {errc::protocol, layer::quic,
          std::format("{} gave up with transport error {:#x}{}", peer_, code, said), code};
}

std::vector<std::uint8_t> connection_impl::closing_packet(const ngtcp2_ccerr& why, time_point now) {
  std::vector<std::uint8_t> packet(NGTCP2_MAX_UDP_PAYLOAD_SIZE);
  ngtcp2_pkt_info info;
  const auto size = ngtcp2_conn_write_connection_close(native_, nullptr, &info, packet.data(),
                                                       packet.size(), &why, stamp(now));
  packet.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return packet;
}

/// The one way a connection ends. `linger`: its ids answer or swallow late packets for 3 PTO.
void connection_impl::end(error why, std::vector<std::uint8_t> packet, bool linger,
                          time_point now) {
  if (!native_) return;
  counters_ = stats();
  counters_.send_buffered = counters_.receive_buffered = 0;
  reason_ = std::move(why);
  if (handshake_counted_ && !handshake_complete_) {
    --hub_.stats.handshakes;
    ++hub_.stats.handshakes_failed;
  }
  const auto pto = from_native_duration(ngtcp2_conn_get_pto2(native_));
  if (!packet.empty() && packet.size() <= NGTCP2_MAX_UDP_PAYLOAD_SIZE) {
    auto& on_path = stats_of(path_);
    ++on_path.datagrams_sent;
    on_path.bytes_sent += packet.size();
  }
  hub_.timers.erase(*this);
  lists_.dirty.erase(*this);
  for (const auto& token : reset_tokens_) hub_.reset_routes.erase(token);
  reset_tokens_.clear();
  hub_.bury(*this, std::move(packet), linger ? now + 3 * pto : time_point{});
  end_streams();
  tls_.reset();
  ngtcp2_conn_del(std::exchange(native_, nullptr));
  datagrams_out_.clear();
  more_ = false;
  stash_.clear();
  state_ = state_ == state::closing ? state::closing : state::closed;
  if (announced_)
    signal(kind::closed);
  else
    lists_.ended.push_back(*this);
}

void connection_impl::close(std::uint64_t application_code, std::string_view reason,
                            time_point now) {
  if (!native_) return;
  state_ = state::closing;
  reason = reason.substr(0, 512);
  ngtcp2_ccerr why;
  ngtcp2_ccerr_set_application_error(
      &why, application_code, reinterpret_cast<const std::uint8_t*>(reason.data()), reason.size());
  auto packet = closing_packet(why, now);
  end(error{errc::closed, layer::quic, "closed by this side", application_code}, std::move(packet),
      true, now);
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

result<> connection_impl::migrate(const path& to, bool immediate, time_point now) {
  if (!native_) return fail(errc::closed, layer::quic, "the connection has ended");
  if (server_) return fail(errc::unsupported, layer::quic, "only a client can move a connection");
  if (!confirmed_)
    return fail(errc::exhausted, layer::quic,
                "the connection cannot move before its handshake is confirmed; try again");
  if (to == path_)
    return fail(errc::invalid_argument, layer::quic, "the connection is at this address already");
  const native_path where{named(to)};
  const auto ts = stamp(now);
  const int failed = immediate ? ngtcp2_conn_initiate_immediate_migration(native_, where.get(), ts)
                               : ngtcp2_conn_initiate_migration(native_, where.get(), ts);
  switch (failed) {
    case 0:
      break;
    case NGTCP2_ERR_INVALID_STATE:
      return fail(errc::unsupported, layer::quic,
                  ngtcp2_conn_get_remote_transport_params2(native_)->disable_active_migration
                      ? "the peer forbids its clients to move (disable_active_migration)"
                      : "the peer uses no connection ids, so the connection cannot move");
    case NGTCP2_ERR_CONN_ID_BLOCKED:
      return fail(errc::exhausted, layer::quic,
                  "the peer has given no spare connection id for a move yet; try again");
    case NGTCP2_ERR_INVALID_ARGUMENT:
      return fail(errc::invalid_argument, layer::quic, "the connection is at this address already");
    default:
      return fail(errc::internal, layer::quic, ngtcp2_strerror(failed));
  }
  refresh_path();
  control_due_ = true;
  make_dirty();
  after_library(now);
  return {};
}

result<> connection_impl::update_keys(time_point now) {
  if (!native_) return fail(errc::closed, layer::quic, "the connection has ended");
  // Asked earlier, the library aborts.
  if (!confirmed_)
    return fail(errc::exhausted, layer::quic,
                "keys cannot be updated before the handshake is confirmed");
  if (ngtcp2_conn_initiate_key_update(native_, stamp(now)) != 0)
    return fail(errc::exhausted, layer::quic, "the last key update is not confirmed yet");
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

// Datagrams ---------------------------------------------------------------------------------------

namespace {
constexpr std::size_t datagram_queue_bytes = 1024 * 1024;
constexpr std::size_t datagram_queue_count = 1024;
}  // namespace

std::size_t connection_impl::max_datagram() const noexcept {
  if (!native_) return 0;
  const auto* peer = ngtcp2_conn_get_remote_transport_params2(native_);
  if (!peer || peer->max_datagram_frame_size == 0) return 0;
  // RFC 9221 §4, RFC 9000 §17.3.1: type, length up to 4 bytes | flags, id, packet number, tag.
  const std::size_t frame = 1 + 4;
  const std::size_t packet = 1 + ngtcp2_conn_get_dcid2(native_)->datalen + 4 + 16;
  const std::size_t fits = ngtcp2_conn_get_path_max_tx_udp_payload_size2(native_) - packet - frame;
  const std::uint64_t peer_takes =
      peer->max_datagram_frame_size > frame ? peer->max_datagram_frame_size - frame : 0;
  return static_cast<std::size_t>(std::min<std::uint64_t>(fits, peer_takes));
}

result<> connection_impl::send_datagram(slice payload) {
  if (!native_) return fail(errc::closed, layer::quic, "the connection has ended");
  const std::size_t most = max_datagram();
  if (most == 0) return fail(errc::unsupported, layer::quic, "the peer takes no datagrams");
  if (payload.size() > most)
    return fail(
        errc::too_large, layer::quic,
        std::format("a datagram carries at most {} bytes now, not {}", most, payload.size()));
  if (datagrams_out_.size() >= datagram_queue_count ||
      datagrams_out_size_ + payload.size() > datagram_queue_bytes) {
    want_datagram_room_ = true;
    return fail(errc::exhausted, layer::quic, "the datagram queue is full; wait for datagram_room");
  }
  datagrams_out_size_ += payload.size();
  datagrams_out_.push_back(std::move(payload));
  make_dirty();
  return {};
}

void connection_impl::on_datagram(bytes payload) {
  while (!datagrams_in_.empty() && (datagrams_in_.size() >= datagram_queue_count ||
                                    datagrams_in_size_ + payload.size() > datagram_queue_bytes)) {
    datagrams_in_size_ -= datagrams_in_.front().size();
    datagrams_in_.pop_front();
    ++counters_.datagrams_dropped;
  }
  datagrams_in_.push_back(slice::copy(payload));
  datagrams_in_size_ += payload.size();
  signal(kind::datagram);
}

std::optional<slice> connection_impl::read_datagram() {
  if (datagrams_in_.empty()) return std::nullopt;
  slice payload = std::move(datagrams_in_.front());
  datagrams_in_.pop_front();
  datagrams_in_size_ -= payload.size();
  return payload;
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
