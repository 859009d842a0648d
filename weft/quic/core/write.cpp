#include <algorithm>

#include <weft/quic/core/connection_impl.hpp>

namespace weft::quic::core::detail {
namespace {

constexpr std::size_t largest_train = 65'488;
/// Cost of one STREAM frame's header in a packet, about.
constexpr std::size_t frame_overhead = 12;
/// Longer vectors leave the library's frame pool.
constexpr std::size_t most_pieces = 4;

}  // namespace

/// One packet between its first frame and its sealing.
struct packet_in_work {
  std::uint8_t* dest;
  std::size_t size;
  ngtcp2_path* where;
  ngtcp2_pkt_info* info;
  ngtcp2_tstamp now;
  std::size_t full;        ///< what the path carries
  std::size_t placed = 0;  ///< payload so far, about
  bool padded = false;
};

// Choosing ----------------------------------------------------------------------------------------

/// A bare FIN needs no credit and almost no room: it never waits behind data.
stream* connection_impl::next_stream() noexcept {
  if (stream* s = fins_.front()) return s;
  if (paced_ || scheduler_.empty() || ngtcp2_conn_get_max_data_left2(native_) == 0) return nullptr;
  return scheduler_.pick()->owner;
}

void connection_impl::sent(stream& s, std::size_t count, bool fin) noexcept {
  if (s.schedule_.queued) {
    unsent_ready_ -= count;
    scheduler_.charge(s.schedule_, count);
  }
  s.unsent_ -= count;
  while (count > 0) {
    const std::size_t left = s.send_queue_[s.send_next_].size() - s.send_next_offset_;
    if (count < left) {
      s.send_next_offset_ += count;
      break;
    }
    count -= left;
    ++s.send_next_;
    s.send_next_offset_ = 0;
  }
  if (s.unsent_ > 0) return;
  unschedule(s);
  if (fin) {
    s.fin_sent_ = true;
    fins_.erase(s);
  } else if (s.finish_asked_) {
    fins_.push_back(s);
  }
}

// One packet --------------------------------------------------------------------------------------

ngtcp2_ssize connection_impl::put_stream(packet_in_work& packet, stream* s) {
  std::array<ngtcp2_vec, most_pieces> pieces;
  std::size_t count = 0, offered = 0;
  std::uint32_t flags = NGTCP2_WRITE_STREAM_FLAG_NONE;
  bool fin = false;
  if (s) {
    flags |= NGTCP2_WRITE_STREAM_FLAG_MORE;
    std::size_t skip = s->send_next_offset_;
    for (std::size_t i = s->send_next_; i < s->send_queue_.size() && count < most_pieces; ++i) {
      const slice& piece = s->send_queue_[i];
      pieces[count++] = {const_cast<std::uint8_t*>(octets(piece.span())) + skip,
                         piece.size() - skip};
      offered += piece.size() - skip;
      skip = 0;
    }
    fin = s->finish_asked_ && offered == s->unsent_;
    if (fin) flags |= NGTCP2_WRITE_STREAM_FLAG_FIN;
  }
  // A train ends at its first packet that is not full, and a packet is left a little short when the
  // next frame's piece would be tiny. Padding is for that gap only: more is ready than fits.
  if (s && unsent_ready_ > packet.full - std::min(packet.full, packet.placed)) {
    flags |= NGTCP2_WRITE_STREAM_FLAG_PADDING;
    packet.padded = true;
  } else {
    packet.padded = false;
  }
  ngtcp2_ssize accepted = -1;
  const auto outcome = ngtcp2_conn_writev_stream(native_, packet.where, packet.info, packet.dest,
                                                 packet.size, &accepted, flags, s ? s->id_ : -1,
                                                 pieces.data(), count, packet.now);
  if (s && accepted >= 0) {
    const auto size = static_cast<std::size_t>(accepted);
    packet.placed += size + frame_overhead;
    const bool ended = fin && size == offered;
    if (ended && size == 0) s->fin_alone_ = true;
    sent(*s, size, ended);
  }
  return outcome;
}

ngtcp2_ssize connection_impl::put_datagram(packet_in_work& packet) {
  slice& payload = datagrams_out_.front();
  ngtcp2_vec piece{const_cast<std::uint8_t*>(octets(payload.span())), payload.size()};
  int accepted = 0;
  const auto outcome = ngtcp2_conn_writev_datagram(
      native_, packet.where, packet.info, packet.dest, packet.size, &accepted,
      NGTCP2_WRITE_DATAGRAM_FLAG_MORE, 0, &piece, 1, packet.now);
  const bool impossible =
      outcome == NGTCP2_ERR_INVALID_STATE || outcome == NGTCP2_ERR_INVALID_ARGUMENT;
  if (accepted) packet.placed += payload.size() + frame_overhead;
  if (accepted || impossible) {
    datagrams_out_size_ -= payload.size();
    datagrams_out_.pop_front();
    if (want_datagram_room_ && datagrams_out_.size() < 512) {
      want_datagram_room_ = false;
      signal(kind::datagram_room);
    }
  }
  return impossible ? NGTCP2_ERR_WRITE_MORE : outcome;
}

ngtcp2_ssize connection_impl::fill_packet(packet_in_work& packet) {
  // Datagrams and streams take turns at being first in a packet.
  bool datagrams = !paced_ && !datagrams_out_.empty() && (datagrams_turn_ || scheduler_.empty());
  datagrams_turn_ = !datagrams_turn_;
  for (;;) {
    if (datagrams && !datagrams_out_.empty()) {
      // The path may have become narrower since it was queued.
      if (datagrams_out_.front().size() > max_datagram()) {
        datagrams_out_size_ -= datagrams_out_.front().size();
        datagrams_out_.pop_front();
        ++counters_.datagrams_dropped;
        continue;
      }
      const auto outcome = put_datagram(packet);
      if (outcome == NGTCP2_ERR_WRITE_MORE) continue;
      return outcome;
    }
    stream* s = next_stream();
    const auto outcome = put_stream(packet, s);
    switch (outcome) {
      case NGTCP2_ERR_WRITE_MORE:
        break;
      case NGTCP2_ERR_STREAM_DATA_BLOCKED:
        unschedule(*s);
        s->flow_blocked_ = true;
        break;
      case NGTCP2_ERR_STREAM_SHUT_WR:
      case NGTCP2_ERR_STREAM_NOT_FOUND:
        s->reset_sent_ = true;
        drop_unsent(*s);
        signal(*s, stream_event::writable);
        break;
      default:
        return outcome;
    }
    // Room is left: datagrams that waited for their turn may use it.
    datagrams = !paced_ && !datagrams_out_.empty() && scheduler_.empty() && fins_.empty();
  }
}

connection_impl::written connection_impl::write_one(std::uint8_t* dest, std::size_t size,
                                                    ngtcp2_tstamp now) {
  ngtcp2_path_storage where;
  ngtcp2_path_storage_zero(&where);
  ngtcp2_pkt_info info{};
  const std::size_t full = ngtcp2_conn_get_path_max_tx_udp_payload_size2(native_);
  packet_in_work packet{dest, size, &where.path, &info, now, full};
  written result;
  result.size = fill_packet(packet);
  if (result.size <= 0) return result;
  if (packet.padded && packet.placed + 64 < static_cast<std::size_t>(result.size))
    ++counters_.padded_datagrams;
  result.where = same_path(where.path, path_) ? path_ : real_path(where.path);
  if (options_.ecn) result.mark = static_cast<ecn>(info.ecn & 3);
  return result;
}

// Trains ------------------------------------------------------------------------------------------

bool connection_impl::nothing_queued() const noexcept {
  return scheduler_.empty() && fins_.empty() && datagrams_out_.empty();
}

/// An acknowledgement alone may wait a moment: it then rides on the answer to what it acknowledges,
/// and a loop with nothing else to do does not spin on microsecond delays. Not when packets pile
/// up: the peer's window depends on it.
bool connection_impl::may_hold(time_point now) const noexcept {
  if (control_due_ || !confirmed_ || validating_ || !stash_.empty() || !nothing_queued())
    return false;
  const std::size_t enough = std::max<std::size_t>(2 * options_.ack_threshold, 1);
  // In jumbo datagrams a few packets are a whole window.
  constexpr std::size_t enough_bytes = 16 * 1024;
  return packets_since_write_ > 0 && packets_since_write_ < enough &&
         bytes_since_write_ < enough_bytes && now < hold_until_;
}

/// Whether an acknowledgement made work that no deadline announces: a retransmission, or the next
/// path-MTU probe after one that arrived.
bool connection_impl::acknowledgement_made_work() noexcept {
  ngtcp2_conn_info info;
  ngtcp2_conn_get_conn_info2(native_, &info);
  const std::size_t full = ngtcp2_conn_get_path_max_tx_udp_payload_size2(native_);
  const bool lost = std::exchange(lost_seen_, info.pkt_lost) != info.pkt_lost;
  return std::exchange(full_seen_, full) != full || lost;
}

/// How long a train may be. What the path takes in a moment is one stream's turn, too.
std::size_t connection_impl::train_room(std::size_t buffer, std::size_t full) noexcept {
  const std::size_t most = std::min(buffer, largest_train);
  ngtcp2_conn_info info;
  ngtcp2_conn_get_conn_info2(native_, &info);
  const duration round_trip{static_cast<duration::rep>(info.smoothed_rtt)};
  const std::size_t quantum = pacer::quantum(info.cwnd, round_trip);
  scheduler_.set_quantum(quantum);
  if (!options_.pacing) return most;
  if (library_paces(round_trip))
    return std::min(most, std::max(full, ngtcp2_conn_get_send_quantum2(native_)));
  constexpr std::size_t initial_window = 10;  // datagrams; RFC 9002 §7.7 allows it in a row
  return std::min(most, std::max(quantum, initial_window * full));
}

/// BBR's rate is the library's own knowledge. And where a round trip is long, its exact spacing
/// costs few timers and spares short queues; ours does not hold back what is sent again, either.
bool connection_impl::library_paces(duration round_trip) const noexcept {
  constexpr duration long_round_trip = 2ms;
  return options_.controller == congestion::bbr || round_trip >= long_round_trip;
}

/// Accounts for what was sent.
void connection_impl::pace(std::size_t size, time_point now) noexcept {
  ngtcp2_conn_info info;
  ngtcp2_conn_get_conn_info2(native_, &info);
  const duration round_trip{static_cast<duration::rep>(info.smoothed_rtt)};
  if (library_paces(round_trip)) return ngtcp2_conn_update_pkt_tx_time(native_, last_stamp_);
  if (!handshake_complete_) return;  // the round trip is a guess yet
  pacer_.sent(size, info.cwnd, round_trip, now);
}

std::optional<transmit> connection_impl::take_stash(mutable_bytes buffer) {
  if (stash_.empty()) return std::nullopt;
  std::memcpy(buffer.data(), stash_.data(), stash_.size());
  const std::size_t size = stash_.size();
  stash_.clear();
  return account(stash_about_, size, size);
}

transmit connection_impl::account(const written& about, std::size_t size, std::size_t segment) {
  auto& on_path = stats_of(about.where);
  const std::size_t count = (size + segment - 1) / segment;
  on_path.datagrams_sent += count;
  on_path.bytes_sent += size;
  counters_.datagrams_sent += count;
  ++counters_.trains_sent;
  return {about.where, about.mark, size, segment};
}

std::optional<transmit> connection_impl::write_train(mutable_bytes buffer, time_point now,
                                                     std::size_t train_bytes) {
  more_ = false;
  if (!native_) return std::nullopt;
  if (auto left = take_stash(buffer)) {
    more_ = true;
    return left;
  }
  if (may_hold(now) && !acknowledgement_made_work()) {
    arm(now);
    return std::nullopt;
  }
  grant_credit();
  if (!memory_.pressed()) wake_writers();
  const auto ts = stamp(now);
  const std::uint64_t flight = in_flight();
  const std::size_t full = ngtcp2_conn_get_path_max_tx_udp_payload_size2(native_);
  const std::size_t room = train_room(std::min(buffer.size(), train_bytes), full);
  paced_ = !pacer_.allows(now);
  // During a path validation packets for two paths alternate, and a train must not mix them.
  const std::size_t most = validating_ ? 1 : max_segments;
  const std::size_t probe_room =
      std::min(buffer.size(), std::max(full, ngtcp2_conn_get_max_tx_udp_payload_size2(native_)));

  written first;
  std::size_t size = 0, segment = 0;
  for (std::size_t count = 0; count < most; ++count) {
    if (count > 0 && size + full > room) {
      more_ = true;
      break;
    }
    auto* dest = octets(buffer) + size;
    const auto one = write_one(dest, count == 0 ? probe_room : full, ts);
    if (one.size < 0) {
      fail_library(static_cast<int>(one.size), now);
      return std::nullopt;
    }
    if (one.size == 0) break;
    const auto this_size = static_cast<std::size_t>(one.size);
    if (count == 0) {
      first = one;
      segment = this_size;
    } else if (this_size > segment || one.mark != first.mark || one.where != first.where) {
      stash_.assign(dest, dest + this_size);
      stash_about_ = one;
      more_ = true;
      break;
    }
    size += this_size;
    more_ = true;
    if (this_size > full || this_size < segment) break;
    // A packet with room to spare holds everything there is.
    if (this_size + 64 < full && confirmed_ && nothing_queued() && !validating_) {
      more_ = false;
      break;
    }
  }
  if (options_.pacing && size > 0) pace(size, now);
  if (in_flight() > flight) end_ping();
  after_write(now, size > 0);
  if (size == 0 || !native_) return std::nullopt;
  return account(first, size, segment);
}

std::uint64_t connection_impl::in_flight() const noexcept {
  ngtcp2_conn_info info;
  ngtcp2_conn_get_conn_info2(native_, &info);
  return info.bytes_in_flight;
}

/// Only once something was sent that the peer must acknowledge. Pacing or a full window may let
/// nothing but acknowledgements out, and the library, whose timer has gone off, would then neither
/// send its PING nor start that timer again.
void connection_impl::end_ping() noexcept {
  if (!std::exchange(ping_due_, false)) return;
  const bool keeps_alive = options_.keep_alive > 0s;
  ngtcp2_conn_set_keep_alive_timeout(
      native_,
      keeps_alive ? static_cast<ngtcp2_duration>(options_.keep_alive.count()) : UINT64_MAX);
}

void connection_impl::after_write(time_point now, bool wrote) {
  after_library(now);
  if (!native_) return;
  control_due_ = false;
  packets_since_write_ = bytes_since_write_ = 0;
  hold_until_ = never;
  wrote_ = wrote;
  arm(now);
}

/// The next time something must happen without a packet or a command.
void connection_impl::arm(time_point now) {
  time_point at = from_native(ngtcp2_conn_get_expiry2(native_));
  if (hold_until_ != never && packets_since_write_ > 0)
    at = std::max(at, hold_until_);
  else if (at <= now && !wrote_)
    at = now + 50us;  // due, yet there was nothing to do: do not spin on it
  if (!nothing_queued() && !pacer_.allows(now)) at = std::min(at, pacer_.resume_at());
  if (starved()) at = std::min(at, now + 50ms);
  if (!waiting_for_room_.empty() && memory_.pressed()) at = std::min(at, now + 20ms);
  // A server can only wait for its client.
  if (const auto stuck = stuck_at(now); !server_) at = std::min(at, stuck);
  hub_.timers.set(*this, std::min(at, next_silence()));
}

}  // namespace weft::quic::core::detail
