#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <weft/io/shard.hpp>
#include <weft/io/task.hpp>
#include <weft/quic/connection.hpp>
#include <weft/quic/core/options.hpp>
#include <weft/udp/socket.hpp>

namespace weft::quic {

namespace detail {
class endpoint_state;
}
class shard_group;

/// What an endpoint's loop may do in one turn before it lets others run.
struct loop_options {
  std::size_t receive_batch = 1024;  ///< datagrams taken from the socket
  /// Bytes of several datagrams that share a system call. Less lets both ends work at once, more
  /// costs fewer calls. Nothing adapts it: of 1 KiB echoes only those with 64 in flight gained from
  /// 16 KiB, 6 %, those with 16 or 256 changed by -2 to +3 %, while bulk fell to 0.75, and with
  /// 8 KiB to 0.53.
  std::size_t train_bytes = udp::max_train_bytes;
};

struct endpoint_config {
  endpoint_options core;
  udp::options socket;
  loop_options loop;
  /// For a server with several shards on one port (`socket.reuse_port`): the same for all of them.
  std::shared_ptr<shard_group> group;
};

/// QUIC connections on one shard, over one UDP socket (more while connections migrate). Shard's
/// thread only. Destroying it closes all connections abruptly; `drain` ends them in order.
class endpoint {
 public:
  /// For clients: an endpoint on `local` (default: any address, any port; the family of the server
  /// is chosen when connecting).
  static result<endpoint> open(io::shard& shard, address local, endpoint_config config = {});
  /// For servers: also accepts connections.
  static result<endpoint> listen(io::shard& shard, address local, server_config server,
                                 endpoint_config config = {});
  endpoint(endpoint&&) noexcept;
  endpoint& operator=(endpoint&&) noexcept;
  ~endpoint();

  io::shard& shard() const noexcept;
  const address& local_address() const noexcept;
  endpoint_stats stats() const;
  const udp::counters& socket_counters() const noexcept;
  const udp::capabilities& socket_capabilities() const noexcept;

  /// Completes when the handshake is done (with `early_data` and a resumable session: at once).
  /// `host` is checked against the server's certificate.
  task<result<connection>> connect(address remote, std::string host, client_config config);
  /// The next connection whose handshake is done. errc::closed once the endpoint is closed.
  task<result<connection>> accept();

  /// Stops accepting, waits until every connection has ended or `deadline` has passed, then closes
  /// what is left.
  task<> drain(time_point deadline);
  void close(std::uint64_t application_code = 0, std::string_view reason = {});

 private:
  friend class detail::endpoint_state;
  explicit endpoint(std::shared_ptr<detail::endpoint_state> state) noexcept;
  std::shared_ptr<detail::endpoint_state> state_;
};

}  // namespace weft::quic
