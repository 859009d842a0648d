#include "convert.hpp"

#include <weft/rpc/http/wire/base64.hpp>

namespace weft::conformance {
namespace {

namespace wire = rpc::http::wire;

bool is_binary(std::string_view name) {
  return name.ends_with("-bin");
}

v1::Header& header_named(headers& all, const std::string& name) {
  for (v1::Header& each : all)
    if (each.name() == name) return each;
  v1::Header& added = *all.Add();
  added.set_name(name);
  return added;
}

}  // namespace

rpc::metadata to_metadata(const headers& from) {
  rpc::metadata all;
  for (const v1::Header& header : from)
    for (const std::string& value : header.value()) {
      const auto decoded = is_binary(header.name()) ? wire::base64_decode(value) : std::nullopt;
      (void)all.add(header.name(), decoded ? *decoded : value);
    }
  return all;
}

void to_headers(const rpc::metadata& from, headers& to) {
  for (const auto& [name, value] : from)
    header_named(to, name).add_value(is_binary(name) ? wire::base64_encode(as_bytes(value))
                                                     : value);
}

rpc::status to_status(const v1::Error& from) {
  rpc::status s{rpc::code_from_number(static_cast<std::uint64_t>(from.code())), from.message()};
  for (const auto& detail : from.details()) {
    const std::string& url = detail.type_url();
    s.add_detail(url.substr(url.rfind('/') + 1), detail.value());
  }
  return s;
}

v1::Error to_error(const rpc::status& from) {
  v1::Error error;
  error.set_code(static_cast<v1::Code>(from.code()));
  error.set_message(from.message());
  for (const auto& detail : from.details()) {
    auto& any = *error.add_details();
    any.set_type_url("type.googleapis.com/" + detail.type);
    any.set_value(detail.value);
  }
  return error;
}

}  // namespace weft::conformance
