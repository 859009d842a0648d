#include <weft/rpc/native/server_call.hpp>

#include <chrono>
#include <format>
#include <utility>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/co_spawn.hpp>
#include <asio/this_coro.hpp>

namespace weft::rpc::native {
namespace {

/// A call's first frames up to this size wait for what comes next, until the turn ends.
constexpr std::size_t hold_up_to = 4 * 1024;
/// Room for the status of a usual reply.
constexpr std::size_t status_room = 32;

}  // namespace

weft::result<std::string_view> method_table::resolve(const wire::method_reference& method,
                                                     bool& acknowledge) {
  acknowledge = false;
  const std::uint64_t number = method.number;
  if (number == 0) return std::string_view{};
  const bool known = number < paths_.size() && paths_[number];
  if (method.path.empty()) {
    if (known) return std::string_view{*paths_[number]};
    return wire::wire_error(errc::protocol, wire::error_code::method,
                            "method number " + std::to_string(number) + " was never acknowledged");
  }
  if (known) {
    if (*paths_[number] != method.path)
      return wire::wire_error(errc::protocol, wire::error_code::method,
                              "method number " + std::to_string(number) + " was given twice");
    return std::string_view{*paths_[number]};
  }
  if (number > wire::max_methods) return std::string_view{};
  if (paths_.size() <= number) paths_.resize(number + 1);
  paths_[number] = std::make_unique<std::string>(method.path);
  acknowledge = true;
  return std::string_view{*paths_[number]};
}

server_core::server_core(io::shard& shard, dispatcher& calls, session_options options)
    : shard_{shard}, calls_{calls}, options_{std::move(options)} {}

wire::settings server_core::own_settings() const {
  wire::settings s;
  s.max_message = options_.limits.max_message;
  s.max_metadata = options_.limits.max_metadata;
  s.compressions = options_.compressions;
  s.max_calls = options_.limits.max_concurrent_calls;
  return s;
}

std::optional<status> server_core::refuse() const {
  if (stats_.running < options_.limits.max_concurrent_calls) return std::nullopt;
  return status{code::resource_exhausted,
                "the server runs " + std::to_string(stats_.running) +
                    " calls of this connection already; the call was not looked at and can safely "
                    "be retried"};
}

void server_core::start(std::unique_ptr<native_server_call> call) {
  ++stats_.calls_started;
  ++stats_.running;
  native_server_call& c = *call;
  running_.push_back(c);
  auto slot = c.cancel_.slot();
  // The call goes with its completion handler: its signal must outlive the coroutine.
  asio::co_spawn(shard_.get_executor(), run(c),
                 asio::bind_cancellation_slot(
                     slot, [call = std::move(call)](std::exception_ptr) mutable { call.reset(); }));
}

task<> server_core::run(native_server_call& call) {
  // Cancellation is a value here, not an exception: waits that it ends say so.
  co_await asio::this_coro::throw_if_cancelled(false);
  auto header = call.try_header();
  if (!header) header = co_await call.receive_header();
  status s;
  if (!*header)
    s = std::move(*header).error();
  else
    s = co_await call.core_->calls_.dispatch(call);
  co_await call.conclude(std::move(s));
}

void server_core::end_all(const error& why) noexcept {
  // Owners only take note; their coroutines end on the loop's next steps.
  list<native_server_call, running_tag> ending;
  ending.splice(running_);
  while (!ending.empty()) {
    native_server_call& call = ending.front();
    running_.push_back(call);
    call.abandoned(why);
  }
}

void server_core::conclude_all(const status& why) noexcept {
  list<native_server_call, running_tag> ending;
  ending.splice(running_);
  while (!ending.empty()) {
    native_server_call& call = ending.front();
    running_.push_back(call);
    call.override_ = why;
    call.cancel_.emit(asio::cancellation_type::terminal);
  }
}

task<> server_core::idle() {
  while (stats_.running != 0)
    if (!co_await idle_event_.wait()) break;
}

void server_core::hold(native_server_call& call) {
  held_.push_back(call);
  if (std::exchange(release_scheduled_, true)) return;
  shard_.at_end_of_turn([self = weak_from_this()] {
    auto core = self.lock();
    if (!core) return;
    core->release_scheduled_ = false;
    while (!core->held_.empty()) {
      native_server_call& call = core->held_.front();
      call.list_node<native_server_call, held_tag>::unlink();
      call.release_held();
    }
  });
}

native_server_call::native_server_call(std::shared_ptr<server_core> core, bool one_way)
    : core_{std::move(core)},
      parser_{wire::call_parser::side::client, core_->parse_limits(),
              core_->options_.memory.get()} {
  info_.one_way = one_way;
  info_.protocol = "native";
  info_.transport = core_->info_.name;
  info_.peer = core_->info_.remote;
}

native_server_call::~native_server_call() {
  --core_->stats_.running;
  ++core_->stats_.calls_finished;
  if (info_.one_way) ++core_->stats_.one_way;
  core_->call_ended();
  if (core_->stats_.running == 0) core_->idle_event_.notify();
}

// Receiving
// -----------------------------------------------------------------------------------------

status native_server_call::fault(const error& why) {
  fault_ = status_of(why);
  return *fault_;
}

/// True: bytes or the end were taken. False: nothing there yet.
result<bool> native_server_call::take(std::optional<weft::result<slice>> arrived) {
  if (!arrived) return false;
  if (!*arrived) return std::unexpected{fault((*arrived).error())};
  if ((*arrived)->empty())
    parser_.finish();
  else
    parser_.push(std::move(**arrived));
  return true;
}

std::optional<result<>> native_server_call::try_header() {
  while (true) {
    auto event = parser_.next();
    if (!event) return std::unexpected{fault(event.error())};
    if (*event) {
      if (auto* request = std::get_if<wire::received_request>(&**event))
        return on_header(std::move(*request));
      return std::unexpected{status{code::internal, "the call does not start with its header"}};
    }
    auto taken = take(pipe_->try_read());
    if (!taken) return std::unexpected{std::move(taken).error()};
    if (!*taken) return std::nullopt;
  }
}

task<result<>> native_server_call::receive_header() {
  arm_header_timeout();
  while (true) {
    if (auto taken = take(co_await pipe_->read()); !taken)
      co_return std::unexpected{std::move(taken).error()};
    if (auto header = try_header()) co_return std::move(*header);
  }
}

/// A peer that begins calls and leaves it at that must not hold places for calls for ever.
void native_server_call::arm_header_timeout() {
  const duration patience = core_->options_.header_timeout;
  const time_point now = io::now();
  core_->shard_.arm(
      deadline_, patience < never - now ? now + patience : never, [this, patience](time_point) {
        override_ = status{
            code::deadline_exceeded,
            std::format("the call's header was not complete {} after its beginning; send it whole",
                        std::chrono::duration_cast<std::chrono::milliseconds>(patience))};
        cancel_.emit(asio::cancellation_type::terminal);
      });
}

result<> native_server_call::on_header(wire::received_request request) {
  bool acknowledge = false;
  auto path = core_->methods_.resolve(request.method, acknowledge);
  if (!path) return std::unexpected{fault(path.error())};
  if (path->empty()) {
    path_ = request.method.path;
    info_.path = path_;
  } else {
    info_.path = *path;
  }
  if (acknowledge) core_->acknowledge_method(request.method.number);
  if (deadline_.armed()) core_->shard_.disarm(deadline_);
  info_.metadata = std::move(request.metadata);
  info_.peer_subject = core_->peer_subject_;
  if (request.urgency != 3) pipe_->set_urgency(request.urgency);
  if (request.remaining) {
    info_.deadline = io::now() + *request.remaining;
    arm_deadline();
  }
  return {};
}

void native_server_call::arm_deadline() {
  core_->shard_.arm(deadline_, info_.deadline, [this](time_point) {
    expired_ = true;
    // A peer that does not even take the status is given up.
    if (concluding_) return reset_late();
    cancel_.emit(asio::cancellation_type::terminal);
  });
}

void native_server_call::reset_late() noexcept {
  give_up({code::deadline_exceeded, {}});
}

/// The status is told by a reset: its code alone.
void native_server_call::give_up(const status& why) noexcept {
  gone_ = true;
  pipe_->abandon(wire::call_error(why.code()));
}

task<result<std::optional<payload>>> native_server_call::read() {
  while (true) {
    if (fault_) co_return std::unexpected{*fault_};
    if (parser_.done()) co_return std::optional<payload>{};
    auto event = parser_.next();
    if (!event) co_return std::unexpected{fault(event.error())};
    if (*event) {
      auto* message = std::get_if<wire::received_message>(&**event);
      if (message == nullptr) continue;
      ++core_->stats_.messages_received;
      auto plain = unpack(std::move(*message), core_->options_.limits.max_message);
      if (!plain) co_return std::unexpected{*(fault_ = std::move(plain).error())};
      co_return std::optional<payload>{std::move(*plain)};
    }
    auto arrived = pipe_->try_read();
    if (!arrived) arrived = co_await pipe_->read();
    // A read that was cancelled may be tried again; it is no fault of the call.
    if (!*arrived && (*arrived).error() == errc::cancelled)
      co_return std::unexpected{end_status({code::cancelled, "the call was cancelled"})};
    if (auto taken = take(std::move(arrived)); !taken)
      co_return std::unexpected{end_status(std::move(taken).error())};
  }
}

// Sending
// -------------------------------------------------------------------------------------------

task<result<>> native_server_call::flush_held() {
  list_node<native_server_call, held_tag>::unlink();
  return send(held_.take());
}

task<result<>> native_server_call::send(slice frames) {
  auto done = pipe_->try_write(frames, false);
  if (!done) done = co_await pipe_->write(std::move(frames), false);
  if (!*done && (*done).error() == errc::cancelled) torn_ = true;
  if (!*done) co_return std::unexpected{end_status(status_of((*done).error()))};
  co_return result<>{};
}

void native_server_call::release_held() {
  // The first write of a pipe: there is room.
  if (!held_.empty()) (void)pipe_->try_write(held_.take(), false);
}

task<result<>> native_server_call::send_headers(const metadata& headers) {
  if (gone_) co_return fail(code::cancelled, "the client has given the call up");
  if (std::exchange(answered_, true))
    co_return fail(code::failed_precondition, "initial metadata must precede all messages");
  if (info_.one_way) co_return result<>{};
  if (headers.wire_size() > core_->peer_.max_metadata)
    co_return fail(code::resource_exhausted, "initial metadata exceeds what the client accepts");
  std::byte* at = held_.reserve(wire::encoded_size_of_headers(headers) + status_room);
  held_.commit(wire::encode_headers(headers, at));
  core_->hold(*this);
  co_return result<>{};
}

task<result<>> native_server_call::write(const outgoing& message) {
  if (gone_) co_return fail(code::cancelled, "the client has given the call up");
  if (info_.one_way) co_return result<>{};
  if (message.size() > core_->peer_.max_message)
    co_return fail(code::resource_exhausted, "a message of " + std::to_string(message.size()) +
                                                 " bytes exceeds the client's limit of " +
                                                 std::to_string(core_->peer_.max_message));
  const bool first = held_.empty() && !std::exchange(answered_, true);
  if (!held_.empty() && held_.used() + message.size() > hold_up_to)
    if (auto flushed = co_await flush_held(); !flushed) co_return flushed;
  const auto algorithm = core_->peer_.accepts(compression_) ? compression_ : compression::identity;
  const bool holding = first || !held_.empty();
  auto body = append_or_share(held_, message, algorithm, holding ? status_room : 0);
  if (!body) co_return std::unexpected{std::move(body).error()};
  ++core_->stats_.messages_sent;
  if (!body->empty()) {
    if (auto flushed = co_await flush_held(); !flushed) co_return flushed;
    co_return co_await send(std::move(*body));
  }
  if (holding && held_.used() <= hold_up_to) {
    core_->hold(*this);
    co_return result<>{};
  }
  co_return co_await flush_held();
}

status native_server_call::end_status(status s) const {
  if (s.ok() || !expired_) return s;
  return {code::deadline_exceeded, "the deadline passed on the server"};
}

task<> native_server_call::conclude(status s) {
  list_node<native_server_call, held_tag>::unlink();
  concluding_ = true;
  if (gone_ || info_.one_way) {
    if (!parser_.done()) pipe_->stop_reading(0);
    co_return;
  }
  if (override_) s = *override_;
  // Behind a part of a message no status would be understood.
  if (torn_) {
    give_up(end_status(std::move(s)));
    co_return;
  }
  s = wire::fitted(end_status(std::move(s)), trailers_, core_->peer_.max_metadata);
  std::byte* at = held_.reserve(wire::encoded_size(s, trailers_));
  held_.commit(wire::encode(s, trailers_, at));
  slice frames = held_.take();
  // The last of the request is often here already: then nothing needs to be stopped.
  if (!parser_.done() && !fault_) (void)drained();
  auto done = pipe_->try_write(frames, true);
  if (!done && expired_) {
    pipe_->abandon(wire::call_error(code::deadline_exceeded));
    co_return;
  }
  if (!done || !pipe_->flushed()) {
    // The handler may have been cancelled; its status is sent all the same.
    co_await asio::this_coro::reset_cancellation_state(asio::enable_terminal_cancellation());
    if (!done) done = co_await pipe_->write(std::move(frames), true);
    if (*done && !gone_) co_await pipe_->wait_flushed();
  }
  if (!parser_.done() && !gone_) pipe_->stop_reading(0);
}

/// Whether the request ends with what has arrived.
bool native_server_call::drained() {
  while (true) {
    auto event = parser_.next();
    if (!event) return false;
    if (*event) {
      if (parser_.done()) return true;
      continue;
    }
    auto taken = take(pipe_->try_read());
    if (!taken || !*taken) return false;
  }
}

void native_server_call::abandoned(const error& why) noexcept {
  if (gone_) return;
  gone_ = true;
  ++core_->stats_.cancels_received;
  if (!fault_) fault_ = status{code::cancelled, "the client gave the call up: " + why.message()};
  cancel_.emit(asio::cancellation_type::terminal);
}

}  // namespace weft::rpc::native
