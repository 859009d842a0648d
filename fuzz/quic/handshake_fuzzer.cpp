// Links: weft_quic_core
//
// A real client and a real server, with the datagrams between them damaged as the input says: bits
// flipped, cut short, repeated, dropped, swapped. Neither end may crash, hang, or keep memory.
//
// Input: one decision a datagram (what to do), with the bytes that the decision needs.

#include <cstdlib>
#include <deque>
#include <vector>

#include <weft/quic/core/endpoint.hpp>

#include "../feeder.hpp"

namespace {

using namespace weft;
using namespace std::chrono_literals;

constexpr std::size_t transmit_buffer = 65'536;
constexpr int max_rounds = 200;

struct node {
  std::unique_ptr<quic::core::endpoint> endpoint;
  std::deque<std::vector<std::byte>> inbox;
};

const tls::credentials& identity() {
  static const auto made = tls::credentials::development({"fuzz"});
  if (!made) std::abort();
  return *made;
}

std::unique_ptr<quic::core::endpoint> make_endpoint(const std::shared_ptr<memory_budget>& memory) {
  quic::endpoint_options options;
  options.secret.fill(9);
  options.memory = memory;
  auto made = quic::core::endpoint::create(std::move(options));
  if (!made) std::abort();
  return std::move(*made);
}

/// Opens a stream, writes, and reads whatever comes, as an application would.
void act(quic::core::connection& connection) {
  while (auto event = connection.poll_event())
    if (event->what == quic::core::connection_event::kind::handshake_done)
      if (auto opened = connection.open_stream(true)) {
        (void)(*opened)->write(slice::copy(std::string(3000, 'x')));
        (void)(*opened)->finish();
      }
  while (auto* incoming = connection.accept_stream()) (void)incoming->finish();
  while (auto* stream = connection.poll_stream()) {
    stream->take_events();
    while (!stream->read().empty()) {
    }
  }
}

void damage(std::vector<std::byte>& datagram, fuzz::feeder& input, node& target) {
  enum { deliver, flip, cut, drop, repeat, swap, append, actions };
  switch (input.byte() % actions) {
    case flip:
      for (int i = input.byte() % 8; i >= 0 && !datagram.empty(); --i)
        datagram[input.word() % datagram.size()] ^= std::byte{input.byte()};
      break;
    case cut:
      datagram.resize(input.word() % (datagram.size() + 1));
      break;
    case drop:
      datagram.clear();
      return;
    case repeat:
      target.inbox.push_back(datagram);
      break;
    case swap:
      if (!target.inbox.empty()) std::swap(datagram, target.inbox.back());
      break;
    case append:
      datagram.resize(datagram.size() + input.byte());
      break;
    default:
      break;
  }
}

void send_all(node& from, node& to, fuzz::feeder& input, time_point now) {
  static std::vector<std::byte> buffer(transmit_buffer);
  while (auto* connection = from.endpoint->poll_connection()) act(*connection);
  for (int trains = 0; trains < 1000; ++trains) {
    const auto sent = from.endpoint->poll_transmit(buffer, now);
    if (!sent) return;
    for (std::size_t at = 0; at < sent->size; at += sent->segment) {
      const auto* begin = buffer.data() + at;
      std::vector<std::byte> datagram(begin, begin + std::min(sent->segment, sent->size - at));
      damage(datagram, input, to);
      if (!datagram.empty()) to.inbox.push_back(std::move(datagram));
    }
  }
  std::abort();  // an endpoint that never runs out of things to say
}

void receive_all(node& at, const path& way, time_point now) {
  for (auto datagrams = std::exchange(at.inbox, {}); auto& datagram : datagrams)
    if (!datagram.empty())
      at.endpoint->handle_datagrams(way, ecn::not_ect, datagram, datagram.size(), now);
}

void converse(fuzz::feeder& input, const std::shared_ptr<memory_budget>& memory) {
  const path there{address::ipv4({127, 0, 0, 1}, 5000), address::ipv4({127, 0, 0, 1}, 443)};
  const path back{there.remote, there.local};
  node client{make_endpoint(memory), {}}, server{make_endpoint(memory), {}};
  if (!server.endpoint->listen({.tls = {.identity = identity(), .alpn = {"fuzz"}}})) std::abort();
  quic::client_config config{.tls = {.trusted = tls::trust::insecure_anyone(), .alpn = {"fuzz"}}};
  time_point now{1s};
  if (!client.endpoint->connect(there, "fuzz", std::move(config), now)) std::abort();
  for (int round = 0; round < max_rounds; ++round) {
    send_all(client, server, input, now);
    receive_all(server, back, now);
    send_all(server, client, input, now);
    receive_all(client, there, now);
    if (!client.inbox.empty() || !server.inbox.empty()) continue;
    const auto next = std::min(client.endpoint->next_timeout(), server.endpoint->next_timeout());
    if (next == never) return;
    now = std::max(now, next);
    client.endpoint->handle_timeout(now);
    server.endpoint->handle_timeout(now);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::feeder input{std::as_bytes(std::span{data, size})};
  auto memory = std::make_shared<memory_budget>(std::size_t{64} << 20);
  converse(input, memory);
  if (memory->used() != 0) std::abort();
  return 0;
}
