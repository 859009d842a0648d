#include <fnmatch.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <asio/co_spawn.hpp>
#include <cstdio>
#include <format>
#include <optional>

#include "limits.hpp"
#include "peer.hpp"
#include "report.hpp"
#include "runner.hpp"
#include "scenario.hpp"
#include "settings.hpp"

namespace {

using namespace weft;
using namespace weft::bench;
using namespace std::chrono_literals;

struct options {
  std::vector<std::string> only, variants;
  unsigned repetitions = 7;
  unsigned milliseconds = 1000;
  bool quick = false, smoke = false, list = false, serve = false, no_limits = false;
  int client_cpu = 0, server_cpu = 1;
  std::string json;
};

class progress_bar {
 public:
  explicit progress_bar(bool on) : on_{on} {}
  void show(unsigned done, unsigned total, const std::string& now) const {
    if (!on_ || total == 0) return;
    constexpr unsigned width = 30;
    const unsigned filled = width * done / total;
    std::fprintf(stderr, "\r[%s%s] %3u%%  %-36s", std::string(filled, '#').c_str(),
                 std::string(width - filled, '.').c_str(), 100 * done / total, now.c_str());
    if (done == total) std::fputs("\r\033[K", stderr);
  }

 private:
  bool on_;
};

bool matches(const std::string& pattern, std::string_view name) {
  return fnmatch(pattern.c_str(), std::string{name}.c_str(), 0) == 0;
}

bool selected(const std::vector<std::string>& only, std::string_view name) {
  if (only.empty()) return true;
  return std::ranges::any_of(only, [&](const auto& pattern) { return matches(pattern, name); });
}

/// The first pattern that selects nothing, or null: a mistyped one must not pass unnoticed.
const std::string* idle_pattern(const std::vector<std::string>& only) {
  const auto idle = std::ranges::find_if(only, [](const auto& pattern) {
    return std::ranges::none_of(all_scenarios(),
                                [&](const auto& s) { return matches(pattern, s.name); });
  });
  return idle == only.end() ? nullptr : &*idle;
}

plan make_plan(const options& given) {
  plan p;
  for (const auto& s : all_scenarios())
    if (selected(given.only, s.name)) p.scenarios.push_back(&s);
  for (const variant v : all_variants)
    if (given.variants.empty() || std::ranges::contains(given.variants, to_string(v)))
      p.variants.push_back(v);
  p.repetitions = given.repetitions;
  p.measured = std::chrono::milliseconds{given.milliseconds};
  p.warm_up = p.measured / 5;
  return p;
}

weft::result<> run_plan(const options& given, const plan& what, results& into) {
  auto peer = peer_process::start(given.server_cpu);
  if (!peer) return std::unexpected{std::move(peer).error()};
  pin_to(given.client_cpu);
  const progress_bar bar{isatty(STDERR_FILENO) != 0};
  io::shard shard;
  std::optional<weft::result<>> outcome;
  {
    runner run{shard, peer->ports(), what,
               [&bar](unsigned done, unsigned total, const std::string& now) {
                 bar.show(done, total, now);
               }};
    asio::co_spawn(shard.get_executor(), run.run(into),
                   [&](std::exception_ptr thrown, weft::result<> ended) {
                     outcome = std::move(ended);
                     shard.stop();
                     if (thrown) std::rethrow_exception(thrown);
                   });
    shard.run();
  }
  return outcome.value_or(weft::fail(errc::internal, layer::app, "the benchmark did not finish"));
}

int run(const options& given) {
  keep_freed_memory();
  const plan what = make_plan(given);
  if (const auto* idle = idle_pattern(given.only))
    return report_failure({errc::invalid_argument, layer::app,
                           std::format("no case is called '{}'; `--list` shows them, and patterns "
                                       "such as 'unary-64k-*' select several",
                                       *idle)});
  results measured;
  if (auto done = run_plan(given, what, measured); !done) return report_failure(done.error());
  if (!given.no_limits) {
    const limit_plan limits{what.repetitions, what.measured, given.client_cpu, given.server_cpu};
    const progress_bar bar{isatty(STDERR_FILENO) != 0};
    const auto tell = [&](const std::string& name) { bar.show(1, 2, name); };
    if (auto done = measure_limits(limits, measured, tell); !done)
      return report_failure(done.error());
    bar.show(1, 1, "");
  }
  print_tables(measured);
  if (given.json.empty()) return 0;
  if (auto written = write_json(measured, given.json); !written)
    return report_failure(written.error());
  return 0;
}

int list() {
  for (const auto& s : all_scenarios())
    std::printf("%-16s %s\n", std::string{s.name}.c_str(), std::string{s.what}.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  options given;
  CLI::App app{"Measures weft's calls over QUIC and over TLS/TCP, interleaved, one core a side."};
  app.add_option("case", given.only,
                 "Cases to run, by name; * and ? stand for what they do in a shell (default: all)");
  app.add_option(
      "--variant", given.variants,
      "quic, lanes, quic-one-stream, tls-tcp, grpc-h3, connect-h3, grpc-h2 (default: all)");
  app.add_option("--repetitions,-n", given.repetitions, "Interleaved repetitions")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--milliseconds", given.milliseconds, "Length of one measurement")
      ->capture_default_str()
      ->check(CLI::Range(10, 60'000));
  auto* quick = app.add_flag("--quick", given.quick, "5 repetitions of 250 ms: under 2 minutes");
  app.add_flag("--smoke", given.smoke, "Once, 30 ms each: does everything run?")->excludes(quick);
  app.add_flag("--list", given.list, "List the cases");
  app.add_flag("--no-limits", given.no_limits, "Skip the machine's own limits");
  app.add_option("--json", given.json, "Also write the results here, one JSON object a line");
  app.add_option("--client-cpu", given.client_cpu, "Processor of the client")
      ->capture_default_str();
  app.add_option("--server-cpu", given.server_cpu, "Processor of the server")
      ->capture_default_str();
  app.add_flag("--serve", given.serve, "Be the server process")->group("");
  CLI11_PARSE(app, argc, argv);
  if (given.serve) return serve(STDOUT_FILENO, given.server_cpu);
  if (given.list) return list();
  if (*quick) {
    given.repetitions = 5;
    given.milliseconds = 250;
  }
  if (given.smoke) {
    given.repetitions = 1;
    given.milliseconds = 30;
  }
  return run(given);
}
