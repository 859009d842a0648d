#include <algorithm>
#include <utility>

#include <weft/rpc/native/mux.hpp>

namespace weft::rpc::native {
namespace {

/// What a stream holds for sending beside the links' queues. One more write may exceed it.
constexpr std::size_t outbox_limit = 64 * 1024;
/// Arrivals below this size are copied together when they have to wait.
constexpr std::size_t settle_below = 8 * 1024;

}  // namespace

slice slice_queue::pop(std::size_t most) {
  const std::size_t count = std::min(most, first_.size());
  bytes_ -= count;
  if (count < first_.size()) return first_.take_front(count);
  slice whole = std::exchange(first_, slice{});
  if (head_ < rest_.size()) {
    first_ = std::move(rest_[head_++]);
    if (head_ == rest_.size()) {
      rest_.clear();
      head_ = 0;
    }
  }
  return whole;
}

void slice_queue::compact() {
  slice_queue old = std::exchange(*this, slice_queue{});
  while (!old.empty()) {
    if (old.first_.size() >= settle_below) {
      push(old.pop(old.first_.size()));
      continue;
    }
    // A run of small slices becomes one.
    std::size_t run = old.first_.size();
    for (std::size_t i = old.head_; i < old.rest_.size(); ++i) {
      if (old.rest_[i].size() >= settle_below || run >= settle_below) break;
      run += old.rest_[i].size();
    }
    buffer together = buffer::allocate(run);
    for (std::size_t at = 0; at < run;) {
      const slice part = old.pop(run - at);
      std::memcpy(together.data() + at, part.data(), part.size());
      at += part.size();
    }
    push(std::move(together).freeze());
  }
}

mux_stream::mux_stream(mux& m, wire::record_tag tag)
    : mux_{&m},
      number_{tag.call},
      failure_{m.failure_},
      send_credit_{m.config_.flow_control && !tag.one_way ? m.peer_call_window_ : wire::max_varint},
      window_{m.config_.call_window},
      receive_window_{m.config_.call_window},
      one_way_{tag.one_way} {
  // Nothing flows back on a one-way call.
  if (one_way_ && m.config_.is_server) out_end_ = out_done_ = true;
  if (one_way_ && !m.config_.is_server) in_end_ = true;
  if (!failure_) mux_->streams_.insert_or_assign(number_, this);
}

mux_stream::~mux_stream() {
  if (destroyed_ != nullptr) *destroyed_ = true;
  release_charge(0);
  mux_->window_growth_ -= window_ - mux_->config_.call_window;
  if (auto found = mux_->streams_.find(number_);
      found != mux_->streams_.end() && found->second == this)
    mux_->streams_.erase(found);
  if (one_way_ && mux_->config_.is_server) mux_->return_one_way(received_);
}

std::optional<weft::result<slice>> mux_stream::try_read() {
  if (failure_) return std::unexpected{*failure_};
  if (!inbox_.empty()) {
    slice part = inbox_.pop(inbox_.bytes());
    consumed(part.size());
    return part;
  }
  if (read_failure_) return std::unexpected{*read_failure_};
  if (in_end_ || stopped_) return slice{};
  return std::nullopt;
}

task<weft::result<slice>> mux_stream::read() {
  while (true) {
    if (auto part = try_read()) co_return std::move(*part);
    if (!co_await readable_.wait())
      co_return weft::fail(errc::cancelled, layer::rpc, "the read was cancelled");
  }
}

void mux_stream::consumed(std::size_t count) {
  release_charge(inbox_.bytes());
  if (!mux_->config_.flow_control || one_way_ || in_end_) return;
  returned_ += count;
  if (returned_ < window_ / 2) return;
  const std::uint64_t more = mux_->widen(window_);
  window_ += more;
  const std::uint64_t credit = std::exchange(returned_, 0) + more;
  receive_window_ += credit;
  mux_->owner_.send_credit(number_, credit);
}

void mux_stream::release_charge(std::size_t keep) noexcept {
  if (charged_ <= keep) return;
  mux_->config_.memory->release(charged_ - keep);
  charged_ = keep;
}

weft::result<> mux_stream::accept(slice part, bool end) {
  if (in_end_) return wire::unexpected("bytes behind the end of a call's direction");
  received_ += part.size();
  if (mux_->config_.flow_control && !one_way_) {
    if (part.size() > receive_window_)
      return wire::wire_error(errc::protocol, wire::error_code::flow_control,
                              "more bytes of a call than its credit allows");
    receive_window_ -= part.size();
  }
  in_end_ = end;
  if (end && !mux_->config_.is_server) {
    // The server's end closes both directions: what it has not taken it does not want.
    write_stopped_ = true;
    outbox_.clear();
    list_node<mux_stream, ready_tag>::unlink();
  }
  if (stopped_ || read_failure_) return {};
  if (!mux_->config_.flow_control || one_way_) {
    if (inbox_.bytes() + part.size() > mux_->config_.max_unread) {
      read_failure_.emplace(errc::too_large, layer::rpc, "a call without credit is too large");
      inbox_.clear();
      return {};
    }
  }
  inbox_.push(std::move(part));
  if (!inbox_.empty()) mux_->unsettled_.push_back(*this);
  return {};
}

void mux_stream::settle() {
  if (inbox_.empty()) return;
  if (auto* budget = mux_->config_.memory.get(); budget != nullptr) {
    if (inbox_.bytes() > charged_) {
      if (!budget->try_charge(inbox_.bytes() - charged_)) {
        inbox_.clear();
        release_charge(0);
        read_failure_.emplace(errc::exhausted, layer::rpc, "no memory left for what arrives");
        return readable_.notify();
      }
      charged_ = inbox_.bytes();
    }
  }
  inbox_.compact();
}

std::optional<weft::result<>> mux_stream::try_write(slice data, bool end) {
  if (failure_) return std::unexpected{*failure_};
  if (write_stopped_)
    return weft::fail(errc::stopped, layer::stream, "the server has ended the call");
  if (out_end_) return weft::result<>{};
  if (outbox_.bytes() >= outbox_limit) return std::nullopt;
  outbox_.push(std::move(data));
  out_end_ = end;
  mux_->schedule(*this);
  return weft::result<>{};
}

task<weft::result<>> mux_stream::write(slice data, bool end) {
  while (true) {
    if (auto done = try_write(data, end)) co_return std::move(*done);
    if (!co_await writable_.wait())
      co_return weft::fail(errc::cancelled, layer::rpc, "the write was cancelled");
  }
}

task<> mux_stream::wait_flushed() {
  while (!flushed() && !failure_ && !write_stopped_)
    if (!co_await writable_.wait()) co_return;
}

void mux_stream::stop_reading(std::uint64_t) noexcept {
  // The end of our direction tells the peer; what is on its way is dropped.
  stopped_ = true;
  inbox_.clear();
  release_charge(0);
}

void mux_stream::abandon(std::uint64_t code) noexcept {
  if (failure_) return;
  if (!one_way_) mux_->owner_.send_cancel(number_, code);
  if (mux_->streams_.erase(number_) == 0) return;
  list_node<mux_stream, ready_tag>::unlink();
  outbox_.clear();
  inbox_.clear();
  release_charge(0);
  failure_.emplace(errc::closed, layer::rpc, "the call was given up");
  wake_all();
}

void mux_stream::fail(const error& why) noexcept {
  failure_ = why;
  list_node<mux_stream, ready_tag>::unlink();
  outbox_.clear();
  inbox_.clear();
  release_charge(0);
  // Owners only take note; waiters may destroy the stream.
  if (owner_ != nullptr) std::exchange(owner_, nullptr)->abandoned(why);
  wake_all();
}

void mux_stream::wake_all() noexcept {
  // Who is woken may give the call up, which comes here again, and then destroy it.
  bool destroyed = false;
  bool* const outer = std::exchange(destroyed_, &destroyed);
  readable_.notify();
  if (destroyed) {
    if (outer != nullptr) *outer = true;
    return;
  }
  destroyed_ = outer;
  writable_.notify();
}

bool mux_stream::sendable() const noexcept {
  if (write_stopped_) return false;
  return outbox_.empty() ? out_end_ && !out_done_ : send_credit_ > 0;
}

}  // namespace weft::rpc::native
