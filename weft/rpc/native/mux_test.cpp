#include <gtest/gtest.h>

#include <deque>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>

#include <weft/rpc/native/test_support.hpp>
#include <weft/rpc/native/wire/control.hpp>
#include <weft/rpc/native/wire/header.hpp>
#include <weft/rpc/native/wire/record.hpp>

namespace weft::rpc::native {
namespace {

using namespace testing;
using std::chrono::milliseconds;

constexpr std::size_t mib = std::size_t{1} << 20;

/// A server and a client on one shard, on the ends of a stream in memory.
struct mux_fixture : ::testing::Test {
  io::shard shard;
  std::shared_ptr<wire_pair> wires = std::make_shared<wire_pair>();
  handlers calls;
  session_options server_options, client_options;
  std::unique_ptr<server_session> server;
  std::unique_ptr<transport> client;

  void start_server() {
    server = serve(std::make_unique<memory_stream>(wires, false), {.name = "tls-tcp"}, "", shard,
                   calls, server_options);
  }
  void start() {
    start_server();
    client = open(std::make_unique<memory_stream>(wires, true), {.name = "tls-tcp"}, shard,
                  client_options);
  }
  void TearDown() override {
    client.reset();
    server.reset();
    ASSERT_TRUE(run(shard, settle(shard)));
    EXPECT_EQ(calls.running, 0u);
  }
};

TEST_F(mux_fixture, answers_unary_calls_whatever_the_reads_split) {
  calls.on("/t/echo", echo);
  for (std::size_t granularity : {1u, 7u, 65536u}) {
    wires = std::make_shared<wire_pair>();
    wires->up.granularity = wires->down.granularity = granularity;
    start();
    ASSERT_TRUE(run(shard, [](mux_fixture& f) -> task<> {
      for (int i = 0; i < 5; ++i) {
        auto reply = co_await unary(*f.client, method_of("/t/echo"), "hello");
        EXPECT_TRUE(reply) << reply.error().to_string();
        EXPECT_EQ(reply.value_or(""), "hello");
      }
    }(*this)));
    client.reset();
    server.reset();
  }
}

TEST_F(mux_fixture, sends_a_turns_calls_in_few_writes) {
  calls.on("/t/echo", echo);
  start();
  ASSERT_TRUE(run(shard, [](mux_fixture& f) -> task<> {
    (void)co_await unary(*f.client, method_of("/t/echo"), "warm");
    const std::size_t before = f.wires->writes;
    int left = 64;
    io::event all;
    for (int i = 0; i < 64; ++i)
      asio::co_spawn(f.shard.get_executor(), unary(*f.client, method_of("/t/echo"), "x"),
                     [&](std::exception_ptr, result<std::string> r) {
                       EXPECT_TRUE(r);
                       if (--left == 0) all.notify();
                     });
    if (left != 0) co_await all.wait();
    EXPECT_LE(f.wires->writes - before, 6u);
  }(*this)));
}

TEST_F(mux_fixture, answers_leave_while_the_rest_of_their_batch_is_served) {
  std::vector<std::size_t> writes_before;
  calls.on("/t/echo", [&](server_call& call) -> task<status> {
    writes_before.push_back(wires->writes);
    co_return co_await echo(call);
  });
  start();
  for (const std::size_t size : {std::size_t{100}, std::size_t{8'000}})
    for (int round = 0; round < 2; ++round)
      ASSERT_TRUE(
          run(shard,
              [](mux_fixture& f, std::vector<std::size_t>& writes_before, std::size_t size,
                 int round) -> task<> {
                constexpr int many = 32;
                writes_before.clear();
                int left = many;
                io::event all;
                for (int i = 0; i < many; ++i)
                  asio::co_spawn(f.shard.get_executor(),
                                 unary(*f.client, method_of("/t/echo"), std::string(size, 'x')),
                                 [&](std::exception_ptr, result<std::string> r) {
                                   EXPECT_TRUE(r);
                                   if (--left == 0) all.notify();
                                 });
                if (left != 0) co_await all.wait();
                EXPECT_EQ(writes_before.size(), std::size_t{many});
                const bool some_left_meanwhile = writes_before.back() > writes_before.front();
                // Large batches leave in several pieces anyway; the first one tells that
                // they are.
                if (size == 100 || round > 0) {
                  EXPECT_EQ(some_left_meanwhile, size == 100);
                }
              }(*this, writes_before, size, round)));
}

TEST_F(mux_fixture, moves_large_messages_through_small_windows) {
  calls.on("/t/echo", echo);
  start();
  ASSERT_TRUE(run(shard, [](mux_fixture& f) -> task<> {
    std::string large(3'000'000, 'a');
    for (std::size_t i = 0; i < large.size(); ++i) large[i] = char('a' + i % 23);
    auto reply = co_await unary(*f.client, method_of("/t/echo"), large);
    EXPECT_TRUE(reply && *reply == large);
  }(*this)));
}

TEST_F(mux_fixture, carries_metadata_details_and_compression) {
  calls.on("/t/full", [](server_call& call) -> task<status> {
    EXPECT_EQ(call.info().metadata.find("who"), "me");
    EXPECT_GT(call.info().deadline, io::now());
    EXPECT_LT(call.info().deadline, io::now() + milliseconds{10'001});
    (void)co_await call.read();
    call.set_compression(compression::gzip);
    (void)co_await call.send_headers({{"first", "1"}});
    (void)co_await call.write(outgoing{as_bytes(std::string(5000, 'z'))});
    call.set_trailers({{"last-bin", std::string("\0\1", 2)}});
    status s{code::not_found, "no such thing"};
    s.add_detail("google.rpc.RetryInfo", "bytes");
    co_return s;
  });
  start();
  ASSERT_TRUE(run(shard, [](mux_fixture& f) -> task<> {
    response_info info;
    call_options options{
        .metadata = {{"who", "me"}}, .request_compression = compression::zstd, .info = &info};
    auto call =
        co_await f.client->start(method_of("/t/full"), options, io::now() + milliseconds{10'000});
    (void)co_await (*call)->write(outgoing{as_bytes(std::string(9000, 'y'))}, true);
    auto headers = co_await (*call)->read_headers();
    EXPECT_EQ(headers->find("first"), "1");
    auto message = co_await (*call)->read();
    EXPECT_TRUE(message && *message && text_of(**message) == std::string(5000, 'z'));
    auto end = co_await (*call)->read();
    EXPECT_FALSE(end);
    EXPECT_EQ(end.error().code(), code::not_found);
    EXPECT_EQ(end.error().details().size(), 1u);
    EXPECT_EQ(info.trailers.find("last-bin"), std::string_view("\0\1", 2));
  }(*this)));
}

TEST_F(mux_fixture, cancels_in_both_directions) {
  bool cancelled = false;
  calls.on("/t/wait", [&](server_call& call) -> task<status> {
    (void)co_await call.read();
    auto next = co_await call.read();
    cancelled = !next;
    co_return status{code::cancelled, "seen"};
  });
  calls.on("/t/early",
           [](server_call&) -> task<status> { co_return status{code::permission_denied, "no"}; });
  start();
  ASSERT_TRUE(run(shard, [](mux_fixture& f, bool& cancelled) -> task<> {
    {
      auto call = co_await f.client->start(method_of("/t/wait"), {}, never);
      (void)co_await (*call)->write(outgoing{as_bytes("x")}, false);
      co_await settle(f.shard);
      EXPECT_EQ(f.calls.running, 1u);
    }
    co_await settle(f.shard);
    EXPECT_TRUE(cancelled);
    EXPECT_EQ(f.calls.running, 0u);
    auto call = co_await f.client->start(method_of("/t/early"), {}, never);
    auto reply = co_await (*call)->read();
    EXPECT_EQ(reply.error().code(), code::permission_denied);
    EXPECT_FALSE(co_await (*call)->write(outgoing{as_bytes("late")}, false));
  }(*this, cancelled)));
}

TEST_F(mux_fixture, a_call_may_be_given_up_by_who_reads_its_last_message) {
  calls.on("/t/early", [](server_call& call) -> task<status> {
    (void)co_await call.write(outgoing{as_bytes("all there is")});
    co_return status{};
  });
  start();
  ASSERT_TRUE(run(shard, [](mux_fixture& f) -> task<> {
    auto call = co_await f.client->start(method_of("/t/early"), {}, never);
    (void)co_await (*call)->write(outgoing{as_bytes("not the end")}, false);
    auto message = co_await (*call)->read();
    EXPECT_TRUE(message && *message);
    call->reset();  // woken by the record that ends both directions
    co_await settle(f.shard);
  }(*this)));
}

TEST_F(mux_fixture, keeps_deadlines_on_both_sides) {
  calls.on("/t/sleep", [this](server_call&) -> task<status> {
    auto slept = co_await shard.sleep_until(io::now() + std::chrono::seconds{20});
    co_return slept ? status{} : status{code::cancelled, "woken"};
  });
  start();
  ASSERT_TRUE(run(shard, [](mux_fixture& f) -> task<> {
    auto reply =
        co_await unary(*f.client, method_of("/t/sleep"), "x", {}, io::now() + milliseconds{20});
    EXPECT_EQ(reply.error().code(), code::deadline_exceeded);
    co_await settle(f.shard);
    EXPECT_EQ(f.calls.running, 0u);
  }(*this)));
}

TEST_F(mux_fixture, one_way_calls_arrive_in_order_and_are_bounded) {
  std::vector<std::string> seen;
  io::event go;
  bool open_gate = false;
  calls.on("/t/note", [&](server_call& call) -> task<status> {
    EXPECT_TRUE(call.info().one_way);
    auto message = co_await call.read();
    seen.push_back(text_of(**message).substr(0, 8));
    while (!open_gate) (void)co_await shard.sleep_until(io::now() + milliseconds{1});
    co_return status{};
  });
  start();
  ASSERT_TRUE(
      run(shard, [](mux_fixture& f, bool& open_gate, std::vector<std::string>& seen) -> task<> {
        int sent = 0;
        bool done = false;
        asio::co_spawn(
            f.shard.get_executor(),
            [](mux_fixture& f, int& sent) -> task<> {
              for (; sent < 100; ++sent) {
                std::string text = std::to_string(10'000'000 + sent) + std::string(50'000, 'x');
                auto r = co_await f.client->one_way(method_of("/t/note"), {}, never,
                                                    outgoing{as_bytes(text)});
                EXPECT_TRUE(r);
              }
            }(f, sent),
            [&](std::exception_ptr) { done = true; });
        for (int i = 0; i < 20; ++i) co_await settle(f.shard);
        EXPECT_FALSE(done);  // the window is about 1 MiB
        EXPECT_LT(sent, 30);
        open_gate = true;
        while (!done || seen.size() < 100) co_await settle(f.shard);
        EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
      }(*this, open_gate, seen)));
}

TEST_F(mux_fixture, a_slow_reader_does_not_stop_others) {
  calls.on("/t/flood", [](server_call& call) -> task<status> {
    const std::string text(30'000, 'f');
    for (int i = 0; i < 1000; ++i)
      if (auto r = co_await call.write(outgoing{as_bytes(text)}); !r) co_return r.error();
    co_return status{};
  });
  calls.on("/t/echo", echo);
  start();
  ASSERT_TRUE(run(shard, [](mux_fixture& f) -> task<> {
    auto slow = co_await f.client->start(method_of("/t/flood"), {}, never);
    (void)co_await (*slow)->finish_writing();
    co_await settle(f.shard);
    auto reply = co_await unary(*f.client, method_of("/t/echo"), "quick");
    EXPECT_TRUE(reply);
    int messages = 0;
    while (true) {
      auto m = co_await (*slow)->read();
      if (!m || !*m) break;
      ++messages;
    }
    EXPECT_EQ(messages, 1000);
  }(*this)));
}

/// Reads as many bytes as it is told to, then waits for the gate.
struct paused_reader {
  io::event gate;
  std::size_t reads_first = 0;
  bool open = false;

  handlers::handler handler() {
    return [this](server_call& call) -> task<status> {
      for (std::size_t got = 0; got < reads_first;) {
        auto message = co_await call.read();
        if (!message || !*message) co_return status{};
        got += (*message)->size();
      }
      while (!open)
        if (!co_await gate.wait()) co_return status{};
      co_return status{};
    };
  }
};

/// Someone who writes to a call until that ends.
struct steady_writer {
  std::unique_ptr<client_call> call;
  std::size_t taken = 0;
  bool ended = false;

  void start(io::shard& shard) {
    asio::co_spawn(
        shard.get_executor(),
        [](steady_writer& w) -> task<> {
          const std::string text(30'000, 'w');
          while (co_await w.call->write(outgoing{as_bytes(text)}, false)) w.taken += text.size();
          w.ended = true;
        }(*this),
        asio::detached);
  }
  /// Until it waits for a reader that has stopped; how many bytes the call took.
  task<std::size_t> stuck(io::shard& shard) {
    for (std::size_t before = 1; before != taken;) {
      before = taken;
      for (int turn = 0; turn < 20; ++turn) co_await settle(shard);
    }
    co_return taken;
  }
  task<> stop(io::shard& shard) {
    call->cancel({code::cancelled, "enough"});
    while (!ended) co_await settle(shard);
    call.reset();
  }
};

TEST_F(mux_fixture, a_calls_window_grows_while_its_reader_keeps_up) {
  paused_reader idle, busy{.reads_first = 16 * mib};
  calls.on("/t/idle", idle.handler()).on("/t/busy", busy.handler());
  start();
  ASSERT_TRUE(run(shard, [](mux_fixture& f, paused_reader& idle, paused_reader& busy) -> task<> {
    steady_writer unread{*co_await f.client->start(method_of("/t/idle"), {}, never)};
    unread.start(f.shard);
    EXPECT_LT(co_await unread.stuck(f.shard), mib);
    steady_writer read{*co_await f.client->start(method_of("/t/busy"), {}, never)};
    read.start(f.shard);
    const std::size_t kept = co_await read.stuck(f.shard) - busy.reads_first;
    EXPECT_GT(kept, 3 * mib);
    EXPECT_LT(kept, 5 * mib);
    co_await unread.stop(f.shard);
    co_await read.stop(f.shard);
    idle.open = busy.open = true;
    idle.gate.notify();
    busy.gate.notify();
    co_await settle(f.shard);
  }(*this, idle, busy)));
}

TEST_F(mux_fixture, windows_grow_only_so_far_together) {
  static constexpr std::size_t many = 12;
  std::deque<paused_reader> readers;
  for (std::size_t i = 0; i < many; ++i) {
    readers.emplace_back().reads_first = 8 * mib;
    calls.on("/t/read" + std::to_string(i), readers.back().handler());
  }
  start();
  // Twice: what ended calls had is there again.
  for (int round = 0; round < 2; ++round)
    ASSERT_TRUE(run(shard, [](mux_fixture& f, std::deque<paused_reader>& readers) -> task<> {
      std::deque<steady_writer> writers;
      std::size_t kept = 0;
      for (std::size_t i = 0; i < many; ++i) {
        const std::string path = "/t/read" + std::to_string(i);
        writers.emplace_back(*co_await f.client->start(method_of(path), {}, never)).start(f.shard);
        kept += co_await writers.back().stuck(f.shard) - readers[i].reads_first;
      }
      EXPECT_GT(kept, 16 * mib);
      EXPECT_LT(kept, 16 * mib + many * mib);
      for (auto& w : writers) co_await w.stop(f.shard);
      for (auto& r : readers) {
        r.open = true;
        r.gate.notify();
      }
      co_await settle(f.shard);
      for (auto& r : readers) r.open = false;
    }(*this, readers)));
}

TEST_F(mux_fixture, drains_and_refuses) {
  bool go = false;
  calls.on("/t/slow", [&](server_call& call) -> task<status> {
    while (!go) (void)co_await shard.sleep_until(io::now() + milliseconds{1});
    co_return co_await echo(call);
  });
  start();
  ASSERT_TRUE(run(shard, [](mux_fixture& f, bool& go) -> task<> {
    auto call = co_await f.client->start(method_of("/t/slow"), {}, never);
    (void)co_await (*call)->write(outgoing{as_bytes("x")}, true);
    co_await settle(f.shard);
    bool drained = false;
    asio::co_spawn(f.shard.get_executor(), f.server->drain(),
                   [&](std::exception_ptr) { drained = true; });
    co_await settle(f.shard);
    EXPECT_FALSE(f.client->usable());
    auto refused = co_await unary(*f.client, method_of("/t/slow"), "y");
    EXPECT_EQ(refused.error().code(), code::unavailable);
    EXPECT_FALSE(drained);
    go = true;
    auto reply = co_await (*call)->read();
    EXPECT_TRUE(reply && *reply);
    (void)co_await (*call)->read();
    co_await settle(f.shard);
    EXPECT_TRUE(drained);
  }(*this, go)));
}

TEST_F(mux_fixture, losing_the_carrier_ends_calls_with_unavailable) {
  calls.on("/t/echo", echo);
  start();
  ASSERT_TRUE(run(shard, [](mux_fixture& f) -> task<> {
    auto call = co_await f.client->start(method_of("/t/echo"), {}, never);
    (void)co_await (*call)->write(outgoing{as_bytes("x")}, false);
    (void)co_await (*call)->read();
    EXPECT_EQ(f.calls.running, 1u);
    f.wires->up.broken = f.wires->down.broken = true;
    f.wires->up.readable.notify();
    f.wires->down.readable.notify();
    auto end = co_await (*call)->read();
    EXPECT_EQ(end.error().code(), code::unavailable);
    co_await f.server->finished();
    EXPECT_EQ(f.calls.running, 0u);
  }(*this)));
}

TEST_F(mux_fixture, limits_messages_calls_and_memory) {
  calls.on("/t/echo", echo);
  calls.on("/t/big", [](server_call& call) -> task<status> {
    (void)co_await call.read();
    auto r = co_await call.write(outgoing{as_bytes(std::string(200'000, 'b'))});
    co_return r ? status{} : r.error();
  });
  server_options.limits.max_message = 100'000;
  server_options.limits.max_concurrent_calls = 2;
  server_options.memory = std::make_shared<memory_budget>(300'000);
  client_options.limits.max_message = 150'000;
  start();
  ASSERT_TRUE(run(shard, [](mux_fixture& f) -> task<> {
    // Before the server's settings are here it is the server that refuses.
    auto large = co_await unary(*f.client, method_of("/t/echo"), std::string(120'000, 'x'));
    EXPECT_EQ(large.error().code(), code::resource_exhausted);
    co_await settle(f.shard);
    large = co_await unary(*f.client, method_of("/t/echo"), std::string(120'000, 'x'));
    EXPECT_EQ(large.error().code(), code::resource_exhausted);
    auto big = co_await unary(*f.client, method_of("/t/big"), "x");
    EXPECT_EQ(big.error().code(), code::resource_exhausted);
    std::vector<std::unique_ptr<client_call>> open;
    for (int i = 0; i < 2; ++i)
      open.push_back(*co_await f.client->start(method_of("/t/echo"), {}, never));
    co_await settle(f.shard);
    auto third = co_await unary(*f.client, method_of("/t/echo"), "x");
    EXPECT_EQ(third.error().code(), code::resource_exhausted);
    open.clear();
    co_await settle(f.shard);
    EXPECT_TRUE(co_await unary(*f.client, method_of("/t/echo"), "x"));
    EXPECT_EQ(f.server_options.memory->used(), 0u);
  }(*this)));
}

// Hostile peers
// -------------------------------------------------------------------------------------

std::vector<std::byte> control_record(const wire::control_event& event) {
  std::vector<std::byte> content, out(wire::max_record_head);
  wire::append(content, event);
  std::byte* end = wire::put_record_head(out.data(), {}, content.size());
  out.resize(static_cast<std::size_t>(end - out.data()));
  out.insert(out.end(), content.begin(), content.end());
  return out;
}

struct hostile : mux_fixture {
  std::unique_ptr<memory_stream> raw;
  void SetUp() override {
    calls.on("/t/echo", echo);
    start_server();
    raw = std::make_unique<memory_stream>(wires, true);
  }
  task<> send(std::vector<std::byte> bytes_to_send) {
    std::array<slice, 1> parts{slice::copy(bytes{bytes_to_send})};
    (void)co_await raw->write(parts);
  }
  /// Whether the server ended the connection after `inputs`.
  bool ends_after(std::vector<std::vector<std::byte>> inputs) {
    auto ended = std::make_shared<bool>(false);
    EXPECT_TRUE(run(shard, [](hostile& f, auto inputs, std::shared_ptr<bool> ended) -> task<> {
      asio::co_spawn(f.shard.get_executor(), f.server->finished(),
                     [ended](std::exception_ptr) { *ended = true; });
      for (auto& input : inputs) co_await f.send(input);
      for (int i = 0; i < 5; ++i) co_await settle(f.shard);
    }(*this, std::move(inputs), ended)));
    return *ended;
  }
  void TearDown() override {
    raw.reset();
    mux_fixture::TearDown();
  }
};

std::vector<std::byte> raw_bytes(std::initializer_list<int> values) {
  std::vector<std::byte> out;
  for (int v : values) out.push_back(std::byte(v));
  return out;
}

TEST_F(hostile, garbage_ends_the_connection) {
  EXPECT_TRUE(ends_after({raw_bytes({'G', 'E', 'T', ' ', '/', ' ', 'H', 'T', 'T', 'P'})}));
}
TEST_F(hostile, forged_lengths_end_the_connection) {
  EXPECT_TRUE(ends_after({raw_bytes({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 4})}));
}
TEST_F(hostile, calls_before_settings_end_the_connection) {
  EXPECT_TRUE(ends_after({raw_bytes({3, 4, 2, 0})}));
}
TEST_F(hostile, second_settings_end_the_connection) {
  EXPECT_TRUE(ends_after({control_record(wire::settings{}), control_record(wire::settings{})}));
}
TEST_F(hostile, credit_overflow_ends_the_connection) {
  EXPECT_TRUE(ends_after({control_record(wire::settings{}),
                          control_record(wire::credit{0, wire::max_varint}),
                          control_record(wire::credit{0, wire::max_varint})}));
}
TEST_F(hostile, bytes_beyond_the_credit_end_the_connection) {
  calls.on("/t/stuck", [this](server_call&) -> task<status> {
    (void)co_await shard.sleep_until(io::now() + std::chrono::seconds{20});
    co_return status{};
  });
  const wire::request_header header{.method = {0, "/t/stuck"}};
  std::vector<std::vector<std::byte>> inputs{control_record(wire::settings{})};
  for (int i = 0; i < 10; ++i) {
    std::vector<std::byte> record(wire::max_record_head + 32'000);
    std::byte* start = wire::put_record_head(record.data(), {1, false, false}, 32'000);
    if (i == 0) wire::encode(header, start);
    record.resize(static_cast<std::size_t>(start - record.data()) + 32'000);
    inputs.push_back(std::move(record));
  }
  EXPECT_TRUE(ends_after(std::move(inputs)));
}
TEST_F(hostile, cancel_for_unknown_calls_is_ignored) {
  EXPECT_FALSE(ends_after(
      {control_record(wire::settings{}), control_record(wire::cancel{77, code::cancelled})}));
}
TEST_F(hostile, a_peer_that_never_reads_is_bounded) {
  wires->down.capacity = 1;
  std::vector<std::vector<std::byte>> inputs{control_record(wire::settings{})};
  const auto pings = [] {
    std::vector<std::byte> many;
    for (int i = 0; i < 3000; ++i) {
      auto one = control_record(wire::ping{wire::max_varint});
      many.insert(many.end(), one.begin(), one.end());
    }
    return many;
  }();
  wires->up.capacity = 64 << 20;
  for (int i = 0; i < 200; ++i) inputs.push_back(pings);
  EXPECT_FALSE(ends_after(std::move(inputs)));
  // Most of the pings stay unread: the server stopped listening.
  EXPECT_GT(wires->up.bytes, std::size_t{2} << 20);
}

}  // namespace
}  // namespace weft::rpc::native
