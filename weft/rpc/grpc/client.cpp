#include <algorithm>
#include <utility>

#include <weft/rpc/core/pooled.hpp>
#include <weft/rpc/grpc/session.hpp>
#include <weft/rpc/grpc/status_fields.hpp>
#include <weft/rpc/http/wire/codes.hpp>
#include <weft/rpc/http/wire/fields.hpp>
#include <weft/rpc/http/wire/media_type.hpp>
#include <weft/rpc/http/wire/timeout.hpp>

namespace weft::rpc::grpc {
namespace {

namespace wire = http::wire;

constexpr const char* no_status = "the response's trailers have no grpc-status";
/// What a status may take beside the metadata in gRPC-Web's trailers: as much as all of a trailer
/// section may by default.
constexpr std::size_t status_room = std::size_t{16} << 10;

class grpc_call final : public http::client_call_base, public pooled<grpc_call> {
 public:
  grpc_call(std::shared_ptr<http::client_core> core, const method& m, const call_options& options,
            dialect d)
      : client_call_base{std::move(core), m, options, http::framing::envelope},
        web_{d == dialect::grpc_web} {}

 private:
  result<> fill_request(weft::http::request_head& head, const method& m,
                        const call_options& options, time_point deadline) override;
  std::pair<std::string_view, std::string> timeout_field(duration left) const override {
    return {"grpc-timeout", wire::grpc_timeout(left)};
  }
  result<> on_head(const weft::http::response_head& head) override;
  result<> check_type(const weft::http::field_list& fields) const;
  result<> read_encoding(const weft::http::field_list& fields);
  result<std::optional<status>> on_special(wire::envelope e) override;
  status on_end(const weft::http::field_list& trailers) override;
  status end_of(const weft::http::field_list& fields);

  wire::form form() const noexcept { return web_ ? wire::form::grpc_web : wire::form::grpc; }

  bool web_;
};

// The request
// --------------------------------------------------------------------------------------

result<> grpc_call::fill_request(weft::http::request_head& head, const method&,
                                 const call_options& options, time_point deadline) {
  auto& fields = head.fields;
  if (web_)
    fields.add_valid("x-grpc-web", "1");
  else
    fields.add_valid("te", "trailers");
  fields.add_valid("content-type", wire::to_string(form(), codec()));
  if (request_compression_ != compression::identity)
    fields.add_valid("grpc-encoding", to_string(request_compression_));
  if (!core().accepted().empty()) fields.add_valid("grpc-accept-encoding", core().accepted());
  if (deadline != never) {
    const auto [name, value] = timeout_field(deadline - io::now());
    fields.add_valid(name, value);
  }
  if (!core().options().user_agent.empty() && !options.metadata.find("user-agent"))
    fields.add_valid("user-agent", core().options().user_agent);
  wire::append_metadata(fields, options.metadata);
  return {};
}

// The response
// -------------------------------------------------------------------------------------

result<> grpc_call::on_head(const weft::http::response_head& head) {
  if (head.status != 200) {
    // What answers so need not know gRPC. If it does, its own word counts.
    auto told = read_status(head.fields);
    if (told && !told->ok()) return std::unexpected{end_of(head.fields)};
    return std::unexpected{wire::status_from_http(
        head.status, head.fields.find("content-type").value_or(std::string_view{}))};
  }
  if (auto good = check_type(head.fields); !good) return good;
  if (auto read = wire::read_metadata(headers_, head.fields, max_metadata()); !read) return read;
  return read_encoding(head.fields);
}

/// A good response is in our codec: `unknown` when it is no such thing at all.
result<> grpc_call::check_type(const weft::http::field_list& fields) const {
  const std::string_view type = fields.find("content-type").value_or(std::string_view{});
  const auto parsed = wire::parse_media_type(type);
  if (parsed && parsed->form == form() && parsed->codec == codec()) return {};
  return fail(parsed && parsed->form == form() ? code::internal : code::unknown,
              "the response's content type is \"" + std::string{type} + "\", not " +
                  std::string{wire::to_string(form(), codec())});
}

result<> grpc_call::read_encoding(const weft::http::field_list& fields) {
  const auto used = fields.find("grpc-encoding");
  if (!used || used->empty()) return {};
  const auto algorithm = compression_from_name(*used);
  const auto& offered = core().options().compressions;
  if (!algorithm ||
      (*algorithm != compression::identity && !std::ranges::contains(offered, *algorithm)))
    return fail(code::internal, "the response is compressed with \"" + std::string{*used} +
                                    "\", which was not offered; offered were " +
                                    (offered.empty() ? "none" : core().accepted()));
  response_compression_ = *algorithm;
  return {};
}

/// gRPC-Web's end.
result<std::optional<status>> grpc_call::on_special(wire::envelope e) {
  if (!web_ || (e.flags & ~wire::flag_compressed) != wire::flag_web_trailers)
    return client_call_base::on_special(std::move(e));
  auto plain =
      http::unpack(std::move(e.content), (e.flags & wire::flag_compressed) != 0,
                   response_compression_, std::min(max_message(), max_metadata() + status_room));
  if (!plain) return std::unexpected{std::move(plain).error()};
  const slice text = plain->flatten();
  const auto fields = from_block(text.text());
  if (!fields)
    return fail(code::internal, "the response's trailers are no lines of \"name: value\"");
  if (!fields->find("grpc-status")) return fail(code::unknown, no_status);
  return std::optional{end_of(*fields)};
}

/// The status that `fields` hold, and the metadata beside it.
status grpc_call::end_of(const weft::http::field_list& fields) {
  status s = read_status(fields).value();
  auto read = wire::read_metadata(trailers_, fields, max_metadata());
  if (!read && s.ok()) return std::move(read).error();
  return s;
}

status grpc_call::on_end(const weft::http::field_list& trailers) {
  if (!web_ && trailers.find("grpc-status")) return end_of(trailers);
  // Trailers-Only: a status in the head counts where nothing at all followed it.
  if (trailers.empty() && !had_content() && response()->fields.find("grpc-status")) {
    headers_ = {};
    return end_of(response()->fields);
  }
  if (web_) return {code::internal, "the response ends without its trailers"};
  if (trailers.empty())
    return {code::internal, "the response has no trailers, and so does not say how the call ended"};
  return {code::unknown, no_status};
}

class grpc_transport final : public http::client_transport {
 public:
  grpc_transport(std::unique_ptr<weft::http::client_connection> connection, io::shard& shard,
                 http::client_options options, dialect d)
      : client_transport{std::move(connection), shard, std::move(options)}, dialect_{d} {}

 protected:
  std::unique_ptr<http::client_call_base> make_call(std::shared_ptr<http::client_core> core,
                                                    const method& m,
                                                    const call_options& options) override {
    return std::make_unique<grpc_call>(std::move(core), m, options, dialect_);
  }

 private:
  dialect dialect_;
};

}  // namespace

std::unique_ptr<rpc::transport> open(std::unique_ptr<weft::http::client_connection> connection,
                                     io::shard& shard, client_options options) {
  const dialect d = options.dialect;
  return std::make_unique<grpc_transport>(std::move(connection), shard, std::move(options), d);
}

}  // namespace weft::rpc::grpc
