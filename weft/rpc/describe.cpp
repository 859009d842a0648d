#include <weft/rpc/describe.hpp>

#include <array>
#include <unordered_set>

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/empty.pb.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/wrappers.pb.h>

namespace weft::rpc::describe {
namespace {

namespace pb = google::protobuf;

constexpr std::array methods{list_services, get_files};

class handler final : public service_handler {
 public:
  explicit handler(std::function<std::vector<const service*>()> served)
      : served_{std::move(served)} {}

  const service& descriptor() const noexcept override { return describe::descriptor(); }

  task<status> invoke(std::size_t method, server_context&, server_call& call) override {
    if (method == 0) {
      auto request = co_await read_single<pb::Empty>(call);
      if (!request) co_return std::move(request).error();
      co_return co_await write_reply<pb::ListValue>(call, names());
    }
    auto request = co_await read_single<pb::StringValue>(call);
    if (!request) co_return std::move(request).error();
    co_return co_await write_reply<pb::FileDescriptorSet>(call, files(request->value()));
  }

 private:
  pb::ListValue names() const {
    pb::ListValue list;
    for (const service* s : served_()) list.add_values()->set_string_value(std::string{s->name});
    return list;
  }

  result<pb::FileDescriptorSet> files(std::string_view wanted) const {
    pb::FileDescriptorSet set;
    std::unordered_set<std::string> seen;
    bool found = wanted.empty();
    for (const service* s : served_()) {
      if (!wanted.empty() && s->name != wanted) continue;
      found = true;
      for (const std::string_view file : s->files) {
        pb::FileDescriptorProto parsed;
        if (!parsed.ParseFromArray(file.data(), static_cast<int>(file.size())))
          return fail(code::internal, "the descriptor of " + std::string{s->name} + " is damaged");
        if (seen.insert(parsed.name()).second) *set.add_file() = std::move(parsed);
      }
    }
    if (!found)
      return fail(code::not_found, "no service " + std::string{wanted} + " is served here");
    return set;
  }

  std::function<std::vector<const service*>()> served_;
};

/// What protoc would have made of the comment in the header.
std::string own_file() {
  pb::FileDescriptorProto file;
  file.set_name("weft/describe/v1/describe.proto");
  file.set_package("weft.describe.v1");
  file.set_syntax("proto3");
  file.add_dependency("google/protobuf/descriptor.proto");
  file.add_dependency("google/protobuf/empty.proto");
  file.add_dependency("google/protobuf/struct.proto");
  file.add_dependency("google/protobuf/wrappers.proto");
  auto* described = file.add_service();
  described->set_name("DescribeService");
  const auto add = [&](std::string name, std::string input, std::string output) {
    auto* m = described->add_method();
    m->set_name(std::move(name));
    m->set_input_type(std::move(input));
    m->set_output_type(std::move(output));
    m->mutable_options()->set_idempotency_level(pb::MethodOptions::NO_SIDE_EFFECTS);
  };
  add("ListServices", ".google.protobuf.Empty", ".google.protobuf.ListValue");
  add("GetFiles", ".google.protobuf.StringValue", ".google.protobuf.FileDescriptorSet");
  return file.SerializeAsString();
}

std::string serialized(const pb::FileDescriptor* file) {
  pb::FileDescriptorProto proto;
  file->CopyTo(&proto);
  return proto.SerializeAsString();
}

std::array<std::string, 5> all_files() {
  return {serialized(pb::FileDescriptorProto::descriptor()->file()),
          serialized(pb::Empty::descriptor()->file()),
          serialized(pb::ListValue::descriptor()->file()),
          serialized(pb::StringValue::descriptor()->file()), own_file()};
}

}  // namespace

const service& descriptor() {
  static const auto text = all_files();
  static const std::array<std::string_view, 5> files{text[0], text[1], text[2], text[3], text[4]};
  static const service self{service_name, methods, files};
  return self;
}

std::shared_ptr<service_handler> make_handler(std::function<std::vector<const service*>()> served) {
  return std::make_shared<handler>(std::move(served));
}

}  // namespace weft::rpc::describe
