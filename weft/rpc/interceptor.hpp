#pragma once

#include <functional>
#include <memory>

#include <weft/rpc/call.hpp>

namespace weft::rpc {

/// Runs around every call of a server: authentication, logging, metrics. Stateless or shard-safe:
/// one instance serves all shards.
class server_interceptor {
 public:
  using next = std::function<task<status>(server_call&)>;
  virtual ~server_interceptor() = default;
  /// Returns the call's status; calls `proceed(call)` at most once to run what is further in. May
  /// pass a `server_call` of its own that wraps `call`.
  virtual task<status> intercept(server_call& call, next proceed) = 0;
};

/// Runs around the start of every call of a channel.
class client_interceptor {
 public:
  using next = std::function<task<result<std::unique_ptr<client_call>>>(const method&, call_options,
                                                                        time_point)>;
  virtual ~client_interceptor() = default;
  virtual task<result<std::unique_ptr<client_call>>> intercept(const method& m,
                                                               call_options options,
                                                               time_point deadline,
                                                               next proceed) = 0;
};

}  // namespace weft::rpc
