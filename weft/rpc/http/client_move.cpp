#include <utility>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>

#include <weft/rpc/http/client_call.hpp>

// A call that a server turned away unseen, because it goes away or has too much to do, goes on at
// another connection with the same request: the head, and the content kept since.

namespace weft::rpc::http {
namespace {

/// A server that turns away everything on every connection must not keep a call busy for ever.
constexpr std::uint8_t most_moves = 5;

bool turned_away(const error& why) noexcept {
  if (why.where() != layer::http) return false;
  if (why == errc::refused) return true;
  const auto rejected = static_cast<std::uint64_t>(weft::http::give_up::rejected);
  return (why == errc::reset || why == errc::stopped) && why.detail() == rejected;
}

}  // namespace

struct client_call_base::placing {
  io::event done;
  asio::cancellation_signal stop;
  std::optional<result<std::shared_ptr<transport>>> found;
};

void client_call_base::keep(const slice& content) {
  kept_ += content.size();
  if (kept_ > keep_up_to_) return commit();
  if (kept_first_.empty())
    kept_first_ = content;
  else
    kept_rest_.push_back(content);
}

void client_call_base::commit() noexcept {
  keeping_ = false;
  kept_first_ = {};
  kept_rest_.clear();
}

bool client_call_base::may_move() const noexcept {
  return keeping_ && !final_ && moves_ < most_moves;
}

bool client_call_base::goes_elsewhere(const weft::http::exchange* from,
                                      const error& why) const noexcept {
  return exchange_.get() != from || (turned_away(why) && may_move());
}

/// Afterwards `exchange_` is another one, or the call has ended. False: the caller was cancelled
/// while someone else did it.
task<bool> client_call_base::move(const weft::http::exchange* from, error why) {
  if (moving_) co_return co_await moved_.wait();
  if (exchange_.get() != from) co_return true;
  moving_ = true;
  if (exchange_) {
    head_ = exchange_->request();
    left_.push_back(std::move(exchange_));
  }
  std::optional<error> failure = std::move(why);
  while (failure && turned_away(*failure) && may_move()) {
    ++moves_;
    failure = co_await go_on_elsewhere();
  }
  moving_ = false;
  if (failure && !final_) end_by_peer(*failure);
  moved_.notify();
  co_return true;
}

/// Nothing when the call goes on, or has ended.
task<std::optional<error>> client_call_base::go_on_elsewhere() {
  auto core = co_await find_place();
  if (!core) co_return std::nullopt;
  join(std::move(core));
  renew_timeout();
  const bool no_content = write_ended_ && kept_first_.empty();
  auto made = co_await ask(no_content);
  if (final_) co_return std::nullopt;
  if (!made) co_return std::move(made).error();
  exchange_ = std::move(*made);
  if (!no_content) co_await send_again();
  co_return std::nullopt;
}

/// Null when the call has ended, if only because there is none.
task<std::shared_ptr<client_core>> client_call_base::find_place() {
  const auto wanted = placing_ = std::make_shared<placing>();
  asio::co_spawn(
      core_->shard().get_executor(), place(core_, wanted, level_, wait_for_ready_, deadline_),
      asio::bind_cancellation_slot(wanted->stop.slot(), [wanted](std::exception_ptr) {}));
  bool woken = true;
  if (!wanted->found) woken = co_await wanted->done.wait();
  placing_.reset();
  if (!wanted->found || final_) {
    wanted->stop.emit(asio::cancellation_type::terminal);
    if (!woken) cancel({code::cancelled, "cancelled while the call was made again"});
    co_return nullptr;
  }
  if (!*wanted->found) {
    const status& why = wanted->found->error();
    finish({why.code(), "the server did not look at the call; made again: " + why.message()});
    co_return nullptr;
  }
  const auto& next = dynamic_cast<client_transport&>(***wanted->found).core_;
  if (auto refused = next->refusal(); refused && refused->code() != code::unavailable) {
    finish(std::move(*refused));
    co_return nullptr;
  }
  co_return next;
}

task<> client_call_base::place(std::shared_ptr<client_core> core, std::shared_ptr<placing> into,
                               idempotency level, bool wait_for_ready, time_point deadline) {
  co_await asio::this_coro::throw_if_cancelled(false);
  into->found = co_await core->options_.elsewhere(level, wait_for_ready, deadline);
  into->done.notify();
}

void client_call_base::stop_moving() noexcept {
  if (const auto waiting = placing_) waiting->done.notify();
}

/// From now on it is one of that connection's calls.
void client_call_base::join(std::shared_ptr<client_core> core) {
  ++core->stats_.calls_started;
  ++core->stats_.running;
  core->open_.push_back(*this);
  const auto left = std::exchange(core_, std::move(core));
  ++left->stats_.calls_finished;
  if (--left->stats_.running == 0) left->idle_event_.notify();
}

void client_call_base::renew_timeout() {
  if (deadline_ == never) return;
  const auto [name, value] = timeout_field(deadline_ - io::now());
  weft::http::field_list fields;
  for (const auto& [key, old, sensitive] : head_.fields)
    fields.add_valid(key, key == name ? std::string_view{value} : old, sensitive);
  head_.fields = std::move(fields);
}

/// What was written, and what is kept meanwhile. A failure shows when the call is read.
task<> client_call_base::send_again() {
  auto* const to = exchange_.get();
  std::size_t count = kept_first_.empty() ? 0 : 1 + kept_rest_.size();
  for (std::size_t i = 0; keeping_ && i < count; ++i) {
    slice content = i == 0 ? kept_first_ : kept_rest_[i - 1];
    const bool last = write_ended_ && i + 1 == count;
    auto done = to->try_write(content, last);
    if (!done) done = co_await to->write(std::move(content), last);
    if (!*done || final_) co_return;
  }
}

}  // namespace weft::rpc::http
