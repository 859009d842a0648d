#include <weft/rpc/services/own_schema.hpp>

#include <stdexcept>

#include <google/protobuf/compiler/parser.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

namespace weft::rpc::services {
namespace {

namespace pb = google::protobuf;

class complaints final : public pb::io::ErrorCollector {
 public:
  void AddError(int line, pb::io::ColumnNumber, const std::string& message) override {
    text += "line " + std::to_string(line + 1) + ": " + message + "; ";
  }
  std::string text;
};

}  // namespace

own_schema::own_schema(std::string file, std::string_view text) : factory_{&pool_} {
  complaints found;
  pb::io::ArrayInputStream stream{text.data(), static_cast<int>(text.size())};
  pb::io::Tokenizer words{&stream, &found};
  pb::compiler::Parser parser;
  parser.RecordErrorsTo(&found);
  pb::FileDescriptorProto proto;
  proto.set_name(std::move(file));
  if (!parser.Parse(&words, &proto) || !pool_.BuildFile(proto))
    throw std::logic_error{proto.name() + " is no .proto: " + found.text};
  serialized_ = proto.SerializeAsString();
}

std::unique_ptr<pb::Message> own_schema::make(std::string_view type) const {
  const auto* described = pool_.FindMessageTypeByName(std::string{type});
  if (!described) throw std::logic_error{"no message type " + std::string{type}};
  return std::unique_ptr<pb::Message>{factory_.GetPrototype(described)->New()};
}

}  // namespace weft::rpc::services
