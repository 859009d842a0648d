#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <weft/io/event.hpp>
#include <weft/rpc/handler.hpp>
#include <weft/rpc/interceptor.hpp>

namespace weft::rpc {

/// Figures of one method on one shard.
struct method_stats {
  std::string_view path;
  std::uint64_t started = 0, succeeded = 0, failed = 0, in_flight = 0;
};

/// The services of one shard: finds a call's method, runs interceptors and handler, counts. Shard's
/// thread only.
class router final : public dispatcher {
 public:
  explicit router(io::shard& shard, std::vector<std::shared_ptr<server_interceptor>> around = {},
                  std::function<void(std::string_view)> log = {});
  ~router() override;

  /// errc::invalid_argument when a service of that name is there.
  weft::result<> add(std::shared_ptr<service_handler> handler);
  /// Takes a service out for new calls; completes when its running calls have ended.
  task<> remove(std::string_view service);
  bool has(std::string_view service) const noexcept;
  std::vector<const service*> services() const;
  std::vector<method_stats> stats() const;

  std::size_t in_flight() const noexcept;
  /// Completes when no call runs.
  task<> idle();

  const method* find(std::string_view path) const noexcept override;
  task<status> dispatch(server_call& call) override;

 private:
  struct impl;
  std::shared_ptr<impl> impl_;  // running calls hold it: their frames may go after the router
};

}  // namespace weft::rpc
