#include <weft/io/shard.hpp>

#include <atomic>
#include <utility>
#include <vector>

#include <asio/post.hpp>

#include <weft/io/event.hpp>
#include <weft/io/timer_queue.hpp>

namespace weft::io {

namespace {

/// A turn's end may go over its work again this often before the event queue gets its turn.
constexpr int max_end_of_turn_rounds = 4;
/// One thread runs the context: Asio then keeps what a handler posts in a private queue.
constexpr int one_thread = 1;

}  // namespace

time_point now() noexcept {
  return time_point{
      std::chrono::duration_cast<duration>(std::chrono::steady_clock::now().time_since_epoch())};
}

struct shard::impl {
  explicit impl(std::uint32_t index, options opts) : index{index}, opts{opts} {}

  // What is destroyed with the context (suspended coroutines, queued handlers) may still touch
  // timers and hooks, and hooks may own what needs the context.
  ~impl() {
    closing = true;
    timers.close();
    hooks.clear();
    context.reset();
  }

  void at_end_of_turn(std::move_only_function<void()> work);
  void end_turn();
  void run_spinning();

  std::uint32_t index;
  options opts;
  std::unique_ptr<asio::io_context> context = std::make_unique<asio::io_context>(one_thread);
  timer_queue timers{*context};
  std::vector<std::move_only_function<void()>> hooks, running;
  std::atomic<bool> stop_requested = false;
  bool end_of_turn_posted = false;
  bool closing = false;
};

// The queue of an io_context is first in, first out, and holds the poll of the kernel as one of its
// entries. So a handler posted now runs after all that is ready now and after one more poll.
void shard::impl::at_end_of_turn(std::move_only_function<void()> work) {
  if (closing) return;
  hooks.push_back(std::move(work));
  if (std::exchange(end_of_turn_posted, true)) return;
  timers.defer();
  asio::post(*context, [this] { end_turn(); });
}

void shard::impl::end_turn() {
  for (int round = 0; round < max_end_of_turn_rounds && !hooks.empty(); ++round) {
    std::swap(hooks, running);
    for (auto& work : running) work();
    running.clear();
  }
  timers.settle();
  end_of_turn_posted = !hooks.empty();
  if (!end_of_turn_posted) return;
  timers.defer();
  asio::post(*context, [this] { end_turn(); });
}

void shard::impl::run_spinning() {
  time_point last_work = now();
  while (!context->stopped()) {
    if (context->poll() > 0) {
      last_work = now();
    } else if (!context->stopped() && now() - last_work >= opts.spin) {
      context->run_one();
      last_work = now();
    }
  }
}

shard::shard(std::uint32_t index, options opts) : impl_{std::make_unique<impl>(index, opts)} {}
shard::~shard() = default;

std::uint32_t shard::index() const noexcept {
  return impl_->index;
}
asio::io_context& shard::context() noexcept {
  return *impl_->context;
}
executor shard::get_executor() noexcept {
  return impl_->context->get_executor();
}

void shard::run() {
  // In this order, a stop() from another thread is either seen here or ends the loop.
  impl_->context->restart();
  if (!impl_->stop_requested) {
    if (impl_->opts.spin > duration::zero()) {
      impl_->run_spinning();
    } else {
      impl_->context->run();
    }
  }
  impl_->stop_requested = false;
}

void shard::stop() noexcept {
  impl_->stop_requested = true;
  impl_->context->stop();
}

void shard::post(std::move_only_function<void()> work) {
  // What is destroyed with the loop may still have something to say; nobody will hear it.
  if (impl_->closing) return;
  asio::post(*impl_->context, [work = std::move(work)]() mutable { work(); });
}

void shard::at_end_of_turn(std::move_only_function<void()> work) {
  impl_->at_end_of_turn(std::move(work));
}

void shard::arm(timer& t, time_point deadline, std::move_only_function<void(time_point)> callback) {
  impl_->timers.arm(t, deadline, std::move(callback));
}
void shard::rearm(timer& t, time_point deadline) {
  impl_->timers.rearm(t, deadline);
}
void shard::disarm(timer& t) noexcept {
  impl_->timers.disarm(t);
}

task<result<>> shard::sleep_until(time_point deadline) {
  timer alarm;
  event rung;
  arm(alarm, deadline, [&rung](time_point) { rung.notify(); });
  if (!co_await rung.wait()) co_return fail(errc::cancelled, layer::io, "the sleep was cancelled");
  co_return result<>{};
}

}  // namespace weft::io
