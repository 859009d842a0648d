#pragma once

#include <cstddef>

#include <weft/rpc/call.hpp>
#include <weft/rpc/core/frame_buffer.hpp>
#include <weft/rpc/native/wire/call_parser.hpp>
#include <weft/rpc/native/wire/control.hpp>

// What both ends of a call do alike with messages and failures.

namespace weft::rpc::native {

/// Appends `message` as a frame, compressed where that makes it smaller. `spare` bytes stay free
/// behind it.
result<> append_message(frame_buffer& to, const outgoing& message, compression algorithm,
                        std::size_t spare);

/// As `append_message`, but of a large message that can be shared only the frame's head is
/// appended: the slice returned, empty otherwise, has to be sent behind it.
result<slice> append_or_share(frame_buffer& to, const outgoing& message, compression algorithm,
                              std::size_t spare);

/// The message itself: decompressed, at most `limit` bytes.
result<payload> unpack(wire::received_message message, std::size_t limit);

/// As `to_status`, with what the native protocol's own codes say.
status status_of(const error& failure);

/// CANCEL, as if the call's own stream had been reset.
error given_up_by(std::string_view peer, code why);

/// The peer ended a stream without having looked at it.
bool is_refusal(const error& failure) noexcept;

/// The text with which calls are turned down unseen; callers may try again.
status refused_status();

}  // namespace weft::rpc::native
