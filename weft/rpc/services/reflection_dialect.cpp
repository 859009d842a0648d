#include <weft/rpc/services/reflection_dialect.hpp>

namespace weft::rpc::services {
namespace {

// The names and numbers of gRPC's server reflection protocol, behind its package.
constexpr std::string_view proto = R"(
message ServerReflectionRequest {
  string host = 1;
  oneof message_request {
    string file_by_filename = 3;
    string file_containing_symbol = 4;
    ExtensionRequest file_containing_extension = 5;
    string all_extension_numbers_of_type = 6;
    string list_services = 7;
  }
}
message ExtensionRequest { string containing_type = 1; int32 extension_number = 2; }
message ServerReflectionResponse {
  string valid_host = 1;
  ServerReflectionRequest original_request = 2;
  oneof message_response {
    FileDescriptorResponse file_descriptor_response = 4;
    ExtensionNumberResponse all_extension_numbers_response = 5;
    ListServiceResponse list_services_response = 6;
    ErrorResponse error_response = 7;
  }
}
message FileDescriptorResponse { repeated bytes file_descriptor_proto = 1; }
message ExtensionNumberResponse { string base_type_name = 1; repeated int32 extension_number = 2; }
message ListServiceResponse { repeated ServiceResponse service = 1; }
message ServiceResponse { string name = 1; }
message ErrorResponse { int32 error_code = 1; string error_message = 2; }
service ServerReflection {
  rpc ServerReflectionInfo(stream ServerReflectionRequest) returns (stream ServerReflectionResponse);
}
)";

}  // namespace

dialect::dialect(std::string_view version)
    : package{"grpc.reflection." + std::string{version}},
      schema{"grpc/reflection/" + std::string{version} + "/reflection.proto",
             "syntax = \"proto3\"; package " + package + ";" + std::string{proto}},
      service_name{package + ".ServerReflection"},
      path{"/" + service_name + "/ServerReflectionInfo"},
      methods{{{.path = path,
                .service = service_name,
                .name = "ServerReflectionInfo",
                .kind = call_kind::bidi_streaming,
                .level = idempotency::no_side_effects}}},
      files{schema.serialized()},
      self{service_name, methods, files} {}

std::unique_ptr<google::protobuf::Message> dialect::make(const char* type) const {
  return schema.make(package + "." + type);
}

const dialect& dialect_of(reflection_version version) {
  static const dialect v1{"v1"}, v1alpha{"v1alpha"};
  return version == reflection_version::v1 ? v1 : v1alpha;
}

}  // namespace weft::rpc::services
