#include <algorithm>

#include <weft/quic/core/connection_impl.hpp>

namespace weft::quic::core::detail {

// How a stream's directions are abandoned, and what it takes until the library lets go of it.

void connection_impl::stop_sending(stream& s, std::uint64_t code) {
  if (!s.connection_ || !s.can_receive()) return;
  drop_unread(s);
  if (s.stop_sent_ || s.closed_ || s.reset_code_) return;
  s.stop_sent_ = true;
  if (s.fin_received_) return;
  s.stop_asked_ = code;
  shut(s);
}

void connection_impl::reset(stream& s, std::uint64_t code) {
  if (!s.connection_ || s.closed_ || !s.can_send() || s.reset_sent_) return;
  s.reset_sent_ = true;
  drop_unsent(s);
  s.reset_asked_ = code;
  shut(s);
}

/// A client's library that looks for early data to send again throws every stream without any out
/// of its queue of what to send, RESET_STREAM and STOP_SENDING included, and never queues them
/// again. It looks until it has left its handshake, so those wait for the confirmation.
void connection_impl::shut(stream& s) noexcept {
  if (!server_ && !confirmed_) return held_.push_back(s);
  if (const auto code = std::exchange(s.reset_asked_, std::nullopt))
    ngtcp2_conn_shutdown_stream_write(native_, 0, s.id_, *code);
  if (const auto code = std::exchange(s.stop_asked_, std::nullopt)) {
    ngtcp2_conn_shutdown_stream_read(native_, 0, s.id_, *code);
    s.stopped_at_ = last_stamp_;
    stopping_.push_back(s);
  }
  control_due_ = true;
  make_dirty();
}

void connection_impl::shut_held() noexcept {
  while (stream* s = held_.pop_front()) shut(*s);
}

/// From STOP_SENDING on the library drops what is out of order, and what waits so, yet acknowledges
/// it. When the peer had everything acknowledged before it heard of STOP_SENDING, it has nothing
/// more to say (RFC 9000 §3.5), and the library waits for the end for ever: nothing tells it, or
/// us, how far the peer got. So a stopped stream whose sending side is over ends for us after a
/// while. The library's small rest stays until its end does come, so there is a limit to them.
void connection_impl::end_silent_streams(time_point now) {
  while (stream* s = stopping_.front()) {
    if (silent_at(*s) > now) return;
    stopping_.erase(*s);
    // Bytes are enough: a lone FIN that is sent again together with them is acknowledged without
    // news of it, and one that is lost yet is the library's to send.
    const bool all_sent = s->fin_sent_ && s->send_buffered_ == 0;
    if (s->can_send() && !s->reset_sent_ && !all_sent) {
      s->stopped_at_ = to_native(now);
      stopping_.push_back(*s);
      continue;
    }
    ngtcp2_conn_set_stream_user_data(native_, s->id_, nullptr);
    on_stream_closed(*s);
    if (++silent_streams_ <= max_silent_streams) continue;
    return close(0, "too many streams ended without an end", now);
  }
}

time_point connection_impl::silent_at(const stream& s) const noexcept {
  constexpr duration least = 2s;
  return from_native(s.stopped_at_) +
         std::max(least, duration{static_cast<std::int64_t>(6 * ngtcp2_conn_get_pto2(native_))});
}

time_point connection_impl::next_silence() const noexcept {
  const auto silence = stopping_.empty() ? never : silent_at(*stopping_.front());
  return doubts_.empty() ? silence : std::min(silence, settled_at(*doubts_.front()));
}

void connection_impl::note_delivered(stream& s) noexcept {
  doubts_.erase(s);
  if (std::exchange(s.drained_, true)) return;
  signal(s, drained);
}

/// A FIN that was sent alone can go out again in one frame with the bytes before it, when they are
/// lost or probed for. Its acknowledgement is then told as that of bytes: so when all bytes are
/// acknowledged, nobody tells whether the FIN is, or is still under way.
void connection_impl::doubt_fin(stream& s) noexcept {
  s.fin_outrun_ = false;
  s.doubted_at_ = last_stamp_;
  s.losses_ = ngtcp2_conn_get_stream_loss_count2(native_, s.id_);
  doubts_.push_back(s);
}

/// One that is under way is acknowledged, with news of that, or is found lost, as soon as later
/// packets are acknowledged. If neither happens, it is not under way.
void connection_impl::settle_doubts(time_point now) noexcept {
  const bool idle = !doubts_.empty() && in_flight() == 0;
  const std::uint64_t pto = ngtcp2_conn_get_pto2(native_);
  while (stream* s = doubts_.front()) {
    if (settled_at(*s) > now) return;
    const auto losses = ngtcp2_conn_get_stream_loss_count2(native_, s->id_);
    const bool lost = std::exchange(s->losses_, losses) != losses;
    if (!lost && (idle || s->fin_outrun_)) {
      note_delivered(*s);
      continue;
    }
    // What is acknowledged so much later was sent later, too.
    s->fin_outrun_ = !lost && acknowledged_at_ > s->doubted_at_ + pto;
    s->doubted_at_ = to_native(now);
    doubts_.erase(*s);
    doubts_.push_back(*s);
  }
}

time_point connection_impl::settled_at(const stream& s) const noexcept {
  return from_native(s.doubted_at_ + 2 * ngtcp2_conn_get_pto2(native_));
}

}  // namespace weft::quic::core::detail
