#include "peer.hpp"

#include <fcntl.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#define XXH_STATIC_LINKING_ONLY  // the state of a running hash, on the stack

#include <array>
#include <format>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/v1/bench.weft.h"
#include "checksum.hpp"
#include "settings.hpp"
#include "statistics.hpp"

#include <weft/rpc/host/server.hpp>

extern char** environ;

namespace weft::bench {
namespace {

/// What arrived since the last report. One shard, so no lock.
struct tally {
  std::uint64_t calls = 0, bytes = 0, checksum = 0;
  double cpu_before = process_cpu_seconds();

  void count(bench::v1::Report& report) {
    const double cpu = process_cpu_seconds();
    report.set_calls(std::exchange(calls, 0));
    report.set_bytes(std::exchange(bytes, 0));
    report.set_checksum(std::exchange(checksum, 0));
    report.set_cpu_seconds(cpu - std::exchange(cpu_before, cpu));
  }
};

using shared_tally = std::shared_ptr<tally>;

class bench_handler final : public bench::v1::BenchService::handler {
 public:
  explicit bench_handler(shared_tally sink) : sink_{std::move(sink)} {}

  task<rpc::result<v1::Payload>> Echo(rpc::server_context&, v1::Payload request) override {
    co_return std::move(request);
  }
  task<rpc::status> Chat(rpc::server_context&, rpc::reader<v1::Payload>& requests,
                         rpc::writer<v1::Payload>& replies) override {
    while (true) {
      auto request = co_await requests.read();
      if (!request) co_return request.error();
      if (!*request) co_return rpc::status{};
      if (auto sent = co_await replies.write(**request); !sent) co_return sent.error();
    }
  }
  task<rpc::result<v1::Report>> Sink(rpc::server_context&, v1::Payload request) override {
    ++sink_->calls;
    sink_->bytes += request.body().size();
    sink_->checksum += XXH3_64bits(request.body().data(), request.body().size());
    co_return v1::Report{};
  }
  task<rpc::result<v1::Report>> Collect(rpc::server_context&, v1::ReportRequest) override {
    v1::Report report;
    sink_->count(report);
    co_return report;
  }

 private:
  shared_tally sink_;
};

constexpr std::array bulk_methods{rpc::method{.path = "/bench.raw.BulkService/Send",
                                              .service = "bench.raw.BulkService",
                                              .name = "Send",
                                              .kind = rpc::call_kind::client_streaming}};
constexpr rpc::service bulk_service{"bench.raw.BulkService", bulk_methods, {}};

class bulk_handler final : public rpc::service_handler {
 public:
  explicit bulk_handler(shared_tally sink) : sink_{std::move(sink)} {}
  const rpc::service& descriptor() const noexcept override { return bulk_service; }

  task<rpc::status> invoke(std::size_t, rpc::server_context&, rpc::server_call& call) override {
    while (true) {
      auto message = co_await call.read();
      if (!message) co_return std::move(message).error();
      if (!*message) break;
      count(**message);
    }
    v1::Report report;
    sink_->count(report);
    co_return co_await rpc::write_reply<v1::Report>(call, std::move(report));
  }

 private:
  void count(const rpc::payload& message) {
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    for (std::size_t i = 0; i < message.parts(); ++i)
      XXH3_64bits_update(&state, message.part(i).data(), message.part(i).size());
    ++sink_->calls;
    sink_->bytes += message.size();
    sink_->checksum += XXH3_64bits_digest(&state);
  }
  shared_tally sink_;
};

std::unique_ptr<rpc::server> make_server(runtime& on, const tls::credentials& identity,
                                         bool ethernet) {
  rpc::server_options options{.listen = "127.0.0.1:0", .credentials = identity};
  options.transport = transport_settings(ethernet);
  options.limits = limit_settings();
  options.describe = false;
  auto server = std::make_unique<rpc::server>(on, std::move(options));
  auto sink = std::make_shared<tally>();
  server->add<bench_handler>(sink);
  server->add<bulk_handler>(sink);
  return server;
}

result<peer_ports> parse_ports(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object())
    return fail(errc::internal, layer::app, "the benchmark's server process did not start");
  return peer_ports{json.value("ethernet", std::uint16_t{}),
                    json.value("discovered", std::uint16_t{}), json.value("certificate", "")};
}

std::string read_line(int fd) {
  std::string line;
  for (char c; read(fd, &c, 1) == 1 && c != '\n';) line += c;
  return line;
}

}  // namespace

const rpc::service& bulk_service_descriptor() noexcept {
  return bulk_service;
}

void pin_to(int cpu) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(cpu), &set);
  sched_setaffinity(0, sizeof set, &set);
}

int serve(int announce_fd, int cpu) {
  pin_to(cpu);
  keep_freed_memory();
  auto identity = tls::credentials::development();
  if (!identity) return report_failure(identity.error());
  runtime loop;
  std::array servers{make_server(loop, *identity, true), make_server(loop, *identity, false)};
  for (auto& server : servers)
    if (auto started = server->start(); !started) return report_failure(started.error());
  const nlohmann::json ports{{"ethernet", servers[0]->local_address().port()},
                             {"discovered", servers[1]->local_address().port()},
                             {"certificate", identity->certificate_pem()}};
  const std::string line = ports.dump() + "\n";
  if (write(announce_fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) return 1;
  std::jthread watch{[&loop] {
    // The parent holds the other end: its exit, however it comes, ends this process.
    for (char c; read(STDIN_FILENO, &c, 1) > 0;) {
    }
    loop.stop();
  }};
  loop.run();
  return 0;
}

result<peer_process> peer_process::start(int cpu) {
  int to_child[2], from_child[2];
  if (pipe2(to_child, O_CLOEXEC) != 0 || pipe2(from_child, O_CLOEXEC) != 0)
    return fail_errno(layer::app, "pipe2", errno);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, to_child[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, from_child[1], STDOUT_FILENO);
  const std::string cpu_text = std::to_string(cpu);
  std::array<char*, 5> arguments{const_cast<char*>("weft-bench"), const_cast<char*>("--serve"),
                                 const_cast<char*>("--server-cpu"),
                                 const_cast<char*>(cpu_text.c_str()), nullptr};
  peer_process peer;
  const int failure =
      posix_spawn(&peer.pid_, "/proc/self/exe", &files, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  close(to_child[0]);
  close(from_child[1]);
  peer.stdin_ = to_child[1];
  if (failure != 0) return fail_errno(layer::app, "posix_spawn", failure);
  auto ports = parse_ports(read_line(from_child[0]));
  close(from_child[0]);
  if (!ports) return std::unexpected{std::move(ports).error()};
  peer.ports_ = std::move(*ports);
  return peer;
}

peer_process::peer_process(peer_process&& other) noexcept
    : ports_{std::move(other.ports_)},
      pid_{std::exchange(other.pid_, -1)},
      stdin_{std::exchange(other.stdin_, -1)} {}

peer_process::~peer_process() {
  if (stdin_ >= 0) close(stdin_);
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
}

}  // namespace weft::bench
