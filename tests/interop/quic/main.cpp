#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <print>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>

#include <weft/io/event.hpp>
#include <weft/io/runtime.hpp>
#include <weft/quic/endpoint.hpp>

// weft's transport against others': a client asks on each stream for so many bytes of a known
// pattern ("GET /1000\r\n", as hq-interop of the QUIC interop runner does it) and checks them. Both
// ends print what their connections did as JSON, so that a run proves what it claims.

namespace {

using namespace std::chrono_literals;
using namespace weft;

constexpr std::string_view protocol = "hq-interop";
constexpr std::size_t piece = 64 * 1024;

std::byte pattern_at(std::size_t offset) {
  return static_cast<std::byte>((offset * 31 + (offset >> 8)) & 0xff);
}

slice pattern(std::size_t offset, std::size_t size) {
  buffer made = buffer::allocate(size);
  for (std::size_t i = 0; i < size; ++i) made.data()[i] = pattern_at(offset + i);
  return std::move(made).freeze();
}

[[noreturn]] void give_up(const error& why) {
  std::println(stderr, "interop_quic: {}", why.to_string());
  std::_Exit(1);
}

template <class T>
T must(result<T> outcome) {
  if (!outcome) give_up(outcome.error());
  if constexpr (!std::is_void_v<T>) return std::move(*outcome);
}

task<std::string> read_line(quic::stream& s) {
  std::string line;
  while (true) {
    auto more = co_await s.read();
    if (!more || more->empty() || line.size() > 100) co_return line;
    line += more->text();
  }
}

/// RFC 9001 §6.5: not before three probe time-outs have passed since the keys are in use.
task<> update_keys_of(quic::connection& c) {
  while (c.is_open() && !c.update_keys()) (void)co_await c.shard().sleep_until(io::now() + 1ms);
}

/// What a connection has done, from its own counters.
struct deeds {
  std::uint64_t connections = 0, resumed = 0, early = 0, key_updates = 0, paths = 0, lost = 0;

  void add(const quic::connection& c) {
    ++connections;
    resumed += c.session().resumed;
    early += c.session().early_data_accepted;
    key_updates += c.stats().key_updates;
    paths = std::max<std::uint64_t>(paths, c.paths().size());
    lost += c.stats().packets_lost;
  }
  void print(std::uint64_t retries) const {
    std::println(R"({{"connections": {}, "resumed": {}, "early": {}, "key_updates": {}, )"
                 R"("paths": {}, "lost": {}, "retries": {}}})",
                 connections, resumed, early, key_updates, paths, lost, retries);
    std::fflush(stdout);
  }
};

struct settings {
  std::string folder, ca, address;
  std::size_t size = 1, streams = 1;
  bool retry = false, update_keys = false, migrate = false, resume = false, early = false;
};

quic::transport_options transport() {
  return {.handshake_timeout = 15s, .idle_timeout = 15s};
}

// Server ------------------------------------------------------------------------------------------

struct server {
  settings given;
  deeds done;
  std::optional<quic::endpoint> endpoint;
};

task<> answer(std::shared_ptr<quic::connection> on, quic::stream s, bool update_keys) {
  const std::string line = co_await read_line(s);
  std::size_t size = 0;
  if (std::sscanf(line.c_str(), "GET /%zu", &size) != 1) co_return s.reset(1);
  for (std::size_t at = 0; at < size; at += piece) {
    if (update_keys && at >= size / 2) {
      update_keys = false;
      co_await update_keys_of(*on);
    }
    if (!co_await s.write(pattern(at, std::min(piece, size - at)))) co_return;
  }
  if (s.finish()) (void)co_await s.drained();
}

task<> serve(server& all, quic::connection accepted) {
  const auto connection = std::make_shared<quic::connection>(std::move(accepted));
  bool update_keys = all.given.update_keys;
  while (true) {
    auto s = co_await connection->accept_stream();
    if (!s) break;
    asio::co_spawn(connection->shard().get_executor(),
                   answer(connection, std::move(*s), std::exchange(update_keys, false)),
                   asio::detached);
  }
  all.done.add(*connection);
}

task<> accept(server& all) {
  while (true) {
    auto accepted = co_await all.endpoint->accept();
    if (!accepted) co_return;
    const auto on = accepted->shard().get_executor();
    asio::co_spawn(on, serve(all, std::move(*accepted)), asio::detached);
  }
}

int run_server(const settings& given) {
  const auto identity = must(tls::credentials::development());
  std::ofstream{std::filesystem::path{given.folder} / "cert.pem"} << identity.certificate_pem();
  runtime runtime;
  server all{given, {}, {}};
  quic::server_config config{
      .tls = {.identity = identity, .alpn = {std::string{protocol}}, .early_data = true},
      .transport = transport()};
  if (given.retry) config.retry_above = 0;
  all.endpoint = must(
      quic::endpoint::listen(runtime[0], must(address::parse("127.0.0.1:0")), std::move(config)));
  std::println("{}", all.endpoint->local_address().to_string());
  std::fflush(stdout);
  asio::co_spawn(runtime[0].get_executor(), accept(all), asio::detached);
  return runtime.run_until_signal([&] {
    all.done.print(all.endpoint->stats().retries);
    runtime.stop();
  });
}

// Client ------------------------------------------------------------------------------------------

struct client {
  settings given;
  quic::endpoint endpoint;
  std::size_t received = 0;
  bool turned = false;  // keys or path
  std::string moved;
};

/// In the middle of the transfer.
task<> turn(client& all, quic::connection& on) {
  if (all.given.update_keys) co_await update_keys_of(on);
  if (!all.given.migrate) co_return;
  auto done = co_await on.migrate(must(address::parse("127.0.0.1:0")));
  if (!done) give_up(done.error());
  all.moved = on.current_path().local.to_string();
}

task<> fetch(client& all, quic::connection& on, std::size_t size) {
  auto s = must(co_await on.open_stream());
  must(co_await s.write(slice::copy(std::format("GET /{}\r\n", size))));
  must(s.finish());
  std::size_t at = 0;
  while (true) {
    const slice got = must(co_await s.read());
    if (got.empty()) break;
    for (const std::byte each : got.span())
      if (each != pattern_at(at++))
        give_up({errc::protocol, layer::app, std::format("byte {} is wrong", at - 1)});
    all.received += got.size();
    if (all.received * 2 >= size && !std::exchange(all.turned, true)) co_await turn(all, on);
  }
  if (at != size)
    give_up({errc::protocol, layer::app, std::format("{} bytes came of {}", at, size)});
}

task<> fetch_all(client& all, quic::connection& on) {
  std::size_t running = all.given.streams;
  io::event ended;
  for (std::size_t i = 0; i < all.given.streams; ++i)
    asio::co_spawn(on.shard().get_executor(), fetch(all, on, all.given.size),
                   [&](std::exception_ptr) {
                     --running;
                     ended.notify();
                   });
  while (running > 0) (void)co_await ended.wait();
}

task<quic::connection> connect(client& all, const quic::client_config& config) {
  co_return must(
      co_await all.endpoint.connect(must(address::parse(all.given.address)), "localhost", config));
}

task<> go(client& all, std::function<void()> done) {
  quic::client_config config{
      .tls = {.trusted = must(tls::trust::file(all.given.ca)), .alpn = {std::string{protocol}}},
      .transport = transport()};
  if (all.given.resume || all.given.early) {
    auto first = co_await connect(all, config);
    co_await fetch(all, first, 1);
    all.turned = false;
    all.received = 0;
    while (first.resumption().empty()) (void)co_await first.shard().sleep_until(io::now() + 1ms);
    config.resume = first.resumption();
    config.early_data = all.given.early;
  }
  auto connection = co_await connect(all, config);
  co_await fetch_all(all, connection);
  must(co_await connection.confirmed());
  co_await fetch(all, connection, 1);  // the server knows, too, that the handshake is over
  deeds seen;
  seen.add(connection);
  seen.print(0);
  connection.close();
  co_await all.endpoint.drain(io::now() + 1s);
  done();
}

int run_client(const settings& given) {
  runtime runtime;
  client all{given, must(quic::endpoint::open(runtime[0], {})), 0, false, {}};
  asio::co_spawn(runtime[0].get_executor(), go(all, [&] { runtime.stop(); }),
                 [](std::exception_ptr failure) {
                   if (failure) std::rethrow_exception(failure);
                 });
  runtime.run();
  return 0;
}

}  // namespace

int main(int argc, char* argv[]) {
  settings given;
  CLI::App app{"weft's QUIC against others'"};
  app.require_subcommand(1);
  auto* as_server = app.add_subcommand("server", "answers GET /SIZE; until SIGTERM");
  as_server->add_option("folder", given.folder, "gets cert.pem")->required();
  as_server->add_flag("--retry", given.retry, "validate every address first");
  auto* as_client = app.add_subcommand("client", "fetches and checks");
  as_client->add_option("address", given.address)->required();
  as_client->add_option("--ca", given.ca)->required();
  as_client->add_option("--size", given.size, "bytes a stream");
  as_client->add_option("--streams", given.streams);
  as_client->add_flag("--migrate", given.migrate, "to a new port, midway");
  as_client->add_flag("--resume", given.resume, "a session of a first connection");
  as_client->add_flag("--early", given.early, "ask in 0-RTT");
  for (auto* each : {as_server, as_client})
    each->add_flag("--update-keys", given.update_keys, "midway");
  CLI11_PARSE(app, argc, argv);
  return as_server->parsed() ? run_server(given) : run_client(given);
}
