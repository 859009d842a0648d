#include <weft/quic/detail/connection_state.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <format>
#include <utility>

#include <weft/quic/detail/endpoint_state.hpp>

namespace weft::quic::detail {

namespace {

constexpr int migration_retries = 10;
constexpr duration migration_pause = std::chrono::milliseconds{20};

/// Fewer streams are not worth a system call of their own.
constexpr unsigned smallest_share = 4;
/// A larger batch leaves in several trains, the first of which arrives while the last is made.
constexpr std::size_t largest_shared_batch = 96 * 1024;

bool is_early(const error& why) noexcept {
  return why.where() == layer::quic && why == errc::exhausted;
}

}  // namespace

/// Memory for some stream_states, linked through its free places.
struct connection_state::chunk {
  union place {
    place* next;
    alignas(stream_state) std::byte memory[sizeof(stream_state)];
  };
  place places[chunk_streams];
};

connection_state::connection_state(std::shared_ptr<endpoint_state> owner, core::connection& c,
                                   std::shared_ptr<port> carrier)
    : core_{&c}, owner_{std::move(owner)}, port_{std::move(carrier)} {
  ++port_->users;
}

connection_state::~connection_state() = default;

connection connection_state::make(std::shared_ptr<connection_state> state) {
  state->has_handle_ = true;
  return connection{std::move(state)};
}

void connection_state::handle_dropped() {
  has_handle_ = false;
  handling_ = false;
  on_stream_ = nullptr;
  if (!ended_) close(0, {});
  owner_->reap(*this);
}

error connection_state::end_reason() const {
  if (ended_) return *ended_;
  // The core only knows that it was told to close.
  if (given_up_) return *given_up_;
  return owner_->failure() ? *owner_->failure() : core_->close_reason();
}

// Streams
// ------------------------------------------------------------------------------------------

void* connection_state::allocate_stream() {
  if (!free_streams_) {
    auto& fresh = *chunks_.emplace_back(std::make_unique<chunk>());
    for (auto& place : fresh.places) free_stream(&place);
  }
  auto* place = static_cast<chunk::place*>(free_streams_);
  free_streams_ = place->next;
  return place->memory;
}

void connection_state::free_stream(void* memory) noexcept {
  auto* place = new (memory) chunk::place;
  place->next = static_cast<chunk::place*>(free_streams_);
  free_streams_ = place;
}

void connection_state::add(stream_state& s) noexcept {
  s.next_ = streams_;
  if (streams_) streams_->previous_ = &s;
  streams_ = &s;
}

void connection_state::remove(stream_state& s) noexcept {
  (s.previous_ ? s.previous_->next_ : streams_) = s.next_;
  if (s.next_) s.next_->previous_ = s.previous_;
}

void connection_state::stream_gone() {
  owner_->touch();
  if (!streams_ && !has_handle_) owner_->reap(*this);
}

std::optional<result<stream>> connection_state::try_open_stream(direction d) {
  if (ended_) return std::unexpected{end_reason()};
  const bool bidirectional = d == direction::bidirectional;
  if (!openers(bidirectional).empty()) return {};  // others wait already
  auto opened = core_->open_stream(bidirectional);
  if (opened) return stream_state::make(*this, **opened);
  if (opened.error() == errc::exhausted) return {};
  return std::unexpected{std::move(opened.error())};
}

task<result<stream>> connection_state::open_stream(self_ptr self, direction d) {
  const bool bidirectional = d == direction::bidirectional;
  for (;;) {
    if (auto done = self->try_open_stream(d)) co_return std::move(*done);
    wait_list::node place{self->owner_->hub(), self->openers(bidirectional)};
    const bool notified = co_await place.wait();
    if (place.gift) co_return stream_state::make(*self, *static_cast<core::stream*>(place.gift));
    if (!notified)
      co_return fail(errc::cancelled, layer::quic, "the wait for stream credit was cancelled");
  }
}

// Hands new credit to those who wait for it, in their order.
void connection_state::grant_credit(bool bidirectional) {
  wait_list& waiting = openers(bidirectional);
  while (!ended_ && waiting.front()) {
    auto opened = core_->open_stream(bidirectional);
    if (!opened) {
      if (opened.error() != errc::exhausted) waiting.notify_all();
      return;
    }
    auto* first = waiting.pop();
    first->gift = *opened;
    first->notify();
  }
}

task<result<stream>> connection_state::accept_stream(self_ptr self) {
  for (;;) {
    if (self->ended_) co_return std::unexpected{self->end_reason()};
    if (auto* s = self->core_->accept_stream()) co_return stream_state::make(*self, *s);
    wait_list::node place{self->owner_->hub(), self->acceptors_};
    if (!co_await place.wait())
      co_return fail(errc::cancelled, layer::quic, "the wait for a stream was cancelled");
  }
}

void connection_state::on_stream(std::move_only_function<void(stream)> handler) {
  if (ended_) return;
  handling_ = false;
  on_stream_ = std::move(handler);
  if (on_stream_) owner_->defer([self = shared_from_this()] { self->hand_out_streams(); });
}

void connection_state::hand_out_streams() {
  while (!ended_ && on_stream_) {
    auto* s = core_->accept_stream();
    if (!s) return;
    // Moved out: the handler may replace or withdraw itself.
    auto handler = std::exchange(on_stream_, nullptr);
    handling_ = true;
    handler(stream_state::make(*this, *s));
    if (std::exchange(handling_, false)) on_stream_ = std::move(handler);
    share_batch();
  }
  if (!ended_)
    if (auto* first = acceptors_.pop()) first->notify();
}

// Datagrams
// ----------------------------------------------------------------------------------------

task<result<>> connection_state::send_datagram(self_ptr self, slice payload) {
  for (;;) {
    if (self->ended_) co_return std::unexpected{self->end_reason()};
    auto done = self->core_->send_datagram(payload);
    self->owner_->touch();
    if (done || done.error() != errc::exhausted) co_return done;
    wait_list::node place{self->owner_->hub(), self->datagram_senders_};
    if (!co_await place.wait())
      co_return fail(errc::cancelled, layer::quic, "sending a datagram was cancelled");
  }
}

task<result<slice>> connection_state::receive_datagram(self_ptr self) {
  for (;;) {
    if (self->ended_) co_return std::unexpected{self->end_reason()};
    if (auto got = self->core_->read_datagram()) co_return std::move(*got);
    wait_list::node place{self->owner_->hub(), self->datagram_receivers_};
    if (!co_await place.wait())
      co_return fail(errc::cancelled, layer::quic, "the wait for a datagram was cancelled");
  }
}

// The connection as a whole
// ------------------------------------------------------------------------

task<result<>> connection_state::ready(self_ptr self) {
  for (;;) {
    if (self->ended_) co_return std::unexpected{self->end_reason()};
    if (self->ready_) co_return result<>{};
    wait_list::node place{self->owner_->hub(), self->ready_waiters_};
    if (!co_await place.wait())
      co_return fail(errc::cancelled, layer::quic, "connecting was cancelled");
  }
}

task<result<>> connection_state::confirmed(self_ptr self) {
  for (;;) {
    if (self->ended_) co_return std::unexpected{self->end_reason()};
    if (self->handshake_done_) co_return result<>{};
    wait_list::node place{self->owner_->hub(), self->confirmation_waiters_};
    if (!co_await place.wait())
      co_return fail(errc::cancelled, layer::quic, "the wait for the handshake was cancelled");
  }
}

void connection_state::close(std::uint64_t code, std::string_view reason) {
  give_up(code, reason, error{errc::closed, layer::quic, "this side closed the connection", code});
}

void connection_state::fail_with(error reason) {
  give_up(0, {}, std::move(reason));
}

void connection_state::give_up(std::uint64_t code, std::string_view said, error why) {
  if (ended_ || closing_) return;
  closing_ = true;
  given_up_ = std::move(why);
  core_->close(code, said, owner_->now());
  owner_->defer([self = shared_from_this()] { self->end(self->end_reason()); });
}

task<error> connection_state::closed(self_ptr self) {
  for (;;) {
    if (self->ended_) co_return *self->ended_;
    wait_list::node place{self->owner_->hub(), self->closers_};
    if (!co_await place.wait())
      co_return error{errc::cancelled, layer::quic, "the wait for the end was cancelled"};
  }
}

void connection_state::on_closed(std::move_only_function<void(const error&)> callback) {
  if (!ended_) {
    on_closed_.push_back(std::move(callback));
    return;
  }
  owner_->defer([self = shared_from_this(), callback = std::move(callback)]() mutable {
    callback(*self->ended_);
  });
}

void connection_state::end(error reason) {
  if (ended_) return;
  const auto self = shared_from_this();
  ended_.emplace(std::move(reason));
  handling_ = false;
  on_stream_ = nullptr;
  owner_->connection_ended(*this);
  std::vector<stream_ref> all;
  for (auto* s = streams_; s; s = s->next_) all.emplace_back(s);
  for (auto& s : std::exchange(all, {})) s->wake();
  for (auto& callback : std::exchange(on_closed_, {})) callback(*ended_);
  for (auto* list :
       {&openers_[0], &openers_[1], &acceptors_, &ready_waiters_, &confirmation_waiters_,
        &datagram_senders_, &datagram_receivers_, &migrators_, &closers_})
    list->notify_all();
}

void connection_state::release(time_point now) {
  const auto self = std::exchange(self_, nullptr);
  if (!self) return;
  end(error{errc::closed, layer::quic, "this side closed the connection"});
  owner_->forget(*this);
  owner_->core().release(*std::exchange(core_, nullptr), now);
  --port_->users;
  if (next_port_) owner_->retire(std::exchange(next_port_, nullptr), now);
  if (!port_->primary) owner_->retire(port_, now);
}

// Turn
// ---------------------------------------------------------------------------------------------

void connection_state::dispatch() {
  begin_batch();
  while (core_) {
    const auto event = core_->poll_event();
    if (!event) break;
    handle(*event);
  }
  while (core_) {
    auto* s = core_->poll_stream();
    if (!s) break;
    if (auto* state = static_cast<stream_state*>(s->user)) {
      state->dispatch();
      share_batch();
    } else {
      s->take_events();  // nobody accepted it yet; whoever does looks at its state
    }
  }
}

/// Between two streams of a batch. When half of what a batch usually writes is there, it leaves:
/// the other side works on it while this one goes on, where both would take turns otherwise.
void connection_state::share_batch() {
  if (before_sending_) before_sending_();
  if (wrote_ == 0) return;
  batch_.bytes += std::exchange(wrote_, 0);
  ++batch_.streams;
  if (++share_ < smallest_share || share_ < last_batch_.streams / 2) return;
  share_ = 0;
  if (last_batch_.bytes <= largest_shared_batch) owner_->flush_early();
}

void connection_state::begin_batch() noexcept {
  if (batch_.streams > 0) last_batch_ = std::exchange(batch_, {});
  share_ = 0;
  wrote_ = 0;
}

void connection_state::handle(core::connection_event event) {
  using kind = core::connection_event::kind;
  switch (event.what) {
    case kind::handshake_done:
      ready_ = handshake_done_ = true;
      ready_waiters_.notify_all();
      confirmation_waiters_.notify_all();
      break;
    case kind::early_data_ready:
      ready_ = true;
      ready_waiters_.notify_all();
      break;
    case kind::incoming_stream:
      hand_out_streams();
      break;
    case kind::early_data_rejected:
    case kind::stream_credit:
      grant_credit(true);
      grant_credit(false);
      break;
    case kind::datagram:
      datagram_receivers_.notify_all();
      break;
    case kind::datagram_room:
      datagram_senders_.notify_all();
      break;
    case kind::path_changed:
      path_changed();
      break;
    case kind::migration_failed:
      migration_failed();
      break;
    case kind::closed:
      end(end_reason());
      break;
    case kind::new_session:
      break;
  }
}

// Migration
// ----------------------------------------------------------------------------------------

task<result<>> connection_state::migrate(self_ptr self, address local, bool immediate) {
  if (self->ended_) co_return std::unexpected{self->end_reason()};
  if (self->core_->is_server())
    co_return fail(errc::unsupported, layer::quic, "only a client can move a connection");
  if (self->next_port_)
    co_return fail(errc::invalid_argument, layer::quic, "the connection is moving already");
  auto started = self->start_migration(local, immediate);
  // A fresh connection gets what a move needs (its handshake confirmed, a spare connection id) with
  // the peer's next packets.
  for (int again = 0; again < migration_retries && !started && is_early(started.error()); ++again) {
    auto& shard = self->owner_->shard();
    if (!co_await shard.sleep_until(io::now() + migration_pause))
      co_return fail(errc::cancelled, layer::quic, "the move was cancelled");
    if (self->ended_) co_return std::unexpected{self->end_reason()};
    started = self->start_migration(local, immediate);
  }
  if (!started) co_return started;
  for (;;) {
    if (self->ended_) co_return std::unexpected{self->end_reason()};
    if (self->migrated_) break;
    wait_list::node place{self->owner_->hub(), self->migrators_};
    if (!co_await place.wait())
      co_return fail(errc::cancelled, layer::quic, "the wait for the new path was cancelled");
  }
  if (*self->migrated_) co_return result<>{};
  co_return fail(
      errc::unreachable, layer::quic,
      std::format("the new path from {} did not validate; the old one stays", local.to_string()));
}

result<> connection_state::start_migration(const address& local, bool immediate) {
  const address remote = core_->current_path().remote;
  auto opened = owner_->open_port_towards(local, remote);
  if (!opened) return std::unexpected{std::move(opened.error())};
  auto& [next, source] = *opened;
  const time_point now = owner_->now();
  if (auto started = core_->migrate({source, remote}, immediate, now); !started) {
    owner_->retire(std::move(next), now);
    return started;
  }
  migrated_.reset();
  next_port_ = std::move(next);
  if (immediate) move_to(next_port_, true);
  owner_->touch();
  return {};
}

void connection_state::move_to(std::shared_ptr<port> next, bool at_once) {
  if (next == port_) return;
  ++next->users;
  auto old = std::exchange(port_, std::move(next));
  --old->users;
  const auto figures = core_->stats();
  const duration pto = figures.smoothed_rtt +
                       std::max<duration>(4 * figures.rtt_variance, std::chrono::milliseconds{1}) +
                       std::chrono::milliseconds{25};
  const time_point now = owner_->now();
  owner_->retire(std::move(old), at_once ? now : now + 3 * pto);
}

void connection_state::path_changed() {
  if (!next_port_ || !next_port_->carries(core_->current_path().local)) return;
  move_to(std::exchange(next_port_, nullptr), false);
  migrated_ = true;
  migrators_.notify_all();
}

void connection_state::port_failed(const port& p, const error& why) {
  if (port_.get() == &p) return fail_with(why);
  if (next_port_.get() == &p) migration_failed();
}

void connection_state::migration_failed() {
  if (!next_port_) return;
  auto unused = std::exchange(next_port_, nullptr);
  if (unused != port_) owner_->retire(std::move(unused), owner_->now());
  migrated_ = false;
  migrators_.notify_all();
}

}  // namespace weft::quic::detail
