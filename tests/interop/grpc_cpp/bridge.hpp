#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include <weft/io/shard.hpp>
#include <weft/quic/endpoint.hpp>

// A QUIC stream as a file descriptor, for a library that wants a connected socket: a
// `stream_socket` and one end of a socket pair, pumped both ways. HTTP/2 then runs in one QUIC
// stream.

namespace weft::interop {

/// Connects to a weft server and hands the socket pair's other end to `ready`, or says why not.
void dial(io::shard& shard, const std::string& address, const std::filesystem::path& ca,
          std::function<void(result<int>)> ready);

/// Accepts connections and hands each one's first stream to `accepted` as a descriptor. Writes
/// cert.pem to `folder`; returns the address.
result<std::string> listen(io::shard& shard, const std::filesystem::path& folder,
                           std::function<void(int)> accepted);

}  // namespace weft::interop
