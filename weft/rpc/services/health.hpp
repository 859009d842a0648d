#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <weft/rpc/handler.hpp>

namespace weft::rpc::services {

namespace detail {
class health_board;
}

/// grpc.health.v1.HealthCheckResponse.ServingStatus.
enum class serving_status : std::uint8_t { unknown = 0, serving = 1, not_serving = 2 };

/// What load balancers and orchestrators ask a server by gRPC's health protocol
/// (grpc.health.v1.Health: Check, Watch, List). One of these serves all shards. Thread-safe.
class health {
 public:
  /// The whole server, whose name is "", is `serving`.
  health();
  ~health();
  health(const health&) = delete;
  health& operator=(const health&) = delete;

  /// Takes effect for `Watch` at once. Ignored after `shut_down`.
  void set(std::string_view service, serving_status status);
  /// `not_serving`, for all services and for good: call it before a server drains.
  void shut_down();

  /// The handler of one shard, which lives as long as it. May outlive this.
  std::shared_ptr<service_handler> make_handler(io::shard& shard) const;

 private:
  std::shared_ptr<detail::health_board> board_;
};

}  // namespace weft::rpc::services
