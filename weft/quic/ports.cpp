// The sockets of an endpoint: finding, opening, reading, retiring.

#include <algorithm>
#include <cstring>
#include <format>
#include <utility>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/ip/udp.hpp>

#include <weft/quic/detail/endpoint_state.hpp>

namespace weft::quic::detail {
namespace {

asio::ip::udp::endpoint to_asio(const address& a) {
  if (a.is_ipv6()) {
    asio::ip::address_v6::bytes_type raw;
    std::memcpy(raw.data(), a.bytes().data(), raw.size());
    return {asio::ip::address_v6{raw, a.scope()}, a.port()};
  }
  asio::ip::address_v4::bytes_type raw;
  std::memcpy(raw.data(), a.bytes().data(), raw.size());
  return {asio::ip::address_v4{raw}, a.port()};
}

address from_asio(const asio::ip::udp::endpoint& e) {
  if (e.address().is_v6()) {
    const auto v6 = e.address().to_v6();
    std::array<std::uint8_t, 16> raw;
    std::ranges::copy(v6.to_bytes(), raw.begin());
    return address::ipv6(raw, e.port(), static_cast<std::uint32_t>(v6.scope_id()));
  }
  std::array<std::uint8_t, 4> raw;
  std::ranges::copy(e.address().to_v4().to_bytes(), raw.begin());
  return address::ipv4(raw, e.port());
}

/// Counts a coroutine that may sit inside of a wait of the socket.
class wait_count {
 public:
  explicit wait_count(port& p) noexcept : port_{p} { ++port_.waits; }
  wait_count(const wait_count&) = delete;
  wait_count& operator=(const wait_count&) = delete;
  ~wait_count() {
    if (--port_.waits == 0 && !port_.open) port_.socket.reset();
  }

 private:
  port& port_;
};

address any_of(address::family family) {
  return family == address::family::ipv6 ? address::ipv6({}, 0) : address::ipv4({}, 0);
}

}  // namespace

// A connected datagram socket knows the source address the kernel would choose. Nothing is sent.
result<address> endpoint_state::source_towards(const address& bound, const address& remote) {
  if (!bound.is_unspecified()) return bound;
  asio::ip::udp::socket probe{shard_->context()};
  asio::error_code failure;
  const auto to = to_asio(remote);
  probe.open(to.protocol(), failure);
  if (!failure) probe.connect(to, failure);
  asio::ip::udp::endpoint source;
  if (!failure) source = probe.local_endpoint(failure);
  if (failure)
    return fail(errc::unreachable, layer::udp,
                std::format("no way to {}: {}", remote.to_string(), failure.message()),
                static_cast<std::uint64_t>(failure.value()));
  return from_asio(source).with_port(bound.port());
}

result<std::shared_ptr<port>> endpoint_state::open_port(const address& local, bool listening) {
  auto options = config_.socket;
  options.reuse_port = listening && options.reuse_port;
  options.report_refusals = !listening;
  auto opened = udp::socket::open(*shard_, local, options);
  if (!opened) return std::unexpected{std::move(opened.error())};
  auto p = std::make_shared<port>(std::move(*opened));
  ports_.push_back(p);
  asio::co_spawn(hub_.get_executor(), receive_loop(weak_from_this(), p), asio::detached);
  return p;
}

result<std::pair<std::shared_ptr<port>, address>> endpoint_state::open_port_towards(
    const address& local, const address& remote) {
  const address bind_to =
      local.ip_family() == address::family::none ? any_of(remote.ip_family()) : local;
  if (bind_to.ip_family() != remote.ip_family())
    return fail(errc::invalid_argument, layer::quic,
                std::format("{} cannot be reached from {}: different address families",
                            remote.to_string(), local.to_string()));
  auto opened = open_port(bind_to, false);
  if (!opened) return std::unexpected{std::move(opened.error())};
  auto source = source_towards((*opened)->local, remote);
  if (!source) {
    (*opened)->close();
    return std::unexpected{std::move(source.error())};
  }
  return std::pair{std::move(*opened), *source};
}

result<std::pair<std::shared_ptr<port>, address>> endpoint_state::port_towards(
    const address& remote) {
  if (remote.ip_family() == address::family::none || remote.port() == 0)
    return fail(errc::invalid_argument, layer::quic,
                std::format("'{}' is no address to connect to", remote.to_string()));
  for (const auto& p : ports_) {
    if (!p->primary || p->local.ip_family() != remote.ip_family()) continue;
    auto source = source_towards(p->local, remote);
    if (!source) return std::unexpected{std::move(source.error())};
    return std::pair{p, *source};
  }
  auto fresh = open_port_towards(local_, remote);
  if (fresh) fresh->first->primary = true;
  return fresh;
}

// The loops hold the endpoint only while they run, so that one nobody uses can end.

task<> endpoint_state::receive_loop(std::weak_ptr<endpoint_state> endpoint,
                                    std::shared_ptr<port> p) {
  const wait_count counted{*p};
  while (p->open) {
    if (auto ready = co_await p->socket->wait_readable(); !ready) co_return;
    const auto self = endpoint.lock();
    if (!self) co_return;
    self->turn(p.get());
  }
}

void endpoint_state::wait_until_writable(port& p) {
  if (std::exchange(p.blocked, true)) return;
  ++blocked_ports_;
  const auto held = std::ranges::find(ports_, &p, &std::shared_ptr<port>::get);
  asio::co_spawn(hub_.get_executor(), write_loop(weak_from_this(), *held), asio::detached);
}

task<> endpoint_state::write_loop(std::weak_ptr<endpoint_state> endpoint, std::shared_ptr<port> p) {
  const wait_count counted{*p};
  bool going = true;
  while (p->open && going) {
    const bool ready = (co_await p->socket->wait_writable()).has_value();
    const auto self = endpoint.lock();
    if (!self) co_return;
    going = ready && p->open;
    if (going) {
      const auto flushed = p->socket->flush();
      if (!flushed) self->fail_port(*p, flushed.error());
      going = flushed && !*flushed;
    }
    if (going) continue;
    p->blocked = false;
    --self->blocked_ports_;
    self->turn(nullptr);
  }
}

void endpoint_state::retire(std::shared_ptr<port> p, time_point when) {
  if (!p || p->listening || !p->open) return;
  if (finished_) return p->close();
  std::erase_if(retiring_, [&](const retiring& r) { return r.what == p && r.when >= when; });
  retiring_.push_back({std::move(p), when});
  touch();
}

void endpoint_state::close_retired() {
  if (retiring_.empty()) return;
  std::erase_if(retiring_, [this](const retiring& r) {
    if (r.when > now_) return false;
    if (r.what->users == 0) r.what->close();
    return true;
  });
  std::erase_if(ports_, [](const std::shared_ptr<port>& p) { return !p->open; });
}

// A host that says "port unreachable" to the first datagrams has nobody there. Later, or once the
// server has answered, somebody else may have said it.
void endpoint_state::hear_refusals(port& from) {
  for (const address& refused : from.socket->take_refusals()) {
    for (auto* c = connections_; c; c = c->next_) {
      if (&c->carrier() != &from || c->ended() || c->core().current_path().remote != refused)
        continue;
      if (c->core().current_state() != core::connection::state::handshaking ||
          c->core().stats().packets_received > 0)
        continue;
      c->fail_with({errc::refused, layer::udp,
                    std::format("nothing listens at {} (port unreachable); is the server running?",
                                refused.to_string())});
    }
  }
}

// A socket that fails for good takes along the connections it carries, and all if it is the last.
void endpoint_state::fail_port(port& p, const error& why) {
  if (!p.open) return;
  p.close();
  if (!p.listening && ports_.size() > 1) {
    for (auto* c = connections_; c; c = c->next_) c->port_failed(p, why);
    return;
  }
  if (!failure_) failure_ = why;
  closed_ = true;
  core_->stop_listening();
  core_->close_all(0, why.message(), now_);
  defer([self = shared_from_this(), why] {
    self->end_all(why);
    self->acceptors_.notify_all();
    self->drainers_.notify_all();
  });
}

}  // namespace weft::quic::detail
