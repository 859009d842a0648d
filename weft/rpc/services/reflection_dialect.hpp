// Internal: the messages of gRPC's server reflection, as both its server and its client need them.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include <google/protobuf/message.h>

#include <weft/rpc/services/own_schema.hpp>
#include <weft/rpc/services/reflection.hpp>

namespace weft::rpc::services {

/// One version: its names, its messages, its descriptor.
struct dialect {
  explicit dialect(std::string_view version);
  dialect(const dialect&) = delete;
  dialect& operator=(const dialect&) = delete;

  /// "ServerReflectionRequest" and the like.
  std::unique_ptr<google::protobuf::Message> make(const char* type) const;

  std::string package;
  own_schema schema;
  std::string service_name, path;
  std::array<method, 1> methods;
  std::array<std::string_view, 1> files;
  service self;
};

const dialect& dialect_of(reflection_version version);

/// A message's fields by their names.
class fields {
 public:
  explicit fields(google::protobuf::Message& of) noexcept : of_{of} {}

  std::string text(const char* name) const { return reflection().GetString(of_, field(name)); }
  int number(const char* name) const { return reflection().GetInt32(of_, field(name)); }
  std::string text(const char* name, int index) const {
    return reflection().GetRepeatedString(of_, field(name), index);
  }
  int count(const char* name) const { return reflection().FieldSize(of_, field(name)); }
  void set(const char* name, std::string value) {
    reflection().SetString(&of_, field(name), std::move(value));
  }
  void set(const char* name, int value) { reflection().SetInt32(&of_, field(name), value); }
  void append(const char* name, std::string value) {
    reflection().AddString(&of_, field(name), std::move(value));
  }
  void append(const char* name, int value) { reflection().AddInt32(&of_, field(name), value); }
  fields nested(const char* name) {
    return fields{*reflection().MutableMessage(&of_, field(name))};
  }
  fields nested(const char* name, int index) {
    return fields{*reflection().MutableRepeatedMessage(&of_, field(name), index)};
  }
  fields append(const char* name) { return fields{*reflection().AddMessage(&of_, field(name))}; }
  void assign(const google::protobuf::Message& from) { of_.CopyFrom(from); }
  /// Which of a oneof's fields is there, if any.
  std::string_view chosen(const char* oneof) const {
    const auto* one = of_.GetDescriptor()->FindOneofByName(oneof);
    const auto* which = reflection().GetOneofFieldDescriptor(of_, one);
    return which ? std::string_view{which->name()} : std::string_view{};
  }

 private:
  const google::protobuf::Reflection& reflection() const { return *of_.GetReflection(); }
  const google::protobuf::FieldDescriptor* field(const char* name) const {
    return of_.GetDescriptor()->FindFieldByName(name);
  }
  google::protobuf::Message& of_;
};

}  // namespace weft::rpc::services
