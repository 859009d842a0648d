#include <weft/http/h3_connection.hpp>

#include <algorithm>
#include <utility>

#include <asio/co_spawn.hpp>

namespace weft::http {
namespace {

using namespace std::chrono_literals;

// A client that was told GOAWAY closes once it has read its responses; closing before it has would
// take from it what is still on its way.
constexpr duration parting = 1s;
// How long a client has at least to learn that it is to go elsewhere. It goes at once, so this
// costs nothing; turning away what it sent in between costs it a call.
constexpr duration shortest_notice = 500ms;
constexpr std::int64_t unidirectional_bit = 2;  // RFC 9000 §2.1

bool is_unidirectional(std::int64_t id) noexcept {
  return (id & unidirectional_bit) != 0;
}

/// The stream's own end, not its connection's.
bool is_stream_reset(const error& why) noexcept {
  return why == errc::reset && why.where() == layer::stream;
}

}  // namespace

bool reset_allowance::take(time_point now) noexcept {
  const double seconds = std::chrono::duration<double>{now - since_}.count();
  since_ = now;
  left_ = std::min(burst, left_ + seconds * per_second);
  left_ -= 1;
  return left_ >= 0;
}

h3_connection::h3_connection(quic::connection connection, io::shard& shard, options opts,
                             end_of side, request_handler handler)
    : shard_{shard},
      connection_{std::move(connection)},
      options_{std::move(opts)},
      side_{side},
      handler_{std::move(handler)} {
  const auto& path = connection_.current_path();
  const auto& session = connection_.session();
  info_ = {.version = "h3",
           .transport = "quic",
           .local = path.local,
           .remote = path.remote,
           .group = session.group,
           .cipher = session.cipher,
           .peer_subject = session.peer_subject};
}

h3_connection::~h3_connection() = default;

void h3_connection::start() {
  auto made = h3_session::make(side_, {.max_field_section = options_.max_field_section,
                                       .qpack_table = options_.qpack_table,
                                       .max_concurrent = options_.max_concurrent});
  if (!made) return shut(made.error());
  session_ = std::move(*made);
  for (int i = 0; i < 3; ++i) {
    auto opened = connection_.try_open_stream(quic::direction::unidirectional);
    if (!opened || !*opened)
      return shut({errc::protocol, layer::http,
                   "HTTP/3 needs three unidirectional streams, the peer allows " +
                       std::to_string(i) + "; it should raise initial_max_streams_uni",
                   to_h3(give_up::internal)});
    (*opened)->set_priority(0);
    own_.push_back(std::move(**opened));
  }
  if (auto bound = session_->bind(own_[0].id(), own_[1].id(), own_[2].id()); !bound)
    return shut(bound.error());
  connection_.on_closed([weak = weak_from_this()](const error& why) {
    if (auto self = weak.lock()) self->shut(why);
  });
  connection_.on_stream([weak = weak_from_this()](quic::stream s) {
    if (auto self = weak.lock()) self->on_stream(std::move(s));
  });
  connection_.before_sending([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self && self->flush_scheduled_) self->flush();
  });
  maybe_idle();
  changed();
}

bool h3_connection::usable() const noexcept {
  return !over_ && !draining_ && session_ && !session_->peer_going_away() && connection_.is_open();
}

// Streams of the peer
// ------------------------------------------------------------------------------

void h3_connection::on_stream(quic::stream s) {
  if (over_) return;
  if (!is_unidirectional(s.id())) return serve_request(std::move(s));
  asio::co_spawn(shard_.get_executor(), read_unidirectional(shared_from_this(), std::move(s)),
                 [](std::exception_ptr) {});
}

task<> h3_connection::read_unidirectional(std::shared_ptr<h3_connection> self, quic::stream s) {
  const std::int64_t id = s.id();
  while (!self->over_) {
    auto arrived = co_await s.read();
    if (self->over_) co_return;
    const bool last = !arrived || arrived->empty();
    result<> done;
    if (arrived)
      done = self->session_->receive(id, *arrived, arrived->empty(), io::now());
    else if (is_stream_reset(arrived.error()))
      done = self->session_->receive_reset(id, arrived.error().detail());
    if (!done) co_return self->fail_with(done.error());
    self->dispatch();
    self->leave_when_idle();
    if (last) co_return;
  }
}

void h3_connection::serve_request(quic::stream s) {
  if (side_ == end_of::client) {
    // RFC 9114 §6.1
    return fail_with({errc::protocol, layer::http, "a server may not open bidirectional streams",
                      0x103 /* H3_STREAM_CREATION_ERROR */});
  }
  if (draining_ || streams_.size() >= options_.max_concurrent) {
    ++stats_.rejected;
    s.stop_sending(to_h3(give_up::rejected));
    s.reset(to_h3(give_up::rejected));
    if (!allowance_.take(io::now()))
      fail_with({errc::exhausted, layer::http, "too many requests beyond the limit",
                 to_h3(give_up::excessive_load)});
    return;
  }
  auto stream = std::make_shared<h3_stream>(std::move(s));
  streams_.emplace(stream->id, stream);
  watch(stream);
  feed_ready(stream);
  if (over_) return;
  if (stream->begun || !session_->is_receiving(stream->id)) return forget_finished(stream);
  shard_.arm(stream->patience, io::now() + options_.section_timeout,
             [this, stream = stream.get()](time_point) {
               session_->reset(stream->id, give_up::excessive_load);
               stream->stream.stop_sending(to_h3(give_up::excessive_load));
               stream->stream.reset(to_h3(give_up::excessive_load));
               changed();
             });
  asio::co_spawn(shard_.get_executor(), await_head(shared_from_this(), stream),
                 [](std::exception_ptr) {});
}

task<> h3_connection::await_head(std::shared_ptr<h3_connection> self, h3_stream_ptr stream) {
  while (!self->over_ && !stream->begun && self->session_->is_receiving(stream->id)) {
    auto arrived = co_await stream->stream.read();
    if (self->over_) co_return;
    const bool more = arrived && !arrived->empty();
    self->feed(*stream, std::move(arrived));
    if (!more) break;
  }
  self->shard_.disarm(stream->patience);
  if (!self->over_) self->forget_finished(stream);
}

void h3_connection::watch(const h3_stream_ptr& stream) {
  stream->stream.on_abandoned([this, weak = std::weak_ptr{stream}](const error& why) {
    // Whoever holds a stream holds its connection.
    const auto stream = weak.lock();
    if (!stream) return;
    if (const auto self = weak_from_this().lock()) gave_up(stream, why);
  });
}

void h3_connection::gave_up(const h3_stream_ptr& stream, const error& why) {
  if (over_) return;
  const bool reset = is_stream_reset(why);
  if (!reset && why != errc::stopped) return;  // the connection tells all
  if (reset) {
    ++stats_.resets_received;
    if (auto done = session_->receive_reset(stream->id, why.detail()); !done)
      return fail_with(done.error());
  }
  // Told once: of a reset that follows, whoever reads learns.
  if (const auto stopped = stream->stream.stopped_code()) {
    session_->receive_stop(stream->id, *stopped);
    stream->pending.clear();
  }
  const bool wasted = side_ == end_of::server && from_h3(why.detail()) != give_up::no_error;
  if (wasted && !allowance_.take(io::now()))
    return fail_with({errc::exhausted, layer::http,
                      "the client gives up more requests than it waits for",
                      to_h3(give_up::excessive_load)});
  dispatch();
  changed();
  forget_finished(stream);
}

// Receiving
// ----------------------------------------------------------------------------------------

void h3_connection::feed(h3_stream& stream, result<slice> arrived) {
  if (over_) return;
  result<> done;
  if (arrived) {
    done = session_->receive(stream.id, *arrived, arrived->empty(), io::now());
  } else if (is_stream_reset(arrived.error())) {
    done = session_->receive_reset(stream.id, arrived.error().detail());
  } else if (!connection_.is_open()) {
    return shut(arrived.error());
  }
  if (!done) return fail_with(done.error());
  dispatch();
}

void h3_connection::feed_ready(const h3_stream_ptr& stream) {
  // A handler that starts in the middle of `dispatch` reads what came with its head.
  if (!events_.empty()) dispatch();
  while (!over_ && session_->is_receiving(stream->id)) {
    if (stream->user && !stream->user->wants_more()) return;
    auto arrived = stream->stream.try_read();
    if (!arrived) return;
    const bool more = *arrived && !(*arrived)->empty();
    feed(*stream, std::move(*arrived));
    if (!more) return;
  }
}

/// Handlers and resumed coroutines may do anything: end this connection, or read on, which brings
/// this here again. The inner call goes on where the outer one is, so that order is kept.
void h3_connection::dispatch() {
  const auto self = shared_from_this();
  std::ranges::move(session_->events(), std::back_inserter(events_));
  session_->events().clear();
  while (next_event_ < events_.size()) {
    event next = std::move(events_[next_event_]);
    if (++next_event_ == events_.size()) {
      events_.clear();
      next_event_ = 0;
    }
    const auto found = streams_.find(next.id);
    if (found == streams_.end()) continue;
    const h3_stream_ptr stream = found->second;
    if (auto* head = std::get_if<event::request>(&next.what))
      begin_request(stream, std::move(*head));
    else if (stream->user)
      stream->user->take(next);
  }
  if (!session_->commands().empty()) changed();
}

void h3_connection::begin_request(const h3_stream_ptr& stream, event::request head) {
  if (over_ || std::exchange(stream->begun, true)) return;
  ++stats_.requests;
  ++stats_.open;
  stream->stream.set_priority(head.urgency);
  auto made = std::make_unique<h3_exchange>(shared_from_this(), stream, std::move(head.head));
  stream->user = made.get();
  handler_(std::move(made));
}

// Sending
// ------------------------------------------------------------------------------------------

void h3_connection::changed() {
  if (over_ || std::exchange(flush_scheduled_, true)) return;
  shard_.at_end_of_turn([weak = weak_from_this()] {
    if (auto self = weak.lock()) self->flush();
  });
}

void h3_connection::flush() {
  flush_scheduled_ = false;
  if (over_) return;
  const auto self = shared_from_this();
  for (;;) {
    auto next = session_->next_write();
    if (!next) return fail_with(next.error());
    if (!*next) break;
    if (auto done = session_->taken(**next); !done) return fail_with(done.error());
    write(**next);
    if (over_) return;
  }
  obey();
}

/// What the transport has no room for waits beside the stream, which is blocked meanwhile.
void h3_connection::write(h3_write& w) {
  const auto found = streams_.find(w.stream);
  if (found == streams_.end()) {
    const auto own = std::ranges::find(own_, w.stream, &quic::stream::id);
    if (own == own_.end()) return;
    for (slice& part : w.parts)
      if (auto sent = own->try_write(std::move(part)); !sent)
        return fail_with({errc::exhausted, layer::http,
                          "the peer does not read its control streams",
                          to_h3(give_up::excessive_load)});
    return;
  }
  const h3_stream_ptr stream = found->second;
  stream->pending_fin |= w.fin;
  bool room = stream->pending.empty();
  for (slice& part : w.parts) {
    if (room) {
      auto sent = stream->stream.try_write(part);
      if (sent && !*sent) return;  // given up: `gave_up` tells
      room = sent.has_value();
    }
    if (!room) stream->pending.push_back(std::move(part));
  }
  if (room) {
    if (stream->pending_fin) (void)stream->stream.finish();
    if (stream->user) stream->user->writable_.notify();
    return forget_finished(stream);
  }
  session_->block(stream->id);
  if (std::exchange(stream->pushing, true)) return;
  asio::co_spawn(shard_.get_executor(), push(shared_from_this(), stream),
                 [](std::exception_ptr) {});
}

task<> h3_connection::push(std::shared_ptr<h3_connection> self, h3_stream_ptr stream) {
  while (!stream->pending.empty() && !self->over_) {
    const slice part = stream->pending.front();
    auto sent = co_await stream->stream.write(part);
    if (!sent) stream->pending.clear();
    if (!stream->pending.empty()) stream->pending.pop_front();
  }
  stream->pushing = false;
  if (self->over_) co_return;
  if (stream->pending_fin) (void)stream->stream.finish();
  self->session_->unblock(stream->id);
  self->flush();
  if (stream->user) stream->user->writable_.notify();
  if (!self->over_) self->forget_finished(stream);
}

void h3_connection::obey() {
  const auto commands = std::exchange(session_->commands(), {});
  for (const h3_command& each : commands) {
    const auto found = streams_.find(each.stream);
    if (found == streams_.end()) continue;
    h3_stream& stream = *found->second;
    if (each.does == h3_command::what::prioritise) {
      stream.stream.set_priority(static_cast<std::uint8_t>(each.code));
      continue;
    }
    if (each.does == h3_command::what::stop_sending) {
      stream.stream.stop_sending(each.code);
      continue;
    }
    ++stats_.resets_sent;
    stream.pending.clear();
    stream.stream.reset(each.code);
  }
  for (const h3_command& each : commands)
    if (const auto found = streams_.find(each.stream); found != streams_.end())
      forget_finished(h3_stream_ptr{found->second});
}

void h3_connection::forget_finished(const h3_stream_ptr& stream) {
  if (stream->user || !stream->pending.empty() || stream->pushing) return;
  if (session_->is_open(stream->id)) return;
  // Dropping the stream would give it up with a code of its own.
  if (std::ranges::contains(session_->commands(), stream->id, &h3_command::stream)) return;
  streams_.erase(stream->id);
  maybe_idle();
}

void h3_connection::released(h3_exchange& exchange, const h3_stream_ptr& stream) {
  --stats_.open;
  stream->user = nullptr;
  if (over_) {
    streams_.erase(stream->id);
    return maybe_idle();
  }
  if (exchange.finished_ || side_ == end_of::client)
    exchange.finished_ ? session_->stop(stream->id, side_ == end_of::server ? give_up::no_error
                                                                            : give_up::cancelled)
                       : session_->reset(stream->id, give_up::cancelled);
  else
    session_->reset(stream->id, give_up::cancelled);
  changed();
  forget_finished(stream);
}

// Requests of ours
// ---------------------------------------------------------------------------------

result<std::unique_ptr<exchange>> h3_connection::begin_exchange(quic::stream s, request_head head,
                                                                bool end, std::uint8_t urgency) {
  auto stream = std::make_shared<h3_stream>(std::move(s));
  if (auto queued = session_->request(stream->id, head, end, urgency); !queued) {
    stream->stream.reset(to_h3(give_up::cancelled));
    return std::unexpected{std::move(queued).error()};
  }
  stream->stream.set_priority(urgency);
  streams_.emplace(stream->id, stream);
  watch(stream);
  ++stats_.requests;
  ++stats_.open;
  auto made = std::make_unique<h3_exchange>(shared_from_this(), stream, std::move(head));
  made->finished_ = end;
  stream->user = made.get();
  changed();
  return made;
}

std::optional<result<std::unique_ptr<exchange>>> h3_connection::try_request(request_head& head,
                                                                            bool end,
                                                                            std::uint8_t urgency) {
  if (over_) return std::unexpected{*over_};
  if (!usable())
    return fail(errc::refused, layer::http, "the server takes no more requests on this connection");
  auto opened = connection_.try_open_stream();
  if (!opened) return std::nullopt;
  if (!*opened) return std::unexpected{std::move(*opened).error()};
  return begin_exchange(std::move(**opened), std::move(head), end, urgency);
}

task<result<std::unique_ptr<exchange>>> h3_connection::request(request_head head, bool end,
                                                               std::uint8_t urgency) {
  const auto self = shared_from_this();
  if (auto at_once = try_request(head, end, urgency)) co_return std::move(*at_once);
  auto opened = co_await connection_.open_stream();
  if (over_) co_return std::unexpected{*over_};
  if (!opened) co_return std::unexpected{std::move(opened).error()};
  if (!usable())
    co_return fail(errc::refused, layer::http,
                   "the server takes no more requests on this connection");
  co_return begin_exchange(std::move(*opened), std::move(head), end, urgency);
}

// Ending
// -------------------------------------------------------------------------------------------

void h3_connection::maybe_idle() {
  if (!streams_.empty()) return;
  if (options_.max_idle > 0s && !over_)
    shard_.arm(rest_, io::now() + options_.max_idle, [weak = weak_from_this()](time_point now) {
      if (auto self = weak.lock()) self->rest(now);
    });
  for (const auto& each : std::exchange(idle_, {})) each->notify();
  leave_when_idle();
}

/// RFC 9114 §5.2: a client that was told to go closes when its requests are done.
void h3_connection::leave_when_idle() {
  if (over_ || side_ == end_of::server || !streams_.empty() || !session_->peer_going_away()) return;
  shard_.at_end_of_turn([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || self->over_ || !self->streams_.empty()) return;
    self->shut({errc::closed, layer::http, "the server is going away", to_h3(give_up::no_error)});
  });
}

/// Nothing happened for long.
void h3_connection::rest(time_point now) {
  if (over_ || !streams_.empty()) return;  // its end comes here again
  if (side_ == end_of::client || draining_)
    return close(give_up::no_error, "the connection was idle");
  if (!leaving_) {
    announce_departure();
    return shard_.rearm(rest_, now + notice());
  }
  go_away();
  shard_.rearm(rest_, now + parting);
}

// RFC 9114 §5.2: first the notice, and only when the client must have it the identifier from which
// on requests are turned away.
void h3_connection::announce_departure() {
  leaving_ = true;
  session_->announce_departure();
  changed();
}

void h3_connection::go_away() {
  leaving_ = draining_ = true;
  session_->go_away();
  changed();
}

duration h3_connection::notice() const {
  return std::max<duration>(shortest_notice, 3 * connection_.stats().smoothed_rtt);
}

/// Until then or until the connection is over. False: the wait was cancelled.
task<bool> h3_connection::wait_until(time_point at) {
  io::timer alarm;
  bool late = false;
  shard_.arm(alarm, at, [&](time_point) {
    late = true;
    for (const auto& each : std::exchange(ended_, {})) each->notify();
  });
  bool woken = true;
  while (woken && !over_ && !late) woken = co_await wait_in(ended_);
  shard_.disarm(alarm);
  co_return woken;
}

task<> h3_connection::drain() {
  const auto self = shared_from_this();
  if (side_ == end_of::client) draining_ = true;
  if (over_ || !session_) co_return;
  if (side_ == end_of::server) {
    announce_departure();
    const bool waited = co_await wait_until(io::now() + notice());
    if (!waited || over_) co_return;
  }
  go_away();
  while (!over_ && !streams_.empty())
    if (!co_await wait_in(idle_)) co_return;
  if (!over_ && side_ == end_of::server) (void)co_await wait_until(io::now() + parting);
}

task<bool> h3_connection::wait_in(std::vector<std::shared_ptr<io::event>>& list) {
  auto told = std::make_shared<io::event>();
  list.push_back(told);
  co_return co_await told->wait();
}

void h3_connection::close(give_up why, std::string_view reason) noexcept {
  if (over_) return;
  connection_.close(to_h3(why), reason);
  shut({errc::closed, layer::http, std::string{reason}, to_h3(why)});
}

void h3_connection::fail_with(const error& why) {
  if (over_) return;
  connection_.close(why.detail(), why.message());
  shut(why);
}

void h3_connection::shut(error why) noexcept {
  if (over_) return;
  const auto self = weak_from_this().lock();
  over_ = std::move(why);
  shard_.disarm(rest_);
  connection_.close(over_->detail() != 0 ? over_->detail() : to_h3(give_up::no_error),
                    over_->message());
  for (const auto& [id, stream] : std::exchange(streams_, {})) {
    shard_.disarm(stream->patience);
    if (stream->user) stream->user->end_with(*over_);
  }
  maybe_idle();
  for (const auto& each : std::exchange(ended_, {})) each->notify();
}

task<error> h3_connection::finished() {
  const auto self = shared_from_this();
  while (!over_)
    if (!co_await wait_in(ended_))
      co_return error{errc::cancelled, layer::http, "the wait was cancelled"};
  co_return *over_;
}

// The public face
// ------------------------------------------------------------------------------------

namespace {

class h3_server final : public server_connection {
 public:
  explicit h3_server(std::shared_ptr<h3_connection> on) : on_{std::move(on)} {}
  ~h3_server() override { on_->close(give_up::no_error, "the server's end was destroyed"); }
  const connection_info& info() const noexcept override { return on_->info(); }
  task<> drain() override { return on_->drain(); }
  void close(give_up why, std::string_view reason) noexcept override { on_->close(why, reason); }
  task<error> finished() override { return on_->finished(); }
  connection_stats stats() const noexcept override { return on_->stats(); }

 private:
  std::shared_ptr<h3_connection> on_;
};

class h3_client final : public client_connection {
 public:
  explicit h3_client(std::shared_ptr<h3_connection> on) : on_{std::move(on)} {}
  ~h3_client() override { on_->close(give_up::no_error, "the client's end was destroyed"); }
  const connection_info& info() const noexcept override { return on_->info(); }
  task<result<std::unique_ptr<exchange>>> request(request_head head, bool end,
                                                  std::uint8_t urgency) override {
    return on_->request(std::move(head), end, urgency);
  }
  std::optional<result<std::unique_ptr<exchange>>> try_request(request_head& head, bool end,
                                                               std::uint8_t urgency) override {
    return on_->try_request(head, end, urgency);
  }
  bool usable() const noexcept override { return on_->usable(); }
  task<> drain() override { return on_->drain(); }
  void close(give_up why, std::string_view reason) noexcept override { on_->close(why, reason); }
  task<error> finished() override { return on_->finished(); }
  connection_stats stats() const noexcept override { return on_->stats(); }
  quic::connection* quic() noexcept override { return &on_->transport(); }

 private:
  std::shared_ptr<h3_connection> on_;
};

}  // namespace

std::unique_ptr<server_connection> serve_h3(quic::connection connection, io::shard& shard,
                                            options opts, request_handler handler) {
  auto made = std::make_shared<h3_connection>(std::move(connection), shard, std::move(opts),
                                              end_of::server, std::move(handler));
  auto face = std::make_unique<h3_server>(made);
  made->start();
  return face;
}

std::unique_ptr<client_connection> open_h3(quic::connection connection, io::shard& shard,
                                           options opts) {
  auto made = std::make_shared<h3_connection>(std::move(connection), shard, std::move(opts),
                                              end_of::client, request_handler{});
  auto face = std::make_unique<h3_client>(made);
  made->start();
  return face;
}

}  // namespace weft::http
