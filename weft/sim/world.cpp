#include <weft/sim/world.hpp>

#include <algorithm>
#include <cstring>
#include <format>
#include <stdexcept>

#include <weft/sim/tls_randomness.hpp>

namespace weft::sim {
namespace {

constexpr std::size_t largest_train = 65'488;
constexpr std::size_t longest_train = 64;  // datagrams
constexpr std::uint64_t most_steps_at_once = 10'000;
constexpr int most_rounds_of_a_turn = 100'000;

double milliseconds(time_point t) {
  return static_cast<double>(t.time_since_epoch().count()) * 1e-6;
}

}  // namespace

// Host --------------------------------------------------------------------------------------------

host::host(world& in, const address& where, host_options options)
    : world_{in}, options_{std::move(options)}, addresses_{where}, random_{in.random_.next()} {
  auto endpoint_options = options_.endpoint;
  random_.fill(std::as_writable_bytes(std::span{endpoint_options.secret}));
  endpoint_options.random = [this](mutable_bytes out) {
    random_.fill(out);
    return true;
  };
  const tls_randomness seeded{world_.tls_random_};
  auto made = quic::core::endpoint::create(std::move(endpoint_options));
  if (!made) throw std::runtime_error{"sim: " + made.error().to_string()};
  endpoint_ = std::move(*made);
}

bool host::has(const address& local) const noexcept {
  return std::ranges::find(addresses_, local) != addresses_.end();
}

void host::add_address(const address& extra) {
  if (!has(extra)) addresses_.push_back(extra);
  world_.network_.add_interface(extra);
}

void host::remove_address(const address& gone) {
  world_.network_.remove_interface(gone);
}

result<> host::listen(quic::server_config config) {
  const tls_randomness seeded{world_.tls_random_};
  return endpoint_->listen(std::move(config));
}

result<quic::core::connection*> host::connect(const address& server, std::string_view name,
                                              quic::client_config config) {
  const tls_randomness seeded{world_.tls_random_};
  dirty_ = true;
  return endpoint_->connect({where(), server}, name, std::move(config), world_.now_);
}

void host::crash() {
  endpoint_.reset();
  wake_ = never;
  dirty_ = false;
}

// World -------------------------------------------------------------------------------------------

world::world(std::uint64_t seed)
    : random_{seed}, tls_random_{random_.next()}, network_{random_.next()}, buffer_(65'536) {}

world::~world() = default;

host& world::add_host(const address& where, application* app, host_options options) {
  hosts_.push_back(std::unique_ptr<host>{new host{*this, where, std::move(options)}});
  hosts_.back()->app = app;
  network_.add_interface(where);
  return *hosts_.back();
}

void world::at(time_point when, std::function<void()> action) {
  timers_.push_back({std::max(when, now_), sequence_++, std::move(action)});
  std::ranges::push_heap(timers_, later);
}

void world::fault(std::string what) {
  note("fault: " + what);
  if (faults_.size() < 20)
    faults_.push_back(std::format("{:.3f} ms: {}", milliseconds(now_), what));
}

void world::note(std::string_view line) const {
  if (trace) trace(std::format("{:12.3f} {}", milliseconds(now_), line));
}

host* world::owner_of(const address& inside) {
  for (auto& h : hosts_)
    if (h->has(inside)) return h.get();
  return nullptr;
}

time_point world::next_moment() const {
  time_point next = network_.next_arrival();
  if (!timers_.empty()) next = std::min(next, timers_.front().when);
  for (const auto& h : hosts_) next = std::min(next, h->dirty_ ? now_ : h->wake_);
  return next;
}

bool world::step() {
  const time_point next = next_moment();
  if (next == never) return false;
  steps_at_once_ = next > now_ ? 0 : steps_at_once_ + 1;
  if (steps_at_once_ == most_steps_at_once) fault("time stands still: a timeout is always due");
  now_ = std::max(now_, next);
  const tls_randomness seeded{tls_random_};
  fire_timers();
  deliver();
  for (auto& h : hosts_) {
    if (!h->running()) continue;
    if (h->wake_ <= now_) {
      h->endpoint_->handle_timeout(now_);
      h->dirty_ = true;
    }
    if (h->dirty_) turn(*h);
  }
  return true;
}

bool world::run_until(const std::function<bool()>& done, duration limit) {
  const time_point end = now_ + limit;
  while (!done()) {
    if (!faults_.empty() || next_moment() > end || !step()) return false;
  }
  return true;
}

void world::run_for(duration length) {
  const time_point end = now_ + length;
  while (faults_.empty() && next_moment() <= end) step();
  now_ = std::max(now_, end);
}

void world::fire_timers() {
  while (!timers_.empty() && timers_.front().when <= now_) {
    std::ranges::pop_heap(timers_, later);
    const auto action = std::move(timers_.back().action);
    timers_.pop_back();
    action();
  }
}

// Delivery ----------------------------------------------------------------------------------------

void world::deliver() {
  std::vector<datagram> train;
  std::size_t size = 0;
  host* to = nullptr;
  const auto joins = [&](const datagram& d) {
    if (train.empty() || !to || !to->options_.coalesce) return false;
    const datagram& first = train.front();
    return d.from == first.from && d.to == first.to && d.mark == first.mark &&
           train.back().payload.size() == first.payload.size() &&
           d.payload.size() <= first.payload.size() && size + d.payload.size() <= largest_train &&
           train.size() < longest_train;
  };
  while (auto d = network_.receive(now_)) {
    if (!joins(*d)) {
      if (to) hand_over(*to, train);
      train.clear();
      size = 0;
      to = owner_of(d->to);
    }
    size += d->payload.size();
    train.push_back(std::move(*d));
  }
  if (to && !train.empty()) hand_over(*to, train);
}

void world::hand_over(host& to, const std::vector<datagram>& train) {
  const datagram& first = train.front();
  trace_hash_ = scramble(trace_hash_ ^ static_cast<std::uint64_t>(now_.time_since_epoch().count()));
  trace_hash_ = scramble(trace_hash_ ^ (train.size() << 32) ^ train.back().payload.size());
  if (trace)
    note(std::format("{} <- {}  {} x {} B{}", first.to.to_string(), first.from.to_string(),
                     train.size(), first.payload.size(), first.mark == ecn::ce ? "  CE" : ""));
  if (!to.running()) return;
  to.dirty_ = true;
  const path from{first.to, first.from};
  if (train.size() == 1)
    return to.endpoint_->handle_datagrams(from, first.mark, first.payload, first.payload.size(),
                                          now_);
  std::size_t used = 0;
  for (const auto& d : train) {
    std::memcpy(buffer_.data() + used, d.payload.data(), d.payload.size());
    used += d.payload.size();
  }
  to.endpoint_->handle_datagrams(from, first.mark, bytes{buffer_}.first(used), first.payload.size(),
                                 now_);
}

// A host's turn -----------------------------------------------------------------------------------

void world::turn(host& h) {
  int rounds = 0;
  for (bool more = true; more && ++rounds < most_rounds_of_a_turn;) {
    h.dirty_ = false;
    more = false;
    while (h.running() && ++rounds < most_rounds_of_a_turn) {
      quic::core::connection* c = h.endpoint_->poll_connection();
      if (!c) break;
      if (h.app) h.app->on_ready(h, *c);
      more = true;
    }
    while (h.running() && ++rounds < most_rounds_of_a_turn && transmit(h)) more = true;
  }
  if (rounds >= most_rounds_of_a_turn) fault("a turn does not end");
  if (!h.running()) return;
  h.wake_ = h.endpoint_->next_timeout();
  if (h.wake_ != never && h.wake_ > now_ && h.options_.wake_late > 0ns)
    h.wake_ += random_.between(0ns, h.options_.wake_late);
}

bool world::transmit(host& h) {
  const auto train = h.endpoint_->poll_transmit(buffer_, now_);
  if (!train) return false;
  if (train->size == 0 || train->size > buffer_.size() || train->segment == 0 ||
      train->segment > train->size) {
    fault(std::format("a train of {} bytes in segments of {}", train->size, train->segment));
    return false;
  }
  if (!h.has(train->path.local))
    fault(std::format("{} sends from {}", h.where().to_string(), train->path.local.to_string()));
  send(h, *train, bytes{buffer_}.first(train->size));
  return true;
}

void world::send(host& h, const quic::core::transmit& train, bytes payload) {
  trace_hash_ = scramble(trace_hash_ ^ static_cast<std::uint64_t>(now_.time_since_epoch().count()));
  trace_hash_ = scramble(trace_hash_ ^ (train.size << 24) ^ (train.segment << 8) ^
                         (std::uint64_t{train.path.remote.port()} << 48) ^
                         static_cast<std::uint64_t>(train.ecn));
  if (trace)
    note(std::format("{} -> {}  {} B in {} B{}", train.path.local.to_string(),
                     train.path.remote.to_string(), train.size, train.segment,
                     h.running() && train.ecn != ecn::not_ect ? "  ECT" : ""));
  while (!payload.empty()) {
    const auto part = payload.first(std::min(train.segment, payload.size()));
    payload = payload.subspan(part.size());
    ++datagrams_sent_;
    network_.send({train.path.local, train.path.remote, train.ecn, slice::copy(part)}, now_);
  }
}

}  // namespace weft::sim
