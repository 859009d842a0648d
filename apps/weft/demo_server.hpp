#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <weft/base/error.hpp>

namespace weft::app {

/// Runs the demo's server until standard input ends; announces itself by one line of JSON on
/// standard output. Returns the exit code.
int serve_demo(const std::string& file);

/// The demo's server in a process of its own. Its graceful end is asked for by `stop`.
class demo_server {
 public:
  static result<demo_server> start(const std::string& file);
  demo_server(demo_server&& other) noexcept;
  demo_server& operator=(demo_server&&) = delete;
  ~demo_server();

  std::uint16_t port() const noexcept { return port_; }
  const std::string& certificate() const noexcept { return certificate_; }
  /// Asks it to end and waits; its exit code.
  int stop() noexcept;

 private:
  demo_server() = default;
  std::string certificate_;
  std::uint16_t port_ = 0;
  int pid_ = -1;
  int stdin_ = -1;
};

}  // namespace weft::app
