#pragma once

#include <weft/base/error.hpp>
#include <weft/quic/core/options.hpp>
#include <weft/rpc/call.hpp>

namespace weft::bench {

inline constexpr std::size_t ethernet_payload = 1452;

/// The same on both sides, for every QUIC variant.
quic::transport_options transport_settings(bool ethernet_datagrams);
rpc::limits limit_settings();

/// Fresh pages are dear: makes the allocator keep what it has freed, as a long-running server's
/// does.
void keep_freed_memory() noexcept;

/// Prints to standard error; returns the exit code 1.
int report_failure(const error& failure);

}  // namespace weft::bench
