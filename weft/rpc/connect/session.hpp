#pragma once

#include <memory>

#include <weft/rpc/http/client_call.hpp>
#include <weft/rpc/http/server_call.hpp>

// The Connect protocol (https://connectrpc.com/docs/protocol) over HTTP exchanges: unary calls as
// plain requests with POST or GET, streams in envelopes; messages in either codec.

namespace weft::rpc::connect {

/// A request of this protocol, by content type or, for a GET, by its query.
bool speaks(const weft::http::request_head& head) noexcept;

/// Answers one request, whatever it is: runs the call, grants a browser's preflight, or refuses
/// with 404, 405 or 415.
void serve(std::unique_ptr<weft::http::exchange> e, const std::shared_ptr<http::server_core>& core);

struct client_options : http::client_options {
  /// Call methods with idempotency_level = NO_SIDE_EFFECTS by GET, which caches understand.
  bool use_get = false;
  /// Longest path and query of a GET; messages that need more go by POST. Bytes.
  std::size_t max_get_path = 8'192;
};

std::unique_ptr<rpc::transport> open(std::unique_ptr<weft::http::client_connection> connection,
                                     io::shard& shard, client_options options);

}  // namespace weft::rpc::connect
