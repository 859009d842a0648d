#include <weft/quic/core/endpoint.hpp>

#include <algorithm>

#include <weft/quic/core/connection_impl.hpp>
#include <weft/tls/random.hpp>

namespace weft::quic::core {

using detail::address_validation;
using detail::closing_record;
using detail::connection_impl;
using detail::route_target;

namespace {

/// Stateless answers a second, however many strangers ask.
constexpr double resets_per_second = 200, resets_at_once = 50;
constexpr double negotiations_per_second = 1000, negotiations_at_once = 200;

}  // namespace

struct endpoint::impl {
  explicit impl(endpoint_options options) : hub{std::move(options)} {}

  // Routing
  void handle_datagram(const ngtcp2_path& native, const path& from, ecn mark, bytes datagram,
                       time_point now);
  route_target* find(const path& from, bytes datagram, ngtcp2_version_cid& header, int& verdict);
  void handle_stranger(const ngtcp2_path& native, const path& from, ecn mark, bytes datagram,
                       const ngtcp2_version_cid& header, time_point now);
  connection_impl* reset_target(bytes datagram) const;
  void answer_short(const path& from, bytes datagram, time_point now);
  void accept(const ngtcp2_path& native, const path& from, ecn mark, bytes datagram,
              const ngtcp2_pkt_hd& header, time_point now);
  bool validated(const path& from, detail::accepted_initial& initial, time_point now);
  bool overloaded() const noexcept;

  // Owning
  connection_impl& keep(std::unique_ptr<connection_impl> made);
  void discard(connection_impl& c) noexcept;
  void sweep() noexcept {
    while (auto* c = lists.ended.pop_front()) discard(*c);
  }

  detail::hub hub;
  detail::connection_lists lists;
  std::vector<std::unique_ptr<connection_impl>> connections;
  std::optional<server_config> server;
  std::shared_ptr<SSL_CTX> server_context;
  detail::rate_limit resets{resets_per_second, resets_at_once};
  detail::rate_limit negotiations{negotiations_per_second, negotiations_at_once};
};

// Setting up --------------------------------------------------------------------------------------

result<std::unique_ptr<endpoint>> endpoint::create(endpoint_options options) {
  if (auto ready = detail::prepare_crypto(); !ready) return std::unexpected{ready.error()};
  if (std::ranges::all_of(options.secret, [](auto octet) { return octet == 0; })) {
    const mutable_bytes secret = std::as_writable_bytes(std::span{options.secret});
    if (options.random ? !options.random(secret) : !tls::fill_random(secret))
      return fail(errc::random, layer::quic, "the random source failed, so there is no secret");
  }
  return std::unique_ptr<endpoint>{new endpoint{std::make_unique<impl>(std::move(options))}};
}

endpoint::endpoint(std::unique_ptr<impl> state) noexcept : impl_{std::move(state)} {}
endpoint::~endpoint() = default;

result<> endpoint::listen(server_config config) {
  auto context = tls::make_server_context(config.tls);
  if (!context) return std::unexpected{context.error()};
  impl_->server_context = std::move(*context);
  impl_->server.emplace(std::move(config));
  return {};
}

void endpoint::stop_listening() {
  impl_->server.reset();
}

connection_impl& endpoint::impl::keep(std::unique_ptr<connection_impl> made) {
  made->index = connections.size();
  connections.push_back(std::move(made));
  ++hub.stats.connections;
  return *connections.back();
}

void endpoint::impl::discard(connection_impl& c) noexcept {
  const std::size_t index = c.index;
  if (index + 1 != connections.size()) {
    std::swap(connections[index], connections.back());
    connections[index]->index = index;
  }
  connections.pop_back();
  --hub.stats.connections;
}

namespace {

void remember_sessions(SSL_CTX* context) {
  tls::on_new_session(context, [](SSL* ssl, SSL_SESSION* session) {
    auto* reference = static_cast<ngtcp2_crypto_conn_ref*>(SSL_get_app_data(ssl));
    if (reference) static_cast<connection_impl*>(reference->user_data)->on_session(session);
  });
}

}  // namespace

result<connection*> endpoint::connect(const path& where, std::string_view host,
                                      client_config config, time_point now) {
  auto context = tls::make_client_context(config.tls);
  if (!context) return std::unexpected{context.error()};
  remember_sessions(context->get());
  auto made =
      std::make_unique<connection_impl>(impl_->hub, impl_->lists, where, config.transport, false);
  if (auto begun = made->begin_client(host, config, std::move(*context), now); !begun)
    return std::unexpected{begun.error()};
  return &impl_->keep(std::move(made));
}

void endpoint::release(connection& c, time_point now) {
  auto& known = static_cast<connection_impl&>(c);
  known.close(0, {}, now);
  impl_->discard(known);
}

void endpoint::close_all(std::uint64_t application_code, std::string_view reason, time_point now) {
  for (auto& c : impl_->connections) c->close(application_code, reason, now);
  impl_->sweep();
}

// Input -------------------------------------------------------------------------------------------

void endpoint::handle_datagrams(const path& from, ecn mark, bytes payload, std::size_t segment,
                                time_point now) {
  const detail::native_path native{from};
  if (segment == 0) segment = payload.size();
  while (!payload.empty()) {
    const bytes datagram = payload.first(std::min(segment, payload.size()));
    payload = payload.subspan(datagram.size());
    ++impl_->hub.stats.datagrams_received;
    impl_->handle_datagram(*native.get(), from, mark, datagram, now);
  }
  impl_->sweep();
}

route_target* endpoint::impl::find(const path& from, bytes datagram, ngtcp2_version_cid& header,
                                   int& verdict) {
  const auto* data = detail::octets(datagram);
  if ((data[0] & 0x80) == 0) {
    header = {};
    verdict = datagram.size() > connection_id_size ? 0 : NGTCP2_ERR_INVALID_ARGUMENT;
    return verdict == 0 ? hub.routes.find(detail::hub::number(data + 1)) : nullptr;
  }
  verdict = ngtcp2_pkt_decode_version_cid(&header, data, datagram.size(), connection_id_size);
  if (verdict != 0) return nullptr;
  if (header.dcidlen == connection_id_size)
    if (auto* found = hub.routes.find(detail::hub::number(header.dcid))) return found;
  if (header.dcidlen > NGTCP2_MAX_CIDLEN) return nullptr;
  detail::initial_id key{.id = {}, .remote = from.remote};
  ngtcp2_cid_init(&key.id, header.dcid, header.dcidlen);
  const auto it = hub.initial_routes.find(key);
  return it == hub.initial_routes.end() ? nullptr : it->second;
}

void endpoint::impl::handle_datagram(const ngtcp2_path& native, const path& from, ecn mark,
                                     bytes datagram, time_point now) {
  ngtcp2_version_cid header;
  int verdict = 0;
  if (auto* target = find(from, datagram, header, verdict)) {
    if (target->live)
      return static_cast<connection_impl*>(target)->receive(native, from, mark, datagram, now);
    return hub.answer_late(*static_cast<closing_record*>(target), from, datagram.size());
  }
  if (verdict == NGTCP2_ERR_VERSION_NEGOTIATION) {
    // RFC 9000 §5.2.2: only for datagrams as long as a first one has to be.
    if (!server || datagram.size() < NGTCP2_MAX_UDP_PAYLOAD_SIZE || !negotiations.allow(now)) {
      ++hub.stats.dropped_unknown;
      return;
    }
    std::uint8_t random = 0;
    if (!hub.random(&random, 1)) return;
    ++hub.stats.version_negotiations;
    return hub.send(from, address_validation::version_negotiation(header, random));
  }
  if (verdict != 0) {
    ++hub.stats.dropped_malformed;
    return;
  }
  if ((detail::octets(datagram)[0] & 0x80) == 0) {
    if (auto* c = reset_target(datagram)) return c->receive(native, from, mark, datagram, now);
    return answer_short(from, datagram, now);
  }
  handle_stranger(native, from, mark, datagram, header, now);
}

/// A peer's stateless reset carries no id of ours: only the token at its end tells.
connection_impl* endpoint::impl::reset_target(bytes datagram) const {
  constexpr std::size_t shortest = 21;
  if (datagram.size() < shortest || hub.reset_routes.empty()) return nullptr;
  ngtcp2_cid key;
  ngtcp2_cid_init(&key, detail::octets(datagram.last(NGTCP2_STATELESS_RESET_TOKENLEN)),
                  NGTCP2_STATELESS_RESET_TOKENLEN);
  const auto it = hub.reset_routes.find(key);
  return it == hub.reset_routes.end() ? nullptr : it->second;
}

/// A short-header packet for a connection we do not have: perhaps one of our last incarnation's.
void endpoint::impl::answer_short(const path& from, bytes datagram, time_point now) {
  const auto id = destination_of(datagram);
  if (!id || hub.mask.shard_of(*id) != hub.options.shard) {
    ++(id && server ? hub.stats.wrong_shard : hub.stats.dropped_unknown);
    return;
  }
  ++hub.stats.dropped_unknown;
  // RFC 9000 §10.3: shorter ones could be resets themselves.
  constexpr std::size_t shortest = 22;
  if (datagram.size() < shortest || !resets.allow(now)) return;
  auto packet = hub.validation.stateless_reset(*id, datagram.size(), hub.random_filler());
  if (packet.empty()) return;
  ++hub.stats.stateless_resets;
  hub.send(from, std::move(packet));
}

void endpoint::impl::handle_stranger(const ngtcp2_path& native, const path& from, ecn mark,
                                     bytes datagram, const ngtcp2_version_cid&, time_point now) {
  ngtcp2_pkt_hd header;
  if (!server || ngtcp2_accept(&header, detail::octets(datagram), datagram.size()) != 0) {
    ++hub.stats.dropped_unknown;
    return;
  }
  accept(native, from, mark, datagram, header, now);
}

bool endpoint::impl::overloaded() const noexcept {
  const auto& budget = hub.options.memory;
  return hub.stats.handshakes >= server->max_handshakes ||
         connections.size() >= server->max_connections ||
         (budget && budget->used() >= budget->limit() - budget->limit() / 16);
}

/// Whether the client's address is believed enough; otherwise it was answered without state.
bool endpoint::impl::validated(const path& from, detail::accepted_initial& initial,
                               time_point now) {
  using verdict = address_validation::verdict;
  initial.token = hub.validation.judge(initial.header, from.remote, initial.original, now);
  if (initial.token == verdict::bad_retry) {
    ++hub.stats.tokens_rejected;
    hub.send(from, address_validation::refuse_token(initial.header));
    return false;
  }
  if (initial.token == verdict::bad_token) ++hub.stats.tokens_rejected;
  if (initial.token == verdict::retried || initial.token == verdict::known) return true;
  if (server->retry_above != 0 && hub.stats.handshakes < server->retry_above) return true;
  connection_id ours;
  if (!hub.draw_id(ours)) return false;
  ++hub.stats.retries;
  hub.send(from, hub.validation.retry(initial.header, from.remote, ours, now));
  return false;
}

void endpoint::impl::accept(const ngtcp2_path& native, const path& from, ecn mark, bytes datagram,
                            const ngtcp2_pkt_hd& header, time_point now) {
  if (overloaded()) {
    ++hub.stats.dropped_overload;
    return;
  }
  detail::accepted_initial initial{header};
  if (!validated(from, initial, now)) return;
  auto made = std::make_unique<connection_impl>(hub, lists, from, server->transport, true);
  if (!made->begin_server(initial, *server, server_context, now)) {
    ++hub.stats.dropped_overload;
    return;
  }
  keep(std::move(made)).receive(native, from, mark, datagram, now);
}

void endpoint::handle_timeout(time_point now) {
  while (auto* node = impl_->hub.timers.earliest()) {
    if (node->at > now) break;
    impl_->hub.timers.erase(*node);
    node->expired(now);
  }
  impl_->sweep();
}

// Output ------------------------------------------------------------------------------------------

connection* endpoint::poll_connection() {
  return impl_->lists.ready.pop_front();
}

std::optional<transmit> endpoint::poll_transmit(mutable_bytes buffer, time_point now,
                                                std::size_t train_bytes) {
  auto& outbox = impl_->hub.outbox;
  if (!outbox.empty()) {
    const auto out = std::move(outbox.front());
    outbox.pop_front();
    std::memcpy(buffer.data(), out.data.data(), out.data.size());
    return transmit{out.where, ecn::not_ect, out.data.size(), out.data.size()};
  }
  while (auto* c = impl_->lists.dirty.pop_front()) {
    auto train = c->write_train(buffer, now, train_bytes);
    // To the end of the line: connections take turns by trains.
    if (c->has_more()) impl_->lists.dirty.push_back(*c);
    if (train) return train;
  }
  impl_->sweep();
  return std::nullopt;
}

bool endpoint::wants_transmit() const noexcept {
  return !impl_->hub.outbox.empty() || !impl_->lists.dirty.empty();
}

time_point endpoint::next_timeout() const {
  const auto* node = impl_->hub.timers.earliest();
  return node ? node->at : never;
}

std::optional<std::uint8_t> endpoint::shard_of(bytes datagram) const {
  const auto id = destination_of(datagram);
  if (!id) return std::nullopt;
  return impl_->hub.mask.shard_of(*id);
}

const endpoint_stats& endpoint::stats() const noexcept {
  return impl_->hub.stats;
}

}  // namespace weft::quic::core
