#include <weft/http/core/fields.hpp>

#include <algorithm>
#include <array>
#include <stdexcept>

namespace weft::http {
namespace {

constexpr std::string_view token_marks = "!#$%&'*+-.^_`|~";  // RFC 9110 §5.6.2

bool is_token_character(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         token_marks.contains(c);
}

char lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool is_valid_name(std::string_view name) noexcept {
  return !name.empty() && std::ranges::all_of(name, is_token_character);
}

bool is_space(char c) noexcept {
  return c == ' ' || c == '\t';
}

bool is_valid_value(std::string_view value) noexcept {
  if (!value.empty() && (is_space(value.front()) || is_space(value.back()))) return false;
  return std::ranges::none_of(value, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\t') || byte == 0x7f;
  });
}

struct code_row {
  give_up why;
  std::uint64_t h3;
  std::uint32_t h2;
  std::string_view text;
};

// RFC 9114 §8.1; RFC 9113 §7.
constexpr std::array<code_row, 6> codes{{
    {give_up::no_error, 0x100, 0x0, "no error"},
    {give_up::cancelled, 0x10c, 0x8, "cancelled"},
    {give_up::rejected, 0x10b, 0x7, "rejected unprocessed"},
    {give_up::excessive_load, 0x107, 0xb, "excessive load"},
    {give_up::internal, 0x102, 0x2, "internal error"},
    {give_up::protocol, 0x10e, 0x1, "malformed message"},
}};

const code_row& row(give_up why) noexcept {
  return *std::ranges::find(codes, why, &code_row::why);
}

}  // namespace

field_list::field_list(std::initializer_list<field> lines) {
  for (const field& each : lines)
    if (!add(each.name, each.value, each.sensitive))
      throw std::invalid_argument{"not a field line: " + std::string{each.name}};
}

result<> field_list::add(std::string_view name, std::string_view value, bool sensitive) {
  if (!is_valid_name(name))
    return fail(errc::invalid_argument, layer::http,
                "a field name is one or more letters, digits or " + std::string{token_marks} +
                    ", not \"" + std::string{name} + '"');
  if (!is_valid_value(value))
    return fail(errc::invalid_argument, layer::http,
                "the value of field " + std::string{name} +
                    " holds control characters or begins or ends with a space");
  add_valid(name, value, sensitive);
  return {};
}

void field_list::add_valid(std::string_view name, std::string_view value, bool sensitive) {
  if (lines_.capacity() == 0) {
    lines_.reserve(8);
    text_.reserve(240);
  }
  const auto offset = static_cast<std::uint32_t>(text_.size());
  text_.resize(text_.size() + name.size() + value.size());
  char* target = text_.data() + offset;
  target = std::ranges::transform(name, target, lower).out;
  std::ranges::copy(value, target);
  lines_.push_back({offset, static_cast<std::uint32_t>(name.size()),
                    static_cast<std::uint32_t>(value.size()), sensitive});
}

std::optional<std::string_view> field_list::find(std::string_view name) const noexcept {
  for (const field each : *this)
    if (each.name == name) return each.value;
  return std::nullopt;
}

field field_list::operator[](std::size_t index) const noexcept {
  const line& at = lines_[index];
  const std::string_view text{text_};
  return {text.substr(at.offset, at.name_size),
          text.substr(at.offset + at.name_size, at.value_size), at.sensitive};
}

void field_list::clear() noexcept {
  text_.clear();
  lines_.clear();
}

error beyond_peers_limit(std::string_view what, std::size_t size, std::uint64_t limit) {
  return {errc::too_large, layer::http,
          "the field section of " + std::string{what} + " takes " + std::to_string(size) +
              " bytes, the peer takes " + std::to_string(limit)};
}

std::string_view to_string(give_up why) noexcept {
  return row(why).text;
}
std::uint64_t to_h3(give_up why) noexcept {
  return row(why).h3;
}
std::uint32_t to_h2(give_up why) noexcept {
  return row(why).h2;
}
give_up from_h3(std::uint64_t code) noexcept {
  const auto* found = std::ranges::find(codes, code, &code_row::h3);
  return found == codes.end() ? give_up::protocol : found->why;
}
give_up from_h2(std::uint32_t code) noexcept {
  const auto* found = std::ranges::find(codes, code, &code_row::h2);
  return found == codes.end() ? give_up::protocol : found->why;
}

}  // namespace weft::http
