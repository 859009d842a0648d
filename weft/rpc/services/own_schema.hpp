// Internal: messages of services that others define, known to nobody but the service that speaks
// them.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/dynamic_message.h>

#include <weft/rpc/codec.hpp>
#include <weft/rpc/handler.hpp>

namespace weft::rpc::services {

/// One .proto, read at run time into a pool of its own. Generated classes would register its types
/// for the whole process, and a program that also links gRPC's own generated code for the same file
/// would end before main.
class own_schema {
 public:
  /// `text` is the program's own: one that does not parse ends it.
  own_schema(std::string file, std::string_view text);

  std::unique_ptr<google::protobuf::Message> make(std::string_view type) const;
  /// google.protobuf.FileDescriptorProto, serialized.
  const std::string& serialized() const noexcept { return serialized_; }

 private:
  google::protobuf::DescriptorPool pool_;
  mutable google::protobuf::DynamicMessageFactory factory_;
  std::string serialized_;
};

/// Reads the next request into `target`; false at the end.
inline task<result<bool>> read_into(server_call& call, google::protobuf::Message& target) {
  auto next = co_await call.read();
  if (!next) co_return std::unexpected{std::move(next).error()};
  if (!*next) co_return false;
  if (auto parsed = rpc::detail::parse(target, **next); !parsed)
    co_return std::unexpected{std::move(parsed).error()};
  co_return true;
}

/// As `read_single`.
inline task<result<>> read_only(server_call& call, google::protobuf::Message& target) {
  auto first = co_await read_into(call, target);
  if (!first) co_return std::unexpected{std::move(first).error()};
  if (!*first) co_return fail(code::unimplemented, "the call needs one request message, got none");
  auto second = co_await call.read();
  if (!second) co_return std::unexpected{std::move(second).error()};
  if (*second) co_return fail(code::unimplemented, "the call takes one request message, got more");
  co_return result<>{};
}

inline task<result<>> write(server_call& call, const google::protobuf::Message& message) {
  auto encoded = rpc::encode(message);
  if (!encoded) co_return std::unexpected{std::move(encoded).error()};
  co_return co_await call.write(*encoded);
}

}  // namespace weft::rpc::services
