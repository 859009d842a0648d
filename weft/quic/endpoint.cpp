#include <weft/quic/endpoint.hpp>

#include <utility>

#include <weft/quic/detail/endpoint_state.hpp>

namespace weft::quic {

using detail::endpoint_state;

endpoint::endpoint(std::shared_ptr<endpoint_state> state) noexcept : state_{std::move(state)} {}

endpoint::endpoint(endpoint&& other) noexcept = default;

endpoint& endpoint::operator=(endpoint&& other) noexcept {
  if (this == &other) return *this;
  auto old = std::exchange(state_, std::move(other.state_));
  if (old) old->handle_dropped();
  return *this;
}

endpoint::~endpoint() {
  if (state_) state_->handle_dropped();
}

result<endpoint> endpoint::open(io::shard& shard, address local, endpoint_config config) {
  return endpoint_state::open(shard, local, std::nullopt, std::move(config));
}

result<endpoint> endpoint::listen(io::shard& shard, address local, server_config server,
                                  endpoint_config config) {
  return endpoint_state::open(shard, local, std::move(server), std::move(config));
}

io::shard& endpoint::shard() const noexcept {
  return state_->shard();
}

const address& endpoint::local_address() const noexcept {
  const auto* p = state_->primary();
  return p ? p->local : state_->configured_address();
}

endpoint_stats endpoint::stats() const {
  return state_->core().stats();
}

const udp::counters& endpoint::socket_counters() const noexcept {
  static constexpr udp::counters none;
  const auto* p = state_->primary();
  return p ? p->counters() : none;
}

const udp::capabilities& endpoint::socket_capabilities() const noexcept {
  static constexpr udp::capabilities none;
  const auto* p = state_->primary();
  return p ? p->socket->capabilities() : none;
}

task<result<connection>> endpoint::connect(address remote, std::string host, client_config config) {
  return endpoint_state::connect(state_, remote, std::move(host), std::move(config));
}

task<result<connection>> endpoint::accept() {
  return endpoint_state::accept(state_);
}

task<> endpoint::drain(time_point deadline) {
  return endpoint_state::drain(state_, deadline);
}

void endpoint::close(std::uint64_t application_code, std::string_view reason) {
  state_->close(application_code, reason);
}

}  // namespace weft::quic
