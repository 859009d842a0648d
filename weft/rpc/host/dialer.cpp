#include <weft/rpc/host/dialer.hpp>

#include <algorithm>
#include <utility>

#include <asio/as_tuple.hpp>
#include <asio/ip/basic_resolver.hpp>
#include <asio/ip/udp.hpp>

#include <weft/rpc/connect/session.hpp>
#include <weft/rpc/grpc/session.hpp>
#include <weft/rpc/host/one_stream.hpp>

namespace weft::rpc::detail {
namespace {

using namespace std::chrono_literals;
using asio::ip::udp;

// While other addresses of the name are untried (RFC 8305 races them; here the first answer
// counts).
constexpr duration impatience = 1s;
constexpr duration farewell = 1s;

address from_asio(const udp::endpoint& endpoint) {
  const auto ip = endpoint.address();
  if (ip.is_v4()) return address::ipv4(ip.to_v4().to_bytes(), endpoint.port());
  return address::ipv6(ip.to_v6().to_bytes(), endpoint.port(),
                       static_cast<std::uint32_t>(ip.to_v6().scope_id()));
}

bool is_port(std::string_view text) {
  return !text.empty() && text.size() <= 5 &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

weft::result<target> target::parse(std::string_view text) {
  const auto colon = text.rfind(':');
  std::string_view host = text.substr(0, colon);
  const std::string_view port = colon == text.npos ? "" : text.substr(colon + 1);
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  if (bracketed) host = host.substr(1, host.size() - 2);
  const bool bare_ipv6 = !bracketed && host.contains(':');
  if (host.empty() || bare_ipv6 || !is_port(port))
    return weft::fail(errc::invalid_argument, layer::rpc,
                      "the target \"" + std::string{text} +
                          "\" should be HOST:PORT, as in greet.example:8443 or [::1]:8443");
  target parsed{std::string{text}, std::string{host}, std::string{port}, {}};
  if (auto numeric = address::parse(text))
    parsed.numeric = *numeric;
  else if (bracketed)
    return std::unexpected{std::move(numeric).error()};
  return parsed;
}

dialer::dialer(io::shard& shard, target to, const channel_options& options)
    : shard_{shard}, to_{std::move(to)}, options_{options} {}

task<weft::result<link>> dialer::dial(bool early) {
  auto addresses = co_await resolve();
  if (!addresses) co_return std::unexpected{std::move(addresses).error()};
  weft::result<link> made =
      weft::fail(errc::unreachable, layer::rpc, "the name " + to_.host + " has no address");
  for (const address& to : *addresses) {
    const duration most = options_.transport.handshake_timeout;
    const bool last = to == addresses->back();
    made = co_await dial_address(to, early, last ? most : std::min(most, impatience));
    if (made || made.error() == errc::cancelled) break;
  }
  co_return made;
}

task<weft::result<std::vector<address>>> dialer::resolve() {
  if (to_.numeric) co_return std::vector{*to_.numeric};
  asio::ip::basic_resolver<udp, executor> resolver{shard_.get_executor()};
  const auto [failure, found] = co_await resolver.async_resolve(
      to_.host, to_.port, udp::resolver::numeric_service, asio::as_tuple(asio::deferred));
  if (failure == asio::error::operation_aborted)
    co_return weft::fail(errc::cancelled, layer::rpc, "looking up " + to_.host + " was cancelled");
  if (failure)
    co_return weft::fail(errc::unreachable, layer::rpc,
                         "looking up the name " + to_.host + ": " + failure.message());
  std::vector<address> addresses;
  for (const auto& entry : found) {
    const address next = from_asio(entry.endpoint());
    if (!std::ranges::contains(addresses, next)) addresses.push_back(next);
  }
  co_return addresses;
}

task<weft::result<link>> dialer::dial_address(address to, bool early, duration patience) {
  return options_.carrier == carrier::tls_tcp ? dial_tcp(to, patience)
                                              : dial_quic(to, early, patience);
}

task<weft::result<link>> dialer::dial_quic(address to, bool early, duration patience) {
  if (!endpoint_) {
    auto opened =
        quic::endpoint::open(shard_, {}, {.socket = options_.socket, .loop = options_.loop});
    if (!opened) co_return std::unexpected{std::move(opened).error()};
    endpoint_.emplace(std::move(*opened));
  }
  const bool one = options_.carrier == carrier::quic_one_stream;
  const bool http = speaks_http();
  const std::string_view alpn = one ? (http ? alpn_h2_one_stream : native::alpn_one_stream)
                                    : (http ? weft::http::alpn_h3 : native::alpn);
  quic::client_config config{.tls = tls_options({std::string{alpn}}),
                             .transport = options_.transport,
                             .resume = resumption_,
                             .early_data = early && !one && !http && !resumption_.empty()};
  config.transport.handshake_timeout = patience;
  const bool with_early_data = config.early_data;
  auto connection = co_await endpoint_->connect(to, to_.host, std::move(config));
  if (!connection) co_return std::unexpected{std::move(connection).error()};
  if (!one && http) co_return open_http(weft::http::open_h3(std::move(*connection), shard_, {}));
  if (!one) {
    link made{native::open(std::move(*connection), shard_, session_options()), nullptr,
              with_early_data, with_early_data};
    made.connection = native::connection_of(*made.calls);
    co_return made;
  }
  auto shared = std::make_shared<quic::connection>(std::move(*connection));
  auto stream = co_await shared->open_stream();
  if (!stream) co_return std::unexpected{std::move(stream).error()};
  const auto& session = shared->session();
  const transport_info info{"quic-one-stream", shared->current_path().local,
                            shared->current_path().remote, session.group, session.cipher};
  auto* beneath = shared.get();
  if (http) {
    link made = open_http(weft::http::open_h2(one_stream(std::move(shared), std::move(*stream)),
                                              http_info(info, session.peer_subject), shard_, {}));
    made.connection = beneath;
    co_return made;
  }
  co_return link{native::open(one_stream(std::move(shared), std::move(*stream)), info, shard_,
                              session_options()),
                 beneath, false};
}

task<weft::result<link>> dialer::dial_tcp(address to, duration patience) {
  if (!connector_) {
    const std::string_view alpn = speaks_http() ? weft::http::alpn_h2 : native::alpn;
    auto made = tcp::connector::make(tls_options({std::string{alpn}}));
    if (!made) co_return std::unexpected{std::move(made).error()};
    connector_.emplace(std::move(*made));
  }
  auto stream = co_await connector_->connect(shard_, to, to_.host, io::now() + patience);
  if (!stream) co_return std::unexpected{std::move(stream).error()};
  const tcp::stream& from = **stream;
  const transport_info info{"tls-tcp", from.local_address(), from.remote_address(),
                            from.session().group, from.session().cipher};
  if (speaks_http()) {
    std::string subject = from.session().peer_subject;
    co_return open_http(weft::http::open_h2(std::move(*stream), http_info(info, std::move(subject)),
                                            shard_, {.keep_alive = options_.transport.keep_alive}));
  }
  co_return link{native::open(std::move(*stream), info, shard_, session_options()), nullptr, false};
}

link dialer::open_http(std::unique_ptr<weft::http::client_connection> connection) {
  auto* beneath = connection->quic();
  const rpc::http::client_options common{.limits = options_.limits,
                                         .compressions = options_.accept,
                                         .codec = options_.codec,
                                         .authority = to_.text,
                                         .elsewhere = other_transport_};
  if (options_.protocol == protocol::connect) {
    connect::client_options wanted{common};
    wanted.use_get = options_.connect_get;
    return {connect::open(std::move(connection), shard_, std::move(wanted)), beneath};
  }
  grpc::client_options wanted{common};
  if (options_.protocol == protocol::grpc_web) wanted.dialect = grpc::dialect::grpc_web;
  return {grpc::open(std::move(connection), shard_, std::move(wanted)), beneath};
}

void dialer::remember(const link& last) {
  if (!last.connection) return;
  // A server that did not take early data would not take it the next time either.
  if (last.tried_early && !last.connection->session().early_data_accepted)
    resumption_ = {};
  else if (auto fresh = last.connection->resumption(); !fresh.empty())
    resumption_ = std::move(fresh);
}

task<> dialer::drain() {
  if (endpoint_) co_await endpoint_->drain(io::now() + farewell);
}

tls::client_options dialer::tls_options(std::vector<std::string> alpn) const {
  return {.trusted = options_.trust,
          .server_name = options_.server_name,
          .alpn = std::move(alpn),
          .groups = options_.groups,
          .identity = options_.identity,
          .key_log = options_.key_log};
}

native::session_options dialer::session_options() const {
  return {.limits = options_.limits,
          .compressions = options_.accept,
          .lanes = options_.lanes,
          .elsewhere = elsewhere_};
}

}  // namespace weft::rpc::detail
