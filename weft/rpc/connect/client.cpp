#include <weft/rpc/connect/session.hpp>

#include <algorithm>

#include <weft/rpc/core/pooled.hpp>
#include <weft/rpc/http/wire/base64.hpp>
#include <weft/rpc/http/wire/codes.hpp>
#include <weft/rpc/http/wire/error_json.hpp>
#include <weft/rpc/http/wire/fields.hpp>
#include <weft/rpc/http/wire/media_type.hpp>
#include <weft/rpc/http/wire/percent.hpp>
#include <weft/rpc/http/wire/timeout.hpp>

namespace weft::rpc::connect {
namespace {

namespace wire = http::wire;

constexpr std::string_view trailer_prefix = "trailer-";

status from_http(const weft::http::response_head& head) {
  return wire::status_from_http(head.status,
                                head.fields.find("content-type").value_or(std::string_view{}));
}

/// What both kinds of call do alike.
class connect_call : public http::client_call_base {
 protected:
  using client_call_base::client_call_base;

  wire::form form() const noexcept {
    return framing_ == http::framing::whole ? wire::form::connect_unary
                                            : wire::form::connect_stream;
  }
  result<> fill_request(weft::http::request_head& head, const method&, const call_options& options,
                        time_point deadline) override {
    auto& fields = head.fields;
    if (form() == wire::form::connect_stream) fill_stream(fields);
    if (form() == wire::form::connect_unary) fields.add_valid("accept-encoding", accepted());
    fields.add_valid("connect-protocol-version", "1");
    if (deadline != never) {
      const auto [name, value] = timeout_field(deadline - io::now());
      fields.add_valid(name, value);
    }
    if (!core().options().user_agent.empty() && !options.metadata.find("user-agent"))
      fields.add_valid("user-agent", core().options().user_agent);
    wire::append_metadata(fields, options.metadata);
    return {};
  }

  std::pair<std::string_view, std::string> timeout_field(duration left) const override {
    return {"connect-timeout-ms", wire::connect_timeout(left)};
  }

  std::string_view accepted() const noexcept {
    return core().accepted().empty() ? to_string(compression::identity) : core().accepted();
  }
  result<> read_encoding(const weft::http::field_list& fields, std::string_view name) {
    const auto used = fields.find(name);
    if (!used || used->empty()) return {};
    const auto algorithm = compression_from_name(*used);
    if (!algorithm)
      return fail(code::internal, "the response is compressed with \"" + std::string{*used} +
                                      "\", which was not offered; offered were " +
                                      std::string{accepted()});
    response_compression_ = *algorithm;
    return {};
  }
  /// A good response is in our codec: `unknown` when it is no such thing at all.
  result<> check_type(const weft::http::field_list& fields, std::string_view family) {
    const std::string_view type = fields.find("content-type").value_or(std::string_view{});
    const auto parsed = wire::parse_media_type(type);
    if (parsed && parsed->form == form() && parsed->codec == codec()) return {};
    return fail(type.starts_with(family) ? code::internal : code::unknown,
                "the response's content type is \"" + std::string{type} + "\", not " +
                    std::string{wire::to_string(form(), codec())});
  }

 private:
  void fill_stream(weft::http::field_list& fields) {
    fields.add_valid("content-type", wire::to_string(form(), codec()));
    fields.add_valid("connect-accept-encoding", accepted());
    if (request_compression_ != compression::identity)
      fields.add_valid("connect-content-encoding", to_string(request_compression_));
  }
};

// Unary
// ----------------------------------------------------------------------------------------------

class unary_call final : public connect_call, public pooled<unary_call> {
 public:
  unary_call(std::shared_ptr<http::client_core> core, const method& m, const call_options& options,
             const client_options& own)
      : connect_call{std::move(core), m, options, http::framing::whole},
        max_get_path_{own.use_get && m.level == idempotency::no_side_effects ? own.max_get_path
                                                                             : 0} {}

 private:
  bool starts_with_message() const noexcept override { return true; }
  result<bool> take_message(weft::http::request_head& head, const outgoing& message,
                            frame_buffer& content) override;
  std::string query_of(bytes message, compression used) const;
  result<> on_head(const weft::http::response_head& head) override;
  result<payload> on_whole(payload body) override;
  status on_end(const weft::http::field_list&) override {
    return {code::internal, "the response has no message"};
  }

  std::size_t max_get_path_;  ///< 0: by POST
  bool failed_ = false;       ///< the body is an error
};

result<bool> unary_call::take_message(weft::http::request_head& head, const outgoing& message,
                                      frame_buffer& content) {
  auto used = http::append_message(content, message, codec(), framing_, request_compression_, 0,
                                   core().options().compress_from);
  if (!used) return std::unexpected{std::move(used).error()};
  if (content.used() < max_get_path_) {
    const slice body = content.take();
    std::string path = head.path + query_of(body, *used);
    if (path.size() <= max_get_path_) {
      head.method = "GET";
      head.path = std::move(path);
      return true;
    }
    std::byte* at = content.reserve(body.size());
    std::memcpy(at, body.data(), body.size());
    content.commit(at + body.size());
  }
  head.fields.add_valid("content-type", wire::to_string(form(), codec()));
  if (*used != compression::identity) head.fields.add_valid("content-encoding", to_string(*used));
  head.fields.add_valid("content-length", std::to_string(content.used()));
  return false;
}

/// In the order the protocol asks for.
std::string unary_call::query_of(bytes message, compression used) const {
  const bool as_base64 = codec() == rpc::codec::proto || used != compression::identity;
  std::string query = "?connect=v1";
  if (as_base64) query += "&base64=1";
  if (used != compression::identity) (query += "&compression=") += to_string(used);
  query += codec() == rpc::codec::proto ? "&encoding=proto" : "&encoding=json";
  query += "&message=";
  query += as_base64 ? wire::base64_encode(message, wire::alphabet::url)
                     : wire::encode_query(as_text(message));
  return query;
}

result<> unary_call::on_head(const weft::http::response_head& head) {
  if (auto read = wire::read_metadata(headers_, head.fields, max_metadata(), trailer_prefix); !read)
    return read;
  if (auto read = wire::read_prefixed(trailers_, head.fields, max_metadata(), trailer_prefix);
      !read)
    return read;
  failed_ = head.status != 200;
  if (failed_) {
    const auto type =
        wire::parse_media_type(head.fields.find("content-type").value_or(std::string_view{}));
    if (!type || type->form != wire::form::connect_unary || type->codec != rpc::codec::json)
      return std::unexpected{from_http(head)};
  } else if (auto good = check_type(head.fields, "application/"); !good) {
    return good;
  }
  return read_encoding(head.fields, "content-encoding");
}

result<payload> unary_call::on_whole(payload body) {
  auto plain = http::unpack(std::move(body), response_compression_ != compression::identity,
                            response_compression_, max_message());
  if (!failed_) return plain;
  const status otherwise = from_http(*response());
  if (!plain) return std::unexpected{otherwise};
  const slice text = plain->flatten();
  return std::unexpected{wire::error_from_json(text.text(), otherwise.code()).value_or(otherwise)};
}

// Streams
// --------------------------------------------------------------------------------------------

class stream_call final : public connect_call, public pooled<stream_call> {
 public:
  stream_call(std::shared_ptr<http::client_core> core, const method& m, const call_options& options)
      : connect_call{std::move(core), m, options, http::framing::envelope} {}

 private:
  result<> on_head(const weft::http::response_head& head) override {
    if (head.status != 200) return std::unexpected{from_http(head)};
    if (auto good = check_type(head.fields, "application/connect+"); !good) return good;
    if (auto read = wire::read_metadata(headers_, head.fields, max_metadata()); !read) return read;
    return read_encoding(head.fields, "connect-content-encoding");
  }
  result<std::optional<status>> on_special(wire::envelope e) override;
  status on_end(const weft::http::field_list&) override {
    return {code::internal, "the response ends without its end-of-stream message"};
  }
};

result<std::optional<status>> stream_call::on_special(wire::envelope e) {
  if ((e.flags & ~wire::flag_compressed) != wire::flag_connect_end)
    return client_call_base::on_special(std::move(e));
  auto plain = http::unpack(std::move(e.content), (e.flags & wire::flag_compressed) != 0,
                            response_compression_, max_message());
  if (!plain) return std::unexpected{std::move(plain).error()};
  const slice text = plain->flatten();
  auto end = wire::end_from_json(text.text(), max_metadata());
  if (!end) return std::unexpected{std::move(end).error()};
  trailers_ = std::move(end->trailers);
  return std::optional{std::move(end->status)};
}

class connect_transport final : public http::client_transport {
 public:
  connect_transport(std::unique_ptr<weft::http::client_connection> connection, io::shard& shard,
                    client_options options)
      : client_transport{std::move(connection), shard, options}, own_{std::move(options)} {}

 protected:
  std::unique_ptr<http::client_call_base> make_call(std::shared_ptr<http::client_core> core,
                                                    const method& m,
                                                    const call_options& options) override {
    if (m.kind == call_kind::unary)
      return std::make_unique<unary_call>(std::move(core), m, options, own_);
    return std::make_unique<stream_call>(std::move(core), m, options);
  }

 private:
  client_options own_;
};

}  // namespace

std::unique_ptr<rpc::transport> open(std::unique_ptr<weft::http::client_connection> connection,
                                     io::shard& shard, client_options options) {
  return std::make_unique<connect_transport>(std::move(connection), shard, std::move(options));
}

}  // namespace weft::rpc::connect
