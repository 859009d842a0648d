#include <weft/rpc/services/reflection.hpp>

#include <optional>
#include <string>
#include <unordered_set>

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/descriptor_database.h>

#include <weft/rpc/services/reflection_dialect.hpp>

namespace weft::rpc::services {
namespace {

namespace pb = google::protobuf;

/// The descriptors of all services, by file, symbol and extension.
class index {
 public:
  explicit index(const std::vector<const service*>& services) {
    for (const service* each : services) {
      names_.emplace_back(each->name);
      for (const std::string_view file : each->files) add(file);
    }
  }

  const std::vector<std::string>& services() const noexcept { return names_; }
  std::optional<pb::FileDescriptorProto> file(const std::string& name) {
    return found([&](auto* out) { return files_.FindFileByName(name, out); });
  }
  std::optional<pb::FileDescriptorProto> containing(const std::string& symbol) {
    return found([&](auto* out) { return files_.FindFileContainingSymbol(symbol, out); });
  }
  std::optional<pb::FileDescriptorProto> extension(const std::string& type, int number) {
    return found([&](auto* out) { return files_.FindFileContainingExtension(type, number, out); });
  }
  std::optional<std::vector<int>> extensions(const std::string& type) {
    std::vector<int> numbers;
    if (files_.FindAllExtensionNumbers(type, &numbers)) return numbers;
    if (containing(type)) return numbers;  // a type without extensions
    return std::nullopt;
  }

 private:
  template <class Find>
  std::optional<pb::FileDescriptorProto> found(Find find) {
    pb::FileDescriptorProto file;
    if (!find(&file)) return std::nullopt;
    return file;
  }
  void add(std::string_view serialized) {
    pb::FileDescriptorProto file;
    if (!file.ParseFromArray(serialized.data(), static_cast<int>(serialized.size()))) return;
    if (seen_.insert(file.name()).second) files_.Add(file);
  }

  std::vector<std::string> names_;
  std::unordered_set<std::string> seen_;
  pb::SimpleDescriptorDatabase files_;
};

class reflection_handler final : public service_handler {
 public:
  reflection_handler(const dialect& speaks, std::function<std::vector<const service*>()> served)
      : speaks_{speaks}, served_{std::move(served)} {}

  const service& descriptor() const noexcept override { return speaks_.self; }

  task<status> invoke(std::size_t, server_context&, server_call& call) override {
    index known{served_()};
    for (;;) {
      auto asked = speaks_.make("ServerReflectionRequest");
      auto read = co_await read_into(call, *asked);
      if (!read) co_return std::move(read).error();
      if (!*read) co_return status{};
      const auto answer = speaks_.make("ServerReflectionResponse");
      respond(known, *asked, fields{*answer});
      if (auto written = co_await write(call, *answer); !written)
        co_return std::move(written).error();
    }
  }

 private:
  static void respond(index& known, pb::Message& request, fields answer) {
    const fields asked{request};
    answer.set("valid_host", asked.text("host"));
    answer.nested("original_request").assign(request);
    const std::string_view question = asked.chosen("message_request");
    if (question == "list_services") return list(known, answer.nested("list_services_response"));
    if (question == "file_by_filename") {
      const std::string name = asked.text("file_by_filename");
      return files(known, known.file(name), "file " + name, answer);
    }
    if (question == "file_containing_symbol") {
      const std::string symbol = asked.text("file_containing_symbol");
      return files(known, known.containing(symbol), "symbol " + symbol, answer);
    }
    if (question == "file_containing_extension") {
      fields wanted = fields{request}.nested("file_containing_extension");
      const std::string type = wanted.text("containing_type");
      const int number = wanted.number("extension_number");
      return files(known, known.extension(type, number),
                   "extension " + std::to_string(number) + " of " + type, answer);
    }
    if (question == "all_extension_numbers_of_type")
      return extensions(known, asked.text("all_extension_numbers_of_type"), answer);
    fault(answer, code::invalid_argument, "the request asks for nothing");
  }

  static void list(const index& known, fields answer) {
    for (const std::string& name : known.services()) answer.append("service").set("name", name);
  }

  /// `first` and all that it imports: what a client needs to use it.
  static void files(index& known, std::optional<pb::FileDescriptorProto> first,
                    const std::string& what, fields answer) {
    if (!first) return fault(answer, code::not_found, "no " + what + " is served here");
    fields list = answer.nested("file_descriptor_response");
    std::vector<pb::FileDescriptorProto> pending{std::move(*first)};
    std::unordered_set<std::string> sent{pending.front().name()};
    while (!pending.empty()) {
      const pb::FileDescriptorProto file = std::move(pending.back());
      pending.pop_back();
      list.append("file_descriptor_proto", file.SerializeAsString());
      for (const std::string& import : file.dependency())
        if (sent.insert(import).second)
          if (auto imported = known.file(import)) pending.push_back(std::move(*imported));
    }
  }

  static void extensions(index& known, const std::string& type, fields answer) {
    const auto numbers = known.extensions(type);
    if (!numbers) return fault(answer, code::not_found, "no type " + type + " is served here");
    fields list = answer.nested("all_extension_numbers_response");
    list.set("base_type_name", type);
    for (const int number : *numbers) list.append("extension_number", number);
  }

  static void fault(fields answer, code c, std::string message) {
    fields error = answer.nested("error_response");
    error.set("error_code", static_cast<int>(c));
    error.set("error_message", std::move(message));
  }

  const dialect& speaks_;
  std::function<std::vector<const service*>()> served_;
};

}  // namespace

std::shared_ptr<service_handler> make_reflection(
    reflection_version version, std::function<std::vector<const service*>()> served) {
  return std::make_shared<reflection_handler>(dialect_of(version), std::move(served));
}

}  // namespace weft::rpc::services
