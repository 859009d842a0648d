#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <vector>

namespace weft::rpc {

/// How a call ended: gRPC's sixteen codes and OK, with gRPC's numbers.
enum class code : std::uint8_t {
  ok = 0,
  cancelled = 1,
  unknown = 2,
  invalid_argument = 3,
  deadline_exceeded = 4,
  not_found = 5,
  already_exists = 6,
  permission_denied = 7,
  resource_exhausted = 8,
  failed_precondition = 9,
  aborted = 10,
  out_of_range = 11,
  unimplemented = 12,
  internal = 13,
  unavailable = 14,
  data_loss = 15,
  unauthenticated = 16,
};

/// "deadline_exceeded".
std::string_view to_string(code c) noexcept;
/// Numbers outside 0–16 become `unknown`, as gRPC does.
code code_from_number(std::uint64_t number) noexcept;

/// A machine-readable addition to an error: a serialized message and its full type name, without a
/// URL prefix ("google.rpc.RetryInfo").
struct status_detail {
  std::string type;
  std::string value;
  friend bool operator==(const status_detail&, const status_detail&) = default;
};

/// How a call ended, and why. A value.
class [[nodiscard]] status {
 public:
  status() = default;  ///< OK
  status(rpc::code c, std::string message = {}, std::vector<status_detail> details = {})
      : message_{std::move(message)}, details_{std::move(details)}, code_{c} {}

  bool ok() const noexcept { return code_ == rpc::code::ok; }
  rpc::code code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }
  const std::vector<status_detail>& details() const noexcept { return details_; }
  status& add_detail(std::string type, std::string value) {
    details_.push_back({std::move(type), std::move(value)});
    return *this;
  }
  /// "not_found: no such user".
  std::string to_string() const;
  friend bool operator==(const status&, const status&) = default;

 private:
  std::string message_;
  std::vector<status_detail> details_;
  rpc::code code_ = rpc::code::ok;
};

/// A call's outcome: a value, or a status that is not OK.
template <class T = void>
using result = std::expected<T, status>;

inline std::unexpected<status> fail(code c, std::string message) {
  return std::unexpected{status{c, std::move(message)}};
}

}  // namespace weft::rpc
