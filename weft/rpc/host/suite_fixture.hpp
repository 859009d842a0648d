#pragma once

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <google/protobuf/wrappers.pb.h>
#include <gtest/gtest.h>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/experimental/awaitable_operators.hpp>

#include <weft/rpc/host/channel.hpp>
#include <weft/rpc/host/server.hpp>

// For the suite that runs over every carrier: a service whose calls a test can watch and steer, and
// a server and a channel on one shard. Everything happens on the test's thread.

namespace weft::rpc::suite {

using namespace std::chrono_literals;
using text = google::protobuf::StringValue;

enum verb : std::size_t { echo, hold, refuse, count, join, chat, flood, sink, note, about, raise };

constexpr std::string_view service_name = "t.Suite";
constexpr std::array<method, 11> methods{{
    {"/t.Suite/Echo", service_name, "Echo", call_kind::unary, idempotency::no_side_effects},
    {"/t.Suite/Hold", service_name, "Hold"},
    {"/t.Suite/Refuse", service_name, "Refuse"},
    {"/t.Suite/Count", service_name, "Count", call_kind::server_streaming},
    {"/t.Suite/Join", service_name, "Join", call_kind::client_streaming},
    {"/t.Suite/Chat", service_name, "Chat", call_kind::bidi_streaming},
    {"/t.Suite/Flood", service_name, "Flood", call_kind::server_streaming},
    {"/t.Suite/Sink", service_name, "Sink", call_kind::client_streaming},
    {"/t.Suite/Note", service_name, "Note"},
    {"/t.Suite/About", service_name, "About"},
    {"/t.Suite/Raise", service_name, "Raise"},
}};
constexpr service description{service_name, methods, {}};

inline text value(std::string s) {
  text t;
  t.set_value(std::move(s));
  return t;
}

/// What the service tells a test, and what a test tells the service.
struct probe {
  std::vector<std::string> notes;  ///< of one-way calls
  std::vector<std::string> held;   ///< requests of `hold`, in order of arrival
  std::vector<io::event*> holds;   ///< those still waiting; null once released
  int cancelled = 0;               ///< handlers that saw their cancellation
  int finished = 0;                ///< handlers of `hold`, `flood`, `sink`, `join` that ended
  std::size_t written = 0;         ///< bytes `flood` got rid of
  std::size_t read = 0;            ///< bytes `sink` took
  bool sink_open = false;          ///< `sink` reads
  duration remaining = duration::zero();
  bool hold_sleeps = false;  ///< `hold` sleeps on the shard rather than on an event
  compression reply_compression = compression::identity;
  std::string reply;  ///< of `about`
  int failures = 0;   ///< calls that still fail with `failure`
  code failure = code::unavailable;
  metadata failure_trailers;
  std::vector<std::string> attempts;  ///< earlier ones, as each call's metadata tells them
  call_info seen;                     ///< of the last call; its views are not to be used
  std::string seen_transport, seen_path;

  void release(std::size_t index) {
    if (auto* e = std::exchange(holds[index], nullptr)) e->notify();
  }
};

class handler final : public service_handler {
 public:
  explicit handler(std::shared_ptr<probe> p) : probe_{std::move(p)} {}
  const service& descriptor() const noexcept override { return description; }

  task<status> invoke(std::size_t index, server_context& context, server_call& call) override {
    probe_->seen = context.info();
    probe_->seen_transport = context.info().transport;
    probe_->seen_path = context.info().path;
    if (context.deadline() != never) probe_->remaining = context.deadline() - io::now();
    context.set_compression(probe_->reply_compression);
    probe_->attempts.emplace_back(context.metadata().find(retry_attempts_key).value_or("0"));
    if (probe_->failures > 0) return do_fail(context, call);
    switch (index) {
      case echo:
        return do_echo(call);
      case hold:
        return do_hold(context, call);
      case refuse:
        return do_refuse(context, call);
      case count:
        return do_count(call);
      case join:
        return do_join(call);
      case chat:
        return do_chat(call);
      case flood:
        return do_flood(call);
      case sink:
        return do_sink(context, call);
      case note:
        return do_note(call);
      case about:
        return do_about(context, call);
      default:
        return do_raise();
    }
  }

 private:
  task<status> do_echo(server_call& call) {
    auto request = co_await read_single<text>(call);
    if (!request) co_return std::move(request).error();
    co_return co_await write_reply<text>(call, std::move(*request));
  }

  task<status> do_fail(server_context& context, server_call& call) {
    --probe_->failures;
    auto first = co_await call.read();
    context.set_trailers(probe_->failure_trailers);
    co_return status{probe_->failure, "not now"};
  }

  task<status> do_hold(server_context& context, server_call& call) {
    auto request = co_await read_single<text>(call);
    if (!request) co_return std::move(request).error();
    io::event released;
    const std::size_t index = probe_->holds.size();
    probe_->held.push_back(request->value());
    probe_->holds.push_back(&released);
    bool on = true;
    if (probe_->hold_sleeps)
      on = (co_await context.shard().sleep_until(never)).has_value();
    else
      on = co_await released.wait();
    probe_->holds[index] = nullptr;
    ++probe_->finished;
    if (!on) {
      ++probe_->cancelled;
      co_return status{code::cancelled, "the handler was cancelled"};
    }
    co_return co_await write_reply<text>(call, std::move(*request));
  }

  task<status> do_refuse(server_context& context, server_call& call) {
    auto request = co_await read_single<text>(call);
    if (!request) co_return std::move(request).error();
    metadata trailers;
    EXPECT_TRUE(trailers.add("reason-bin", std::string_view{"\0\xff", 2}));
    context.set_trailers(std::move(trailers));
    status refusal{code::failed_precondition, "no: \xc3\xa4\n\"" + request->value() + "\""};
    refusal.add_detail("google.rpc.RetryInfo", std::string{"\x0a\x02\x08\0", 4});
    refusal.add_detail("t.More", "");
    co_return refusal;
  }

  task<status> do_count(server_call& call) {
    auto request = co_await read_single<text>(call);
    if (!request) co_return std::move(request).error();
    const int up_to = std::stoi(request->value());
    writer<text> replies{call};
    for (int i = 0; i < up_to; ++i)
      if (auto written = co_await replies.write(value(std::to_string(i))); !written)
        co_return std::move(written).error();
    co_return up_to == 3 ? status{code::data_loss, "three is no number"} : status{};
  }

  task<status> do_join(server_call& call) {
    reader<text> requests{call};
    std::string all;
    for (;;) {
      auto next = co_await requests.read();
      if (!next) {
        ++probe_->cancelled;
        ++probe_->finished;
        co_return std::move(next).error();
      }
      if (!*next) break;
      if ((*next)->value() == "stop") co_return status{code::out_of_range, "stopped by request"};
      all += (*next)->value();
    }
    ++probe_->finished;
    co_return co_await write_reply<text>(call, value(all));
  }

  task<status> do_chat(server_call& call) {
    reader<text> requests{call};
    writer<text> replies{call};
    for (;;) {
      auto next = co_await requests.read();
      if (!next) co_return std::move(next).error();
      if (!*next) co_return status{};
      if (auto written = co_await replies.write(**next); !written)
        co_return std::move(written).error();
    }
  }

  task<status> do_flood(server_call& call) {
    auto request = co_await read_single<text>(call);
    if (!request) co_return std::move(request).error();
    const std::size_t size = 64 * 1024;
    const slice block = slice::adopt(value(std::string(size, 'f')).SerializeAsString());
    if (request->value() == "until told") co_return co_await flood_until_told(call, block);
    const std::size_t total = std::stoull(request->value());
    while (probe_->written < total) {
      if (auto written = co_await call.write(outgoing{block}); !written) {
        ++probe_->cancelled;
        ++probe_->finished;
        co_return std::move(written).error();
      }
      probe_->written += size;
    }
    ++probe_->finished;
    co_return status{};
  }

  task<status> flood_until_told(server_call& call, const slice& block) {
    using namespace asio::experimental::awaitable_operators;
    io::event told;
    probe_->holds.push_back(&told);
    while ((co_await (call.write(outgoing{block}) || told.wait())).index() == 0)
      probe_->written += block.size();
    co_return status{code::aborted, "the handler was told to"};
  }

  task<status> do_sink(server_context& context, server_call& call) {
    reader<text> requests{call};
    while (!probe_->sink_open)
      if (!co_await context.shard().sleep_until(io::now() + 1ms)) {
        ++probe_->cancelled;
        co_return status{code::cancelled, "while closed"};
      }
    for (;;) {
      auto next = co_await requests.read();
      if (!next) co_return std::move(next).error();
      if (!*next) break;
      probe_->read += (*next)->value().size();
    }
    ++probe_->finished;
    co_return co_await write_reply<text>(call, value(std::to_string(probe_->read)));
  }

  task<status> do_note(server_call& call) {
    auto request = co_await read_single<text>(call);
    if (!request) co_return std::move(request).error();
    probe_->notes.push_back(request->value());
    if (call.info().one_way) co_return status{};
    co_return co_await write_reply<text>(call, value("noted"));
  }

  task<status> do_about(server_context& context, server_call& call) {
    auto request = co_await read_single<text>(call);
    if (!request) co_return std::move(request).error();
    metadata headers{{"greeting", "hello"}};
    for (const auto& [key, content] : context.metadata()) {
      if (key.starts_with("x-")) (void)headers.add(key, content);
    }
    context.set_trailers(metadata{{"farewell", "bye"}, {"farewell", "see you"}});
    if (auto sent = co_await context.send_headers(headers); !sent)
      co_return std::move(sent).error();
    co_return co_await write_reply<text>(call, value(probe_->reply));
  }

  task<status> do_raise() {
    throw std::runtime_error{"secret of the server"};
    co_return status{};
  }

  std::shared_ptr<probe> probe_;
};

inline const tls::credentials& identity() {
  static const tls::credentials made = tls::credentials::development().value();
  return made;
}
inline const tls::credentials& client_identity() {
  static const tls::credentials made = tls::credentials::development({"a-client"}).value();
  return made;
}

/// How calls travel.
struct way {
  carrier over;
  bool lanes = false;
  rpc::protocol protocol = rpc::protocol::native;
  rpc::codec codec = rpc::codec::proto;
  constexpr operator carrier() const noexcept { return over; }
};

/// A server and a channel over the carrier that is the test's parameter.
class carriers : public testing::TestWithParam<way> {
 public:
  carriers() {
    server_options_.listen = "127.0.0.1:0";
    server_options_.credentials = identity();
    server_options_.log = [this](std::string_view line) { log_.append(line).append("\n"); };
    channel_options_.trust = tls::trust::pem(identity().certificate_pem()).value();
    channel_options_.carrier = GetParam().over;
    channel_options_.lanes = GetParam().lanes;
    channel_options_.protocol = GetParam().protocol;
    channel_options_.codec = GetParam().codec;
  }
  ~carriers() override {
    channel_.reset();
    server_.reset();
  }

  io::shard& shard() { return runtime_[0]; }
  bool over_one_stream() const { return GetParam() != carrier::quic; }

  void start_server() {
    server_ = std::make_unique<rpc::server>(runtime_, server_options_);
    server_->add<handler>(probe_);
    const auto started = server_->start();
    ASSERT_TRUE(started) << started.error().to_string();
    target_ = server_->local_address().to_string();
  }
  std::unique_ptr<rpc::channel> connect_to(std::string target) {
    return std::make_unique<rpc::channel>(shard(), std::move(target), channel_options_);
  }
  rpc::channel& channel() {
    if (!channel_) channel_ = connect_to(target_);
    return *channel_;
  }

  /// Runs `test`, then ends channel and server in order, and looks for what they left behind.
  void run(task<> test, duration limit = 30s) {
    std::exception_ptr failure;
    asio::co_spawn(shard().get_executor(), std::move(test), [&](std::exception_ptr thrown) {
      failure = thrown;
      channel_.reset();
      if (!server_) return runtime_.stop();
      server_->shutdown(5s, [this] { runtime_.stop(); });
    });
    io::timer watchdog;
    bool hangs = false;
    shard().arm(watchdog, io::now() + limit, [&](time_point) {
      hangs = true;
      runtime_.stop();
    });
    runtime_.run();
    shard().disarm(watchdog);
    EXPECT_FALSE(hangs) << "the test hangs; the log says:\n" << log_;
    if (failure) std::rethrow_exception(failure);
    if (!server_ || hangs) return;
    EXPECT_EQ(server_->router(0).in_flight(), 0u);
    EXPECT_EQ(server_->memory().used(), 0u) << "budget was not given back";
  }

  /// Waits until `condition` holds; the watchdog ends tests that wait for ever.
  template <class Condition>
  task<> until(Condition condition) {
    while (!condition()) (void)co_await shard().sleep_until(io::now() + 200us);
  }
  /// Lets everything that is under way happen.
  task<> settle(duration time = 20ms) { (void)co_await shard().sleep_until(io::now() + time); }

  task<result<text>> call(verb which, std::string request, call_options options = {}) {
    co_return co_await unary_call<text, text>(channel(), methods[which], value(std::move(request)),
                                              std::move(options));
  }
  /// Runs `work` beside the test.
  void beside(task<> work) {
    asio::co_spawn(shard().get_executor(), std::move(work), [](std::exception_ptr thrown) {
      if (thrown) std::rethrow_exception(thrown);
    });
  }
  /// Runs a unary call beside the test and keeps its outcome.
  void call_beside(verb which, std::string request, std::optional<result<text>>& outcome,
                   call_options options = {}) {
    beside([](carriers& t, verb w, std::string r, std::optional<result<text>>& o,
              call_options c) -> task<> {
      o = co_await t.call(w, std::move(r), std::move(c));
    }(*this, which, std::move(request), outcome, std::move(options)));
  }

  runtime runtime_;
  server_options server_options_;
  channel_options channel_options_;
  std::shared_ptr<probe> probe_ = std::make_shared<probe>();
  std::unique_ptr<rpc::server> server_;
  std::unique_ptr<rpc::channel> channel_;
  std::string target_;
  std::string log_;
};

inline std::string carrier_name(const testing::TestParamInfo<way>& which) {
  switch (which.param.over) {
    case carrier::quic:
      return which.param.lanes ? "quic_lanes" : "quic";
    case carrier::quic_one_stream:
      return "quic_one_stream";
    default:
      return "tls_tcp";
  }
}

/// Every carrier with the native protocol, and with two over HTTP.
inline std::vector<way> protocol_ways() {
  std::vector<way> all{{carrier::quic, true}};
  for (const carrier over : {carrier::quic, carrier::quic_one_stream, carrier::tls_tcp})
    for (const protocol speaks : {protocol::native, protocol::grpc, protocol::connect})
      all.push_back({over, false, speaks});
  return all;
}

inline std::string protocol_way_name(const testing::TestParamInfo<way>& which) {
  const protocol speaks = which.param.protocol;
  return carrier_name(which) + (speaks == protocol::native ? "_native"
                                : speaks == protocol::grpc ? "_grpc"
                                                           : "_connect");
}

inline code code_of(const result<text>& outcome) {
  return outcome ? code::ok : outcome.error().code();
}

}  // namespace weft::rpc::suite

/// Declares a suite that runs over every carrier.
#define WEFT_SUITE(suite)                                                                         \
  class suite : public carriers {};                                                               \
  INSTANTIATE_TEST_SUITE_P(over, suite,                                                           \
                           testing::Values(way{carrier::quic}, way{carrier::quic, true},          \
                                           way{carrier::quic_one_stream}, way{carrier::tls_tcp}), \
                           carrier_name)

/// Declares one test of `suite`: its body is a coroutine, `t` the
/// fixture.
#define WEFT_SUITE_TEST(suite, name)         \
  static task<> suite##_##name(carriers& t); \
  TEST_P(suite, name) {                      \
    start_server();                          \
    run(suite##_##name(*this));              \
  }                                          \
  static task<> suite##_##name([[maybe_unused]] carriers& t)
