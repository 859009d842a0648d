#include <weft/quic/core/hub.hpp>

#include <algorithm>
#include <bit>

#include <weft/quic/core/connection_impl.hpp>
#include <weft/tls/random.hpp>

namespace weft::quic::core::detail {

std::size_t id_table::locate(std::uint64_t id) const noexcept {
  std::size_t at = home(id);
  while (slots_[at].target && slots_[at].id != id) at = (at + 1) & (slots_.size() - 1);
  return at;
}

route_target* id_table::find(std::uint64_t id) const noexcept {
  return slots_.empty() ? nullptr : slots_[locate(id)].target;
}

bool id_table::insert(std::uint64_t id, route_target& target) {
  if ((used_ + 1) * 2 > slots_.size()) grow();
  auto& slot = slots_[locate(id)];
  if (slot.target) return false;
  slot = {id, &target};
  ++used_;
  return true;
}

void id_table::replace(std::uint64_t id, route_target& target) noexcept {
  if (slots_.empty()) return;
  if (auto& slot = slots_[locate(id)]; slot.target) slot.target = &target;
}

void id_table::erase(std::uint64_t id) noexcept {
  if (slots_.empty()) return;
  std::size_t hole = locate(id);
  if (!slots_[hole].target) return;
  --used_;
  slots_[hole] = {};
  // Later entries of the same run move up, so that look-ups never need tombstones.
  const std::size_t last = slots_.size() - 1;
  for (std::size_t at = (hole + 1) & last; slots_[at].target; at = (at + 1) & last) {
    const std::size_t wanted = home(slots_[at].id);
    if (((at - wanted) & last) < ((at - hole) & last)) continue;
    slots_[hole] = std::exchange(slots_[at], {});
    hole = at;
  }
}

void id_table::grow() {
  std::vector<slot> old(std::max<std::size_t>(64, slots_.size() * 2));
  old.swap(slots_);
  for (const auto& entry : old)
    if (entry.target) slots_[locate(entry.id)] = entry;
}

void timer_heap::set(timer_node& node, time_point at) {
  if (at == never) return erase(node);
  if (node.place == timer_node::nowhere) {
    heap_.push_back(&node);
    node.place = heap_.size() - 1;
    node.at = at;
    return up(node.place);
  }
  if (node.at == at) return;
  node.at = at;
  up(node.place);
  down(node.place);
}

void timer_heap::erase(timer_node& node) noexcept {
  if (node.place == timer_node::nowhere) return;
  const std::size_t place = node.place;
  timer_node* last = heap_.back();
  heap_.pop_back();
  node.place = timer_node::nowhere;
  node.at = never;
  if (last == &node) return;
  put(place, last);
  up(place);
  down(last->place);
}

void timer_heap::up(std::size_t place) noexcept {
  timer_node* node = heap_[place];
  while (place > 0 && node->at < heap_[(place - 1) / 2]->at) {
    put(place, heap_[(place - 1) / 2]);
    place = (place - 1) / 2;
  }
  put(place, node);
}

void timer_heap::down(std::size_t place) noexcept {
  timer_node* node = heap_[place];
  for (;;) {
    std::size_t child = place * 2 + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && heap_[child + 1]->at < heap_[child]->at) ++child;
    if (node->at <= heap_[child]->at) break;
    put(place, heap_[child]);
    place = child;
  }
  put(place, node);
}

bool rate_limit::allow(time_point now) noexcept {
  if (now > last_) {
    left_ = std::min(burst_, left_ + rate_ * std::chrono::duration<double>(now - last_).count());
    last_ = now;
  }
  if (left_ < 1) return false;
  left_ -= 1;
  return true;
}

std::size_t initial_id_hash::operator()(const ngtcp2_cid& id) const noexcept {
  // The peer chooses these bytes: without the seed it could choose collisions.
  std::uint64_t hash = seed ^ id.datalen;
  for (std::size_t i = 0; i < id.datalen; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, id.data + i, std::min<std::size_t>(8, id.datalen - i));
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32 ^ std::rotl(seed, 17);
  }
  return static_cast<std::size_t>(hash);
}

std::size_t initial_id_hash::operator()(const initial_id& key) const noexcept {
  // An address is bytes that the peer chooses, too.
  ngtcp2_cid where{};
  static_assert(sizeof key.remote.bytes() + sizeof key.remote.port() <= sizeof where.data);
  const std::uint16_t port = key.remote.port();
  std::memcpy(where.data, key.remote.bytes().data(), key.remote.bytes().size());
  std::memcpy(where.data + key.remote.bytes().size(), &port, sizeof port);
  where.datalen = key.remote.bytes().size() + sizeof port;
  return (*this)(key.id) ^ std::rotl((*this)(where), 23);
}

hub::hub(endpoint_options with)
    : options{std::move(with)},
      mask{connection_id_mask::derive(options.secret)},
      validation{options.secret},
      initial_routes{16, initial_id_hash{number(derive_key(options.secret, "weft hash").data())}},
      reset_routes{16, initial_routes.hash_function()} {}

bool hub::random(std::uint8_t* out, std::size_t size) const noexcept {
  const mutable_bytes target{reinterpret_cast<std::byte*>(out), size};
  try {
    return options.random ? options.random(target) : tls::fill_random(target).has_value();
  } catch (...) {
    return false;
  }
}

bool hub::draw_id(connection_id& out) const noexcept {
  if (!random(out.data(), out.size())) return false;
  mask.hide(out, options.shard);
  return true;
}

bool hub::issue_id(route_target& target, ngtcp2_cid& out, std::uint64_t& id) {
  for (int attempt = 0; attempt < 8; ++attempt) {
    connection_id drawn;
    if (!draw_id(drawn)) return false;
    id = number(drawn.data());
    if (!routes.insert(id, target)) continue;
    ngtcp2_cid_init(&out, drawn.data(), drawn.size());
    return true;
  }
  // Eight collisions of 56 random bits: the source repeats itself.
  return false;
}

void hub::send(const path& where, std::vector<std::uint8_t> data) {
  if (data.empty() || outbox.size() >= outbox_limit) return;
  outbox.push_back({where, std::move(data)});
}

void hub::bury(connection_impl& gone, std::vector<std::uint8_t> packet, time_point until) {
  if (!packet.empty() && !gone.close_held()) outbox.push_back({gone.current_path(), packet});
  if (graves.size() >= graves_limit || until == time_point{}) {
    for (const auto id : gone.ids()) routes.erase(id);
    for (const auto& id : gone.initial_ids()) initial_routes.erase(id);
  } else {
    auto record = std::make_unique<closing_record>(*this);
    record->ids = std::move(gone.ids());
    record->initial_ids = std::move(gone.initial_ids());
    record->where = gone.current_path();
    record->proven = gone.path_proven() && !gone.close_held();
    record->packet = std::move(packet);
    for (const auto id : record->ids) routes.replace(id, *record);
    for (const auto& id : record->initial_ids)
      if (auto it = initial_routes.find(id); it != initial_routes.end()) it->second = record.get();
    timers.set(*record, until);
    auto* key = record.get();
    graves.emplace(key, std::move(record));
  }
  gone.ids().clear();
  gone.initial_ids().clear();
}

void closing_record::expired(time_point) {
  home.forget(*this);
}

void hub::forget(closing_record& record) noexcept {
  for (const auto id : record.ids) routes.erase(id);
  for (const auto& id : record.initial_ids) initial_routes.erase(id);
  timers.erase(record);
  graves.erase(&record);
}

void hub::answer_late(closing_record& record, const path& from, std::size_t size) {
  if (record.packet.empty()) return;
  // Nobody but the sender, who need not be where the connection was when it ended, is answered; and
  // with what its own datagram allows (RFC 9000 §10.2.1), unless that is where the peer surely is.
  const bool proven = record.proven && from == record.where;
  if (!proven && record.packet.size() > 3 * size) return;
  // The rate is limited, too (there): after 1, 2, 4, 8, … packets.
  if (++record.received < record.answer_at) return;
  record.answer_at *= 2;
  send(from, record.packet);
}

}  // namespace weft::quic::core::detail
