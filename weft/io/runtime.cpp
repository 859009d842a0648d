#include <weft/io/runtime.hpp>

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include <asio/executor_work_guard.hpp>
#include <asio/signal_set.hpp>

namespace weft {

namespace {

/// What a shell reports for a process that a signal ended.
constexpr int exit_code_of_signal = 128;

cpu_set_t allowed_processors() noexcept {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  return allowed;
}

std::size_t processor_count() noexcept {
  const cpu_set_t allowed = allowed_processors();
  return static_cast<std::size_t>(std::max(1, CPU_COUNT(&allowed)));
}

/// Pins the calling thread to one processor of `allowed` and unpins it at the end of the scope.
class pinned {
 public:
  pinned(const cpu_set_t& allowed, std::size_t index) noexcept : before_{allowed_processors()} {
    const int count = CPU_COUNT(&allowed);
    if (count == 0) return;
    int left = static_cast<int>(index % static_cast<std::size_t>(count));
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &allowed) || left-- > 0) continue;
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      pthread_setaffinity_np(pthread_self(), sizeof one, &one);
      return;
    }
  }
  pinned(const pinned&) = delete;
  pinned& operator=(const pinned&) = delete;
  ~pinned() { pthread_setaffinity_np(pthread_self(), sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};

}  // namespace

struct runtime::impl {
  explicit impl(runtime_options given) : opts{given} {
    const std::size_t count = opts.shards == 0 ? processor_count() : opts.shards;
    shards.reserve(count);
    for (std::size_t i = 0; i < count; ++i)
      shards.push_back(std::make_unique<io::shard>(static_cast<std::uint32_t>(i), opts.shard));
  }

  void stop() noexcept {
    for (auto& s : shards) s->stop();
  }

  void run();
  void run_shard(std::size_t index, const cpu_set_t& allowed) noexcept;

  runtime_options opts;
  std::vector<std::unique_ptr<io::shard>> shards;
  std::mutex failure_mutex;
  std::exception_ptr failure;
};

void runtime::impl::run_shard(std::size_t index, const cpu_set_t& allowed) noexcept {
  std::optional<pinned> pin;
  if (opts.pin) pin.emplace(allowed, index);
  // Until stop(): a shard without work of its own still takes what others post to it.
  const auto work = asio::make_work_guard(shards[index]->context());
  try {
    shards[index]->run();
  } catch (...) {
    const std::scoped_lock lock{failure_mutex};
    if (!failure) failure = std::current_exception();
    stop();
  }
}

void runtime::impl::run() {
  const cpu_set_t allowed = allowed_processors();
  {
    std::vector<std::jthread> threads;
    threads.reserve(shards.size() - 1);
    for (std::size_t i = 1; i < shards.size(); ++i)
      threads.emplace_back([this, i, &allowed] { run_shard(i, allowed); });
    run_shard(0, allowed);
  }
  if (failure) std::rethrow_exception(std::exchange(failure, nullptr));
}

runtime::runtime(runtime_options options) : impl_{std::make_unique<impl>(options)} {}
runtime::~runtime() = default;

std::size_t runtime::size() const noexcept {
  return impl_->shards.size();
}
io::shard& runtime::operator[](std::size_t index) noexcept {
  return *impl_->shards[index];
}

void runtime::run() {
  impl_->run();
}
void runtime::stop() noexcept {
  impl_->stop();
}

namespace {

/// Shared with its own handler, which may be left queued on the shard after the run.
struct signal_watch : std::enable_shared_from_this<signal_watch> {
  signal_watch(runtime& r, std::function<void()> f)
      : owner{r}, on_signal{std::move(f)}, signals{r[0].context(), SIGINT, SIGTERM} {}

  void wait() {
    signals.async_wait([self = shared_from_this()](asio::error_code failure, int number) {
      if (!failure) self->arrived(number);
    });
  }

  void arrived(int number) {
    if (asked) exit_code = exit_code_of_signal + number;
    if (asked || !on_signal) return owner.stop();
    asked = true;
    wait();
    on_signal();
  }

  runtime& owner;
  std::function<void()> on_signal;
  asio::basic_signal_set<executor> signals;
  bool asked = false;
  int exit_code = 0;
};

}  // namespace

int runtime::run_until_signal(std::function<void()> on_signal) {
  const auto watch = std::make_shared<signal_watch>(*this, std::move(on_signal));
  watch->wait();
  impl_->run();
  watch->signals.cancel();
  return watch->exit_code;
}

}  // namespace weft
