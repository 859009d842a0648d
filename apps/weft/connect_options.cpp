#include "connect_options.hpp"

#include <CLI/CLI.hpp>

namespace weft::app {
namespace {

constexpr double default_timeout = 30;

rpc::protocol protocol_of(const std::string& name) {
  if (name == "grpc") return rpc::protocol::grpc;
  if (name == "grpc-web") return rpc::protocol::grpc_web;
  return name == "connect" ? rpc::protocol::connect : rpc::protocol::native;
}

rpc::carrier carrier_of(const connect_request& given) {
  if (given.http == "2" || given.carrier == "tls-tcp") return rpc::carrier::tls_tcp;
  return given.carrier == "quic-one-stream" ? rpc::carrier::quic_one_stream : rpc::carrier::quic;
}

weft::result<tls::trust> trust_of(const connect_request& given) {
  if (given.insecure) return tls::trust::insecure_anyone();
  if (!given.authorities.empty()) return tls::trust::file(given.authorities);
  if (given.pin.empty()) return tls::trust::system_roots();
  auto print = tls::parse_fingerprint(given.pin);
  if (!print) return std::unexpected{std::move(print).error()};
  return tls::trust::pinned({*print});
}

void add_trust_options(CLI::App& to, connect_request& given) {
  auto* who = to.add_option_group("trust", "Whom to believe (default: the system's authorities)");
  who->add_option("--ca", given.authorities, "PEM file of certificate authorities")
      ->check(CLI::ExistingFile);
  who->add_option("--pin", given.pin, "Public-key fingerprint, sha256:HEX");
  who->add_flag("--insecure", given.insecure, "Check nobody");
  who->require_option(0, 1);
  to.add_option("--server-name", given.server_name, "Name the certificate must carry");
  auto* certificate =
      to.add_option("--cert", given.certificate, "PEM file of our certificate chain")
          ->check(CLI::ExistingFile);
  auto* key = to.add_option("--key", given.key, "PEM file of its key")->check(CLI::ExistingFile);
  certificate->needs(key);
  key->needs(certificate);
}

}  // namespace

void add_connect_options(CLI::App& to, connect_request& given) {
  to.add_option("--protocol", given.protocol, "native, grpc, grpc-web or connect")
      ->check(CLI::IsMember({"native", "grpc", "grpc-web", "connect"}))
      ->capture_default_str();
  auto* version =
      to.add_option("--http", given.http,
                    "3: HTTP/3 on QUIC (default); 2: HTTP/2 on TLS/TCP; native: what carries it")
          ->check(CLI::IsMember({"3", "2"}));
  to.add_option("--carrier", given.carrier, "The same by name: quic, quic-one-stream or tls-tcp")
      ->check(CLI::IsMember({"quic", "quic-one-stream", "tls-tcp"}))
      ->excludes(version);
  to.add_option("--codec", given.codec, "Form of messages on the wire over HTTP: proto or json")
      ->check(CLI::IsMember({"proto", "json"}))
      ->capture_default_str();
  add_trust_options(to, given);
  to.add_option("--descriptor-set", given.descriptor_set,
                "FileDescriptorSet with imports, rather than asking the server")
      ->check(CLI::ExistingFile);
  to.add_option("--timeout", given.timeout_seconds,
                "Seconds all may take (default: 30, and none for streams)")
      ->check(CLI::Range(0.001, 86'400.0));
  to.add_option("-H,--header", given.metadata, "Metadata to send, 'name: value'; repeatable");
  to.add_flag("-v,--verbose", given.verbose, "Show connection, headers and trailers on stderr");
}

weft::result<rpc::channel_options> channel_options_of(const connect_request& given) {
  auto trust = trust_of(given);
  if (!trust) return std::unexpected{std::move(trust).error()};
  rpc::channel_options options{.trust = *trust, .server_name = given.server_name};
  options.carrier = carrier_of(given);
  options.protocol = protocol_of(given.protocol);
  if (given.codec == "json") options.codec = rpc::codec::json;
  options.connect_get = given.get;
  if (given.codec == "json" && options.protocol == rpc::protocol::native)
    return weft::fail(errc::invalid_argument, layer::app,
                      "the native protocol has no JSON form on the wire; use --codec json with "
                      "--protocol grpc, grpc-web or connect");
  if (given.certificate.empty()) return options;
  auto identity = tls::credentials::files(given.certificate, given.key);
  if (!identity) return std::unexpected{std::move(identity).error()};
  options.identity = std::make_shared<const tls::credentials>(std::move(*identity));
  return options;
}

weft::result<rpc::metadata> metadata_of(const connect_request& given) {
  rpc::metadata parsed;
  for (const auto& line : given.metadata) {
    const auto colon = line.find(':');
    if (colon == line.npos)
      return weft::fail(errc::invalid_argument, layer::app,
                        "'" + line + "' is not metadata; write 'name: value'");
    const auto value = line.find_first_not_of(' ', colon + 1);
    if (auto added =
            parsed.add(line.substr(0, colon), value == line.npos ? "" : line.substr(value));
        !added)
      return std::unexpected{std::move(added).error()};
  }
  return parsed;
}

time_point deadline_of(const connect_request& given) {
  return io::now() + std::chrono::duration_cast<duration>(std::chrono::duration<double>{
                         given.timeout_seconds.value_or(default_timeout)});
}

std::string way_of(rpc::protocol speaks, rpc::carrier over) {
  if (speaks == rpc::protocol::native) {
    if (over == rpc::carrier::quic) return "native over QUIC (ALPN weft/1)";
    if (over == rpc::carrier::tls_tcp) return "native over TLS/TCP (ALPN weft/1)";
    return "native in one QUIC stream (ALPN weft-one-stream/1)";
  }
  const std::string name = speaks == rpc::protocol::grpc       ? "grpc"
                           : speaks == rpc::protocol::grpc_web ? "grpc-web"
                                                               : "connect";
  if (over == rpc::carrier::quic) return name + " over HTTP/3 on QUIC (ALPN h3)";
  if (over == rpc::carrier::tls_tcp) return name + " over HTTP/2 on TLS/TCP (ALPN h2)";
  return name + " over HTTP/2 in one QUIC stream (ALPN weft-h2/1)";
}

}  // namespace weft::app
