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
  return stopping_.empty() ? never : silent_at(*stopping_.front());
}

}  // namespace weft::quic::core::detail
