#pragma once

// Internal to weft::tcp: the driver that moves an engine's bytes over a socket.

#include <asio/basic_stream_socket.hpp>
#include <asio/ip/tcp.hpp>

#include <weft/tcp/engine.hpp>
#include <weft/tcp/stream.hpp>

namespace weft::tcp {

using socket_type = asio::basic_stream_socket<asio::ip::tcp, executor>;

address from_endpoint(const asio::ip::tcp::endpoint& endpoint);
result<asio::ip::tcp::endpoint> to_endpoint(const address& from);
/// An error for a failed socket call: refused, unreachable, reset, timed_out or system.
error socket_error(std::string_view what, int number);

/// Shared by the stream and its pending operations, so that those may outlive the stream object.
struct stream::impl {
  impl(io::shard& home, socket_type connected, tls::ssl_ptr ssl, std::string peer);

  /// Completes the handshake before `deadline`, or fails and has sent the alert, if any.
  task<result<>> handshake(time_point deadline);
  /// Waits for ciphertext or its end.
  task<result<>> receive();
  /// Sends all output.
  task<result<>> flush();
  /// After a failed handshake: ends our direction and waits a little for the peer to read the
  /// alert, which closing at once could destroy (unread input turns a close into a reset).
  task<void> part(time_point deadline);

  void abort() noexcept;
  error cancelled_error() const;

  io::shard& shard;
  socket_type socket;
  engine tls;
  std::string peer;
  address local, remote;
  tls::session_info session;
  stream_counters counters;
  bool aborted = false;
  bool expired = false;   // the handshake's deadline passed
  bool finished = false;  // close_notify is sent

 private:
  enum class sent : std::uint8_t { all, some };
  result<sent> send_now();
  bool receive_now();
  bool may_go_on_inline() noexcept;

  std::size_t next_receive_;
  bool more_expected_ = false;
  unsigned inline_steps_ = 0;

  friend class stream;
};

}  // namespace weft::tcp
