#include <weft/tcp/listener.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <format>
#include <map>
#include <span>

#include <sys/socket.h>
#include <asio/as_tuple.hpp>
#include <asio/basic_socket_acceptor.hpp>
#include <asio/co_spawn.hpp>
#include <asio/use_awaitable.hpp>

#include <weft/io/event.hpp>
#include <weft/tcp/connection.hpp>

namespace weft::tcp {

struct server_tls::impl {
  std::shared_ptr<SSL_CTX> context;
};

namespace {

/// Who connects, as far as fairness goes: an IPv4 address, or a network of IPv6 addresses.
using origin = std::array<std::uint8_t, 8>;

struct waiting {
  socket_type socket;
  address remote;
  origin from;
};

/// What one origin has here now.
struct share {
  std::size_t handshakes = 0, waiting = 0;
};

struct handshake {
  stream::impl* one;
  origin from;
  bool displaced = false;
};

}  // namespace

/// Shared with the coroutines in the background, which may outlive the listener object.
struct listener::impl : std::enable_shared_from_this<listener::impl> {
  using acceptor_type = asio::basic_socket_acceptor<asio::ip::tcp, executor>;

  impl(io::shard& home, std::shared_ptr<server_tls::impl> with, listen_options given)
      : shard{home},
        tls{std::move(with)},
        options{std::move(given)},
        acceptor{shard.get_executor()} {}

  result<void> open(const address& at);
  static task<void> run(std::shared_ptr<impl> self);
  static task<void> greet(std::shared_ptr<impl> self, std::shared_ptr<stream::impl> arrived);
  void admit(socket_type socket);
  void start(waiting next);
  void start_waiting();
  void make_room_for(const origin& from);
  void turn_one_away();
  void make_use_of_room();
  origin greediest(std::size_t share::* what) const;
  void forget(const origin& from, std::size_t share::* what) noexcept;
  void unlist(std::vector<handshake>::iterator one) noexcept;
  void failed(const error& why, const address& peer);
  void done(const stream::impl* one);
  void close() noexcept;
  std::size_t pending() const noexcept { return handshaking.size() + ready.size(); }

  io::shard& shard;
  std::shared_ptr<server_tls::impl> tls;
  listen_options options;
  acceptor_type acceptor;
  address local;
  listener_counters counters;
  std::vector<handshake> handshaking;  // by age
  std::deque<waiting> queue;           // by age
  std::map<origin, share> shares;
  std::deque<std::unique_ptr<stream>> ready;
  io::event arrived;  // something is ready, or the listener closed
  io::event room;     // fewer are pending, or the listener closed
  bool closed = false;
};

namespace {

constexpr duration shortest_pause = std::chrono::milliseconds{5};
constexpr duration longest_pause = std::chrono::seconds{1};
/// How long a turned-down client may take to read the alert.
constexpr duration parting_time = std::chrono::seconds{1};

origin origin_of(const address& remote) {
  constexpr std::array<std::uint8_t, 12> mapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  const std::span all{remote.bytes()};
  const bool is_mapped = remote.is_ipv6() && std::ranges::equal(all.first<12>(), mapped);
  const auto significant = is_mapped ? all.last(4) : all.first(remote.is_ipv6() ? 8 : 4);
  origin from{};
  std::ranges::copy(significant, from.begin());
  return from;
}

/// The one connection failed, not the act of accepting.
bool concerns_one_connection(int number) noexcept {
  return number == ECONNABORTED || number == EPROTO || number == EINTR || number == EPERM ||
         number == EHOSTUNREACH || number == ENETUNREACH || number == EHOSTDOWN ||
         number == ENETDOWN || number == ENOPROTOOPT || number == EOPNOTSUPP || number == ETIMEDOUT;
}

}  // namespace

result<server_tls> server_tls::make(const tls::server_options& options) {
  auto context = tls::make_server_context(options);
  if (!context) return std::unexpected{context.error()};
  server_tls made;
  made.impl_ = std::make_shared<impl>(impl{std::move(*context)});
  return made;
}

result<void> listener::impl::open(const address& at) {
  const auto endpoint = to_endpoint(at);
  if (!endpoint) return std::unexpected{endpoint.error()};
  asio::error_code failure;
  acceptor.open(endpoint->protocol(), failure);
  const int on = 1;
  if (!failure) acceptor.set_option(asio::socket_base::reuse_address{true}, failure);
  if (!failure && options.reuse_port &&
      ::setsockopt(acceptor.native_handle(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0)
    failure.assign(errno, asio::error::get_system_category());
  if (!failure) acceptor.bind(*endpoint, failure);
  if (!failure) acceptor.listen(options.backlog, failure);
  if (!failure) local = from_endpoint(acceptor.local_endpoint(failure));
  if (failure) return fail_errno(layer::tcp, "listening on " + at.to_string(), failure.value());
  return {};
}

result<std::unique_ptr<listener>> listener::listen(io::shard& shard, const address& at,
                                                   const server_tls& tls, listen_options options) {
  if (!tls.internals())
    return fail(errc::invalid_argument, layer::tcp, "a listener needs server_tls::make(…)");
  options.max_pending = std::max<std::size_t>(options.max_pending, 1);
  auto made = std::make_shared<impl>(shard, tls.internals(), std::move(options));
  if (auto opened = made->open(at); !opened) return std::unexpected{opened.error()};
  // The loop handles its own errors; what is left to escape is a lack of memory for its start.
  asio::co_spawn(shard.get_executor(), impl::run(made), [made](std::exception_ptr failure) {
    if (failure) made->close();
  });
  return std::make_unique<listener>(std::move(made));
}

result<std::unique_ptr<listener>> listener::listen(io::shard& shard, const address& at,
                                                   std::shared_ptr<const tls::server_options> tls,
                                                   listen_options options) {
  if (!tls) return fail(errc::invalid_argument, layer::tcp, "a listener needs TLS options");
  const auto made = server_tls::make(*tls);
  if (!made) return std::unexpected{made.error()};
  return listen(shard, at, *made, std::move(options));
}

task<void> listener::impl::run(std::shared_ptr<impl> self) {
  duration pause = shortest_pause;
  while (!self->closed) {
    // Nobody accepts: what has its handshake behind it must not be lost, so no more is begun.
    if (self->ready.size() >= self->options.max_pending) {
      co_await self->room.wait();
      continue;
    }
    auto [failure, socket] =
        co_await self->acceptor.async_accept(asio::as_tuple(asio::use_awaitable_t<executor>{}));
    if (self->closed) break;
    bool started = false;
    if (!failure) try {
        self->admit(std::move(socket));
        started = true;
      } catch (const std::bad_alloc&) {  // as if the kernel had run out
      }
    if (started) {
      pause = shortest_pause;
      continue;
    }
    ++self->counters.accept_errors;
    if (failure && concerns_one_connection(failure.value())) continue;
    // Out of descriptors or memory. The connection stays in the backlog; polling it would spin.
    (void)co_await self->shard.sleep_until(io::now() + pause);
    pause = std::min(2 * pause, longest_pause);
  }
}

void listener::impl::admit(socket_type socket) {
  asio::error_code failure;
  const auto endpoint = socket.remote_endpoint(failure);
  if (failure) return;  // already gone
  ++counters.accepted;
  const address remote = from_endpoint(endpoint);
  const origin from = origin_of(remote);
  queue.push_back({std::move(socket), remote, from});
  ++shares[from].waiting;
  if (pending() >= options.max_pending) make_room_for(from);
  start_waiting();
  if (queue.size() > options.max_waiting) turn_one_away();
}

/// Who has the most. Precondition: somebody has any.
origin listener::impl::greediest(std::size_t share::* what) const {
  return std::ranges::max_element(shares, {}, [&](const auto& each) { return each.second.*what; })
      ->first;
}

void listener::impl::forget(const origin& from, std::size_t share::* what) noexcept {
  const auto had = shares.find(from);
  --(had->second.*what);
  if (had->second.handshakes == 0 && had->second.waiting == 0) shares.erase(had);
}

void listener::impl::unlist(std::vector<handshake>::iterator one) noexcept {
  const origin from = one->from;
  handshaking.erase(one);
  forget(from, &share::handshakes);
}

/// A source that keeps handshakes open must not keep the others out. Its place is free once the
/// handshake has noticed.
void listener::impl::make_room_for(const origin& from) {
  const origin greedy = greediest(&share::handshakes);
  if (shares[greedy].handshakes <= 2 * (shares[from].handshakes + 1)) return;
  const auto oldest = std::ranges::find_if(
      handshaking, [&](const auto& each) { return each.from == greedy && !each.displaced; });
  if (oldest == handshaking.end()) return;
  oldest->displaced = true;
  oldest->one->abort();
}

void listener::impl::turn_one_away() {
  const origin greedy = greediest(&share::waiting);
  const auto newest = std::ranges::find(queue.rbegin(), queue.rend(), greedy, &waiting::from);
  const address remote = newest->remote;
  asio::error_code ignored;
  newest->socket.set_option(asio::socket_base::linger{true, 0}, ignored);
  queue.erase(std::next(newest).base());
  const std::size_t others = shares[greedy].waiting - 1;
  forget(greedy, &share::waiting);
  ++counters.turned_away;
  if (options.on_failed_handshake)
    options.on_failed_handshake(
        error{errc::exhausted, layer::tcp,
              std::format("{} has {} more connections waiting for a TLS handshake; turned away",
                          remote.to_string(), others)},
        remote);
}

/// While there is room: those first whose source has the fewest handshakes under way.
void listener::impl::start_waiting() {
  while (!closed && !queue.empty() && pending() < options.max_pending) {
    const auto next = std::ranges::min_element(
        queue, {}, [&](const auto& each) { return shares[each.from].handshakes; });
    waiting chosen = std::move(*next);
    queue.erase(next);
    forget(chosen.from, &share::waiting);
    start(std::move(chosen));
  }
}

void listener::impl::start(waiting next) {
  tls::ssl_ptr ssl{SSL_new(tls->context.get())};
  if (!ssl) throw std::bad_alloc{};
  SSL_set_accept_state(ssl.get());
  SSL_set_max_early_data(ssl.get(), 0);  // early data is QUIC's here; do not promise it over TCP
  auto made = std::make_shared<stream::impl>(shard, std::move(next.socket), std::move(ssl),
                                             next.remote.to_string());
  auto self = shared_from_this();
  ++counters.handshakes_started;
  handshaking.push_back({made.get(), next.from});
  ++shares[next.from].handshakes;
  asio::co_spawn(shard.get_executor(), greet(self, made),
                 [self, made](std::exception_ptr) { self->done(made.get()); });
}

task<void> listener::impl::greet(std::shared_ptr<impl> self, std::shared_ptr<stream::impl> one) {
  const auto agreed = co_await one->handshake(io::now() + self->options.handshake_timeout);
  if (self->closed) co_return one->abort();
  const auto entry = std::ranges::find(self->handshaking, one.get(), &handshake::one);
  if (entry->displaced) {
    const std::size_t others = self->shares[entry->from].handshakes - 1;
    co_return self->failed(
        error{errc::exhausted, layer::tcp,
              std::format("{} has {} more handshakes under way; the oldest made room for others",
                          one->remote.to_string(), others)},
        one->remote);
  }
  if (agreed) {
    // It stays counted as pending, so there is no more room than before.
    self->unlist(entry);
    self->ready.push_back(std::make_unique<stream>(std::move(one)));
    self->arrived.notify();
    co_return;
  }
  self->failed(agreed.error(), one->remote);
  if (agreed.error() == errc::tls) co_await one->part(io::now() + parting_time);
  one->abort();
}

void listener::impl::failed(const error& why, const address& peer) {
  ++counters.handshakes_failed;
  if (options.on_failed_handshake) options.on_failed_handshake(why, peer);
}

void listener::impl::done(const stream::impl* one) {
  const auto entry = std::ranges::find(handshaking, one, &handshake::one);
  if (entry == handshaking.end()) return;
  unlist(entry);
  make_use_of_room();
}

void listener::impl::make_use_of_room() {
  try {
    start_waiting();
  } catch (const std::bad_alloc&) {  // the one that was to start is dropped
  }
  room.notify();
}

void listener::impl::close() noexcept {
  if (std::exchange(closed, true)) return;
  asio::error_code ignored;
  acceptor.close(ignored);
  for (const auto& each : handshaking) each.one->abort();
  queue.clear();
  ready.clear();
  room.notify();
  arrived.notify();
}

listener::listener(std::shared_ptr<impl> from) noexcept : impl_{std::move(from)} {}
listener::~listener() {
  close();
}

task<result<std::unique_ptr<stream>>> listener::accept() {
  const auto self = impl_;
  while (self->ready.empty()) {
    if (self->closed) co_return fail(errc::closed, layer::tcp, "the listener is closed");
    if ((co_await asio::this_coro::cancellation_state).cancelled() !=
            asio::cancellation_type::none ||
        !co_await self->arrived.wait())
      co_return fail(errc::cancelled, layer::tcp, "accepting was cancelled");
  }
  auto next = std::move(self->ready.front());
  self->ready.pop_front();
  self->make_use_of_room();
  co_return next;
}

const address& listener::local_address() const noexcept {
  return impl_->local;
}
const listener_counters& listener::counters() const noexcept {
  return impl_->counters;
}
void listener::close() noexcept {
  const auto keep = impl_;  // who waits in accept() may destroy the listener when told
  keep->close();
}

}  // namespace weft::tcp
