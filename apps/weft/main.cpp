#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <utility>

#include "call.hpp"
#include "demo.hpp"
#include "info.hpp"
#include "ls.hpp"

using namespace weft::app;

namespace {

// A socket that got the number of a closed standard input would be read as such.
void open_standard_streams() {
  int made = 0;
  do made = open("/dev/null", O_RDWR);
  while (made >= 0 && made <= STDERR_FILENO);
  if (made >= 0) close(made);
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  CLI::App app{"weft: RPC over QUIC"};
  app.require_subcommand(1);
  app.set_version_flag("--version", WEFT_VERSION);

  call_request call;
  add_call(app, call);

  ls_request ls;
  add_ls(app, ls);

  info_request info;
  app.add_subcommand("info", "What this machine offers to weft")
      ->add_flag("--json", info.json, "One JSON object");

  demo_request demo;
  auto* show =
      app.add_subcommand("demo", "Serve and call on loopback: all call kinds, a file, a move");
  show->add_option("--file", demo.file, "File to copy (default: this program)")
      ->check(CLI::ExistingFile);
  show->add_flag("--serve", demo.serve, "Be the demo's server process")->group("");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& failure) {
    return app.exit(failure) == 0 ? 0 : wrong_arguments;
  }
  if (app.got_subcommand("call")) return run_call(std::move(call));
  if (app.got_subcommand("ls")) return run_ls(ls);
  if (app.got_subcommand("info")) return run_info(info);
  return run_demo(demo);
}
