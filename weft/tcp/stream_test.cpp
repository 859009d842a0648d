#include <weft/tcp/stream.hpp>

#include <cstdlib>
#include <optional>
#include <print>
#include <thread>

#include <gmock/gmock.h>
#include <pthread.h>
#include <sys/socket.h>
#include <asio/detached.hpp>
#include <asio/experimental/awaitable_operators.hpp>

#include <weft/io/event.hpp>
#include <weft/tcp/connection.hpp>
#include <weft/tcp/connector.hpp>
#include <weft/tcp/listener.hpp>
#include <weft/tcp/test_loop.hpp>

namespace weft::tcp {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;
using namespace asio::experimental::awaitable_operators;

struct streams : loopback {
  /// Both ends of one connection.
  task<std::pair<std::unique_ptr<stream>, std::unique_ptr<stream>>> both() {
    listener_ = must(listener::listen(shard_, any_port(), offered_));
    auto [client, server] =
        co_await (connect(shard_, listener_->local_address(), "localhost", wanted_, soon()) &&
                  listener_->accept());
    co_return std::pair{must(std::move(client)), must(std::move(server))};
  }

  std::unique_ptr<listener> listener_;
};

task<std::string> read_all(stream& from) {
  std::string text;
  for (;;) {
    const slice part = must(co_await from.read());
    if (part.empty()) co_return text;
    text += part.text();
  }
}

task<void> write_text(stream& to, std::string_view text) {
  const slice part = slice::copy(text);
  must(co_await to.write({&part, 1}));
}

task<void> introduce(streams* t) {
  auto [client, server] = co_await t->both();
  EXPECT_EQ(client->session().alpn, "weft/1");
  EXPECT_EQ(client->session().cipher, "TLS_AES_128_GCM_SHA256");
  EXPECT_EQ(client->session().peer_key, t->identity_.public_key_fingerprint());
  EXPECT_EQ(server->session().group, client->session().group);
  EXPECT_EQ(client->remote_address(), t->listener_->local_address());
  EXPECT_EQ(client->local_address(), server->remote_address());
  co_await write_text(*client, "ping");
  EXPECT_EQ(must(co_await server->read()).text(), "ping");
  co_await write_text(*server, "pong");
  EXPECT_EQ(must(co_await client->read()).text(), "pong");
  EXPECT_EQ(client->counters().bytes_written, 4u);
  EXPECT_EQ(server->counters().bytes_read, 4u);
  EXPECT_GT(client->counters().wire_in, 4u);
  EXPECT_GT(client->counters().system_calls, 0u);
}
TEST_F(streams, carry_bytes_both_ways_and_know_their_peer) {
  run(introduce(this));
}

task<void> close_halves(streams* t) {
  auto [client, server] = co_await t->both();
  co_await write_text(*client, "request");
  must(co_await client->finish());
  must(co_await client->finish());
  const slice late = slice::copy("late");
  EXPECT_EQ((co_await client->write({&late, 1})).error().code(), errc::closed);
  EXPECT_EQ(co_await read_all(*server), "request");
  EXPECT_TRUE(must(co_await server->read()).empty());
  co_await write_text(*server, "answer");
  must(co_await server->finish());
  EXPECT_EQ(co_await read_all(*client), "answer");
}
TEST_F(streams, end_each_direction_by_itself) {
  run(close_halves(this));
}

task<void> break_off(streams* t) {
  auto [client, server] = co_await t->both();
  co_await write_text(*client, "half a mess");
  EXPECT_EQ(must(co_await server->read()).text(), "half a mess");
  client.reset();
  const auto got = co_await server->read();
  EXPECT_EQ(got.error().code(), errc::reset) << got.error().to_string();
}
TEST_F(streams, dropped_without_finish_are_a_reset_not_an_end) {
  run(break_off(this));
}

task<void> truncate(streams* t) {
  t->listener_ = must(listener::listen(t->shard_, t->any_port(), t->offered_));
  const auto context = must(tls::make_client_context(t->wanted_));
  tls::ssl_ptr ssl{SSL_new(context.get())};
  SSL_set_connect_state(ssl.get());
  must(tls::prepare_client(ssl.get(), t->wanted_, "localhost"));
  socket_type socket = t->raw(t->listener_->local_address());
  stream::impl client{t->shard_, std::move(socket), std::move(ssl), "localhost"};
  auto [shaken, server] = co_await (client.handshake(t->soon()) && t->listener_->accept());
  must(std::move(shaken));
  client.socket.shutdown(socket_type::shutdown_send);  // a FIN, but no close_notify
  const auto got = co_await must(std::move(server))->read();
  EXPECT_EQ(got.error().code(), errc::reset) << got.error().to_string();
  EXPECT_THAT(got.error().message(), HasSubstr("without TLS close_notify"));
}
TEST_F(streams, a_fin_without_close_notify_is_a_truncation) {
  run(truncate(this));
}

task<errc> code_of_read(stream& from) {
  for (;;) {
    const auto got = co_await from.read();
    if (!got) co_return got.error().code();
  }
}

/// Writes until that fails or `cut` has passed.
task<errc> code_of_endless_write(stream& to) {
  const slice part = slice::copy(std::string(1 << 20, 'x'));
  for (;;)
    if (const auto got = co_await to.write({&part, 1}); !got) co_return got.error().code();
}

task<void> abort_later(io::shard& shard, stream& which) {
  (void)co_await shard.sleep_until(io::now() + 20ms);
  which.abort();
}

task<void> abort_beside(streams* t) {
  auto [client, server] = co_await t->both();
  asio::co_spawn(t->shard_.get_executor(), abort_later(t->shard_, *client), asio::detached);
  const auto [read, written] = co_await (code_of_read(*client) && code_of_endless_write(*client));
  EXPECT_EQ(read, errc::closed);
  EXPECT_EQ(written, errc::closed);
  EXPECT_EQ((co_await client->read()).error().code(), errc::closed);
  EXPECT_EQ((co_await client->finish()).error().code(), errc::closed);
  client->abort();
  EXPECT_EQ(co_await code_of_read(*server), errc::reset);
}
TEST_F(streams, abort_ends_pending_operations) {
  run(abort_beside(this));
}

task<void> destroy_later(io::shard& shard, std::unique_ptr<stream>& which) {
  (void)co_await shard.sleep_until(io::now() + 20ms);
  which.reset();
}

task<void> destroy_beside(streams* t) {
  auto [client, server] = co_await t->both();
  stream& end = *client;
  asio::co_spawn(t->shard_.get_executor(), destroy_later(t->shard_, client), asio::detached);
  const auto [read, written] = co_await (code_of_read(end) && code_of_endless_write(end));
  EXPECT_EQ(read, errc::closed);
  EXPECT_EQ(written, errc::closed);
}
TEST_F(streams, may_be_destroyed_under_pending_operations) {
  run(destroy_beside(this));
}

/// Runs `work` and cancels it once the loop has nothing else to do for a while.
template <class T>
task<T> cancelled_soon(io::shard& shard, task<T> work) {
  std::optional<T> outcome;
  io::event done;
  asio::cancellation_signal signal;
  asio::co_spawn(shard.get_executor(), std::move(work),
                 asio::bind_cancellation_slot(signal.slot(), [&](std::exception_ptr e, T got) {
                   if (e) std::rethrow_exception(e);
                   outcome = std::move(got);
                   done.notify();
                 }));
  (void)co_await shard.sleep_until(io::now() + 20ms);
  signal.emit(asio::cancellation_type::terminal);
  if (!outcome) co_await done.wait();
  co_return std::move(*outcome);
}

task<void> cancel_read(streams* t) {
  auto [client, server] = co_await t->both();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(co_await cancelled_soon(t->shard_, code_of_read(*client)), errc::cancelled);
    co_await write_text(*server, "after all");
    EXPECT_EQ(must(co_await client->read()).text(), "after all");
  }
}
TEST_F(streams, a_cancelled_read_loses_nothing) {
  run(cancel_read(this));
}

task<void> cancel_write(streams* t) {
  auto [client, server] = co_await t->both();
  EXPECT_EQ(co_await cancelled_soon(t->shard_, code_of_endless_write(*client)), errc::cancelled);
  co_await write_text(*server, "still readable");
  EXPECT_EQ(must(co_await client->read()).text(), "still readable");
  // What was encrypted already is kept, so the records stay whole for the peer.
  const auto [text, ended] = co_await (read_all(*server) && client->finish());
  must(ended);
  EXPECT_GT(text.size(), 0u);
  EXPECT_EQ(text.find_first_not_of('x'), text.npos);
}
TEST_F(streams, a_cancelled_write_leaves_the_stream_usable) {
  run(cancel_write(this));
}

task<void> need_certificate(streams* t) {
  const auto me = std::make_shared<tls::credentials>(tls::credentials::development().value());
  t->offered_ = std::make_shared<tls::server_options>(*t->offered_);
  auto strict = std::make_shared<tls::server_options>(*t->offered_);
  strict->client_trust =
      std::make_shared<tls::trust>(tls::trust::pinned({me->public_key_fingerprint()}));
  std::string told;
  listen_options options;
  options.on_failed_handshake = [&](const error& e, const address&) { told = e.to_string(); };
  t->listener_ = must(listener::listen(t->shard_, t->any_port(), strict, options));
  const address at = t->listener_->local_address();
  auto client = must(co_await connect(t->shard_, at, "localhost", t->wanted_, t->soon()));
  const auto got = co_await client->read();
  EXPECT_EQ(got.error().code(), errc::tls);
  EXPECT_THAT(got.error().message(), HasSubstr("set client_options::identity"));
  EXPECT_THAT(told, HasSubstr("showed no client certificate"));
  t->wanted_.identity = me;
  auto [known, server] = co_await (connect(t->shard_, at, "localhost", t->wanted_, t->soon()) &&
                                   t->listener_->accept());
  must(std::move(known));
  EXPECT_EQ(must(std::move(server))->session().peer_key, me->public_key_fingerprint());
}
TEST_F(streams, mutual_tls_names_what_is_missing) {
  run(need_certificate(this));
}

// ---- bulk, two shards on two threads ----

std::size_t bulk_bytes() {
  const char* wanted = std::getenv("WEFT_BULK_MIB");
  return (wanted ? std::strtoull(wanted, nullptr, 10) : 24) << 20;
}

/// Cheap, and notices order, loss and repetition: sum of words, each times its position.
struct checksum {
  std::uint64_t sum = 0, position = 0, partial = 0;
  unsigned have = 0;

  void add(bytes data) {
    std::size_t i = 0;
    for (; i < data.size() && have != 0; ++i) byte(data[i]);
    for (; i + 8 <= data.size(); i += 8) {
      std::uint64_t word;
      std::memcpy(&word, data.data() + i, 8);
      sum += word * ++position;
    }
    for (; i < data.size(); ++i) byte(data[i]);
  }
  void byte(std::byte b) {
    partial |= std::to_integer<std::uint64_t>(b) << (8 * have);
    if (++have < 8) return;
    sum += partial * ++position;
    partial = have = 0;
  }
};

task<std::uint64_t> send_bulk(stream& to, std::size_t total, std::vector<std::size_t> sizes) {
  checksum sent;
  std::uint64_t word = 88172645463325252u;
  std::string block(1 << 20, '\0');
  for (std::size_t i = 0; i + 8 <= block.size(); i += 8) {
    word ^= word << 13, word ^= word >> 7, word ^= word << 17;
    std::memcpy(block.data() + i, &word, 8);
  }
  const slice all = slice::copy(block);
  std::vector<slice> parts;
  std::size_t at = 0, next = 0;
  while (total > 0) {
    parts.clear();
    for (std::size_t batch = 0; total > 0 && batch < 256 * 1024;) {
      const std::size_t size = std::min({sizes[next++ % sizes.size()], total, all.size() - at});
      parts.push_back(all.sub(at, size));
      sent.add(parts.back());
      at = at + size == all.size() ? 0 : at + size;
      batch += size;
      total -= size;
    }
    must(co_await to.write(parts));
  }
  must(co_await to.finish());
  co_return sent.sum;
}

task<std::uint64_t> receive_bulk(stream& from, std::size_t total) {
  checksum got;
  std::size_t count = 0;
  for (;;) {
    const slice part = must(co_await from.read());
    if (part.empty()) break;
    got.add(part);
    count += part.size();
  }
  EXPECT_EQ(count, total);
  co_return got.sum;
}

struct two_threads : loopback {
  io::shard far_{1};

  static void pin(int cpu) {
    if (!std::getenv("WEFT_PIN")) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
  }

  template <class Client, class Server>
  void run_both(Client client, Server server) {
    auto listening = must(listener::listen(far_, any_port(), offered_));
    const address at = listening->local_address();
    asio::co_spawn(far_.get_executor(), server(this, listening.get()),
                   [this](std::exception_ptr e) {
                     if (e) ADD_FAILURE() << "the server threw";
                     far_.stop();
                   });
    std::thread other{[this] {
      pin(1);
      far_.run();
    }};
    pin(0);
    run(client(this, at));
    other.join();
  }

  std::uint64_t received_ = 0;
};

/// This thread's processor time: what a figure is worth on a machine that does other things too.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct stopwatch {
  time_point begin = io::now();
  double cpu = cpu_seconds();

  void report(const char* what, const stream& by) const {
    const auto& c = by.counters();
    const double total = static_cast<double>(c.bytes_read + c.bytes_written);
    const double seconds = std::chrono::duration<double>(io::now() - begin).count();
    std::println("{:16} {:.2f} GB/s, {:.2f} GB per processor second, {} system calls, {} wake-ups",
                 what, total / seconds / 1e9, total / (cpu_seconds() - cpu) / 1e9, c.system_calls,
                 c.wake_ups);
  }
};

task<void> bulk_server(two_threads* t, listener* l) {
  auto from = must(co_await l->accept());
  const stopwatch watch;
  t->received_ = co_await receive_bulk(*from, bulk_bytes());
  watch.report("  received", *from);
  must(co_await from->finish());
}
task<void> bulk_client_of(two_threads* t, address at, std::vector<std::size_t> sizes,
                          const char* name) {
  auto to = must(co_await connect(t->shard_, at, "localhost", t->wanted_, t->soon()));
  const stopwatch watch;
  const auto sent = co_await send_bulk(*to, bulk_bytes(), std::move(sizes));
  EXPECT_TRUE(must(co_await to->read()).empty());
  watch.report(name, *to);
  EXPECT_EQ(to->counters().bytes_written, bulk_bytes());
  while (!t->far_.context().stopped()) (void)co_await t->shard_.sleep_until(io::now() + 1ms);
  EXPECT_EQ(sent, t->received_);
}
task<void> bulk_large(two_threads* t, address at) {
  return bulk_client_of(t, at, {64 * 1024}, "64 KiB slices");
}
task<void> bulk_odd(two_threads* t, address at) {
  return bulk_client_of(t, at, {1, 20'000, 333, 16'384, 7, 5'000, 65'537}, "odd slices");
}
task<void> bulk_small(two_threads* t, address at) {
  return bulk_client_of(t, at, {1024}, "1 KiB slices");
}
TEST_F(two_threads, bulk_in_large_slices_arrives_whole) {
  run_both(bulk_large, bulk_server);
}
TEST_F(two_threads, bulk_in_odd_slices_arrives_whole) {
  run_both(bulk_odd, bulk_server);
}
TEST_F(two_threads, bulk_in_small_slices_arrives_whole) {
  run_both(bulk_small, bulk_server);
}

task<void> echo_bulk(two_threads*, listener* l) {
  auto peer = must(co_await l->accept());
  for (;;) {
    const slice part = must(co_await peer->read());
    if (part.empty()) break;
    must(co_await peer->write({&part, 1}));
  }
  must(co_await peer->finish());
}
task<void> duplex(two_threads* t, address at) {
  auto end = must(co_await connect(t->shard_, at, "localhost", t->wanted_, t->soon()));
  const std::size_t total = bulk_bytes() / 2;
  const auto [sent, got] =
      co_await (send_bulk(*end, total, {100'000, 3}) && receive_bulk(*end, total));
  EXPECT_EQ(sent, got);
}
TEST_F(two_threads, both_directions_at_once_arrive_whole) {
  run_both(duplex, echo_bulk);
}

task<void> ping(two_threads* t, address at) {
  auto end = must(co_await connect(t->shard_, at, "localhost", t->wanted_, t->soon()));
  const slice message = slice::copy(std::string(1024, 'm'));
  std::vector<duration> taken(std::getenv("WEFT_BULK_MIB") ? 20'000 : 500);
  for (auto& each : taken) {
    const auto begin = io::now();
    must(co_await end->write({&message, 1}));
    for (std::size_t got = 0; got < 1024;) got += must(co_await end->read()).size();
    each = io::now() - begin;
  }
  must(co_await end->finish());
  EXPECT_TRUE(must(co_await end->read()).empty());
  std::ranges::sort(taken);
  std::println("1 KiB ping-pong: p50 {} p99 {}, {} system calls, {} wake-ups for {} rounds",
               taken[taken.size() / 2], taken[taken.size() * 99 / 100],
               end->counters().system_calls, end->counters().wake_ups, taken.size());
}
TEST_F(two_threads, small_messages_go_back_and_forth) {
  run_both(ping, echo_bulk);
}

}  // namespace
}  // namespace weft::tcp
