#include <weft/rpc/retry.hpp>

#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <weft/io/event.hpp>

namespace weft::rpc {
namespace {
class retried_call;
}

struct retrier::state {
  state(io::shard& s, retry_options o)
      : shard{s}, options{std::move(o)}, throttle{options}, random{std::random_device{}()} {}

  std::optional<duration> again(unsigned attempt, const status& why, const metadata& trailers) {
    return retry_after(options, throttle, attempt, why, trailers,
                       std::uniform_real_distribution<double>{0, 1}(random));
  }

  io::shard& shard;
  const retry_options options;
  retry_throttle throttle;
  std::minstd_rand random;
  std::list<retried_call*> calls;
};

namespace {

using started = result<std::unique_ptr<client_call>>;

const metadata no_metadata;

/// A request message, kept for another attempt.
class kept_message {
 public:
  /// The failure of writing it as JSON, if its call wants that.
  static result<kept_message> of(const outgoing& message, codec form) {
    kept_message kept;
    if (form == codec::json) {
      auto text = message.json();
      if (!text) return std::unexpected{std::move(text).error()};
      kept.json_ = std::move(*text);
    } else {
      buffer bytes = buffer::allocate(message.size());
      message.write_to(bytes.data());
      kept.binary_ = std::move(bytes).freeze();
    }
    return kept;
  }
  std::size_t size() const noexcept { return binary_.size() + json_.size(); }
  outgoing again() const noexcept {
    return outgoing{this, binary_.size(),
                    [](const void* from, std::byte* target, std::size_t size) {
                      if (size != 0) std::memcpy(target, self(from).binary_.data(), size);
                    },
                    [](const void* from) { return result<std::string>{self(from).json_}; }};
  }

 private:
  static const kept_message& self(const void* from) noexcept {
    return *static_cast<const kept_message*>(from);
  }
  slice binary_;
  std::string json_;
};

class retried_call final : public client_call {
 public:
  retried_call(std::shared_ptr<retrier::state> shared, retrier::starter attempt, const method& m,
               call_options options, time_point deadline)
      : shared_{std::move(shared)},
        start_{std::move(attempt)},
        method_{m},
        options_{std::move(options)},
        deadline_{deadline},
        place_{shared_->calls.insert(shared_->calls.end(), this)} {}
  ~retried_call() override { leave(); }
  retried_call(const retried_call&) = delete;
  retried_call& operator=(const retried_call&) = delete;

  /// The first attempt, and others while none can even be started.
  task<result<>> begin() {
    result<> outcome = co_await start_attempt();
    while (!outcome) {
      const bool again = co_await pause_after(outcome.error(), no_metadata);
      if (!again) co_return std::unexpected{std::move(outcome).error()};
      outcome = co_await start_attempt();
    }
    co_return outcome;
  }

  task<result<>> write(const outgoing& message, bool last) override {
    while (replaying_) {
      const bool woken = co_await replayed_.wait();
      if (!woken) co_return fail(code::cancelled, "cancelled while the call was tried again");
    }
    if (final_) co_return std::unexpected{*final_};
    const auto call = current_;
    if (committed_) co_return co_await call->write(message, last);
    if (auto kept = keep(message, last); !kept) co_return kept;
    const bool kept = !committed_;
    auto sent = co_await call->write(message, last);
    // What was kept is sent again, or its failure is the call's, which the reader learns.
    co_return kept ? result<>{} : std::move(sent);
  }

  task<result<>> finish_writing() override {
    while (replaying_) {
      const bool woken = co_await replayed_.wait();
      if (!woken) co_return fail(code::cancelled, "cancelled while the call was tried again");
    }
    if (final_) co_return std::unexpected{*final_};
    ended_ = true;
    const auto call = current_;
    auto done = co_await call->finish_writing();
    co_return committed_ ? std::move(done) : result<>{};
  }

  task<result<std::optional<payload>>> read() override {
    for (;;) {
      if (final_) co_return std::unexpected{*final_};
      const auto call = current_;
      auto next = co_await call->read();
      if (next) {
        commit();
        if (!*next) shared_->throttle.succeeded();
        co_return next;
      }
      auto ended = co_await recover(*call, next.error());
      if (ended) co_return std::unexpected{std::move(*ended)};
    }
  }

  task<result<metadata>> read_headers() override {
    for (;;) {
      if (final_) co_return std::unexpected{*final_};
      const auto call = current_;
      auto headers = co_await call->read_headers();
      if (headers) {
        commit();
        co_return headers;
      }
      auto ended = co_await recover(*call, headers.error());
      if (ended) co_return std::unexpected{std::move(*ended)};
    }
  }

  const metadata& headers() const noexcept override {
    return current_ ? current_->headers() : no_metadata;
  }
  const metadata& trailers() const noexcept override {
    return current_ ? current_->trailers() : no_metadata;
  }
  rpc::codec codec() const noexcept override {
    return current_ ? current_->codec() : rpc::codec::proto;
  }

  /// Takes itself out of its retrier's calls.
  void leave() noexcept {
    if (place_) shared_->calls.erase(*std::exchange(place_, std::nullopt));
  }

  void cancel(status why) override {
    final_ = why;
    // Whoever waits may destroy this.
    const auto call = current_;
    pause_over_.notify();
    if (call) call->cancel(std::move(why));
  }

 private:
  result<> keep(const outgoing& message, bool last) {
    auto kept = kept_message::of(message, codec());
    if (!kept) return std::unexpected{std::move(kept).error()};
    kept_size_ += kept->size();
    ended_ |= last;
    if (kept_size_ > shared_->options.buffer)
      commit();
    else
      kept_.push_back(std::move(*kept));
    return {};
  }

  void commit() noexcept {
    committed_ = true;
    kept_.clear();
  }

  task<result<>> start_attempt() {
    ++attempt_;
    call_options options = options_;
    if (attempt_ > 1)
      if (auto added = options.metadata.add(retry_attempts_key, std::to_string(attempt_ - 1));
          !added)
        co_return fail(code::internal, added.error().message());
    auto call = co_await start_(method_, std::move(options), deadline_);
    if (!call) co_return std::unexpected{std::move(call).error()};
    current_ = std::move(*call);
    if (final_) current_->cancel(*final_);
    co_return result<>{};
  }

  /// True after the pause when there is to be another attempt.
  task<bool> pause_after(const status& why, const metadata& trailers) {
    if (final_ || committed_) co_return false;
    const auto pause = shared_->again(attempt_, why, trailers);
    const time_point now = io::now();
    if (!pause || *pause >= deadline_ - now) co_return false;
    io::timer alarm;
    shared_->shard.arm(alarm, now + *pause, [this](time_point) { pause_over_.notify(); });
    const bool woken = co_await pause_over_.wait();
    co_return woken && !final_;
  }

  /// The attempt `failed` ended with `why`: nothing when another one took its place, otherwise the
  /// call's status.
  task<std::optional<status>> recover(const client_call& failed, status why) {
    // A response that has begun commits the call.
    if (!failed.headers().empty()) commit();
    metadata trailers = failed.trailers();
    replaying_ = true;
    bool replaced = false;
    while (!replaced) {
      const bool again = co_await pause_after(why, trailers);
      if (!again) break;
      auto started = co_await start_attempt();
      replaced = started.has_value();
      if (replaced)
        co_await replay();
      else
        why = std::move(started).error();
      trailers = {};
    }
    if (!replaced) commit();
    replaying_ = false;
    replayed_.notify();
    if (replaced) co_return std::nullopt;
    co_return final_.value_or(std::move(why));
  }

  /// A failure shows when the attempt is read.
  task<> replay() {
    const auto call = current_;
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      const bool last = ended_ && i + 1 == kept_.size();
      auto sent = co_await call->write(kept_[i].again(), last);
      if (!sent) co_return;
    }
    if (ended_ && kept_.empty()) (void)co_await call->finish_writing();
  }

  std::shared_ptr<retrier::state> shared_;
  retrier::starter start_;
  const method& method_;
  call_options options_;
  const time_point deadline_;
  std::optional<std::list<retried_call*>::iterator> place_;
  std::shared_ptr<client_call> current_;  // a writer may still hold the one before
  std::vector<kept_message> kept_;
  std::size_t kept_size_ = 0;
  unsigned attempt_ = 0;
  bool ended_ = false;      // our side
  bool committed_ = false;  // no further attempts
  bool replaying_ = false;  // between two attempts
  std::optional<status> final_;
  io::event pause_over_, replayed_;
};

}  // namespace

retrier::retrier(io::shard& shard, retry_options options)
    : state_{std::make_shared<state>(shard, std::move(options))} {}
retrier::~retrier() = default;

void retrier::close(const status& why) {
  // What a call's end resumes may destroy others.
  const auto shared = state_;
  while (!shared->calls.empty()) {
    auto* next = shared->calls.front();
    next->leave();
    next->cancel(why);
  }
}

task<started> retrier::start(starter attempt, const method& m, call_options options,
                             time_point deadline) {
  const bool safe = m.level != idempotency::unknown;
  if (!safe || state_->options.max_attempts <= 1)
    co_return co_await attempt(m, std::move(options), deadline);
  auto call =
      std::make_unique<retried_call>(state_, std::move(attempt), m, std::move(options), deadline);
  auto begun = co_await call->begin();
  if (!begun) co_return std::unexpected{std::move(begun).error()};
  co_return call;
}

}  // namespace weft::rpc
