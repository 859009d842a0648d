#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <weft/base/slice.hpp>

// RFC 4648.

namespace weft::rpc::http::wire {

enum class alphabet : std::uint8_t { standard, url };  ///< §4, §5

/// Without padding unless asked for.
std::string base64_encode(bytes from, alphabet letters = alphabet::standard, bool padding = false);
/// With or without padding; nothing when it is malformed. Bits beyond the last byte are ignored.
std::optional<std::string> base64_decode(std::string_view text,
                                         alphabet letters = alphabet::standard);

}  // namespace weft::rpc::http::wire
