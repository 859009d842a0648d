#pragma once

#include <chrono>
#include <cstdint>

namespace weft {

using duration = std::chrono::nanoseconds;

/// The monotonic time line that pure cores are given as a parameter. It has no `now()`: reading the
/// clock is the business of a driver (`weft::io::now()`) or of the simulator.
struct timeline {
  using rep = std::int64_t;
  using period = std::nano;
  using duration = weft::duration;
  using time_point = std::chrono::time_point<timeline>;
  static constexpr bool is_steady = true;
};

using time_point = timeline::time_point;

/// "Never": later than every deadline.
inline constexpr time_point never = time_point::max();

}  // namespace weft
