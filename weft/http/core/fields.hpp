#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <weft/base/error.hpp>

namespace weft::http {

/// One field line (RFC 9110 §5). Refers to its list.
struct field {
  std::string_view name;  ///< lower-case
  std::string_view value;
  bool sensitive = false;  ///< never enters a compression table (RFC 9204 §7.1, RFC 7541 §7.1)
};

/// Field lines in order; names may repeat. One block of memory for all, so that a usual header
/// section costs one or two allocations.
class field_list {
 public:
  field_list() = default;
  field_list(std::initializer_list<field> lines);

  /// Lower-cases the name. Adds nothing and fails with errc::invalid_argument when the name is no
  /// token or the value holds what RFC 9110 §5.5 forbids (controls, surrounding spaces).
  result<> add(std::string_view name, std::string_view value, bool sensitive = false);
  /// As `add` for what is known to be valid.
  void add_valid(std::string_view name, std::string_view value, bool sensitive = false);

  /// The first value of `name` (lower-case).
  std::optional<std::string_view> find(std::string_view name) const noexcept;
  bool empty() const noexcept { return lines_.empty(); }
  std::size_t size() const noexcept { return lines_.size(); }
  field operator[](std::size_t index) const noexcept;
  /// Names, values and 32 bytes a line: what limits count (RFC 9114 §4.2.2, RFC 9113 §6.5.2).
  std::size_t section_size() const noexcept { return text_.size() + 32 * lines_.size(); }
  void clear() noexcept;

  class iterator {
   public:
    using value_type = field;
    using difference_type = std::ptrdiff_t;
    iterator() = default;
    field operator*() const noexcept { return (*list_)[index_]; }
    iterator& operator++() noexcept {
      ++index_;
      return *this;
    }
    iterator operator++(int) noexcept {
      iterator before = *this;
      ++index_;
      return before;
    }
    friend bool operator==(const iterator&, const iterator&) = default;

   private:
    friend class field_list;
    iterator(const field_list* list, std::size_t index) noexcept : list_{list}, index_{index} {}
    const field_list* list_ = nullptr;
    std::size_t index_ = 0;
  };
  iterator begin() const noexcept { return {this, 0}; }
  iterator end() const noexcept { return {this, lines_.size()}; }

 private:
  struct line {
    std::uint32_t offset, name_size, value_size;
    bool sensitive;
  };
  std::string text_;
  std::vector<line> lines_;
};

/// What a request says before its content (RFC 9110 §6; pseudo-header fields of RFC 9114 §4.3.1).
struct request_head {
  std::string method = "POST";
  std::string scheme = "https";
  std::string authority;
  std::string path;  ///< with the query
  field_list fields;
};

/// What a response says before its content.
struct response_head {
  std::uint16_t status = 200;
  field_list fields;
};

/// Why one end gives an exchange up. Each version has numbers of its own for them: HTTP/3's (RFC
/// 9114 §8.1) in a RESET_STREAM or STOP_SENDING, HTTP/2's (RFC 9113 §7) in a RST_STREAM.
enum class give_up : std::uint8_t {
  no_error,        ///< the rest of the request is not needed: an early response
  cancelled,       ///< nobody wants it any more
  rejected,        ///< not looked at: safe to try again
  excessive_load,  ///< the peer asks for too much
  internal,        ///< a defect here
  protocol,        ///< a malformed message; what is not known counts as this
};

/// A field section of ours that the peer's limit (RFC 9114 §4.2.2, RFC 9113 §6.5.2) does not allow:
/// errc::too_large. `what` is "the request" or so.
error beyond_peers_limit(std::string_view what, std::size_t size, std::uint64_t limit);

std::string_view to_string(give_up why) noexcept;
std::uint64_t to_h3(give_up why) noexcept;
std::uint32_t to_h2(give_up why) noexcept;
give_up from_h3(std::uint64_t code) noexcept;
give_up from_h2(std::uint32_t code) noexcept;

}  // namespace weft::http
