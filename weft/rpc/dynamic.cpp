#include <weft/rpc/dynamic.hpp>

#include <algorithm>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/wrappers.pb.h>

#include <weft/rpc/describe.hpp>

namespace weft::rpc {
namespace {

namespace pb = google::protobuf;

/// Keeps what the descriptor pool complains about.
class complaints final : public pb::DescriptorPool::ErrorCollector {
 public:
  void AddError(const std::string& file, const std::string& element, const pb::Message*,
                ErrorLocation, const std::string& message) override {
    if (!text.empty()) text += "; ";
    text += file + ": " + element + ": " + message;
  }
  std::string text;
};

call_kind kind_of(const pb::MethodDescriptor& m) noexcept {
  if (m.client_streaming())
    return m.server_streaming() ? call_kind::bidi_streaming : call_kind::client_streaming;
  return m.server_streaming() ? call_kind::server_streaming : call_kind::unary;
}

idempotency level_of(const pb::MethodDescriptor& m) {
  switch (m.options().idempotency_level()) {
    case pb::MethodOptions::NO_SIDE_EFFECTS:
      return idempotency::no_side_effects;
    case pb::MethodOptions::IDEMPOTENT:
      return idempotency::idempotent;
    default:
      return idempotency::unknown;
  }
}

method_description describe_method(const pb::MethodDescriptor& m) {
  return {.path = "/" + m.service()->full_name() + "/" + m.name(),
          .request = m.input_type()->full_name(),
          .reply = m.output_type()->full_name(),
          .kind = kind_of(m),
          .level = level_of(m)};
}

/// "/a.B/C", "a.B/C" and "a.B.C" all name the method C of the service a.B.
std::string dotted(std::string_view method) {
  if (method.starts_with('/')) method.remove_prefix(1);
  std::string name{method};
  std::ranges::replace(name, '/', '.');
  return name;
}

}  // namespace

struct schema::impl {
  pb::DescriptorPool pool;
  std::vector<const pb::ServiceDescriptor*> services;
};

weft::result<schema> schema::parse(bytes file_descriptor_set) {
  pb::FileDescriptorSet set;
  if (!set.ParseFromArray(file_descriptor_set.data(), static_cast<int>(file_descriptor_set.size())))
    return weft::fail(errc::malformed, layer::rpc, "not a google.protobuf.FileDescriptorSet");
  auto made = std::make_shared<impl>();
  for (const auto& file : set.file()) {
    if (made->pool.FindFileByName(file.name())) continue;
    complaints wrong;
    const auto* built = made->pool.BuildFileCollectingErrors(file, &wrong);
    if (!built) return weft::fail(errc::malformed, layer::rpc, wrong.text);
    for (int i = 0; i < built->service_count(); ++i) made->services.push_back(built->service(i));
  }
  schema parsed;
  parsed.impl_ = std::move(made);
  return parsed;
}

task<result<schema>> schema::fetch(caller& from, std::string service, call_options options) {
  pb::StringValue request;
  request.set_value(std::move(service));
  auto set = co_await unary_call<pb::StringValue, pb::FileDescriptorSet>(
      from, describe::get_files, request, std::move(options));
  if (!set) co_return std::unexpected{std::move(set).error()};
  const std::string text = set->SerializeAsString();
  auto parsed = parse(as_bytes(text));
  if (!parsed)
    co_return fail(code::internal,
                   "the server's descriptors do not hold together: " + parsed.error().message());
  co_return std::move(*parsed);
}

std::vector<std::string> schema::services() const {
  std::vector<std::string> names;
  for (const auto* s : impl_->services) names.push_back(s->full_name());
  return names;
}

std::vector<method_description> schema::methods(std::string_view service) const {
  std::vector<method_description> all;
  if (const auto* found = impl_->pool.FindServiceByName(std::string{service}))
    for (int i = 0; i < found->method_count(); ++i)
      all.push_back(describe_method(*found->method(i)));
  return all;
}

struct json_call::impl {
  impl(schema s, const pb::MethodDescriptor& m)
      : known{std::move(s)}, descriptor{m}, description{describe_method(m)} {
    const std::string_view path = description.path;
    target = {.path = path,
              .service = path.substr(1, path.rfind('/') - 1),
              .name = path.substr(path.rfind('/') + 1),
              .kind = description.kind,
              .level = description.level};
  }

  schema known;
  const pb::MethodDescriptor& descriptor;
  method_description description;
  rpc::method target;
  pb::DynamicMessageFactory factory;
  std::unique_ptr<client_call> call;  // refers to `target`

  std::unique_ptr<pb::Message> make(const pb::Descriptor& type) {
    return std::unique_ptr<pb::Message>{factory.GetPrototype(&type)->New()};
  }

  result<std::unique_ptr<pb::Message>> request(const std::string& json) {
    auto message = make(*descriptor.input_type());
    pb::util::JsonParseOptions strict;
    strict.ignore_unknown_fields = false;
    const auto parsed = pb::util::JsonStringToMessage(json, message.get(), strict);
    if (parsed.ok()) return message;
    return fail(code::invalid_argument,
                "the JSON is not a " + description.request + ": " + std::string{parsed.message()});
  }
};

json_call::json_call(std::unique_ptr<impl> i) noexcept : impl_{std::move(i)} {}
json_call::json_call(json_call&&) noexcept = default;
json_call& json_call::operator=(json_call&&) noexcept = default;
json_call::~json_call() = default;

const method_description& json_call::description() const noexcept {
  return impl_->description;
}
client_call& json_call::call() noexcept {
  return *impl_->call;
}

task<result<json_call>> json_call::start(caller& via, schema known, std::string method,
                                         call_options options) {
  const auto* found = known.internals()->pool.FindMethodByName(dotted(method));
  if (!found) co_return fail(code::not_found, "no method " + method + " is known");
  auto made = std::make_unique<impl>(std::move(known), *found);
  auto call = co_await via.start(made->target, std::move(options));
  if (!call) co_return std::unexpected{std::move(call).error()};
  made->call = std::move(*call);
  co_return json_call{std::move(made)};
}

task<result<>> json_call::write(std::string json) {
  auto message = impl_->request(json);
  if (!message) co_return std::unexpected{std::move(message).error()};
  auto encoded = encode(**message);
  if (!encoded) co_return std::unexpected{std::move(encoded).error()};
  co_return co_await impl_->call->write(*encoded, false);
}

result<> json_call::check(const std::string& json) const {
  if (auto message = impl_->request(json); !message)
    return std::unexpected{std::move(message).error()};
  return {};
}

task<result<>> json_call::finish_writing() {
  return impl_->call->finish_writing();
}

task<result<std::optional<std::string>>> json_call::read() {
  auto next = co_await impl_->call->read();
  if (!next) co_return std::unexpected{std::move(next).error()};
  if (!*next) co_return std::optional<std::string>{};
  const auto message = impl_->make(*impl_->descriptor.output_type());
  if (!detail::parse(*message, **next))
    co_return fail(code::internal, "the reply is not a " + impl_->description.reply);
  std::string line;
  if (const auto printed = pb::util::MessageToJsonString(*message, &line); !printed.ok())
    co_return fail(code::internal, "the reply has no JSON form: " + std::string{printed.message()});
  co_return std::optional{std::move(line)};
}

task<result<std::string>> call_json(caller& via, schema known, std::string method,
                                    std::string request, call_options options) {
  auto call =
      co_await json_call::start(via, std::move(known), std::move(method), std::move(options));
  if (!call) co_return std::unexpected{std::move(call).error()};
  auto sent = co_await call->write(std::move(request));
  if (!sent && sent.error().code() == code::invalid_argument)
    co_return std::unexpected{std::move(sent).error()};
  // Otherwise a failed write has its cause in the call's status, which the read reports.
  (void)co_await call->finish_writing();
  auto reply = co_await call->read();
  if (!reply) co_return std::unexpected{std::move(reply).error()};
  if (!*reply) co_return fail(code::unimplemented, "the server ended the call without a reply");
  auto end = co_await call->read();
  if (!end) co_return std::unexpected{std::move(end).error()};
  if (*end) co_return fail(code::unimplemented, "the server sent more than one reply");
  co_return std::move(**reply);
}

}  // namespace weft::rpc
