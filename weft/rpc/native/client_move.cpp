#include <utility>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/co_spawn.hpp>

#include <weft/rpc/native/client_call.hpp>

// A call that a server turned away unseen, because it goes away, is made again on another
// connection: what was written is kept, up to a limit, until the first response.

namespace weft::rpc::native {
namespace {

/// Beyond it a call is not made again.
constexpr std::size_t keep_up_to = std::size_t{1} << 20;
/// As above where the server may answer before it has read everything: what the first window
/// holds can be written again without anybody reading the answers.
constexpr std::size_t keep_of_streams = wire::default_window / 2;
constexpr wire::parse_limits any_size{wire::max_varint, wire::max_varint};
/// A server that turns away everything on every connection must not keep a call busy for ever.
constexpr std::uint8_t most_moves = 5;

}  // namespace

/// Another connection on its way. Not awaited directly: cancelling the call ends the wait.
struct native_client_call::placing {
  io::event done;
  asio::cancellation_signal stop;
  std::optional<result<std::unique_ptr<client_call>>> call;
};

void native_client_call::keep(slice frames) {
  kept_ += frames.size();
  if (kept_ > (method_->client_streams() ? keep_of_streams : keep_up_to)) return commit();
  if (kept_first_.empty())
    kept_first_ = std::move(frames);
  else
    kept_rest_.push_back(std::move(frames));
}

void native_client_call::commit() noexcept {
  keeping_ = false;
  kept_first_ = {};
  kept_rest_.clear();
}

task<result<>> native_client_call::write_elsewhere(const outgoing& message, bool last) {
  if (write_ended_) co_return fail(code::failed_precondition, "our side has ended already");
  if (auto framed = append_message(unsent_, message, compression::identity, 0); !framed)
    co_return framed;
  write_ended_ = last;
  keep(unsent_.take());
  if (!moving_ && may_move()) co_await move();
  if (successor_ || moving_) co_return result<>{};
  co_return std::unexpected{*final_};
}

/// Either `successor_` is this call from now on, or its status is final.
task<> native_client_call::move() {
  if (moving_) {
    (void)co_await moved_.wait();
    co_return;
  }
  moving_ = true;
  successor_ = co_await find_place();
  if (successor_ && keeping_) (void)co_await send_again(*successor_);
  // Ended meanwhile.
  if (!keeping_) successor_.reset();
  unseen_ = moving_ = false;
  commit();
  moved_.notify();
}

task<std::unique_ptr<client_call>> native_client_call::find_place() {
  if (!unsent_.empty()) keep(unsent_.take());
  auto options = options_again();
  if (!options) {
    commit();
    co_return nullptr;
  }
  const auto wanted = placing_ = std::make_shared<placing>();
  asio::co_spawn(
      core_->shard_.get_executor(), place(core_, wanted, *method_, std::move(*options), until_),
      asio::bind_cancellation_slot(wanted->stop.slot(), [wanted](std::exception_ptr) {}));
  bool woken = true;
  if (!wanted->call) woken = co_await wanted->done.wait();
  placing_.reset();
  if (!wanted->call) {
    wanted->stop.emit(asio::cancellation_type::terminal);
    if (!woken) final_ = status{code::cancelled, "cancelled while the call was made again"};
    co_return nullptr;
  }
  if (*wanted->call) {
    if (auto* fresh = dynamic_cast<native_client_call*>((*wanted->call)->get())) {
      fresh->moves_ = static_cast<std::uint8_t>(moves_ + 1);
      if (fresh->moves_ >= most_moves) fresh->commit();
    }
    co_return std::move(**wanted->call);
  }
  const status& why = (*wanted->call).error();
  if (keeping_)
    final_ = status{why.code(), "the server went away before it looked at the call; made again: " +
                                    why.message()};
  co_return nullptr;
}

task<> native_client_call::place(std::shared_ptr<client_core> core, std::shared_ptr<placing> into,
                                 const method& m, call_options options, time_point deadline) {
  co_await asio::this_coro::throw_if_cancelled(false);
  into->call = co_await core->options_.elsewhere(m, std::move(options), deadline);
  into->done.notify();
}

void native_client_call::stop_moving() noexcept {
  if (auto waiting = placing_) waiting->done.notify();
  if (successor_) successor_->cancel(*final_);
}

void native_client_call::drop_place() noexcept {
  if (placing_) placing_->stop.emit(asio::cancellation_type::terminal);
}

/// The call's options, as its own header tells them.
result<call_options> native_client_call::options_again() const {
  wire::call_parser header{wire::call_parser::side::client, any_size, nullptr};
  header.push(kept_first_);
  auto event = header.next();
  auto* request = event && *event ? std::get_if<wire::received_request>(&**event) : nullptr;
  if (request == nullptr) return fail(code::internal, "the header was not kept");
  return call_options{.metadata = std::move(request->metadata),
                      .urgency = request->urgency,
                      .request_compression = compression_,
                      .wait_for_ready = wait_for_ready_,
                      .info = response_};
}

/// What was written, and what is being written meanwhile. A failure has its cause in the status of
/// `to`, unless this call ended itself.
task<result<>> native_client_call::send_again(client_call& to) {
  wire::call_parser frames{wire::call_parser::side::client, any_size, nullptr};
  for (std::size_t i = 0; keeping_ && !kept_first_.empty() && i <= kept_rest_.size(); ++i) {
    frames.push(i == 0 ? kept_first_ : kept_rest_[i - 1]);
    while (true) {
      auto event = frames.next();
      if (!event) co_return fail(code::internal, event.error().message());
      if (!*event) break;
      auto* message = std::get_if<wire::received_message>(&**event);
      if (message == nullptr) continue;
      auto plain = unpack(std::move(*message), wire::max_varint);
      if (!plain) co_return std::unexpected{std::move(plain).error()};
      const slice whole = plain->flatten();
      auto sent = co_await to.write(outgoing{whole}, false);
      if (!sent) co_return sent;
    }
  }
  if (write_ended_) co_return co_await to.finish_writing();
  co_return result<>{};
}

}  // namespace weft::rpc::native
