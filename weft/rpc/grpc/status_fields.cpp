#include <weft/rpc/grpc/status_fields.hpp>

#include <charconv>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include <weft/rpc/http/wire/base64.hpp>
#include <weft/rpc/http/wire/percent.hpp>

namespace weft::rpc::grpc {
namespace {

namespace pb = google::protobuf;
namespace wire = http::wire;
using format = pb::internal::WireFormatLite;

constexpr std::string_view type_prefix = "type.googleapis.com/";

// google/rpc/status.proto, google/protobuf/any.proto
constexpr int status_code = 1, status_message = 2, status_details = 3;
constexpr int any_type_url = 1, any_value = 2;

std::string encode_any(const status_detail& detail) {
  std::string encoded;
  pb::io::StringOutputStream stream{&encoded};
  pb::io::CodedOutputStream out{&stream};
  format::WriteString(any_type_url, std::string{type_prefix} + detail.type, &out);
  format::WriteBytes(any_value, detail.value, &out);
  out.Trim();
  return encoded;
}

/// Calls `take(field, input)` for each field, which returns false when it does not parse.
template <class Take>
bool each_field(std::string_view encoded, Take take) {
  pb::io::CodedInputStream in{reinterpret_cast<const std::uint8_t*>(encoded.data()),
                              static_cast<int>(encoded.size())};
  while (const std::uint32_t tag = in.ReadTag())
    if (!take(tag, in)) return false;
  return in.ConsumedEntireMessage();
}

constexpr std::uint32_t bytes_tag(int field) noexcept {
  return format::MakeTag(field, format::WIRETYPE_LENGTH_DELIMITED);
}

bool decode_any(std::string_view encoded, status_detail& detail) {
  const bool parsed = each_field(encoded, [&](std::uint32_t tag, pb::io::CodedInputStream& in) {
    if (tag == bytes_tag(any_type_url)) return format::ReadBytes(&in, &detail.type);
    if (tag == bytes_tag(any_value)) return format::ReadBytes(&in, &detail.value);
    return format::SkipField(&in, tag);
  });
  detail.type.erase(0, detail.type.rfind('/') + 1);
  return parsed;
}

std::optional<unsigned> number(std::string_view text) noexcept {
  unsigned value = 0;
  const char* end = text.data() + text.size();
  const auto [at, failed] = std::from_chars(text.data(), end, value);
  if (failed != std::errc{} || at != end) return std::nullopt;
  return value;
}

std::string_view trimmed(std::string_view text) noexcept {
  while (text.starts_with(' ') || text.starts_with('\t')) text.remove_prefix(1);
  while (text.ends_with(' ') || text.ends_with('\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::string encode_details(const status& s) {
  std::string encoded;
  pb::io::StringOutputStream stream{&encoded};
  pb::io::CodedOutputStream out{&stream};
  format::WriteInt32(status_code, static_cast<std::int32_t>(s.code()), &out);
  if (!s.message().empty()) format::WriteString(status_message, s.message(), &out);
  for (const status_detail& each : s.details())
    format::WriteBytes(status_details, encode_any(each), &out);
  out.Trim();
  return encoded;
}

std::optional<status> decode_details(std::string_view encoded) {
  std::uint64_t code = 0;
  std::string message;
  std::vector<status_detail> details;
  const bool parsed = each_field(encoded, [&](std::uint32_t tag, pb::io::CodedInputStream& in) {
    if (tag == format::MakeTag(status_code, format::WIRETYPE_VARINT)) return in.ReadVarint64(&code);
    if (tag == bytes_tag(status_message)) return format::ReadBytes(&in, &message);
    if (tag != bytes_tag(status_details)) return format::SkipField(&in, tag);
    std::string any;
    return format::ReadBytes(&in, &any) && decode_any(any, details.emplace_back());
  });
  if (!parsed) return std::nullopt;
  return status{code_from_number(code), std::move(message), std::move(details)};
}

void append_status(weft::http::field_list& to, const status& s) {
  to.add_valid("grpc-status", std::to_string(static_cast<unsigned>(s.code())));
  if (s.ok()) return;
  if (!s.message().empty()) to.add_valid("grpc-message", wire::encode_message(s.message()));
  if (!s.details().empty())
    to.add_valid("grpc-status-details-bin", wire::base64_encode(as_bytes(encode_details(s))));
}

std::optional<status> read_status(const weft::http::field_list& fields) {
  const auto text = fields.find("grpc-status");
  if (!text) return std::nullopt;
  const auto value = number(*text);
  if (!value)
    return status{code::unknown,
                  "the server's grpc-status is \"" + std::string{*text} + "\", which is no number"};
  const code c = code_from_number(*value);
  if (c == code::ok) return status{};
  status s{c, wire::decode_message(fields.find("grpc-message").value_or(std::string_view{}))};
  const auto packed = fields.find("grpc-status-details-bin");
  const auto bytes = packed ? wire::base64_decode(*packed) : std::nullopt;
  auto detailed = bytes ? decode_details(*bytes) : std::nullopt;
  if (detailed && detailed->code() == c)
    for (const status_detail& each : detailed->details()) s.add_detail(each.type, each.value);
  return s;
}

std::string to_block(const weft::http::field_list& fields) {
  std::string block;
  for (const auto& [name, value, sensitive] : fields) {
    block += name;
    block += ": ";
    block += value;
    block += "\r\n";
  }
  return block;
}

std::optional<weft::http::field_list> from_block(std::string_view block) {
  weft::http::field_list fields;
  while (!block.empty()) {
    std::string_view line = block.substr(0, block.find('\n'));
    block.remove_prefix(std::min(block.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const auto colon = line.find(':');
    if (colon == line.npos) return std::nullopt;
    if (!fields.add(line.substr(0, colon), trimmed(line.substr(colon + 1)))) return std::nullopt;
  }
  return fields;
}

}  // namespace weft::rpc::grpc
