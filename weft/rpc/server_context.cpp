#include <weft/rpc/server_context.hpp>

namespace weft::rpc {

task<result<>> server_context::send_headers(rpc::metadata headers) {
  co_return co_await call_.send_headers(headers);
}

}  // namespace weft::rpc
