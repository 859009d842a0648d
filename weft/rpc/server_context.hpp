#pragma once

#include <weft/rpc/call.hpp>

namespace weft::rpc {

/// What a handler may know of its call and say beside its messages. Valid while the handler runs.
class server_context {
 public:
  server_context(server_call& call, io::shard& shard) noexcept : call_{call}, shard_{shard} {}
  server_context(const server_context&) = delete;
  server_context& operator=(const server_context&) = delete;

  const call_info& info() const noexcept { return call_.info(); }
  const rpc::metadata& metadata() const noexcept { return call_.info().metadata; }
  time_point deadline() const noexcept { return call_.info().deadline; }
  io::shard& shard() const noexcept { return shard_; }

  task<result<>> send_headers(rpc::metadata headers);
  void set_trailers(rpc::metadata trailers) { call_.set_trailers(std::move(trailers)); }
  void set_compression(compression algorithm) { call_.set_compression(algorithm); }

 private:
  server_call& call_;
  io::shard& shard_;
};

}  // namespace weft::rpc
