#include "demo.hpp"

#include <unistd.h>

#include <asio/co_spawn.hpp>
#include <cstdio>
#include <filesystem>
#include <format>
#include <fstream>
#include <optional>

#include <weft/io/event.hpp>
#include <weft/rpc/host/channel.hpp>

#include "demo_server.hpp"
#include "files/v1/files.weft.h"
#include "greet/v1/greet.weft.h"
#include "sha256.hpp"

namespace weft::app {
namespace {

using namespace std::chrono_literals;
using greet_client = greet::v1::GreetService::client;
using files_client = files::v1::FileService::client;

error failed(std::string_view step, const rpc::status& why) {
  return {errc::internal, layer::app, std::format("{}: {}", step, why.to_string())};
}

void heading(const char* text) {
  std::printf("\n== %s\n", text);
}

greet::v1::GreetRequest named(std::string name) {
  greet::v1::GreetRequest request;
  request.set_name(std::move(name));
  return request;
}

// The four kinds of call
// ----------------------------------------------------------------------------

task<result<>> greet_once(greet_client& client) {
  const auto request = named("world");
  auto reply = co_await client.Greet(request);
  if (!reply) co_return std::unexpected{failed("Greet", reply.error())};
  std::printf("unary: %s\n", reply->greeting().c_str());
  co_return result<>{};
}

task<result<>> greet_stream(greet_client& client) {
  const auto request = named("streamer");
  auto replies = co_await client.GreetStream(request);
  if (!replies) co_return std::unexpected{failed("GreetStream", replies.error())};
  while (true) {
    auto next = co_await replies->read();
    if (!next) co_return std::unexpected{failed("GreetStream", next.error())};
    if (!*next) co_return result<>{};
    std::printf("server stream: %s\n", (*next)->greeting().c_str());
  }
}

task<result<>> greet_count(greet_client& client) {
  auto call = co_await client.GreetCount();
  if (!call) co_return std::unexpected{failed("GreetCount", call.error())};
  for (const char* name : {"alice", "bob", "carol"}) {
    const auto request = named(name);
    if (auto sent = co_await call->write(request); !sent)
      co_return std::unexpected{failed("GreetCount", sent.error())};
  }
  auto reply = co_await call->finish();
  if (!reply) co_return std::unexpected{failed("GreetCount", reply.error())};
  std::printf("client stream: server counted %u requests\n", reply->count());
  co_return result<>{};
}

task<result<>> greet_chat(greet_client& client) {
  auto call = co_await client.GreetChat();
  if (!call) co_return std::unexpected{failed("GreetChat", call.error())};
  for (const char* name : {"alice", "bob", "carol"}) {
    const auto request = named(name);
    if (auto sent = co_await call->write(request); !sent)
      co_return std::unexpected{failed("GreetChat", sent.error())};
    auto reply = co_await call->read();
    if (!reply) co_return std::unexpected{failed("GreetChat", reply.error())};
    if (!*reply) co_return fail(errc::internal, layer::app, "GreetChat ended early");
    std::printf("bidi stream: %s\n", (*reply)->greeting().c_str());
  }
  if (auto ended = co_await call->finish_writing(); !ended)
    co_return std::unexpected{failed("GreetChat", ended.error())};
  auto end = co_await call->read();
  if (!end) co_return std::unexpected{failed("GreetChat", end.error())};
  co_return result<>{};
}

// A file
// --------------------------------------------------------------------------------------------

void draw_progress(std::uint64_t done, std::uint64_t total) {
  if (!isatty(STDERR_FILENO) || total == 0) return;
  constexpr std::uint64_t width = 40;
  const auto filled = static_cast<std::size_t>(width * done / total);
  std::fprintf(stderr, "\r  [%s%s] %3u%%", std::string(filled, '#').c_str(),
               std::string(width - filled, '.').c_str(), static_cast<unsigned>(100 * done / total));
  if (done == total) std::fputs("\r\033[K", stderr);
}

struct fetched {
  std::uint64_t bytes = 0;
  std::string ours, theirs;
  duration elapsed{};
};

/// Copies the file to `target` (nowhere when empty); `at_half` runs once, half-way.
task<result<fetched>> fetch(files_client& client, std::string path, std::string target,
                            std::function<void()> at_half) {
  files::v1::FetchRequest request;
  request.set_path(path);
  const auto start = io::now();
  auto chunks = co_await client.Fetch(request);
  if (!chunks) co_return std::unexpected{failed("Fetch", chunks.error())};
  std::ofstream file;
  if (!target.empty()) file.open(target, std::ios::binary | std::ios::trunc);
  fetched got;
  sha256 hash;
  while (true) {
    auto next = co_await chunks->read();
    if (!next) co_return std::unexpected{failed("Fetch", next.error())};
    if (!*next) break;
    const auto& chunk = **next;
    if (chunk.offset() != got.bytes)
      co_return fail(errc::internal, layer::app, "Fetch: a chunk is missing");
    hash.update(as_bytes(chunk.data()));
    if (file.is_open()) file.write(chunk.data().data(), std::ssize(chunk.data()));
    got.bytes += chunk.data().size();
    got.theirs = chunk.sha256();
    draw_progress(got.bytes, chunk.total());
    if (at_half && got.bytes >= chunk.total() / 2) std::exchange(at_half, nullptr)();
  }
  got.ours = hash.hexadecimal();
  got.elapsed = io::now() - start;
  if (file.is_open() && !file.flush())
    co_return fail(errc::system, layer::app, "cannot write " + target);
  if (got.ours != got.theirs)
    co_return fail(errc::internal, layer::app, "the copy differs from the file");
  co_return got;
}

std::string rate(const fetched& got) {
  const double seconds = static_cast<double>(got.elapsed.count()) / 1e9;
  return std::format("{:.1f} MB in {:.0f} ms, {:.0f} MB/s", static_cast<double>(got.bytes) / 1e6,
                     seconds * 1e3, static_cast<double>(got.bytes) / 1e6 / seconds);
}

task<result<>> copy_file(files_client& client, std::string path) {
  const auto target =
      (std::filesystem::temp_directory_path() / std::format("weft-demo-{}", getpid())).string();
  auto got = co_await fetch(client, path, target, {});
  std::filesystem::remove(target);
  if (!got) co_return std::unexpected{std::move(got).error()};
  std::printf("%s: %s\n", std::filesystem::path{path}.filename().c_str(), rate(*got).c_str());
  std::printf("  SHA-256 at the server %s\n", got->theirs.c_str());
  std::printf("  SHA-256 of the copy   %s\n", got->ours.c_str());
  co_return result<>{};
}

// A move
// --------------------------------------------------------------------------------------------

struct move_outcome {
  std::optional<result<>> moved;
  io::event done;
};

task<> move(quic::connection& connection, move_outcome& outcome) {
  outcome.moved = co_await connection.migrate(connection.current_path().local.with_port(0));
  outcome.done.notify();
}

const quic::path_stats* stats_of(const std::vector<quic::path_stats>& all, const path& which) {
  for (const auto& one : all)
    if (one.path == which) return &one;
  return nullptr;
}

/// Fetches the file again and moves the connection to a new port half-way, then fetches once more
/// to see where the datagrams go.
task<result<>> move_while_fetching(io::shard& shard, rpc::channel& channel, files_client& client,
                                   std::string path) {
  quic::connection& connection = *channel.connection();
  const auto before = connection.current_path();
  move_outcome outcome;
  auto during = co_await fetch(client, path, {}, [&] {
    asio::co_spawn(shard.get_executor(), move(connection, outcome), [](std::exception_ptr thrown) {
      if (thrown) std::rethrow_exception(thrown);
    });
  });
  if (!during) co_return std::unexpected{std::move(during).error()};
  while (!outcome.moved) co_await outcome.done.wait();
  if (!*outcome.moved) co_return std::unexpected{std::move(outcome.moved->error())};
  const auto after = connection.current_path();
  const auto old_then = stats_of(connection.paths(), before)->datagrams_sent;
  auto later = co_await fetch(client, path, {}, {});
  if (!later) co_return std::unexpected{std::move(later).error()};
  const auto paths = connection.paths();
  const auto* old_now = stats_of(paths, before);
  const auto* fresh = stats_of(paths, after);
  std::printf("moved from %s to %s in the middle of a call; no call failed\n",
              before.local.to_string().c_str(), after.local.to_string().c_str());
  std::printf("  old path since then: +%llu datagrams sent\n",
              static_cast<unsigned long long>(old_now ? old_now->datagrams_sent - old_then : 0));
  std::printf("  new path: %llu datagrams sent, %llu received\n",
              static_cast<unsigned long long>(fresh ? fresh->datagrams_sent : 0),
              static_cast<unsigned long long>(fresh ? fresh->datagrams_received : 0));
  if (before.local == after.local)
    co_return fail(errc::internal, layer::app, "the connection did not move");
  co_return result<>{};
}

// Figures
// -------------------------------------------------------------------------------------------

double per(std::uint64_t amount, std::uint64_t calls) {
  return calls ? static_cast<double>(amount) / static_cast<double>(calls) : 0;
}

void print_figures(quic::connection& connection) {
  const auto session = connection.session();
  const auto stats = connection.stats();
  const auto& socket = connection.socket_counters();
  std::printf("key exchange          %s\ncipher                %s\n", session.group.c_str(),
              session.cipher.c_str());
  std::printf("round trip            %.0f us smoothed, %.0f us least\n",
              static_cast<double>(stats.smoothed_rtt.count()) / 1e3,
              static_cast<double>(stats.min_rtt.count()) / 1e3);
  std::printf("path MTU              %zu bytes of UDP payload\n", stats.path_mtu);
  std::printf("datagrams received    %llu, %.1f a system call\n",
              static_cast<unsigned long long>(socket.datagrams_received),
              per(socket.datagrams_received, socket.receive_calls));
  std::printf("datagrams sent        %llu, %.1f a system call, %llu offloaded sends\n",
              static_cast<unsigned long long>(socket.datagrams_sent),
              per(socket.datagrams_sent, socket.send_calls),
              static_cast<unsigned long long>(socket.offloaded_sends));
  std::printf("packets lost          %llu\n", static_cast<unsigned long long>(stats.packets_lost));
}

task<result<>> tour(io::shard& shard, rpc::channel& channel, std::string file) {
  if (auto connected = co_await channel.connect(io::now() + 5s); !connected)
    co_return std::unexpected{failed("connecting", connected.error())};
  greet_client greeter{channel};
  files_client files{channel};
  heading("One service, four kinds of call, one connection");
  for (auto step : {greet_once, greet_stream, greet_count, greet_chat})
    if (auto done = co_await step(greeter); !done) co_return done;
  heading("A file through a streaming call");
  if (auto done = co_await copy_file(files, file); !done) co_return done;
  heading("The connection moves to a new port during a call");
  if (auto done = co_await move_while_fetching(shard, channel, files, file); !done) co_return done;
  if (auto done = co_await greet_once(greeter); !done) co_return done;
  heading("The connection's figures");
  print_figures(*channel.connection());
  co_await channel.shutdown();
  co_return result<>{};
}

int complain(const error& failure) {
  std::fprintf(stderr, "weft demo: %s\n", failure.message().c_str());
  return 1;
}

}  // namespace

int run_demo(const demo_request& given) {
  if (given.serve) return serve_demo(given.file);
  const std::string file = given.file.empty()
                               ? std::filesystem::read_symlink("/proc/self/exe").string()
                               : std::filesystem::absolute(given.file).string();
  auto server = demo_server::start(file);
  if (!server) return complain(server.error());
  auto trust = tls::trust::pem(server->certificate());
  if (!trust) return complain(trust.error());
  std::optional<result<>> outcome;
  {
    io::shard shard;
    rpc::channel channel{shard, std::format("127.0.0.1:{}", server->port()), {.trust = *trust}};
    asio::co_spawn(shard.get_executor(), tour(shard, channel, file),
                   [&](std::exception_ptr thrown, result<> ended) {
                     outcome = std::move(ended);
                     shard.stop();
                     if (thrown) std::rethrow_exception(thrown);
                   });
    shard.run();
  }
  if (!outcome) return complain({errc::internal, layer::app, "the demo did not finish"});
  if (!*outcome) return complain(outcome->error());
  if (server->stop() != 0)
    return complain({errc::internal, layer::app, "the server did not end in good order"});
  std::printf("\nThe server has finished its calls and ended.\n");
  return 0;
}

}  // namespace weft::app
