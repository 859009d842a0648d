#include <weft/rpc/http/wire/percent.hpp>

namespace weft::rpc::http::wire {
namespace {

constexpr std::string_view hexadecimal = "0123456789ABCDEF";

template <class Plain>
std::string encode(std::string_view text, Plain is_plain) {
  std::string encoded;
  encoded.reserve(text.size());
  for (const char c : text) {
    if (is_plain(c)) {
      encoded.push_back(c);
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    encoded.push_back('%');
    encoded.push_back(hexadecimal[byte >> 4]);
    encoded.push_back(hexadecimal[byte & 15]);
  }
  return encoded;
}

int digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

std::string decode(std::string_view text, bool plus_is_space) {
  std::string decoded;
  decoded.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 &&
        digit(text[i + 2]) >= 0) {
      decoded.push_back(static_cast<char>(digit(text[i + 1]) << 4 | digit(text[i + 2])));
      i += 2;
    } else {
      decoded.push_back(plus_is_space && text[i] == '+' ? ' ' : text[i]);
    }
  }
  return decoded;
}

}  // namespace

std::string encode_message(std::string_view text) {
  std::string encoded = encode(text, [](char c) { return c >= ' ' && c <= '~' && c != '%'; });
  if (encoded.ends_with(' ')) encoded.replace(encoded.size() - 1, 1, "%20");
  if (encoded.starts_with(' ')) encoded.replace(0, 1, "%20");
  return encoded;
}

std::string decode_message(std::string_view text) {
  return decode(text, false);
}

std::string encode_query(std::string_view text) {
  return encode(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view{"-._~"}.contains(c);
  });
}

std::string decode_query(std::string_view text) {
  return decode(text, true);
}

std::optional<std::string_view> find_query(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const auto equals = pair.find('=');
    const std::string_view key = pair.substr(0, equals);
    if (key != name && decode_query(key) != name) continue;
    return equals == pair.npos ? std::string_view{} : pair.substr(equals + 1);
  }
  return std::nullopt;
}

}  // namespace weft::rpc::http::wire
