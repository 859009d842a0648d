#include "call.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>
#include <utility>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>

#include <weft/io/event.hpp>

#include "input.hpp"
#include "session.hpp"

namespace weft::app {
namespace {

constexpr const char* default_target = "localhost:8443";

outcome local_fault(std::string why) {
  return {{rpc::code::invalid_argument, std::move(why)}, true};
}

void show(const char* what, const rpc::metadata& pairs) {
  for (const auto& [key, value] : pairs)
    std::fprintf(stderr, "%s %s: %s\n", what, key.c_str(), value.c_str());
}

bool client_streams(rpc::call_kind kind) {
  return kind == rpc::call_kind::client_streaming || kind == rpc::call_kind::bidi_streaming;
}

/// What the sending half of a call and the other share.
struct sending {
  explicit sending(message_source& s) : source{s} {}

  message_source& source;
  std::vector<std::string> first;  ///< messages read already
  std::optional<outcome> fault;    ///< in what was to be sent
  bool done = false;
  io::event finished;
  asio::cancellation_signal stop;
};

task<weft::result<std::optional<std::string>>> next_request(sending& half) {
  if (half.first.empty()) co_return co_await half.source.next();
  std::optional next{std::move(half.first.front())};
  half.first.erase(half.first.begin());
  co_return next;
}

/// Nothing will come back for a request that never left.
void give_up(rpc::json_call& call, sending& half, std::string why) {
  half.fault = local_fault(std::move(why));
  call.call().cancel(half.fault->status);
}

task<> send_all(rpc::json_call& call, sending& half) {
  for (;;) {
    auto request = co_await next_request(half);
    if (!request && request.error() == errc::cancelled) co_return;
    if (!request) co_return give_up(call, half, request.error().message());
    if (!*request) break;
    if (auto sent = co_await call.write(**request); !sent) {
      // Or else the call is over, and its status says why.
      if (auto good = call.check(**request); !good) give_up(call, half, good.error().message());
      co_return;
    }
  }
  (void)co_await call.finish_writing();
}

void begin_sending(io::shard& shard, rpc::json_call& call, sending& half) {
  asio::co_spawn(shard.get_executor(), send_all(call, half),
                 asio::bind_cancellation_slot(half.stop.slot(), [&half](std::exception_ptr) {
                   half.done = true;
                   half.finished.notify();
                 }));
}

task<rpc::status> print_replies(rpc::json_call& call, bool verbose) {
  if (verbose && co_await call.call().read_headers()) show("<", call.call().headers());
  for (;;) {
    auto reply = co_await call.read();
    if (!reply) co_return std::move(reply).error();
    if (!*reply) co_return rpc::status{};
    std::printf("%s\n", (*reply)->c_str());
    std::fflush(stdout);
  }
}

/// Sends and prints side by side, so that streams of any length work both ways.
task<outcome> converse(io::shard& shard, rpc::json_call& call, sending& half, bool verbose) {
  begin_sending(shard, call, half);
  auto ended = co_await print_replies(call, verbose);
  half.stop.emit(asio::cancellation_type::terminal);
  while (!half.done) (void)co_await half.finished.wait();
  if (half.fault) co_return std::move(*half.fault);
  if (verbose) show("<<", call.call().trailers());
  co_return outcome{std::move(ended)};
}

/// The one message of a call that takes one.
task<std::optional<outcome>> read_single(sending& half, const rpc::method_description& method) {
  for (;;) {
    auto next = co_await half.source.next();
    if (!next) co_return local_fault(next.error().message());
    if (!*next) break;
    half.first.push_back(std::move(**next));
    if (half.first.size() > 1)
      co_return local_fault(method.path.substr(1) + " takes one request message; more were given");
  }
  if (half.first.empty()) half.first.emplace_back("{}");
  co_return std::nullopt;
}

/// Without data, a stream of requests comes from standard input.
std::vector<std::string> data_for(const call_request& given, rpc::call_kind kind) {
  if (!given.data.empty() || !client_streams(kind)) return given.data;
  if (isatty(STDIN_FILENO))
    std::fprintf(stderr, "* reading requests from the terminal, as JSON; end with Ctrl-D\n");
  return {"-"};
}

std::optional<outcome> check_get(const call_request& given, const rpc::method_description& method) {
  if (!given.server.get) return std::nullopt;
  if (given.server.protocol != "connect") return local_fault("--get needs --protocol connect");
  if (method.kind == rpc::call_kind::unary && method.level == rpc::idempotency::no_side_effects)
    return std::nullopt;
  return local_fault(method.path.substr(1) +
                     " cannot be called by GET: its .proto does not say that it is unary with "
                     "idempotency_level = NO_SIDE_EFFECTS");
}

rpc::call_options options_for(const session& with, rpc::call_kind kind) {
  rpc::call_options options = with.options;
  if (kind != rpc::call_kind::unary && !with.given.timeout_seconds) options.deadline.reset();
  return options;
}

task<outcome> call_method(const call_request& given, const std::string& name, session& with) {
  auto known = co_await with.types.schema_of(with.lookups, service_of(name), with.options);
  if (!known) co_return outcome{std::move(known).error()};
  auto method = find_method(*known, name);
  if (!method) co_return outcome{std::move(method).error()};
  if (auto wrong = check_get(given, *method)) co_return std::move(*wrong);
  message_source source{with.shard, data_for(given, method->kind)};
  sending half{source};
  if (!client_streams(method->kind))
    if (auto wrong = co_await read_single(half, *method)) co_return std::move(*wrong);
  const rpc::call_options options = options_for(with, method->kind);
  if (with.given.verbose) {
    std::fprintf(stderr, "* descriptors: %s\n> %s\n", with.types.source().c_str(),
                 method->path.c_str());
    show(">", options.metadata);
  }
  auto call = co_await rpc::json_call::start(with.calls, *known, name, options);
  if (!call) co_return outcome{std::move(call).error()};
  co_return co_await converse(with.shard, *call, half, with.given.verbose);
}

}  // namespace

void add_call(CLI::App& app, call_request& given) {
  auto* call = app.add_subcommand("call", "Call any method of a server by JSON");
  call->usage("Usage: weft call [OPTIONS] [HOST:PORT] PACKAGE.SERVICE/METHOD");
  call->add_option("method", given.positional,
                   "PACKAGE.SERVICE/METHOD, after HOST:PORT (default: localhost:8443)")
      ->required()
      ->expected(1, 2);
  call->add_option("-d,--data", given.data,
                   "Request as JSON, @FILE, or - or @- for standard input; streams take several "
                   "values one after another, and read standard input when nothing is given")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_connect_options(*call, given.server);
  call->add_flag("--get", given.server.get,
                 "Connect: by GET, where the method has no side effects");
  call->footer(
      "Replies go to standard output, one JSON object a line, as they come.\n"
      "Exit code: the call's status code, 0 to 16 (0: OK), or 64 for wrong arguments and "
      "requests.");
}

int run_call(call_request given) {
  const std::string method = given.positional.back();
  given.server.target = given.positional.size() == 2 ? given.positional.front() : default_target;
  if (service_of(method).empty())
    return complain("call", local_fault("'" + method +
                                        "' is no PACKAGE.SERVICE/METHOD; `weft ls` "
                                        "tells what a server has"));
  return run_session("call", given.server,
                     [&given, &method](session& with) { return call_method(given, method, with); });
}

}  // namespace weft::app
