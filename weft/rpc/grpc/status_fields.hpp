// Internal: how a call's end travels as field lines, and as gRPC-Web's block of text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <weft/http/core/fields.hpp>
#include <weft/rpc/core/status.hpp>

namespace weft::rpc::grpc {

/// Adds `grpc-status`, and for a failure `grpc-message` and `grpc-status-details-bin` where there
/// is something to say.
void append_status(weft::http::field_list& to, const status& s);

/// Nothing without a `grpc-status`. One that is no number is `unknown`. Message and details of an
/// OK status are ignored; so are details that do not parse, or that belong to another code.
std::optional<status> read_status(const weft::http::field_list& fields);

/// google.rpc.Status in its binary form.
std::string encode_details(const status& s);
/// Nothing when it does not parse.
std::optional<status> decode_details(std::string_view encoded);

/// "name: value\r\n" for each line.
std::string to_block(const weft::http::field_list& fields);
/// Names of either case, lines that end in CRLF or LF. Nothing when a line is none.
std::optional<weft::http::field_list> from_block(std::string_view block);

}  // namespace weft::rpc::grpc
