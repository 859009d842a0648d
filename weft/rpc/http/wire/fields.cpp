#include <weft/rpc/http/wire/fields.hpp>

#include <algorithm>
#include <array>
#include <string>

#include <weft/rpc/http/wire/base64.hpp>

namespace weft::rpc::http::wire {
namespace {

constexpr std::array<std::string_view, 21> reserved{"accept-encoding",
                                                    "alt-svc",
                                                    "connection",
                                                    "content-encoding",
                                                    "content-length",
                                                    "content-type",
                                                    "grpc-accept-encoding",
                                                    "grpc-encoding",
                                                    "grpc-message",
                                                    "grpc-message-type",
                                                    "grpc-status",
                                                    "grpc-status-details-bin",
                                                    "grpc-timeout",
                                                    "host",
                                                    "keep-alive",
                                                    "priority",
                                                    "proxy-connection",
                                                    "te",
                                                    "trailer",
                                                    "transfer-encoding",
                                                    "upgrade"};
static_assert(std::ranges::is_sorted(reserved));

constexpr std::string_view binary_suffix = "-bin";
constexpr std::size_t line_overhead = 32;  // RFC 9114 §4.2.2

bool is_binary(std::string_view name) noexcept {
  return name.ends_with(binary_suffix);
}

std::string_view trimmed(std::string_view text) noexcept {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

}  // namespace

bool is_reserved(std::string_view name) noexcept {
  return name.starts_with("connect-") || std::ranges::binary_search(reserved, name);
}

void append_metadata(weft::http::field_list& to, const metadata& from, std::string_view prefix) {
  std::string prefixed;
  for (const auto& [key, value] : from) {
    if (is_reserved(key)) continue;
    std::string_view name = key;
    if (!prefix.empty()) name = (prefixed = prefix) += key;
    if (is_binary(key))
      to.add_valid(name, base64_encode(as_bytes(value)));
    else
      to.add_valid(name, trimmed(value));
  }
}

result<> received_metadata::add(std::string_view name, std::string_view value) {
  if (is_binary(name)) return add_binary(name, value);
  if (auto fits = count(name, value); !fits) return fits;
  (void)to_.add(name, value);  // refused: it is left out
  return {};
}

result<> received_metadata::add_binary(std::string_view name, std::string_view values) {
  while (true) {
    const std::string_view each = values.substr(0, values.find(','));
    const auto decoded = base64_decode(trimmed(each));
    if (!decoded)
      return fail(code::internal,
                  "the value of \"" + std::string{name} +
                      "\" is no base64; a name in \"-bin\" has binary values, as base64");
    if (auto fits = count(name, *decoded); !fits) return fits;
    (void)to_.add(name, *decoded);
    if (each.size() == values.size()) return {};
    values.remove_prefix(each.size() + 1);
  }
}

result<> received_metadata::count(std::string_view name, std::string_view value) {
  used_ += name.size() + value.size() + line_overhead;
  if (used_ <= limit_) return {};
  return fail(code::resource_exhausted,
              "metadata exceeds the limit of " + std::to_string(limit_) + " bytes");
}

result<> read_metadata(metadata& to, const weft::http::field_list& fields, std::size_t limit,
                       std::string_view hidden_prefix) {
  received_metadata received{to, limit};
  for (const auto& [name, value, sensitive] : fields) {
    if (is_reserved(name)) continue;
    if (!hidden_prefix.empty() && name.starts_with(hidden_prefix)) continue;
    if (auto added = received.add(name, value); !added) return added;
  }
  return {};
}

result<> read_prefixed(metadata& to, const weft::http::field_list& fields, std::size_t limit,
                       std::string_view prefix) {
  received_metadata received{to, limit};
  for (const auto& [name, value, sensitive] : fields) {
    if (!name.starts_with(prefix)) continue;
    const std::string_view bare = name.substr(prefix.size());
    if (bare.empty() || is_reserved(bare)) continue;
    if (auto added = received.add(bare, value); !added) return added;
  }
  return {};
}

}  // namespace weft::rpc::http::wire
