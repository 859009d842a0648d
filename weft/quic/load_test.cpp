// Two threads: much data, and much trouble.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>

#include <weft/io/event.hpp>
#include <weft/quic/stream_socket.hpp>
#include <weft/quic/test_support.hpp>

namespace weft::quic {
namespace {

using namespace test;

/// An echo server on a thread of its own.
class server_thread {
 public:
  explicit server_thread(transport_options transport = {})
      : server_{must(endpoint::listen(shard_, loopback(), serving(transport)))},
        where_{server_->local_address()},
        thread_{[this] {
          asio::co_spawn(shard_.get_executor(), echo_server(*server_), asio::detached);
          shard_.run();
        }} {}
  ~server_thread() {
    shard_.post([this] {
      counters_ = server_->socket_counters();
      server_.reset();
      shard_.stop();
    });
    thread_.join();
  }

  const address& where() const noexcept { return where_; }

 private:
  io::shard shard_;
  std::optional<endpoint> server_;
  address where_;
  udp::counters counters_;
  std::thread thread_;
};

TEST(load, carries_100_megabytes_whole_and_in_trains) {
  transport_options mtu;
  mtu.max_udp_payload = 1452;
  server_thread server{mtu};
  io::shard shard;
  auto client = must(endpoint::open(shard, {}));
  run(
      shard,
      [](endpoint& client, address to, transport_options mtu) -> task<> {
        auto c = must(co_await client.connect(to, "localhost", calling(mtu)));
        auto s = must(co_await c.open_stream());
        constexpr std::size_t total = 100 << 20;
        const slice block = pattern(1 << 20);
        auto ex = co_await asio::this_coro::executor;
        asio::co_spawn(
            ex,
            [](stream& s, slice block) -> task<> {
              for (std::size_t sent = 0; sent < total; sent += block.size())
                must(co_await s.write(block));
              must(s.finish());
            }(s, block),
            asio::detached);
        // Compared piece by piece: a checksum of all of it would take longer than sending it.
        std::size_t got = 0;
        bool same = true;
        for (;;) {
          slice piece = must(co_await s.read());
          if (piece.empty()) break;
          while (!piece.empty()) {
            const std::size_t at = got % block.size();
            const std::size_t count = std::min(piece.size(), block.size() - at);
            same = same && std::memcmp(piece.data(), block.data() + at, count) == 0;
            piece.drop_front(count);
            got += count;
          }
        }
        EXPECT_TRUE(same);
        EXPECT_EQ(got, total);
        const auto& figures = client.socket_counters();
        EXPECT_GE(figures.datagrams_sent, 70'000);
        EXPECT_GE(figures.offloaded_datagrams, figures.datagrams_sent / 2);
        EXPECT_GT(figures.coalesced_trains, 0);
        EXPECT_EQ(figures.truncated, 0);
        // Both ways on one core pair: sent data alone counts, acknowledgements go one by one.
        const double per_call =
            static_cast<double>(figures.datagrams_sent) / static_cast<double>(figures.send_calls);
        EXPECT_GE(per_call, 20) << figures.datagrams_sent << " datagrams, " << figures.send_calls
                                << " calls";
      }(client, server.where(), mtu),
      120s);
}

TEST(load, sends_no_more_at_once_than_its_cap) {
  transport_options mtu;
  mtu.max_udp_payload = 1452;
  endpoint_config config;
  config.loop.train_bytes = 8 << 10;
  pair p{mtu, config};
  p.serve();
  run(p.shard, [](pair& p) -> task<> {
    auto c = co_await p.connect();
    auto s = must(co_await c.open_stream());
    must(co_await s.write(pattern(1 << 20)));
    must(s.finish());
    EXPECT_EQ(must(co_await read_all(s)).size(), 1u << 20);
    const auto& batches = p.client.socket_counters().send_batch;
    // 8 KiB hold five datagrams of 1 452 bytes.
    EXPECT_GT(batches[3], 100u);
    for (std::size_t i = 4; i < batches.size(); ++i) EXPECT_EQ(batches[i], 0u) << i;
  }(p));
}

// 1 000 streams torn down in every way at random moments, while they and others carry data. Each
// pending operation has to complete: the watchdog of `run` fails the test otherwise.
class teardown {
 public:
  teardown(endpoint& client, address to, std::uint64_t seed)
      : client_{client}, to_{to}, random_{seed} {}

  static task<> go(teardown& self) {
    auto ex = co_await asio::this_coro::executor;
    constexpr int victims = 1000;
    for (int i = 0; i < victims; ++i) {
      if (i % 100 == 0) co_await self.reconnect();
      while (self.running_ > 40) co_await self.someone_ended_.wait();
      ++self.running_;
      asio::co_spawn(ex, i % 3 == 0 ? victim_socket(self) : victim_stream(self),
                     [&self](std::exception_ptr failure) {
                       EXPECT_FALSE(failure);
                       --self.running_;
                       self.someone_ended_.notify();
                     });
    }
    while (self.running_ > 0) co_await self.someone_ended_.wait();
    // What was torn down completes; if something does not, the watchdog says so.
    while (self.reads_ended_ < self.reads_started_ || self.writes_ended_ < self.writes_started_)
      co_await after(self.client_.shard(), 1ms);
    EXPECT_GT(self.reads_started_, 500);
    EXPECT_GT(self.bytes_, 8192u);  // how much there is time for depends on the machine
  }

 private:
  int draw(int below) { return std::uniform_int_distribution{0, below - 1}(random_); }

  task<> reconnect() {
    // Streams of the old connection are in the middle of something; it ends with words, without, or
    // lives on.
    switch (draw(3)) {
      case 0:
        if (connection_) connection_.close(3, "torn down");
        break;
      case 1:
        older_.push_back(std::move(connection_));
        break;
    }
    connection_ = must(co_await client_.connect(to_, "localhost", calling(small())));
  }

 public:
  static transport_options small() {
    transport_options t;
    t.stream_window = 64 << 10;
    t.connection_window = 1 << 20;
    t.stream_send_buffer = 64 << 10;
    t.max_bidi_streams = 100;
    return t;
  }

 private:
  static task<> read_on(teardown& self, std::shared_ptr<stream> s) {
    ++self.reads_started_;
    while (*s) {
      auto got = co_await s->read();
      if (!got || got->empty()) break;
      self.bytes_ += got->size();
    }
    ++self.reads_ended_;
  }
  static task<> write_on(teardown& self, std::shared_ptr<stream> s, slice data) {
    ++self.writes_started_;
    while (*s) {
      auto written = co_await s->write(data);
      if (!written) break;
    }
    ++self.writes_ended_;
  }

  static task<> victim_stream(teardown& self) {
    auto ex = co_await asio::this_coro::executor;
    auto opened = co_await self.connection_.open_stream();
    if (!opened) co_return;  // the connection was closed meanwhile
    auto s = std::make_shared<stream>(std::move(*opened));
    static const slice data = pattern(200'000);
    asio::co_spawn(ex, read_on(self, s), asio::detached);
    asio::co_spawn(ex, write_on(self, s, data), asio::detached);
    co_await after(self.client_.shard(), std::chrono::microseconds{self.draw(50'000)});
    switch (self.draw(4)) {
      case 0:
        s->reset(1);
        s->stop_sending(1);
        break;
      case 1:
        *s = stream{};
        break;
      case 2:
        s->stop_sending(2);
        co_await after(self.client_.shard(), 1ms);
        s->reset(2);
        break;
      case 3: {
        const stream elsewhere = std::move(*s);
        break;
      }
    }
  }

  static task<> victim_socket(teardown& self) {
    auto opened = co_await self.connection_.open_stream();
    if (!opened) co_return;
    auto socket =
        std::make_shared<stream_socket>(self.client_.shard().get_executor(), std::move(*opened));
    static const slice data = pattern(300'000);
    ++self.reads_started_;
    read_socket(self, socket, std::make_shared<std::vector<char>>(8192));
    ++self.writes_started_;
    write_socket(self, socket, data);
    co_await after(self.client_.shard(), std::chrono::microseconds{self.draw(50'000)});
    socket->close();
  }
  static void read_socket(teardown& self, std::shared_ptr<stream_socket> socket,
                          std::shared_ptr<std::vector<char>> room) {
    socket->async_read_some(asio::buffer(*room),
                            [&self, socket, room](asio::error_code failure, std::size_t size) {
                              self.bytes_ += size;
                              if (failure) {
                                ++self.reads_ended_;
                              } else {
                                read_socket(self, socket, room);
                              }
                            });
  }
  static void write_socket(teardown& self, std::shared_ptr<stream_socket> socket, slice data) {
    socket->async_write_some(asio::buffer(data.data(), data.size()),
                             [&self, socket, data](asio::error_code failure, std::size_t) {
                               if (failure) {
                                 ++self.writes_ended_;
                               } else {
                                 write_socket(self, socket, data);
                               }
                             });
  }

  endpoint& client_;
  address to_;
  std::mt19937_64 random_;
  connection connection_;
  std::vector<connection> older_;
  io::event someone_ended_;
  int running_ = 0;
  int reads_started_ = 0, reads_ended_ = 0, writes_started_ = 0, writes_ended_ = 0;
  std::uint64_t bytes_ = 0;
};

TEST(load, a_thousand_random_teardowns_leave_nobody_hanging) {
  const char* given = std::getenv("WEFT_TEST_SEED");
  const std::uint64_t seed = given ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  SCOPED_TRACE("WEFT_TEST_SEED=" + std::to_string(seed));
  server_thread server{teardown::small()};
  io::shard shard;
  auto client = must(endpoint::open(shard, {}));
  teardown work{client, server.where(), seed};
  run(shard, teardown::go(work), 60s);
}

}  // namespace
}  // namespace weft::quic
