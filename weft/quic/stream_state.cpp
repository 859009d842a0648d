#include <weft/quic/detail/stream_state.hpp>

#include <algorithm>
#include <new>
#include <utility>

#include <weft/quic/detail/connection_state.hpp>
#include <weft/quic/detail/endpoint_state.hpp>

namespace weft::quic::detail {
namespace {

/// Pieces of a write that waits for room are at least this long, so that room which trickles in
/// does not cut the data into crumbs.
constexpr std::size_t smallest_piece = 64 * 1024;

error cancelled(const char* what) {
  return error{errc::cancelled, layer::stream, what};
}

}  // namespace

stream_state::stream_state(connection_state& owner, core::stream& s) noexcept
    : read_waiter{owner.owner().hub()},
      write_waiter{owner.owner().hub()},
      core_{&s},
      owner_{&owner},
      drained_waiter_{owner.owner().hub()},
      stopped_waiter_{owner.owner().hub()} {
  s.user = this;
  owner.add(*this);
}

stream stream_state::make(connection_state& owner, core::stream& s) {
  auto* state = new (owner.allocate_stream()) stream_state{owner, s};
  state->acquire();
  return stream{state};
}

void stream_state::destroy() {
  connection_state& owner = *owner_;
  core_->user = nullptr;
  owner.core().release(*core_);
  owner.remove(*this);
  this->~stream_state();
  owner.free_stream(this);
  owner.stream_gone();  // last: this may have been what kept the connection
}

void stream_state::handle_dropped() {
  handle_dropped_ = true;
  abandoned_ = nullptr;
  if (references_ > 1) wake_later();
  release();
}

// Reading
// ------------------------------------------------------------------------------------------

std::optional<result<slice>> stream_state::try_read(std::size_t limit) {
  if (slice got = core_->read(limit); !got.empty()) {
    owner_->owner().touch();  // taking bytes may have given credit that the peer should hear of
    return got;
  }
  if (core_->at_end()) return slice{};
  if (auto why = read_failure()) return std::unexpected{std::move(*why)};
  return {};
}

task<result<slice>> stream_state::read(stream_ref self, std::size_t limit) {
  if (self->read_waiter.waiting())
    co_return fail(errc::invalid_argument, layer::stream, "another read is pending");
  for (;;) {
    if (self->handle_dropped_)
      co_return fail(errc::closed, layer::stream, "the stream was dropped");
    if (auto done = self->try_read(limit)) co_return std::move(*done);
    if (!co_await self->read_waiter.wait())
      co_return std::unexpected{cancelled("the read was cancelled")};
  }
}

std::optional<error> stream_state::read_failure() const {
  if (auto code = core_->reset_code())
    return error{errc::reset, layer::stream, "the peer reset the stream", *code};
  if (stop_sent_) return error{errc::closed, layer::stream, "this side stopped reading the stream"};
  if (handle_dropped_) return error{errc::closed, layer::stream, "the stream was dropped"};
  if (owner_->ended() || core_->connection_closed()) return owner_->end_reason();
  const bool ours = core::is_server_initiated(core_->id()) == owner_->core().is_server();
  if (!core::is_bidirectional(core_->id()) && ours)
    return error{errc::invalid_argument, layer::stream, "a stream opened one-way is not readable"};
  if (core_->closed()) return error{errc::closed, layer::stream, "the stream is over"};
  return {};
}

void stream_state::stop_sending(std::uint64_t code) {
  if (stop_sent_) return;
  stop_sent_ = true;
  core_->stop_sending(code);
  owner_->owner().touch();
  if (read_waiter.waiting()) wake_later();
}

// Writing
// ------------------------------------------------------------------------------------------

std::optional<error> stream_state::write_failure() const {
  if (auto code = core_->stopped_code())
    return error{errc::stopped, layer::stream, "the peer stopped reading the stream", *code};
  if (reset_sent_) return error{errc::closed, layer::stream, "this side reset the stream"};
  if (handle_dropped_) return error{errc::closed, layer::stream, "the stream was dropped"};
  if (owner_->ended() || core_->connection_closed()) return owner_->end_reason();
  if (finished_)
    return error{errc::invalid_argument, layer::stream, "write after the end of the stream"};
  const bool ours = core::is_server_initiated(core_->id()) == owner_->core().is_server();
  if (!core::is_bidirectional(core_->id()) && !ours)
    return error{errc::invalid_argument, layer::stream,
                 "the peer's one-way stream is not writable"};
  if (core_->closed()) return error{errc::closed, layer::stream, "the stream is over"};
  return {};
}

std::optional<result<>> stream_state::try_write(slice data) {
  if (core_->writable() == 0) {
    if (auto why = write_failure()) return std::unexpected{std::move(*why)};
    if (data.empty()) return result<>{};
    return {};
  }
  if (data.empty()) return result<>{};
  const std::size_t size = data.size();
  auto done = core_->write(std::move(data));
  owner_->wrote(size);
  owner_->owner().touch();
  return done;
}

std::optional<result<std::size_t>> stream_state::write_some(const slice& data) {
  const std::size_t room = core_->writable();
  if (room == 0 || data.empty()) {
    if (auto why = write_failure()) return std::unexpected{std::move(*why)};
    if (data.empty()) return 0;
    return {};
  }
  const std::size_t piece = std::min(data.size(), std::max(room, smallest_piece));
  auto done = core_->write(data.sub(0, piece));
  owner_->wrote(piece);
  owner_->owner().touch();
  if (!done) return std::unexpected{std::move(done.error())};
  return piece;
}

task<result<>> stream_state::write(stream_ref self, slice data) {
  if (self->write_waiter.waiting())
    co_return fail(errc::invalid_argument, layer::stream, "another write is pending");
  for (;;) {
    if (self->handle_dropped_)
      co_return fail(errc::closed, layer::stream, "the stream was dropped");
    while (auto taken = self->write_some(data)) {
      if (!*taken) co_return std::unexpected{std::move(taken->error())};
      data.drop_front(**taken);
      if (data.empty()) co_return result<>{};
    }
    if (!co_await self->write_waiter.wait())
      co_return std::unexpected{cancelled("the write was cancelled; a part may have been sent")};
  }
}

result<> stream_state::finish() {
  auto done = core_->finish();
  if (done) finished_ = true;
  owner_->owner().touch();
  return done;
}

void stream_state::reset(std::uint64_t code) {
  if (reset_sent_) return;
  reset_sent_ = true;
  core_->reset(code);
  owner_->owner().touch();
  if (write_waiter.waiting() || drained_waiter_.waiting()) wake_later();
}

task<result<>> stream_state::drained(stream_ref self) {
  if (self->drained_waiter_.waiting())
    co_return fail(errc::invalid_argument, layer::stream, "another wait for draining is pending");
  for (;;) {
    if (self->core_->unacknowledged() == 0 && (!self->finished_ || self->acknowledged_))
      co_return result<>{};
    auto why = self->write_failure();
    if (why && *why != errc::invalid_argument) co_return std::unexpected{std::move(*why)};
    self->core_->watch_drained();
    if (!co_await self->drained_waiter_.wait())
      co_return std::unexpected{cancelled("the wait for draining was cancelled")};
  }
}

task<std::optional<std::uint64_t>> stream_state::stopped(stream_ref self) {
  for (;;) {
    if (auto code = self->core_->stopped_code()) co_return code;
    if (self->over() || self->stopped_waiter_.waiting()) co_return std::nullopt;
    if (!co_await self->stopped_waiter_.wait()) co_return std::nullopt;
  }
}

bool stream_state::over() const noexcept {
  return handle_dropped_ || core_->closed() || owner_->ended();
}

// Turn
// ---------------------------------------------------------------------------------------------

void stream_state::on_abandoned(std::move_only_function<void(const error&)> callback) {
  abandoned_ = std::move(callback);
  if (abandoned_ && (core_->reset_code() || core_->stopped_code() || owner_->ended())) wake_later();
}

void stream_state::tell_abandoned() {
  std::optional<error> why;
  if (auto code = core_->reset_code()) {
    why.emplace(errc::reset, layer::stream, "the peer reset the stream", *code);
  } else if (auto stop = core_->stopped_code()) {
    why.emplace(errc::stopped, layer::stream, "the peer stopped reading the stream", *stop);
  } else if (owner_->ended() || core_->connection_closed()) {
    why.emplace(owner_->end_reason());
  } else {
    return;
  }
  std::exchange(abandoned_, nullptr)(*why);
}

void stream_state::dispatch() {
  using enum core::stream_event;
  const std::uint8_t events = core_->take_events();
  const stream_ref guard{this};
  if ((events & drained) && core_->delivered()) acknowledged_ = true;
  if (events & (readable | closed)) read_waiter.notify();
  if (events & (writable | stopped | closed)) write_waiter.notify();
  if (events & (drained | stopped | closed)) drained_waiter_.notify();
  if (events & (stopped | closed)) stopped_waiter_.notify();
  if ((events & (readable | stopped | closed)) && abandoned_) tell_abandoned();
}

void stream_state::wake_later() {
  if (std::exchange(wake_pending_, true)) return;
  owner_->owner().wake_later(stream_ref{this});
}

void stream_state::wake() {
  wake_pending_ = false;
  const stream_ref guard{this};
  read_waiter.notify();
  write_waiter.notify();
  drained_waiter_.notify();
  stopped_waiter_.notify();
  if (abandoned_) tell_abandoned();
}

}  // namespace weft::quic::detail
