#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace weft::rpc {

enum class call_kind : std::uint8_t { unary, server_streaming, client_streaming, bidi_streaming };

/// google.protobuf.MethodOptions.IdempotencyLevel: what may be retried, cached, or sent as 0-RTT.
enum class idempotency : std::uint8_t { unknown, no_side_effects, idempotent };

/// One method of a service. Static data of generated code; lives for ever.
struct method {
  std::string_view path;     ///< "/greet.v1.GreetService/Greet"
  std::string_view service;  ///< "greet.v1.GreetService"
  std::string_view name;     ///< "Greet"
  call_kind kind = call_kind::unary;
  rpc::idempotency level = rpc::idempotency::unknown;

  bool client_streams() const noexcept {
    return kind == call_kind::client_streaming || kind == call_kind::bidi_streaming;
  }
  bool server_streams() const noexcept {
    return kind == call_kind::server_streaming || kind == call_kind::bidi_streaming;
  }
};

/// One service. Static data of generated code; lives for ever.
struct service {
  std::string_view name;  ///< "greet.v1.GreetService"
  std::span<const method> methods;
  /// Serialized google.protobuf.FileDescriptorProto of the defining file and of all it imports,
  /// imports first.
  std::span<const std::string_view> files;
};

}  // namespace weft::rpc
