#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <weft/rpc/core/compression.hpp>

namespace weft::rpc::http::wire {

/// What a peer can decompress, most wanted first, of what we can compress with. Understands
/// `q=0`; otherwise the order counts.
std::vector<compression> parse_accepted(std::string_view list, std::span<const compression> ours);
/// "zstd, gzip".
std::string accepted_list(std::span<const compression> ours);

}  // namespace weft::rpc::http::wire
