#include <weft/rpc/services/health.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <weft/io/event.hpp>
#include <weft/rpc/services/own_schema.hpp>

namespace weft::rpc::services {
namespace {

namespace pb = google::protobuf;

constexpr std::string_view service_name = "grpc.health.v1.Health";
constexpr std::array<method, 3> methods{{
    {.path = "/grpc.health.v1.Health/Check",
     .service = service_name,
     .name = "Check",
     .level = idempotency::no_side_effects},
    {.path = "/grpc.health.v1.Health/Watch",
     .service = service_name,
     .name = "Watch",
     .kind = call_kind::server_streaming,
     .level = idempotency::no_side_effects},
    {.path = "/grpc.health.v1.Health/List",
     .service = service_name,
     .name = "List",
     .level = idempotency::no_side_effects},
}};

// The names and numbers of gRPC's health checking protocol.
constexpr std::string_view proto = R"(
syntax = "proto3";
package grpc.health.v1;
message HealthCheckRequest { string service = 1; }
message HealthCheckResponse {
  enum ServingStatus { UNKNOWN = 0; SERVING = 1; NOT_SERVING = 2; SERVICE_UNKNOWN = 3; }
  ServingStatus status = 1;
}
message HealthListRequest {}
message HealthListResponse { map<string, HealthCheckResponse> statuses = 1; }
service Health {
  rpc Check(HealthCheckRequest) returns (HealthCheckResponse) { option idempotency_level = NO_SIDE_EFFECTS; }
  rpc Watch(HealthCheckRequest) returns (stream HealthCheckResponse) { option idempotency_level = NO_SIDE_EFFECTS; }
  rpc List(HealthListRequest) returns (HealthListResponse) { option idempotency_level = NO_SIDE_EFFECTS; }
}
)";
constexpr int service_unknown = 3;
constexpr std::size_t longest_list = 100;  // List's own limit

const own_schema& schema() {
  static const own_schema parsed{"grpc/health/v1/health.proto", proto};
  return parsed;
}

const service& descriptor_of_health() {
  static const std::array<std::string_view, 1> files{schema().serialized()};
  static const service self{service_name, methods, files};
  return self;
}

std::unique_ptr<pb::Message> request() {
  return schema().make("grpc.health.v1.HealthCheckRequest");
}

std::string service_of(const pb::Message& request) {
  return request.GetReflection()->GetString(request,
                                            request.GetDescriptor()->FindFieldByName("service"));
}

void set_status(pb::Message& response, int status) {
  response.GetReflection()->SetEnumValue(
      &response, response.GetDescriptor()->FindFieldByName("status"), status);
}

std::unique_ptr<pb::Message> response(int status) {
  auto made = schema().make("grpc.health.v1.HealthCheckResponse");
  set_status(*made, status);
  return made;
}

}  // namespace

namespace detail {

class health_handler;

/// What all shards know. Thread-safe.
class health_board {
 public:
  std::optional<serving_status> find(std::string_view service) const {
    const std::scoped_lock lock{mutex_};
    const auto found = statuses_.find(service);
    if (found == statuses_.end()) return std::nullopt;
    return found->second;
  }
  std::map<std::string, serving_status, std::less<>> all() const {
    const std::scoped_lock lock{mutex_};
    return statuses_;
  }
  void set(std::string_view service, serving_status status) {
    const std::scoped_lock lock{mutex_};
    if (shut_down_) return;
    statuses_.insert_or_assign(std::string{service}, status);
    tell();
  }
  void shut_down() {
    const std::scoped_lock lock{mutex_};
    shut_down_ = true;
    for (auto& [service, status] : statuses_) status = serving_status::not_serving;
    tell();
  }
  void add(io::shard& shard, const std::shared_ptr<health_handler>& handler) {
    const std::scoped_lock lock{mutex_};
    handlers_.emplace_back(&shard, handler);
  }

 private:
  void tell();

  mutable std::mutex mutex_;
  std::map<std::string, serving_status, std::less<>> statuses_{{"", serving_status::serving}};
  bool shut_down_ = false;
  std::vector<std::pair<io::shard*, std::weak_ptr<health_handler>>> handlers_;
};

/// One shard's view: shard's thread only.
class health_handler final : public service_handler {
 public:
  explicit health_handler(std::shared_ptr<const health_board> board) : board_{std::move(board)} {}

  const service& descriptor() const noexcept override { return descriptor_of_health(); }

  task<status> invoke(std::size_t method, server_context&, server_call& call) override {
    if (method == 2) co_return co_await list(call);
    auto asked = request();
    if (auto read = co_await read_only(call, *asked); !read) co_return std::move(read).error();
    if (method == 1) co_return co_await watch(call, service_of(*asked));
    co_return co_await check(call, service_of(*asked));
  }

  void status_changed() {
    // A watcher that is told may end, and others with it.
    for (auto* each : std::vector{watchers_})
      if (std::ranges::contains(watchers_, each)) each->changed.notify();
  }

 private:
  /// Lives in the coroutine that waits.
  struct watcher {
    explicit watcher(health_handler& h) : of{h} { of.watchers_.push_back(this); }
    watcher(const watcher&) = delete;
    watcher& operator=(const watcher&) = delete;
    ~watcher() { std::erase(of.watchers_, this); }
    health_handler& of;
    io::event changed;
  };

  task<status> check(server_call& call, std::string service) {
    const auto found = board_->find(service);
    if (!found) co_return status{code::not_found, "no service " + service + " is watched here"};
    const auto answer = response(static_cast<int>(*found));
    auto written = co_await write(call, *answer);
    co_return written ? status{} : std::move(written).error();
  }

  task<status> watch(server_call& call, std::string service) {
    std::optional<int> told;
    for (;;) {
      const auto found = board_->find(service);
      const int now = found ? static_cast<int>(*found) : service_unknown;
      if (told != now) {
        const auto answer = response(now);
        if (auto written = co_await write(call, *answer); !written)
          co_return std::move(written).error();
        told = now;
        continue;  // it may have changed meanwhile
      }
      watcher self{*this};
      const bool notified = co_await self.changed.wait();
      if (!notified) co_return status{code::cancelled, "the call was cancelled"};
    }
  }

  task<status> list(server_call& call) {
    auto asked = schema().make("grpc.health.v1.HealthListRequest");
    if (auto read = co_await read_only(call, *asked); !read) co_return std::move(read).error();
    auto answer = schema().make("grpc.health.v1.HealthListResponse");
    if (!fill(*answer))
      co_return status{code::resource_exhausted,
                       "more than " + std::to_string(longest_list) +
                           " services have a status; ask for one with Check"};
    auto written = co_await write(call, *answer);
    co_return written ? status{} : std::move(written).error();
  }

  bool fill(pb::Message& answer) const {
    const auto all = board_->all();
    if (all.size() > longest_list) return false;
    const auto* statuses = answer.GetDescriptor()->FindFieldByName("statuses");
    for (const auto& [service, status] : all) {
      pb::Message* entry = answer.GetReflection()->AddMessage(&answer, statuses);
      const auto* shape = entry->GetDescriptor();
      entry->GetReflection()->SetString(entry, shape->FindFieldByName("key"), service);
      set_status(*entry->GetReflection()->MutableMessage(entry, shape->FindFieldByName("value")),
                 static_cast<int>(status));
    }
    return true;
  }

  std::shared_ptr<const health_board> board_;
  std::vector<watcher*> watchers_;
};

void health_board::tell() {
  std::erase_if(handlers_, [](const auto& each) { return each.second.expired(); });
  for (const auto& [shard, handler] : handlers_)
    shard->post([handler] {
      if (auto alive = handler.lock()) alive->status_changed();
    });
}

}  // namespace detail

health::health() : board_{std::make_shared<detail::health_board>()} {}
health::~health() = default;

void health::set(std::string_view service, serving_status status) {
  board_->set(service, status);
}

void health::shut_down() {
  board_->shut_down();
}

std::shared_ptr<service_handler> health::make_handler(io::shard& shard) const {
  auto made = std::make_shared<detail::health_handler>(board_);
  board_->add(shard, made);
  return made;
}

}  // namespace weft::rpc::services
