#include <weft/rpc/http/cors.hpp>

#include <algorithm>

#include <weft/rpc/http/wire/fields.hpp>

namespace weft::rpc::http {
namespace {

constexpr std::string_view day = "86400";
/// Of gRPC-Web, where they come as fields; Connect's own need no naming but its trailers.
constexpr std::string_view always_exposed =
    "grpc-status, grpc-message, grpc-status-details-bin, grpc-encoding, connect-content-encoding";

/// What to allow; empty: nothing.
std::string_view allowed_origin(const weft::http::request_head& request,
                                const server_options& options) {
  const auto origin = request.fields.find("origin");
  if (!origin) return {};
  for (const std::string& each : options.origins)
    if (each == "*" || each == *origin) return *origin;
  return {};
}

}  // namespace

bool is_preflight(const weft::http::request_head& head) noexcept {
  return head.method == "OPTIONS" && head.fields.find("origin") &&
         head.fields.find("access-control-request-method");
}

void answer_preflight(std::unique_ptr<weft::http::exchange> e, const server_options& options) {
  weft::http::response_head head{.status = 204};
  const auto& request = e->request();
  head.fields.add_valid("vary", "origin, access-control-request-headers");
  if (const auto origin = allowed_origin(request, options); !origin.empty()) {
    head.fields.add_valid("access-control-allow-origin", origin);
    head.fields.add_valid("access-control-allow-methods", "POST, GET");
    if (const auto wanted = request.fields.find("access-control-request-headers"))
      head.fields.add_valid("access-control-allow-headers", *wanted);
    head.fields.add_valid("access-control-max-age", day);
  }
  answer(std::move(e), head);
}

void append_cors(weft::http::field_list& to, const weft::http::request_head& request,
                 const server_options& options) {
  if (options.origins.empty()) return;
  const auto origin = allowed_origin(request, options);
  if (origin.empty()) return;
  std::string exposed{always_exposed};
  for (const auto& [name, value, sensitive] : to)
    if (!wire::is_reserved(name)) (exposed += ", ") += name;
  to.add_valid("access-control-allow-origin", origin);
  to.add_valid("access-control-expose-headers", exposed);
  to.add_valid("vary", "origin");
}

void answer(std::unique_ptr<weft::http::exchange> e, const weft::http::response_head& head,
            slice content) {
  const bool end = content.empty();
  if (!e->send_head(head, end) || end) return;
  (void)e->try_write(std::move(content), true);  // an exchange's first write finds room
}

}  // namespace weft::rpc::http
