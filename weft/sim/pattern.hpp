#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <weft/base/slice.hpp>

namespace weft::sim {

/// The bytes `[offset, offset + out.size())` of an endless sequence that only `key` determines:
/// whoever knows key and offset can check any part without having stored it.
void fill_pattern(std::uint64_t key, std::uint64_t offset, mutable_bytes out) noexcept;
slice make_pattern(std::uint64_t key, std::uint64_t offset, std::size_t size);
/// The offset of the first byte that differs from the pattern, if any does.
std::optional<std::uint64_t> find_difference(std::uint64_t key, std::uint64_t offset,
                                             bytes data) noexcept;

}  // namespace weft::sim
