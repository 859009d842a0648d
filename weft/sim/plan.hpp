#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <weft/base/time.hpp>
#include <weft/sim/random.hpp>

namespace weft::sim {

using namespace std::chrono_literals;

/// What one end does with its half of a stream and with what it receives.
struct half_plan {
  std::uint64_t size = 0;                 ///< bytes it sends, unless something stops it
  std::size_t chunk = 16 * 1024;          ///< bytes a write
  duration finish_later{};                ///< pause between the last write and `finish()`
  std::optional<std::uint64_t> reset_at;  ///< resets its direction after writing this much
  std::optional<std::uint64_t> stop_at;   ///< STOP_SENDING after reading this much
  std::optional<std::uint64_t>
      abandon_at;  ///< releases the stream after reading or writing this much
  std::size_t read_limit = static_cast<std::size_t>(-1);  ///< bytes a read
  duration read_pause{};       ///< between reads; zero: reads whatever comes at once
  bool wait_closed = true;     ///< releases after `closed`, else as soon as it is done itself
  bool answer_at_end = false;  ///< sends only once all of the peer's bytes are read
};

struct stream_plan {
  std::uint64_t key = 0;  ///< of the patterns; direction 0 is the opener's
  bool bidirectional = true;
  bool by_server = false;
  duration start{};
  std::uint8_t urgency = 3;
  bool incremental = true;
  half_plan opener;
  half_plan responder;

  std::uint64_t pattern(int direction) const noexcept {
    return scramble(key + static_cast<std::uint64_t>(direction));
  }
};

struct datagram_plan {
  bool by_server = false;
  duration start{};
  std::size_t size = 0;
};

/// Everything two ends of one connection do, as drawn from a seed.
struct traffic_plan {
  std::vector<stream_plan> streams;
  std::vector<datagram_plan> datagrams;
  std::vector<std::pair<duration, bool>> key_updates;  ///< when, by the server?
};

struct traffic_options {
  std::size_t streams = 30;
  std::uint64_t largest = 100'000;  ///< bytes of one direction
  duration spread = 500ms;          ///< streams start within this
  double trouble = 0.3;             ///< share of streams with resets, stops or abandonment
  double slow = 0.15;               ///< share of slow readers
  std::size_t datagrams = 20;
  std::size_t datagram_size = 1000;
  std::size_t key_updates = 2;
};

traffic_plan draw_plan(random& source, const traffic_options& options);

}  // namespace weft::sim
