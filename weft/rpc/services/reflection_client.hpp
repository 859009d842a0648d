#pragma once

#include <string>
#include <vector>

#include <weft/rpc/client.hpp>
#include <weft/rpc/dynamic.hpp>

namespace weft::rpc::services {

/// Most that a server's reflection may make a client hold.
struct reflection_limits {
  std::size_t files = 4096;
  std::size_t bytes = std::size_t{64} << 20;
};

/// Asks a server's gRPC reflection for the names of its services: version v1, or, where that is
/// `unimplemented`, v1alpha.
task<result<std::vector<std::string>>> reflected_services(caller& from, call_options options = {});

/// Asks it for these services and all files that they import, which servers send together or one by
/// one. `not_found` when one of them is not served, `internal` when the descriptors do not hold
/// together, `resource_exhausted` beyond `most`.
task<result<schema>> reflected_schema(caller& from, std::vector<std::string> services,
                                      call_options options = {}, reflection_limits most = {});

}  // namespace weft::rpc::services
