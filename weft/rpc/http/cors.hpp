#pragma once

#include <memory>

#include <weft/rpc/http/server_call.hpp>

// Calls from web pages of another origin (the Fetch standard, "CORS protocol").

namespace weft::rpc::http {

/// A browser asks before it calls.
bool is_preflight(const weft::http::request_head& head) noexcept;
/// Answers it: with leave for POST and GET and the fields it asks for, where the origin is allowed.
void answer_preflight(std::unique_ptr<weft::http::exchange> e, const server_options& options);
/// Lets the page see the response and all its metadata; to be called when the other fields are
/// there. Adds nothing for requests that come from no page.
void append_cors(weft::http::field_list& to, const weft::http::request_head& request,
                 const server_options& options);

/// An answer that needs no call: all of it, at once.
void answer(std::unique_ptr<weft::http::exchange> e, const weft::http::response_head& head,
            slice content = {});

}  // namespace weft::rpc::http
