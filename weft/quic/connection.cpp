#include <weft/quic/connection.hpp>

#include <utility>

#include <weft/quic/detail/connection_state.hpp>
#include <weft/quic/detail/endpoint_state.hpp>

namespace weft::quic {

using detail::connection_state;

connection::connection() noexcept = default;

connection::connection(std::shared_ptr<connection_state> state) noexcept
    : state_{std::move(state)} {}

connection::connection(connection&& other) noexcept = default;

connection& connection::operator=(connection&& other) noexcept {
  if (this == &other) return *this;
  auto old = std::exchange(state_, std::move(other.state_));
  if (old) old->handle_dropped();
  return *this;
}

connection::~connection() {
  if (state_) state_->handle_dropped();
}

io::shard& connection::shard() const noexcept {
  return state_->owner().shard();
}

bool connection::is_server() const noexcept {
  return state_->core().is_server();
}

bool connection::is_open() const noexcept {
  return !state_->ended() && state_->core().current_state() < core::connection::state::closing;
}

bool connection::is_confirmed() const noexcept {
  return state_->is_confirmed();
}

task<result<>> connection::confirmed() {
  return connection_state::confirmed(state_);
}

const path& connection::current_path() const noexcept {
  return state_->core().current_path();
}

const tls::session_info& connection::session() const noexcept {
  return state_->core().session();
}

connection_stats connection::stats() const {
  return state_->core().stats();
}

std::vector<path_stats> connection::paths() const {
  return state_->core().paths();
}

const udp::counters& connection::socket_counters() const noexcept {
  return state_->carrier().counters();
}

task<result<stream>> connection::open_stream(direction d) {
  return connection_state::open_stream(state_, d);
}

std::optional<result<stream>> connection::try_open_stream(direction d) {
  return state_->try_open_stream(d);
}

task<result<stream>> connection::accept_stream() {
  return connection_state::accept_stream(state_);
}

void connection::on_stream(std::move_only_function<void(stream)> handler) {
  state_->on_stream(std::move(handler));
}

std::size_t connection::max_datagram() const noexcept {
  return state_->core().max_datagram();
}

void connection::flush() {
  state_->owner().flush_early();
}

void connection::before_sending(std::move_only_function<void()> handler) {
  state_->before_sending(std::move(handler));
}

task<result<>> connection::send_datagram(slice payload) {
  return connection_state::send_datagram(state_, std::move(payload));
}

task<result<slice>> connection::receive_datagram() {
  return connection_state::receive_datagram(state_);
}

task<result<>> connection::migrate(address local, bool immediate) {
  return connection_state::migrate(state_, local, immediate);
}

quic::resumption connection::resumption() const {
  return state_->core().resumption();
}

result<> connection::update_keys() {
  if (state_->ended()) return std::unexpected{state_->end_reason()};
  auto done = state_->core().update_keys(state_->owner().now());
  state_->owner().touch();
  return done;
}

void connection::close(std::uint64_t application_code, std::string_view reason) {
  state_->close(application_code, reason);
}

task<error> connection::closed() {
  return connection_state::closed(state_);
}

void connection::on_closed(std::move_only_function<void(const error&)> callback) {
  state_->on_closed(std::move(callback));
}

}  // namespace weft::quic
