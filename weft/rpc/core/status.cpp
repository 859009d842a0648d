#include <weft/rpc/core/status.hpp>

#include <array>

namespace weft::rpc {
namespace {

constexpr std::array<std::string_view, 17> names{
    "ok",
    "cancelled",
    "unknown",
    "invalid_argument",
    "deadline_exceeded",
    "not_found",
    "already_exists",
    "permission_denied",
    "resource_exhausted",
    "failed_precondition",
    "aborted",
    "out_of_range",
    "unimplemented",
    "internal",
    "unavailable",
    "data_loss",
    "unauthenticated",
};

}  // namespace

std::string_view to_string(code c) noexcept {
  const auto number = static_cast<std::size_t>(c);
  return number < names.size() ? names[number] : "unknown";
}

code code_from_number(std::uint64_t number) noexcept {
  return number < names.size() ? static_cast<code>(number) : code::unknown;
}

std::string status::to_string() const {
  std::string text{rpc::to_string(code_)};
  if (!message_.empty()) text.append(": ").append(message_);
  return text;
}

}  // namespace weft::rpc
