#include <utility>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>

#include <weft/rpc/http/client_call.hpp>

namespace weft::rpc::http {
namespace {

/// Keeps a call whose reply nobody waits for.
task<> see_off(std::unique_ptr<client_call> call) {
  while (true) {
    const auto reply = co_await call->read();
    if (!reply || !*reply) co_return;
  }
}

task<> drain_core(std::shared_ptr<client_core> core) {
  co_await core->connection().drain();
  co_await core->idle();
}

}  // namespace

client_transport::client_transport(std::unique_ptr<weft::http::client_connection> connection,
                                   io::shard& shard, client_options options)
    : core_{std::make_shared<client_core>(std::move(connection), shard, std::move(options))} {}

client_transport::~client_transport() {
  close({code::cancelled, "the connection was given up"});
}

task<result<std::unique_ptr<client_call>>> client_transport::start(const method& m,
                                                                   const call_options& options,
                                                                   time_point deadline) {
  if (auto refused = core_->refusal()) co_return std::unexpected{std::move(*refused)};
  auto call = make_call(core_, m, options);
  if (auto begun = call->begin(m, options, deadline); !begun)
    co_return std::unexpected{std::move(begun).error()};
  if (call->starts_with_message()) co_return call;
  if (auto obtained = co_await call->obtain_exchange(false); !obtained)
    co_return std::unexpected{std::move(obtained).error()};
  co_return call;
}

task<result<>> client_transport::one_way(const method& m, const call_options& options,
                                         time_point deadline, const outgoing& message) {
  const auto core = core_;
  auto call = co_await start(m, options, deadline);
  if (!call) co_return std::unexpected{std::move(call).error()};
  if (auto sent = co_await (*call)->write(message, true); !sent) co_return sent;
  asio::co_spawn(core->shard().get_executor(), see_off(std::move(*call)), asio::detached);
  co_return result<>{};
}

bool client_transport::usable() const noexcept {
  return !core_->closed_ && core_->connection().usable();
}

transport_info client_transport::info() const {
  const auto& connection = core_->connection().info();
  return {connection.transport, connection.local, connection.remote, connection.group,
          connection.cipher};
}

void client_transport::close(status why) noexcept {
  if (core_->closed_) return;
  core_->closed_ = why;
  core_->end_all(why);
  core_->connection().close(weft::http::give_up::no_error, why.message());
}

task<> client_transport::drain() {
  return drain_core(core_);
}

}  // namespace weft::rpc::http
