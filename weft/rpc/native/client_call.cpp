#include <weft/rpc/native/client_call.hpp>

#include <utility>

namespace weft::rpc::native {

wire::method_reference method_numbers::reference(std::string_view path) {
  auto found = by_path_.find(path);
  if (found == by_path_.end()) {
    if (by_number_.size() >= wire::max_methods) return {0, path};
    found = by_path_.emplace(std::string{path}, entry{by_number_.size() + 1}).first;
    by_number_.push_back(&found->second);
  }
  const entry& e = found->second;
  return {e.number, e.agreed ? std::string_view{} : path};
}

void method_numbers::acknowledged(std::uint64_t number) {
  if (number != 0 && number <= by_number_.size()) by_number_[number - 1]->agreed = true;
}

client_core::client_core(io::shard& shard, session_options options, transport_info info)
    : shard_{shard}, options_{std::move(options)}, info_{std::move(info)} {}

wire::settings client_core::own_settings() const {
  wire::settings s;
  s.max_message = options_.limits.max_message;
  s.max_metadata = options_.limits.max_metadata;
  s.compressions = options_.compressions;
  s.max_calls = 0;  // servers start no calls
  return s;
}

std::optional<status> client_core::refusal() const {
  if (closed_) return closed_;
  if (server_going_) return refused_status();
  if (stats_.running >= options_.limits.max_concurrent_calls || stats_.running >= peer_.max_calls)
    return status{code::resource_exhausted,
                  std::to_string(stats_.running) + " calls run on this connection already"};
  return std::nullopt;
}

result<> client_core::admissible(const call_options& options) const {
  const std::size_t size = options.metadata.wire_size();
  if (size <= peer_.max_metadata) return {};
  return fail(code::resource_exhausted, "metadata of " + std::to_string(size) +
                                            " bytes exceeds the server's limit of " +
                                            std::to_string(peer_.max_metadata));
}

result<> client_core::append_header(frame_buffer& to, const method& m, const call_options& options,
                                    time_point deadline, std::size_t spare) {
  if (auto fits = admissible(options); !fits) return fits;
  if (m.path.empty() || m.path.size() > wire::max_path || m.path.front() != '/')
    return fail(code::invalid_argument, "a method path starts with a slash and has at most " +
                                            std::to_string(wire::max_path) + " bytes");
  wire::request_header header;
  header.method = methods_.reference(m.path);
  if (deadline != never) header.remaining = deadline - io::now();
  header.urgency = options.urgency;
  header.metadata = &options.metadata;
  std::byte* at = to.reserve(wire::encoded_size(header) + spare);
  to.commit(wire::encode(header, at));
  return {};
}

void client_core::refuse_from(std::uint64_t number, const status& why) noexcept {
  list<native_client_call, open_tag> kept;
  while (!open_.empty()) {
    native_client_call& call = open_.front();
    kept.push_back(call);
    // May destroy calls, this one and others, which then leave their lists.
    if (!call.is_from(number)) continue;
    call.unseen_ = true;
    call.cancel(why);
  }
  open_.splice(kept);
}

void client_core::refuse_all(const status& why) noexcept {
  while (!open_.empty()) {
    open_.front().unseen_ = true;
    open_.front().cancel(why);
  }
}

void client_core::end_all(const status& why) noexcept {
  while (!open_.empty()) open_.front().cancel(why);
}

task<> client_core::idle() {
  while (stats_.running != 0)
    if (!co_await idle_event_.wait()) break;
}

void client_core::send_soon(native_client_call& call) {
  unsent_.push_back(call);
  if (std::exchange(flush_scheduled_, true)) return;
  shard_.at_end_of_turn([self = weak_from_this()] {
    auto core = self.lock();
    if (!core) return;
    core->flush_scheduled_ = false;
    while (!core->unsent_.empty()) core->unsent_.front().send_header();
  });
}

native_client_call::native_client_call(std::shared_ptr<client_core> core,
                                       const call_options& options)
    : core_{std::move(core)},
      parser_{wire::call_parser::side::server,
              {core_->options_.limits.max_message, core_->options_.limits.max_metadata},
              core_->options_.memory.get()},
      response_{options.info},
      compression_{options.request_compression},
      wait_for_ready_{options.wait_for_ready},
      keeping_{static_cast<bool>(core_->options_.elsewhere)} {
  ++core_->stats_.calls_started;
  ++core_->stats_.running;
  core_->open_.push_back(*this);
}

native_client_call::~native_client_call() {
  drop_place();
  // `give_up` has run: only a call that never began is still open here.
  if (!final_) finish({code::cancelled, "the call was given up"});
}

result<> native_client_call::begin(const method& m, const call_options& options,
                                   time_point deadline) {
  method_ = &m;
  until_ = deadline;
  // Room for a small message behind the header, so that both leave as one slice.
  if (auto appended = core_->append_header(unsent_, m, options, deadline, 256); !appended) {
    finish(appended.error());
    return appended;
  }
  if (deadline != never) {
    core_->shard_.arm(deadline_, deadline, [this](time_point) {
      cancel({code::deadline_exceeded, "the deadline passed before the call was over"});
    });
  }
  core_->send_soon(*this);
  return {};
}

// Sending
// -------------------------------------------------------------------------------------------

task<result<>> native_client_call::before_first_write(std::size_t, bool) {
  co_return result<>{};
}

void native_client_call::send_header() {
  list_node<native_client_call, unsent_tag>::unlink();
  // A pipe that is still to be chosen is not needed before the first message.
  if (pipe_ != nullptr && !unsent_.empty()) (void)pipe_->try_write(outgoing_frames(), false);
}

slice native_client_call::outgoing_frames() {
  slice frames = unsent_.take();
  if (keeping_) keep(frames);
  return frames;
}

result<> native_client_call::sent(const weft::result<>& done) {
  if (done || may_move()) return {};
  if (final_) return std::unexpected{*final_};
  if (done.error() == errc::stopped && is_refusal(done.error())) {
    end_unseen(refused_status());
    if (may_move()) return {};
  }
  // A part of the message may be on its way: nothing can follow it.
  if (done.error() == errc::cancelled)
    cancel({code::cancelled, "a write was cancelled, and its message may be incomplete"});
  if (final_) return std::unexpected{*final_};
  // The server stopped reading: its status tells why, and is read in turn.
  if (done.error() == errc::stopped)
    return fail(code::cancelled, "the server does not read on; its status tells why");
  return std::unexpected{status_of(done.error())};
}

task<result<>> native_client_call::send(slice frames, bool last) {
  auto done = pipe_->try_write(frames, last);
  if (!done) done = co_await pipe_->write(std::move(frames), last);
  co_return sent(*done);
}

task<result<>> native_client_call::send_both(slice head, slice body, bool last) {
  if (keeping_) keep(body);
  auto done = co_await send(std::move(head), false);
  if (!done || moving_ || successor_ || may_move()) co_return done;
  co_return co_await send(std::move(body), last);
}

task<result<>> native_client_call::write(const outgoing& message, bool last) {
  if (moving_ || may_move()) co_return co_await write_elsewhere(message, last);
  if (successor_) co_return co_await successor_->write(message, last);
  if (final_)
    co_return std::unexpected{final_->ok() ? status{code::cancelled, "the call is over"} : *final_};
  if (write_ended_) co_return fail(code::failed_precondition, "our side has ended already");
  if (message.size() > core_->peer_.max_message) {
    cancel({code::resource_exhausted, "a message of " + std::to_string(message.size()) +
                                          " bytes exceeds the server's limit of " +
                                          std::to_string(core_->peer_.max_message)});
    co_return std::unexpected{*final_};
  }
  auto body = append_or_share(unsent_, message, core_->allowed(compression_), 0);
  if (!body) {
    cancel(body.error());
    co_return std::unexpected{std::move(body).error()};
  }
  ++core_->stats_.messages_sent;
  write_ended_ = last;
  if (pipe_ == nullptr)
    if (auto chosen = co_await before_first_write(unsent_.used() + body->size(), last); !chosen) {
      if (!may_move()) co_return chosen;
      keep(unsent_.take());
      if (!body->empty()) keep(std::move(*body));
      co_return result<>{};
    }
  list_node<native_client_call, unsent_tag>::unlink();
  slice frames = outgoing_frames();
  if (!body->empty()) co_return co_await send_both(std::move(frames), std::move(*body), last);
  // As `send`, without a coroutine of its own where there is room.
  auto done = pipe_->try_write(frames, last);
  if (!done) done = co_await pipe_->write(std::move(frames), last);
  co_return sent(*done);
}

task<result<>> native_client_call::finish_writing() {
  if (moving_ || may_move()) {
    write_ended_ = true;
    co_return result<>{};
  }
  if (successor_) co_return co_await successor_->finish_writing();
  if (final_ || std::exchange(write_ended_, true)) co_return result<>{};
  if (pipe_ == nullptr)
    if (auto chosen = co_await before_first_write(unsent_.used(), true); !chosen)
      co_return may_move() ? result<>{} : std::move(chosen);
  list_node<native_client_call, unsent_tag>::unlink();
  co_return co_await send(outgoing_frames(), true);
}

// Receiving
// -----------------------------------------------------------------------------------------

result<std::optional<payload>> native_client_call::outcome() const {
  if (final_->ok()) return std::optional<payload>{};
  return std::unexpected{*final_};
}

/// True: something happened (a message, headers, the end). False: bytes are needed.
bool native_client_call::next_event(std::optional<payload>& message) {
  auto event = parser_.next();
  if (!event) {
    cancel(status_of(event.error()));
    return true;
  }
  if (!*event) return false;
  if (auto* m = std::get_if<wire::received_message>(&**event)) {
    ++core_->stats_.messages_received;
    headers_known_ = true;
    commit();
    auto plain = unpack(std::move(*m), core_->options_.limits.max_message);
    if (plain)
      message = std::move(*plain);
    else
      cancel(std::move(plain).error());
  } else if (auto* h = std::get_if<wire::received_headers>(&**event)) {
    headers_ = std::move(h->headers);
    headers_known_ = true;
    commit();
  } else if (auto* s = std::get_if<wire::received_status>(&**event)) {
    trailers_ = std::move(s->trailers);
    unseen_ = s->unseen;
    // The end is most often here already; taking it spares the server a STOP_SENDING.
    (void)pipe_->try_read();
    finish(std::move(s->status));
  }
  return true;
}

void native_client_call::take(weft::result<slice> arrived) {
  if (final_) return;
  if (!arrived) {
    const error& why = arrived.error();
    if (why == errc::reset && is_refusal(why)) return end_unseen(status_of(why));
    if (why == errc::reset) return end(status_of(why));
    if (why == errc::exhausted || why == errc::too_large) return cancel(status_of(why));
    return end(core_->closed_ ? *core_->closed_ : status_of(why));
  }
  if (arrived->empty())
    parser_.finish();
  else
    parser_.push(std::move(*arrived));
}

/// Reads on until a message, the end, or with `headers_only` initial metadata is there.
task<result<std::optional<payload>>> native_client_call::read_on(bool headers_only) {
  while (true) {
    if (moving_ || may_move()) {
      co_await move();
      if (moving_) co_return fail(code::cancelled, "the read was cancelled");
      if (successor_ && headers_only) co_return std::optional<payload>{};
      if (successor_) co_return co_await successor_->read();
    }
    if (final_) co_return outcome();
    if (headers_only && headers_known_) co_return std::optional<payload>{};
    std::optional<payload> message;
    if (next_event(message)) {
      if (message) co_return message;
      continue;
    }
    if (pipe_ == nullptr)
      if (auto chosen = co_await before_first_write(npos, false); !chosen) continue;
    auto arrived = pipe_->try_read();
    if (!arrived) {
      send_header();
      arrived = co_await pipe_->read();
      if (!*arrived && (*arrived).error() == errc::cancelled && !final_)
        co_return fail(code::cancelled, "the read was cancelled");
    }
    take(std::move(*arrived));
  }
}

task<result<std::optional<payload>>> native_client_call::take_early() {
  std::optional<payload> message = std::move(early_);
  early_.reset();
  co_return message;
}

task<result<std::optional<payload>>> native_client_call::read() {
  if (successor_ && !moving_) return successor_->read();
  return early_ ? take_early() : read_on(false);
}

task<result<metadata>> native_client_call::read_headers() {
  if (!headers_known_ && !successor_ && (!final_ || moving_ || may_move())) {
    auto message = co_await read_on(true);
    if (!message && !final_) co_return std::unexpected{std::move(message).error()};
    if (message && *message) early_ = std::move(*message);
  }
  if (successor_) co_return co_await successor_->read_headers();
  if (!headers_known_ && !final_->ok()) co_return std::unexpected{*final_};
  co_return headers_;
}

// Ending
// --------------------------------------------------------------------------------------------

void native_client_call::finish(status s) noexcept {
  if (final_) return;
  final_ = std::move(s);
  list_node<native_client_call, open_tag>::unlink();
  list_node<native_client_call, unsent_tag>::unlink();
  if (deadline_.armed()) core_->shard_.disarm(deadline_);
  if (response_ != nullptr) {
    response_->headers = headers_;
    response_->trailers = trailers_;
    response_->peer = core_->info_.remote;
    response_->transport = core_->info_.name;
  }
  ++core_->stats_.calls_finished;
  if (--core_->stats_.running != 0) return;
  core_->became_idle();
  core_->idle_event_.notify();
}

void native_client_call::end(status why) {
  finish(std::move(why));
}

void native_client_call::end_unseen(status why) {
  if (!final_) unseen_ = true;
  finish(std::move(why));
}

void native_client_call::cancel(status why) {
  if (moving_ || may_move()) {
    final_ = std::move(why);
    commit();
    return stop_moving();
  }
  if (successor_) return successor_->cancel(std::move(why));
  if (final_) return;
  const std::uint64_t code = wire::call_error(why.code());
  ++core_->stats_.cancels_sent;
  finish(std::move(why));
  // Wakes who waits, who may destroy this call.
  if (pipe_ != nullptr)
    pipe_->abandon(code);
  else
    stop_waiting();
}

void native_client_call::give_up() noexcept {
  // Most calls are over by now: nothing is made up for them.
  const bool over = final_ && !successor_ && !moving_ && !may_move();
  if (!over) cancel({code::cancelled, "the call was given up"});
}

}  // namespace weft::rpc::native
