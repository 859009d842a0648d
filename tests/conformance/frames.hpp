#pragma once

#include <optional>
#include <string>

#include <google/protobuf/message_lite.h>

// How the suite's runner talks to what it tests: on standard input and output, messages behind a
// length of four bytes, big-endian.

namespace weft::conformance {

/// Waits for the next message. Nothing at the end, or when it does not parse.
std::optional<std::string> read_frame();
template <class Message>
std::optional<Message> read_message() {
  auto frame = read_frame();
  Message message;
  if (!frame || !message.ParseFromString(*frame)) return std::nullopt;
  return message;
}

/// Writes all of it at once.
void write_message(const google::protobuf::MessageLite& message);

}  // namespace weft::conformance
