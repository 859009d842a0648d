#include <weft/tcp/stream.hpp>

#include <cerrno>
#include <format>

#include <sys/socket.h>
#include <asio/as_tuple.hpp>
#include <asio/post.hpp>
#include <asio/use_awaitable.hpp>

#include <weft/tcp/connection.hpp>

namespace weft::tcp {
namespace {

constexpr auto awaited = asio::as_tuple(asio::use_awaitable_t<executor>{});

// An idle connection waits with little memory; one that receives much gets a large buffer.
constexpr std::size_t small_receive = 4 * 1024 - 64;
constexpr std::size_t large_receive = 256 * 1024 - 64;
/// Steps without a visit to the event loop, so that one busy stream does not starve its shard.
constexpr unsigned inline_limit = 16;

bool is_cancelled(const asio::cancellation_state& state) noexcept {
  return state.cancelled() != asio::cancellation_type::none;
}

}  // namespace

address from_endpoint(const asio::ip::tcp::endpoint& endpoint) {
  const auto ip = endpoint.address();
  if (ip.is_v4()) return address::ipv4(ip.to_v4().to_bytes(), endpoint.port());
  const auto v6 = ip.to_v6();
  return address::ipv6(v6.to_bytes(), endpoint.port(), static_cast<std::uint32_t>(v6.scope_id()));
}

result<asio::ip::tcp::endpoint> to_endpoint(const address& from) {
  const auto& bytes = from.bytes();
  if (from.ip_family() == address::family::ipv4)
    return asio::ip::tcp::endpoint{asio::ip::address_v4{{bytes[0], bytes[1], bytes[2], bytes[3]}},
                                   from.port()};
  if (from.is_ipv6())
    return asio::ip::tcp::endpoint{asio::ip::address_v6{bytes, from.scope()}, from.port()};
  return fail(errc::invalid_argument, layer::tcp, "the address is empty");
}

error socket_error(std::string_view what, int number) {
  errc code = errc::system;
  if (number == ECONNREFUSED) code = errc::refused;
  if (number == ECONNRESET || number == EPIPE || number == ECONNABORTED) code = errc::reset;
  if (number == EHOSTUNREACH || number == ENETUNREACH) code = errc::unreachable;
  if (number == ETIMEDOUT) code = errc::timed_out;
  return error{code, layer::tcp,
               std::format("{}: {}", what, std::generic_category().message(number)),
               static_cast<std::uint64_t>(number)};
}

// ---- the driver ----

stream::impl::impl(io::shard& home, socket_type connected, tls::ssl_ptr ssl, std::string name)
    : shard{home},
      socket{std::move(connected)},
      tls{std::move(ssl), name},
      peer{std::move(name)},
      next_receive_{small_receive} {
  asio::error_code ignored;
  socket.non_blocking(true, ignored);
  socket.set_option(asio::ip::tcp::no_delay{true}, ignored);
  if (const auto end = socket.local_endpoint(ignored); !ignored) local = from_endpoint(end);
  if (const auto end = socket.remote_endpoint(ignored); !ignored) remote = from_endpoint(end);
}

error stream::impl::cancelled_error() const {
  if (aborted) return error{errc::closed, layer::tcp, "the stream was closed on this side"};
  if (expired)
    return error{errc::timed_out, layer::tcp,
                 std::format("no TLS handshake with {} in time", peer)};
  return error{errc::cancelled, layer::tcp, "the operation was cancelled"};
}

void stream::impl::abort() noexcept {
  if (std::exchange(aborted, true)) return;
  asio::error_code ignored;
  socket.set_option(asio::socket_base::linger{true, 0}, ignored);
  socket.close(ignored);
}

bool stream::impl::may_go_on_inline() noexcept {
  if (++inline_steps_ < inline_limit) return true;
  inline_steps_ = 0;
  return false;
}

/// Tries to receive without waiting; false: nothing there (or an error, which waiting will show).
bool stream::impl::receive_now() {
  const mutable_bytes space = tls.input_space(large_receive);
  ++counters.system_calls;
  const ssize_t got = ::recv(socket.native_handle(), space.data(), space.size(), MSG_DONTWAIT);
  tls.input_arrived(got > 0 ? static_cast<std::size_t>(got) : 0);
  more_expected_ = got == static_cast<ssize_t>(space.size());
  if (got == 0) tls.input_ended();
  if (got > 0) counters.wire_in += static_cast<std::uint64_t>(got);
  return got >= 0;
}

task<result<>> stream::impl::receive() {
  if (aborted || is_cancelled(co_await asio::this_coro::cancellation_state))
    co_return std::unexpected{cancelled_error()};
  if (more_expected_ && may_go_on_inline() && receive_now()) co_return result<>{};
  // Asio tries the call first and then waits without touching the poll set, which a bare wait for
  // readiness would pay for with a system call.
  const mutable_bytes space = tls.input_space(next_receive_);
  ++counters.system_calls;
  const auto [failure, got] =
      co_await socket.async_receive(asio::buffer(space.data(), space.size()), awaited);
  ++counters.wake_ups;
  inline_steps_ = 0;
  tls.input_arrived(got);
  counters.wire_in += got;
  more_expected_ = got == space.size();
  next_receive_ = got >= small_receive ? large_receive : small_receive;
  if (failure == asio::error::eof) {
    tls.input_ended();
  } else if (failure == asio::error::operation_aborted || aborted) {
    co_return std::unexpected{cancelled_error()};
  } else if (failure) {
    co_return std::unexpected{socket_error("receiving from " + peer, failure.value())};
  }
  co_return result<>{};
}

result<stream::impl::sent> stream::impl::send_now() {
  while (tls.has_output()) {
    const bytes out = tls.output();
    ++counters.system_calls;
    const ssize_t count =
        ::send(socket.native_handle(), out.data(), out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return sent::some;
    if (count < 0) return std::unexpected{socket_error("sending to " + peer, errno)};
    counters.wire_out += static_cast<std::uint64_t>(count);
    tls.output_sent(static_cast<std::size_t>(count));
    if (static_cast<std::size_t>(count) < out.size()) return sent::some;
  }
  return sent::all;
}

task<result<>> stream::impl::flush() {
  for (;;) {
    if (aborted || is_cancelled(co_await asio::this_coro::cancellation_state))
      co_return std::unexpected{cancelled_error()};
    const auto outcome = send_now();
    if (!outcome) co_return std::unexpected{outcome.error()};
    if (*outcome == sent::all) co_return result<>{};
    const auto [failure] = co_await socket.async_wait(socket_type::wait_write, awaited);
    ++counters.wake_ups;
    inline_steps_ = 0;
    if (failure == asio::error::operation_aborted || aborted)
      co_return std::unexpected{cancelled_error()};
    if (failure) co_return std::unexpected{socket_error("sending to " + peer, failure.value())};
  }
}

task<result<>> stream::impl::handshake(time_point deadline) {
  io::timer alarm;
  shard.arm(alarm, deadline, [this](time_point) {
    expired = true;
    asio::error_code ignored;
    socket.cancel(ignored);
  });
  for (;;) {
    const auto status = tls.handshake();
    if (expired || is_cancelled(co_await asio::this_coro::cancellation_state))
      co_return std::unexpected{cancelled_error()};
    const auto flushed = co_await flush();
    if (status == engine::status::failed) co_return std::unexpected{tls.failure()};
    if (!flushed) co_return flushed;
    if (status == engine::status::ok) break;
    if (status == engine::status::want_write) continue;
    if (expired || is_cancelled(co_await asio::this_coro::cancellation_state))
      co_return std::unexpected{cancelled_error()};
    if (auto got = co_await receive(); !got) co_return got;
  }
  session = tls::describe(tls.native());
  co_return result<>{};
}

task<void> stream::impl::part(time_point deadline) {
  constexpr int most = 64;  // receives: a peer that talks on and on is cut off
  asio::error_code failure;
  socket.shutdown(socket_type::shutdown_send, failure);
  io::timer alarm;
  shard.arm(alarm, deadline, [this](time_point) { abort(); });
  std::array<std::byte, 4096> waste;
  for (int i = 0; i < most && !failure && !aborted; ++i) {
    if (is_cancelled(co_await asio::this_coro::cancellation_state)) break;
    std::tie(failure, std::ignore) = co_await socket.async_receive(asio::buffer(waste), awaited);
  }
}

// ---- the stream ----

stream::stream(std::shared_ptr<impl> from) noexcept : impl_{std::move(from)} {}

stream::~stream() {
  if (!impl_->finished) impl_->abort();
  impl_->aborted = true;
  asio::error_code ignored;
  impl_->socket.close(ignored);
}

task<result<slice>> stream::read() {
  const auto self = impl_;
  for (;;) {
    if (self->aborted || is_cancelled(co_await asio::this_coro::cancellation_state))
      co_return std::unexpected{self->cancelled_error()};
    slice data;
    const auto status = self->tls.read(data);
    // Answers to key updates, and alerts, go out at once where they can.
    if (self->tls.has_output()) (void)self->send_now();
    if (status == engine::status::ok) {
      self->counters.bytes_read += data.size();
      co_return data;
    }
    if (status == engine::status::end) co_return slice{};
    if (status == engine::status::failed) co_return std::unexpected{self->tls.failure()};
    const auto went =
        status == engine::status::want_write ? co_await self->flush() : co_await self->receive();
    if (!went) co_return std::unexpected{went.error()};
  }
}

task<result<>> stream::write(std::span<const slice> parts) {
  const auto self = impl_;
  if (self->finished) co_return fail(errc::closed, layer::tcp, "the stream is finished");
  source from{parts};
  const std::size_t total = from.size();
  do {
    if (self->aborted || is_cancelled(co_await asio::this_coro::cancellation_state))
      co_return std::unexpected{self->cancelled_error()};
    if (self->tls.write(from) == engine::status::failed)
      co_return std::unexpected{self->tls.failure()};
    const auto sent = self->send_now();
    if (!sent) co_return std::unexpected{sent.error()};
    if (*sent == impl::sent::all) continue;
    if (auto flushed = co_await self->flush(); !flushed) co_return flushed;
  } while (!from.empty());
  self->counters.bytes_written += total;
  if (!self->may_go_on_inline() && !is_cancelled(co_await asio::this_coro::cancellation_state))
    co_await asio::post(self->socket.get_executor(), asio::use_awaitable_t<executor>{});
  co_return result<>{};
}

task<result<>> stream::finish() {
  const auto self = impl_;
  if (self->finished) co_return result<>{};
  for (;;) {
    if (self->aborted || is_cancelled(co_await asio::this_coro::cancellation_state))
      co_return std::unexpected{self->cancelled_error()};
    const auto status = self->tls.close_notify();
    if (status == engine::status::failed) co_return std::unexpected{self->tls.failure()};
    if (auto flushed = co_await self->flush(); !flushed) co_return flushed;
    if (status != engine::status::want_write) break;
  }
  self->finished = true;
  asio::error_code failure;
  self->socket.shutdown(socket_type::shutdown_send, failure);
  co_return result<>{};
}

void stream::abort() noexcept {
  impl_->abort();
}
const tls::session_info& stream::session() const noexcept {
  return impl_->session;
}
const address& stream::local_address() const noexcept {
  return impl_->local;
}
const address& stream::remote_address() const noexcept {
  return impl_->remote;
}
const stream_counters& stream::counters() const noexcept {
  return impl_->counters;
}

}  // namespace weft::tcp
