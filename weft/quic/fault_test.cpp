// What goes wrong below QUIC: paths that do not work, sockets that fail or are full.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include <weft/quic/test_support.hpp>

namespace weft::quic {
namespace {

using namespace test;

/// Passes datagrams between a server and the first client address it sees; those of any other
/// address are lost, as behind a firewall that knows only the flow it has let through.
class relay {
 public:
  relay(io::shard& shard, const address& server)
      : server_{server},
        front_{must(udp::socket::open(shard, loopback()))},
        back_{must(udp::socket::open(shard, loopback()))} {
    asio::co_spawn(shard.get_executor(),
                   pump(front_, [this](const udp::train& t) { from_client(t); }), asio::detached);
    asio::co_spawn(shard.get_executor(),
                   pump(back_, [this](const udp::train& t) { pass(front_, client_, t); }),
                   asio::detached);
  }

  const address& where() const noexcept { return front_.local_address(); }
  int lost() const noexcept { return lost_; }

 private:
  void from_client(const udp::train& t) {
    if (client_.ip_family() == address::family::none) client_ = t.path.remote;
    if (t.path.remote == client_)
      pass(back_, server_, t);
    else
      ++lost_;
  }
  static void pass(udp::socket& through, const address& to, udp::train t) {
    t.path = {through.local_address(), to};
    must(through.send({&t, 1}));
  }
  static task<> pump(udp::socket& from, std::function<void(const udp::train&)> on_train) {
    while (co_await from.wait_readable()) must(from.receive(1024, on_train));
  }

  address server_, client_;
  udp::socket front_, back_;
  int lost_ = 0;
};

task<> say(connection& c, std::string_view text) {
  auto s = must(co_await c.open_stream());
  must(co_await s.write(slice::copy(text)));
  must(s.finish());
  EXPECT_EQ(must(co_await read_all(s)).text(), text);
}

TEST(fault, a_path_that_does_not_work_leaves_the_connection_on_the_old_one) {
  pair p;
  p.serve();
  relay between{p.shard, p.server.local_address()};
  run(p.shard, [](pair& p, relay& between) -> task<> {
    auto c = must(co_await p.client.connect(between.where(), "localhost", calling()));
    co_await say(c, "before");
    const path home = c.current_path();
    const auto moved = co_await c.migrate(loopback());
    EXPECT_FALSE(moved);
    EXPECT_EQ(moved.error().code(), errc::unreachable);
    EXPECT_GT(between.lost(), 0);
    EXPECT_EQ(c.current_path(), home);
    EXPECT_EQ(c.stats().migrations, 0u);
    co_await say(c, "after");
  }(p, between));
}

/// The descriptor of this process's UDP socket on `local`'s port.
int descriptor_of(const address& local) {
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_in name{};
    socklen_t size = sizeof name;
    int type = 0;
    socklen_t type_size = sizeof type;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) == 0 &&
        ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_size) == 0 && type == SOCK_DGRAM &&
        ntohs(name.sin_port) == local.port())
      return fd;
  }
  return -1;
}

/// From now on every call on the socket fails for good.
void break_socket(const address& local) {
  const int fd = descriptor_of(local);
  ASSERT_GE(fd, 0);
  const int other = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::dup2(other, fd), fd);
  ::close(other);
}

TEST(fault, a_client_socket_that_fails_ends_its_connections_with_the_reason) {
  pair p;
  p.serve();
  run(p.shard, [](pair& p) -> task<> {
    auto c = co_await p.connect();
    co_await say(c, "before");
    auto s = must(co_await c.open_stream());
    break_socket(c.current_path().local);
    (void)co_await s.write(slice::copy("nowhere to go"));
    const error why = co_await c.closed();
    EXPECT_EQ(why.where(), layer::udp) << why.to_string();
    const auto got = co_await s.read();
    EXPECT_FALSE(got);
    EXPECT_EQ(got.error().where(), layer::udp);
    const auto again = co_await p.client.connect(p.server.local_address(), "localhost", calling());
    EXPECT_EQ(again.error().code(), errc::closed);
  }(p));
}

TEST(fault, a_moved_socket_that_fails_ends_only_the_connection_it_carries) {
  pair p;
  p.serve();
  run(p.shard, [](pair& p) -> task<> {
    auto moved = co_await p.connect();
    auto stayed = co_await p.connect();
    must(co_await moved.migrate(loopback()));
    co_await say(moved, "before");
    EXPECT_NE(moved.current_path().local, stayed.current_path().local);
    auto s = must(co_await moved.open_stream());
    break_socket(moved.current_path().local);
    (void)co_await s.write(slice::copy("nowhere to go"));
    const error why = co_await moved.closed();
    EXPECT_EQ(why.where(), layer::udp) << why.to_string();
    co_await say(stayed, "after");
  }(p));
}

/// An address of this machine's that nobody listens at.
address dead(io::shard& shard, const address& at) {
  return must(udp::socket::open(shard, at)).local_address();
}

TEST(fault, a_port_where_nobody_listens_refuses_at_once) {
  pair p;
  run(p.shard, [](pair& p) -> task<> {
    for (const address& at :
         {loopback(), address::ipv6({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 0)}) {
      const address nobody = dead(p.shard, at);
      const auto got = co_await p.client.connect(nobody, "localhost", calling());
      EXPECT_FALSE(got);
      EXPECT_EQ(got.error().code(), errc::refused) << got.error().to_string();
      EXPECT_THAT(got.error().message(), testing::HasSubstr(nobody.to_string()));
    }
  }(p));
}

TEST(fault, a_refusal_ends_no_connection_that_stands) {
  pair p;
  p.serve();
  run(p.shard, [](pair& p) -> task<> {
    auto standing = co_await p.connect();
    co_await say(standing, "before");
    break_socket(p.server.local_address());
    const auto got = co_await p.client.connect(p.server.local_address(), "localhost", calling());
    EXPECT_EQ(got.error().code(), errc::refused) << got.error().to_string();
    EXPECT_TRUE(standing.is_open());
  }(p));
}

TEST(fault, a_server_socket_that_fails_tells_who_accepts) {
  pair p;
  run(p.shard, [](pair& p) -> task<> {
    auto both = co_await meet(p);
    auto s = must(co_await both.server.open_stream());
    break_socket(p.server.local_address());
    (void)co_await s.write(slice::copy("nowhere to go"));
    const auto next = co_await p.server.accept();
    EXPECT_FALSE(next);
    EXPECT_EQ(next.error().where(), layer::udp) << next.error().to_string();
    EXPECT_EQ((co_await both.server.closed()).where(), layer::udp);
  }(p));
}

/// A loopback that holds packets back, so that a socket's send buffer fills. Only for the calling
/// thread's new network namespace; false where that is not allowed.
bool enter_slow_network() {
  return ::unshare(CLONE_NEWNET) == 0 && std::system("ip link set lo up 2>/dev/null") == 0 &&
         std::system(
             "tc qdisc add dev lo root tbf rate 400mbit burst 100kb limit 10mb "
             "2>/dev/null") == 0;
}

TEST(fault, a_full_socket_is_waited_for) {
  bool allowed = false;
  std::thread{[&] {
    if (!(allowed = enter_slow_network())) return;
    endpoint_config config;
    config.socket.send_buffer = 1;
    transport_options transport;
    transport.max_udp_payload = 1452;
    pair p{transport, config};
    p.serve();
    run(p.shard, [](pair& p) -> task<> {
      auto c = co_await p.connect();
      auto s = must(co_await c.open_stream());
      const slice data = pattern(8 << 20);
      asio::co_spawn(
          co_await asio::this_coro::executor,
          [](stream& s, slice data) -> task<> {
            must(co_await s.write(std::move(data)));
            must(s.finish());
          }(s, data),
          asio::detached);
      EXPECT_EQ(sum_of(must(co_await read_all(s))), sum_of(data));
      EXPECT_GT(p.client.socket_counters().send_blocked, 0u);
    }(p));
  }}.join();
  if (!allowed) GTEST_SKIP() << "needs CAP_SYS_ADMIN, ip and tc";
}

}  // namespace
}  // namespace weft::quic
