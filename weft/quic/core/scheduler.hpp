#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <weft/quic/core/intrusive_list.hpp>

namespace weft::quic::core {

class stream;

namespace detail {

/// One stream's place in the scheduler.
struct schedule_entry {
  stream* owner = nullptr;
  list_hook<schedule_entry> hook;
  std::int64_t deficit = 0;
  std::uint8_t urgency = 3;
  bool incremental = true;
  bool queued = false;
  bool waiting = false;  ///< behind another non-incremental entry of its urgency
};

/// Chooses the stream whose bytes go next into a packet (RFC 9218 §10). A more urgent class goes
/// first, except that every other class with something to send is guaranteed a sixteenth of what
/// the classes above it send, so that none starves. Inside one urgency, incremental entries share
/// by bytes (deficit round robin); the others are served one after the other, as one more sharer.
class scheduler {
 public:
  static constexpr std::size_t urgencies = 8;
  static constexpr std::int64_t smallest_quantum = 16 * 1024;
  static constexpr std::int64_t largest_quantum = 128 * 1024;
  static constexpr std::int64_t guaranteed_quantum = 4 * 1024;
  static constexpr std::int64_t guaranteed_part = 16;

  bool empty() const noexcept { return ready_ == 0; }
  /// The entry has something to send. Nothing happens when it is known already.
  void add(schedule_entry& entry) noexcept;
  /// The entry has nothing to send (any more).
  void remove(schedule_entry& entry) noexcept;
  /// Whose turn it is, or null. The same until `charge`, `add` or `remove`.
  schedule_entry* pick() noexcept;
  /// `count` bytes of `entry` were sent.
  void charge(schedule_entry& entry, std::size_t count) noexcept;
  void change(schedule_entry& entry, std::uint8_t urgency, bool incremental) noexcept;
  /// Bytes an incremental entry sends in one go, within the bounds above: what leaves in a moment.
  /// Messages that are sent side by side all end last; on a fast path one after the other costs
  /// nobody a wait that matters.
  void set_quantum(std::size_t bytes) noexcept;

 private:
  using entry_list = intrusive_list<schedule_entry, &schedule_entry::hook>;
  struct level {
    entry_list turn;
    entry_list waiting;
    schedule_entry* in_order = nullptr;  ///< the non-incremental entry that is served
    std::int64_t owed = 0;
  };

  std::size_t next_level() const noexcept;

  std::array<level, urgencies> levels_;
  std::int64_t quantum_ = smallest_quantum;
  std::uint8_t ready_ = 0;  ///< bit per level with a turn
};

}  // namespace detail
}  // namespace weft::quic::core
