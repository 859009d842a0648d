#include <weft/rpc/http/wire/codes.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace weft::rpc::http::wire {
namespace {

struct row {
  rpc::code code;
  std::string_view name;
  std::uint16_t status;
};

// https://connectrpc.com/docs/protocol#error-codes
constexpr std::array<row, 16> rows{{
    {code::cancelled, "canceled", 499},
    {code::unknown, "unknown", 500},
    {code::invalid_argument, "invalid_argument", 400},
    {code::deadline_exceeded, "deadline_exceeded", 504},
    {code::not_found, "not_found", 404},
    {code::already_exists, "already_exists", 409},
    {code::permission_denied, "permission_denied", 403},
    {code::resource_exhausted, "resource_exhausted", 429},
    {code::failed_precondition, "failed_precondition", 400},
    {code::aborted, "aborted", 409},
    {code::out_of_range, "out_of_range", 400},
    {code::unimplemented, "unimplemented", 501},
    {code::internal, "internal", 500},
    {code::unavailable, "unavailable", 503},
    {code::data_loss, "data_loss", 500},
    {code::unauthenticated, "unauthenticated", 401},
}};

}  // namespace

std::string_view connect_name(code c) noexcept {
  const auto* found = std::ranges::find(rows, c, &row::code);
  return found == rows.end() ? "unknown" : found->name;
}

std::optional<code> code_from_connect(std::string_view name) noexcept {
  const auto* found = std::ranges::find(rows, name, &row::name);
  if (found == rows.end()) return std::nullopt;
  return found->code;
}

std::uint16_t connect_http_status(code c) noexcept {
  const auto* found = std::ranges::find(rows, c, &row::code);
  return found == rows.end() ? 500 : found->status;
}

code code_from_http(std::uint16_t status) noexcept {
  switch (status) {
    case 400:
      return code::internal;
    case 401:
      return code::unauthenticated;
    case 403:
      return code::permission_denied;
    case 404:
      return code::unimplemented;
    case 429:
    case 502:
    case 503:
    case 504:
      return code::unavailable;
    default:
      return code::unknown;
  }
}

status status_from_http(std::uint16_t status, std::string_view content_type) {
  constexpr std::size_t longest = 100;
  std::string text = "the server answered with HTTP status " + std::to_string(status);
  if (!content_type.empty())
    text += " and content of type \"" + std::string{content_type.substr(0, longest)} + "\"";
  return {code_from_http(status), std::move(text)};
}

}  // namespace weft::rpc::http::wire
