#include <weft/rpc/native/byte_stream_session.hpp>

#include <utility>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>

#include <weft/rpc/native/client_call.hpp>
#include <weft/rpc/native/pooled.hpp>
#include <weft/rpc/native/server_call.hpp>

namespace weft::rpc::native {
namespace {

/// The whole of a record behind its length.
constexpr std::uint64_t max_record = 64 * 1024 + wire::max_varint_size;

class stream_link final : public link {
 public:
  explicit stream_link(std::shared_ptr<io::byte_stream> stream) noexcept
      : stream_{std::move(stream)} {}
  task<weft::result<>> write(std::span<const slice> parts) override {
    return stream_->write(parts);
  }

 private:
  std::shared_ptr<io::byte_stream> stream_;
};

}  // namespace

byte_stream_carrier::byte_stream_carrier(std::unique_ptr<io::byte_stream> stream, io::shard& shard,
                                         std::shared_ptr<memory_budget> memory,
                                         std::size_t max_unread, bool is_server)
    : shard_{shard},
      mux_{std::make_shared<mux>(
          shard,
          mux_config{.is_server = is_server, .max_unread = max_unread, .memory = std::move(memory)},
          *this)},
      stream_{std::move(stream)},
      records_{max_record} {}

byte_stream_carrier::~byte_stream_carrier() {
  mux_->stop(error{errc::closed, layer::rpc, "the session was destroyed"});
  stream_->abort();
}

void byte_stream_carrier::begin(std::shared_ptr<void> self, const wire::settings& own) {
  mux_->add_link(std::make_unique<stream_link>(stream_));
  wire::settings told = own;
  told.call_window = mux_->config().call_window;
  told.one_way_window = mux_->config().one_way_window;
  send(told);
  asio::co_spawn(shard_.get_executor(), read_loop(std::move(self), *this), asio::detached);
}

void byte_stream_carrier::send(const wire::control_event& event) {
  scratch_.clear();
  wire::append(scratch_, event);
  mux_->send_control(scratch_);
}

void byte_stream_carrier::send_cancel(std::uint64_t number, std::uint64_t code) noexcept {
  const std::uint64_t first = wire::call_error(code::ok);
  send(wire::cancel{number, code_from_number(code >= first ? code - first : 1)});
}

void byte_stream_carrier::send_credit(std::uint64_t number, std::uint64_t bytes) {
  send(wire::credit{number, bytes});
}

weft::result<> byte_stream_carrier::control_bytes(bytes content) {
  control_.push(content);
  while (true) {
    auto event = control_.next();
    if (!event) return std::unexpected{std::move(event).error()};
    if (!*event) return {};
    if (const auto* s = std::get_if<wire::settings>(&**event))
      mux_->peer_windows(s->call_window, s->one_way_window);
    if (const auto* c = std::get_if<wire::credit>(&**event)) {
      if (auto credited = mux_->on_credit(c->call, c->bytes); !credited) return credited;
    } else if (const auto* p = std::get_if<wire::ping>(&**event)) {
      send(wire::pong{p->token});
    } else if (auto handled = on_control(**event); !handled) {
      return handled;
    }
  }
}

weft::result<> byte_stream_carrier::feed(slice arrived) {
  records_.push(std::move(arrived));
  while (!over_) {
    auto part = records_.next();
    if (!part) return std::unexpected{std::move(part).error()};
    if (!*part) break;
    // The peer's settings come before anything that could depend on them.
    if (!control_.has_settings() && (*part)->tag.call != 0)
      return wire::wire_error(errc::protocol, wire::error_code::settings, "calls before settings");
    if (auto received = mux_->receive(std::move(**part)); !received) return received;
    (void)mux_->share_batch();
  }
  mux_->end_of_batch();
  return {};
}

task<> byte_stream_carrier::read_loop([[maybe_unused]] std::shared_ptr<void> keep,
                                      byte_stream_carrier& self) {
  auto stream = self.stream_;
  while (!self.over_) {
    // A peer that does not read what it makes us say is not listened to either.
    if (self.mux_->congested()) {
      co_await self.mux_->backlog_gone();
      continue;
    }
    auto arrived = co_await stream->read();
    if (self.over_) co_return;
    if (!arrived) co_return self.shut(arrived.error());
    if (arrived->empty()) {
      co_return self.shut(
          self.records_.at_boundary()
              ? error{errc::closed, layer::rpc, "the peer closed the connection"}
              : error{errc::malformed, layer::rpc, "the connection ended inside a record"});
    }
    if (auto fed = self.feed(std::move(*arrived)); !fed) co_return self.shut(fed.error());
  }
}

void byte_stream_carrier::shut(const error& why) noexcept {
  if (std::exchange(over_, true)) return;
  on_over(why);
  mux_->stop(why);
  stream_->abort();
  over_event_.notify();
}

task<> byte_stream_carrier::finish_orderly() {
  auto stream = stream_;
  co_await mux_->written();
  if (over_) co_return;
  (void)co_await stream->finish();
}

namespace {

// Server
// --------------------------------------------------------------------------------------------

class mux_server_call final : public native_server_call, public pooled<mux_server_call> {
 public:
  mux_server_call(std::shared_ptr<server_core> core, std::shared_ptr<mux> m, wire::record_tag tag)
      : native_server_call{std::move(core), tag.one_way}, mux_{std::move(m)}, stream{*mux_, tag} {
    attach(stream);
  }

 private:
  std::shared_ptr<mux> mux_;

 public:
  mux_stream stream;
};

class byte_stream_server final : public server_core, public byte_stream_carrier {
 public:
  byte_stream_server(std::unique_ptr<io::byte_stream> stream, transport_info info,
                     std::string peer_subject, io::shard& shard, dispatcher& calls,
                     session_options options)
      : server_core{shard, calls, std::move(options)},
        byte_stream_carrier{std::move(stream), shard, options_.memory,
                            options_.limits.max_message + options_.limits.max_metadata +
                                wire::header_allowance + 64,
                            true} {
    info_ = std::move(info);
    peer_subject_ = std::move(peer_subject);
  }

  void begin() { byte_stream_carrier::begin(shared_from_this(), own_settings()); }
  bool ended() const noexcept { return over(); }

  void go_away() {
    if (std::exchange(going_, true) || over()) return;
    first_refused_ = mux_->last_number() + 1;
    send(wire::goaway{first_refused_});
  }

  /// Running calls have ended and the client has seen their replies.
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

  /// Ends running calls with `why` and lets that reach the client, if it listens, before the end.
  static task<> wind_down(std::shared_ptr<byte_stream_server> self, status why) {
    self->go_away();
    io::timer patience;
    self->shard_of().arm(patience, io::now() + wind_down_time, [core = self.get()](time_point) {
      core->shut(error{errc::closed, layer::rpc, "the client did not take leave in time"});
    });
    self->conclude_all(why);
    co_await self->drained();
    self->shut(error{errc::closed, layer::rpc, why.to_string()});
  }
  io::shard& shard_of() noexcept { return server_core::shard_; }

 private:
  mux_stream* open_stream(wire::record_tag tag) override {
    if (going_ && tag.call >= first_refused_) return nullptr;
    if (auto refusal = refuse()) {
      if (!tag.one_way) {
        buffer answer = buffer::allocate(wire::encoded_size(*refusal, {}));
        wire::encode(*refusal, {}, answer.data());
        mux_->send_record({tag.call, false, true}, std::move(answer).freeze());
      }
      return nullptr;
    }
    fresh_ = std::make_unique<mux_server_call>(shared_from_this(), mux_, tag);
    return &fresh_->stream;
  }
  void opened(mux_stream&) override { start(std::move(fresh_)); }
  void acknowledge_method(std::uint64_t number) override { send(wire::method_ack{number}); }

  weft::result<> on_control(const wire::control_event& event) override {
    if (const auto* s = std::get_if<wire::settings>(&event)) {
      peer_ = *s;
    } else if (const auto* c = std::get_if<wire::cancel>(&event)) {
      mux_->on_cancel(c->call, given_up_by("client", c->code));
    } else if (std::get_if<wire::goaway>(&event)) {
      client_done_ = true;
      over_event_.notify();
    }
    return {};
  }
  void on_over(const error& why) noexcept override { end_all(why); }

  std::unique_ptr<mux_server_call> fresh_;
  std::uint64_t first_refused_ = 0;
  bool going_ = false;
  bool client_done_ = false;
};

class byte_stream_server_session final : public server_session {
 public:
  explicit byte_stream_server_session(std::shared_ptr<byte_stream_server> core) noexcept
      : core_{std::move(core)} {
    core_->begin();
  }
  ~byte_stream_server_session() override {
    core_->close(error{errc::closed, layer::rpc, "the session was destroyed"});
  }
  task<> drain() override { return drain_core(core_); }
  void close(status why) noexcept override {
    asio::co_spawn(core_->shard_of().get_executor(),
                   byte_stream_server::wind_down(core_, std::move(why)), asio::detached);
  }
  task<> finished() override { return finish_core(core_); }
  session_stats stats() const noexcept override { return core_->stats_; }

 private:
  // They outlive the session where they have to.
  static task<> drain_core(std::shared_ptr<byte_stream_server> core) {
    core->go_away();
    co_await core->drained();
  }
  static task<> finish_core(std::shared_ptr<byte_stream_server> core) {
    co_await core->over_and_idle();
  }
  std::shared_ptr<byte_stream_server> core_;
};

// Client
// --------------------------------------------------------------------------------------------

class mux_client_call final : public native_client_call, public pooled<mux_client_call> {
 public:
  mux_client_call(std::shared_ptr<client_core> core, std::shared_ptr<mux> m,
                  const call_options& options)
      : native_client_call{std::move(core), options},
        mux_{std::move(m)},
        stream_{*mux_, {mux_->next_number(), false, false}} {
    stream_.set_urgency(options.urgency);
    attach(stream_);
  }
  ~mux_client_call() override { give_up(); }
  bool is_from(std::uint64_t first) const noexcept override { return stream_.number() >= first; }

 private:
  std::shared_ptr<mux> mux_;
  mux_stream stream_;
};

class byte_stream_client final : public client_core, public byte_stream_carrier {
 public:
  byte_stream_client(std::unique_ptr<io::byte_stream> stream, transport_info info, io::shard& shard,
                     session_options options)
      : client_core{shard, std::move(options), std::move(info)},
        byte_stream_carrier{std::move(stream), shard, options_.memory, 0, false} {}

  void begin() { byte_stream_carrier::begin(shared_from_this(), own_settings()); }

  result<std::unique_ptr<client_call>> start_call(const method& m, const call_options& options,
                                                  time_point deadline) {
    if (auto refused = refusal()) return std::unexpected{std::move(*refused)};
    auto call = std::make_unique<mux_client_call>(shared_from_this(), mux_, options);
    if (auto begun = call->begin(m, options, deadline); !begun)
      return std::unexpected{std::move(begun).error()};
    return call;
  }

  static task<result<>> send_one_way(std::shared_ptr<byte_stream_client> self, slice frames,
                                     std::uint8_t urgency) {
    while (!self->mux_->one_way_credit()) {
      co_await self->mux_->wait_one_way_credit();
      if (self->closed_) co_return std::unexpected{*self->closed_};
      if (auto state = co_await asio::this_coro::cancellation_state;
          state.cancelled() != asio::cancellation_type::none)
        co_return fail(code::cancelled, "cancelled while waiting to send");
    }
    mux_stream stream{*self->mux_, {self->mux_->next_number(), true, false}};
    stream.set_urgency(urgency);
    auto done = stream.try_write(std::move(frames), true);
    if (!stream.flushed()) co_await stream.wait_flushed();
    ++self->stats_.one_way;
    if (!*done) co_return std::unexpected{status_of((*done).error())};
    if (!stream.flushed()) co_return fail(code::cancelled, "cancelled while sending");
    co_return result<>{};
  }

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
    co_return co_await send_one_way(
        std::static_pointer_cast<byte_stream_client>(shared_from_this()), frames.take(),
        options.urgency);
  }

  /// Everything sent has arrived: the answer to a ping follows it.
  task<> drained() {
    co_await idle();
    if (over()) co_return;
    send(wire::ping{++ping_sent_});
    while (!over() && pong_seen_ < ping_sent_)
      if (!co_await over_event_.wait()) co_return;
  }

  void close(const status& why) noexcept {
    if (over()) return;
    closed_ = why;
    shut(error{errc::closed, layer::rpc, why.to_string()});
  }

 private:
  mux_stream* open_stream(wire::record_tag) override { return nullptr; }
  void opened(mux_stream&) override {}

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
      mux_->on_cancel(c->call, given_up_by("server", c->code));
    } else if (const auto* p = std::get_if<wire::pong>(&event)) {
      pong_seen_ = p->token;
      over_event_.notify();
    }
    return {};
  }
  void became_idle() override {
    if (server_going_ && !over() && !std::exchange(told_done_, true)) send(wire::goaway{0});
  }
  void on_over(const error& why) noexcept override {
    if (!closed_)
      closed_ = status{code::unavailable, "the connection was lost: " + why.to_string()};
    end_all(*closed_);
  }

  std::uint64_t ping_sent_ = 0, pong_seen_ = 0;
  bool told_done_ = false;
};

class byte_stream_transport final : public transport {
 public:
  explicit byte_stream_transport(std::shared_ptr<byte_stream_client> core) noexcept
      : core_{std::move(core)} {
    core_->begin();
  }
  ~byte_stream_transport() override {
    core_->close({code::unavailable, "the transport was destroyed"});
  }
  task<result<std::unique_ptr<client_call>>> start(const method& m, const call_options& options,
                                                   time_point deadline) override {
    co_return core_->start_call(m, options, deadline);
  }
  task<result<>> one_way(const method& m, const call_options& options, time_point deadline,
                         const outgoing& message) override {
    return core_->one_way(m, options, deadline, message);
  }
  bool usable() const noexcept override { return !core_->closed_ && !core_->server_going_; }
  transport_info info() const override { return core_->info_; }
  void close(status why) noexcept override { core_->close(why); }
  task<> drain() override {
    auto core = core_;
    co_await core->drained();
  }

 private:
  std::shared_ptr<byte_stream_client> core_;
};

}  // namespace

std::unique_ptr<server_session> serve(std::unique_ptr<io::byte_stream> stream, transport_info info,
                                      std::string peer_subject, io::shard& shard, dispatcher& calls,
                                      session_options options) {
  return std::make_unique<byte_stream_server_session>(std::make_shared<byte_stream_server>(
      std::move(stream), std::move(info), std::move(peer_subject), shard, calls,
      std::move(options)));
}

std::unique_ptr<transport> open(std::unique_ptr<io::byte_stream> stream, transport_info info,
                                io::shard& shard, session_options options) {
  return std::make_unique<byte_stream_transport>(std::make_shared<byte_stream_client>(
      std::move(stream), std::move(info), shard, std::move(options)));
}

}  // namespace weft::rpc::native
