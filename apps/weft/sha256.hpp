#pragma once

#include <memory>
#include <string>

#include <weft/base/slice.hpp>

namespace weft::app {

/// A running SHA-256.
class sha256 {
 public:
  sha256();
  ~sha256();
  sha256(const sha256&) = delete;
  sha256& operator=(const sha256&) = delete;
  void update(bytes data);
  /// The digest of all so far; ends the run.
  std::string hexadecimal();

 private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace weft::app
