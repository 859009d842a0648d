#include <weft/rpc/http/wire/error_json.hpp>

#include <algorithm>

#include <nlohmann/json.hpp>

#include <weft/rpc/http/wire/base64.hpp>
#include <weft/rpc/http/wire/codes.hpp>
#include <weft/rpc/http/wire/fields.hpp>

namespace weft::rpc::http::wire {
namespace {

using json = nlohmann::json;

/// Beyond what the protocol itself nests by far; `debug` may hold anything.
constexpr int deepest = 64;

/// Nothing when it is no JSON object, or nested too deeply.
std::optional<json> parse_object(std::string_view text) {
  bool too_deep = false;
  const auto shallow = [&](int depth, json::parse_event_t, json&) {
    too_deep |= depth > deepest;
    return !too_deep;
  };
  json parsed = json::parse(text, shallow, false);
  if (too_deep || !parsed.is_object()) return std::nullopt;
  return parsed;
}

/// Text that came from anywhere: what is no UTF-8 is replaced, as JSON cannot hold it.
std::string to_text(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

json to_object(const status& failure) {
  json object = json::object();
  object["code"] = connect_name(failure.code());
  if (!failure.message().empty()) object["message"] = failure.message();
  if (failure.details().empty()) return object;
  json& details = object["details"] = json::array();
  for (const auto& [type, value] : failure.details())
    details.push_back({{"type", type}, {"value", base64_encode(as_bytes(value))}});
  return object;
}

std::string_view text_of(const json& object, const char* key) noexcept {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return {};
  return found->get_ref<const std::string&>();
}

std::vector<status_detail> details_of(const json& object) {
  std::vector<status_detail> details;
  const auto list = object.find("details");
  if (list == object.end() || !list->is_array()) return details;
  for (const json& each : *list) {
    if (!each.is_object()) continue;
    std::string_view type = text_of(each, "type");
    // Tolerated, though the protocol has bare names.
    if (const auto slash = type.rfind('/'); slash != type.npos) type.remove_prefix(slash + 1);
    auto value = base64_decode(text_of(each, "value"));
    if (type.empty() || !value) continue;
    details.push_back({std::string{type}, std::move(*value)});
  }
  return details;
}

status to_status(const json& object, code otherwise) {
  return status{code_from_connect(text_of(object, "code")).value_or(otherwise),
                std::string{text_of(object, "message")}, details_of(object)};
}

json to_object(const metadata& trailers) {
  json object = json::object();
  for (const auto& [key, value] : trailers) {
    if (is_reserved(key)) continue;
    object[key].push_back(key.ends_with("-bin") ? base64_encode(as_bytes(value)) : value);
  }
  return object;
}

result<> read_trailers(metadata& to, const json& object, std::size_t limit) {
  const auto no_metadata = [] {
    return fail(code::internal, "the metadata at the end of a stream is no lists of texts");
  };
  if (!object.is_object()) return no_metadata();
  received_metadata received{to, limit};
  for (const auto& [key, values] : object.items()) {
    if (!values.is_array()) return no_metadata();
    std::string name = key;
    std::ranges::transform(name, name.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    for (const json& value : values) {
      if (!value.is_string()) return no_metadata();
      if (is_reserved(name)) continue;
      if (auto added = received.add(name, value.get_ref<const std::string&>()); !added)
        return added;
    }
  }
  return {};
}

}  // namespace

std::string error_to_json(const status& failure) {
  return to_text(to_object(failure));
}

std::optional<status> error_from_json(std::string_view text, code otherwise) {
  const auto object = parse_object(text);
  if (!object) return std::nullopt;
  return to_status(*object, otherwise);
}

std::string end_to_json(const status& outcome, const metadata& trailers) {
  json object = json::object();
  if (!outcome.ok()) object["error"] = to_object(outcome);
  if (!trailers.empty()) object["metadata"] = to_object(trailers);
  return to_text(object);
}

result<stream_end> end_from_json(std::string_view text, std::size_t max_metadata) {
  const auto object = parse_object(text);
  if (!object) return fail(code::internal, "the end of a stream is no JSON object");
  stream_end end;
  if (const auto error = object->find("error"); error != object->end() && !error->is_null()) {
    if (!error->is_object())
      return fail(code::internal, "the error at the end of a stream is no JSON object");
    end.status = to_status(*error, code::unknown);
  }
  if (const auto trailers = object->find("metadata");
      trailers != object->end() && !trailers->is_null())
    if (auto read = read_trailers(end.trailers, *trailers, max_metadata); !read)
      return std::unexpected{std::move(read).error()};
  return end;
}

}  // namespace weft::rpc::http::wire
