#include <weft/rpc/router.hpp>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <exception>
#include <system_error>
#include <unordered_map>
#include <unordered_set>

#include <asio/error.hpp>

namespace weft::rpc {
namespace {

void print_line(std::string_view line) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
}

/// Coroutines that wait until a count falls to zero. Held by them, too: its owner may go first.
class gathering {
 public:
  static task<> wait(std::shared_ptr<gathering> self) {
    struct place {
      gathering& in;
      io::event event;
      explicit place(gathering& g) : in{g} { in.waiting_.push_back(&event); }
      ~place() { std::erase(in.waiting_, &event); }
    };
    place mine{*self};
    (void)co_await mine.event.wait();
  }
  bool awaited() const noexcept { return !waiting_.empty(); }
  void notify_all() {
    // The resumed may wait again, or drop others.
    for (auto* event : std::vector{waiting_})
      if (std::ranges::contains(waiting_, event)) event->notify();
  }

 private:
  std::vector<io::event*> waiting_;
};

struct installed {
  std::shared_ptr<service_handler> handler;
  std::size_t running = 0;
  std::shared_ptr<gathering> ended = std::make_shared<gathering>();
};

struct route {
  const method* target;
  std::size_t index;
  std::shared_ptr<installed> service;
  method_stats stats;
};

}  // namespace

struct router::impl {
  io::shard& shard;
  std::vector<std::shared_ptr<server_interceptor>> around;
  std::function<void(std::string_view)> log;
  // Keys are the method tables' own text, which lives for ever. Values are shared with running
  // calls, which may outlast their route.
  std::unordered_map<std::string_view, std::shared_ptr<route>> routes;
  std::unordered_map<std::string_view, std::shared_ptr<installed>> services;
  std::size_t running = 0;
  std::shared_ptr<gathering> ended = std::make_shared<gathering>();

  /// Counts one call while it is in scope.
  class running_call {
   public:
    running_call(impl& in, route& on) noexcept : in_{in}, on_{on} {
      ++in_.running;
      ++on_.service->running;
      ++on_.stats.started;
      ++on_.stats.in_flight;
    }
    running_call(const running_call&) = delete;
    running_call& operator=(const running_call&) = delete;
    ~running_call() {
      ++(succeeded ? on_.stats.succeeded : on_.stats.failed);
      --on_.stats.in_flight;
      if (--on_.service->running == 0) announce(on_.service->ended);
      if (--in_.running == 0) announce(in_.ended);
    }
    bool succeeded = false;

   private:
    // Not inline: whoever waits may destroy the coroutine that is ending here.
    void announce(const std::shared_ptr<gathering>& end) {
      if (end->awaited()) in_.shard.post([end] { end->notify_all(); });
    }

    impl& in_;
    route& on_;
  };

  /// What the links of one call's chain of interceptors share.
  struct chain {
    impl& in;
    route& on;
  };

  task<status> proceed(chain& links, std::size_t depth, server_call& call) {
    if (depth < around.size())
      // Two words: std::function keeps them without allocating.
      co_return co_await around[depth]->intercept(call,
                                                  [&links, next = depth + 1](server_call& inner) {
                                                    return links.in.proceed(links, next, inner);
                                                  });
    server_context context{call, shard};
    co_return co_await links.on.service->handler->invoke(links.on.index, context, call);
  }

  status handler_failed(const route& on, std::string_view what) const {
    const std::string line = "rpc: handler of " + std::string{on.target->path} + " threw: ";
    log(line + std::string{what});
    return {code::unknown, "the handler failed"};
  }
  status unknown_method(std::string_view path) const;
};

status router::impl::unknown_method(std::string_view path) const {
  path = path.substr(0, 200);  // the peer's text, going back into a status
  const auto slash = path.find('/', 1);
  const auto name =
      path.substr(path.starts_with('/') ? 1 : 0, slash == path.npos ? path.npos : slash - 1);
  if (services.contains(name))
    return {code::unimplemented, "service " + std::string{name} + " has no method " +
                                     std::string{path.substr(slash + 1)}};
  return {code::unimplemented, "no service " + std::string{name} + " is served here"};
}

router::router(io::shard& shard, std::vector<std::shared_ptr<server_interceptor>> around,
               std::function<void(std::string_view)> log)
    : impl_{new impl{.shard = shard, .around = std::move(around), .log = std::move(log)}} {
  if (!impl_->log) impl_->log = print_line;
}

router::~router() = default;

weft::result<> router::add(std::shared_ptr<service_handler> handler) {
  const service& offered = handler->descriptor();
  if (has(offered.name))
    return weft::fail(errc::invalid_argument, layer::rpc,
                      "service " + std::string{offered.name} + " is served already");
  std::unordered_set<std::string_view> seen;
  for (const method& m : offered.methods)
    if (!seen.insert(m.path).second || impl_->routes.contains(m.path))
      return weft::fail(errc::invalid_argument, layer::rpc,
                        "method " + std::string{m.path} + " is served already");
  auto entry = std::make_shared<installed>(std::move(handler));
  impl_->services.emplace(offered.name, entry);
  for (std::size_t i = 0; i < offered.methods.size(); ++i) {
    const method& m = offered.methods[i];
    impl_->routes.emplace(m.path,
                          std::make_shared<route>(&m, i, entry, method_stats{.path = m.path}));
  }
  return {};
}

task<> router::remove(std::string_view name) {
  const auto found = impl_->services.find(name);
  if (found == impl_->services.end()) co_return;
  const auto entry = found->second;
  impl_->services.erase(found);
  std::erase_if(impl_->routes, [&](const auto& item) { return item.second->service == entry; });
  if (entry->running != 0) co_await gathering::wait(entry->ended);
}

bool router::has(std::string_view name) const noexcept {
  return impl_->services.contains(name);
}

std::vector<const service*> router::services() const {
  std::vector<const service*> all;
  for (const auto& [name, entry] : impl_->services) all.push_back(&entry->handler->descriptor());
  std::ranges::sort(all, {}, &service::name);
  return all;
}

std::vector<method_stats> router::stats() const {
  std::vector<method_stats> all;
  for (const auto& [path, entry] : impl_->routes) all.push_back(entry->stats);
  std::ranges::sort(all, {}, &method_stats::path);
  return all;
}

std::size_t router::in_flight() const noexcept {
  return impl_->running;
}

task<> router::idle() {
  while (impl_->running != 0) {
    co_await gathering::wait(impl_->ended);
    const auto state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) co_return;
  }
}

const method* router::find(std::string_view path) const noexcept {
  const auto found = impl_->routes.find(path);
  return found == impl_->routes.end() ? nullptr : found->second->target;
}

task<status> router::dispatch(server_call& call) {
  // A cancelled handler learns of it from what it awaits, as a value.
  co_await asio::this_coro::throw_if_cancelled(false);
  // When the loop ends with calls running, this frame goes after the router.
  const std::shared_ptr<impl> self = impl_;
  const auto found = self->routes.find(call.info().path);
  if (found == self->routes.end()) co_return self->unknown_method(call.info().path);
  const std::shared_ptr<route> on = found->second;
  // Early data may be a replay: only what may be repeated is done on its word.
  if (call.info().early_data && on->target->level == idempotency::unknown)
    co_return status{
        code::unavailable,
        "a call that must not be repeated arrived as early data; it was not looked at: "
        "retry it after the handshake"};
  impl::running_call counted{*self, *on};
  status outcome;
  try {
    if (self->around.empty()) {
      server_context context{call, self->shard};
      outcome = co_await on->service->handler->invoke(on->index, context, call);
    } else {
      impl::chain links{*self, *on};
      outcome = co_await self->proceed(links, 0, call);
    }
  } catch (const std::exception& e) {
    const auto* system = dynamic_cast<const std::system_error*>(&e);
    if (system && system->code() == asio::error::operation_aborted)
      outcome = status{code::cancelled, "the call was cancelled"};
    else
      outcome = self->handler_failed(*on, e.what());
  } catch (...) {
    outcome = self->handler_failed(*on, "something that is not a std::exception");
  }
  counted.succeeded = outcome.ok();
  co_return outcome;
}

}  // namespace weft::rpc
