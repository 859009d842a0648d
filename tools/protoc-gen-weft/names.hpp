#pragma once

#include <expected>
#include <string>
#include <string_view>

#include <google/protobuf/descriptor.h>

// C++ names of what a .proto declares, as protoc's own C++ code chooses them.

namespace weft::generator {

/// `name`, or `name_` when C++ or the generated class needs the word itself.
std::string method_name(const google::protobuf::MethodDescriptor& method);
std::string service_name(const google::protobuf::ServiceDescriptor& service);
/// "greet::v1"; empty without a package.
std::string package_namespace(const google::protobuf::FileDescriptor& file);
/// "::greet::v1::GreetRequest".
std::string message_type(const google::protobuf::Descriptor& message);
/// "greet/v1/greet" of "greet/v1/greet.proto".
std::string without_extension(std::string_view file);

/// Says what in a file cannot be said in C++, if anything: a package that is a keyword, two methods
/// that would get one name.
std::expected<void, std::string> check_names(const google::protobuf::FileDescriptor& file);

}  // namespace weft::generator
