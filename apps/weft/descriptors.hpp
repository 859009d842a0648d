#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <weft/rpc/dynamic.hpp>
#include <weft/rpc/host/channel.hpp>

#include "connect_options.hpp"

namespace weft::app {

/// Where message types come from: a file, or else the server, which is asked in weft's own way and
/// then by gRPC's reflection.
class descriptors {
 public:
  /// Reads the file, if one is given.
  static weft::result<descriptors> make(const connect_request& given);

  task<rpc::result<std::vector<std::string>>> services(rpc::caller& server,
                                                       const rpc::call_options& options);
  /// A schema that has `service`. `unimplemented`, saying what was tried, where there is none.
  task<rpc::result<rpc::schema>> schema_of(rpc::caller& server, std::string service,
                                           const rpc::call_options& options);
  /// What answered, for people.
  const std::string& source() const noexcept { return source_; }
  bool from_file() const noexcept { return file_.has_value(); }

 private:
  std::optional<rpc::schema> file_;
  std::string source_;
};

/// The service in "/a.B/C", "a.B/C" or "a.B.C".
std::string service_of(std::string method);
/// `unimplemented`, naming what there is, unless the schema has the method.
rpc::result<rpc::method_description> find_method(const rpc::schema& known,
                                                 const std::string& method);

}  // namespace weft::app
