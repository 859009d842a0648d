// For tests: HTTP/2 frames written by hand, as no library would.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::http::frames {

enum type : std::uint8_t {
  data = 0,
  headers = 1,
  priority = 2,
  rst_stream = 3,
  settings = 4,
  ping = 6,
  goaway = 7,
  window_update = 8,
  continuation = 9,
};
enum flag : std::uint8_t { none = 0, end_stream = 1, ack = 1, end_headers = 4 };

inline std::string number(std::uint32_t value, int bytes) {
  std::string out;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
    out += static_cast<char>(value >> shift & 0xff);
  return out;
}

inline std::string frame(std::uint8_t type, std::uint8_t flags, std::uint32_t stream,
                         std::string_view payload) {
  return number(static_cast<std::uint32_t>(payload.size()), 3) + static_cast<char>(type) +
         static_cast<char>(flags) + number(stream, 4) + std::string{payload};
}

inline const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
inline std::string greeting() {
  return preface + frame(settings, none, 0, {});
}

using lines = std::vector<std::pair<std::string, std::string>>;

/// A length of 7 bits' prefix (RFC 7541 §5.1).
inline std::string hpack_length(std::size_t value) {
  std::string out;
  if (value < 127) return out += static_cast<char>(value);
  out += static_cast<char>(127);
  for (value -= 127; value >= 128; value /= 128) out += static_cast<char>(value % 128 + 128);
  return out += static_cast<char>(value);
}

/// Literals without indexing.
inline std::string hpack(const lines& fields) {
  std::string out;
  for (const auto& [name, value] : fields)
    out += std::string(1, '\0') + hpack_length(name.size()) + name + hpack_length(value.size()) +
           value;
  return out;
}

inline lines request_lines(lines more = {}) {
  lines all{{":method", "POST"}, {":scheme", "https"}, {":authority", "a.example"}, {":path", "/"}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

inline std::string request(std::uint32_t stream, bool end, lines more = {}) {
  return frame(headers, static_cast<std::uint8_t>(end_headers | (end ? end_stream : none)), stream,
               hpack(request_lines(std::move(more))));
}

struct seen_frame {
  std::uint8_t type, flags;
  std::uint32_t stream;
  std::string payload;
};

/// What a peer sent, cut into frames.
inline std::vector<seen_frame> cut(std::string_view from) {
  std::vector<seen_frame> all;
  const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(from[i]); };
  const auto big = [&](std::size_t i, int count) {
    std::uint32_t value = 0;
    for (int k = 0; k < count; ++k) value = value << 8 | at(i + static_cast<std::size_t>(k));
    return value;
  };
  if (from.starts_with(preface)) from.remove_prefix(preface.size());
  while (from.size() >= 9) {
    const std::size_t size = big(0, 3);
    if (from.size() < 9 + size) break;
    all.push_back({at(3), at(4), big(5, 4), std::string{from.substr(9, size)}});
    from.remove_prefix(9 + size);
  }
  return all;
}

}  // namespace weft::http::frames
