#pragma once

#include <memory>
#include <string>

#include <weft/tcp/stream.hpp>

namespace weft::tcp {

/// Makes TLS connections by one set of options. Copies share what is costly to prepare (the
/// machine's certificate authorities, say); usable from any thread.
class connector {
 public:
  static result<connector> make(tls::client_options options);

  /// Connects and completes the handshake before `deadline`. `host` is what was dialled: the name
  /// to verify unless the options name another; empty: the address itself. `shard` must outlive
  /// the stream. Cancellation: errc::cancelled.
  task<result<std::unique_ptr<stream>>> connect(io::shard& shard, address to, std::string host,
                                                time_point deadline) const;

 private:
  struct impl;
  std::shared_ptr<const impl> impl_;
};

/// `connector::make` and `connect` for a single connection.
task<result<std::unique_ptr<stream>>> connect(io::shard& shard, address to, std::string host,
                                              tls::client_options options, time_point deadline);

}  // namespace weft::tcp
