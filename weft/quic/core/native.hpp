// Internal.
#pragma once

// The line between weft's values and the protocol library's.

#include <ngtcp2/ngtcp2.h>

#include <algorithm>
#include <cstring>
#include <new>

#include <weft/base/address.hpp>
#include <weft/base/error.hpp>
#include <weft/base/slice.hpp>
#include <weft/base/time.hpp>

namespace weft::quic::core::detail {

/// Distinct from 0, which some of the library's fields use for "unset".
inline constexpr std::int64_t time_origin = 1'000'000'000;

inline ngtcp2_tstamp to_native(time_point at) noexcept {
  const auto since = at.time_since_epoch().count();
  return since < -time_origin ? 0 : static_cast<ngtcp2_tstamp>(since) + time_origin;
}
inline time_point from_native(ngtcp2_tstamp at) noexcept {
  if (at >= static_cast<ngtcp2_tstamp>(never.time_since_epoch().count())) return never;
  return time_point{duration{static_cast<std::int64_t>(at) - time_origin}};
}

inline duration from_native_duration(ngtcp2_duration d) noexcept {
  return duration{static_cast<std::int64_t>(std::min<ngtcp2_duration>(d, INT64_MAX))};
}

/// Both ends' addresses as the library wants them.
class native_path {
 public:
  explicit native_path(const path& from) noexcept;
  native_path(const native_path&) = delete;
  native_path& operator=(const native_path&) = delete;
  const ngtcp2_path* get() const noexcept { return &path_; }

 private:
  ngtcp2_sockaddr_union local_;
  ngtcp2_sockaddr_union remote_;
  ngtcp2_path path_;
};

ngtcp2_socklen to_native(const address& from, ngtcp2_sockaddr_union& to) noexcept;
address from_native(const ngtcp2_addr& from) noexcept;
path from_native(const ngtcp2_path& from) noexcept;
bool same_address(const ngtcp2_addr& a, const address& b) noexcept;

inline bool same_path(const ngtcp2_path& a, const path& b) noexcept {
  return same_address(a.remote, b.remote) && same_address(a.local, b.local);
}

inline const std::uint8_t* octets(bytes b) noexcept {
  return reinterpret_cast<const std::uint8_t*>(b.data());
}
inline std::uint8_t* octets(mutable_bytes b) noexcept {
  return reinterpret_cast<std::uint8_t*>(b.data());
}

}  // namespace weft::quic::core::detail
