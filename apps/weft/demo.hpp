#pragma once

#include <string>

namespace weft::app {

struct demo_request {
  std::string file;
  bool serve = false;
};

/// weft's main job on real sockets, client and server in processes of their own; returns the exit
/// code: 0 only if every step did what it says.
int run_demo(const demo_request& given);

}  // namespace weft::app
