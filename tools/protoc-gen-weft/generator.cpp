#include "generator.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/printer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "names.hpp"

namespace weft::generator {
namespace {

namespace pb = google::protobuf;
using variables = std::map<std::string, std::string>;

enum class kind { unary, server_streaming, client_streaming, bidi_streaming };

kind kind_of(const pb::MethodDescriptor& method) {
  if (method.client_streaming())
    return method.server_streaming() ? kind::bidi_streaming : kind::client_streaming;
  return method.server_streaming() ? kind::server_streaming : kind::unary;
}

std::string_view to_string(kind k) {
  switch (k) {
    case kind::unary:
      return "unary";
    case kind::server_streaming:
      return "server_streaming";
    case kind::client_streaming:
      return "client_streaming";
    case kind::bidi_streaming:
      return "bidi_streaming";
  }
  return {};
}

std::string_view level_of(const pb::MethodDescriptor& method) {
  switch (method.options().idempotency_level()) {
    case pb::MethodOptions::NO_SIDE_EFFECTS:
      return "no_side_effects";
    case pb::MethodOptions::IDEMPOTENT:
      return "idempotent";
    default:
      return "unknown";
  }
}

std::vector<const pb::MethodDescriptor*> methods_of(const pb::ServiceDescriptor& service) {
  std::vector<const pb::MethodDescriptor*> result;
  for (int i = 0; i < service.method_count(); ++i) result.push_back(service.method(i));
  return result;
}

bool has_unary(const pb::ServiceDescriptor& service) {
  for (const auto* method : methods_of(service))
    if (kind_of(*method) == kind::unary) return true;
  return false;
}

variables variables_of(const pb::ServiceDescriptor& service) {
  return {{"service", service_name(service)}, {"service_path", service.full_name()}};
}

variables variables_of(const pb::MethodDescriptor& method) {
  auto result = variables_of(*method.service());
  result["method"] = method_name(method);
  result["method_path"] = method.name();
  result["index"] = std::to_string(method.index());
  result["request"] = message_type(*method.input_type());
  result["response"] = message_type(*method.output_type());
  result["kind"] = to_string(kind_of(method));
  result["level"] = level_of(method);
  return result;
}

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

/// A declaration's comment in the .proto, as Doxygen lines.
template <class Descriptor>
void print_comment(pb::io::Printer& out, const Descriptor& declared) {
  pb::SourceLocation location;
  if (!declared.GetSourceLocation(&location)) return;
  std::string_view rest = location.leading_comments;
  while (!rest.empty()) {
    const auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const auto text = trimmed(line);
    out.Print(text.empty() ? "///\n" : "/// $text$\n", "text", std::string{text});
  }
}

// The header
// ----------------------------------------------------------------------------------------

/// What a handler's method returns.
std::string handler_result(const pb::MethodDescriptor& method) {
  if (method.server_streaming()) return "::weft::rpc::status";
  return "::weft::rpc::result<" + message_type(*method.output_type()) + ">";
}

void print_handler_method(pb::io::Printer& out, const pb::MethodDescriptor& method) {
  print_comment(out, method);
  auto values = variables_of(method);
  values["result"] = handler_result(method);
  out.Print(values,
            "virtual ::weft::task<$result$> $method$(\n"
            "    ::weft::rpc::server_context& context,\n");
  out.Print(values, method.client_streaming() ? "    ::weft::rpc::reader<$request$>& requests"
                                              : "    $request$ request");
  if (method.server_streaming())
    out.Print(values, ",\n    ::weft::rpc::writer<$response$>& responses");
  out.Print(");\n");
}

void print_handler(pb::io::Printer& out, const pb::ServiceDescriptor& service) {
  out.Print(
      "/// Derive from it and override what you serve; the rest answers `unimplemented`. A "
      "handler's\n"
      "/// coroutine is cancelled when its call is over.\n"
      "class handler : public ::weft::rpc::service_handler {\n"
      " public:\n");
  out.Indent();
  for (const auto* method : methods_of(service)) {
    print_handler_method(out, *method);
    out.Print("\n");
  }
  out.Print(
      "const ::weft::rpc::service& descriptor() const noexcept final;\n"
      "::weft::task<::weft::rpc::status> invoke(\n"
      "    std::size_t method, ::weft::rpc::server_context& context,\n"
      "    ::weft::rpc::server_call& call) final;\n");
  out.Outdent();
  out.Print("};\n");
}

/// What a client's method returns, and takes before its options.
void print_client_method(pb::io::Printer& out, const pb::MethodDescriptor& method) {
  print_comment(out, method);
  const auto values = variables_of(method);
  switch (kind_of(method)) {
    case kind::unary:
      out.Print(values,
                "::weft::task<::weft::rpc::result<$response$>> $method$(\n"
                "    const $request$& request, ::weft::rpc::call_options options = {});\n");
      break;
    case kind::server_streaming:
      out.Print(
          values,
          "::weft::task<::weft::rpc::result<::weft::rpc::server_stream<$response$>>> $method$(\n"
          "    const $request$& request, ::weft::rpc::call_options options = {});\n");
      break;
    case kind::client_streaming:
      out.Print(values,
                "::weft::task<::weft::rpc::result<\n"
                "    ::weft::rpc::client_stream<$request$, $response$>>>\n"
                "$method$(::weft::rpc::call_options options = {});\n");
      break;
    case kind::bidi_streaming:
      out.Print(values,
                "::weft::task<::weft::rpc::result<\n"
                "    ::weft::rpc::bidi_stream<$request$, $response$>>>\n"
                "$method$(::weft::rpc::call_options options = {});\n");
      break;
  }
}

void print_one_way_client(pb::io::Printer& out, const pb::ServiceDescriptor& service) {
  out.Print(
      "/// Calls without a reply, delivered at most once. Complete when a bounded buffer has taken "
      "the\n"
      "/// request.\n"
      "class one_way_client {\n"
      " public:\n"
      "  explicit one_way_client(::weft::rpc::caller& via) noexcept : via_{&via} {}\n"
      "\n");
  out.Indent();
  for (const auto* method : methods_of(service)) {
    if (kind_of(*method) != kind::unary) continue;
    out.Print(variables_of(*method),
              "::weft::task<::weft::rpc::result<>> $method$(\n"
              "    const $request$& request, ::weft::rpc::call_options options = {});\n");
  }
  out.Outdent();
  out.Print(
      "\n"
      " private:\n"
      "  ::weft::rpc::caller* via_;\n"
      "};\n"
      "\n");
}

void print_client(pb::io::Printer& out, const pb::ServiceDescriptor& service) {
  if (has_unary(service)) print_one_way_client(out, service);
  out.Print(
      "/// Calls the service. Refers to `via` (a channel), which must outlive it and its calls.\n"
      "/// A call starts when awaited. It refers to its request: `co_await` it in the expression "
      "that\n"
      "/// makes it, or keep the request until it has completed.\n"
      "class client {\n"
      " public:\n"
      "  explicit client(::weft::rpc::caller& via) noexcept : via_{&via} {}\n"
      "\n");
  out.Indent();
  for (const auto* method : methods_of(service)) {
    print_client_method(out, *method);
    out.Print("\n");
  }
  if (has_unary(service)) {
    out.Print(
        "/// The same service, one way.\n"
        "one_way_client one_way() const noexcept { return one_way_client{*via_}; }\n\n");
  }
  out.Outdent();
  out.Print(
      " private:\n"
      "  ::weft::rpc::caller* via_;\n"
      "};\n");
}

void print_service(pb::io::Printer& out, const pb::ServiceDescriptor& service) {
  out.Print("\n");
  print_comment(out, service);
  out.Print(variables_of(service), "struct $service$ {\n");
  out.Indent();
  out.Print(
      "/// Names, methods and file descriptors. Static.\n"
      "static const ::weft::rpc::service& descriptor() noexcept;\n\n");
  print_handler(out, service);
  out.Print("\n");
  print_client(out, service);
  out.Outdent();
  out.Print("};\n");
}

void print_file_start(pb::io::Printer& out, const pb::FileDescriptor& file) {
  out.Print("// Generated by protoc-gen-weft from $file$. Do not edit.\n", "file", file.name());
}

void print_namespace(pb::io::Printer& out, const pb::FileDescriptor& file, bool open) {
  const auto name = package_namespace(file);
  if (name.empty()) return;
  out.Print(open ? "\nnamespace $name$ {\n" : "\n}  // namespace $name$\n", "name", name);
}

void print_header(pb::io::Printer& out, const pb::FileDescriptor& file) {
  print_file_start(out, file);
  out.Print("#pragma once\n\n#include \"$base$.pb.h\"\n", "base", without_extension(file.name()));
  if (file.service_count() == 0) return;
  out.Print(
      "\n"
      "#include <cstddef>\n"
      "\n"
      "#include <weft/rpc/client.hpp>\n"
      "#include <weft/rpc/handler.hpp>\n");
  print_namespace(out, file, true);
  for (int i = 0; i < file.service_count(); ++i) print_service(out, *file.service(i));
  print_namespace(out, file, false);
}

// The source
// ----------------------------------------------------------------------------------------

/// `file` and all it imports, each once, imports first.
std::vector<const pb::FileDescriptor*> with_imports(const pb::FileDescriptor& file) {
  std::vector<const pb::FileDescriptor*> result;
  std::unordered_set<const pb::FileDescriptor*> seen;
  const std::function<void(const pb::FileDescriptor&)> visit = [&](const auto& next) {
    if (!seen.insert(&next).second) return;
    for (int i = 0; i < next.dependency_count(); ++i) visit(*next.dependency(i));
    result.push_back(&next);
  };
  visit(file);
  return result;
}

std::string serialized(const pb::FileDescriptor& file) {
  pb::FileDescriptorProto proto;
  file.CopyTo(&proto);
  std::string result;
  pb::io::StringOutputStream target{&result};
  pb::io::CodedOutputStream coded{&target};
  coded.SetSerializationDeterministic(true);
  proto.SerializeToCodedStream(&coded);
  return result;
}

/// C++ literals of at most 80 columns. Octal escapes: they end by themselves, unlike `\x`.
std::vector<std::string> literals(std::string_view bytes) {
  std::vector<std::string> lines;
  std::string line;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    std::string piece;
    if (c == '"' || c == '\\')
      piece = {'\\', c};
    else if (byte >= 0x20 && byte < 0x7f && c != '?')
      piece = {c};
    else
      piece = {'\\', static_cast<char>('0' + (byte >> 6)), static_cast<char>('0' + (byte >> 3 & 7)),
               static_cast<char>('0' + (byte & 7))};
    if (line.size() + piece.size() > 80) lines.push_back(std::exchange(line, {}));
    line += piece;
  }
  lines.push_back(std::move(line));
  return lines;
}

void print_descriptors(pb::io::Printer& out, const pb::FileDescriptor& file) {
  out.Print(
      "\n// Serialized google.protobuf.FileDescriptorProto, imports first.\n"
      "constexpr std::string_view weft_files[] = {\n");
  for (const auto* each : with_imports(file)) {
    const auto bytes = serialized(*each);
    out.Print("    {  // $name$\n", "name", each->name());
    for (const auto& line : literals(bytes)) out.Print("        \"$line$\"\n", "line", line);
    out.Print("        ,\n        $size$},\n", "size", std::to_string(bytes.size()));
  }
  out.Print("};\n");
}

void print_method_table(pb::io::Printer& out, const pb::ServiceDescriptor& service) {
  if (service.method_count() == 0) return;
  out.Print(variables_of(service),
            "\nconstexpr ::weft::rpc::method weft_$service$_methods[] = {\n");
  for (const auto* method : methods_of(service)) {
    out.Print(variables_of(*method),
              "    {\"/$service_path$/$method_path$\", \"$service_path$\", \"$method_path$\",\n"
              "     ::weft::rpc::call_kind::$kind$, ::weft::rpc::idempotency::$level$},\n");
  }
  out.Print("};\n");
}

/// A coroutine that reads what the method takes, runs it, and writes what it returns.
void print_serve(pb::io::Printer& out, const pb::MethodDescriptor& method) {
  const auto values = variables_of(method);
  out.Print(values,
            "\n::weft::task<::weft::rpc::status> weft_serve_$service$_$index$(\n"
            "    $service$::handler& handler, ::weft::rpc::server_context& context,\n"
            "    ::weft::rpc::server_call& call) {\n");
  out.Indent();
  if (method.client_streaming()) {
    out.Print(values, "::weft::rpc::reader<$request$> requests{call};\n");
  } else {
    out.Print(values,
              "auto request = co_await ::weft::rpc::read_single<$request$>(call);\n"
              "if (!request) co_return std::move(request).error();\n");
  }
  const std::string argument = method.client_streaming() ? "requests" : "*std::move(request)";
  if (method.server_streaming()) {
    out.Print(values, "::weft::rpc::writer<$response$> responses{call};\n");
    out.Print("co_return co_await handler.$method$(context, $argument$, responses);\n", "method",
              method_name(method), "argument", argument);
  } else {
    out.Print(
        "auto reply = co_await handler.$method$(context, $argument$);\n"
        "co_return co_await ::weft::rpc::write_reply(call, std::move(reply));\n",
        "method", method_name(method), "argument", argument);
  }
  out.Outdent();
  out.Print("}\n");
}

void print_default_method(pb::io::Printer& out, const pb::MethodDescriptor& method) {
  auto values = variables_of(method);
  values["result"] = handler_result(method);
  out.Print(values,
            "\n::weft::task<$result$> $service$::handler::$method$(\n"
            "    ::weft::rpc::server_context&,\n");
  out.Print(values,
            method.client_streaming() ? "    ::weft::rpc::reader<$request$>&" : "    $request$");
  if (method.server_streaming()) out.Print(values, ",\n    ::weft::rpc::writer<$response$>&");
  out.Print(values, ") {\n  co_return ");
  out.Print(method.server_streaming() ? "::weft::rpc::status{" : "::weft::rpc::fail(");
  out.Print(values,
            "::weft::rpc::code::unimplemented,\n"
            "      \"$service_path$/$method_path$ is not implemented\"");
  out.Print(method.server_streaming() ? "};\n}\n" : ");\n}\n");
}

void print_handler_definitions(pb::io::Printer& out, const pb::ServiceDescriptor& service) {
  for (const auto* method : methods_of(service)) print_default_method(out, *method);
  const auto values = variables_of(service);
  out.Print(values,
            "\nconst ::weft::rpc::service& $service$::handler::descriptor() const noexcept {\n"
            "  return $service$::descriptor();\n"
            "}\n"
            "\n"
            "::weft::task<::weft::rpc::status> $service$::handler::invoke(\n"
            "    [[maybe_unused]] std::size_t method,\n"
            "    [[maybe_unused]] ::weft::rpc::server_context& context,\n"
            "    [[maybe_unused]] ::weft::rpc::server_call& call) {\n");
  out.Indent();
  if (service.method_count() != 0) {
    out.Print("switch (method) {\n");
    for (const auto* method : methods_of(service)) {
      out.Print(variables_of(*method),
                "  case $index$: return weft_serve_$service$_$index$(*this, context, call);\n");
    }
    out.Print("}\n");
  }
  out.Print("return weft_no_such_method();\n");
  out.Outdent();
  out.Print("}\n");
}

void print_client_definition(pb::io::Printer& out, const pb::MethodDescriptor& method) {
  auto values = variables_of(method);
  values["table"] = "weft_" + values["service"] + "_methods[" + values["index"] + "]";
  switch (kind_of(method)) {
    case kind::unary:
      out.Print(values,
                "\n::weft::task<::weft::rpc::result<$response$>> $service$::client::$method$(\n"
                "    const $request$& request, ::weft::rpc::call_options options) {\n"
                "  return ::weft::rpc::unary_call<$request$, $response$>(\n"
                "      *via_, $table$, request, std::move(options));\n"
                "}\n"
                "\n::weft::task<::weft::rpc::result<>> $service$::one_way_client::$method$(\n"
                "    const $request$& request, ::weft::rpc::call_options options) {\n"
                "  return ::weft::rpc::one_way_call<$request$>(\n"
                "      *via_, $table$, request, std::move(options));\n"
                "}\n");
      break;
    case kind::server_streaming:
      out.Print(values,
                "\n::weft::task<::weft::rpc::result<::weft::rpc::server_stream<$response$>>>\n"
                "$service$::client::$method$(\n"
                "    const $request$& request, ::weft::rpc::call_options options) {\n"
                "  return ::weft::rpc::server_streaming_call<$request$, $response$>(\n"
                "      *via_, $table$, request, std::move(options));\n"
                "}\n");
      break;
    case kind::client_streaming:
    case kind::bidi_streaming:
      values["stream"] = std::string{"::weft::rpc::"} +
                         (method.server_streaming() ? "bidi" : "client") + "_stream<" +
                         values["request"] + ", " + values["response"] + ">";
      out.Print(values,
                "\n::weft::task<::weft::rpc::result<\n"
                "    $stream$>>\n"
                "$service$::client::$method$(::weft::rpc::call_options options) {\n"
                "  return ::weft::rpc::streaming_call<\n"
                "      $stream$>(\n"
                "      *via_, $table$, std::move(options));\n"
                "}\n");
      break;
  }
}

void print_descriptor_definition(pb::io::Printer& out, const pb::ServiceDescriptor& service) {
  auto values = variables_of(service);
  values["methods"] = service.method_count() == 0 ? "{}" : "weft_" + values["service"] + "_methods";
  out.Print(values,
            "\nconst ::weft::rpc::service& $service$::descriptor() noexcept {\n"
            "  static constexpr ::weft::rpc::service value{\n"
            "      \"$service_path$\", $methods$, weft_files};\n"
            "  return value;\n"
            "}\n");
}

void print_source(pb::io::Printer& out, const pb::FileDescriptor& file) {
  print_file_start(out, file);
  out.Print("#include \"$base$.weft.h\"\n", "base", without_extension(file.name()));
  if (file.service_count() == 0) return;
  out.Print("\n#include <string_view>\n#include <utility>\n");
  print_namespace(out, file, true);
  out.Print("namespace {\n");
  print_descriptors(out, file);
  for (int i = 0; i < file.service_count(); ++i) {
    print_method_table(out, *file.service(i));
    for (const auto* method : methods_of(*file.service(i))) print_serve(out, *method);
  }
  out.Print(
      "\n"
      "::weft::task<::weft::rpc::status> weft_no_such_method() {\n"
      "  co_return ::weft::rpc::status{::weft::rpc::code::unimplemented, \"no such method\"};\n"
      "}\n"
      "\n"
      "}  // namespace\n");
  for (int i = 0; i < file.service_count(); ++i) {
    const auto& service = *file.service(i);
    print_descriptor_definition(out, service);
    print_handler_definitions(out, service);
    for (const auto* method : methods_of(service)) print_client_definition(out, *method);
  }
  print_namespace(out, file, false);
}

}  // namespace

bool generator::Generate(const pb::FileDescriptor* file, const std::string& parameter,
                         pb::compiler::GeneratorContext* context, std::string* error) const {
  if (!parameter.empty()) {
    *error = "protoc-gen-weft takes no options, got \"" + parameter + "\"";
    return false;
  }
  if (const auto checked = check_names(*file); !checked) {
    *error = checked.error();
    return false;
  }
  const auto base = without_extension(file->name());
  const std::unique_ptr<pb::io::ZeroCopyOutputStream> header{context->Open(base + ".weft.h")};
  const std::unique_ptr<pb::io::ZeroCopyOutputStream> source{context->Open(base + ".weft.cc")};
  pb::io::Printer header_printer{header.get(), '$'};
  pb::io::Printer source_printer{source.get(), '$'};
  print_header(header_printer, *file);
  print_source(source_printer, *file);
  return true;
}

}  // namespace weft::generator
