#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/base/error.hpp>

namespace weft::rpc {

/// Key-value pairs that travel beside messages, in order; keys may repeat. Keys are lower-case
/// (RFC 9110 token characters); the values of keys that end in "-bin" are arbitrary bytes, others
/// are visible ASCII and spaces.
class metadata {
 public:
  using entry = std::pair<std::string, std::string>;

  metadata() = default;
  metadata(std::initializer_list<entry> entries);

  /// Lower-cases the key. errc::invalid_argument for a key or value that cannot travel.
  weft::result<> add(std::string_view key, std::string_view value);
  /// The first value of `key`.
  std::optional<std::string_view> find(std::string_view key) const noexcept;
  std::vector<std::string_view> find_all(std::string_view key) const;
  std::size_t erase(std::string_view key);

  bool empty() const noexcept { return entries_.empty(); }
  std::size_t size() const noexcept { return entries_.size(); }
  /// Keys, values and 32 bytes an entry: what header-list limits count (RFC 9114 §4.2.2).
  std::size_t wire_size() const noexcept;
  auto begin() const noexcept { return entries_.begin(); }
  auto end() const noexcept { return entries_.end(); }
  friend bool operator==(const metadata&, const metadata&) = default;

 private:
  std::vector<entry> entries_;
};

bool is_valid_key(std::string_view key) noexcept;
bool is_valid_value(std::string_view key, std::string_view value) noexcept;

}  // namespace weft::rpc
