#pragma once

#include <google/protobuf/compiler/code_generator.h>

namespace weft::generator {

/// Writes `x.weft.h` and `x.weft.cc` for `x.proto`: of each service a handler interface, a client,
/// and a method table with the descriptors of the file and all it imports.
class generator final : public google::protobuf::compiler::CodeGenerator {
 public:
  bool Generate(const google::protobuf::FileDescriptor* file, const std::string& parameter,
                google::protobuf::compiler::GeneratorContext* context,
                std::string* error) const override;
  std::uint64_t GetSupportedFeatures() const override { return FEATURE_PROTO3_OPTIONAL; }
};

}  // namespace weft::generator
