#pragma once

#include <string>
#include <vector>

namespace weft::app {

struct call_request {
  std::string target, method;
  std::vector<std::string> data;
  std::string authorities, pin, server_name;
  bool insecure = false;
  std::string carrier = "quic";
  double timeout_seconds = 30;
  std::vector<std::string> metadata;
  bool verbose = false;
};

/// Prints replies, one JSON object a line, to standard output; returns the exit code.
int run_call(const call_request& given);

}  // namespace weft::app
