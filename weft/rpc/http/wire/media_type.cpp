#include <weft/rpc/http/wire/media_type.hpp>

#include <algorithm>
#include <array>

namespace weft::rpc::http::wire {
namespace {

constexpr std::string_view application = "application/";

char lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool same(std::string_view text, std::string_view wanted) noexcept {
  return std::ranges::equal(text, wanted, {}, lower);
}

bool begins(std::string_view text, std::string_view wanted) noexcept {
  return same(text.substr(0, wanted.size()), wanted);
}

std::optional<rpc::codec> codec_named(std::string_view name) noexcept {
  if (same(name, "proto")) return rpc::codec::proto;
  if (same(name, "json")) return rpc::codec::json;
  return std::nullopt;
}

struct family {
  std::string_view name;
  wire::form form;
  bool codec_optional;
};

// Longer names first: one is the beginning of another.
constexpr std::array<family, 4> families{{
    {"grpc-web-text", form::grpc_web_text, true},
    {"grpc-web", form::grpc_web, true},
    {"grpc", form::grpc, true},
    {"connect", form::connect_stream, false},
}};

struct spelling {
  wire::form form;
  std::string_view proto, json;
};

constexpr std::array<spelling, 5> spellings{{
    {form::connect_unary, "application/proto", "application/json"},
    {form::connect_stream, "application/connect+proto", "application/connect+json"},
    {form::grpc, "application/grpc+proto", "application/grpc+json"},
    {form::grpc_web, "application/grpc-web+proto", "application/grpc-web+json"},
    {form::grpc_web_text, "application/grpc-web-text+proto", "application/grpc-web-text+json"},
}};

}  // namespace

std::optional<media_type> parse_media_type(std::string_view text) noexcept {
  text = text.substr(0, text.find(';'));
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  if (!begins(text, application)) return std::nullopt;
  text.remove_prefix(application.size());
  for (const family& f : families) {
    if (!begins(text, f.name)) continue;
    const std::string_view rest = text.substr(f.name.size());
    if (rest.empty() && f.codec_optional) return media_type{f.form, rpc::codec::proto};
    if (rest.starts_with('+')) return media_type{f.form, codec_named(rest.substr(1))};
  }
  if (const auto codec = codec_named(text)) return media_type{form::connect_unary, codec};
  return std::nullopt;
}

std::string_view to_string(form f, rpc::codec c) noexcept {
  const auto& found = *std::ranges::find(spellings, f, &spelling::form);
  return c == rpc::codec::json ? found.json : found.proto;
}

}  // namespace weft::rpc::http::wire
