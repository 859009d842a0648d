#include <weft/http/h3_connection.hpp>

#include <utility>

namespace weft::http {
namespace {

error given_up(std::string_view what, give_up why) {
  return {errc::reset, layer::http, std::string{what} + std::string{to_string(why)},
          static_cast<std::uint64_t>(why)};
}

}  // namespace

h3_exchange::h3_exchange(std::shared_ptr<h3_connection> on, h3_stream_ptr stream,
                         request_head request)
    : on_{std::move(on)}, stream_{std::move(stream)}, request_{std::move(request)} {}

h3_exchange::~h3_exchange() {
  on_->released(*this, stream_);
}

// What happened
// ------------------------------------------------------------------------------------

/// Whoever is told or woken may destroy this.
void h3_exchange::take(event& e) {
  const auto stream = stream_;
  if (auto* head = std::get_if<event::response>(&e.what)) {
    response_ = std::move(head->head);
  } else if (auto* content = std::get_if<event::content>(&e.what)) {
    if (stopped_reading_) return;
    held_ += content->data.size();
    content_.push_back(std::move(content->data));
  } else if (auto* end = std::get_if<event::end>(&e.what)) {
    trailers_ = std::move(end->trailers);
    ended_ = true;
  } else if (auto* failed = std::get_if<event::failed>(&e.what)) {
    return end_with(failed->why);
  } else if (auto* reset = std::get_if<event::reset>(&e.what)) {
    if (!failure_) failure_ = given_up("the peer gave the exchange up: ", reset->why);
    return tell_abandoned(error{*failure_});
  } else if (auto* stopped = std::get_if<event::stopped>(&e.what)) {
    stopped_ = given_up("the peer wants no more: ", stopped->why);
    // An early response: its reader learns the rest (RFC 9114 §4.1).
    if (stopped->why != give_up::no_error) tell_abandoned(error{*stopped_});
    if (stream->user == this) writable_.notify();
  }
}

void h3_exchange::end_with(const error& why) {
  const auto stream = stream_;
  if (!ended_ && !failure_) failure_ = why;
  if (!stopped_) stopped_ = why;
  tell_abandoned(why);
  if (stream->user == this) writable_.notify();
}

void h3_exchange::tell_abandoned(const error& why) {
  if (auto told = std::exchange(abandoned_, nullptr)) told(why);
}

// Receiving
// ----------------------------------------------------------------------------------------

bool h3_exchange::wants_more() const noexcept {
  return held_ < on_->opts().exchange_window && !ended_ && !failure_;
}

std::optional<result<slice>> h3_exchange::try_read() {
  if (content_.empty() && !ended_ && !failure_ && !on_->over()) on_->feed_ready(stream_);
  if (!content_.empty()) {
    slice next = std::move(content_.front());
    content_.pop_front();
    held_ -= next.size();
    return next;
  }
  if (ended_) return slice{};
  if (failure_) return std::unexpected{*failure_};
  return std::nullopt;
}

task<result<slice>> h3_exchange::read() {
  const auto on = on_;
  const auto stream = stream_;
  for (;;) {
    if (auto ready = try_read()) co_return std::move(*ready);
    auto arrived = co_await stream->stream.read();
    if (!stream->user) co_return fail(errc::closed, layer::http, "the exchange was destroyed");
    if (!arrived && arrived.error() == errc::cancelled && !failure_)
      co_return std::unexpected{std::move(arrived).error()};
    if (failure_) continue;
    on->feed(*stream, arrived);
    if (!stream->user) co_return fail(errc::closed, layer::http, "the exchange was destroyed");
    if (!arrived && !ended_ && !failure_) failure_ = std::move(arrived).error();
  }
}

task<result<>> h3_exchange::receive_head() {
  const auto on = on_;
  const auto stream = stream_;
  for (;;) {
    if (response_) co_return result<>{};
    if (failure_) co_return std::unexpected{*failure_};
    on->feed_ready(stream);
    if (response_ || failure_) continue;
    auto arrived = co_await stream->stream.read();
    if (!stream->user) co_return fail(errc::closed, layer::http, "the exchange was destroyed");
    if (!arrived && arrived.error() == errc::cancelled && !failure_)
      co_return std::unexpected{std::move(arrived).error()};
    if (failure_) continue;
    on->feed(*stream, arrived);
    if (!stream->user) co_return fail(errc::closed, layer::http, "the exchange was destroyed");
    if (!arrived && !failure_) failure_ = std::move(arrived).error();
  }
}

// Sending
// ------------------------------------------------------------------------------------------

std::optional<error> h3_exchange::write_failure() const {
  if (on_->over()) return on_->reason();
  if (stopped_) return stopped_;
  if (finished_)
    return error{errc::invalid_argument, layer::http, "this side of the exchange has ended"};
  return std::nullopt;
}

result<> h3_exchange::send_head(const response_head& head, bool end) {
  if (auto why = write_failure()) return std::unexpected{std::move(*why)};
  if (auto queued = on_->session().respond(stream_->id, head, end); !queued) return queued;
  finished_ |= end;
  on_->changed();
  return {};
}

std::optional<result<>> h3_exchange::try_write(slice data, bool end) {
  if (auto why = write_failure()) return std::unexpected{std::move(*why)};
  const std::size_t queued = on_->session().unsent(stream_->id);
  const bool full = queued >= on_->opts().send_buffer || stream_->pushing;
  if (full && !data.empty()) return std::nullopt;
  on_->session().send(stream_->id, std::move(data), end);
  finished_ |= end;
  on_->changed();
  return result<>{};
}

task<result<>> h3_exchange::write(slice data, bool end) {
  const auto stream = stream_;
  for (;;) {
    if (auto done = try_write(data, end)) co_return std::move(*done);
    const bool woken = co_await writable_.wait();
    if (!woken) co_return fail(errc::cancelled, layer::http, "the write was cancelled");
    if (!stream->user) co_return fail(errc::closed, layer::http, "the exchange was destroyed");
  }
}

result<> h3_exchange::finish(const field_list& trailers) {
  if (auto why = write_failure()) return std::unexpected{std::move(*why)};
  if (trailers.empty())
    on_->session().send(stream_->id, {}, true);
  else if (auto queued = on_->session().send_trailers(stream_->id, trailers); !queued)
    return queued;
  finished_ = true;
  on_->changed();
  return {};
}

// Giving up
// ----------------------------------------------------------------------------------------

void h3_exchange::stop_reading(give_up why) noexcept {
  if (std::exchange(stopped_reading_, true) || on_->over()) return;
  content_.clear();
  held_ = 0;
  if (!ended_ && !failure_) failure_ = error{errc::cancelled, layer::http, "reading was stopped"};
  on_->session().stop(stream_->id, why);
  on_->changed();
}

void h3_exchange::reset(give_up why) noexcept {
  if (on_->over()) return;
  const error cancelled{errc::cancelled, layer::http, "the exchange was given up"};
  abandoned_ = nullptr;
  stopped_reading_ = true;
  content_.clear();
  held_ = 0;
  if (!failure_) failure_ = cancelled;
  ended_ = false;
  if (!finished_ && !stopped_) stopped_ = cancelled;
  on_->session().reset(stream_->id, why);
  on_->changed();
  writable_.notify();
}

void h3_exchange::set_urgency(std::uint8_t urgency) noexcept {
  if (on_->over()) return;
  stream_->stream.set_priority(urgency);
  on_->session().set_urgency(stream_->id, urgency);
  on_->changed();
}

}  // namespace weft::http
