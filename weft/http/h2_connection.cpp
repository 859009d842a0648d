#include <weft/http/h2_connection.hpp>

#include <utility>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>

namespace weft::http {
namespace {

using namespace std::chrono_literals;

/// Bytes that one write takes from the session.
constexpr std::size_t write_batch = std::size_t{128} << 10;
/// Frames owed to a peer that does not read: beyond, it is not listened to.
constexpr std::size_t max_backlog = 4'096;
/// Handlers of exchanges that are over, beyond as many as may be open.
constexpr std::size_t leaving = 100;
/// For the peer to take our last words.
constexpr duration parting = 1s;

h2_settings settings_of(const options& from) {
  return {.max_field_section = from.max_field_section,
          .max_concurrent = from.max_concurrent,
          .exchange_window = from.exchange_window,
          .connection_window = from.connection_window};
}

class h2_exchange final : public exchange {
 public:
  explicit h2_exchange(h2_stream_ptr stream) noexcept : stream_{std::move(stream)} {}
  ~h2_exchange() override { stream_->release(); }

  const connection_info& connection() const noexcept override { return stream_->on().info(); }
  const request_head& request() const noexcept override { return stream_->request(); }
  task<result<>> receive_head() override { return h2_stream::receive_head(stream_); }
  const response_head* response() const noexcept override { return stream_->response(); }
  task<result<slice>> read() override { return h2_stream::read(stream_); }
  std::optional<result<slice>> try_read() override { return stream_->try_read(); }
  const field_list& trailers() const noexcept override { return stream_->trailers(); }
  result<> send_head(const response_head& head, bool end) override {
    return stream_->send_head(head, end);
  }
  std::optional<result<>> try_write(slice data, bool end) override {
    return stream_->try_write(data, end);
  }
  task<result<>> write(slice data, bool end) override {
    return h2_stream::write(stream_, std::move(data), end);
  }
  result<> finish(const field_list& trailers) override { return stream_->finish(trailers); }
  void stop_reading(give_up why) noexcept override { stream_->stop_reading(why); }
  void reset(give_up why) noexcept override { stream_->reset(why); }
  void on_abandoned(std::move_only_function<void(const error&)> callback) override {
    stream_->on_abandoned(std::move(callback));
  }
  void set_urgency(std::uint8_t urgency) noexcept override { stream_->set_urgency(urgency); }
  bool early_data() const noexcept override { return false; }

 private:
  h2_stream_ptr stream_;
};

}  // namespace

h2_connection::h2_connection(std::unique_ptr<io::byte_stream> stream, connection_info info,
                             io::shard& shard, options opts, h2_role role, request_handler handler)
    : shard_{shard},
      stream_{std::move(stream)},
      options_{std::move(opts)},
      role_{role},
      handler_{std::move(handler)},
      info_{std::move(info)},
      session_{role, settings_of(options_)} {
  info_.version = "h2";
}

h2_connection::~h2_connection() {
  stream_->abort();
}

void h2_connection::start() {
  heard_ = idle_since_ = io::now();
  shard_.arm(watch_, never, [weak = weak_from_this()](time_point now) {
    if (auto self = weak.lock()) self->check(now);
  });
  look_after();
  const auto run = shard_.get_executor();
  asio::co_spawn(run, write_loop(shared_from_this()), asio::detached);
  asio::co_spawn(run, read_loop(shared_from_this()), asio::detached);
}

bool h2_connection::usable() const noexcept {
  return !over_ && !draining_ && !session_.peer_going_away() && session_.has_identifiers();
}

connection_stats h2_connection::stats() const noexcept {
  connection_stats now = stats_;
  now.rejected += session_.rejected();
  return now;
}

// Receiving
// ----------------------------------------------------------------------------------------

task<> h2_connection::read_loop(std::shared_ptr<h2_connection> self) {
  const auto stream = self->stream_;
  for (;;) {
    if (!self->over_ && self->session_.backlog() > max_backlog) {
      (void)co_await self->caught_up_.wait();
      continue;
    }
    auto arrived = co_await stream->read();
    const bool last = !arrived || arrived->empty();
    if (self->over_ && last) co_return stream->abort();
    if (self->over_) continue;  // the peer has not read our last words yet
    if (last) {
      std::optional<error> failed;
      if (!arrived) failed = std::move(arrived).error();
      co_return self->shut(self->end_of_stream(std::move(failed)), false);
    }
    self->heard_ = io::now();
    self->pinged_ = never;
    auto done = self->session_.receive(*arrived, self->heard_);
    self->look_after();
    self->dispatch();
    if (!done) self->shut(std::move(done).error(), true);
    self->changed();
  }
}

/// Why the connection is over, the peer having ended it.
error h2_connection::end_of_stream(std::optional<error> failed) const {
  if (session_.farewell()) return *session_.farewell();
  if (failed) return std::move(*failed);
  return {errc::closed, layer::http, "the peer closed the connection"};
}

/// Handlers and resumed coroutines may do anything, also end this connection.
void h2_connection::dispatch() {
  const auto self = shared_from_this();
  while (!session_.events().empty()) {
    auto events = std::exchange(session_.events(), {});
    for (event& each : events) {
      if (over_) return;
      if (auto* head = std::get_if<event::request>(&each.what)) {
        begin_request(each.id, std::move(*head));
        continue;
      }
      const auto found = streams_.find(each.id);
      if (found == streams_.end()) {
        if (const auto* content = std::get_if<event::content>(&each.what))
          session_.consume(each.id, content->data.size());
        continue;
      }
      const h2_stream_ptr stream = found->second;
      std::visit([&](auto& what) { stream->take(std::move(what)); }, each.what);
    }
  }
  start_waiting();
}

void h2_connection::begin_request(exchange_id id, event::request&& head) {
  // Those that were answered or given up may have a handler each for a while.
  if (stats_.open >= 2 * options_.max_concurrent + leaving) {
    ++stats_.rejected;
    return session_.reset(id, give_up::rejected);
  }
  auto stream = std::make_shared<h2_stream>(shared_from_this(), id, std::move(head.head));
  if (!stream->charge(stream->request_.fields.section_size())) {
    ++stats_.rejected;
    return session_.reset(id, give_up::excessive_load);
  }
  ++stats_.requests;
  ++stats_.open;
  idle_since_ = never;
  streams_.emplace(id, stream);
  handler_(std::make_unique<h2_exchange>(std::move(stream)));
}

// Sending
// ------------------------------------------------------------------------------------------

void h2_connection::changed() {
  if (flush_scheduled_ || writing_) return;
  flush_scheduled_ = true;
  shard_.at_end_of_turn([weak = weak_from_this()] {
    if (auto self = weak.lock()) self->wake_writer();
  });
}

void h2_connection::wake_writer() {
  flush_scheduled_ = false;
  work_.notify();
}

task<> h2_connection::write_loop(std::shared_ptr<h2_connection> self) {
  const auto stream = self->stream_;
  std::vector<slice> parts;
  for (;;) {
    parts.clear();
    self->session_.collect(parts, write_batch);
    self->collected();
    if (!parts.empty()) {
      self->writing_ = true;
      auto written = co_await stream->write(parts);
      self->writing_ = false;
      if (written) continue;
      if (!self->over_) self->shut(self->end_of_stream(std::move(written).error()), false);
      co_return stream->abort();
    }
    if (self->over_) break;
    self->check_idle();
    const bool woken = co_await self->work_.wait();
    if (!woken) co_return;
  }
  (void)co_await stream->finish();
}

/// Sending ends exchanges, too, and may find out that all is over.
void h2_connection::collected() {
  if (over_) return;
  dispatch();
  if (session_.failure()) shut(*session_.failure(), true);
  for (const exchange_id id : std::exchange(session_.progressed(), {}))
    if (const auto found = streams_.find(id); found != streams_.end()) {
      const h2_stream_ptr stream = found->second;
      stream->progressed();
    }
  if (session_.backlog() <= max_backlog) caught_up_.notify();
}

void h2_connection::released(const h2_stream& stream) {
  --stats_.open;
  streams_.erase(stream.id());
  if (options_.max_idle > 0s && streams_.empty()) {
    idle_since_ = io::now();
    look_after();
  }
  changed();
}

// Requests of ours
// ---------------------------------------------------------------------------------

std::optional<error> h2_connection::refusal() const {
  if (over_) return *over_;
  if (usable()) return std::nullopt;
  return error{errc::refused, layer::http, "the server takes no more requests on this connection"};
}

result<std::unique_ptr<exchange>> h2_connection::begin_exchange(request_head head, bool end,
                                                                std::uint8_t urgency) {
  auto id = session_.request(head, end, urgency);
  if (!id) return std::unexpected{std::move(id).error()};
  ++stats_.requests;
  ++stats_.open;
  auto stream = std::make_shared<h2_stream>(shared_from_this(), *id, std::move(head));
  stream->finished_ = end;
  idle_since_ = never;
  streams_.emplace(*id, stream);
  changed();
  return std::make_unique<h2_exchange>(std::move(stream));
}

std::optional<result<std::unique_ptr<exchange>>> h2_connection::try_request(request_head& head,
                                                                            bool end,
                                                                            std::uint8_t urgency) {
  if (auto why = refusal()) return std::unexpected{std::move(*why)};
  if (!requests_.empty() || !session_.may_request()) return std::nullopt;
  return begin_exchange(std::move(head), end, urgency);
}

task<result<std::unique_ptr<exchange>>> h2_connection::request(std::shared_ptr<h2_connection> self,
                                                               request_head head, bool end,
                                                               std::uint8_t urgency) {
  if (auto at_once = self->try_request(head, end, urgency)) co_return std::move(*at_once);
  for (;;) {
    const bool woken = co_await wait_in(self->requests_);
    if (!woken) {
      self->start_waiting();
      co_return fail(errc::cancelled, layer::http, "the wait for a request's turn was cancelled");
    }
    if (auto why = self->refusal()) co_return std::unexpected{std::move(*why)};
    if (self->session_.may_request()) co_return self->begin_exchange(std::move(head), end, urgency);
  }
}

/// Lets requests go that have waited for the server's limit.
void h2_connection::start_waiting() {
  while (!requests_.empty() && (session_.may_request() || !usable())) {
    const auto next = requests_.front();
    requests_.pop_front();
    next->notify();
  }
}

// Ending
// -------------------------------------------------------------------------------------------

task<bool> h2_connection::wait_in(waiting_list& list) {
  const auto told = std::make_shared<io::event>();
  list.push_back(told);
  co_return co_await told->wait();
}

void h2_connection::wake_all(waiting_list& list) {
  for (const auto& each : std::exchange(list, {})) each->notify();
}

bool h2_connection::is_idle() const noexcept {
  return over_ || (streams_.empty() && session_.open_exchanges() == 0 && !writing_ &&
                   !session_.wants_to_send());
}

void h2_connection::check_idle() {
  if (!idle_.empty() && is_idle()) wake_all(idle_);
}

task<> h2_connection::drain(std::shared_ptr<h2_connection> self) {
  self->draining_ = true;
  self->start_waiting();
  if (!self->over_ && self->role_ == h2_role::server) {
    self->session_.go_away();
    self->changed();
  }
  io::timer alarm;
  bool late = self->role_ == h2_role::client;
  if (!late)
    self->shard_.arm(alarm, io::now() + parting, [&late, on = self.get()](time_point) {
      late = true;
      on->check_idle();
    });
  // What a client sent before it knew is still let in, and closing would refuse it.
  while (!self->over_ && !(self->is_idle() && (late || self->session_.gone_away()))) {
    const bool woken = co_await wait_in(self->idle_);
    if (!woken) co_return;
  }
}

// What is to be looked at although nothing happens
// ----------------------------------------------------------

time_point h2_connection::next_check() const noexcept {
  time_point at = never;
  if (role_ == h2_role::server && session_.section_since() != never)
    at = session_.section_since() + options_.section_timeout;
  if (options_.keep_alive > 0s)
    at = std::min(at, pinged_ == never ? heard_ + options_.keep_alive
                                       : pinged_ + options_.keep_alive_timeout);
  if (options_.max_idle > 0s && idle_since_ != never)
    at = std::min(at, idle_since_ + options_.max_idle);
  return at;
}

/// A timer that is too early costs less than one that moves with all that arrives.
void h2_connection::look_after() {
  const time_point at = next_check();
  if (over_ || at >= check_at_) return;
  check_at_ = at;
  shard_.rearm(watch_, at);
}

void h2_connection::check(time_point now) {
  check_at_ = never;
  if (over_) return;
  const auto passed = [now](time_point since, duration patience) {
    return since != never && since + patience <= now;
  };
  if (role_ == h2_role::server && passed(session_.section_since(), options_.section_timeout)) {
    constexpr std::string_view reason = "a field section was begun and never ended";
    session_.terminate(give_up::excessive_load, reason);
    return shut({errc::timed_out, layer::http, "the peer: " + std::string{reason},
                 to_h2(give_up::excessive_load)},
                true);
  }
  if (passed(pinged_, options_.keep_alive_timeout))
    return shut({errc::timed_out, layer::http, "the peer gave no sign of life when asked for one"},
                false);
  if (options_.max_idle > 0s && passed(idle_since_, options_.max_idle))
    return close(give_up::no_error, "the connection was idle");
  if (options_.keep_alive > 0s && pinged_ == never && passed(heard_, options_.keep_alive)) {
    pinged_ = now;
    session_.ping();
    changed();
  }
  look_after();
}

void h2_connection::close(give_up why, std::string_view reason) noexcept {
  if (over_) return;
  session_.terminate(why, reason);
  shut({errc::closed, layer::http, std::string{reason}, to_h2(why)}, true);
}

void h2_connection::shut(error why, bool orderly) noexcept {
  if (over_) return;
  const auto self = shared_from_this();
  over_ = std::move(why);
  shard_.disarm(watch_);
  if (orderly) {
    shard_.arm(patience_, io::now() + parting, [stream = stream_](time_point) { stream->abort(); });
    changed();
  } else {
    stream_->abort();
    work_.notify();
  }
  for (const auto& [id, stream] : std::exchange(streams_, {})) stream->end_with(*over_);
  start_waiting();
  caught_up_.notify();
  wake_all(idle_);
  wake_all(ended_);
}

task<error> h2_connection::finished(std::shared_ptr<h2_connection> self) {
  while (!self->over_) {
    const bool woken = co_await wait_in(self->ended_);
    if (!woken) co_return error{errc::cancelled, layer::http, "the wait was cancelled"};
  }
  co_return *self->over_;
}

// The public face
// ------------------------------------------------------------------------------------

namespace {

class h2_server final : public server_connection {
 public:
  explicit h2_server(std::shared_ptr<h2_connection> on) : on_{std::move(on)} {}
  ~h2_server() override { on_->close(give_up::no_error, "the server's end was destroyed"); }
  const connection_info& info() const noexcept override { return on_->info(); }
  task<> drain() override { return h2_connection::drain(on_); }
  void close(give_up why, std::string_view reason) noexcept override { on_->close(why, reason); }
  task<error> finished() override { return h2_connection::finished(on_); }
  connection_stats stats() const noexcept override { return on_->stats(); }

 private:
  std::shared_ptr<h2_connection> on_;
};

class h2_client final : public client_connection {
 public:
  explicit h2_client(std::shared_ptr<h2_connection> on) : on_{std::move(on)} {}
  ~h2_client() override { on_->close(give_up::no_error, "the client's end was destroyed"); }
  const connection_info& info() const noexcept override { return on_->info(); }
  task<result<std::unique_ptr<exchange>>> request(request_head head, bool end,
                                                  std::uint8_t urgency) override {
    return h2_connection::request(on_, std::move(head), end, urgency);
  }
  std::optional<result<std::unique_ptr<exchange>>> try_request(request_head& head, bool end,
                                                               std::uint8_t urgency) override {
    return on_->try_request(head, end, urgency);
  }
  bool usable() const noexcept override { return on_->usable(); }
  task<> drain() override { return h2_connection::drain(on_); }
  void close(give_up why, std::string_view reason) noexcept override { on_->close(why, reason); }
  task<error> finished() override { return h2_connection::finished(on_); }
  connection_stats stats() const noexcept override { return on_->stats(); }
  quic::connection* quic() noexcept override { return nullptr; }

 private:
  std::shared_ptr<h2_connection> on_;
};

}  // namespace

std::unique_ptr<server_connection> serve_h2(std::unique_ptr<io::byte_stream> stream,
                                            connection_info info, io::shard& shard, options opts,
                                            request_handler handler) {
  auto made = std::make_shared<h2_connection>(std::move(stream), std::move(info), shard,
                                              std::move(opts), h2_role::server, std::move(handler));
  made->start();
  return std::make_unique<h2_server>(std::move(made));
}

std::unique_ptr<client_connection> open_h2(std::unique_ptr<io::byte_stream> stream,
                                           connection_info info, io::shard& shard, options opts) {
  auto made = std::make_shared<h2_connection>(std::move(stream), std::move(info), shard,
                                              std::move(opts), h2_role::client, request_handler{});
  made->start();
  return std::make_unique<h2_client>(std::move(made));
}

}  // namespace weft::http
