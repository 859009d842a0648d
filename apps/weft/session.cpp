#include "session.hpp"

#include <cstdio>
#include <optional>

#include <asio/co_spawn.hpp>

#include "diagnosis.hpp"

namespace weft::app {
namespace {

outcome local_fault(const weft::error& why) {
  return {{rpc::code::invalid_argument, why.message()}, true};
}

void show_connection(const connect_request& given, const rpc::channel_options& options,
                     const rpc::channel& connected) {
  if (!given.verbose) return;
  const auto info = connected.info();
  std::fprintf(stderr, "* %s to %s, %s, %s\n", way_of(options.protocol, options.carrier).c_str(),
               info.remote.to_string().c_str(), info.group.c_str(), info.cipher.c_str());
}

using command_work = std::function<task<outcome>(session&)>;

task<outcome> connect_and(io::shard& shard, const connect_request& given,
                          rpc::channel_options options, rpc::call_options each, descriptors types,
                          command_work work) {
  rpc::channel calls{shard, given.target, options};
  if (auto connected = co_await calls.connect(each.deadline); !connected) {
    if (connected.error().code() == rpc::code::invalid_argument)
      co_return outcome{std::move(connected).error(), true};
    if (connected.error().message().contains("looking up the name"))
      co_return outcome{std::move(connected).error()};
    co_return outcome{co_await diagnose(shard, given.target, options, connected.error())};
  }
  show_connection(given, options, calls);
  std::optional<rpc::channel> binary;
  if (options.codec != rpc::codec::proto && !types.from_file()) {
    rpc::channel_options same = options;
    same.codec = rpc::codec::proto;
    binary.emplace(shard, given.target, std::move(same));
  }
  session with{shard, given, calls, binary ? *binary : calls, types, std::move(each)};
  auto ended = co_await work(with);
  if (binary) co_await binary->shutdown();
  co_await calls.shutdown();
  co_return ended;
}

}  // namespace

int complain(const char* command, const outcome& ended) {
  for (const auto& detail : ended.status.details())
    std::fprintf(stderr, "weft %s: detail %s (%zu bytes)\n", command, detail.type.c_str(),
                 detail.value.size());
  std::string text = ended.local ? ended.status.message() : ended.status.to_string();
  if (text.contains("client_options::identity")) text += "\n  try: --cert FILE and --key FILE";
  std::fprintf(stderr, "weft %s: %s\n", command, text.c_str());
  return ended.exit_code();
}

int run_session(const char* command, const connect_request& given, command_work work) {
  auto options = channel_options_of(given);
  if (!options) return complain(command, local_fault(options.error()));
  auto metadata = metadata_of(given);
  if (!metadata) return complain(command, local_fault(metadata.error()));
  auto types = descriptors::make(given);
  if (!types) return complain(command, local_fault(types.error()));

  io::shard shard;
  std::optional<outcome> ended;
  asio::co_spawn(shard.get_executor(),
                 connect_and(shard, given, std::move(*options),
                             {.deadline = deadline_of(given), .metadata = std::move(*metadata)},
                             std::move(*types), std::move(work)),
                 [&](std::exception_ptr thrown, outcome o) {
                   ended = std::move(o);
                   shard.stop();
                   if (thrown) std::rethrow_exception(thrown);
                 });
  shard.run();
  if (!ended) ended = outcome{{rpc::code::internal, "the call did not end"}};
  return ended->status.ok() ? 0 : complain(command, *ended);
}

}  // namespace weft::app
