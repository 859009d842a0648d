#include <weft/quic/core/scheduler.hpp>

#include <algorithm>
#include <bit>

namespace weft::quic::core::detail {

void scheduler::add(schedule_entry& entry) noexcept {
  if (entry.queued) return;
  auto& level = levels_[entry.urgency];
  entry.queued = true;
  entry.waiting = !entry.incremental && level.in_order != nullptr;
  if (entry.waiting) return level.waiting.push_back(entry);
  if (!entry.incremental) level.in_order = &entry;
  // A stream may not save up turns while it has nothing to send, nor lose its debt by pausing.
  entry.deficit = std::min<std::int64_t>(entry.deficit, 0);
  level.turn.push_back(entry);
  ready_ |= static_cast<std::uint8_t>(1u << entry.urgency);
}

void scheduler::remove(schedule_entry& entry) noexcept {
  if (!entry.queued) return;
  auto& level = levels_[entry.urgency];
  entry.queued = false;
  if (entry.waiting) {
    entry.waiting = false;
    return level.waiting.erase(entry);
  }
  level.turn.erase(entry);
  if (level.in_order == &entry) {
    level.in_order = level.waiting.pop_front();
    if (level.in_order) {
      level.in_order->waiting = false;
      level.turn.push_back(*level.in_order);
    }
  }
  if (level.turn.empty()) {
    level.owed = 0;
    entry.deficit = 0;
    ready_ &= static_cast<std::uint8_t>(~(1u << entry.urgency));
  }
}

std::size_t scheduler::next_level() const noexcept {
  const auto first = static_cast<std::size_t>(std::countr_zero(ready_));
  for (std::size_t i = urgencies - 1; i > first; --i)
    if ((ready_ >> i & 1) != 0 && levels_[i].owed >= (guaranteed_part - 1) * guaranteed_quantum)
      return i;
  return first;
}

schedule_entry* scheduler::pick() noexcept {
  if (ready_ == 0) return nullptr;
  auto& turn = levels_[next_level()].turn;
  for (;;) {
    schedule_entry* entry = turn.front();
    if (entry->deficit > 0) return entry;
    entry->deficit += quantum_;
    if (entry->deficit > 0) return entry;
    turn.erase(*entry);
    turn.push_back(*entry);
  }
}

void scheduler::charge(schedule_entry& entry, std::size_t count) noexcept {
  const auto sent = static_cast<std::int64_t>(count);
  auto& own = levels_[entry.urgency];
  const auto first = static_cast<std::size_t>(std::countr_zero(ready_));
  for (std::size_t i = entry.urgency + 1u; i < urgencies; ++i)
    if ((ready_ >> i & 1) != 0) levels_[i].owed += sent;
  if (entry.urgency != first) own.owed -= (guaranteed_part - 1) * sent;
  entry.deficit -= sent;
  if (entry.deficit <= 0 && entry.queued && !entry.waiting) {
    own.turn.erase(entry);
    own.turn.push_back(entry);
  }
}

void scheduler::set_quantum(std::size_t bytes) noexcept {
  quantum_ =
      static_cast<std::int64_t>(std::clamp<std::size_t>(bytes, smallest_quantum, largest_quantum));
}

void scheduler::change(schedule_entry& entry, std::uint8_t urgency, bool incremental) noexcept {
  const bool queued = entry.queued;
  remove(entry);
  entry.urgency = std::min<std::uint8_t>(urgency, urgencies - 1);
  entry.incremental = incremental;
  if (queued) add(entry);
}

}  // namespace weft::quic::core::detail
