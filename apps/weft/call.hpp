#pragma once

#include <string>
#include <vector>

#include "connect_options.hpp"

namespace weft::app {

struct call_request {
  connect_request server;
  std::vector<std::string> positional;  ///< [HOST:PORT] METHOD
  std::vector<std::string> data;
};

void add_call(CLI::App& app, call_request& given);

/// Prints replies, one JSON object a line, to standard output; returns the exit code.
int run_call(call_request given);

}  // namespace weft::app
