#pragma once

#include <cstdint>
#include <optional>

#include <weft/sim/identity.hpp>
#include <weft/sim/world.hpp>

namespace weft::sim {

struct pair_options {
  link_options link;
  quic::transport_options client;
  quic::transport_options server;
  host_options client_host;
  host_options server_host;
  std::string protocol = "sim";
};

/// A server configuration with the test identity, and a client's that trusts it.
quic::server_config test_server(const quic::transport_options& transport = {},
                                std::string protocol = "sim");
quic::client_config test_client(const quic::transport_options& transport = {},
                                std::string protocol = "sim");

/// A client and a server in a world of their own:
///
///     sim::pair pair{seed};
///     auto* stream = *pair.client->open_stream(true);
///     …
///     pair.settle();
///
/// The constructor completes the handshake and throws when that fails. Connections have no
/// application: tests drive them by hand, and `settle()` lets time pass.
class pair {
 public:
  explicit pair(std::uint64_t seed = 1, pair_options options = {});

  class world world;
  host& client_host;
  host& server_host;
  quic::core::connection* client = nullptr;
  quic::core::connection* server = nullptr;

  /// Lets everything that was asked for happen: wakes both hosts, then runs for `length`.
  void settle(duration length = 1s);
  /// Until `done()` holds.
  bool until(const std::function<bool()>& done, duration limit = 60s);

 private:
  class recorder final : public application {
   public:
    void on_ready(host& at, quic::core::connection& c) override;
    pair* owner = nullptr;
  };
  recorder recorder_;
};

}  // namespace weft::sim
