#include <weft/rpc/host/channel.hpp>

#include <algorithm>
#include <list>
#include <random>
#include <utility>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>

#include <weft/io/event.hpp>
#include <weft/rpc/host/dialer.hpp>
#include <weft/rpc/retry.hpp>

namespace weft::rpc {
namespace {

using namespace std::chrono_literals;
using started = result<std::unique_ptr<client_call>>;

constexpr double jitter = 0.2;
// A call whose connection went away before the call had started goes to the next one.
constexpr int start_attempts = 3;

time_point deadline_of(const call_options& options) noexcept {
  const time_point absolute = options.deadline.value_or(never);
  if (!options.timeout) return absolute;
  const time_point now = io::now();
  const duration left = std::max(*options.timeout, duration::zero());
  return std::min(absolute, left < never - now ? now + left : never);
}

std::string_view name_of(carrier c) noexcept {
  switch (c) {
    case carrier::quic:
      return "quic";
    case carrier::quic_one_stream:
      return "quic-one-stream";
    case carrier::tls_tcp:
      return "tls-tcp";
  }
  return "unknown";
}

/// What interceptors see of a one-way call that was sent: nothing comes back.
class sent_call final : public client_call {
 public:
  task<result<>> write(const outgoing&, bool) override {
    co_return fail(code::failed_precondition, "a one-way call has one message");
  }
  task<result<>> finish_writing() override { co_return result<>{}; }
  task<result<std::optional<payload>>> read() override { co_return std::optional<payload>{}; }
  task<result<metadata>> read_headers() override { co_return metadata{}; }
  const metadata& headers() const noexcept override { return none_; }
  const metadata& trailers() const noexcept override { return none_; }
  void cancel(status) override {}

 private:
  metadata none_;
};

}  // namespace

struct channel::impl : std::enable_shared_from_this<channel::impl> {
  using self_ptr = std::shared_ptr<impl>;
  using transport_ptr = std::shared_ptr<transport>;

  impl(io::shard& s, std::string to, channel_options o)
      : shard{s}, options{std::move(o)}, target{std::move(to)}, again{s, options.retry} {
    auto parsed = detail::target::parse(target);
    if (parsed)
      dial.emplace(shard, std::move(*parsed), options);
    else
      defect = status{code::invalid_argument, parsed.error().message()};
  }

  // Calls
  static task<started> start(self_ptr self, const method& m, call_options options);
  static task<started> start_retried(self_ptr self, const method& m, call_options options,
                                     time_point deadline);
  static task<started> start_when_ready(self_ptr self, const method& m, call_options options,
                                        time_point deadline);
  static task<started> start_again(std::weak_ptr<impl> weak, const method& m, call_options options,
                                   time_point deadline);
  static task<result<>> one_way(self_ptr self, const method& m, call_options options,
                                time_point deadline, const outgoing& message);
  static task<started> send_intercepted(self_ptr self, const method& m, call_options options,
                                        time_point deadline, const outgoing& message);
  static task<started> intercepted(self_ptr self, std::size_t depth,
                                   const client_interceptor::next& innermost, const method& m,
                                   call_options options, time_point deadline);

  // Connecting
  static task<result<transport_ptr>> ready(self_ptr self, idempotency level, bool patient,
                                           time_point deadline);
  static task<result<transport_ptr>> ready_again(std::weak_ptr<impl> weak, idempotency level,
                                                 bool patient, time_point deadline);
  result<> may_wait(bool patient, time_point deadline, std::uint64_t failures_before) const;
  static task<> connect(self_ptr self, bool early);
  static task<> await_handshake(self_ptr self, transport_ptr calls, quic::connection& beneath);
  static task<> see_off(self_ptr self, transport_ptr old);
  void begin_connecting(bool early);
  void failed(const error& why);
  void retire_unusable();
  void wake_waiters();
  bool anyone_patient() const noexcept {
    return std::ranges::any_of(waiting, [](const waiter* w) { return w->patient; });
  }

  // Ending
  void close(const status& why) noexcept;
  static task<> shutdown(self_ptr self);

  /// One call that waits for a connection. Lives in its coroutine.
  struct waiter {
    waiter(impl& i, bool p) : in{i}, patient{p} { in.waiting.push_back(this); }
    waiter(const waiter&) = delete;
    waiter& operator=(const waiter&) = delete;
    ~waiter() { std::erase(in.waiting, this); }

    /// False when cancelled.
    task<bool> wait() {
      if (woken) co_return true;
      co_return co_await event.wait();
    }
    void wake() {
      woken = true;
      event.notify();
    }

    impl& in;
    const bool patient;
    bool woken = false;
    io::event event;
  };

  io::shard& shard;
  /// For a destructor that runs with the loop's own: the shard cannot be asked any more.
  const executor loop = shard.get_executor();
  const channel_options options;
  const std::string target;
  retrier again;
  std::optional<detail::dialer> dial;
  std::optional<status> defect;  ///< the target is none
  detail::link current;
  std::list<transport_ptr> retired;  ///< their last calls still run
  std::vector<waiter*> waiting;
  asio::cancellation_signal stop_connecting;
  bool connecting = false;
  std::optional<status> ended;  ///< nothing may start any more

  std::uint64_t failures = 0;
  status last_failure;
  time_point retry_at{};
  duration pause = options.reconnect_first;
  std::minstd_rand random{std::random_device{}()};
};

// Calls
// ----------------------------------------------------------------------------------------------

task<started> channel::impl::start(self_ptr self, const method& m, call_options options) {
  const time_point deadline = deadline_of(options);
  if (!self->options.interceptors.empty()) {
    const client_interceptor::next innermost = [&self](const method& called, call_options changed,
                                                       time_point until) {
      return start_retried(self, called, std::move(changed), until);
    };
    co_return co_await intercepted(self, 0, innermost, m, std::move(options), deadline);
  }
  if (self->options.retry.max_attempts > 1)
    co_return co_await start_retried(self, m, std::move(options), deadline);
  if (self->current.usable() && !self->current.early && !self->ended) {
    const transport_ptr calls = self->current.calls;
    auto call = co_await calls->start(m, options, deadline);
    if (call || calls->usable()) co_return call;
  }
  co_return co_await start_when_ready(self, m, std::move(options), deadline);
}

task<started> channel::impl::start_retried(self_ptr self, const method& m, call_options options,
                                           time_point deadline) {
  // A call may outlive its channel, which must not live for it.
  retrier::starter attempt = [weak = std::weak_ptr{self}](const method& called, call_options each,
                                                          time_point until) {
    return start_again(weak, called, std::move(each), until);
  };
  co_return co_await self->again.start(std::move(attempt), m, std::move(options), deadline);
}

task<started> channel::impl::start_when_ready(self_ptr self, const method& m, call_options options,
                                              time_point deadline) {
  for (int attempt = 1;; ++attempt) {
    auto calls = co_await ready(self, m.level, options.wait_for_ready, deadline);
    if (!calls) co_return std::unexpected{std::move(calls).error()};
    auto call = co_await (*calls)->start(m, options, deadline);
    if (call || (*calls)->usable() || attempt == start_attempts) co_return call;
    if (call.error().code() != code::unavailable) co_return call;
  }
}

// For a further attempt, and for a call that a server turned away unseen: the other connection is
// one that takes it.
task<started> channel::impl::start_again(std::weak_ptr<impl> weak, const method& m,
                                         call_options options, time_point deadline) {
  const self_ptr self = weak.lock();
  if (!self) co_return fail(code::cancelled, "the channel was destroyed");
  co_return co_await start_when_ready(self, m, std::move(options), deadline);
}

task<result<>> channel::impl::one_way(self_ptr self, const method& m, call_options options,
                                      time_point deadline, const outgoing& message) {
  // No second attempt: at most once, and part of it may have left with a connection that broke.
  // Never as early data, for nobody would learn that the server did not take it.
  auto calls = co_await ready(self, idempotency::unknown, options.wait_for_ready, deadline);
  if (!calls) co_return std::unexpected{std::move(calls).error()};
  co_return co_await (*calls)->one_way(m, options, deadline, message);
}

task<started> channel::impl::send_intercepted(self_ptr self, const method& m, call_options options,
                                              time_point deadline, const outgoing& message) {
  auto sent = co_await one_way(self, m, std::move(options), deadline, message);
  if (!sent) co_return std::unexpected{std::move(sent).error()};
  co_return std::make_unique<sent_call>();
}

task<started> channel::impl::intercepted(self_ptr self, std::size_t depth,
                                         const client_interceptor::next& innermost, const method& m,
                                         call_options options, time_point deadline) {
  if (depth == self->options.interceptors.size())
    co_return co_await innermost(m, std::move(options), deadline);
  // `self` and `innermost` live in frames that wait for this call of `proceed`.
  co_return co_await self->options.interceptors[depth]->intercept(
      m, std::move(options), deadline,
      [&self, &innermost, depth](const method& called, call_options changed, time_point until) {
        return intercepted(self, depth + 1, innermost, called, std::move(changed), until);
      });
}

// Connecting
// -----------------------------------------------------------------------------------------

task<result<channel::impl::transport_ptr>> channel::impl::ready(self_ptr self, idempotency level,
                                                                bool patient, time_point deadline) {
  const std::uint64_t failures_before = self->failures;
  for (;;) {
    if (self->ended) co_return std::unexpected{*self->ended};
    self->retire_unusable();
    const bool replayable = level != idempotency::unknown;
    const bool connected = self->current.usable();
    if (connected && (!self->current.early || replayable)) co_return self->current.calls;
    if (auto may = self->may_wait(patient, deadline, failures_before); !may)
      co_return std::unexpected{std::move(may).error()};
    waiter place{*self, patient};
    io::timer alarm;
    if (deadline != never) self->shard.arm(alarm, deadline, [&place](time_point) { place.wake(); });
    if (!connected) self->begin_connecting(replayable);
    if (!co_await place.wait())
      co_return fail(code::cancelled, "cancelled while connecting to " + self->target);
  }
}

// As `start_again`.
task<result<channel::impl::transport_ptr>> channel::impl::ready_again(std::weak_ptr<impl> weak,
                                                                      idempotency level,
                                                                      bool patient,
                                                                      time_point deadline) {
  const self_ptr self = weak.lock();
  if (!self) co_return fail(code::cancelled, "the channel was destroyed");
  co_return co_await ready(self, level, patient, deadline);
}

result<> channel::impl::may_wait(bool patient, time_point deadline,
                                 std::uint64_t failures_before) const {
  if (defect) return std::unexpected{*defect};
  if (io::now() >= deadline)
    return fail(code::deadline_exceeded,
                "deadline exceeded while connecting to " + target +
                    (last_failure.ok() ? std::string{} : "; " + last_failure.message()));
  const bool failed_meanwhile = failures != failures_before;
  if (!patient && (failed_meanwhile || io::now() < retry_at)) return std::unexpected{last_failure};
  return {};
}

void channel::impl::begin_connecting(bool early) {
  if (std::exchange(connecting, true)) return;
  const auto weak = weak_from_this();
  dial->on_refused(
      [weak](const method& m, call_options changed, time_point deadline) {
        return start_again(weak, m, std::move(changed), deadline);
      },
      [weak](idempotency level, bool patient, time_point deadline) {
        return ready_again(weak, level, patient, deadline);
      });
  // The handler holds the channel, and with it the signal, until the coroutine has ended.
  asio::co_spawn(shard.get_executor(), connect(shared_from_this(), early && options.early_data),
                 asio::bind_cancellation_slot(stop_connecting.slot(),
                                              [self = shared_from_this()](std::exception_ptr) {
                                                self->connecting = false;
                                                self->wake_waiters();
                                              }));
}

task<> channel::impl::connect(self_ptr self, bool early) {
  co_await asio::this_coro::throw_if_cancelled(false);
  for (;;) {
    // An earlier failure's pause; only calls that wait for it wait it out.
    if (!co_await self->shard.sleep_until(self->retry_at)) co_return;
    if (self->ended || self->waiting.empty()) co_return;
    auto made = co_await self->dial->dial(early);
    if (self->ended) {
      if (made) made->calls->close(*self->ended);
      co_return;
    }
    if (made) {
      self->current = std::move(*made);
      self->pause = self->options.reconnect_first;
      self->last_failure = {};
      if (self->current.early)
        asio::co_spawn(self->shard.get_executor(),
                       await_handshake(self, self->current.calls, *self->current.connection),
                       [](std::exception_ptr) {});
      co_return;
    }
    self->failed(made.error());
    self->wake_waiters();
    if (!self->anyone_patient()) co_return;
  }
}

// `calls` keeps the connection.
task<> channel::impl::await_handshake(self_ptr self, transport_ptr calls,
                                      quic::connection& beneath) {
  (void)co_await beneath.confirmed();
  if (self->current.calls == calls) self->current.early = false;
  self->wake_waiters();
}

void channel::impl::failed(const error& why) {
  ++failures;
  last_failure = status{to_status(why).code(), "connecting to " + target + ": " + why.to_string()};
  std::uniform_real_distribution<double> spread{1 - jitter, 1 + jitter};
  retry_at = io::now() + std::chrono::duration_cast<duration>(pause * spread(random));
  pause = std::min(pause * 2, options.reconnect_longest);
}

void channel::impl::wake_waiters() {
  // Resumed calls may wait again, or end others.
  for (auto* each : std::vector{waiting})
    if (std::ranges::contains(waiting, each)) each->wake();
}

void channel::impl::retire_unusable() {
  if (!current.calls || current.calls->usable()) return;
  dial->remember(current);
  retired.push_back(std::exchange(current, {}).calls);
  asio::co_spawn(shard.get_executor(), see_off(shared_from_this(), retired.back()),
                 [](std::exception_ptr) {});
}

task<> channel::impl::see_off(self_ptr self, transport_ptr old) {
  co_await old->drain();
  old->close({code::unavailable, "the connection has ended"});
  std::erase(self->retired, old);
}

// Ending
// ---------------------------------------------------------------------------------------------

void channel::impl::close(const status& why) noexcept {
  if (ended && !current.calls && retired.empty()) return;
  ended = why;
  again.close(why);
  stop_connecting.emit(asio::cancellation_type::terminal);
  wake_waiters();
  retired.push_back(std::exchange(current, {}).calls);
  auto all = std::exchange(retired, {});
  for (const auto& each : all)
    if (each) each->close(why);
  // What that woke may still unwind through them.
  asio::post(loop, [all = std::move(all)] {});
}

task<> channel::impl::shutdown(self_ptr self) {
  self->ended = status{code::unavailable, "the channel is shutting down"};
  self->stop_connecting.emit(asio::cancellation_type::terminal);
  self->wake_waiters();
  auto all = self->retired;
  if (self->current.calls) all.push_back(self->current.calls);
  for (const auto& each : all) co_await each->drain();
  self->close(*self->ended);
  if (self->dial) co_await self->dial->drain();
}

// The public face
// ------------------------------------------------------------------------------------

channel::channel(io::shard& shard, std::string target, channel_options options)
    : impl_{std::make_shared<impl>(shard, std::move(target), std::move(options))} {}

channel::~channel() {
  impl_->close({code::cancelled, "the channel was destroyed"});
}

task<started> channel::start(const method& m, call_options options) {
  return impl::start(impl_, m, std::move(options));
}

task<result<>> channel::one_way(const method& m, call_options options, const outgoing& message) {
  const auto self = impl_;
  const time_point deadline = deadline_of(options);
  if (self->options.interceptors.empty())
    co_return co_await impl::one_way(self, m, std::move(options), deadline, message);
  const client_interceptor::next innermost = [&](const method& called, call_options changed,
                                                 time_point until) {
    return impl::send_intercepted(self, called, std::move(changed), until, message);
  };
  auto sent = co_await impl::intercepted(self, 0, innermost, m, std::move(options), deadline);
  if (!sent) co_return std::unexpected{std::move(sent).error()};
  co_return result<>{};
}

task<result<>> channel::connect(std::optional<time_point> deadline) {
  const auto self = impl_;
  self->retry_at = {};
  auto made = co_await impl::ready(self, idempotency::unknown, false, deadline.value_or(never));
  if (!made) co_return std::unexpected{std::move(made).error()};
  co_return result<>{};
}

bool channel::connected() const noexcept {
  return impl_->current.usable();
}

transport_info channel::info() const {
  if (impl_->current.calls) return impl_->current.calls->info();
  return {.name = name_of(impl_->options.carrier)};
}

quic::connection* channel::connection() noexcept {
  return impl_->current.usable() ? impl_->current.connection : nullptr;
}

task<> channel::shutdown() {
  return impl::shutdown(impl_);
}

}  // namespace weft::rpc
