#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <weft/quic/core/connection.hpp>
#include <weft/quic/core/options.hpp>

namespace weft::quic::core {

/// Datagrams to send over one path: each `segment` bytes, the last possibly shorter.
struct transmit {
  weft::path path;
  weft::ecn ecn = weft::ecn::not_ect;
  std::size_t size = 0;  ///< bytes written to the caller's buffer
  std::size_t segment = 0;
};

/// All connections behind one or more sockets of a shard: routing, address validation and stateless
/// answers. Takes bytes and a time, gives bytes and events; touches no socket and no clock.
///
/// The order of one turn: any number of `handle_datagrams` / `handle_timeout`; then
/// `poll_connection` until null, taking each one's events and streams and letting their owner act;
/// then `poll_transmit` until empty; then sleep until `next_timeout`.
///
/// Nothing a peer sends throws, aborts or grows memory beyond the configured limits.
class endpoint {
 public:
  /// errc::random when the random source fails.
  static result<std::unique_ptr<endpoint>> create(endpoint_options options);
  ~endpoint();
  endpoint(const endpoint&) = delete;
  endpoint& operator=(const endpoint&) = delete;

  /// Accepts connections from now on (also: with changed options from now on).
  result<> listen(server_config config);
  /// Refuses new connections from now on; existing ones go on.
  void stop_listening();

  result<connection*> connect(const path& where, std::string_view host, client_config config,
                              time_point now);
  /// The owner will not touch `c` again. An open connection is closed with code 0 first.
  void release(connection& c, time_point now);

  // Input -----------------------------------------------------------------------------------------
  /// A train as it arrived: datagrams of `segment` bytes, the last possibly shorter.
  void handle_datagrams(const path& from, ecn mark, bytes payload, std::size_t segment,
                        time_point now);
  void handle_timeout(time_point now);

  // Output ----------------------------------------------------------------------------------------
  /// The next connection with events or streams to look at, or null. A new server connection shows
  /// up here with `user == nullptr` once its handshake is done.
  connection* poll_connection();
  /// Writes the next train into `buffer` (at least 65 488 bytes). Empty: nothing to send now. A
  /// train of several datagrams is at most `train_bytes` long.
  std::optional<transmit> poll_transmit(mutable_bytes buffer, time_point now,
                                        std::size_t train_bytes = static_cast<std::size_t>(-1));
  /// True when `poll_transmit` may have something (an operation since the last one changed state).
  bool wants_transmit() const noexcept;
  time_point next_timeout() const;

  /// The shard that issued the destination connection id of a datagram, if any of ours did: for
  /// forwarding a packet that the kernel steered wrong.
  std::optional<std::uint8_t> shard_of(bytes datagram) const;

  const endpoint_stats& stats() const noexcept;
  /// Closes every connection with `code`; they drain and end.
  void close_all(std::uint64_t application_code, std::string_view reason, time_point now);

 private:
  struct impl;
  explicit endpoint(std::unique_ptr<impl> state) noexcept;
  std::unique_ptr<impl> impl_;
};

}  // namespace weft::quic::core
