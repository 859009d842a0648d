#include <weft/http/core/event.hpp>

#include <charconv>

namespace weft::http {

bool content_length::expect(const field_list& fields) {
  for (const field each : fields) {
    if (each.name != "content-length") continue;
    std::uint64_t length = 0;
    const char* last = each.value.data() + each.value.size();
    const auto [end, failure] = std::from_chars(each.value.data(), last, length);
    if (failure != std::errc{} || end != last || (expected_ && *expected_ != length)) return false;
    expected_ = length;
  }
  return true;
}

bool content_length::add(std::size_t count) noexcept {
  seen_ += count;
  return !expected_ || seen_ <= *expected_;
}

std::uint8_t urgency_of(const field_list& fields) noexcept {
  constexpr std::uint8_t usual = 3;
  const auto value = fields.find("priority");
  if (!value) return usual;
  // A dictionary (RFC 9651 §3.2); only `u=0` to `u=7` matters here.
  std::string_view rest = *value;
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    std::string_view member = rest.substr(0, comma);
    rest = comma == rest.npos ? std::string_view{} : rest.substr(comma + 1);
    const auto start = member.find_first_not_of(" \t");
    if (start == member.npos) continue;
    member.remove_prefix(start);
    if (member.size() >= 3 && member.starts_with("u=") && member[2] >= '0' && member[2] <= '7' &&
        (member.size() == 3 || member[3] == ' ' || member[3] == ';' || member[3] == '\t'))
      return static_cast<std::uint8_t>(member[2] - '0');
  }
  return usual;
}

}  // namespace weft::http
