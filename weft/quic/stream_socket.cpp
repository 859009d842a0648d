#include <weft/quic/stream_socket.hpp>

#include <algorithm>
#include <optional>
#include <utility>

#include <asio/append.hpp>
#include <asio/associated_cancellation_slot.hpp>
#include <asio/associated_executor.hpp>
#include <asio/dispatch.hpp>
#include <asio/post.hpp>

#include <weft/quic/detail/stream_state.hpp>

namespace weft::quic {

using detail::stream_ref;
using detail::stream_state;

namespace {

/// A write copies at most this much at a time.
constexpr std::size_t largest_copy = 64 * 1024;

asio::error_code to_asio(const error& why) {
  switch (why.code()) {
    case errc::cancelled:
      return asio::error::operation_aborted;
    case errc::timed_out:
      return asio::error::timed_out;
    case errc::reset:
      return asio::error::connection_reset;
    case errc::stopped:
      return asio::error::broken_pipe;
    case errc::closed:
      return asio::error::connection_aborted;
    case errc::invalid_argument:
      return asio::error::invalid_argument;
    default:
      return asio::error::network_down;
  }
}

}  // namespace

struct stream_socket::impl {
  impl(executor_type ex, stream s) : loop{std::move(ex)}, channel{std::move(s)} {}

  /// What a read or write came to; empty: it has to wait.
  using outcome = std::optional<std::pair<asio::error_code, std::size_t>>;
  outcome read(asio::mutable_buffer target);
  outcome write(asio::const_buffer source);

  executor_type loop;
  stream channel;
  bool open = true;
};

namespace {

/// The rest of an operation that has to wait: what a stream's waiter resumes.
template <class Impl, class Buffer>
struct pending {
  using cancellation_slot_type = asio::cancellation_slot;
  using step = typename Impl::outcome (Impl::*)(Buffer);

  std::shared_ptr<Impl> self;
  stream_ref held;
  detail::waiter* place;
  step attempt;
  Buffer buffer;
  asio::any_completion_handler<void(asio::error_code, std::size_t)> done;

  cancellation_slot_type get_cancellation_slot() const noexcept {
    return asio::get_associated_cancellation_slot(done);
  }

  void operator()(bool notified) {
    typename Impl::outcome outcome;
    if (!notified || !self->open) {
      outcome.emplace(asio::error::operation_aborted, 0);
    } else {
      outcome = ((*self).*attempt)(buffer);
    }
    if (!outcome) {
      auto* waiter = place;
      return waiter->start(std::move(*this));
    }
    auto ex = asio::get_associated_executor(done, self->loop);
    asio::dispatch(ex, asio::append(std::move(done), outcome->first, outcome->second));
  }
};

}  // namespace

stream_socket::impl::outcome stream_socket::impl::read(asio::mutable_buffer target) {
  auto got = channel.try_read(target.size());
  if (!got) return {};
  if (!*got) return std::pair{to_asio(got->error()), std::size_t{0}};
  if ((*got)->empty()) return std::pair{asio::error_code{asio::error::eof}, std::size_t{0}};
  asio::buffer_copy(target, asio::buffer((*got)->data(), (*got)->size()));
  return std::pair{asio::error_code{}, (*got)->size()};
}

stream_socket::impl::outcome stream_socket::impl::write(asio::const_buffer source) {
  auto& core = stream_state::of(channel)->core();
  const std::size_t room = core.writable();
  if (room == 0) {
    if (auto why = stream_state::of(channel)->write_failure())
      return std::pair{to_asio(*why), std::size_t{0}};
    return {};
  }
  const std::size_t size = std::min({source.size(), room, largest_copy});
  auto done =
      channel.try_write(slice::copy(bytes{static_cast<const std::byte*>(source.data()), size}));
  if (!done) return {};
  if (!*done) return std::pair{to_asio(done->error()), std::size_t{0}};
  return std::pair{asio::error_code{}, size};
}

stream_socket::stream_socket(executor_type executor, stream s)
    : impl_{std::make_shared<impl>(std::move(executor), std::move(s))} {}

stream_socket::stream_socket(stream_socket&&) noexcept = default;

stream_socket& stream_socket::operator=(stream_socket&& other) noexcept {
  if (this == &other) return *this;
  if (impl_) close();
  impl_ = std::move(other.impl_);
  return *this;
}

stream_socket::~stream_socket() {
  if (impl_) close();
}

stream_socket::executor_type stream_socket::get_executor() const noexcept {
  return impl_->loop;
}

bool stream_socket::is_open() const noexcept {
  return impl_->open;
}

stream& stream_socket::underlying() noexcept {
  return impl_->channel;
}

void stream_socket::start_read(asio::mutable_buffer target, handler done) {
  impl::outcome outcome;
  detail::waiter* place = nullptr;
  if (!impl_->open) {
    outcome.emplace(asio::error::bad_descriptor, 0);
  } else if (target.size() == 0) {
    outcome.emplace(asio::error_code{}, 0);
  } else if (place = &stream_state::of(impl_->channel)->read_waiter; place->waiting()) {
    outcome.emplace(asio::error::in_progress, 0);
  } else {
    outcome = impl_->read(target);
  }
  finish_or_wait(outcome, place, &impl::read, target, std::move(done));
}

void stream_socket::start_write(asio::const_buffer source, handler done) {
  impl::outcome outcome;
  detail::waiter* place = nullptr;
  if (!impl_->open) {
    outcome.emplace(asio::error::bad_descriptor, 0);
  } else if (source.size() == 0) {
    outcome.emplace(asio::error_code{}, 0);
  } else if (place = &stream_state::of(impl_->channel)->write_waiter; place->waiting()) {
    outcome.emplace(asio::error::in_progress, 0);
  } else {
    outcome = impl_->write(source);
  }
  finish_or_wait(outcome, place, &impl::write, source, std::move(done));
}

// An operation that is done at once completes as if by post: never inside of its own start.
template <class Outcome, class Step, class Buffer>
void stream_socket::finish_or_wait(const Outcome& outcome, detail::waiter* place, Step attempt,
                                   Buffer buffer, handler done) {
  if (!outcome) {
    stream_ref held{stream_state::of(impl_->channel)};
    return place->start(
        pending<impl, Buffer>{impl_, std::move(held), place, attempt, buffer, std::move(done)});
  }
  auto ex = asio::get_associated_immediate_executor(done, impl_->loop);
  asio::dispatch(ex, asio::append(std::move(done), outcome->first, outcome->second));
}

void stream_socket::shutdown_send(asio::error_code& failure) {
  failure = {};
  if (!impl_->open) {
    failure = asio::error::bad_descriptor;
  } else if (auto done = impl_->channel.finish(); !done) {
    failure = to_asio(done.error());
  }
}

void stream_socket::close() noexcept {
  if (!std::exchange(impl_->open, false)) return;
  // Dropping the stream resets and stops what is unfinished; what waits on it is woken to find the
  // socket closed.
  impl_->channel = stream{};
}

}  // namespace weft::quic
