#pragma once

#include <functional>
#include <memory>
#include <string>

#include <weft/io/shard.hpp>
#include <weft/rpc/host/channel.hpp>

#include "connect_options.hpp"
#include "descriptors.hpp"

namespace weft::app {

/// How a command ended: its exit code is the status code, unless the fault was in what was asked.
struct outcome {
  rpc::status status;
  bool local = false;

  int exit_code() const noexcept {
    return local ? wrong_arguments : static_cast<int>(status.code());
  }
};

/// A connected server, as commands need it.
struct session {
  io::shard& shard;
  const connect_request& given;
  rpc::channel& calls;
  /// For descriptors, which need the binary form.
  rpc::channel& lookups;
  descriptors& types;
  /// Of lookups; calls start from it.
  rpc::call_options options;
};

/// Connects, runs `work`, says on standard error what went wrong, and returns the exit code.
int run_session(const char* command, const connect_request& given,
                std::function<task<outcome>(session&)> work);

/// Says on standard error what went wrong.
int complain(const char* command, const outcome& ended);

}  // namespace weft::app
