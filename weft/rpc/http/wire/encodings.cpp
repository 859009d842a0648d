#include <weft/rpc/http/wire/encodings.hpp>

#include <algorithm>

namespace weft::rpc::http::wire {
namespace {

std::string_view trimmed(std::string_view text) noexcept {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

/// RFC 9110 §12.4.2: "0", "0.", "0.000".
bool is_refused(std::string_view parameters) noexcept {
  parameters = trimmed(parameters);
  if (!parameters.starts_with("q=") && !parameters.starts_with("Q=")) return false;
  parameters.remove_prefix(2);
  return !parameters.empty() &&
         std::ranges::all_of(parameters, [](char c) { return c == '0' || c == '.'; });
}

}  // namespace

std::vector<compression> parse_accepted(std::string_view list, std::span<const compression> ours) {
  std::vector<compression> accepted;
  accepted.reserve(ours.size());
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), item.size() + 1));
    const auto semicolon = item.find(';');
    if (semicolon != item.npos && is_refused(item.substr(semicolon + 1))) continue;
    const auto algorithm = compression_from_name(trimmed(item.substr(0, semicolon)));
    if (!algorithm || *algorithm == compression::identity) continue;
    if (std::ranges::contains(ours, *algorithm) && !std::ranges::contains(accepted, *algorithm))
      accepted.push_back(*algorithm);
  }
  return accepted;
}

std::string accepted_list(std::span<const compression> ours) {
  std::string list;
  for (const compression each : ours) {
    if (!list.empty()) list += ", ";
    list += to_string(each);
  }
  return list;
}

}  // namespace weft::rpc::http::wire
