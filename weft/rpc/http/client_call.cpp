#include <weft/rpc/http/client_call.hpp>

#include <utility>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/co_spawn.hpp>

#include <weft/rpc/http/wire/encodings.hpp>

namespace weft::rpc::http {
namespace {

/// How finely deadlines travel: a server may find one passed so much before its client does.
constexpr duration deadline_grain = std::chrono::milliseconds{1};

/// What is kept for another connection. Where the server may answer before it has read everything,
/// what any window holds: it can be written again without anybody reading the answers.
constexpr std::size_t keep_of_unary = std::size_t{1} << 20;
constexpr std::size_t keep_of_streams = std::size_t{32} << 10;

status deadline_passed() {
  return {code::deadline_exceeded, "the deadline passed before the call was over"};
}

}  // namespace

client_core::client_core(std::unique_ptr<weft::http::client_connection> connection,
                         io::shard& shard, client_options options)
    : connection_{std::move(connection)},
      shard_{shard},
      options_{std::move(options)},
      accepted_{wire::accepted_list(options_.compressions)} {}

std::optional<status> client_core::refusal() const {
  if (closed_) return closed_;
  if (!connection_->usable())
    return status{code::unavailable,
                  "the server is going away; the call was not looked at and can safely be retried"};
  if (stats_.running >= options_.limits.max_concurrent_calls)
    return status{code::resource_exhausted,
                  std::to_string(stats_.running) + " calls run on this connection already"};
  return std::nullopt;
}

void client_core::end_all(const status& why) noexcept {
  while (!open_.empty()) open_.front().cancel(why);
}

task<> client_core::idle() {
  while (stats_.running != 0)
    if (!co_await idle_event_.wait()) break;
}

struct client_call_base::opening {
  weft::http::request_head head;
  bool end;
  std::uint8_t urgency;
  io::event done;
  asio::cancellation_signal stop;
  std::optional<weft::result<std::unique_ptr<weft::http::exchange>>> obtained;
};

client_call_base::client_call_base(std::shared_ptr<client_core> core, const method& m,
                                   const call_options& options, framing frame)
    : framing_{frame},
      request_compression_{options.request_compression},
      core_{std::move(core)},
      keep_up_to_{m.client_streams() ? keep_of_streams : keep_of_unary},
      parser_{core_->options().limits.max_message, core_->options().memory.get()},
      whole_{core_->options().limits.max_message, core_->options().memory.get()},
      response_{options.info},
      level_{m.level},
      wait_for_ready_{options.wait_for_ready},
      keeping_{core_->options().elsewhere != nullptr},
      urgency_{options.urgency} {
  ++core_->stats_.calls_started;
  ++core_->stats_.running;
  core_->open_.push_back(*this);
}

client_call_base::~client_call_base() {
  cancel({code::cancelled, "the call was given up"});
}

result<> client_call_base::begin(const method& m, const call_options& options,
                                 time_point deadline) {
  const client_options& own = core_->options();
  head_.authority = own.authority;
  head_.path.reserve(own.path_prefix.size() + m.path.size());
  head_.path = own.path_prefix;
  head_.path += m.path;
  if (auto filled = fill_request(head_, m, options, deadline); !filled) {
    finish(filled.error());
    return filled;
  }
  if (deadline == never) return {};
  deadline_ = deadline;
  core_->shard().arm(deadline_timer_, deadline, [this](time_point) { cancel(deadline_passed()); });
  return {};
}

// The exchange
// ----------------------------------------------------------------------------------------

task<> client_call_base::open(std::shared_ptr<client_core> core, std::shared_ptr<opening> into) {
  co_await asio::this_coro::throw_if_cancelled(false);
  into->obtained =
      co_await core->connection().request(std::move(into->head), into->end, into->urgency);
  into->done.notify();
}

task<result<>> client_call_base::obtain_exchange(bool end) {
  auto made = co_await ask(end);
  if (made) {
    exchange_ = std::move(*made);
    co_return result<>{};
  }
  if (final_) co_return std::unexpected{*final_};
  if (goes_elsewhere(nullptr, made.error()))
    (void)co_await move(nullptr, std::move(made).error());
  else
    end_by_peer(made.error());
  if (final_) co_return std::unexpected{*final_};
  co_return result<>{};
}

/// Fails with errc::cancelled when the call ended meanwhile.
task<weft::result<std::unique_ptr<weft::http::exchange>>> client_call_base::ask(bool end) {
  const auto over = [] {
    return weft::fail(errc::cancelled, layer::rpc, "the call ended before its request left");
  };
  if (final_) co_return over();
  auto at_once = core_->connection().try_request(head_, end, urgency_);
  if (at_once) co_return std::move(*at_once);
  const auto waiting = std::make_shared<opening>(head_, end, urgency_);
  opening_ = waiting;
  asio::co_spawn(
      core_->shard().get_executor(), open(core_, waiting),
      asio::bind_cancellation_slot(waiting->stop.slot(), [waiting](std::exception_ptr) {}));
  while (!waiting->obtained && !final_) {
    const bool woken = co_await waiting->done.wait();
    if (!woken) cancel({code::cancelled, "the call was cancelled while it waited for its turn"});
  }
  opening_.reset();
  if (!final_) co_return std::move(*waiting->obtained);
  // An exchange that comes all the same goes at once.
  waiting->stop.emit(asio::cancellation_type::terminal);
  co_return over();
}

// Sending
// -------------------------------------------------------------------------------------------

/// What was to be sent has been kept.
task<result<>> client_call_base::sent_elsewhere(const weft::http::exchange* from, error why) {
  if (!co_await move(from, std::move(why)))
    co_return fail(code::cancelled, "the write was cancelled");
  if (final_) co_return std::unexpected{*final_};
  co_return result<>{};
}

result<> client_call_base::sent(const weft::result<>& done) {
  if (done) return {};
  if (final_) return std::unexpected{*final_};
  // The server stopped reading: its status tells why, and is read in turn.
  if (done.error() == errc::stopped)
    return fail(code::cancelled, "the server does not read on; its status tells why");
  return std::unexpected{status_of(done.error())};
}

task<result<>> client_call_base::send(slice content, bool last) {
  auto* const to = exchange_.get();
  auto done = to->try_write(content, last);
  if (!done) done = co_await to->write(std::move(content), last);
  if (!*done && goes_elsewhere(to, done->error()))
    co_return co_await sent_elsewhere(to, std::move(*done).error());
  co_return sent(*done);
}

task<result<>> client_call_base::write(const outgoing& message, bool last) {
  while (moving_)
    if (!co_await moved_.wait()) co_return fail(code::cancelled, "the write was cancelled");
  if (final_)
    co_return std::unexpected{final_->ok() ? status{code::cancelled, "the call is over"} : *final_};
  if (write_ended_) co_return fail(code::failed_precondition, "our side has ended already");
  if (starts_with_message()) co_return co_await write_only(message);
  auto framed = append_message(unsent_, message, core_->options().codec, framing::envelope,
                               request_compression_, 0, core_->options().compress_from);
  if (!framed) {
    cancel(framed.error());
    co_return std::unexpected{std::move(framed).error()};
  }
  ++core_->stats_.messages_sent;
  write_ended_ = last;
  slice content = encode_content(unsent_.take());
  if (keeping_) keep(content);
  // As `send`, without a coroutine of its own where there is room.
  auto* const to = exchange_.get();
  auto done = to->try_write(content, last);
  if (!done) done = co_await to->write(std::move(content), last);
  if (!*done && goes_elsewhere(to, done->error()))
    co_return co_await sent_elsewhere(to, std::move(*done).error());
  co_return sent(*done);
}

task<result<>> client_call_base::write_only(const outgoing& message) {
  auto bare = take_message(head_, message, unsent_);
  if (!bare) {
    cancel(bare.error());
    co_return std::unexpected{std::move(bare).error()};
  }
  write_ended_ = true;
  ++core_->stats_.messages_sent;
  const bool no_content = *bare || unsent_.empty();
  slice content = no_content ? slice{} : unsent_.take();
  if (keeping_ && !no_content) keep(content);
  if (auto obtained = co_await obtain_exchange(no_content); !obtained) co_return obtained;
  // Elsewhere, what was kept has been sent.
  if (no_content || moves_ != 0) co_return result<>{};
  co_return co_await send(std::move(content), true);
}

task<result<>> client_call_base::finish_writing() {
  while (moving_)
    if (!co_await moved_.wait()) co_return fail(code::cancelled, "the write was cancelled");
  if (final_ || std::exchange(write_ended_, true)) co_return result<>{};
  if (starts_with_message()) {
    cancel({code::internal, "a unary call needs its message"});
    co_return std::unexpected{*final_};
  }
  co_return co_await send(slice{}, true);
}

// Receiving
// -----------------------------------------------------------------------------------------

result<std::optional<status>> client_call_base::on_special(wire::envelope e) {
  return fail(code::internal,
              "a message has flags " + std::to_string(e.flags) + ", which mean nothing here");
}

result<payload> client_call_base::on_whole(payload body) {
  return body;
}

result<std::optional<payload>> client_call_base::outcome() const {
  if (final_->ok()) return std::optional<payload>{};
  return std::unexpected{*final_};
}

void client_call_base::look_at_head() {
  if (head_seen_ || response() == nullptr) return;
  head_seen_ = true;
  commit();
  if (auto good = on_head(*response()); !good) cancel(std::move(good).error());
}

/// True: something happened (a message, the end). False: bytes are needed.
bool client_call_base::next_event(std::optional<payload>& message) {
  if (!head_seen_) return false;
  if (framing_ == framing::whole) {
    if (ended_) take_whole(message);
    return ended_;
  }
  auto next = parser_.next();
  if (!next) {
    cancel(std::move(next).error());
    return true;
  }
  if (*next) {
    take_envelope(std::move(**next), message);
    return true;
  }
  if (!ended_) return false;
  if (parser_.at_boundary())
    finish(on_end(exchange_->trailers()));
  else
    finish({code::internal, "the response ends in the middle of a message"});
  return true;
}

void client_call_base::take_envelope(wire::envelope e, std::optional<payload>& message) {
  if ((e.flags & ~wire::flag_compressed) != 0) return take_special(std::move(e));
  auto plain = unpack(std::move(e.content), e.flags != 0, response_compression_, max_message());
  if (!plain) return cancel(std::move(plain).error());
  ++core_->stats_.messages_received;
  plain->set_codec(core_->options().codec);
  message = std::move(*plain);
}

void client_call_base::take_special(wire::envelope e) {
  auto end = on_special(std::move(e));
  if (!end) return cancel(std::move(end).error());
  if (!*end) return;
  // The end is most often here already; taking it spares the server a reset. Failing there takes
  // nothing back.
  if (auto rest = exchange_->try_read(); rest && *rest) take(std::move(*rest));
  if (final_) return;
  auto more = parser_.next();
  if (!more || *more || !parser_.at_boundary())
    return cancel({code::internal, "the response goes on after its end"});
  finish(std::move(**end));
}

void client_call_base::take_whole(std::optional<payload>& message) {
  auto plain = on_whole(whole_.take());
  if (!plain) return finish(std::move(plain).error());
  ++core_->stats_.messages_received;
  plain->set_codec(core_->options().codec);
  message = std::move(*plain);
  finish(status{});
}

void client_call_base::take(weft::result<slice> arrived) {
  if (final_) return;
  if (!arrived) return end_by_peer(arrived.error());
  if (arrived->empty()) {
    ended_ = true;
    return;
  }
  had_content_ = true;
  auto content = decode_content(std::move(*arrived));
  if (!content) return cancel(status_of(content.error()));
  look_at_head();
  if (final_) return;
  auto kept = framing_ == framing::envelope ? parser_.push(std::move(*content))
                                            : whole_.append(std::move(*content));
  if (!kept) cancel(std::move(kept).error());
}

/// Reads on until a message, the end, or with `headers_only` initial metadata is there.
task<result<std::optional<payload>>> client_call_base::read_on(bool headers_only) {
  while (true) {
    while (moving_)
      if (!co_await moved_.wait()) co_return fail(code::cancelled, "the read was cancelled");
    if (!final_) look_at_head();
    if (final_) co_return outcome();
    if (headers_only && head_seen_) co_return std::optional<payload>{};
    std::optional<payload> message;
    if (next_event(message)) {
      if (message) co_return message;
      continue;
    }
    if (!exchange_) co_return fail(code::failed_precondition, "the call needs its message first");
    auto* const from = exchange_.get();
    std::optional<weft::result<slice>> arrived;
    if (!head_seen_ && headers_only) {
      auto head = co_await from->receive_head();
      if (head || final_) continue;
      arrived = std::unexpected{std::move(head).error()};
    } else {
      arrived = from->try_read();
      if (!arrived) arrived = co_await from->read();
    }
    if (!*arrived && (*arrived).error() == errc::cancelled && !final_)
      co_return fail(code::cancelled, "the read was cancelled");
    if (!*arrived && goes_elsewhere(from, arrived->error())) {
      if (!co_await move(from, std::move(*arrived).error()))
        co_return fail(code::cancelled, "the read was cancelled");
      continue;
    }
    take(std::move(*arrived));
  }
}

task<result<std::optional<payload>>> client_call_base::read() {
  return read_on(false);
}

task<result<metadata>> client_call_base::read_headers() {
  if (!head_seen_) {
    auto looked = co_await read_on(true);
    if (!looked && !final_) co_return std::unexpected{std::move(looked).error()};
  }
  if (!head_seen_) co_return std::unexpected{*final_};
  co_return headers_;
}

// Ending
// --------------------------------------------------------------------------------------------

void client_call_base::finish(status s) noexcept {
  if (final_) return;
  final_ = std::move(s);
  commit();
  list_node<client_call_base, open_tag>::unlink();
  if (deadline_timer_.armed()) core_->shard().disarm(deadline_timer_);
  if (response_ != nullptr) {
    const auto& connection = core_->connection().info();
    response_->headers = headers_;
    response_->trailers = trailers_;
    response_->peer = connection.remote;
    response_->transport = connection.transport;
  }
  ++core_->stats_.calls_finished;
  if (--core_->stats_.running == 0) core_->idle_event_.notify();
}

/// A server's reset at our deadline is our deadline: both find it passed at about the same time.
void client_call_base::end_by_peer(const error& why) {
  const bool late = deadline_ != never && io::now() >= deadline_ - deadline_grain;
  if (core_->closed_)
    finish(*core_->closed_);
  else
    finish(late ? deadline_passed() : status_of(why));
}

void client_call_base::cancel(status why) {
  if (final_) return;
  ++core_->stats_.cancels_sent;
  finish(std::move(why));
  // Wakes who waits, who may destroy this call.
  if (exchange_)
    exchange_->reset(weft::http::give_up::cancelled);
  else if (const auto waiting = opening_)
    waiting->done.notify();
  else
    stop_moving();
}

}  // namespace weft::rpc::http
