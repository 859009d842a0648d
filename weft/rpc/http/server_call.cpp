#include <weft/rpc/http/server_call.hpp>

#include <algorithm>
#include <utility>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/co_spawn.hpp>
#include <asio/this_coro.hpp>

#include <weft/rpc/http/cors.hpp>
#include <weft/rpc/http/wire/encodings.hpp>
#include <weft/rpc/http/wire/fields.hpp>

namespace weft::rpc::http {
namespace {

/// Messages up to this size together wait for what comes next, until the turn ends.
constexpr std::size_t hold_up_to = 4 * 1024;
/// Room for the end of a usual reply.
constexpr std::size_t end_room = 32;

}  // namespace

server_core::server_core(io::shard& shard, dispatcher& calls, server_options options)
    : shard_{shard},
      calls_{calls},
      options_{std::move(options)},
      accepted_{wire::accepted_list(options_.compressions)} {}

weft::http::response_head& server_core::scratch_head() noexcept {
  head_.status = 200;
  head_.fields.clear();
  return head_;
}

weft::http::field_list& server_core::scratch_trailers() noexcept {
  trailers_.clear();
  return trailers_;
}

void server_core::start(std::unique_ptr<server_call_base> call) {
  ++stats_.calls_started;
  ++stats_.running;
  server_call_base& c = *call;
  running_.push_back(c);
  c.watch();
  auto slot = c.cancel_.slot();
  // The call goes with its completion handler: its signal must outlive the coroutine.
  asio::co_spawn(shard_.get_executor(), run(c),
                 asio::bind_cancellation_slot(
                     slot, [call = std::move(call)](std::exception_ptr) mutable { call.reset(); }));
}

task<> server_core::run(server_call_base& call) {
  // Cancellation is a value here, not an exception: waits that it ends say so.
  co_await asio::this_coro::throw_if_cancelled(false);
  status s;
  if (auto begun = call.begin(); !begun)
    s = std::move(begun).error();
  else
    s = co_await call.core_->calls_.dispatch(call);
  co_await call.end(std::move(s));
}

void server_core::conclude_all(const status& why) noexcept {
  list<server_call_base, running_tag> ending;
  ending.splice(running_);
  while (!ending.empty()) {
    server_call_base& call = ending.front();
    running_.push_back(call);
    call.override_ = why;
    call.cancel_.emit(asio::cancellation_type::terminal);
  }
}

task<> server_core::idle() {
  while (stats_.running != 0)
    if (!co_await idle_event_.wait()) break;
}

void server_core::hold(server_call_base& call) {
  held_.push_back(call);
  if (std::exchange(release_scheduled_, true)) return;
  shard_.at_end_of_turn([self = weak_from_this()] {
    auto core = self.lock();
    if (!core) return;
    core->release_scheduled_ = false;
    while (!core->held_.empty()) {
      server_call_base& call = core->held_.front();
      call.list_node<server_call_base, held_tag>::unlink();
      call.release_held();
    }
  });
}

server_call_base::server_call_base(std::shared_ptr<server_core> core,
                                   std::unique_ptr<weft::http::exchange> e)
    : core_{std::move(core)},
      exchange_{std::move(e)},
      parser_{core_->options().limits.max_message, core_->options().memory.get()},
      whole_{core_->options().limits.max_message, core_->options().memory.get()} {
  const auto& connection = exchange_->connection();
  const auto& head = exchange_->request();
  const std::string_view path{head.path};
  const auto question = path.find('?');
  info_.path = path.substr(0, question);
  if (question != path.npos) info_.query = path.substr(question + 1);
  info_.http_method = head.method;
  info_.transport = connection.transport;
  info_.peer = connection.remote;
  if (!connection.peer_subject.empty()) info_.peer_subject = connection.peer_subject;
  info_.early_data = exchange_->early_data();
}

server_call_base::~server_call_base() {
  --core_->stats_.running;
  ++core_->stats_.calls_finished;
  if (core_->stats_.running == 0) core_->idle_event_.notify();
}

/// The exchange tells from now on when nobody wants the call any more.
void server_call_base::watch() {
  exchange_->on_abandoned([this](const error& why) { abandoned(why); });
}

void server_call_base::abandoned(const error& why) {
  if (gone_) return;
  gone_ = true;
  ++core_->stats_.cancels_received;
  if (!fault_) fault_ = status{code::cancelled, "the client gave the call up: " + why.message()};
  cancel_.emit(asio::cancellation_type::terminal);
}

void server_call_base::set_deadline(duration remaining) {
  const time_point now = io::now();
  info_.deadline = remaining < never - now ? now + remaining : never;
  core_->shard_.arm(deadline_, info_.deadline, [this](time_point) {
    expired_ = true;
    if (!concluding_) return cancel_.emit(asio::cancellation_type::terminal);
    // A peer that does not even take the status is given up.
    gone_ = true;
    exchange_->reset(weft::http::give_up::cancelled);
  });
}

// Receiving
// -----------------------------------------------------------------------------------------

std::unexpected<status> server_call_base::fault(status why) {
  fault_ = std::move(why);
  return std::unexpected{*fault_};
}

void server_call_base::set_message(payload message) {
  framing_ = framing::whole;
  whole_.set(std::move(message));
  request_ended_ = true;
}

result<> server_call_base::on_special(wire::envelope e) {
  return fail(code::internal,
              "a message has flags " + std::to_string(e.flags) + ", which mean nothing here");
}

/// True: bytes or the end were taken. False: nothing there yet.
result<bool> server_call_base::take(std::optional<weft::result<slice>> arrived) {
  if (!arrived) return false;
  if (!*arrived) return fault(status_of((*arrived).error()));
  if ((*arrived)->empty()) {
    request_ended_ = true;
    return true;
  }
  auto content = decode_content(std::move(**arrived));
  if (!content) return fault(status_of(content.error()));
  auto kept = framing_ == framing::envelope ? parser_.push(std::move(*content))
                                            : whole_.append(std::move(*content));
  if (!kept) return fault(std::move(kept).error());
  return true;
}

result<> server_call_base::unpack_into(std::optional<payload>& message, payload content,
                                       bool compressed) {
  auto plain = unpack(std::move(content), compressed, request_compression_,
                      core_->options_.limits.max_message);
  if (!plain) return fault(std::move(plain).error());
  ++core_->stats_.messages_received;
  plain->set_codec(info_.codec);
  message = std::move(*plain);
  return {};
}

result<> server_call_base::take_whole(std::optional<payload>& message) {
  if (std::exchange(whole_given_, true)) return {};
  return unpack_into(message, whole_.take(), request_compression_ != compression::identity);
}

/// True: here it is, or `message` is empty at the end. False: bytes are needed.
result<bool> server_call_base::next_message(std::optional<payload>& message) {
  if (framing_ == framing::whole) {
    if (!request_ended_) return false;
    auto taken = take_whole(message);
    if (!taken) return std::unexpected{std::move(taken).error()};
    return true;
  }
  auto next = parser_.next();
  if (!next) return fault(std::move(next).error());
  if (*next) {
    wire::envelope& e = **next;
    if ((e.flags & ~wire::flag_compressed) != 0) {
      if (auto special = on_special(std::move(e)); !special)
        return fault(std::move(special).error());
      return next_message(message);
    }
    auto unpacked = unpack_into(message, std::move(e.content), e.flags != 0);
    if (!unpacked) return std::unexpected{std::move(unpacked).error()};
    return true;
  }
  if (!request_ended_) return false;
  if (parser_.at_boundary()) return true;
  return fault({code::internal, "the request ends in the middle of a message"});
}

task<result<std::optional<payload>>> server_call_base::read() {
  while (true) {
    if (fault_) co_return std::unexpected{*fault_};
    std::optional<payload> message;
    auto there = next_message(message);
    if (!there) co_return std::unexpected{std::move(there).error()};
    if (*there) co_return message;
    auto arrived = exchange_->try_read();
    if (!arrived) arrived = co_await exchange_->read();
    // A read that was cancelled may be tried again; it is no fault of the call.
    if (!*arrived && (*arrived).error() == errc::cancelled)
      co_return std::unexpected{end_status({code::cancelled, "the call was cancelled"})};
    if (auto taken = take(std::move(arrived)); !taken)
      co_return std::unexpected{end_status(std::move(taken).error())};
  }
}

// Sending
// -------------------------------------------------------------------------------------------

compression server_call_base::reply_compression() const noexcept {
  if (settled_) return *settled_;
  const compression wanted = chosen_.value_or(request_compression_);
  return std::ranges::contains(accepted_, wanted) ? wanted : compression::identity;
}

/// What the head announces, from now on; single messages may still go as they are.
compression server_call_base::settled_compression() {
  settled_ = reply_compression();
  return chosen_ == compression::identity ? compression::identity : *settled_;
}

weft::result<> server_call_base::ensure_head() {
  if (head_sent_) return {};
  answered_ = true;
  (void)settled_compression();
  weft::http::response_head& head = core_->scratch_head();
  fill_head(head);
  wire::append_metadata(head.fields, headers_);
  append_cors(head.fields, exchange_->request(), core_->options_);
  auto sent = exchange_->send_head(head);
  head_sent_ = sent.has_value();
  if (!sent) refused_head(sent.error());
  return sent;
}

/// The client does not take so much metadata. That is how the call ends, and can be told without.
void server_call_base::refused_head(const error& why) {
  if (!override_) override_ = status_of(why);
  headers_ = {};
  answered_ = false;
}

task<result<>> server_call_base::send_headers(const metadata& headers) {
  if (gone_) co_return fail(code::cancelled, "the client has given the call up");
  if (std::exchange(answered_, true))
    co_return fail(code::failed_precondition, "initial metadata must precede all messages");
  headers_ = headers;
  // The status line of a whole reply depends on how the call ends.
  if (framing_ == framing::whole) co_return result<>{};
  if (auto sent = ensure_head(); !sent)
    co_return std::unexpected{end_status(status_of(sent.error()))};
  co_return result<>{};
}

result<> server_call_base::keep_reply(const outgoing& message) {
  if (std::exchange(replied_, true))
    return fail(code::internal, "a unary call has one reply; the handler wrote another");
  auto appended =
      append_message(held_, message, info_.codec, framing::whole, settled_compression());
  if (!appended) return std::unexpected{std::move(appended).error()};
  message_compression_ = *appended;
  ++core_->stats_.messages_sent;
  return {};
}

task<result<>> server_call_base::write(const outgoing& message) {
  if (gone_) co_return fail(code::cancelled, "the client has given the call up");
  if (override_) co_return std::unexpected{*override_};
  answered_ = true;
  if (framing_ == framing::whole) co_return keep_reply(message);
  if (!held_.empty() && held_.used() + message.size() > hold_up_to)
    if (auto flushed = co_await flush_held(); !flushed) co_return flushed;
  const std::size_t spare = message.size() < hold_up_to ? end_room : 0;
  auto appended =
      append_message(held_, message, info_.codec, framing::envelope, settled_compression(), spare);
  if (!appended) co_return std::unexpected{std::move(appended).error()};
  replied_ = true;
  ++core_->stats_.messages_sent;
  if (held_.used() > hold_up_to) co_return co_await flush_held();
  core_->hold(*this);
  co_return result<>{};
}

task<result<>> server_call_base::send(slice content, bool end) {
  auto done = exchange_->try_write(content, end);
  if (!done) done = co_await exchange_->write(std::move(content), end);
  if (!*done) co_return std::unexpected{end_status(status_of((*done).error()))};
  co_return result<>{};
}

task<result<>> server_call_base::flush_held() {
  list_node<server_call_base, held_tag>::unlink();
  if (auto sent = ensure_head(); !sent)
    co_return std::unexpected{end_status(status_of(sent.error()))};
  if (!backlog_.empty())
    if (auto sent = co_await send(std::exchange(backlog_, {}), false); !sent) co_return sent;
  if (held_.empty()) co_return result<>{};
  co_return co_await send(encode_content(held_.take()), false);
}

/// At the end of a turn. What finds no room waits for the next write, or the end.
void server_call_base::release_held() {
  if (gone_ || concluding_ || !backlog_.empty() || held_.empty()) return;
  if (!ensure_head()) return;
  slice content = encode_content(held_.take());
  if (!exchange_->try_write(content, false)) backlog_ = std::move(content);
}

task<bool> server_call_base::send_rest(bool end) {
  if (!ensure_head()) co_return false;
  slice rest = held_.empty() ? slice{} : encode_content(held_.take());
  if (!backlog_.empty()) {
    const bool sent = co_await send_last(std::exchange(backlog_, {}), false);
    if (!sent) co_return false;
  }
  if (rest.empty() && !end) co_return true;
  co_return co_await send_last(std::move(rest), end);
}

task<bool> server_call_base::send_last(slice content, bool end) {
  auto done = exchange_->try_write(content, end);
  if (!done && expired_) {
    gone_ = true;
    exchange_->reset(weft::http::give_up::cancelled);
    co_return false;
  }
  if (!done) done = co_await exchange_->write(std::move(content), end);
  if (!*done) co_return false;
  co_return !gone_;
}

// Ending
// --------------------------------------------------------------------------------------------

status server_call_base::end_status(status s) const {
  if (s.ok() || !expired_) return s;
  return {code::deadline_exceeded, "the deadline passed on the server"};
}

task<> server_call_base::end(status s) {
  list_node<server_call_base, held_tag>::unlink();
  concluding_ = true;
  if (gone_) co_return;
  if (override_) s = *override_;
  const auto state = co_await asio::this_coro::cancellation_state;
  // The handler was cancelled; its status is sent all the same.
  if (state.cancelled() != asio::cancellation_type::none)
    co_await asio::this_coro::reset_cancellation_state(asio::enable_terminal_cancellation());
  co_await conclude(end_status(std::move(s)));
}

}  // namespace weft::rpc::http
