#pragma once

#include <cstdint>
#include <string>

#include <weft/rpc/core/payload.hpp>
#include <weft/rpc/core/status.hpp>

namespace google::protobuf {
class MessageLite;
}

// Protocol buffers ⇄ payloads. The message classes are those of protoc's C++ code; their library is
// named here only to declare the base class.

namespace weft::rpc {
namespace detail {
bool parse(google::protobuf::MessageLite& target, const payload& from);
std::string type_name(const google::protobuf::MessageLite& message);
result<outgoing> encode(const google::protobuf::MessageLite& message);
}  // namespace detail

/// invalid_argument, naming the type, when the bytes do not parse.
template <class Message>
result<Message> decode(const payload& from) {
  Message message;
  if (detail::parse(message, from)) return message;
  return fail(code::invalid_argument, "the " + std::to_string(from.size()) +
                                          " bytes received are not a " +
                                          detail::type_name(message));
}

/// Refers to `message`, which must outlive the result. `internal` beyond 2 GiB.
template <class Message>
result<outgoing> encode(const Message& message) {
  return detail::encode(message);
}

}  // namespace weft::rpc
