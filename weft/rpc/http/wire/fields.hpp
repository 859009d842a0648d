#pragma once

#include <cstddef>
#include <string_view>

#include <weft/http/core/fields.hpp>
#include <weft/rpc/core/metadata.hpp>
#include <weft/rpc/core/status.hpp>

namespace weft::rpc::http::wire {

/// Names that belong to HTTP or to the protocols: metadata neither sets nor shows them.
bool is_reserved(std::string_view name) noexcept;

/// Adds field lines for all of `from` but reserved names, `prefix` in front of each. "-bin" values
/// travel as unpadded base64. Surrounding spaces of other values are dropped, as HTTP does.
void append_metadata(weft::http::field_list& to, const metadata& from,
                     std::string_view prefix = {});

/// Adds to `to` what is metadata of `fields`: reserved names, names that begin with `hidden_prefix`
/// and values that are no visible ASCII are left out. "-bin" values may be padded, and hold
/// several, separated by commas. Fails with `internal` when one is no base64, with
/// `resource_exhausted` when `to` comes to more than `limit` bytes (`metadata::wire_size()`).
result<> read_metadata(metadata& to, const weft::http::field_list& fields, std::size_t limit,
                       std::string_view hidden_prefix = {});
/// As `read_metadata` for names that begin with `prefix`, which is taken off.
result<> read_prefixed(metadata& to, const weft::http::field_list& fields, std::size_t limit,
                       std::string_view prefix);

/// Adds to metadata what arrived, one name and value at a time. The limit is one on what `to` comes
/// to (`metadata::wire_size()`): a value may hold many, each of which is kept with its name.
class received_metadata {
 public:
  /// `to` outlives this.
  received_metadata(metadata& to, std::size_t limit) noexcept
      : to_{to}, used_{to.wire_size()}, limit_{limit} {}
  /// As `read_metadata` for a single line.
  result<> add(std::string_view name, std::string_view value);

 private:
  result<> add_binary(std::string_view name, std::string_view values);
  result<> count(std::string_view name, std::string_view value);

  metadata& to_;
  std::size_t used_, limit_;
};

}  // namespace weft::rpc::http::wire
