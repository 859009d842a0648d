#pragma once

#include <memory>

#include <weft/io/byte_stream.hpp>
#include <weft/quic/connection.hpp>

namespace weft::rpc::detail {

/// One stream of a QUIC connection, with the connection it lives in: what carries all calls of a
/// "one stream" connection. `finish` completes when the peer has everything; `abort` ends the
/// connection.
std::unique_ptr<io::byte_stream> one_stream(std::shared_ptr<quic::connection> connection,
                                            quic::stream stream);

}  // namespace weft::rpc::detail
