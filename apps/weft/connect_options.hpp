#pragma once

#include <optional>
#include <string>
#include <vector>

#include <weft/rpc/host/channel.hpp>

namespace CLI {
class App;
}

namespace weft::app {

constexpr int wrong_arguments = 64;  // EX_USAGE

/// What `call` and `ls` share: which server, how to speak with it, whom to believe.
struct connect_request {
  std::string target;
  std::string protocol = "native";
  std::string http, carrier;
  std::string codec = "proto";
  bool get = false;  ///< Connect, unary
  std::string authorities, pin, server_name;
  bool insecure = false;
  std::string certificate, key;
  std::optional<double> timeout_seconds;
  std::vector<std::string> metadata;
  std::string descriptor_set;
  bool verbose = false;
};

void add_connect_options(CLI::App& to, connect_request& given);

weft::result<rpc::channel_options> channel_options_of(const connect_request& given);
weft::result<rpc::metadata> metadata_of(const connect_request& given);
/// Of looking up descriptors, and of unary calls.
time_point deadline_of(const connect_request& given);

/// "grpc over HTTP/3 (ALPN h3)".
std::string way_of(rpc::protocol speaks, rpc::carrier over);

}  // namespace weft::app
