// Internal: a server's connections, whatever protocol they speak.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <weft/http/exchange.hpp>
#include <weft/rpc/http/server_call.hpp>
#include <weft/rpc/native/session.hpp>

namespace weft::rpc::detail {

/// ALPN of a QUIC connection whose first bidirectional stream carries HTTP/2, as it would go over
/// TLS/TCP.
inline constexpr std::string_view alpn_h2_one_stream = "weft-h2/1";

/// The server's end of one connection. Shard's thread only. Destroying it ends everything at once.
class session {
 public:
  virtual ~session() = default;
  /// Turns new calls away; completes when running ones have ended and their replies are on their
  /// way.
  virtual task<> drain() = 0;
  /// Ends running calls with `why`; HTTP's end with their shard's, see `end_calls`.
  virtual void conclude(const status& why) noexcept = 0;
  virtual void close(const status& why) noexcept = 0;
  /// Completes when the connection is over.
  virtual task<> finished() = 0;

  /// When its age is too high, and then when its grace is over. The server's.
  io::timer retirement;
};

std::unique_ptr<session> as_session(std::unique_ptr<native::server_session> native);
std::unique_ptr<session> as_session(std::unique_ptr<weft::http::server_connection> http);

/// Answers requests of gRPC, gRPC-Web and Connect, by their content type.
weft::http::request_handler answer_requests(std::shared_ptr<rpc::http::server_core> calls);

/// "quic-one-stream" and the rest, for HTTP.
weft::http::connection_info http_info(const transport_info& info, std::string peer_subject);

}  // namespace weft::rpc::detail
