#include "ls.hpp"

#include <algorithm>
#include <cstdio>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "session.hpp"

namespace weft::app {
namespace {

using json = nlohmann::ordered_json;

const char* name_of(rpc::call_kind kind) {
  switch (kind) {
    case rpc::call_kind::unary:
      return "unary";
    case rpc::call_kind::server_streaming:
      return "server-streaming";
    case rpc::call_kind::client_streaming:
      return "client-streaming";
    case rpc::call_kind::bidi_streaming:
      return "bidi-streaming";
  }
  return "unknown";
}

const char* name_of(rpc::idempotency level) {
  switch (level) {
    case rpc::idempotency::unknown:
      return "unknown";
    case rpc::idempotency::no_side_effects:
      return "no-side-effects";
    case rpc::idempotency::idempotent:
      return "idempotent";
  }
  return "unknown";
}

std::string short_name(const rpc::method_description& m) {
  return m.path.substr(m.path.rfind('/') + 1);
}

void print_services(const std::vector<std::string>& services, bool as_json) {
  if (as_json) return (void)std::printf("%s\n", json{{"services", services}}.dump(2).c_str());
  for (const auto& each : services) std::printf("%s\n", each.c_str());
}

void print_json(const std::string& service, const std::vector<rpc::method_description>& methods) {
  json list = json::array();
  for (const auto& m : methods)
    list.push_back({{"name", short_name(m)},
                    {"path", m.path},
                    {"kind", name_of(m.kind)},
                    {"request", m.request},
                    {"reply", m.reply},
                    {"idempotency", name_of(m.level)}});
  std::printf("%s\n", json{{"service", service}, {"methods", list}}.dump(2).c_str());
}

bool client_streams(rpc::call_kind kind) {
  return kind == rpc::call_kind::client_streaming || kind == rpc::call_kind::bidi_streaming;
}

bool server_streams(rpc::call_kind kind) {
  return kind == rpc::call_kind::server_streaming || kind == rpc::call_kind::bidi_streaming;
}

void print_table(const std::vector<rpc::method_description>& methods) {
  std::size_t width = 0;
  for (const auto& m : methods) width = std::max(width, short_name(m).size());
  for (const auto& m : methods)
    std::printf("%-*s  %-16s  %s%s -> %s%s%s%s\n", static_cast<int>(width), short_name(m).c_str(),
                name_of(m.kind), client_streams(m.kind) ? "stream " : "", m.request.c_str(),
                server_streams(m.kind) ? "stream " : "", m.reply.c_str(),
                m.level == rpc::idempotency::unknown ? "" : "  ",
                m.level == rpc::idempotency::unknown ? "" : name_of(m.level));
}

task<outcome> list(const ls_request& given, session& with) {
  if (given.service.empty()) {
    auto services = co_await with.types.services(with.lookups, with.options);
    if (!services) co_return outcome{std::move(services).error()};
    print_services(*services, given.json);
    co_return outcome{};
  }
  auto known = co_await with.types.schema_of(with.lookups, given.service, with.options);
  if (!known) co_return outcome{std::move(known).error()};
  const auto methods = known->methods(given.service);
  if (!std::ranges::contains(known->services(), given.service))
    co_return outcome{find_method(*known, given.service + "/").error()};
  if (given.json)
    print_json(given.service, methods);
  else
    print_table(methods);
  co_return outcome{};
}

}  // namespace

void add_ls(CLI::App& app, ls_request& given) {
  auto* ls = app.add_subcommand("ls", "List a server's services, or the methods of one");
  ls->add_option("target", given.server.target, "HOST:PORT")->required();
  ls->add_option("service", given.service, "PACKAGE.SERVICE, for its methods");
  add_connect_options(*ls, given.server);
  ls->add_flag("--json", given.json, "One JSON object");
  ls->footer("Exit code: 0, the status code of what failed (1 to 16), or 64 for wrong arguments.");
}

int run_ls(const ls_request& given) {
  return run_session("ls", given.server, [&given](session& with) { return list(given, with); });
}

}  // namespace weft::app
