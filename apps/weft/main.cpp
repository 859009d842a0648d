#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>

#include "call.hpp"
#include "demo.hpp"
#include "info.hpp"

namespace {

using namespace weft::app;

void add_call(CLI::App& app, call_request& given) {
  auto* call = app.add_subcommand("call", "Call any method of any weft server by JSON");
  call->add_option("target", given.target, "HOST:PORT")->required();
  call->add_option("method", given.method, "pkg.Service/Method; without it, list what is served");
  call->add_option(
      "-d,--data", given.data,
      "Request as JSON, @FILE, or - for standard input; several for a stream, one a line");
  auto* who =
      call->add_option_group("trust", "Whom to believe (default: the system's authorities)");
  who->add_option("--ca", given.authorities, "PEM file of certificate authorities")
      ->check(CLI::ExistingFile);
  who->add_option("--pin", given.pin, "Public-key fingerprint, sha256:HEX");
  who->add_flag("--insecure", given.insecure, "Check nobody");
  who->require_option(0, 1);
  call->add_option("--server-name", given.server_name, "Name the certificate must carry");
  call->add_option("--carrier", given.carrier, "quic, quic-one-stream or tls-tcp")
      ->check(CLI::IsMember({"quic", "quic-one-stream", "tls-tcp"}))
      ->capture_default_str();
  call->add_option("--timeout", given.timeout_seconds, "Seconds the call may take")
      ->check(CLI::Range(0.001, 86'400.0))
      ->capture_default_str();
  call->add_option("-H,--header", given.metadata, "Metadata to send, 'key: value'");
  call->add_flag("-v,--verbose", given.verbose, "Show connection, headers and trailers on stderr");
  call->footer("Exit code: the call's status code (0: OK), or 64 for wrong arguments.");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"weft: RPC over QUIC"};
  app.require_subcommand(1);
  app.set_version_flag("--version", WEFT_VERSION);

  call_request call;
  add_call(app, call);

  info_request info;
  app.add_subcommand("info", "What this machine offers to weft")
      ->add_flag("--json", info.json, "One JSON object");

  demo_request demo;
  auto* show =
      app.add_subcommand("demo", "Serve and call on loopback: all call kinds, a file, a move");
  show->add_option("--file", demo.file, "File to copy (default: this program)")
      ->check(CLI::ExistingFile);
  show->add_flag("--serve", demo.serve, "Be the demo's server process")->group("");

  constexpr int wrong_arguments = 64;  // EX_USAGE
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& failure) {
    return app.exit(failure) == 0 ? 0 : wrong_arguments;
  }
  if (app.got_subcommand("call")) return run_call(call);
  if (app.got_subcommand("info")) return run_info(info);
  return run_demo(demo);
}
