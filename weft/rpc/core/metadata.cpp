#include <weft/rpc/core/metadata.hpp>

#include <algorithm>
#include <stdexcept>

namespace weft::rpc {
namespace {

// RFC 9114 §4.2.2: the size of a field is its name, its value and 32 bytes.
constexpr std::size_t entry_overhead = 32;

char lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// RFC 9110 §5.6.2 tchar, without upper-case letters.
bool is_key_character(char c) noexcept {
  if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) return true;
  return std::string_view{"!#$%&'*+-.^_`|~"}.contains(c);
}

std::string lower_cased(std::string_view key) {
  std::string result{key};
  std::ranges::transform(result, result.begin(), lower);
  return result;
}

bool same_key(std::string_view stored, std::string_view wanted) noexcept {
  return std::ranges::equal(stored, wanted, {}, {}, lower);
}

}  // namespace

bool is_valid_key(std::string_view key) noexcept {
  return !key.empty() && std::ranges::all_of(key, is_key_character);
}

bool is_valid_value(std::string_view key, std::string_view value) noexcept {
  if (key.ends_with("-bin")) return true;
  return std::ranges::all_of(value, [](char c) { return c >= ' ' && c <= '~'; });
}

metadata::metadata(std::initializer_list<entry> entries) {
  for (const auto& [key, value] : entries)
    if (auto added = add(key, value); !added) throw std::invalid_argument{added.error().message()};
}

weft::result<> metadata::add(std::string_view key, std::string_view value) {
  std::string stored = lower_cased(key);
  if (!is_valid_key(stored))
    return weft::fail(errc::invalid_argument, layer::rpc,
                      "metadata key \"" + stored +
                          "\" is not one: letters, digits and !#$%&'*+-.^_`|~ make a key");
  if (!is_valid_value(stored, value))
    return weft::fail(errc::invalid_argument, layer::rpc,
                      "the value of metadata key \"" + stored +
                          "\" is not visible ASCII; end the key in \"-bin\" to send bytes");
  entries_.emplace_back(std::move(stored), value);
  return {};
}

std::optional<std::string_view> metadata::find(std::string_view key) const noexcept {
  for (const auto& [stored, value] : entries_)
    if (same_key(stored, key)) return value;
  return {};
}

std::vector<std::string_view> metadata::find_all(std::string_view key) const {
  std::vector<std::string_view> found;
  for (const auto& [stored, value] : entries_)
    if (same_key(stored, key)) found.emplace_back(value);
  return found;
}

std::size_t metadata::erase(std::string_view key) {
  return std::erase_if(entries_, [&](const entry& e) { return same_key(e.first, key); });
}

std::size_t metadata::wire_size() const noexcept {
  std::size_t size = 0;
  for (const auto& [key, value] : entries_) size += key.size() + value.size() + entry_overhead;
  return size;
}

}  // namespace weft::rpc
