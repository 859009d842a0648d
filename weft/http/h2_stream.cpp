#include <utility>

#include <weft/http/h2_connection.hpp>

namespace weft::http {
namespace {

/// Short pieces are gathered in blocks, so that what they hold is little more than what they say.
constexpr std::size_t short_piece = 1024, gathering = 4096;

error gone() {
  return {errc::closed, layer::http, "the exchange was destroyed"};
}

error given_up_by_peer(std::string_view what, give_up why) {
  return {errc::reset, layer::http, std::string{what} + ": " + std::string{to_string(why)},
          static_cast<std::uint64_t>(why)};
}

}  // namespace

h2_stream::h2_stream(std::shared_ptr<h2_connection> on, exchange_id id, request_head request)
    : on_{std::move(on)}, id_{id}, request_{std::move(request)} {}

h2_stream::~h2_stream() {
  if (charged_ != 0) on_->opts().memory->release(charged_);
}

bool h2_stream::charge(std::size_t count) {
  const auto& budget = on_->opts().memory;
  if (!budget) return true;
  if (!budget->try_charge(count)) return false;
  charged_ += count;
  return true;
}

// What happened
// ------------------------------------------------------------------------------------

void h2_stream::take(event::request&&) {}

void h2_stream::take(event::response&& head) {
  response_ = std::move(head.head);
  if (!charge(response_->fields.section_size())) return exhausted();
  const auto self = shared_from_this();
  head_.notify();
  readable_.notify();
}

void h2_stream::take(event::content&& content) {
  const std::size_t size = content.data.size();
  if (stopped_reading_) return on_->session().consume(id_, size);
  held_ += size;
  if (!charge(size)) return exhausted();
  hold(std::move(content.data));
  readable_.notify();
}

/// The process has no memory for more of this.
void h2_stream::exhausted() {
  const auto self = shared_from_this();
  const error why{errc::exhausted, layer::http, "the memory budget for what peers send is used up",
                  static_cast<std::uint64_t>(give_up::excessive_load)};
  drop_content();
  on_->session().reset(id_, give_up::excessive_load);
  on_->count_reset();
  on_->changed();
  end_with(why);
}

void h2_stream::take(event::end&& end) {
  trailers_ = std::move(end.trailers);
  ended_ = true;
  readable_.notify();
}

void h2_stream::take(event::reset&& reset) {
  const auto self = shared_from_this();
  on_->count_reset_received();
  const error why = given_up_by_peer("the peer gave the exchange up", reset.why);
  if (!failure_) failure_ = why;
  tell_abandoned(why);
  head_.notify();
  readable_.notify();
}

void h2_stream::take(event::stopped&& stopped) {
  const auto self = shared_from_this();
  if (!stopped_) stopped_ = given_up_by_peer("the peer wants no more", stopped.why);
  // An early response: its reader learns the rest (RFC 9113 §8.1).
  if (stopped.why != give_up::no_error) tell_abandoned(*stopped_);
  writable_.notify();
}

void h2_stream::take(event::failed&& failed) {
  end_with(failed.why);
}

void h2_stream::end_with(const error& why) {
  const auto self = shared_from_this();
  if (!ended_ && !failure_) failure_ = why;
  if (!stopped_) stopped_ = why;
  tell_abandoned(why);
  head_.notify();
  readable_.notify();
  writable_.notify();
}

void h2_stream::tell_abandoned(const error& why) {
  if (auto told = std::exchange(abandoned_, nullptr)) told(why);
}

void h2_stream::progressed() {
  if (on_->session().unsent(id_) < on_->opts().send_buffer) writable_.notify();
}

// Receiving
// ----------------------------------------------------------------------------------------

void h2_stream::hold(slice content) {
  const std::size_t size = content.size();
  const bool gather = size < short_piece && (has_content() || gathered_size_ != 0);
  if (gathered_size_ != 0 && (!gather || gathered_size_ + size > gathering)) flush_gathered();
  if (!gather) return content_.push_back(std::move(content));
  if (gathered_size_ == 0) gathered_ = buffer::allocate(gathering);
  std::memcpy(gathered_.data() + gathered_size_, content.data(), size);
  gathered_size_ += size;
}

void h2_stream::flush_gathered() {
  gathered_.truncate(std::exchange(gathered_size_, 0));
  content_.push_back(std::move(gathered_).freeze());
}

void h2_stream::drop_content() {
  const std::size_t size = std::exchange(held_, 0);
  content_.clear();
  first_ = 0;
  gathered_size_ = 0;
  gathered_ = {};
  if (size != 0 && !on_->over()) on_->session().consume(id_, size);
}

std::optional<result<slice>> h2_stream::try_read() {
  if (!has_content() && gathered_size_ != 0) flush_gathered();
  if (has_content()) {
    slice next = std::move(content_[first_++]);
    constexpr std::size_t most_read = 64;  // before the rest moves up
    if (!has_content() || first_ == most_read) {
      content_.erase(content_.begin(), content_.begin() + static_cast<std::ptrdiff_t>(first_));
      first_ = 0;
    }
    held_ -= next.size();
    if (charged_ != 0) {
      on_->opts().memory->release(next.size());
      charged_ -= next.size();
    }
    if (!on_->over()) {
      on_->session().consume(id_, next.size());
      if (on_->session().wants_to_send()) on_->changed();
    }
    return next;
  }
  if (ended_) return slice{};
  if (failure_) return std::unexpected{*failure_};
  return std::nullopt;
}

task<result<slice>> h2_stream::read(std::shared_ptr<h2_stream> self) {
  for (;;) {
    if (self->released_) co_return std::unexpected{gone()};
    if (auto ready = self->try_read()) co_return std::move(*ready);
    const bool woken = co_await self->readable_.wait();
    if (!woken) co_return fail(errc::cancelled, layer::http, "the read was cancelled");
  }
}

task<result<>> h2_stream::receive_head(std::shared_ptr<h2_stream> self) {
  for (;;) {
    if (self->released_) co_return std::unexpected{gone()};
    if (self->response_) co_return result<>{};
    if (self->failure_) co_return std::unexpected{*self->failure_};
    const bool woken = co_await self->head_.wait();
    if (!woken) co_return fail(errc::cancelled, layer::http, "the wait was cancelled");
  }
}

// Sending
// ------------------------------------------------------------------------------------------

std::optional<error> h2_stream::write_failure() const {
  if (stopped_) return stopped_;
  if (on_->over()) return on_->reason();
  if (finished_)
    return error{errc::invalid_argument, layer::http, "this side of the exchange has ended"};
  return std::nullopt;
}

result<> h2_stream::send_head(const response_head& head, bool end) {
  if (auto why = write_failure()) return std::unexpected{std::move(*why)};
  result<> queued;
  if (on_->opts().alt_svc.empty()) {
    queued = on_->session().respond(id_, head, end);
  } else {
    response_head announced = head;
    announced.fields.add_valid("alt-svc", on_->opts().alt_svc);
    queued = on_->session().respond(id_, announced, end);
  }
  if (!queued) return queued;
  finished_ |= end;
  on_->changed();
  return {};
}

std::optional<result<>> h2_stream::try_write(slice& data, bool end) {
  if (auto why = write_failure()) return std::unexpected{std::move(*why)};
  if (!data.empty() && on_->session().unsent(id_) >= on_->opts().send_buffer) return std::nullopt;
  on_->session().send(id_, std::move(data), end);
  finished_ |= end;
  on_->changed();
  return result<>{};
}

task<result<>> h2_stream::write(std::shared_ptr<h2_stream> self, slice data, bool end) {
  for (;;) {
    if (self->released_) co_return std::unexpected{gone()};
    if (auto done = self->try_write(data, end)) co_return std::move(*done);
    const bool woken = co_await self->writable_.wait();
    if (!woken) co_return fail(errc::cancelled, layer::http, "the write was cancelled");
  }
}

result<> h2_stream::finish(const field_list& trailers) {
  if (auto why = write_failure()) return std::unexpected{std::move(*why)};
  if (trailers.empty())
    on_->session().send(id_, {}, true);
  else if (auto queued = on_->session().send_trailers(id_, trailers); !queued)
    return queued;
  finished_ = true;
  on_->changed();
  return {};
}

// Giving up
// ----------------------------------------------------------------------------------------

void h2_stream::stop_reading(give_up why) noexcept {
  if (std::exchange(stopped_reading_, true) || on_->over()) return;
  drop_content();
  if (!ended_ && !failure_) failure_ = error{errc::cancelled, layer::http, "reading was stopped"};
  on_->session().stop(id_, why);
  on_->changed();
}

void h2_stream::reset(give_up why) noexcept {
  if (on_->over()) return;
  const auto self = shared_from_this();
  const error cancelled{errc::cancelled, layer::http, "the exchange was given up"};
  abandoned_ = nullptr;
  stopped_reading_ = true;
  drop_content();
  if (!failure_) failure_ = cancelled;
  ended_ = false;
  if (!stopped_) stopped_ = cancelled;
  on_->session().reset(id_, why);
  on_->count_reset();
  on_->changed();
  head_.notify();
  readable_.notify();
  writable_.notify();
}

void h2_stream::set_urgency(std::uint8_t urgency) noexcept {
  if (on_->over()) return;
  on_->session().set_urgency(id_, urgency);
  on_->changed();
}

void h2_stream::release() {
  const auto self = shared_from_this();
  abandoned_ = nullptr;
  released_ = true;
  drop_content();
  if (!on_->over()) {
    if (finished_ && on_->role() == h2_role::server)
      on_->session().stop(id_, give_up::no_error);
    else
      on_->session().reset(id_, give_up::cancelled);
  }
  on_->released(*this);
  head_.notify();
  readable_.notify();
  writable_.notify();
}

}  // namespace weft::http
