#include "names.hpp"

#include <algorithm>
#include <array>
#include <map>

#include <google/protobuf/compiler/cpp/names.h>

namespace weft::generator {
namespace {

namespace pb = google::protobuf;

// C++20's keywords, alternative tokens and NULL. Sorted.
constexpr auto keywords = std::to_array<std::string_view>(
    {"NULL",         "alignas",   "alignof",       "and",
     "and_eq",       "asm",       "auto",          "bitand",
     "bitor",        "bool",      "break",         "case",
     "catch",        "char",      "char16_t",      "char32_t",
     "char8_t",      "class",     "co_await",      "co_return",
     "co_yield",     "compl",     "concept",       "const",
     "const_cast",   "consteval", "constexpr",     "constinit",
     "continue",     "decltype",  "default",       "delete",
     "do",           "double",    "dynamic_cast",  "else",
     "enum",         "explicit",  "export",        "extern",
     "false",        "float",     "for",           "friend",
     "goto",         "if",        "inline",        "int",
     "long",         "mutable",   "namespace",     "new",
     "noexcept",     "not",       "not_eq",        "nullptr",
     "operator",     "or",        "or_eq",         "private",
     "protected",    "public",    "register",      "reinterpret_cast",
     "requires",     "return",    "short",         "signed",
     "sizeof",       "static",    "static_assert", "static_cast",
     "struct",       "switch",    "template",      "this",
     "thread_local", "throw",     "true",          "try",
     "typedef",      "typeid",    "typename",      "union",
     "unsigned",     "using",     "virtual",       "void",
     "volatile",     "wchar_t",   "while",         "xor",
     "xor_eq"});

// Members and classes that the generated code brings along, and the system's lower-case macros.
constexpr auto taken = std::to_array<std::string_view>(
    {"assert", "client", "descriptor", "errno", "handler", "invoke", "linux", "major", "minor",
     "one_way", "one_way_client", "unix"});

std::string avoid_taken(std::string_view name) {
  std::string result{name};
  if (std::ranges::binary_search(keywords, name) || std::ranges::binary_search(taken, name))
    result += '_';
  return result;
}

}  // namespace

std::string method_name(const pb::MethodDescriptor& method) {
  return avoid_taken(method.name());
}

std::string service_name(const pb::ServiceDescriptor& service) {
  return avoid_taken(service.name());
}

std::string package_namespace(const pb::FileDescriptor& file) {
  std::string result;
  for (const char c : file.package())
    if (c == '.')
      result += "::";
    else
      result += c;
  return result;
}

std::string message_type(const pb::Descriptor& message) {
  return pb::compiler::cpp::QualifiedClassName(&message);
}

std::string without_extension(std::string_view file) {
  return pb::compiler::cpp::StripProto(std::string{file});
}

std::expected<void, std::string> check_names(const pb::FileDescriptor& file) {
  std::string_view rest = file.package();
  while (!rest.empty()) {
    const auto word = rest.substr(0, rest.find('.'));
    if (std::ranges::binary_search(keywords, word)) {
      return std::unexpected{"package " + file.package() + " contains the C++ keyword " +
                             std::string{word} +
                             ", for which protoc's own C++ code does not compile; rename it"};
    }
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
  }
  for (int s = 0; s < file.service_count(); ++s) {
    const auto& service = *file.service(s);
    std::map<std::string, const pb::MethodDescriptor*> seen;
    for (int m = 0; m < service.method_count(); ++m) {
      const auto& method = *service.method(m);
      const auto [other, fresh] = seen.emplace(method_name(method), &method);
      if (!fresh) {
        return std::unexpected{"methods " + other->second->full_name() + " and " +
                               method.full_name() + " would both be called " + other->first +
                               " in C++; rename one"};
      }
    }
  }
  return {};
}

}  // namespace weft::generator
