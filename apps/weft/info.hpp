#pragma once

namespace weft::app {

struct info_request {
  bool json = false;
};

/// Prints what kernel, processor and libraries of this machine give weft; returns the exit code.
int run_info(const info_request& given);

}  // namespace weft::app
