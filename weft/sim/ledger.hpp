#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <weft/quic/core/stream.hpp>
#include <weft/sim/plan.hpp>

namespace weft::sim {

/// What happened to one direction of a stream, as both of its ends saw it.
struct direction_record {
  std::uint64_t written = 0;
  std::uint64_t read = 0;
  // The sender's deeds.
  bool finished = false;
  std::optional<std::uint64_t> reset_with;
  bool sender_abandoned = false;            ///< released before it had finished
  std::optional<std::uint64_t> stopped_by;  ///< code of the STOP_SENDING it saw
  // The receiver's deeds and findings.
  bool end_seen = false;
  std::optional<std::uint64_t> reset_seen;
  std::optional<std::uint64_t> stop_with;
  bool receiver_abandoned = false;

  bool orderly() const noexcept {
    return !reset_with && !sender_abandoned && !stopped_by && !stop_with && !receiver_abandoned;
  }
};

struct stream_record {
  const stream_plan* plan = nullptr;
  quic::core::stream_id id = -1;  ///< -1: not opened yet
  bool opener_released = false;
  bool responder_seen = false;
  bool responder_released = false;
  direction_record ways[2];  ///< 0: from the opener

  /// Nobody cut anything short: the responder is bound to see it.
  bool undisturbed() const noexcept { return ways[0].orderly() && ways[1].orderly(); }
  bool settled() const noexcept {
    if (!opener_released) return false;
    return responder_seen ? responder_released : !undisturbed();
  }
};

/// Both ends of a connection write down here what they do and see; the oracle compares.
class ledger {
 public:
  explicit ledger(const traffic_plan& plan);

  std::vector<stream_record> streams;
  std::map<std::uint64_t, int> datagrams_received;  ///< number → copies
  std::uint64_t datagrams_sent = 0;

  void opened(stream_record& record, quic::core::stream_id id);
  stream_record* find(quic::core::stream_id id);

  /// Nothing is left to do for the opener of any stream, nor for responders who saw theirs.
  bool settled() const noexcept;
  /// Broken promises. `orderly`: the connection lived until the end, so that every stream must have
  /// come to its proper end; else only what was delivered is judged.
  std::vector<std::string> judge(bool orderly) const;
  /// One line for each stream not over, for a person.
  std::string describe_unsettled() const;

 private:
  std::map<quic::core::stream_id, stream_record*> by_id_;
};

/// Application error codes that the traffic uses: told apart, so that mix-ups are seen.
std::uint64_t reset_code(const stream_plan& plan, int direction) noexcept;
std::uint64_t stop_code(const stream_plan& plan, int direction) noexcept;
std::uint64_t abandon_code(const stream_plan& plan, bool opener) noexcept;

}  // namespace weft::sim
