#include "frames.hpp"

#include <cstdint>
#include <cstdio>

namespace weft::conformance {
namespace {

bool read_exactly(std::string& into) {
  return into.empty() || std::fread(into.data(), 1, into.size(), stdin) == into.size();
}

}  // namespace

std::optional<std::string> read_frame() {
  std::string head(4, '\0');
  if (!read_exactly(head)) return std::nullopt;
  std::uint32_t size = 0;
  for (const char c : head) size = size << 8 | static_cast<unsigned char>(c);
  std::string frame(size, '\0');
  if (!read_exactly(frame)) return std::nullopt;
  return frame;
}

void write_message(const google::protobuf::MessageLite& message) {
  const std::string content = message.SerializeAsString();
  const auto size = static_cast<std::uint32_t>(content.size());
  std::string frame;
  for (int shift = 24; shift >= 0; shift -= 8) frame.push_back(static_cast<char>(size >> shift));
  frame += content;
  std::fwrite(frame.data(), 1, frame.size(), stdout);
  std::fflush(stdout);
}

}  // namespace weft::conformance
