#include "call.hpp"

#include <asio/co_spawn.hpp>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>

#include <weft/io/event.hpp>
#include <weft/rpc/dynamic.hpp>
#include <weft/rpc/host/channel.hpp>

namespace weft::app {
namespace {

constexpr int wrong_arguments = 64;  // EX_USAGE

int complain(const std::string& what, int code) {
  std::fprintf(stderr, "weft call: %s\n", what.c_str());
  return code;
}

int complain(const rpc::status& why) {
  for (const auto& detail : why.details())
    std::fprintf(stderr, "weft call: detail %s (%zu bytes)\n", detail.type.c_str(),
                 detail.value.size());
  return complain(why.to_string(), static_cast<int>(why.code()));
}

/// Requests in the order given: "@FILE" and "-" hold one JSON object a line, or one in all.
weft::result<std::vector<std::string>> read_requests(const std::vector<std::string>& data) {
  std::vector<std::string> requests;
  for (const auto& item : data) {
    if (item != "-" && !item.starts_with('@')) {
      requests.push_back(item);
      continue;
    }
    std::ifstream file;
    if (item != "-") file.open(item.substr(1));
    std::istream& in = item == "-" ? std::cin : file;
    if (!in) return weft::fail(errc::invalid_argument, layer::app, "cannot read " + item.substr(1));
    std::stringstream all;
    all << in.rdbuf();
    requests.push_back(all.str());
  }
  return requests;
}

/// A client-streaming call takes one message a line; any other kind one message in all.
std::vector<std::string> split_lines(const std::vector<std::string>& requests) {
  std::vector<std::string> lines;
  for (const auto& request : requests) {
    std::istringstream in{request};
    for (std::string line; std::getline(in, line);)
      if (line.find_first_not_of(" \t\r") != line.npos) lines.push_back(line);
  }
  return lines;
}

weft::result<tls::trust> choose_trust(const call_request& given) {
  if (given.insecure) return tls::trust::insecure_anyone();
  if (!given.authorities.empty()) return tls::trust::file(given.authorities);
  if (given.pin.empty()) return tls::trust::system_roots();
  auto print = tls::parse_fingerprint(given.pin);
  if (!print) return std::unexpected{std::move(print).error()};
  return tls::trust::pinned({*print});
}

rpc::carrier choose_carrier(const std::string& name) {
  if (name == "tls-tcp") return rpc::carrier::tls_tcp;
  return name == "quic-one-stream" ? rpc::carrier::quic_one_stream : rpc::carrier::quic;
}

weft::result<rpc::metadata> parse_metadata(const std::vector<std::string>& lines) {
  rpc::metadata parsed;
  for (const auto& line : lines) {
    const auto colon = line.find(':');
    if (colon == line.npos)
      return weft::fail(errc::invalid_argument, layer::app,
                        "'" + line + "' is not metadata; write 'key: value'");
    const auto value = line.find_first_not_of(' ', colon + 1);
    if (auto added =
            parsed.add(line.substr(0, colon), value == line.npos ? "" : line.substr(value));
        !added)
      return std::unexpected{std::move(added).error()};
  }
  return parsed;
}

void show(const char* what, const rpc::metadata& pairs) {
  for (const auto& [key, value] : pairs)
    std::fprintf(stderr, "%s %s: %s\n", what, key.c_str(), value.c_str());
}

task<rpc::status> list_services(rpc::channel& via, rpc::call_options options) {
  auto known = co_await rpc::schema::fetch(via, {}, options);
  if (!known) co_return std::move(known).error();
  for (const auto& service : known->services())
    for (const auto& m : known->methods(service))
      std::printf("%s  (%s) -> %s\n", m.path.substr(1).c_str(), m.request.c_str(), m.reply.c_str());
  co_return rpc::status{};
}

task<> send_all(rpc::json_call& call, const std::vector<std::string>& requests,
                std::optional<rpc::status>& failure, bool& done, io::event& finished) {
  for (const auto& request : requests)
    if (auto sent = co_await call.write(request); !sent) {
      // A request that is no message never left: nothing will come back for it.
      if (sent.error().code() == rpc::code::invalid_argument) {
        failure = sent.error();
        call.call().cancel(sent.error());
      }
      break;
    }
  if (!failure) (void)co_await call.finish_writing();
  done = true;
  finished.notify();
}

/// Sends and prints side by side, so that streams of any length work both ways.
task<rpc::status> converse(io::shard& shard, rpc::json_call& call,
                           const std::vector<std::string>& requests) {
  std::optional<rpc::status> failure;
  bool sent = false;
  io::event finished;
  asio::co_spawn(shard.get_executor(), send_all(call, requests, failure, sent, finished),
                 [](std::exception_ptr thrown) {
                   if (thrown) std::rethrow_exception(thrown);
                 });
  rpc::status outcome;
  while (true) {
    auto reply = co_await call.read();
    if (!reply) {
      outcome = std::move(reply).error();
      break;
    }
    if (!*reply) break;
    std::printf("%s\n", (*reply)->c_str());
    std::fflush(stdout);
  }
  while (!sent) co_await finished.wait();
  co_return failure.value_or(std::move(outcome));
}

std::string service_of(std::string method) {
  if (method.starts_with('/')) method.erase(0, 1);
  return method.substr(0, method.find_last_of("/."));
}

task<rpc::status> call_method(io::shard& shard, rpc::channel& via, const call_request& given,
                              rpc::call_options options) {
  auto known = co_await rpc::schema::fetch(via, service_of(given.method), options);
  if (!known) co_return std::move(known).error();
  auto requests = read_requests(given.data);
  if (!requests) co_return rpc::status{rpc::code::invalid_argument, requests.error().message()};
  auto call = co_await rpc::json_call::start(via, *known, given.method, options);
  if (!call) co_return std::move(call).error();
  const auto kind = call->description().kind;
  const bool streams =
      kind == rpc::call_kind::client_streaming || kind == rpc::call_kind::bidi_streaming;
  if (streams) requests = split_lines(*requests);
  if (!streams && requests->empty()) requests->push_back("{}");
  auto outcome = co_await converse(shard, *call, *requests);
  if (given.verbose) {
    show("<", call->call().headers());
    show("<<", call->call().trailers());
  }
  co_return outcome;
}

task<rpc::status> run_on(io::shard& shard, const call_request& given, rpc::channel_options options,
                         rpc::call_options each) {
  rpc::channel via{shard, given.target, std::move(options)};
  auto connected = co_await via.connect(each.deadline);
  if (!connected) co_return std::move(connected).error();
  if (given.verbose) {
    const auto info = via.info();
    std::fprintf(stderr, "* %s to %s, %s, %s\n", std::string{info.name}.c_str(),
                 info.remote.to_string().c_str(), info.group.c_str(), info.cipher.c_str());
  }
  auto outcome = given.method.empty() ? co_await list_services(via, each)
                                      : co_await call_method(shard, via, given, each);
  co_await via.shutdown();
  co_return outcome;
}

}  // namespace

int run_call(const call_request& given) {
  auto trust = choose_trust(given);
  if (!trust) return complain(trust.error().message(), wrong_arguments);
  auto metadata = parse_metadata(given.metadata);
  if (!metadata) return complain(metadata.error().message(), wrong_arguments);

  rpc::channel_options options{.trust = *trust, .server_name = given.server_name};
  options.carrier = choose_carrier(given.carrier);
  const auto timeout =
      std::chrono::duration_cast<duration>(std::chrono::duration<double>{given.timeout_seconds});
  rpc::call_options each{.deadline = io::now() + timeout, .metadata = std::move(*metadata)};

  io::shard shard;
  std::optional<rpc::status> outcome;
  asio::co_spawn(shard.get_executor(), run_on(shard, given, std::move(options), std::move(each)),
                 [&](std::exception_ptr thrown, rpc::status ended) {
                   outcome = std::move(ended);
                   shard.stop();
                   if (thrown) std::rethrow_exception(thrown);
                 });
  shard.run();
  if (!outcome) return complain("the call did not end", static_cast<int>(rpc::code::internal));
  return outcome->ok() ? 0 : complain(*outcome);
}

}  // namespace weft::app
