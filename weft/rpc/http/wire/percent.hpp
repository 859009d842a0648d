#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft::rpc::http::wire {

/// As `grpc-message` travels: all but 0x20–0x24 and 0x26–0x7E escaped, and a space at either end,
/// which no field value may have (RFC 9110 §5.5).
std::string encode_message(std::string_view text);
/// Never fails: what is no escape stays as it is.
std::string decode_message(std::string_view text);

/// A value of a query (RFC 3986 §3.4): all but unreserved characters escaped.
std::string encode_query(std::string_view text);
/// As browsers and Go's net/url write them: `+` is a space. Never fails.
std::string decode_query(std::string_view text);
/// The first value of `name` in "a=1&b=2", not decoded.
std::optional<std::string_view> find_query(std::string_view query, std::string_view name);

}  // namespace weft::rpc::http::wire
