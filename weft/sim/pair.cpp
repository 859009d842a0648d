#include <weft/sim/pair.hpp>

#include <stdexcept>

namespace weft::sim {

quic::server_config test_server(const quic::transport_options& transport, std::string protocol) {
  quic::server_config config{.tls = {.identity = test_identity()}, .transport = transport};
  config.tls.alpn = {std::move(protocol)};
  return config;
}

quic::client_config test_client(const quic::transport_options& transport, std::string protocol) {
  quic::client_config config{.tls = {.trusted = test_trust()}, .transport = transport};
  config.tls.alpn = {std::move(protocol)};
  return config;
}

pair::pair(std::uint64_t seed, pair_options options)
    : world{seed},
      client_host{
          world.add_host(address::ipv4({10, 0, 0, 1}, 40'000), &recorder_, options.client_host)},
      server_host{
          world.add_host(address::ipv4({10, 0, 0, 2}, 443), &recorder_, options.server_host)} {
  recorder_.owner = this;
  world.net().defaults = options.link;
  if (auto done = server_host.listen(test_server(options.server, options.protocol)); !done)
    throw std::runtime_error{"sim: " + done.error().to_string()};
  auto made = client_host.connect(server_host.where(), "localhost",
                                  test_client(options.client, options.protocol));
  if (!made) throw std::runtime_error{"sim: " + made.error().to_string()};
  client = *made;
  const auto ready = [this] {
    using state = quic::core::connection::state;
    return client->current_state() != state::handshaking && server;
  };
  if (!until(ready)) throw std::runtime_error{"sim: the handshake did not finish"};
}

void pair::settle(duration length) {
  world.wake(client_host);
  world.wake(server_host);
  world.run_for(length);
}

bool pair::until(const std::function<bool()>& done, duration limit) {
  world.wake(client_host);
  world.wake(server_host);
  return world.run_until(done, limit);
}

void pair::recorder::on_ready(host& at, quic::core::connection& c) {
  if (&at == &owner->server_host) owner->server = &c;
}

}  // namespace weft::sim
