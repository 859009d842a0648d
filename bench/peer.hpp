#pragma once

#include <cstdint>
#include <string>

#include <weft/base/error.hpp>
#include <weft/rpc/core/method.hpp>

namespace weft::bench {

/// Where the server process listens and how to trust it.
struct peer_ports {
  std::uint16_t ethernet = 0;    ///< sends datagrams of at most 1 452 bytes
  std::uint16_t discovered = 0;  ///< looks for the path MTU
  std::string certificate;       ///< PEM
};

/// The server's side: runs until standard input ends. Writes one line of JSON with its ports to
/// `announce_fd` when it listens. Returns the exit code.
int serve(int announce_fd, int cpu);

/// The server in a process of its own, this same program started anew. Ends it when destroyed.
class peer_process {
 public:
  static weft::result<peer_process> start(int cpu);
  peer_process(peer_process&& other) noexcept;
  peer_process& operator=(peer_process&&) = delete;
  ~peer_process();
  const peer_ports& ports() const noexcept { return ports_; }

 private:
  peer_process() = default;
  peer_ports ports_;
  int pid_ = -1;
  int stdin_ = -1;
};

/// Method of the raw bulk service: its messages are plain bytes, so that the benchmark times the
/// transport and RPC framing and not the copy a message class makes.
const rpc::service& bulk_service_descriptor() noexcept;

/// Confines the calling process to one processor. Without effect where it does not exist.
void pin_to(int cpu) noexcept;

}  // namespace weft::bench
