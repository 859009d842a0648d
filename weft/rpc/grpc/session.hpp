#pragma once

#include <cstdint>
#include <memory>

#include <weft/rpc/http/client_call.hpp>
#include <weft/rpc/http/server_call.hpp>

// gRPC (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md; over HTTP/3 by proposal G2)
// and gRPC-Web (doc/PROTOCOL-WEB.md), on HTTP exchanges; messages in either codec.

namespace weft::rpc::grpc {

/// A request of these protocols, by its content type.
bool speaks(const weft::http::request_head& head) noexcept;

/// Answers one request, whatever it is: runs the call, grants a browser's preflight, or refuses
/// with 405 or 415. gRPC-Web is understood in its text form, too, which google's browser client
/// needs for streams.
void serve(std::unique_ptr<weft::http::exchange> e, const std::shared_ptr<http::server_core>& core);

enum class dialect : std::uint8_t {
  grpc,      ///< the status travels in HTTP trailers
  grpc_web,  ///< the status is the end of the content; passes where trailers do not
};

struct client_options : http::client_options {
  grpc::dialect dialect = dialect::grpc;
};

std::unique_ptr<rpc::transport> open(std::unique_ptr<weft::http::client_connection> connection,
                                     io::shard& shard, client_options options);

}  // namespace weft::rpc::grpc
