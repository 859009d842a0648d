#include "diagnosis.hpp"

#include <array>

#include <asio/co_spawn.hpp>

#include <weft/io/event.hpp>

#include "connect_options.hpp"

namespace weft::app {
namespace {

using namespace std::chrono_literals;

constexpr duration patience = 2s;

/// One way to speak with the server, and whether it is open.
struct way {
  rpc::protocol speaks;
  rpc::carrier over;
  const char* name;
  bool open = false;
};

using ways = std::array<way, 4>;

ways all_ways() {
  using enum rpc::carrier;
  const auto http = rpc::protocol::grpc;
  const auto own = rpc::protocol::native;
  return {{{http, quic, "HTTP/3 on QUIC (ALPN h3)"},
           {http, tls_tcp, "HTTP/2 on TLS/TCP (ALPN h2)"},
           {own, quic, "weft's own protocol on QUIC (ALPN weft/1)"},
           {own, tls_tcp, "weft's own protocol on TLS/TCP (ALPN weft/1)"}}};
}

struct inquiry {
  std::size_t running = 0;
  io::event done;
};

task<> ask(io::shard& shard, const std::string& target, rpc::channel_options options, way& about) {
  options.protocol = about.speaks;
  options.carrier = about.over;
  options.codec = rpc::codec::proto;
  options.trust = tls::trust::insecure_anyone();
  options.interceptors.clear();
  rpc::channel channel{shard, target, std::move(options)};
  about.open = (co_await channel.connect(io::now() + patience)).has_value();
  co_await channel.shutdown();
}

task<> ask_all(io::shard& shard, const std::string& target, const rpc::channel_options& options,
               ways& about) {
  inquiry all{.running = about.size()};
  for (way& each : about)
    asio::co_spawn(shard.get_executor(), ask(shard, target, options, each),
                   [&all](std::exception_ptr) {
                     --all.running;
                     all.done.notify();
                   });
  while (all.running != 0) (void)co_await all.done.wait();
}

bool same_protocol(const way& one, const rpc::channel_options& wanted) {
  return (wanted.protocol == rpc::protocol::native) == (one.speaks == rpc::protocol::native);
}

/// What was wanted does work, without looking at the certificate.
std::string advice_on_identity(const rpc::status& why) {
  if (!why.message().contains("certificate"))
    return "\n  found: the server speaks it, now\n  try: again";
  return "\n  found: the server speaks it; what failed is who it is\n  try: --ca FILE with its "
         "authority, --pin with its key, or --server-name with a name it carries";
}

/// Flags for another way, as near to what was wanted as can be.
std::string flags_for(const way& other, const rpc::channel_options& wanted) {
  const bool same = same_protocol(other, wanted);
  const std::string protocol = other.speaks == rpc::protocol::native ? "native" : "grpc";
  return (same ? "" : "--protocol " + protocol + " ") +
         (other.over == rpc::carrier::quic ? "--http 3" : "--http 2");
}

std::string advice(const ways& about, const rpc::channel_options& wanted, const rpc::status& why) {
  std::string found;
  const way* best = nullptr;
  for (const way& each : about) {
    if (!each.open) continue;
    if (same_protocol(each, wanted) && each.over == wanted.carrier) return advice_on_identity(why);
    found += (best ? ", " : "") + std::string{each.name};
    if (!best || (same_protocol(each, wanted) && !same_protocol(*best, wanted))) best = &each;
  }
  if (!best)
    return "\n  found: nothing that weft speaks, neither on QUIC nor on TLS/TCP\n  try: are host "
           "and "
           "port right, does the server run, does a firewall pass UDP?";
  return "\n  found: " + found + "\n  try: " + flags_for(*best, wanted);
}

}  // namespace

task<rpc::status> diagnose(io::shard& shard, std::string target, rpc::channel_options wanted,
                           rpc::status why) {
  ways about = all_ways();
  co_await ask_all(shard, target, wanted, about);
  co_return rpc::status{why.code(), why.message() +
                                        "\n  wanted: " + way_of(wanted.protocol, wanted.carrier) +
                                        advice(about, wanted, why)};
}

}  // namespace weft::app
