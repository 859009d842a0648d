#include <weft/rpc/native/quic_session.hpp>

#include <utility>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>

#include <weft/rpc/native/client_call.hpp>
#include <weft/rpc/native/pooled.hpp>
#include <weft/rpc/native/server_call.hpp>

namespace weft::rpc::native {
namespace {

/// Header and message of a call that may share a lane.
constexpr std::size_t lane_limit = 4 * 1024 + 256;

std::size_t largest_call(const limits& l) noexcept {
  return l.max_message + l.max_metadata + wire::header_allowance + 64;
}

transport_info info_of(const quic::connection& c) {
  transport_info info;
  info.name = "quic";
  info.local = c.current_path().local;
  info.remote = c.current_path().remote;
  info.group = c.session().group;
  info.cipher = c.session().cipher;
  return info;
}

// Server
// --------------------------------------------------------------------------------------------

class quic_server_call final : public native_server_call, public pooled<quic_server_call> {
 public:
  /// `early`: it may be a replay.
  quic_server_call(std::shared_ptr<server_core> core, quic::stream s, bool early)
      : native_server_call{std::move(core), false}, pipe_{std::move(s)} {
    set_early_data(early);
    attach(pipe_);
  }

 private:
  quic_pipe pipe_;
};

class lane_server_call final : public native_server_call, public pooled<lane_server_call> {
 public:
  lane_server_call(std::shared_ptr<server_core> core, std::shared_ptr<mux> m, wire::record_tag tag,
                   bool early)
      : native_server_call{std::move(core), tag.one_way}, mux_{std::move(m)}, stream{*mux_, tag} {
    set_early_data(early);
    attach(stream);
  }

 private:
  std::shared_ptr<mux> mux_;

 public:
  mux_stream stream;
};

class quic_server final : public server_core, public quic_carrier {
 public:
  quic_server(quic::connection connection, io::shard& shard, dispatcher& calls,
              session_options options)
      : server_core{shard, calls, std::move(options)},
        quic_carrier{std::move(connection), shard,
                     mux_config{.is_server = true,
                                .flow_control = false,
                                .max_unread = largest_call(options_.limits),
                                .memory = options_.memory},
                     largest_call(options_.limits)} {
    info_ = info_of(connection_);
    peer_subject_ = connection_.session().peer_subject;
  }

  void begin() { quic_carrier::begin(shared_from_this(), own_settings()); }
  io::shard& shard_of() noexcept { return server_core::shard_; }

  void go_away() {
    if (std::exchange(going_, true) || over()) return;
    send(wire::goaway{first_unseen_});
  }
  task<> drained() {
    co_await idle();
    while (!over() && !client_done_)
      if (!co_await over_event_.wait()) co_return;
  }
  task<> over_and_idle() {
    while (!over())
      if (!co_await over_event_.wait()) co_return;
    co_await idle();
  }
  void close(const error& why) noexcept { shut(why); }

  static task<> wind_down(std::shared_ptr<quic_server> self, status why) {
    self->go_away();
    io::timer patience;
    self->shard_of().arm(patience, io::now() + wind_down_time, [core = self.get()](time_point) {
      core->shut(error{errc::closed, layer::rpc, "the client did not take leave in time"});
    });
    self->conclude_all(why);
    co_await self->drained();
    self->shut(error{errc::closed, layer::rpc, why.to_string()});
  }

 private:
  void on_call_stream(quic::stream s) override {
    const auto id = static_cast<std::uint64_t>(s.id());
    if (going_ && id >= first_unseen_) {
      const auto refused = static_cast<std::uint64_t>(wire::error_code::refused);
      s.reset(refused);
      return s.stop_sending(refused);
    }
    first_unseen_ = std::max(first_unseen_, id + 4);
    if (auto refusal = refuse()) {
      buffer answer = buffer::allocate(wire::encoded_size(*refusal, {}));
      wire::encode(*refusal, {}, answer.data());
      (void)s.try_write(std::move(answer).freeze());
      (void)s.finish();
      return s.stop_sending(0);
    }
    const bool early = s.early_data() && may_be_replayed();
    start(std::make_unique<quic_server_call>(shared_from_this(), std::move(s), early));
  }

  /// Whoever replays a client's first flight cannot finish its handshake.
  bool may_be_replayed() const noexcept { return !connection_.is_confirmed(); }

  // Lanes.
  mux_stream* open_stream(wire::record_tag tag) override {
    if (!tag.one_way) open_lanes();
    if (going_) {
      const status why = refused_status();
      buffer answer = buffer::allocate(wire::encoded_size_of_refusal(why));
      wire::encode_refusal(why, answer.data());
      return turn_away(tag, std::move(answer).freeze());
    }
    if (auto refusal = refuse()) {
      buffer answer = buffer::allocate(wire::encoded_size(*refusal, {}));
      wire::encode(*refusal, {}, answer.data());
      return turn_away(tag, std::move(answer).freeze());
    }
    if (!tag.one_way) ++stats_.lane_calls;
    fresh_ = std::make_unique<lane_server_call>(shared_from_this(), lanes_, tag, may_be_replayed());
    return &fresh_->stream;
  }
  mux_stream* turn_away(wire::record_tag tag, slice answer) {
    if (!tag.one_way) lanes_->send_record({tag.call, false, true}, std::move(answer));
    return nullptr;
  }
  void opened(mux_stream&) override { start(std::move(fresh_)); }
  bool takes_lane_calls() const noexcept override {
    return stats_.running < options_.limits.max_concurrent_calls && !lanes_->congested();
  }
  void call_ended() override { lane_room_.notify(); }

  void acknowledge_method(std::uint64_t number) override { send(wire::method_ack{number}); }

  weft::result<> on_control(const wire::control_event& event) override {
    if (const auto* s = std::get_if<wire::settings>(&event)) {
      peer_ = *s;
    } else if (const auto* c = std::get_if<wire::cancel>(&event)) {
      // Calls on streams are given up by RESET_STREAM and STOP_SENDING.
      if (c->call % 2 != 0) lanes_->on_cancel(c->call / 2, given_up_by("client", c->code));
    } else if (std::get_if<wire::goaway>(&event)) {
      client_done_ = true;
      over_event_.notify();
    }
    return {};
  }
  void on_over(const error& why) noexcept override { end_all(why); }
  // A lane that was reset takes only its calls with it: those it had brought whole go on.
  weft::result<> on_lane_reset(std::uint64_t number, const error& why) override {
    if (number != 0) lanes_->on_cancel(number, why);
    return {};
  }

  std::unique_ptr<lane_server_call> fresh_;
  std::uint64_t first_unseen_ = 0;
  bool going_ = false;
  bool client_done_ = false;
};

class quic_server_session final : public server_session {
 public:
  explicit quic_server_session(std::shared_ptr<quic_server> core) noexcept
      : core_{std::move(core)} {
    core_->begin();
  }
  ~quic_server_session() override {
    core_->close(error{errc::closed, layer::rpc, "the session was destroyed"});
  }
  task<> drain() override { return drain_core(core_); }
  void close(status why) noexcept override {
    asio::co_spawn(core_->shard_of().get_executor(), quic_server::wind_down(core_, std::move(why)),
                   asio::detached);
  }
  task<> finished() override { return finish_core(core_); }
  session_stats stats() const noexcept override { return core_->stats_; }

 private:
  static task<> drain_core(std::shared_ptr<quic_server> core) {
    core->go_away();
    co_await core->drained();
  }
  static task<> finish_core(std::shared_ptr<quic_server> core) { co_await core->over_and_idle(); }
  std::shared_ptr<quic_server> core_;
};

// Client
// --------------------------------------------------------------------------------------------

class quic_client;

class quic_client_call final : public native_client_call, public pooled<quic_client_call> {
 public:
  quic_client_call(std::shared_ptr<quic_client> core, const call_options& options, bool may_share);
  ~quic_client_call() override { give_up(); }
  bool is_from(std::uint64_t first) const noexcept override {
    // On lanes the server refuses call by call.
    return stream_ && static_cast<std::uint64_t>(stream_->stream().id()) >= first;
  }
  /// A stream of the call's own; waits for credit until the call ends.
  task<result<>> obtain_stream();

 protected:
  task<result<>> before_first_write(std::size_t framed, bool last) override;
  void stop_waiting() noexcept override {
    if (auto waiting = opening_) waiting->done.notify();
  }

 private:
  /// A stream on its way. Not awaited directly: the deadline ends the wait, too.
  struct opening {
    io::event done;
    asio::cancellation_signal stop;
    std::optional<weft::result<quic::stream>> stream;
  };
  static task<> open(std::shared_ptr<quic_client> client, std::shared_ptr<opening> into);
  task<weft::result<quic::stream>> wait_for_stream();
  void use(quic::stream s) {
    if (urgency_ != 3) s.set_priority(urgency_);
    stream_.emplace(std::move(s));
    attach(*stream_);
  }

  std::shared_ptr<quic_client> client_;
  std::optional<quic_pipe> stream_;
  std::optional<mux_stream> share_;
  std::shared_ptr<opening> opening_;
  std::uint8_t urgency_;
  bool may_share_;
};

class quic_client final : public client_core, public quic_carrier {
 public:
  quic_client(quic::connection connection, io::shard& shard, session_options options)
      : client_core{shard, std::move(options), info_of(connection)},
        quic_carrier{std::move(connection), shard,
                     mux_config{.is_server = false,
                                .flow_control = false,
                                .max_unread = largest_call(options_.limits),
                                .memory = options_.memory},
                     largest_call(options_.limits)} {}

  void begin() {
    quic_carrier::begin(shared_from_this(), own_settings());
    if (!connection_.is_confirmed())
      asio::co_spawn(shard_of().get_executor(), await_handshake(shared()), asio::detached);
  }
  std::shared_ptr<quic_client> shared() {
    return std::static_pointer_cast<quic_client>(shared_from_this());
  }

  static task<result<std::unique_ptr<client_call>>> start_call(std::shared_ptr<quic_client> self,
                                                               const method& m,
                                                               const call_options& options,
                                                               time_point deadline) {
    if (auto refused = self->refusal()) co_return std::unexpected{std::move(*refused)};
    const bool may_share = self->options_.lanes && m.kind == call_kind::unary;
    auto call = std::make_unique<quic_client_call>(self, options, may_share);
    if (auto begun = call->begin(m, options, deadline); !begun)
      co_return std::unexpected{std::move(begun).error()};
    if (may_share) co_return call;
    if (auto obtained = co_await call->obtain_stream(); !obtained)
      co_return std::unexpected{std::move(obtained).error()};
    co_return call;
  }

  /// Early data that the server did not take is gone, control stream and all.
  static task<> await_handshake(std::shared_ptr<quic_client> self) {
    auto done = co_await self->connection().confirmed();
    if (!done || self->over()) co_return;
    self->info_ = info_of(self->connection());
    if (self->connection().session().early_data_accepted) co_return;
    const status why{code::unavailable,
                     "the server did not take early data; the call was not looked at and can "
                     "safely be retried"};
    self->closed_ = why;
    self->refuse_all(why);
    self->shut(error{errc::closed, layer::rpc, "early data was not taken"});
  }

  mux& lanes() noexcept { return *lanes_; }
  io::shard& shard_of() noexcept { return client_core::shard_; }
  void share_lanes() { open_lanes(); }

  task<result<>> one_way(const method& m, const call_options& options, time_point deadline,
                         const outgoing& message) {
    if (closed_) co_return std::unexpected{*closed_};
    if (server_going_) co_return std::unexpected{refused_status()};
    if (message.size() > peer_.max_message)
      co_return fail(code::resource_exhausted, "the message exceeds the server's limit");
    frame_buffer frames;
    if (auto h = append_header(frames, m, options, deadline, message.size() + 16); !h) co_return h;
    if (auto f = append_message(frames, message, allowed(options.request_compression), 0); !f)
      co_return f;
    open_lanes();
    co_return co_await send_one_way(shared(), frames.take(), options.urgency);
  }
  static task<result<>> send_one_way(std::shared_ptr<quic_client> self, slice frames,
                                     std::uint8_t urgency) {
    mux_stream stream{*self->lanes_, {self->lanes_->next_number(), true, false}};
    stream.set_urgency(urgency);
    auto done = stream.try_write(std::move(frames), true);
    if (!stream.flushed()) co_await stream.wait_flushed();
    ++self->stats_.one_way;
    if (!*done) co_return std::unexpected{status_of((*done).error())};
    if (!stream.flushed()) co_return fail(code::cancelled, "cancelled while sending");
    co_return result<>{};
  }

  static task<> drained(std::shared_ptr<quic_client> self) {
    co_await self->idle();
    co_await self->lanes_->delivered();
  }
  void close(const status& why) noexcept {
    if (over()) return;
    closed_ = why;
    shut(error{errc::closed, layer::rpc, why.message()});
  }

 private:
  mux_stream* open_stream(wire::record_tag) override { return nullptr; }
  void opened(mux_stream&) override {}
  void on_call_stream(quic::stream s) override {
    // Servers start no calls.
    s.reset(static_cast<std::uint64_t>(wire::error_code::unknown_stream));
    s.stop_sending(static_cast<std::uint64_t>(wire::error_code::unknown_stream));
  }
  weft::result<> on_control(const wire::control_event& event) override {
    if (const auto* s = std::get_if<wire::settings>(&event)) {
      peer_ = *s;
    } else if (const auto* a = std::get_if<wire::method_ack>(&event)) {
      methods_.acknowledged(a->number);
    } else if (const auto* g = std::get_if<wire::goaway>(&event)) {
      server_going_ = true;
      refuse_from(g->first_refused, refused_status());
      if (stats_.running == 0) became_idle();
    } else if (const auto* c = std::get_if<wire::cancel>(&event)) {
      if (c->call % 2 != 0) lanes_->on_cancel(c->call / 2, given_up_by("server", c->code));
    }
    return {};
  }
  void became_idle() override {
    if (server_going_ && !over() && !std::exchange(told_done_, true)) send(wire::goaway{0});
  }
  // Nobody knows whose replies it would have brought.
  weft::result<> on_lane_reset(std::uint64_t, const error&) override {
    return wire::wire_error(errc::protocol, wire::error_code::critical_stream,
                            "the server reset a lane of replies");
  }
  void on_over(const error& why) noexcept override {
    if (!closed_)
      closed_ = status{code::unavailable, "the connection was lost: " + why.to_string()};
    end_all(*closed_);
  }

  bool told_done_ = false;
};

quic_client_call::quic_client_call(std::shared_ptr<quic_client> core, const call_options& options,
                                   bool may_share)
    : native_client_call{core, options},
      client_{std::move(core)},
      urgency_{options.urgency},
      may_share_{may_share} {}

task<result<>> quic_client_call::before_first_write(std::size_t framed, bool last) {
  if (may_share_ && last && framed <= lane_limit) {
    client_->share_lanes();
    mux& lanes = client_->lanes();
    ++client_->stats_.lane_calls;
    share_.emplace(lanes, wire::record_tag{lanes.next_number(), false, false});
    attach(*share_);
    co_return result<>{};
  }
  co_return co_await obtain_stream();
}

task<> quic_client_call::open(std::shared_ptr<quic_client> client, std::shared_ptr<opening> into) {
  co_await asio::this_coro::throw_if_cancelled(false);
  into->stream = co_await client->connection().open_stream();
  into->done.notify();
}

task<weft::result<quic::stream>> quic_client_call::wait_for_stream() {
  const auto waiting = opening_ = std::make_shared<opening>();
  asio::co_spawn(
      client_->shard_of().get_executor(), open(client_, waiting),
      asio::bind_cancellation_slot(waiting->stop.slot(), [waiting](std::exception_ptr) {}));
  (void)co_await waiting->done.wait();
  opening_.reset();
  if (waiting->stream) co_return std::move(*waiting->stream);
  waiting->stop.emit(asio::cancellation_type::terminal);
  co_return weft::fail(errc::cancelled, layer::rpc, "the wait for stream credit was cancelled");
}

task<result<>> quic_client_call::obtain_stream() {
  auto opened = client_->connection().try_open_stream();
  if (!opened) opened = co_await wait_for_stream();
  // Meanwhile the call may have ended.
  if (auto known = known_outcome()) co_return std::unexpected{std::move(*known)};
  if (!*opened) {
    status why = client_->closed_ ? *client_->closed_ : status_of((*opened).error());
    end_unseen(why);
    co_return std::unexpected{std::move(why)};
  }
  use(std::move(**opened));
  co_return result<>{};
}

class quic_transport final : public transport {
 public:
  explicit quic_transport(std::shared_ptr<quic_client> core) noexcept : core_{std::move(core)} {
    core_->begin();
  }
  ~quic_transport() override { core_->close({code::unavailable, "the transport was destroyed"}); }
  task<result<std::unique_ptr<client_call>>> start(const method& m, const call_options& options,
                                                   time_point deadline) override {
    return quic_client::start_call(core_, m, options, deadline);
  }
  task<result<>> one_way(const method& m, const call_options& options, time_point deadline,
                         const outgoing& message) override {
    return core_->one_way(m, options, deadline, message);
  }
  bool usable() const noexcept override { return !core_->closed_ && !core_->server_going_; }
  transport_info info() const override {
    transport_info now = core_->info_;
    now.local = core_->connection().current_path().local;
    now.remote = core_->connection().current_path().remote;
    return now;
  }
  void close(status why) noexcept override { core_->close(why); }
  task<> drain() override { return quic_client::drained(core_); }
  quic::connection* connection() noexcept { return &core_->connection(); }

 private:
  std::shared_ptr<quic_client> core_;
};

}  // namespace

std::unique_ptr<server_session> serve(quic::connection connection, io::shard& shard,
                                      dispatcher& calls, session_options options) {
  return std::make_unique<quic_server_session>(
      std::make_shared<quic_server>(std::move(connection), shard, calls, std::move(options)));
}

std::unique_ptr<transport> open(quic::connection connection, io::shard& shard,
                                session_options options) {
  return std::make_unique<quic_transport>(
      std::make_shared<quic_client>(std::move(connection), shard, std::move(options)));
}

quic::connection* connection_of(transport& t) noexcept {
  auto* over_quic = dynamic_cast<quic_transport*>(&t);
  return over_quic == nullptr ? nullptr : over_quic->connection();
}

}  // namespace weft::rpc::native
