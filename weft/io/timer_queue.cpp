#include <weft/io/timer_queue.hpp>

#include <algorithm>
#include <utility>

namespace weft::io {

timer_queue::timer_queue(asio::io_context& context)
    : context_{context}, system_{std::in_place, context.get_executor()} {}

timer_queue::~timer_queue() {
  for (const entry& e : heap_) {
    e.owner->slot_ = timer::npos;
    e.owner->queue_ = nullptr;
  }
}

void timer_queue::close() noexcept {
  deferred_ = true;
  system_.reset();
}

void timer_queue::arm(timer& t, time_point deadline,
                      std::move_only_function<void(time_point)> callback) {
  t.callback_ = std::move(callback);
  place(t, deadline);
  changed();
}

void timer_queue::rearm(timer& t, time_point deadline) {
  place(t, deadline);
  changed();
}

void timer_queue::disarm(timer& t) noexcept {
  t.callback_ = nullptr;
  if (firing_ == &t) firing_ = nullptr;
  t.queue_ = nullptr;
  if (!t.armed()) return;
  remove(t);
  // Never a system call: at most the pending wait stops keeping the loop alive.
  if (heap_.empty() && system_) count_as_work(false);
}

void timer_queue::place(timer& t, time_point deadline) {
  t.deadline_ = deadline;
  t.queue_ = this;
  // A callback that asks for a moment already past must not overtake timers due in the same batch.
  const entry e{std::max(deadline, batch_now_), next_order_++, &t};
  if (!t.armed()) {
    heap_.push_back(e);
    sift_up(heap_.size() - 1, e);
  } else if (e < heap_[t.slot_]) {
    sift_up(t.slot_, e);
  } else {
    sift_down(t.slot_, e);
  }
}

void timer_queue::remove(timer& t) noexcept {
  const std::size_t slot = std::exchange(t.slot_, timer::npos);
  const entry last = heap_.back();
  heap_.pop_back();
  if (last.owner == &t) return;
  if (slot > 0 && last < heap_[(slot - 1) / 2]) {
    sift_up(slot, last);
  } else {
    sift_down(slot, last);
  }
}

void timer_queue::put(std::size_t slot, const entry& e) noexcept {
  heap_[slot] = e;
  e.owner->slot_ = slot;
}

void timer_queue::sift_up(std::size_t slot, entry e) noexcept {
  while (slot > 0) {
    const std::size_t parent = (slot - 1) / 2;
    if (!(e < heap_[parent])) break;
    put(slot, heap_[parent]);
    slot = parent;
  }
  put(slot, e);
}

void timer_queue::sift_down(std::size_t slot, entry e) noexcept {
  for (;;) {
    std::size_t child = 2 * slot + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && heap_[child + 1] < heap_[child]) ++child;
    if (!(heap_[child] < e)) break;
    put(slot, heap_[child]);
    slot = child;
  }
  put(slot, e);
}

void timer_queue::changed() {
  if (!deferred_ && !in_batch()) settle();
}

void timer_queue::settle() {
  if (!system_) return;
  deferred_ = false;
  const time_point earliest = heap_.empty() ? never : heap_.front().key;
  if (earliest < armed_for_) arm_system(earliest);
  count_as_work(earliest != never);
}

void timer_queue::arm_system(time_point deadline) {
  count_as_work(true);
  armed_for_ = deadline;
  ++system_arms_;
  // Replaces the pending wait, whose handler then finds its generation gone.
  system_->expires_at(clock::time_point{deadline.time_since_epoch()});
  system_->async_wait([this, generation = ++generation_](asio::error_code failure) {
    if (!failure) on_system_timer(generation);
  });
}

void timer_queue::on_system_timer(std::uint64_t generation) {
  if (generation != generation_) return;
  count_as_work(true);
  armed_for_ = never;
  fire_due(now());
  changed();
}

void timer_queue::fire_due(time_point now) {
  batch_now_ = now;
  // Bounded by what is there now: callbacks that re-arm for "at once" get their turn next time.
  for (std::size_t left = heap_.size(); left > 0 && !heap_.empty(); --left) {
    if (heap_.front().key > now) break;
    fire(*heap_.front().owner, now);
  }
  batch_now_ = time_point::min();
}

void timer_queue::fire(timer& t, time_point now) {
  remove(t);
  firing_ = &t;
  // Moved out: the callback may replace itself, or destroy the timer.
  auto callback = std::move(t.callback_);
  t.callback_ = nullptr;
  if (callback) callback(now);
  if (!std::exchange(firing_, nullptr)) return;  // destroyed, or disarmed by its own callback
  if (!t.callback_) t.callback_ = std::move(callback);
  if (!t.armed()) t.queue_ = nullptr;
}

// The pending wait of the system timer counts as work of the loop; while no timer is armed it must
// not keep `run()` from returning.
void timer_queue::count_as_work(bool wanted) noexcept {
  if (armed_for_ == never || wanted == !uncounted_) return;
  uncounted_ = !wanted;
  const auto loop = context_.get_executor();
  if (wanted) {
    loop.on_work_started();
  } else {
    loop.on_work_finished();
  }
}

timer::~timer() {
  if (queue_) queue_->disarm(*this);
}

}  // namespace weft::io
