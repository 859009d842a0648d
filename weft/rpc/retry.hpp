#pragma once

#include <functional>
#include <memory>
#include <random>

#include <weft/rpc/call.hpp>
#include <weft/rpc/core/retry.hpp>

namespace weft::rpc {

/// Tries failed calls again, for one channel. A call that may be tried again keeps what it sends;
/// it is committed, and behaves as any other from then on, once a response has begun or it has sent
/// more than `retry_options::buffer`. The deadline spans all attempts. Shard's thread only; calls
/// may outlive it, and go on.
class retrier {
 public:
  /// Starts one attempt.
  using starter = std::function<task<result<std::unique_ptr<client_call>>>(
      const method&, call_options, time_point deadline)>;

  retrier(io::shard& shard, retry_options options);
  ~retrier();

  /// `attempt` is copied into a call that may be tried again.
  task<result<std::unique_ptr<client_call>>> start(starter attempt, const method& m,
                                                   call_options options, time_point deadline);

  /// Ends all calls that may be tried again with `why`, also those between two attempts.
  void close(const status& why);

  struct state;

 private:
  std::shared_ptr<state> state_;
};

}  // namespace weft::rpc
