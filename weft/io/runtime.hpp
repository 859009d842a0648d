#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <weft/io/shard.hpp>

namespace weft {

struct runtime_options {
  /// Shards, one thread each. 0: one per processor this process may use.
  std::size_t shards = 1;
  /// Pin shard i to the i-th allowed processor.
  bool pin = false;
  io::shard_options shard;
};

/// Owns N shards and their threads.
class runtime {
 public:
  explicit runtime(runtime_options options = {});
  ~runtime();
  runtime(const runtime&) = delete;
  runtime& operator=(const runtime&) = delete;

  std::size_t size() const noexcept;
  io::shard& operator[](std::size_t index) noexcept;

  /// Runs shard 0 on the calling thread and the others on threads of their own, until `stop()`.
  void run();
  /// As `run()`; SIGINT or SIGTERM calls `on_signal` once (on shard 0), a second one stops at once.
  /// Without `on_signal` the first one stops. Returns the process's exit code.
  int run_until_signal(std::function<void()> on_signal = {});
  /// Thread-safe.
  void stop() noexcept;

 private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace weft
