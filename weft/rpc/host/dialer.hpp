// Internal: how a channel gets its connections.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <weft/rpc/host/channel.hpp>
#include <weft/rpc/host/session.hpp>
#include <weft/rpc/http/client_call.hpp>
#include <weft/tcp/connector.hpp>

namespace weft::rpc::detail {

/// Where a channel leads: "greet.example:8443", "127.0.0.1:8443", "[::1]:8443".
struct target {
  std::string text;
  std::string host;
  std::string port;
  std::optional<address> numeric;  ///< when no name has to be looked up

  /// errc::invalid_argument, saying what is missing.
  static weft::result<target> parse(std::string_view text);
};

/// A connected way to the server and what the channel wants to know of it.
struct link {
  std::shared_ptr<transport> calls;
  /// The QUIC connection beneath; null over TCP. Lives as long as `calls`.
  quic::connection* connection = nullptr;
  /// Made with 0-RTT, whose handshake is not done: what is sent now may be replayed by others.
  bool early = false;
  bool tried_early = false;

  bool usable() const noexcept { return calls && calls->usable(); }
};

/// Makes a channel's connections, one after another: looks names up, dials, opens the protocol.
/// Coroutines refer to the dialer, which outlives them.
class dialer {
 public:
  using elsewhere = decltype(native::session_options::elsewhere);
  using other_transport = decltype(rpc::http::client_options::elsewhere);

  dialer(io::shard& shard, target to, const channel_options& options);
  /// What becomes of calls that a server turned away unseen; see `native::session_options` and
  /// `http::client_options`.
  void on_refused(elsewhere again, other_transport over_http) {
    elsewhere_ = std::move(again);
    other_transport_ = std::move(over_http);
  }

  /// Tries every address. `early` permits 0-RTT where there is something to resume.
  task<weft::result<link>> dial(bool early);
  /// Keeps what the next connection can resume from.
  void remember(const link& last);
  /// Ends all connections. Waits a little for their farewell.
  task<> drain();

 private:
  task<weft::result<std::vector<address>>> resolve();
  task<weft::result<link>> dial_address(address to, bool early, duration patience);
  task<weft::result<link>> dial_quic(address to, bool early, duration patience);
  task<weft::result<link>> dial_tcp(address to, duration patience);
  tls::client_options tls_options(std::vector<std::string> alpn) const;
  native::session_options session_options() const;
  /// The channel's protocol on an HTTP connection.
  link open_http(std::unique_ptr<weft::http::client_connection> connection);
  bool speaks_http() const noexcept { return options_.protocol != protocol::native; }

  io::shard& shard_;
  target to_;
  const channel_options& options_;
  std::optional<quic::endpoint> endpoint_;
  std::optional<tcp::connector> connector_;
  quic::resumption resumption_;
  elsewhere elsewhere_;
  other_transport other_transport_;
};

}  // namespace weft::rpc::detail
