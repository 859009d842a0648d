#include <algorithm>

#include <weft/rpc/core/pooled.hpp>
#include <weft/rpc/grpc/session.hpp>
#include <weft/rpc/grpc/status_fields.hpp>
#include <weft/rpc/grpc/text_form.hpp>
#include <weft/rpc/http/cors.hpp>
#include <weft/rpc/http/wire/encodings.hpp>
#include <weft/rpc/http/wire/fields.hpp>
#include <weft/rpc/http/wire/media_type.hpp>
#include <weft/rpc/http/wire/timeout.hpp>

namespace weft::rpc::grpc {
namespace {

namespace wire = http::wire;

/// What is left of a status whose fields the client does not take. A call that went well but cannot
/// say all of how did not go well.
status shortened(const status& s) {
  if (s.ok())
    return {code::resource_exhausted, "the call's trailing metadata is more than the client takes"};
  return {s.code(),
          "the call's message, details and trailing metadata are more than the client takes"};
}

class grpc_server_call final : public http::server_call_base, public pooled<grpc_server_call> {
 public:
  grpc_server_call(std::shared_ptr<http::server_core> core, std::unique_ptr<weft::http::exchange> e,
                   wire::form form, rpc::codec codec)
      : server_call_base{std::move(core), std::move(e)}, form_{form} {
    info_.protocol = web() ? "grpc-web" : "grpc";
    info_.codec = codec;
  }

 private:
  bool web() const noexcept { return form_ != wire::form::grpc; }
  bool in_text() const noexcept { return form_ == wire::form::grpc_web_text; }
  const weft::http::field_list& fields() const noexcept { return exchange_->request().fields; }

  result<> begin() override;
  result<> read_encodings();
  result<> read_timeout();
  void fill_head(weft::http::response_head& head) override;
  task<> conclude(status s) override;
  void conclude_at_once(const status& s);
  weft::result<> send_only_head(const status& s);
  const weft::http::field_list& fill_end(const status& s);
  void finish(const status& s);
  weft::result<slice> decode_content(slice content) override {
    if (!in_text()) return content;
    return decoder_.decode(content.span());
  }
  slice encode_content(slice content) override {
    return in_text() ? encode_text(content.span()) : content;
  }

  wire::form form_;
  text_decoder decoder_;
};

// The request
// --------------------------------------------------------------------------------------

result<> grpc_server_call::begin() {
  if (auto read = read_encodings(); !read) return read;
  auto read = wire::read_metadata(info_.metadata, fields(), core_->options().limits.max_metadata);
  if (!read) return read;
  return read_timeout();
}

result<> grpc_server_call::read_encodings() {
  const auto& ours = core_->options().compressions;
  if (const auto accepts = fields().find("grpc-accept-encoding"))
    accepted_ = wire::parse_accepted(*accepts, ours);
  const auto used = fields().find("grpc-encoding");
  if (!used || used->empty() || *used == to_string(compression::identity)) return {};
  const auto algorithm = compression_from_name(*used);
  if (!algorithm || !std::ranges::contains(ours, *algorithm))
    return fail(code::unimplemented, "the request is compressed with \"" + std::string{*used} +
                                         "\", which is not supported here; supported are " +
                                         (ours.empty() ? "none" : core_->accepted()));
  request_compression_ = *algorithm;
  return {};
}

result<> grpc_server_call::read_timeout() {
  const auto text = fields().find("grpc-timeout");
  if (!text) return {};
  const auto remaining = wire::parse_grpc_timeout(*text);
  if (!remaining)
    return fail(code::invalid_argument, "grpc-timeout is \"" + std::string{*text} +
                                            "\"; it has at most eight digits and a unit of H, M, "
                                            "S, m, u or n");
  set_deadline(*remaining);
  return {};
}

// The response
// -------------------------------------------------------------------------------------

void grpc_server_call::fill_head(weft::http::response_head& head) {
  head.fields.add_valid("content-type", wire::to_string(form_, info_.codec));
  if (const auto algorithm = reply_compression(); algorithm != compression::identity)
    head.fields.add_valid("grpc-encoding", to_string(algorithm));
  if (!core_->accepted().empty()) head.fields.add_valid("grpc-accept-encoding", core_->accepted());
}

task<> grpc_server_call::conclude(status s) {
  // Over HTTP/3 a deadline that passed is told by giving up (G2); web pages would not see why.
  if (expired() && !web() && s.code() == code::deadline_exceeded &&
      exchange_->connection().version == weft::http::alpn_h3) {
    exchange_->reset(weft::http::give_up::cancelled);
    co_return;
  }
  if (!s.ok() && !answered()) {
    conclude_at_once(s);
    co_return;
  }
  if (!web()) {
    const bool sent = co_await send_rest(false);
    if (sent) finish(s);
    co_return;
  }
  if (http::append_bytes(held(), as_bytes(to_block(fill_end(s))), framing_, wire::flag_web_trailers,
                         compression::identity))
    (void)co_await send_rest(true);
}

const weft::http::field_list& grpc_server_call::fill_end(const status& s) {
  weft::http::field_list& end = core_->scratch_trailers();
  append_status(end, s);
  wire::append_metadata(end, trailers_);
  return end;
}

void grpc_server_call::finish(const status& s) {
  const auto done = exchange_->finish(fill_end(s));
  if (done || done.error() != errc::too_large) return;
  trailers_ = {};
  (void)exchange_->finish(fill_end(shortened(s)));
}

/// "Trailers-Only": the head is all there is.
void grpc_server_call::conclude_at_once(const status& s) {
  const auto done = send_only_head(s);
  if (done || done.error() != errc::too_large) return;
  trailers_ = {};
  (void)send_only_head(shortened(s));
}

weft::result<> grpc_server_call::send_only_head(const status& s) {
  weft::http::response_head& head = core_->scratch_head();
  fill_head(head);
  append_status(head.fields, s);
  wire::append_metadata(head.fields, trailers_);
  http::append_cors(head.fields, exchange_->request(), core_->options());
  return exchange_->send_head(head, true);
}

// What needs no call
// --------------------------------------------------------------------------------------

constexpr std::string_view types =
    "application/grpc+proto, application/grpc+json, application/grpc-web+proto, "
    "application/grpc-web+json, application/grpc-web-text+proto";

void refuse(std::unique_ptr<weft::http::exchange> e, const http::server_options& options,
            std::uint16_t status, std::string_view name, std::string_view value,
            std::string_view text) {
  weft::http::response_head head{.status = status};
  head.fields.add_valid(name, value);
  head.fields.add_valid("content-type", "text/plain; charset=utf-8");
  head.fields.add_valid("content-length", std::to_string(text.size()));
  http::append_cors(head.fields, e->request(), options);
  http::answer(std::move(e), head, slice::copy(text));
}

std::optional<wire::media_type> type_of(const weft::http::request_head& head) noexcept {
  const auto type =
      wire::parse_media_type(head.fields.find("content-type").value_or(std::string_view{}));
  const bool ours = type && (type->form == wire::form::grpc || type->form == wire::form::grpc_web ||
                             type->form == wire::form::grpc_web_text);
  return ours ? type : std::nullopt;
}

}  // namespace

bool speaks(const weft::http::request_head& head) noexcept {
  return type_of(head).has_value();
}

void serve(std::unique_ptr<weft::http::exchange> e,
           const std::shared_ptr<http::server_core>& core) {
  const weft::http::request_head& head = e->request();
  const http::server_options& options = core->options();
  if (http::is_preflight(head)) return http::answer_preflight(std::move(e), options);
  if (head.method != "POST")
    return refuse(std::move(e), options, 405, "allow", "POST",
                  "gRPC's methods are called by POST\n");
  const auto type = type_of(head);
  if (!type || !type->codec)
    return refuse(std::move(e), options, 415, "accept-post", types,
                  "this server takes " + std::string{types} + "\n");
  core->start(std::make_unique<grpc_server_call>(core, std::move(e), type->form, *type->codec));
}

}  // namespace weft::rpc::grpc
