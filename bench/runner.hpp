#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <weft/io/shard.hpp>

#include "peer.hpp"
#include "scenario.hpp"
#include "statistics.hpp"

namespace weft::bench {

struct plan {
  std::vector<const scenario*> scenarios;
  std::vector<variant> variants;
  unsigned repetitions = 5;
  duration warm_up{};
  duration measured{};
};

/// Runs a plan from one shard against the server process: every repetition visits all scenarios,
/// every scenario all variants in turn, so that drift of the machine meets all alike.
class runner {
 public:
  using progress = std::function<void(unsigned done, unsigned total, const std::string& now)>;

  runner(io::shard& shard, const peer_ports& ports, plan what, progress tell);
  ~runner();

  /// Fills `into`; an error when a call failed or bytes did not arrive as sent.
  task<weft::result<>> run(results& into);

 private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace weft::bench
