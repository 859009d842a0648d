// Links: weft_quic_core
//
// Raw datagrams, in any order and from several addresses, to an endpoint that listens: routing,
// version negotiation, Retry, stateless reset, and Initials of peers that never finish.
//
// Input: records of one byte (bits 0-1: sender, bits 2-7: how much time passes), two bytes of
// length, and that many bytes.

#include <cstdlib>
#include <vector>

#include <weft/quic/core/endpoint.hpp>

#include "../feeder.hpp"

namespace {

using namespace weft;
using namespace std::chrono_literals;

constexpr std::size_t transmit_buffer = 65'536;

const tls::credentials& identity() {
  static const auto made = tls::credentials::development();
  if (!made) std::abort();
  return *made;
}

std::unique_ptr<quic::core::endpoint> make_endpoint() {
  quic::endpoint_options options;
  options.secret.fill(7);
  options.memory = std::make_shared<memory_budget>(std::size_t{64} << 20);
  auto made = quic::core::endpoint::create(std::move(options));
  if (!made) std::abort();
  quic::server_config config{.tls = {.identity = identity(), .alpn = {"fuzz"}}};
  config.retry_above = 2;
  config.max_handshakes = 8;
  if (!(*made)->listen(std::move(config))) std::abort();
  return std::move(*made);
}

void drain(quic::core::endpoint& server, time_point now) {
  static std::vector<std::byte> buffer(transmit_buffer);
  while (auto* connection = server.poll_connection()) {
    while (connection->poll_event()) {
    }
    while (connection->poll_stream()) {
    }
  }
  for (int trains = 0; trains < 1000; ++trains) {
    const auto sent = server.poll_transmit(buffer, now);
    if (!sent) return;
    if (sent->size > buffer.size() || sent->segment == 0) std::abort();
  }
  std::abort();  // an endpoint that never runs out of things to say
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::feeder input{std::as_bytes(std::span{data, size})};
  const auto server = make_endpoint();
  const address local = address::ipv4({127, 0, 0, 1}, 443);
  time_point now{1s};
  while (!input.empty()) {
    const auto how = input.byte();
    const auto sender = static_cast<std::uint16_t>(1000 + (how & 3));
    const std::vector<std::byte> datagram = [&] {
      const auto part = input.take(input.word());
      return std::vector<std::byte>(part.begin(), part.end());
    }();
    now += std::chrono::milliseconds{how >> 2};
    if (server->next_timeout() <= now) server->handle_timeout(now);
    server->handle_datagrams({local, address::ipv4({127, 0, 0, 1}, sender)}, ecn::not_ect, datagram,
                             std::max<std::size_t>(datagram.size(), 1), now);
    (void)server->shard_of(datagram);
    drain(*server, now);
  }
  return 0;
}
