#include <weft/rpc/http/wire/base64.hpp>

#include <array>

namespace weft::rpc::http::wire {
namespace {

constexpr std::string_view common =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
constexpr std::int8_t no_digit = -1;

constexpr char letter(unsigned value, alphabet letters) noexcept {
  if (value < common.size()) return common[value];
  if (letters == alphabet::url) return value == 62 ? '-' : '_';
  return value == 62 ? '+' : '/';
}

constexpr std::array<std::int8_t, 256> digits_of(alphabet letters) noexcept {
  std::array<std::int8_t, 256> digits{};
  digits.fill(no_digit);
  for (unsigned value = 0; value < 64; ++value)
    digits[static_cast<unsigned char>(letter(value, letters))] = static_cast<std::int8_t>(value);
  return digits;
}

constexpr auto standard_digits = digits_of(alphabet::standard);
constexpr auto url_digits = digits_of(alphabet::url);

}  // namespace

std::string base64_encode(bytes from, alphabet letters, bool padding) {
  std::string text;
  text.reserve((from.size() + 2) / 3 * 4);
  for (; !from.empty(); from = from.subspan(std::min<std::size_t>(3, from.size()))) {
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i)
      group = group << 8 | (i < from.size() ? static_cast<std::uint32_t>(from[i]) : 0);
    const std::size_t used = std::min<std::size_t>(from.size(), 3) + 1;
    for (std::size_t i = 0; i < 4; ++i) {
      if (i < used)
        text.push_back(letter(group >> (18 - 6 * i) & 63, letters));
      else if (padding)
        text.push_back('=');
    }
  }
  return text;
}

std::optional<std::string> base64_decode(std::string_view text, alphabet letters) {
  const auto& digits = letters == alphabet::url ? url_digits : standard_digits;
  if (text.ends_with('=')) {
    if (text.size() % 4 != 0) return std::nullopt;
    text.remove_suffix(text.ends_with("==") ? 2 : 1);
  }
  if (text.size() % 4 == 1) return std::nullopt;
  std::string decoded;
  decoded.reserve(text.size() / 4 * 3 + 2);
  std::uint32_t bits = 0;
  unsigned count = 0;
  for (const char c : text) {
    const std::int8_t digit = digits[static_cast<unsigned char>(c)];
    if (digit == no_digit) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    decoded.push_back(static_cast<char>(bits >> count & 0xff));
  }
  return decoded;
}

}  // namespace weft::rpc::http::wire
