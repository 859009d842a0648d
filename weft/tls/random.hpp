#pragma once

#include <weft/base/error.hpp>
#include <weft/base/slice.hpp>

namespace weft::tls {

/// Where unpredictable bytes come from. A value; the default is the TLS library's generator.
class random_source {
 public:
  /// Fills all of `out` or returns false.
  using function = bool (*)(mutable_bytes out) noexcept;

  random_source() noexcept;
  /// For tests that need a failing or a repeatable source.
  explicit random_source(function fill) noexcept : fill_{fill} {}

  /// errc::random when the source fails; `out` is then zeroed, never half random.
  result<> fill(mutable_bytes out) const;

 private:
  function fill_;
};

/// `random_source{}.fill(out)`. Thread-safe.
result<> fill_random(mutable_bytes out);

}  // namespace weft::tls
