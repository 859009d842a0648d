#pragma once

#include <cstdint>

#include <weft/rpc/core/payload.hpp>
#include <weft/rpc/core/status.hpp>

namespace google::protobuf {
class MessageLite;
}

// Protocol buffers ⇄ payloads. The message classes are those of protoc's C++ code; their library is
// named here only to declare the base class.

namespace weft::rpc {
namespace detail {
/// invalid_argument, naming the type, when the bytes do not parse.
result<> parse(google::protobuf::MessageLite& target, const payload& from);
result<outgoing> encode(const google::protobuf::MessageLite& message);
}  // namespace detail

/// From the binary form or, where the payload says so, from JSON, whose unknown fields are ignored.
/// invalid_argument, naming the type, when the bytes do not parse.
template <class Message>
result<Message> decode(const payload& from) {
  Message message;
  if (auto parsed = detail::parse(message, from); !parsed)
    return std::unexpected{std::move(parsed).error()};
  return message;
}

/// Refers to `message`, which must outlive the result. `internal` beyond 2 GiB.
template <class Message>
result<outgoing> encode(const Message& message) {
  return detail::encode(message);
}

}  // namespace weft::rpc
