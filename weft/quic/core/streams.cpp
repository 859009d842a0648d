#include <algorithm>
#include <format>

#include <weft/quic/core/connection_impl.hpp>

namespace weft::quic::core::detail {

// Life of a stream --------------------------------------------------------------------------------

stream& connection_impl::new_stream(stream_id id, bool local) {
  stream* s = nullptr;
  if (free_.empty()) {
    s = &storage_.emplace_back();
    free_.reserve(storage_.size());  // so that recycling never allocates
  } else {
    s = free_.back();
    free_.pop_back();
  }
  s->connection_ = this;
  s->id_ = id;
  s->local_ = s->accepted_ = local;
  s->schedule_.owner = s;
  all_.push_back(*s);
  return *s;
}

void connection_impl::recycle(stream& s) noexcept {
  all_.erase(s);
  slice_queue send = std::move(s.send_queue_), receive = std::move(s.receive_queue_);
  send.clear();
  receive.clear();
  s = stream{};
  s.send_queue_ = std::move(send);
  s.receive_queue_ = std::move(receive);
  free_.push_back(&s);
}

result<stream*> connection_impl::open_stream(bool bidirectional) {
  if (!native_) return fail(errc::closed, layer::quic, "the connection has ended");
  stream& s = new_stream(-1, true);
  const int failed = bidirectional ? ngtcp2_conn_open_bidi_stream(native_, &s.id_, &s)
                                   : ngtcp2_conn_open_uni_stream(native_, &s.id_, &s);
  if (failed == 0) {
    ++counters_.streams_opened;
    return &s;
  }
  recycle(s);
  if (failed != NGTCP2_ERR_STREAM_ID_BLOCKED)
    return fail(errc::internal, layer::stream, ngtcp2_strerror(failed));
  want_streams_ = true;
  return fail(errc::exhausted, layer::stream,
              "the peer allows no more streams now; wait for stream_credit");
}

stream* connection_impl::accept_stream() {
  stream* s = incoming_.pop_front();
  if (!s) return nullptr;
  s->accepted_ = true;
  if (s->events_ != 0) signal(*s, s->events_);
  return s;
}

void connection_impl::signal(stream& s, std::uint8_t events) noexcept {
  if (s.released_) return;
  s.events_ |= events;
  if (!s.accepted_ || s.reported_) return;
  ready_.push_back(s);
  make_ready();
}

void connection_impl::events_taken(stream& s) noexcept {
  s.reported_ = false;
  ready_.erase(s);
}

stream* connection_impl::poll_stream() {
  stream* s = ready_.pop_front();
  if (s) s->reported_ = true;
  return s;
}

void connection_impl::release(stream& s, std::uint64_t code) {
  ready_.erase(s);
  incoming_.erase(s);
  waiting_for_room_.erase(s);
  s.released_ = true;
  s.user = nullptr;
  if (s.closed_ || !s.connection_) {
    drop_unread(s);
    if (native_) return_stream_credit(s);
    return recycle(s);
  }
  abandon(s, code);
}

void connection_impl::abandon(stream& s, std::uint64_t code) noexcept {
  if (s.can_receive()) stop_sending(s, code);
  if (s.send_open() && !s.finish_asked_) reset(s, code);
}

/// The library is done with the stream, and touches its bytes no more.
void connection_impl::on_stream_closed(stream& s) noexcept {
  ++counters_.streams_closed;
  end_stream(s);
  if (!s.released_) return;
  drop_unread(s);
  return_stream_credit(s);
  recycle(s);
}

void connection_impl::end_stream(stream& s) noexcept {
  unschedule(s);
  fins_.erase(s);
  waiting_for_room_.erase(s);
  held_.erase(s);
  stopping_.erase(s);
  doubts_.erase(s);
  memory_.remove(s.send_buffered_);
  send_buffered_ -= s.send_buffered_;
  s.send_buffered_ = s.unsent_ = 0;
  s.send_queue_.clear();
  s.send_next_ = s.send_next_offset_ = 0;
  s.closed_ = true;
  signal(s, stream_event::closed | stream_event::readable | stream_event::writable);
  wake_writers();
}

/// The connection is over: so are its streams. What they have received stays readable.
void connection_impl::end_streams() noexcept {
  for (stream *s = all_.front(), *next = nullptr; s; s = next) {
    next = all_.next(*s);
    end_stream(*s);
    s->connection_ = nullptr;
    if (s->released_) recycle(*s);
  }
  memory_.remove(memory_.used());
  receive_buffered_ = 0;
}

/// Renews what peers may open, in batches, and only for what its owner has let go of too: that
/// bounds the streams that exist.
void connection_impl::return_stream_credit(const stream& s) noexcept {
  if (s.local_) return;
  const bool bidirectional = is_bidirectional(s.id_);
  auto& credit = bidirectional ? bidi_credit_ : uni_credit_;
  ++credit.returned;
  const std::uint64_t left = credit.granted - std::min(credit.granted, credit.opened);
  if (credit.returned < credit.limit / 4 && credit.returned < left) return;
  const auto count = static_cast<std::size_t>(std::exchange(credit.returned, 0));
  credit.granted += count;
  if (bidirectional)
    ngtcp2_conn_extend_max_streams_bidi(native_, count);
  else
    ngtcp2_conn_extend_max_streams_uni(native_, count);
  control_due_ = true;
  make_dirty();
}

// Receiving ---------------------------------------------------------------------------------------

void connection_impl::on_stream_data(stream& s, bytes data, bool fin) {
  received_total_ += data.size();
  if (fin) s.fin_received_ = true;
  if (s.released_ || s.stop_sent_) {
    return_credit(data.size());
  } else if (!data.empty()) {
    append_received(s, data);
    s.receive_buffered_ += data.size();
    receive_buffered_ += data.size();
    memory_.add(data.size());
  }
  signal(s, readable);
}

/// The one copy. It goes into shared chunks, which live as long as any byte in them: so when much
/// more was copied than is unread, a slow reader is about and pieces get memory of their own.
void connection_impl::append_received(stream& s, bytes data) {
  constexpr std::size_t small = 1024, slack = 256 * 1024;
  if (receive_buffered_ == 0) arena_copied_ = 0;
  auto& queue = s.receive_queue_;
  if (!queue.empty() && arena_.extend(queue.back(), data)) {
    arena_copied_ += data.size();
    return;
  }
  if (!queue.empty() && queue.back().size() < small && data.size() < small) {
    // Tiny pieces are merged: each would cost more than it carries.
    buffer merged = buffer::allocate(queue.back().size() + data.size());
    std::memcpy(merged.data(), queue.back().data(), queue.back().size());
    std::memcpy(merged.data() + queue.back().size(), data.data(), data.size());
    queue.back() = std::move(merged).freeze();
    return;
  }
  if (arena_copied_ > 2 * receive_buffered_ + slack) return queue.push_back(slice::copy(data));
  queue.push_back(arena_.copy(data));
  arena_copied_ += data.size();
}

slice connection_impl::read(stream& s, std::size_t limit) {
  auto& queue = s.receive_queue_;
  if (queue.empty() || limit == 0) return {};
  slice piece = queue.front().size() <= limit ? queue.pop_front() : queue.front().take_front(limit);
  s.receive_buffered_ -= piece.size();
  if (!s.connection_) return piece;
  receive_buffered_ -= piece.size();
  memory_.remove(piece.size());
  return_credit(piece.size());
  if (s.closed_ || s.fin_received_ || s.stop_sent_ || s.reset_code_) return piece;
  s.credit_due_ += piece.size();
  if (s.credit_due_ >= options_.stream_window / 8) {
    ngtcp2_conn_extend_max_stream_offset(native_, s.id_, std::exchange(s.credit_due_, 0));
    control_due_ = true;
    make_dirty();
  }
  return piece;
}

void connection_impl::drop_unread(stream& s) noexcept {
  s.receive_queue_.clear();
  const std::size_t count = std::exchange(s.receive_buffered_, 0);
  if (!s.connection_ || count == 0) return;
  receive_buffered_ -= count;
  memory_.remove(count);
  return_credit(count);
}

void connection_impl::return_credit(std::size_t count) noexcept {
  credit_due_ += count;
  if (credit_due_ < credit_step_) return;
  control_due_ = true;
  make_dirty();
}

std::uint64_t connection_impl::window_target() noexcept {
  if (!hub_.options.memory) return options_.connection_window;
  return memory_.retry() ? memory_account::guaranteed : initial_window();
}

/// Passes on what was read as MAX_DATA, as far as the process-wide budget goes along. The peer can
/// always send the guaranteed minimum once what it sent is read.
void connection_impl::grant_credit() noexcept {
  if (credit_due_ == 0) return;
  const std::uint64_t target = window_target();
  credit_step_ = target / 8;
  const std::uint64_t open = granted_total_ - std::min(granted_total_, received_total_);
  const std::uint64_t held = open + receive_buffered_;
  const std::uint64_t grant = std::min(credit_due_, target - std::min(target, held));
  if (grant == 0) return;
  credit_due_ -= grant;
  granted_total_ += grant;
  ngtcp2_conn_extend_max_offset(native_, grant);
}

bool connection_impl::starved() const noexcept {
  return credit_due_ > 0 && hub_.options.memory &&
         granted_total_ < received_total_ + memory_account::guaranteed / 2;
}

// Sending -----------------------------------------------------------------------------------------

void connection_impl::schedule(stream& s) noexcept {
  if (s.unsent_ == 0 || s.flow_blocked_ || s.schedule_.queued) return;
  scheduler_.add(s.schedule_);
  unsent_ready_ += s.unsent_;
}

void connection_impl::unschedule(stream& s) noexcept {
  if (!s.schedule_.queued) return;
  scheduler_.remove(s.schedule_);
  unsent_ready_ -= s.unsent_;
}

bool connection_impl::has_room() const noexcept {
  return send_buffered_ < options_.connection_send_buffer &&
         !(memory_.pressed() && memory_.used() > memory_account::guaranteed);
}

std::size_t connection_impl::writable(const stream& s) const noexcept {
  if (!s.send_open() || s.finish_asked_ || !has_room()) return 0;
  const std::size_t own = options_.stream_send_buffer;
  return std::min(own - std::min(own, s.send_buffered_),
                  options_.connection_send_buffer - send_buffered_);
}

void connection_impl::wait_for_room(stream& s) noexcept {
  waiting_for_room_.push_back(s);
}

/// With some distance to the limit, so that a waiting writer is woken for more than a few bytes.
void connection_impl::wake_writers() noexcept {
  if (waiting_for_room_.empty() || !has_room()) return;
  const std::size_t room = options_.connection_send_buffer - send_buffered_;
  if (room < options_.connection_send_buffer / 8) return;
  for (stream *s = waiting_for_room_.front(), *next = nullptr; s; s = next) {
    next = waiting_for_room_.next(*s);
    if (s->send_buffered_ > options_.stream_send_buffer / 4 * 3) continue;
    waiting_for_room_.erase(*s);
    signal(*s, stream_event::writable);
  }
}

result<> connection_impl::write(stream& s, slice data) {
  if (s.stopped_code_)
    return fail(errc::stopped, layer::stream, "the peer wants no more of this stream",
                *s.stopped_code_);
  if (s.reset_sent_) return fail(errc::reset, layer::stream, "the stream was reset by this side");
  if (s.closed_) return fail(errc::closed, layer::stream, "the stream has ended");
  if (!s.can_send() || s.finish_asked_)
    return fail(errc::invalid_argument, layer::stream,
                s.finish_asked_ ? "the stream was finished" : "the stream is for receiving only");
  if (data.empty()) return {};
  const std::size_t count = data.size();
  s.send_queue_.push_back(std::move(data));
  s.unsent_ += count;
  s.send_buffered_ += count;
  send_buffered_ += count;
  memory_.add(count);
  if (s.schedule_.queued)
    unsent_ready_ += count;
  else
    schedule(s);
  if (writable(s) == 0) wait_for_room(s);
  make_dirty();
  return {};
}

result<> connection_impl::finish(stream& s) {
  if (s.stopped_code_)
    return fail(errc::stopped, layer::stream, "the peer wants no more of this stream",
                *s.stopped_code_);
  if (s.reset_sent_) return fail(errc::reset, layer::stream, "the stream was reset by this side");
  if (s.closed_) return fail(errc::closed, layer::stream, "the stream has ended");
  if (!s.can_send())
    return fail(errc::invalid_argument, layer::stream, "the stream is for receiving only");
  if (std::exchange(s.finish_asked_, true)) return {};
  waiting_for_room_.erase(s);
  if (s.unsent_ == 0) fins_.push_back(s);
  make_dirty();
  return {};
}

/// What no packet carries yet. The rest stays until the library is done with the stream.
void connection_impl::drop_unsent(stream& s) noexcept {
  unschedule(s);
  fins_.erase(s);
  doubts_.erase(s);
  waiting_for_room_.erase(s);
  const std::size_t count = std::exchange(s.unsent_, 0);
  while (s.send_queue_.size() > s.send_next_ + (s.send_next_offset_ > 0 ? 1 : 0))
    s.send_queue_.pop_back();
  s.send_buffered_ -= count;
  send_buffered_ -= count;
  memory_.remove(count);
  wake_writers();
}

void connection_impl::on_acknowledged(stream& s, std::size_t count) noexcept {
  if (s.closed_) return;
  if (count == 0) s.fin_acked_ = true;
  if (count > 0) acknowledged_at_ = last_stamp_;
  count = std::min(count, s.send_buffered_ - s.unsent_);
  s.send_buffered_ -= count;
  send_buffered_ -= count;
  memory_.remove(count);
  std::size_t left = count;
  auto& queue = s.send_queue_;
  while (left > 0) {
    slice& head = queue.front();
    const std::size_t step = std::min(left, head.size());
    left -= step;
    // The slice being sent may be acknowledged in part.
    if (s.send_next_ == 0) s.send_next_offset_ -= step;
    if (step < head.size()) {
      head.drop_front(step);
    } else {
      queue.pop_front();
      if (s.send_next_ > 0) --s.send_next_;
    }
  }
  const bool all_sent = s.fin_sent_ && s.send_buffered_ == 0;
  if (all_sent && (s.fin_acked_ || !s.fin_alone_)) {
    note_delivered(s);
  } else {
    if (all_sent) doubt_fin(s);
    if (s.send_buffered_ == 0 && std::exchange(s.drain_watched_, false)) signal(s, drained);
  }
  wake_writers();
}

void connection_impl::set_priority(stream& s, std::uint8_t urgency, bool incremental) {
  scheduler_.change(s.schedule_, urgency, incremental);
}

}  // namespace weft::quic::core::detail
