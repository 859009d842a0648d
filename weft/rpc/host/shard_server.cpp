#include <weft/rpc/host/shard_server.hpp>

#include <algorithm>
#include <utility>

#include <asio/co_spawn.hpp>

#include <weft/rpc/describe.hpp>
#include <weft/rpc/host/one_stream.hpp>

namespace weft::rpc::detail {
namespace {

using namespace std::chrono_literals;

// What handlers that do not heed cancellation, and peers that do not answer, get beyond the grace.
constexpr duration last_grace = 1s;
// A client that asked for one stream opens it at once.
constexpr duration first_stream_timeout = 10s;

status stopped() {
  return {code::unavailable, "the server is shutting down"};
}

status too_old() {
  return {code::unavailable, "the connection has reached the age that the server allows"};
}

transport_info info_of(const quic::connection& connection, std::string_view name) {
  const auto& path = connection.current_path();
  const auto& session = connection.session();
  return {name, path.local, path.remote, session.group, session.cipher};
}

}  // namespace

shard_server::shard_server(io::shard& shard, std::shared_ptr<const server_setup> setup)
    : shard_{shard},
      setup_{std::move(setup)},
      router_{shard, setup_->options.interceptors, setup_->log},
      http_calls_{std::make_shared<rpc::http::server_core>(
          shard, router_,
          rpc::http::server_options{.limits = setup_->options.limits,
                                    .compressions = setup_->options.compressions,
                                    .memory = setup_->memory,
                                    .origins = setup_->options.origins})} {}

weft::result<> shard_server::add(std::shared_ptr<service_handler> handler) {
  return router_.add(std::move(handler));
}

weft::result<> shard_server::listen(const address& at, bool shared_port) {
  auto config = setup_->endpoint;
  config.core.shard = static_cast<std::uint8_t>(shard_.index());
  config.socket.reuse_port = shared_port;
  auto bound = quic::endpoint::listen(shard_, at, setup_->quic, std::move(config));
  if (!bound) return std::unexpected{std::move(bound).error()};
  endpoint_.emplace(std::move(*bound));
  if (!setup_->tls) return {};
  tcp::listen_options options;
  options.reuse_port = shared_port;
  options.on_failed_handshake = [log = setup_->log](const error& why, const address& peer) {
    log("rpc: " + peer.to_string() + " did not complete its TLS handshake: " + why.message());
  };
  auto listening = tcp::listener::listen(shard_, at.with_port(endpoint_->local_address().port()),
                                         *setup_->tls, std::move(options));
  if (!listening) {
    endpoint_.reset();
    return std::unexpected{std::move(listening).error()};
  }
  listener_ = std::move(*listening);
  return {};
}

void shard_server::start() {
  spawn(accept_quic(shared_from_this()));
  if (listener_) spawn(accept_tcp(shared_from_this()));
}

// Accepting
// ------------------------------------------------------------------------------------------

task<> shard_server::accept_quic(self_ptr self) {
  for (;;) {
    auto connection = co_await self->endpoint_->accept();
    if (!connection) {
      if (!self->stopping_) self->setup_->log("rpc: accepting: " + connection.error().to_string());
      co_return;
    }
    if (self->stopping_)
      connection->close(0, "the server is shutting down");
    else
      self->serve_quic(std::move(*connection));
  }
}

void shard_server::serve_quic(quic::connection connection) {
  const std::string_view chosen = connection.session().alpn;
  if (chosen == native::alpn_one_stream || chosen == alpn_h2_one_stream)
    return spawn(await_stream(shared_from_this(), std::move(connection)));
  if (chosen == weft::http::alpn_h3)
    return adopt(as_session(weft::http::serve_h3(std::move(connection), shard_, http_options(false),
                                                 answer_requests(http_calls_))));
  adopt(as_session(native::serve(std::move(connection), shard_, router_, session_options())));
}

void shard_server::serve_stream(std::unique_ptr<io::byte_stream> stream, bool http,
                                const transport_info& info, std::string peer_subject) {
  if (!http)
    return adopt(as_session(native::serve(std::move(stream), info, std::move(peer_subject), shard_,
                                          router_, session_options())));
  const bool over_tcp = info.name == "tls-tcp";
  adopt(as_session(weft::http::serve_h2(std::move(stream), http_info(info, std::move(peer_subject)),
                                        shard_, http_options(over_tcp),
                                        answer_requests(http_calls_))));
}

task<> shard_server::await_stream(self_ptr self, quic::connection connection) {
  auto shared = std::make_shared<quic::connection>(std::move(connection));
  io::timer alarm;
  self->shard_.arm(alarm, io::now() + first_stream_timeout,
                   [&shared](time_point) { shared->close(0, "no stream was opened"); });
  auto stream = co_await shared->accept_stream();
  if (!stream || self->stopping_) co_return;
  self->shard_.disarm(alarm);
  const auto info = info_of(*shared, "quic-one-stream");
  std::string subject = shared->session().peer_subject;
  const bool http = shared->session().alpn == alpn_h2_one_stream;
  self->serve_stream(one_stream(std::move(shared), std::move(*stream)), http, info,
                     std::move(subject));
}

task<> shard_server::accept_tcp(self_ptr self) {
  while (!self->stopping_) {
    auto stream = co_await self->listener_->accept();
    if (!stream || self->stopping_) co_return;
    const tcp::stream& from = **stream;
    const transport_info info{"tls-tcp", from.local_address(), from.remote_address(),
                              from.session().group, from.session().cipher};
    std::string subject = from.session().peer_subject;
    const bool http = from.session().alpn == weft::http::alpn_h2;
    self->serve_stream(std::move(*stream), http, info, std::move(subject));
  }
}

native::session_options shard_server::session_options() const {
  return {.limits = setup_->options.limits,
          .compressions = setup_->options.compressions,
          .memory = setup_->memory};
}

weft::http::options shard_server::http_options(bool over_tcp) const {
  weft::http::options made{.max_field_section = setup_->options.limits.max_metadata,
                           .max_concurrent = setup_->options.limits.max_concurrent_calls,
                           .memory = setup_->memory};
  if (over_tcp) made.keep_alive = setup_->options.transport.keep_alive;
  // RFC 7838: the same service, without TCP.
  if (over_tcp)
    made.alt_svc = "h3=\":" + std::to_string(endpoint_->local_address().port()) + "\"; ma=86400";
  return made;
}

// Sessions
// -------------------------------------------------------------------------------------------

void shard_server::adopt(std::unique_ptr<session> made) {
  auto* raw = made.get();
  sessions_.push_back(std::move(made));
  limit_age(*raw);
  spawn(watch(shared_from_this(), raw));
}

void shard_server::limit_age(session& of) {
  const duration age = setup_->options.max_connection_age;
  if (age <= duration::zero()) return;
  // Clients that came together must not all come again together.
  std::uniform_real_distribution<double> spread{0.9, 1.1};
  const auto due = std::chrono::duration_cast<duration>(age * spread(random_));
  shard_.arm(of.retirement, io::now() + due, [this, &of](time_point) { retire(of); });
}

void shard_server::retire(session& old) {
  const auto place = std::ranges::find(sessions_, &old, &session_ptr::get);
  if (stopping_ || place == sessions_.end()) return;
  spawn(drain({shared_from_this(), *place}, too_old()));
  shard_.arm(old.retirement, io::now() + setup_->options.max_connection_age_grace,
             [&old](time_point) { old.close(too_old()); });
}

// Does not hold the session: dropping it while it waits drops the wait.
task<> shard_server::watch(self_ptr self, session* of) {
  co_await of->finished();
  // Not from inside the session's own last words.
  co_await asio::post(asio::deferred);
  self->sessions_.remove_if([&](const session_ptr& s) { return s.get() == of; });
  self->session_ended_.notify();
}

task<> shard_server::drain(held_session held, status why) {
  co_await held.held->drain();
  held.held->close(why);
}

// Turns new connections away while running calls end.
task<> shard_server::refuse(self_ptr self, time_point deadline) {
  co_await self->endpoint_->drain(deadline);
}

void shard_server::end_sessions() noexcept {
  http_calls_->conclude_all(stopped());
  for (const auto& each : std::list{sessions_}) each->conclude(stopped());
}

void shard_server::spawn(task<> work) {
  asio::co_spawn(shard_.get_executor(), std::move(work),
                 [log = setup_->log](std::exception_ptr failure) {
                   if (!failure) return;
                   try {
                     std::rethrow_exception(failure);
                   } catch (const std::exception& e) {
                     log(std::string{"rpc: a session failed: "} + e.what());
                   }
                 });
}

// Ending
// ---------------------------------------------------------------------------------------------

void shard_server::shutdown(time_point deadline, std::function<void()> done) {
  stopping_ = true;
  if (listener_) listener_->close();
  spawn(refuse(shared_from_this(), deadline < never - last_grace ? deadline + last_grace : never));
  for (const auto& session : sessions_) spawn(drain({shared_from_this(), session}, stopped()));
  shard_.arm(deadline_, deadline, [this](time_point) {
    end_sessions();
    session_ended_.notify();
  });
  spawn(finish(shared_from_this(), std::move(done)));
}

void shard_server::hurry(time_point deadline) {
  if (deadline_.armed() && deadline < deadline_.deadline()) shard_.rearm(deadline_, deadline);
}

task<> shard_server::finish(self_ptr self, std::function<void()> done) {
  io::timer alarm;
  bool late = false;
  while (!self->sessions_.empty() && !late) {
    if (!self->deadline_.armed() && !alarm.armed())
      self->shard_.arm(alarm, io::now() + last_grace, [&](time_point) {
        late = true;
        self->session_ended_.notify();
      });
    (void)co_await self->session_ended_.wait();
  }
  self->shard_.disarm(self->deadline_);
  if (late) self->setup_->log("rpc: handlers that did not end in time were abandoned");
  self->sessions_.clear();
  co_await self->endpoint_->drain(io::now() + last_grace);
  // Here rather than in the destructor, which may run on another thread.
  self->endpoint_.reset();
  self->listener_.reset();
  done();
}

void shard_server::abandon() noexcept {
  stopping_ = true;
  shard_.disarm(deadline_);
  sessions_.clear();
  if (listener_) listener_->close();
  if (endpoint_) endpoint_->close();
}

}  // namespace weft::rpc::detail
