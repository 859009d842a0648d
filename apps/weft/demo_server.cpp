#include "demo_server.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <format>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include <weft/rpc/host/server.hpp>

#include "files/v1/files.weft.h"
#include "greet/v1/greet.weft.h"
#include "sha256.hpp"

extern char** environ;

namespace weft::app {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t chunk_size = 256 * 1024;
constexpr std::uint32_t default_greetings = 3;
constexpr duration shutdown_grace = 5s;

class greeter final : public greet::v1::GreetService::handler {
  using request = greet::v1::GreetRequest;
  using response = greet::v1::GreetResponse;

 public:
  task<rpc::result<response>> Greet(rpc::server_context&, request asked) override {
    co_return greeting("Hello, " + asked.name() + "!");
  }

  task<rpc::status> GreetStream(rpc::server_context&, request asked,
                                rpc::writer<response>& replies) override {
    const std::uint32_t count = asked.count() ? asked.count() : default_greetings;
    for (std::uint32_t i = 1; i <= count; ++i)
      if (auto sent =
              co_await replies.write(greeting(std::format("Hello {}, {}!", i, asked.name())));
          !sent)
        co_return std::move(sent).error();
    co_return rpc::status{};
  }

  task<rpc::result<greet::v1::GreetCountResponse>> GreetCount(
      rpc::server_context&, rpc::reader<request>& requests) override {
    greet::v1::GreetCountResponse counted;
    while (true) {
      auto next = co_await requests.read();
      if (!next) co_return std::unexpected{std::move(next).error()};
      if (!*next) co_return counted;
      counted.set_count(counted.count() + 1);
    }
  }

  task<rpc::status> GreetChat(rpc::server_context&, rpc::reader<request>& requests,
                              rpc::writer<response>& replies) override {
    while (true) {
      auto next = co_await requests.read();
      if (!next) co_return std::move(next).error();
      if (!*next) co_return rpc::status{};
      if (auto sent = co_await replies.write(greeting("Hi, " + (*next)->name() + "!")); !sent)
        co_return std::move(sent).error();
    }
  }

 private:
  static response greeting(std::string text) {
    response made;
    made.set_greeting(std::move(text));
    return made;
  }
};

/// Serves the one file it was told of, under any path.
class one_file final : public files::v1::FileService::handler {
 public:
  explicit one_file(std::string path) : path_{std::move(path)} {}

  task<rpc::status> Fetch(rpc::server_context&, files::v1::FetchRequest asked,
                          rpc::writer<files::v1::Chunk>& chunks) override {
    std::ifstream file{path_, std::ios::binary | std::ios::ate};
    if (!file || asked.path() != path_)
      co_return rpc::status{rpc::code::not_found, "no file " + asked.path()};
    const auto total = static_cast<std::uint64_t>(file.tellg());
    file.seekg(0);
    sha256 hash;
    files::v1::Chunk chunk;
    chunk.set_total(total);
    for (std::uint64_t offset = 0; offset < total;) {
      const auto size = std::min<std::uint64_t>(chunk_size, total - offset);
      chunk.mutable_data()->resize(size);
      if (!file.read(chunk.mutable_data()->data(), static_cast<std::streamsize>(size)))
        co_return rpc::status{rpc::code::data_loss, "the file became shorter"};
      hash.update(as_bytes(chunk.data()));
      chunk.set_offset(offset);
      offset += size;
      if (offset == total) chunk.set_sha256(hash.hexadecimal());
      if (auto sent = co_await chunks.write(chunk); !sent) co_return std::move(sent).error();
    }
    co_return rpc::status{};
  }

 private:
  std::string path_;
};

int complain(const error& failure) {
  std::fprintf(stderr, "weft demo: server: %s\n", failure.to_string().c_str());
  return 1;
}

std::string read_line(int fd) {
  std::string line;
  for (char c; read(fd, &c, 1) == 1 && c != '\n';) line += c;
  return line;
}

}  // namespace

int serve_demo(const std::string& file) {
  auto identity = tls::credentials::development();
  if (!identity) return complain(identity.error());
  runtime loop;
  rpc::server server{loop, {.listen = "127.0.0.1:0", .credentials = *identity}};
  server.add<greeter>();
  server.add<one_file>(file);
  if (auto started = server.start(); !started) return complain(started.error());
  const nlohmann::json announcement{{"port", server.local_address().port()},
                                    {"certificate", identity->certificate_pem()}};
  std::printf("%s\n", announcement.dump().c_str());
  std::fflush(stdout);
  std::jthread watch{[&] {
    // The client's process holds the other end: its exit, however it comes, ends this one.
    for (char c; read(STDIN_FILENO, &c, 1) > 0;) {
    }
    server.shutdown(shutdown_grace, [&loop] { loop.stop(); });
  }};
  loop.run();
  return 0;
}

result<demo_server> demo_server::start(const std::string& file) {
  int to_child[2], from_child[2];
  if (pipe2(to_child, O_CLOEXEC) != 0 || pipe2(from_child, O_CLOEXEC) != 0)
    return fail_errno(layer::app, "pipe2", errno);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, to_child[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, from_child[1], STDOUT_FILENO);
  std::array<std::string, 5> words{"weft", "demo", "--serve", "--file", file};
  std::array<char*, words.size() + 1> arguments{};
  for (std::size_t i = 0; i < words.size(); ++i) arguments[i] = words[i].data();
  demo_server server;
  const int failure =
      posix_spawn(&server.pid_, "/proc/self/exe", &files, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  close(to_child[0]);
  close(from_child[1]);
  server.stdin_ = to_child[1];
  const std::string line = failure == 0 ? read_line(from_child[0]) : std::string{};
  close(from_child[0]);
  if (failure != 0) return fail_errno(layer::app, "starting the server process", failure);
  const auto announcement = nlohmann::json::parse(line, nullptr, false);
  if (!announcement.is_object())
    return fail(errc::internal, layer::app, "the server process did not come up");
  server.port_ = announcement.value("port", std::uint16_t{});
  server.certificate_ = announcement.value("certificate", "");
  return server;
}

demo_server::demo_server(demo_server&& other) noexcept
    : certificate_{std::move(other.certificate_)},
      port_{other.port_},
      pid_{std::exchange(other.pid_, -1)},
      stdin_{std::exchange(other.stdin_, -1)} {}

demo_server::~demo_server() {
  stop();
}

int demo_server::stop() noexcept {
  if (stdin_ >= 0) close(std::exchange(stdin_, -1));
  if (pid_ <= 0) return 0;
  int status = 0;
  waitpid(std::exchange(pid_, -1), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace weft::app
