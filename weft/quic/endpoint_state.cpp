#include <weft/quic/detail/endpoint_state.hpp>

#include <algorithm>
#include <chrono>
#include <format>
#include <utility>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>

#include <weft/quic/detail/registry.hpp>

namespace weft::quic::detail {

using namespace std::chrono_literals;

endpoint_state::endpoint_state(io::shard& shard, address local, endpoint_config config,
                               std::unique_ptr<core::endpoint> core)
    : shard_{&shard},
      local_{local},
      config_{std::move(config)},
      core_{std::move(core)},
      hub_{shard.get_executor()},
      on_train_{[this](const udp::train& t) { take_train(t); }} {
  // Filled, so that its pages are there: a page fault costs more than a datagram.
  send_buffer_.assign(send_buffer_bytes, std::byte{0});
}

endpoint_state::~endpoint_state() {
  leave_group();
  if (registry_) registry_->remove(*this);
}

result<endpoint> endpoint_state::open(io::shard& shard, address local,
                                      std::optional<server_config> server, endpoint_config config) {
  auto core = core::endpoint::create(config.core);
  if (!core) return std::unexpected{std::move(core.error())};
  auto state = std::make_shared<endpoint_state>(shard, local, std::move(config), std::move(*core));
  if (server) {
    auto ready = state->core_->listen(std::move(*server));
    if (ready) ready = state->join_group();
    if (!ready) return std::unexpected{std::move(ready.error())};
  }
  if (server || local.ip_family() != address::family::none) {
    auto p = state->open_port(local, server.has_value());
    if (!p) return std::unexpected{std::move(p.error())};
    (*p)->primary = true;
    (*p)->listening = server.has_value();
  }
  asio::use_service<endpoint_registry>(shard.context()).add(*state);
  return endpoint{std::move(state)};
}

const port* endpoint_state::primary() const noexcept {
  for (const auto& p : ports_)
    if (p->primary) return p.get();
  return nullptr;
}

// Operations
// ---------------------------------------------------------------------------------------

task<result<connection>> endpoint_state::connect(self_ptr self, address remote, std::string host,
                                                 client_config config) {
  if (self->closed_) co_return fail(errc::closed, layer::quic, "the endpoint is closed");
  auto way = self->port_towards(remote);
  if (!way) co_return std::unexpected{std::move(way.error())};
  auto& [carrier, source] = *way;
  auto started = self->core_->connect({source, remote}, host, std::move(config), self->now());
  if (!started) co_return std::unexpected{std::move(started.error())};
  auto state = self->adopt(**started, std::move(carrier));
  connection handle = connection_state::make(state);
  self->touch();
  if (auto ready = co_await connection_state::ready(state); !ready)
    co_return std::unexpected{std::move(ready.error())};
  co_return std::move(handle);
}

task<result<connection>> endpoint_state::accept(self_ptr self) {
  for (;;) {
    if (!self->incoming_.empty()) {
      auto next = std::move(self->incoming_.front());
      self->incoming_.pop_front();
      co_return connection_state::make(std::move(next));
    }
    if (self->closed_ || (self->draining_ && self->core_->stats().handshakes == 0)) {
      if (self->failure_) co_return std::unexpected{*self->failure_};
      co_return fail(errc::closed, layer::quic, "the endpoint is closed");
    }
    wait_list::node place{self->hub_, self->acceptors_};
    if (!co_await place.wait())
      co_return fail(errc::cancelled, layer::quic, "the wait for a connection was cancelled");
  }
}

task<> endpoint_state::drain(self_ptr self, time_point deadline) {
  self->core_->stop_listening();
  self->draining_ = true;
  io::timer alarm;
  bool late = false;
  self->shard_->arm(alarm, deadline, [raw = self.get(), &late](time_point) {
    late = true;
    raw->defer([self = raw->shared_from_this()] { self->drainers_.notify_all(); });
  });
  self->touch();
  while (!self->empty() && !late && !self->finished_) {
    wait_list::node place{self->hub_, self->drainers_};
    if (!co_await place.wait()) break;
  }
  self->close(0, "the endpoint has drained");
}

void endpoint_state::close(std::uint64_t code, std::string_view reason) {
  if (std::exchange(closed_, true)) return;
  core_->stop_listening();
  core_->close_all(code, reason, now());
  defer([self = shared_from_this(), code] {
    self->end_all(error{errc::closed, layer::quic, "this side closed the endpoint", code});
    self->acceptors_.notify_all();
    self->drainers_.notify_all();
  });
}

void endpoint_state::end_all(const error& why) {
  std::vector<std::shared_ptr<connection_state>> all;
  for (auto* c = connections_; c; c = c->next_) all.push_back(c->shared_from_this());
  for (auto& c : all) c->end(why);
}

void endpoint_state::handle_dropped() {
  const auto self = shared_from_this();
  if (finished_) return;
  handle_gone_ = true;
  close(0, {});
  // The loop may not run again, so the peers are told now; the rest is for the turn.
  if (!in_turn_) flush();
  touch();
}

void endpoint_state::connection_ended(connection_state& c) {
  --open_connections_;
  if (c.has_handle_) return;
  if (auto place = std::ranges::find(incoming_, &c, &std::shared_ptr<connection_state>::get);
      place != incoming_.end())
    incoming_.erase(place);
  reap(c);
}

void endpoint_state::forget(connection_state& c) noexcept {
  (c.previous_ ? c.previous_->next_ : connections_) = c.next_;
  if (c.next_) c.next_->previous_ = c.previous_;
}

std::shared_ptr<connection_state> endpoint_state::adopt(core::connection& c,
                                                        std::shared_ptr<port> carrier) {
  auto state = std::make_shared<connection_state>(shared_from_this(), c, std::move(carrier));
  state->self_ = state;
  c.user = state.get();
  state->next_ = connections_;
  if (connections_) connections_->previous_ = state.get();
  connections_ = state.get();
  ++open_connections_;
  return state;
}

// Turn
// ---------------------------------------------------------------------------------------------

time_point endpoint_state::now() noexcept {
  if (!in_turn_) now_ = std::max(now_, io::now());
  return now_;
}

void endpoint_state::schedule() {
  scheduled_ = true;
  scheduled_self_ = shared_from_this();
  shard_->at_end_of_turn([this] {
    scheduled_ = false;
    const auto self = std::move(scheduled_self_);
    turn(nullptr);
  });
}

void endpoint_state::run_again() {
  if (std::exchange(again_, true)) return;
  asio::post(hub_.get_executor(), [self = shared_from_this()] {
    self->again_ = false;
    self->turn(nullptr);
  });
}

void endpoint_state::turn(port* readable) {
  if (finished_ || in_turn_) return;
  struct in_turn {
    bool& flag;
    explicit in_turn(bool& f) : flag{f} { flag = true; }
    ~in_turn() { flag = false; }
  };
  const auto self = shared_from_this();
  now_ = std::max(now_, io::now());
  bool more = false;
  {
    const in_turn guard{in_turn_};
    if (timer_deadline_ <= now_) core_->handle_timeout(now_);
    take_forwarded();
    if (readable) receive(*readable);
    dispatch();
    now_ = std::max(now_, io::now());  // coroutines may have taken their time
    more = flush();
    close_retired();
  }
  if (handle_gone_) return finish();
  arm_timer();
  if (more) run_again();
}

void endpoint_state::receive(port& from) {
  const time_point limit = now_ + 1ms;
  for (std::size_t left = config_.loop.receive_batch; left > 0 && from.open;) {
    const std::size_t wanted = std::min<std::size_t>(left, 256);
    const auto got = from.socket->receive(wanted, on_train_);
    if (!got) return fail_port(from, got.error());
    hear_refusals(from);
    if (*got < wanted || io::now() > limit) return;
    left -= std::min(left, *got);
  }
}

void endpoint_state::dispatch() {
  do {
    while (auto* c = core_->poll_connection()) {
      auto* state = static_cast<connection_state*>(c->user);
      if (state) {
        const auto guard = state->shared_from_this();
        state->dispatch();
      } else {
        accept_new(*c);
      }
    }
  } while (run_noted_work() || settle_drain());
}

// While draining: those who accept learn that nobody else will come, those who wait that all have
// gone. True when that woke somebody.
bool endpoint_state::settle_drain() {
  if (!draining_ || core_->stats().handshakes > 0) return false;
  const bool any = acceptors_.front() || (empty() && drainers_.front());
  acceptors_.notify_all();
  if (empty()) drainers_.notify_all();
  return any;
}

// A handshake under way counts: its client may know itself connected already.
bool endpoint_state::empty() const noexcept {
  return open_connections_ == 0 && core_->stats().handshakes == 0;
}

void endpoint_state::accept_new(core::connection& c) {
  auto* carrier = port_for(c.current_path().local);
  if (!carrier || closed_) {
    core_->release(c, now_);
    return;
  }
  const auto found = std::ranges::find(ports_, carrier, &std::shared_ptr<port>::get);
  auto state = adopt(c, *found);
  state->ready_ = true;
  incoming_.push_back(state);
  if (auto* first = acceptors_.pop()) first->notify();
  state->dispatch();
}

void endpoint_state::defer(std::move_only_function<void()> work) {
  if (abandoned_) return;
  if (finished_) return asio::post(hub_.get_executor(), std::move(work));
  deferred_.push_back(std::move(work));
  touch();
}

void endpoint_state::wake_later(stream_ref s) {
  if (finished_) return;  // everybody has been told already
  woken_.push_back(std::move(s));
  touch();
}

void endpoint_state::reap(connection_state& c) {
  if (!c.releasable() || !c.self_) return;
  if (finished_) return c.release(now_);
  reap_.push_back(c.shared_from_this());
  touch();
}

// Work that operations noted rather than did. True when there was any.
bool endpoint_state::run_noted_work() {
  bool any = false;
  while (!woken_.empty() || !deferred_.empty() || !reap_.empty()) {
    any = true;
    // Two vectors by turns: a stream that ends costs no allocation.
    auto batch = std::exchange(woken_, std::exchange(spare_woken_, {}));
    for (auto& s : batch) s->wake();
    batch.clear();
    spare_woken_ = std::move(batch);
    for (auto& work : std::exchange(deferred_, {})) work();
    for (auto& c : std::exchange(reap_, {}))
      if (c->releasable()) c->release(now_);
  }
  return any;
}

// Sending
// ------------------------------------------------------------------------------------------

// Small trains share a system call; a large one goes out at once, while it is in the cache and so
// that the other side can begin. True when a bound stopped it: run again, without sleeping.
bool endpoint_state::flush() {
  if (blocked_ports_ > 0) return false;  // the wait for writability has a turn when it ends
  constexpr std::size_t most_trains = 16, least_room = 1500;
  // Trains that share a system call may share a message, so a cap is one on all of them.
  const std::size_t cap = config_.loop.train_bytes;
  const bool capped = cap < udp::max_train_bytes;
  std::array<udp::train, most_trains> trains;
  for (std::size_t sent = 0; sent < flush_bytes;) {
    std::size_t used = 0, count = 0;
    port* through = nullptr;
    bool empty = false;
    while (count < most_trains && used + udp::max_train_bytes <= send_buffer_.size()) {
      const mutable_bytes room = mutable_bytes{send_buffer_}.subspan(used);
      const auto t = core_->poll_transmit(room, now_, capped ? cap - used : cap);
      empty = !t;
      if (!t) break;
      auto* p = port_for(t->path.local);
      if (!p) continue;  // a path whose socket is gone
      if (p != through && count > 0) {
        if (!send(*through, {trains.data(), count})) return false;
        count = 0;
      }
      through = p;
      trains[count++] = {t->path, t->ecn, bytes{room.first(t->size)}, t->segment};
      used += t->size;
      if (used >= large_batch || (capped && used + least_room > cap)) break;
    }
    if (count > 0 && !send(*through, {trains.data(), count})) return false;
    if (empty) return false;
    sent += used;
  }
  return true;
}

void endpoint_state::flush_early() {
  if (!in_turn_) return;
  now_ = std::max(now_, io::now());
  (void)flush();
}

bool endpoint_state::send(port& through, std::span<const udp::train> trains) {
  if (auto done = through.socket->send(trains); !done) {
    fail_port(through, done.error());
    return false;
  }
  if (through.socket->writable()) return true;
  wait_until_writable(through);
  return false;
}

port* endpoint_state::port_for(const address& local) noexcept {
  for (const auto& p : ports_)
    if (p->open && p->carries(local)) return p.get();
  return nullptr;
}

void endpoint_state::arm_timer() {
  time_point next = core_->next_timeout();
  for (const auto& r : retiring_) next = std::min(next, r.when);
  // What is due cannot go out before the socket is writable again; do not spin meanwhile.
  if (blocked_ports_ > 0) next = std::max(next, now_ + 1ms);
  if (next == timer_deadline_ && timer_.armed()) return;
  timer_deadline_ = next;
  if (std::exchange(timer_set_, true)) return shard_->rearm(timer_, next);
  shard_->arm(timer_, next, [this](time_point) { turn(nullptr); });
}

void endpoint_state::finish() {
  finished_ = true;
  leave_group();
  const auto self = shared_from_this();
  shard_->disarm(timer_);
  for (auto& p : ports_) p->close();
  hub_.notify_all();
  for (auto& s : std::exchange(woken_, {})) s->wake();
  deferred_.clear();
  for (auto* c = connections_; c;) {
    auto* next = c->next_;
    if (c->releasable()) c->release(now_);
    c = next;
  }
}

void endpoint_state::abandon() noexcept {
  finished_ = closed_ = abandoned_ = true;
  leave_group();
  const auto self = shared_from_this();
  hub_.drop_all();
  for (auto& p : ports_) {
    p->close();
    p->socket.reset();
  }
  woken_.clear();
  deferred_.clear();
  reap_.clear();
  incoming_.clear();
  scheduled_self_.reset();
  for (auto* c = connections_; c;) {
    auto* next = c->next_;
    if (c->releasable()) c->release(now_);
    c = next;
  }
}

}  // namespace weft::quic::detail
