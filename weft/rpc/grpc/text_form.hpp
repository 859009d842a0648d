// Internal: gRPC-Web's text form, which is its binary one in base64.
#pragma once

#include <string>

#include <weft/base/error.hpp>
#include <weft/base/slice.hpp>

namespace weft::rpc::grpc {

/// Reads content that comes in pieces of any size, each sender's piece padded or not.
class text_decoder {
 public:
  /// What can be decoded by now. errc::malformed when it is no base64.
  weft::result<slice> decode(bytes text);

 private:
  std::string rest_;  // less than a group of four
};

/// Padded, so that pieces can follow one another.
slice encode_text(bytes content);

}  // namespace weft::rpc::grpc
