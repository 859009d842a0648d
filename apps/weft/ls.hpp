#pragma once

#include <string>

#include "connect_options.hpp"

namespace weft::app {

struct ls_request {
  connect_request server;
  std::string service;
  bool json = false;
};

void add_ls(CLI::App& app, ls_request& given);

/// Prints services, or the methods of one, to standard output; returns the exit code.
int run_ls(const ls_request& given);

}  // namespace weft::app
