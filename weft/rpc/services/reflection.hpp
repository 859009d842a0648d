#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <weft/rpc/handler.hpp>

namespace weft::rpc::services {

/// gRPC server reflection: what grpcurl, buf curl and Postman ask a server for its services and
/// their descriptors. The two versions have the same messages; older tools know only the second.
enum class reflection_version { v1, v1alpha };

/// `served` tells the services at the moment of each question; a router's `services()`.
std::shared_ptr<service_handler> make_reflection(
    reflection_version version, std::function<std::vector<const service*>()> served);

}  // namespace weft::rpc::services
