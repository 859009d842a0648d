#include <weft/rpc/native/mux.hpp>

#include <algorithm>
#include <utility>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>

namespace weft::rpc::native {
namespace {

/// A link's queue takes no more calls' bytes from here on; its writer has as much again in hand.
constexpr std::size_t high_water = 256 * 1024;
/// Records with less content are copied together, so that a batch has few parts.
constexpr std::size_t copy_below = 4 * 1024;
/// Fewer records are not worth a system call of their own.
constexpr unsigned smallest_share = 4;
/// A larger batch is written in several pieces, the first of which arrives while the last is made.
constexpr std::size_t largest_shared_batch = 96 * 1024;
/// Calls alone stay below this: what exceeds it is refusals and control frames.
constexpr std::size_t congested_from = 4 * high_water;

}  // namespace

mux::mux(io::shard& shard, mux_config config, mux_owner& owner)
    : shard_{shard}, config_{std::move(config)}, owner_{owner} {}

mux::~mux() = default;

void mux::add_link(std::unique_ptr<link> l) {
  auto added = std::make_shared<out_link>();
  added->to = std::move(l);
  links_.push_back(added);
  asio::co_spawn(shard_.get_executor(), write_loop(shared_from_this(), added), asio::detached);
}

// Receiving
// -----------------------------------------------------------------------------------------

bool mux::is_new(wire::record_tag tag, bool first) const noexcept {
  if (!config_.is_server || !first) return false;
  // On lanes a record is a whole call, and lanes overtake each other.
  return !config_.flow_control || tag.call > last_number_;
}

weft::result<> mux::receive(wire::record_part part) {
  if (part.tag.call == 0) {
    if (part.tag.one_way || part.tag.end || !config_.flow_control)
      return wire::unexpected("a record that belongs to no call");
    return owner_.control_bytes(part.bytes);
  }
  const bool end = part.tag.end && part.last;
  if (auto found = streams_.find(part.tag.call); found != streams_.end()) {
    mux_stream& s = *found->second;
    if (s.one_way_) one_way_receive_ += static_cast<std::int64_t>(part.bytes.size());
    if (auto accepted = s.accept(std::move(part.bytes), end); !accepted) return accepted;
    if (s.write_stopped_)
      s.wake_all();
    else
      s.readable_.notify();
    return {};
  }
  // The rest of a call that is over, or was given up.
  if (!is_new(part.tag, part.first)) return {};
  last_number_ = std::max(last_number_, part.tag.call);
  if (part.tag.one_way && config_.flow_control &&
      one_way_receive_ >= static_cast<std::int64_t>(config_.one_way_window))
    return wire::wire_error(errc::protocol, wire::error_code::flow_control,
                            "more one-way calls than their credit allows");
  mux_stream* s = owner_.open_stream(part.tag);
  if (s == nullptr) return {};
  if (s->one_way_) one_way_receive_ += static_cast<std::int64_t>(part.bytes.size());
  if (auto accepted = s->accept(std::move(part.bytes), end); !accepted) return accepted;
  owner_.opened(*s);
  return {};
}

void mux::end_of_batch() {
  while (!unsettled_.empty()) {
    mux_stream& s = unsettled_.front();
    s.list_node<mux_stream, unsettled_tag>::unlink();
    s.settle();
  }
}

weft::result<> mux::on_credit(std::uint64_t number, std::uint64_t count) {
  const auto too_much = [] {
    return wire::wire_error(errc::protocol, wire::error_code::flow_control,
                            "credit beyond what an integer holds");
  };
  if (number == 0) {
    if (one_way_credit_ > 0 &&
        static_cast<std::uint64_t>(one_way_credit_) + count > wire::max_varint)
      return too_much();
    one_way_credit_ += static_cast<std::int64_t>(count);
    if (one_way_credit_ > 0) one_way_event_.notify();
    return {};
  }
  auto found = streams_.find(number);
  if (found == streams_.end()) return {};
  mux_stream& s = *found->second;
  if (s.one_way_) return {};
  if (s.send_credit_ + count > wire::max_varint) return too_much();
  s.send_credit_ += count;
  schedule(s);
  return {};
}

void mux::on_cancel(std::uint64_t number, error why) noexcept {
  auto found = streams_.find(number);
  if (found == streams_.end()) return;
  mux_stream& s = *found->second;
  streams_.erase(found);
  s.fail(why);
}

void mux::peer_windows(std::uint64_t call_window, std::uint64_t one_way_window) {
  const std::uint64_t more = call_window - peer_call_window_;
  peer_call_window_ = call_window;
  one_way_credit_ += static_cast<std::int64_t>(one_way_window - peer_one_way_window_);
  peer_one_way_window_ = one_way_window;
  for (auto& [number, s] : streams_) {
    if (s->one_way_) continue;
    s->send_credit_ = std::min(s->send_credit_ + more, wire::max_varint);
    if (s->sendable()) link_of(*s).ready[s->urgency_].push_back(*s);
  }
  for (std::size_t i = 0; i < links_.size(); ++i) pump(*links_[i]);
  if (one_way_credit_ > 0) one_way_event_.notify();
}

task<> mux::wait_one_way_credit() {
  while (!failure_ && !one_way_credit()) {
    if (!co_await one_way_event_.wait()) co_return;
  }
}

void mux::return_one_way(std::uint64_t count) {
  if (!config_.flow_control || failure_) return;
  one_way_returned_ += count;
  if (one_way_returned_ < config_.one_way_window / 2) return;
  one_way_receive_ -= static_cast<std::int64_t>(one_way_returned_);
  owner_.send_credit(0, std::exchange(one_way_returned_, 0));
}

/// By how much a window of this size may grow now.
std::uint64_t mux::widen(std::uint64_t window) noexcept {
  const std::uint64_t largest = std::max(config_.largest_call_window, window);
  const std::uint64_t spare = config_.window_growth - window_growth_;
  const std::uint64_t more = std::min({window, largest - window, spare});
  window_growth_ += more;
  return more;
}

// Sending
// -------------------------------------------------------------------------------------------

mux::out_link& mux::link_of(const mux_stream& s) noexcept {
  return *links_[s.number_ % links_.size()];
}

void mux::schedule(mux_stream& s) {
  if (failure_ || !s.sendable()) return;
  out_link& l = link_of(s);
  l.ready[s.urgency_].push_back(s);
  pump(l);
}

void mux::pump(out_link& l) {
  if (std::exchange(l.pumping, true)) return;
  while (l.bytes < high_water && !failure_) {
    auto waiting = std::find_if(l.ready.begin(), l.ready.end(),
                                [](const auto& streams) { return !streams.empty(); });
    if (waiting == l.ready.end()) break;
    emit(l, waiting->front());
  }
  l.pumping = false;
}

void mux::emit(out_link& l, mux_stream& s) {
  s.list_node<mux_stream, ready_tag>::unlink();
  // On lanes a record is a whole call; QUIC interleaves the lanes.
  const std::uint64_t most = config_.flow_control
                                 ? std::min<std::uint64_t>(wire::max_piece, s.send_credit_)
                                 : wire::max_varint;
  slice piece = s.outbox_.empty() ? slice{} : s.outbox_.pop(static_cast<std::size_t>(most));
  if (!s.one_way_ && config_.flow_control) s.send_credit_ -= piece.size();
  if (s.one_way_ && config_.flow_control)
    one_way_credit_ -= static_cast<std::int64_t>(piece.size());
  const bool end = s.out_end_ && s.outbox_.empty();
  s.out_done_ = end;
  put(l, {s.number_, s.one_way_, end}, std::move(piece));
  if (s.sendable()) l.ready[s.urgency_].push_back(s);
  // May resume a writer, which may destroy the stream.
  s.writable_.notify();
}

void mux::copy_to(out_link& l, bytes content) {
  if (content.empty()) return;
  if (!l.queue.empty() && l.small.extend(l.queue.back(), content)) return;
  l.queue.push_back(l.small.copy(content));
}

void mux::put(out_link& l, wire::record_tag tag, slice content) {
  std::array<std::byte, wire::max_record_head> head;
  const std::byte* end = wire::put_record_head(head.data(), tag, content.size());
  const auto head_size = static_cast<std::size_t>(end - head.data());
  l.bytes += head_size + content.size();
  ++batch_.records;
  batch_.bytes += head_size + content.size();
  copy_to(l, bytes{head}.first(head_size));
  if (content.size() < copy_below)
    copy_to(l, content);
  else
    l.queue.push_back(std::move(content));
  wake_soon(l);
}

void mux::send_control(bytes content) {
  if (failure_ || links_.empty()) return;
  out_link& l = *links_.front();
  l.control.insert(l.control.end(), content.begin(), content.end());
  wake_soon(l);
}

void mux::send_record(wire::record_tag tag, bytes content) {
  if (failure_) return;
  put(*links_[tag.call % links_.size()], tag, slice::copy(content));
}

void mux::wake_soon(out_link& l) {
  if (l.scheduled) return;
  l.scheduled = true;
  shard_.at_end_of_turn([self = weak_from_this(), link = &l] {
    auto alive = self.lock();
    if (!alive) return;
    link->scheduled = false;
    if (alive->batch_.records > 0) alive->last_batch_ = std::exchange(alive->batch_, {});
    alive->shared_ = 0;
    link->wake.notify();
  });
}

bool mux::share_batch() {
  const unsigned share = std::max(smallest_share, last_batch_.records / 2);
  if (batch_.records - shared_ < share || last_batch_.bytes > largest_shared_batch) return false;
  shared_ = batch_.records;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    const auto l = links_[i];
    if (!l->queue.empty()) l->wake.notify();
  }
  return true;
}

void mux::take_batch(out_link& l) {
  l.writing.clear();
  if (!l.control.empty()) {
    for (bytes left{l.control}; !left.empty();) {
      const bytes piece = left.first(std::min(left.size(), wire::max_piece));
      left = left.subspan(piece.size());
      buffer record = buffer::allocate(piece.size() + wire::max_record_head);
      std::byte* end = wire::put_record_head(record.data(), {}, piece.size());
      std::memcpy(end, piece.data(), piece.size());
      record.truncate(static_cast<std::size_t>(end - record.data()) + piece.size());
      l.writing.push_back(std::move(record).freeze());
    }
    l.control.clear();
  }
  if (l.writing.empty()) {
    std::swap(l.writing, l.queue);
  } else {
    for (slice& part : l.queue) l.writing.push_back(std::move(part));
    l.queue.clear();
  }
  l.in_flight = std::exchange(l.bytes, 0);
}

task<> mux::write_loop(std::shared_ptr<mux> self, std::shared_ptr<out_link> l) {
  while (!self->failure_) {
    if (l->queue.empty() && l->control.empty()) {
      co_await l->wake.wait();
      continue;
    }
    self->take_batch(*l);
    // Room again: whoever waits for it fills the next batch while this one is written.
    self->pump(*l);
    auto written = co_await l->to->write(l->writing);
    l->writing.clear();
    l->in_flight = 0;
    if (self->failure_) co_return;
    if (!written) co_return self->owner_.link_failed(written.error());
    self->pump(*l);
    if (self->backlog() < high_water) self->backlog_event_.notify();
    if (self->backlog() == 0) self->written_event_.notify();
  }
}

std::size_t mux::backlog() const noexcept {
  std::size_t sum = 0;
  for (const auto& l : links_) sum += l->bytes + l->control.size() + l->in_flight;
  return sum;
}

bool mux::congested() const noexcept {
  return !failure_ && backlog() >= congested_from;
}

task<> mux::backlog_gone() {
  while (!failure_ && backlog() >= high_water)
    if (!co_await backlog_event_.wait()) co_return;
}

task<> mux::written() {
  while (!failure_ && backlog() != 0)
    if (!co_await written_event_.wait()) co_return;
}

task<> mux::delivered() {
  auto self = shared_from_this();
  co_await written();
  for (std::size_t i = 0; i < links_.size() && !failure_; ++i) {
    auto l = links_[i];
    (void)co_await l->to->delivered();
  }
}

void mux::stop(const error& why) noexcept {
  if (failure_) return;
  failure_ = why;
  auto alive = shared_from_this();
  while (!streams_.empty()) {
    mux_stream& s = *streams_.begin()->second;
    streams_.erase(streams_.begin());
    s.fail(why);
  }
  one_way_event_.notify();
  backlog_event_.notify();
  written_event_.notify();
  for (std::size_t i = 0; i < links_.size(); ++i) links_[i]->wake.notify();
}

}  // namespace weft::rpc::native
