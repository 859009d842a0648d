#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <weft/rpc/client.hpp>

// Calls by JSON, with message types that are known only at run time.

namespace weft::rpc {

/// One method as a descriptor tells it.
struct method_description {
  std::string path;     ///< "/greet.v1.GreetService/Greet"
  std::string request;  ///< "greet.v1.GreetRequest"
  std::string reply;
  call_kind kind = call_kind::unary;
  idempotency level = idempotency::unknown;
};

/// A set of services known by their descriptors. A shared handle; immutable.
class schema {
 public:
  /// From a serialized google.protobuf.FileDescriptorSet, as `protoc --descriptor_set_out
  /// --include_imports` writes it. errc::malformed, naming the cause, when it does not hold
  /// together.
  static weft::result<schema> parse(bytes file_descriptor_set);
  /// Asks a weft server for one service, or for all that it serves.
  static task<result<schema>> fetch(caller& from, std::string service = {},
                                    call_options options = {});

  std::vector<std::string> services() const;
  /// In the order of the .proto. Empty for an unknown service.
  std::vector<method_description> methods(std::string_view service) const;

  struct impl;
  const std::shared_ptr<const impl>& internals() const noexcept { return impl_; }

 private:
  std::shared_ptr<const impl> impl_;
};

/// A call of any kind whose messages are JSON. Destroying it cancels what is unfinished. At most
/// one pending read and one pending write.
class json_call {
 public:
  /// `method`: "greet.v1.GreetService/Greet", with or without a slash in front, or with a dot for
  /// the last slash. not_found when the schema has none such.
  static task<result<json_call>> start(caller& via, schema known, std::string method,
                                       call_options options = {});
  json_call(json_call&&) noexcept;
  json_call& operator=(json_call&&) noexcept;
  ~json_call();

  const method_description& description() const noexcept;
  /// Sends one message. invalid_argument, saying where, when the JSON is not one or names a field
  /// that the message does not have.
  task<result<>> write(std::string json);
  /// What `write` would say of this JSON, without sending it.
  result<> check(const std::string& json) const;
  task<result<>> finish_writing();
  /// The next reply on one line; nothing at the good end; the call's status otherwise.
  task<result<std::optional<std::string>>> read();
  client_call& call() noexcept;

 private:
  struct impl;
  explicit json_call(std::unique_ptr<impl> i) noexcept;
  std::unique_ptr<impl> impl_;
};

/// A unary call by JSON.
task<result<std::string>> call_json(caller& via, schema known, std::string method,
                                    std::string request, call_options options = {});

}  // namespace weft::rpc
