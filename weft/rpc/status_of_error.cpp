#include <weft/rpc/call.hpp>

namespace weft::rpc {
namespace {

code code_of(errc failure) noexcept {
  switch (failure) {
    case errc::cancelled:
    case errc::stopped:
      return code::cancelled;
    // A call's own deadline never comes from below: here it is the connection that fell silent.
    case errc::timed_out:
    case errc::closed:
    case errc::reset:
    case errc::refused:
    case errc::unreachable:
    case errc::tls:
    case errc::system:
      return code::unavailable;
    case errc::too_large:
    case errc::exhausted:
      return code::resource_exhausted;
    case errc::invalid_argument:
      return code::invalid_argument;
    case errc::unsupported:
      return code::unimplemented;
    case errc::protocol:
    case errc::malformed:
    case errc::random:
    case errc::internal:
      return code::internal;
  }
  return code::unknown;
}

}  // namespace

status to_status(const error& failure) {
  return status{code_of(failure.code()), failure.to_string()};
}

}  // namespace weft::rpc
