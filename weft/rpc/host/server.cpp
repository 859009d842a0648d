#include <weft/rpc/host/server.hpp>

#include <cerrno>
#include <cstdio>
#include <mutex>
#include <stdexcept>
#include <utility>

#include <weft/quic/shard_group.hpp>
#include <weft/rpc/describe.hpp>
#include <weft/rpc/host/shard_server.hpp>
#include <weft/rpc/services/reflection.hpp>
#include <weft/tls/random.hpp>

namespace weft::rpc {
namespace {

// With port 0 the kernel picks a port that is free for UDP; TCP may be taken there.
constexpr int port_attempts = 16;

void print_line(std::string_view line) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
}

/// What the shards share while the server shuts down.
struct ending {
  explicit ending(io::shard& on) : home{on} {}

  void shard_done() {
    const std::scoped_lock lock{mutex};
    if (--remaining != 0) return;
    finished = true;
    for (auto& each : std::exchange(done, {})) home.post(std::move(each));
  }

  io::shard& home;
  std::mutex mutex;
  bool begun = false, finished = false;
  std::size_t remaining = 0;
  time_point deadline = never;
  std::vector<std::function<void()>> done;
};

}  // namespace

struct server::impl {
  impl(runtime& r, server_options options)
      : on{r},
        setup{std::make_shared<detail::server_setup>()},
        end{std::make_shared<ending>(r[0])} {
    setup->options = std::move(options);
    setup->log = setup->options.log ? setup->options.log : print_line;
    setup->memory = std::make_shared<memory_budget>(setup->options.memory_limit);
  }

  weft::result<> prepare();
  weft::result<> add_services(io::shard& shard, detail::shard_server& to);
  weft::result<> bind(const address& wanted);

  runtime& on;
  std::shared_ptr<detail::server_setup> setup;
  std::vector<std::function<std::shared_ptr<service_handler>(io::shard&)>> factories;
  std::vector<std::shared_ptr<detail::shard_server>> shards;
  address bound;
  services::health told;
  std::shared_ptr<ending> end;
};

weft::result<> server::impl::prepare() {
  const auto& options = setup->options;
  if (options.credentials.empty())
    return weft::fail(errc::invalid_argument, layer::rpc,
                      "a server needs credentials; tls::credentials::development() makes some");
  tls::server_options tls{.identity = options.credentials,
                          .alpn = {std::string{native::alpn}, std::string{native::alpn_one_stream}},
                          .client_trust = options.client_trust,
                          .early_data = options.early_data,
                          .key_log = options.key_log};
  if (options.http) {
    tls.alpn.emplace_back(weft::http::alpn_h3);
    tls.alpn.emplace_back(detail::alpn_h2_one_stream);
  }
  setup->quic = {.tls = tls, .transport = options.transport};
  setup->endpoint.socket = options.socket;
  setup->endpoint.loop = options.loop;
  setup->endpoint.core.memory = setup->memory;
  if (auto filled =
          tls::fill_random(std::as_writable_bytes(std::span{setup->endpoint.core.secret}));
      !filled)
    return filled;
  if (!options.tcp) return {};
  tls.alpn = {std::string{native::alpn}};
  if (options.http) tls.alpn.emplace_back(weft::http::alpn_h2);
  auto made = tcp::server_tls::make(tls);
  if (!made) return std::unexpected{std::move(made).error()};
  setup->tls = std::move(*made);
  return {};
}

weft::result<> server::impl::add_services(io::shard& shard, detail::shard_server& to) {
  for (const auto& make : factories)
    if (auto added = to.add(make(shard)); !added) return added;
  const auto served = [&router = to.router()] { return router.services(); };
  std::vector<std::shared_ptr<service_handler>> own;
  if (setup->options.health) {
    for (const service* each : served()) told.set(each->name, services::serving_status::serving);
    own.push_back(told.make_handler(shard));
  }
  if (setup->options.reflection) {
    own.push_back(services::make_reflection(services::reflection_version::v1, served));
    own.push_back(services::make_reflection(services::reflection_version::v1alpha, served));
  }
  if (setup->options.describe) own.push_back(describe::make_handler(served));
  for (auto& each : own) {
    if (to.router().has(each->descriptor().name)) continue;  // the user's own
    if (auto added = to.add(std::move(each)); !added) return added;
  }
  return {};
}

weft::result<> server::impl::bind(const address& wanted) {
  const bool shared = on.size() > 1;
  weft::result<> listening;
  for (int attempt = 0; attempt < port_attempts; ++attempt) {
    // An endpoint that was given up leaves its group only once the loop runs.
    setup->endpoint.group = std::make_shared<quic::shard_group>();
    listening = shards[0]->listen(wanted, shared);
    const bool taken = !listening && listening.error().detail() == EADDRINUSE;
    if (!taken || wanted.port() != 0) break;
  }
  if (!listening) return listening;
  bound = shards[0]->endpoint().local_address();
  for (std::size_t i = 1; i < shards.size(); ++i)
    if (listening = shards[i]->listen(bound, shared); !listening) return listening;
  return {};
}

server::server(runtime& on, server_options options)
    : impl_{std::make_unique<impl>(on, std::move(options))} {}

server::~server() {
  for (auto& shard : impl_->shards) shard->abandon();
}

void server::add_factory(std::function<std::shared_ptr<service_handler>(io::shard&)> factory) {
  if (!impl_->shards.empty()) throw std::logic_error{"services are added before a server starts"};
  impl_->factories.push_back(std::move(factory));
}

weft::result<> server::start() {
  if (!impl_->shards.empty()) throw std::logic_error{"the server has started already"};
  const auto wanted = address::parse(impl_->setup->options.listen);
  if (!wanted) return std::unexpected{wanted.error()};
  if (auto ready = impl_->prepare(); !ready) return ready;
  weft::result<> outcome;
  for (std::size_t i = 0; i < impl_->on.size() && outcome; ++i) {
    impl_->shards.push_back(std::make_shared<detail::shard_server>(impl_->on[i], impl_->setup));
    outcome = impl_->add_services(impl_->on[i], *impl_->shards.back());
  }
  if (outcome) outcome = impl_->bind(*wanted);
  if (!outcome) {
    impl_->shards.clear();
    return outcome;
  }
  impl_->end->remaining = impl_->shards.size();
  for (auto& shard : impl_->shards) shard->start();
  return {};
}

address server::local_address() const {
  return impl_->bound;
}

void server::shutdown(duration grace, std::function<void()> done) {
  const time_point now = io::now();
  const time_point deadline = grace < never - now ? now + grace : never;
  const auto& end = impl_->end;
  const std::scoped_lock lock{end->mutex};
  if (done) end->done.push_back(std::move(done));
  if (impl_->shards.empty() || end->finished) {
    for (auto& each : std::exchange(end->done, {})) end->home.post(std::move(each));
    return;
  }
  const bool first = !std::exchange(end->begun, true);
  if (!first && deadline >= end->deadline) return;
  end->deadline = deadline;
  impl_->told.shut_down();
  for (std::size_t i = 0; i < impl_->shards.size(); ++i)
    impl_->on[i].post([shard = impl_->shards[i], end, first, deadline] {
      if (first)
        shard->shutdown(deadline, [end] { end->shard_done(); });
      else
        shard->hurry(deadline);
    });
}

services::health& server::health() noexcept {
  return impl_->told;
}

rpc::router& server::router(std::size_t shard) {
  return impl_->shards.at(shard)->router();
}
quic::endpoint& server::endpoint(std::size_t shard) {
  return impl_->shards.at(shard)->endpoint();
}
const memory_budget& server::memory() const noexcept {
  return *impl_->setup->memory;
}
std::uint64_t server::forwarded_datagrams() const {
  const auto& group = impl_->setup->endpoint.group;
  return group ? group->stats().forwarded : 0;
}

}  // namespace weft::rpc
