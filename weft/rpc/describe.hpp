#pragma once

#include <functional>
#include <memory>

#include <weft/rpc/handler.hpp>

namespace weft::rpc {

/// weft.describe.v1.DescribeService: what a server serves, for clients that do not know its .proto.
/// Its messages are protobuf's own, so that any client has them:
///
///   rpc ListServices(google.protobuf.Empty) returns (google.protobuf.ListValue);      // names
///   rpc GetFiles(google.protobuf.StringValue) returns (google.protobuf.FileDescriptorSet);
///
/// GetFiles takes a service's full name, or nothing for all of them; the set contains all that the
/// files import, imports first.
namespace describe {

inline constexpr std::string_view service_name = "weft.describe.v1.DescribeService";
inline constexpr method list_services{.path = "/weft.describe.v1.DescribeService/ListServices",
                                      .service = service_name,
                                      .name = "ListServices",
                                      .kind = call_kind::unary,
                                      .level = idempotency::no_side_effects};
inline constexpr method get_files{.path = "/weft.describe.v1.DescribeService/GetFiles",
                                  .service = service_name,
                                  .name = "GetFiles",
                                  .kind = call_kind::unary,
                                  .level = idempotency::no_side_effects};

const service& descriptor();

/// `served` tells the services at the moment of each call; a router's `services()`.
std::shared_ptr<service_handler> make_handler(std::function<std::vector<const service*>()> served);

}  // namespace describe
}  // namespace weft::rpc
