#include <weft/rpc/services/reflection_client.hpp>

#include <map>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include <google/protobuf/descriptor.pb.h>

#include <weft/rpc/services/reflection_dialect.hpp>

namespace weft::rpc::services {
namespace {

namespace pb = google::protobuf;

/// One call of a server's reflection: questions and answers in turn.
class conversation {
 public:
  conversation(const dialect& speaks, std::unique_ptr<client_call> call) noexcept
      : speaks_{speaks}, call_{std::move(call)} {}

  static task<result<conversation>> begin(caller& from, const dialect& speaks,
                                          call_options options) {
    auto call = co_await from.start(speaks.methods.front(), std::move(options));
    if (!call) co_return std::unexpected{std::move(call).error()};
    co_return conversation{speaks, std::move(*call)};
  }

  task<result<std::vector<std::string>>> services() {
    auto answer = co_await ask("list_services", "*", "list_services_response");
    if (!answer) co_return std::unexpected{std::move(answer).error()};
    std::vector<std::string> names;
    fields list = fields{**answer}.nested("list_services_response");
    for (int i = 0; i < list.count("service"); ++i)
      names.push_back(list.nested("service", i).text("name"));
    co_return names;
  }

  /// Serialized descriptors: the file that was asked for, and perhaps some that it imports.
  task<result<std::vector<std::string>>> files(const char* question, std::string of) {
    auto answer = co_await ask(question, std::move(of), "file_descriptor_response");
    if (!answer) co_return std::unexpected{std::move(answer).error()};
    const fields got = fields{**answer}.nested("file_descriptor_response");
    std::vector<std::string> all;
    for (int i = 0; i < got.count("file_descriptor_proto"); ++i)
      all.push_back(got.text("file_descriptor_proto", i));
    co_return all;
  }

 private:
  task<result<std::unique_ptr<pb::Message>>> ask(const char* question, std::string of,
                                                 std::string_view wanted) {
    const auto request = speaks_.make("ServerReflectionRequest");
    fields{*request}.set(question, of);
    auto encoded = encode(*request);
    if (!encoded) co_return std::unexpected{std::move(encoded).error()};
    // A failed write has its cause in the call's status, which the read reports.
    (void)co_await call_->write(*encoded, false);
    auto reply = co_await call_->read();
    if (!reply) co_return std::unexpected{std::move(reply).error()};
    if (!*reply) co_return fail(code::internal, "the server's reflection ended without an answer");
    auto answer = speaks_.make("ServerReflectionResponse");
    if (!rpc::detail::parse(*answer, **reply))
      co_return fail(code::internal, "the reply is no " + speaks_.package + " message");
    const std::string_view chosen = fields{*answer}.chosen("message_response");
    if (chosen == wanted) co_return answer;
    if (chosen != "error_response")
      co_return fail(code::internal, "the server's reflection answered another question");
    const fields error = fields{*answer}.nested("error_response");
    const auto why = code_from_number(static_cast<std::uint64_t>(error.number("error_code")));
    co_return fail(why == code::ok ? code::unknown : why,
                   "reflection of \"" + of + "\": " + error.text("error_message"));
  }

  const dialect& speaks_;
  std::unique_ptr<client_call> call_;
};

/// Files by name, until they hold all that they import.
class collection {
 public:
  explicit collection(reflection_limits most) noexcept : most_{most} {}

  result<> add(const std::vector<std::string>& serialized) {
    for (const std::string& each : serialized)
      if (auto added = add(each); !added) return added;
    return {};
  }

  /// A file that is imported but not there.
  std::optional<std::string> missing() const {
    if (missing_.empty()) return std::nullopt;
    return *missing_.begin();
  }
  bool has(const std::string& name) const { return files_.contains(name); }

  /// Files that every program with protobuf has; some servers do not send them.
  bool add_own(const std::string& name) {
    const auto* known = pb::DescriptorPool::generated_pool()->FindFileByName(name);
    if (!known || !name.starts_with("google/protobuf/")) return false;
    pb::FileDescriptorProto copy;
    known->CopyTo(&copy);
    insert(std::move(copy));
    return true;
  }

  /// Imports first.
  result<schema> parsed() const {
    pb::FileDescriptorSet set;
    std::unordered_set<std::string> placed;
    std::map<std::string, std::vector<const pb::FileDescriptorProto*>> waiting;
    std::vector<const pb::FileDescriptorProto*> ready;
    for (const auto& [name, file] : files_) place_or_wait(file, placed, waiting, ready);
    while (!ready.empty()) {
      const auto* file = ready.back();
      ready.pop_back();
      *set.add_file() = *file;
      placed.insert(file->name());
      for (const auto* next : std::exchange(waiting[file->name()], {}))
        place_or_wait(*next, placed, waiting, ready);
    }
    if (placed.size() != files_.size())
      return fail(code::internal, "the server's descriptors import each other in a circle");
    const std::string text = set.SerializeAsString();
    auto made = schema::parse(as_bytes(text));
    if (made) return std::move(*made);
    return fail(code::internal,
                "the server's descriptors do not hold together: " + made.error().message());
  }

 private:
  using pointers = std::vector<const pb::FileDescriptorProto*>;

  /// `file` is ready, or waits for the first of its imports that is not placed.
  static void place_or_wait(const pb::FileDescriptorProto& file,
                            const std::unordered_set<std::string>& placed,
                            std::map<std::string, pointers>& waiting, pointers& ready) {
    for (const std::string& import : file.dependency())
      if (!placed.contains(import)) return waiting[import].push_back(&file);
    ready.push_back(&file);
  }

  result<> add(const std::string& serialized) {
    bytes_ += serialized.size();
    if (bytes_ > most_.bytes || files_.size() >= most_.files)
      return fail(code::resource_exhausted, "the server's descriptors are more than " +
                                                std::to_string(most_.files) + " files or " +
                                                std::to_string(most_.bytes) + " bytes");
    pb::FileDescriptorProto file;
    if (!file.ParseFromString(serialized) || file.name().empty())
      return fail(code::internal, "the server's reflection sent what is no file descriptor");
    if (!files_.contains(file.name())) insert(std::move(file));
    return {};
  }

  void insert(pb::FileDescriptorProto file) {
    missing_.erase(file.name());
    for (const std::string& import : file.dependency())
      if (import != file.name() && !files_.contains(import)) missing_.insert(import);
    files_.emplace(file.name(), std::move(file));
  }

  reflection_limits most_;
  std::map<std::string, pb::FileDescriptorProto> files_;
  std::set<std::string> missing_;
  std::size_t bytes_ = 0;
};

task<result<schema>> collect(conversation& with, const std::vector<std::string>& services,
                             reflection_limits most) {
  collection all{most};
  for (const std::string& service : services) {
    auto files = co_await with.files("file_containing_symbol", service);
    if (!files) co_return std::unexpected{std::move(files).error()};
    if (auto added = all.add(*files); !added) co_return std::unexpected{std::move(added).error()};
  }
  while (const auto missing = all.missing()) {
    auto files = co_await with.files("file_by_filename", *missing);
    if (!files && all.add_own(*missing)) continue;
    if (!files) co_return std::unexpected{std::move(files).error()};
    if (auto added = all.add(*files); !added) co_return std::unexpected{std::move(added).error()};
    if (!all.has(*missing) && !all.add_own(*missing))
      co_return fail(code::internal,
                     "the server's reflection does not send " + *missing + ", which it imports");
  }
  co_return all.parsed();
}

/// `ask(conversation&)` in the newest version that the server knows.
template <class Answer, class Ask>
task<result<Answer>> in_any_version(caller& from, call_options options, Ask ask) {
  result<Answer> answer = fail(code::unimplemented, "");
  for (const auto version : {reflection_version::v1, reflection_version::v1alpha}) {
    auto begun = co_await conversation::begin(from, dialect_of(version), options);
    if (begun)
      answer = co_await ask(*begun);
    else
      answer = std::unexpected{std::move(begun).error()};
    if (answer || answer.error().code() != code::unimplemented) break;
  }
  co_return answer;
}

}  // namespace

task<result<std::vector<std::string>>> reflected_services(caller& from, call_options options) {
  co_return co_await in_any_version<std::vector<std::string>>(
      from, std::move(options), [](conversation& with) { return with.services(); });
}

task<result<schema>> reflected_schema(caller& from, std::vector<std::string> services,
                                      call_options options, reflection_limits most) {
  co_return co_await in_any_version<schema>(
      from, std::move(options), [&](conversation& with) { return collect(with, services, most); });
}

}  // namespace weft::rpc::services
