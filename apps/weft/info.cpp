#include "info.hpp"

#include <ngtcp2/ngtcp2.h>
#include <openssl/crypto.h>
#include <sys/utsname.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include <weft/io/shard.hpp>
#include <weft/quic/core/packet_protection.hpp>
#include <weft/rpc/core/compression.hpp>
#include <weft/tls/credentials.hpp>
#include <weft/udp/socket.hpp>

namespace weft::app {
namespace {

using json = nlohmann::ordered_json;

json kernel_and_processor() {
  utsname name{};
  uname(&name);
  return {{"system", std::string{name.sysname} + " " + name.release},
          {"machine", name.machine},
          {"processors", std::thread::hardware_concurrency()}};
}

json sockets() {
  io::shard shard;
  const auto given = udp::probe(shard);
  if (!given) return {{"error", given.error().to_string()}};
  return {{"segmentation offload (UDP_SEGMENT)", given->segmentation_offload},
          {"coalesced receive (UDP_GRO)", given->receive_coalescing},
          {"congestion marks (ECN)", given->ecn},
          {"local address of datagrams", given->local_address},
          {"path MTU probing", given->mtu_probing},
          {"send buffer bytes", given->send_buffer},
          {"receive buffer bytes", given->receive_buffer}};
}

json libraries() {
  json compressions = json::array();
  for (const auto algorithm : rpc::available_compressions())
    compressions.push_back(std::string{rpc::to_string(algorithm)});
  return {{"weft", WEFT_VERSION},
          {"QUIC", std::string{"ngtcp2 "} + ngtcp2_version(0)->version_str},
          {"TLS", OpenSSL_version(OPENSSL_VERSION)},
          {"packet protection with AES",
           quic::core::detail::has_fast_protection() ? "libipsec-mb" : "OpenSSL"},
          {"key exchange, most wanted first", tls::default_groups},
          {"compression", compressions}};
}

void print(const json& section, const char* title) {
  std::printf("%s\n", title);
  for (const auto& [key, value] : section.items())
    std::printf("  %-36s %s\n", key.c_str(),
                value.is_boolean()  ? (value.get<bool>() ? "yes" : "no")
                : value.is_string() ? value.get<std::string>().c_str()
                                    : value.dump().c_str());
}

}  // namespace

int run_info(const info_request& given) {
  const json all{
      {"machine", kernel_and_processor()}, {"UDP sockets", sockets()}, {"libraries", libraries()}};
  if (given.json) {
    std::printf("%s\n", all.dump(2).c_str());
    return 0;
  }
  for (const auto& [title, section] : all.items()) print(section, title.c_str());
  return 0;
}

}  // namespace weft::app
