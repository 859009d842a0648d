#include <algorithm>

#include <weft/rpc/connect/session.hpp>
#include <weft/rpc/core/pooled.hpp>
#include <weft/rpc/http/cors.hpp>
#include <weft/rpc/http/wire/base64.hpp>
#include <weft/rpc/http/wire/codes.hpp>
#include <weft/rpc/http/wire/encodings.hpp>
#include <weft/rpc/http/wire/error_json.hpp>
#include <weft/rpc/http/wire/fields.hpp>
#include <weft/rpc/http/wire/media_type.hpp>
#include <weft/rpc/http/wire/percent.hpp>
#include <weft/rpc/http/wire/timeout.hpp>

namespace weft::rpc::connect {
namespace {

namespace wire = http::wire;

constexpr std::string_view trailer_prefix = "trailer-";
constexpr std::string_view json_type = "application/json";

status unknown_encoding(std::string_view name, const std::string& known) {
  return {code::unimplemented, "the request is compressed with \"" + std::string{name} +
                                   "\", which is not supported here; supported are " + known};
}

class connect_server_call final : public http::server_call_base,
                                  public pooled<connect_server_call> {
 public:
  connect_server_call(std::shared_ptr<http::server_core> core,
                      std::unique_ptr<weft::http::exchange> e, wire::form form, rpc::codec codec,
                      bool known)
      : server_call_base{std::move(core), std::move(e)}, form_{form}, known_{known} {
    info_.protocol = "connect";
    info_.codec = codec;
    framing_ = streams() ? http::framing::envelope : http::framing::whole;
  }

 private:
  bool streams() const noexcept { return form_ == wire::form::connect_stream; }
  const weft::http::field_list& fields() const noexcept { return exchange_->request().fields; }

  result<> begin() override;
  result<> read_timeout();
  result<> read_encodings();
  result<> read_encoding(std::string_view name);
  result<> read_query();
  void fill_head(weft::http::response_head& head) override;
  task<> conclude(status s) override;
  task<> send_error(status s);

  wire::form form_;
  bool known_;  ///< the method
};

// The request
// --------------------------------------------------------------------------------------

result<> connect_server_call::begin() {
  // First of all, so that even a refusal may be compressed as the client understands it.
  if (auto read = read_encodings(); !read) return read;
  if (info_.http_method == "GET")
    if (auto read = read_query(); !read) return read;
  // Who says nothing understands what it sends.
  const bool silent = !fields().find(streams() ? "connect-accept-encoding" : "accept-encoding");
  if (silent && request_compression_ != compression::identity)
    accepted_.push_back(request_compression_);
  const auto version = fields().find("connect-protocol-version");
  if (version && *version != "1")
    return fail(code::invalid_argument, "connect-protocol-version is \"" + std::string{*version} +
                                            "\"; this server speaks version 1");
  auto read = wire::read_metadata(info_.metadata, fields(), core_->options().limits.max_metadata);
  if (!read) return read;
  return read_timeout();
}

result<> connect_server_call::read_timeout() {
  const auto text = fields().find("connect-timeout-ms");
  if (!text) return {};
  const auto remaining = wire::parse_connect_timeout(*text);
  if (!remaining)
    return fail(code::invalid_argument, "connect-timeout-ms is \"" + std::string{*text} +
                                            "\"; it has at most ten digits and nothing else");
  set_deadline(*remaining);
  return {};
}

result<> connect_server_call::read_encodings() {
  const auto& ours = core_->options().compressions;
  const auto accepts = fields().find(streams() ? "connect-accept-encoding" : "accept-encoding");
  if (accepts) accepted_ = wire::parse_accepted(*accepts, ours);
  const auto used = fields().find(streams() ? "connect-content-encoding" : "content-encoding");
  if (used)
    if (auto read = read_encoding(*used); !read) return read;
  return {};
}

result<> connect_server_call::read_encoding(std::string_view name) {
  if (name.empty()) return {};
  const auto algorithm = wire::parse_accepted(name, core_->options().compressions);
  if (algorithm.empty()) {
    if (name == to_string(compression::identity)) return {};
    return std::unexpected{unknown_encoding(name, core_->accepted())};
  }
  request_compression_ = algorithm.front();
  return {};
}

/// A GET's message, from the query.
result<> connect_server_call::read_query() {
  const std::string_view query = info_.query;
  const auto version = wire::find_query(query, "connect");
  if (version && *version != "v1")
    return fail(code::invalid_argument,
                "the query's connect is \"" + std::string{*version} + "\"; it must be v1");
  if (const auto name = wire::find_query(query, "compression"))
    if (auto read = read_encoding(wire::decode_query(*name)); !read) return read;
  const auto raw = wire::find_query(query, "message");
  if (!raw)
    return fail(code::invalid_argument,
                "the query has no message; a GET needs at least "
                "?connect=v1&encoding=json&message={}");
  std::string message = wire::decode_query(*raw);
  if (wire::find_query(query, "base64") == "1") {
    auto decoded = wire::base64_decode(message, wire::alphabet::url);
    if (!decoded) return fail(code::invalid_argument, "the query's message is no URL-safe base64");
    message = std::move(*decoded);
  }
  set_message(payload{slice::adopt(std::move(message))});
  return {};
}

// The response
// -------------------------------------------------------------------------------------

void connect_server_call::fill_head(weft::http::response_head& head) {
  head.fields.add_valid("content-type", wire::to_string(form_, info_.codec));
  if (streams()) {
    if (const auto algorithm = reply_compression(); algorithm != compression::identity)
      head.fields.add_valid("connect-content-encoding", to_string(algorithm));
    head.fields.add_valid("connect-accept-encoding", core_->accepted());
    return;
  }
  if (message_compression_ != compression::identity)
    head.fields.add_valid("content-encoding", to_string(message_compression_));
  head.fields.add_valid("accept-encoding", core_->accepted());
  head.fields.add_valid("content-length", std::to_string(held().used()));
  wire::append_metadata(head.fields, trailers_, trailer_prefix);
}

task<> connect_server_call::conclude(status s) {
  if (streams()) {
    const std::string end = wire::end_to_json(s, trailers_);
    if (http::append_bytes(held(), as_bytes(end), framing_, wire::flag_connect_end,
                           reply_compression()))
      (void)co_await send_rest(true);
    co_return;
  }
  if (s.ok() && !replied())
    s = {code::internal, "the handler ended the call well but wrote no reply"};
  if (!s.ok()) {
    co_await send_error(std::move(s));
    co_return;
  }
  (void)co_await send_rest(true);
}

/// In place of a reply. JSON whatever the codec.
task<> connect_server_call::send_error(status s) {
  // Nobody serves the path: HTTP has a status of its own for that.
  const bool nowhere = !known_ && s.code() == code::unimplemented;
  frame_buffer body;
  const auto used = http::append_bytes(body, as_bytes(wire::error_to_json(s)), http::framing::whole,
                                       0, reply_compression());
  weft::http::response_head& head = core_->scratch_head();
  head.status = nowhere ? 404 : wire::connect_http_status(s.code());
  head.fields.add_valid("content-type", json_type);
  if (used && *used != compression::identity)
    head.fields.add_valid("content-encoding", to_string(*used));
  head.fields.add_valid("accept-encoding", core_->accepted());
  head.fields.add_valid("content-length", std::to_string(body.used()));
  wire::append_metadata(head.fields, headers_);
  wire::append_metadata(head.fields, trailers_, trailer_prefix);
  http::append_cors(head.fields, exchange_->request(), core_->options());
  if (!exchange_->send_head(head)) co_return;
  (void)exchange_->try_write(body.take(), true);  // an exchange's first write finds room
}

// What needs no call
// --------------------------------------------------------------------------------------

void refuse(std::unique_ptr<weft::http::exchange> e, const http::server_options& options,
            std::uint16_t status, std::string_view name, std::string_view value,
            std::string_view text) {
  weft::http::response_head head{.status = status};
  if (!name.empty()) head.fields.add_valid(name, value);
  head.fields.add_valid("content-type", "text/plain; charset=utf-8");
  head.fields.add_valid("content-length", std::to_string(text.size()));
  http::append_cors(head.fields, e->request(), options);
  http::answer(std::move(e), head, slice::copy(text));
}

void refuse_method(std::unique_ptr<weft::http::exchange> e, const http::server_options& options,
                   bool by_get) {
  refuse(std::move(e), options, 405, "allow", by_get ? "POST, GET" : "POST",
         by_get ? "this method is called by POST or GET\n" : "this method is called by POST\n");
}

void refuse_type(std::unique_ptr<weft::http::exchange> e, const http::server_options& options,
                 const method* m) {
  const bool streams = m != nullptr && m->kind != call_kind::unary;
  const std::string_view wanted = streams ? "application/connect+proto, application/connect+json"
                                          : "application/proto, application/json";
  refuse(std::move(e), options, 415, "accept-post", wanted,
         "this method takes " + std::string{wanted} + "\n");
}

std::optional<rpc::codec> codec_of_query(std::string_view query) noexcept {
  const auto name = wire::find_query(query, "encoding");
  if (name == "proto") return rpc::codec::proto;
  if (name == "json") return rpc::codec::json;
  return std::nullopt;
}

/// How a request's messages travel, if it can be taken at all.
std::optional<wire::media_type> type_of(const weft::http::request_head& head,
                                        std::string_view query) noexcept {
  if (head.method == "GET")
    return wire::media_type{wire::form::connect_unary, codec_of_query(query)};
  return wire::parse_media_type(head.fields.find("content-type").value_or(std::string_view{}));
}

bool fits(const wire::media_type& type, const method* m) noexcept {
  if (!type.codec) return false;
  if (type.form != wire::form::connect_unary && type.form != wire::form::connect_stream)
    return false;
  if (m == nullptr) return true;
  return (type.form == wire::form::connect_unary) == (m->kind == call_kind::unary);
}

}  // namespace

bool speaks(const weft::http::request_head& head) noexcept {
  if (head.method == "GET") {
    const auto question = head.path.find('?');
    if (question == head.path.npos) return false;
    const auto query = std::string_view{head.path}.substr(question + 1);
    return wire::find_query(query, "connect") || wire::find_query(query, "encoding");
  }
  const auto type =
      wire::parse_media_type(head.fields.find("content-type").value_or(std::string_view{}));
  return type &&
         (type->form == wire::form::connect_unary || type->form == wire::form::connect_stream);
}

void serve(std::unique_ptr<weft::http::exchange> e,
           const std::shared_ptr<http::server_core>& core) {
  const weft::http::request_head& head = e->request();
  const http::server_options& options = core->options();
  if (http::is_preflight(head)) return http::answer_preflight(std::move(e), options);
  const std::string_view whole{head.path};
  const auto question = whole.find('?');
  const std::string_view path = whole.substr(0, question);
  const std::string_view query =
      question == whole.npos ? std::string_view{} : whole.substr(question + 1);
  const method* m = core->calls().find(path);
  const bool by_get =
      m != nullptr && m->kind == call_kind::unary && m->level == idempotency::no_side_effects;
  if (head.method == "GET" && m == nullptr)
    return refuse(std::move(e), options, 404, {}, {}, "nothing is served here\n");
  if (head.method != "POST" && !(head.method == "GET" && by_get))
    return refuse_method(std::move(e), options, by_get);
  const auto type = type_of(head, query);
  if (!type || !fits(*type, m)) return refuse_type(std::move(e), options, m);
  core->start(std::make_unique<connect_server_call>(core, std::move(e), type->form, *type->codec,
                                                    m != nullptr));
}

}  // namespace weft::rpc::connect
