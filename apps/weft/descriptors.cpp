#include "descriptors.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

#include <google/protobuf/empty.pb.h>
#include <google/protobuf/struct.pb.h>

#include <weft/rpc/describe.hpp>
#include <weft/rpc/services/reflection_client.hpp>

namespace weft::app {
namespace {

constexpr const char* own = "weft.describe.v1.DescribeService";
constexpr const char* reflection = "gRPC server reflection";

std::string list_of(const std::vector<std::string>& names) {
  std::string all;
  for (const auto& name : names) all += (all.empty() ? "" : ", ") + name;
  return all.empty() ? "none" : all;
}

/// Whether another way of asking could do better: not when there is no server to ask.
bool worth_another_way(rpc::code why) {
  return why != rpc::code::unavailable && why != rpc::code::deadline_exceeded &&
         why != rpc::code::not_found;
}

rpc::status none_works(const rpc::status& described, const rpc::status& reflected) {
  return {reflected.code(),
          std::string{"the server does not tell its descriptors: tried "} + own + " (" +
              described.to_string() + ") and " + reflection + ", v1 and v1alpha (" +
              reflected.to_string() +
              "); give them by --descriptor-set FILE, made by protoc --include_imports "
              "--descriptor_set_out=FILE"};
}

task<rpc::result<std::vector<std::string>>> described_services(rpc::caller& server,
                                                               rpc::call_options options) {
  const google::protobuf::Empty request;
  auto list = co_await rpc::unary_call<google::protobuf::Empty, google::protobuf::ListValue>(
      server, rpc::describe::list_services, request, std::move(options));
  if (!list) co_return std::unexpected{std::move(list).error()};
  std::vector<std::string> names;
  for (const auto& each : list->values()) names.push_back(each.string_value());
  co_return names;
}

}  // namespace

weft::result<descriptors> descriptors::make(const connect_request& given) {
  descriptors made;
  if (given.descriptor_set.empty()) return made;
  std::ifstream file{given.descriptor_set, std::ios::binary};
  std::stringstream all;
  all << file.rdbuf();
  const std::string text = all.str();
  auto parsed = rpc::schema::parse(as_bytes(text));
  if (!file || !parsed)
    return weft::fail(errc::invalid_argument, layer::app,
                      given.descriptor_set + " is no set of descriptors: " +
                          (file ? parsed.error().message() : "it cannot be read"));
  made.file_ = std::move(*parsed);
  made.source_ = given.descriptor_set;
  return made;
}

task<rpc::result<std::vector<std::string>>> descriptors::services(
    rpc::caller& server, const rpc::call_options& options) {
  if (file_) co_return file_->services();
  source_ = own;
  auto described = co_await described_services(server, options);
  if (described || !worth_another_way(described.error().code())) co_return described;
  source_ = reflection;
  auto reflected = co_await rpc::services::reflected_services(server, options);
  if (reflected) co_return reflected;
  co_return std::unexpected{none_works(described.error(), reflected.error())};
}

task<rpc::result<rpc::schema>> descriptors::schema_of(rpc::caller& server, std::string service,
                                                      const rpc::call_options& options) {
  if (file_) co_return *file_;
  source_ = own;
  auto described = co_await rpc::schema::fetch(server, service, options);
  rpc::status why = described ? rpc::status{} : described.error();
  if (!described && worth_another_way(why.code())) {
    source_ = reflection;
    described = co_await rpc::services::reflected_schema(server, {service}, options);
    if (!described && described.error().code() != rpc::code::not_found)
      co_return std::unexpected{none_works(why, described.error())};
  }
  if (described || described.error().code() != rpc::code::not_found) co_return described;
  auto served = co_await services(server, options);
  co_return rpc::fail(rpc::code::unimplemented,
                      "the server has no service " + service +
                          "; it has: " + (served ? list_of(*served) : served.error().to_string()));
}

std::string service_of(std::string method) {
  if (method.starts_with('/')) method.erase(0, 1);
  const auto end = method.find_last_of(method.contains('/') ? '/' : '.');
  return end == method.npos ? "" : method.substr(0, end);
}

rpc::result<rpc::method_description> find_method(const rpc::schema& known,
                                                 const std::string& method) {
  const std::string service = service_of(method);
  const std::string path = "/" + service + "/" + method.substr(method.find_last_of("/.") + 1);
  const auto methods = known.methods(service);
  const auto found = std::ranges::find(methods, path, &rpc::method_description::path);
  if (found != methods.end()) return *found;
  if (methods.empty())
    return rpc::fail(rpc::code::unimplemented,
                     "no service " + service + " is known; there is: " + list_of(known.services()));
  std::vector<std::string> names;
  for (const auto& each : methods) names.push_back(each.path.substr(service.size() + 2));
  return rpc::fail(rpc::code::unimplemented,
                   service + " has no such method as " + method + "; it has: " + list_of(names));
}

}  // namespace weft::app
