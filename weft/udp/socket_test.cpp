#include <weft/udp/socket.hpp>

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <new>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>

namespace {

std::atomic<std::size_t> allocations = 0;

void* counted(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc{};
}

}  // namespace

void* operator new(std::size_t size) {
  return counted(size);
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(size == 0 ? 1 : size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(size == 0 ? 1 : size);
}
void* operator new[](std::size_t size) {
  return counted(size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace weft::udp {
namespace {

using namespace std::chrono_literals;

const address loopback4 = address::ipv4({127, 0, 0, 1}, 0);
const address loopback6 = *address::parse("[::1]:0");
const address any6 = *address::parse("[::]:0");
constexpr std::size_t plenty = 1'000'000;

/// Order matters to it, and the way bytes are cut does not.
class checksum {
 public:
  void add(bytes data) {
    for (; filled_ != 0 && !data.empty(); data = data.subspan(1)) add_byte(data[0]);
    for (; data.size() >= sizeof(std::uint64_t); data = data.subspan(sizeof(std::uint64_t))) {
      std::uint64_t word;
      std::memcpy(&word, data.data(), sizeof word);
      mix(word);
    }
    for (const std::byte b : data) add_byte(b);
  }
  friend bool operator==(const checksum&, const checksum&) = default;

 private:
  void add_byte(std::byte b) {
    partial_ |= std::uint64_t{std::to_integer<std::uint8_t>(b)} << (8 * filled_);
    if (++filled_ < sizeof partial_) return;
    mix(partial_);
    partial_ = filled_ = 0;
  }
  void mix(std::uint64_t word) { sum_ = (sum_ ^ word) * 0x9e3779b97f4a7c15u + 1; }

  std::uint64_t sum_ = 0, partial_ = 0;
  std::size_t filled_ = 0;
};

socket open_or_die(io::shard& shard, const address& at, const options& opts = {}) {
  auto opened = socket::open(shard, at, opts);
  if (!opened) throw std::runtime_error{opened.error().to_string()};
  return std::move(*opened);
}

/// Receives until `datagrams` have come. Loopback delivers before sendmsg returns as a rule; the
/// bound only turns a lost datagram into a failure instead of an endless test.
std::size_t receive_exactly(socket& from, std::size_t datagrams,
                            const std::function<void(const train&)>& on_train) {
  std::size_t got = 0;
  const auto give_up = io::now() + 5s;
  while (got < datagrams && io::now() < give_up) {
    const auto n = from.receive(plenty, on_train);
    if (!n) {
      ADD_FAILURE() << n.error().to_string();
      break;
    }
    got += *n;
  }
  return got;
}

std::vector<std::string> receive_payloads(socket& from, std::size_t datagrams) {
  std::vector<std::string> all;
  receive_exactly(from, datagrams, [&](const train& t) {
    for (bytes left = t.payload; !left.empty();
         left = left.subspan(std::min(t.segment, left.size())))
      all.emplace_back(as_text(left.first(std::min(t.segment, left.size()))));
  });
  return all;
}

struct transfer {
  bool offload = true, coalescing = true, many = true;
  std::size_t buffer = std::size_t{8} << 20;
  std::size_t segment = 1400;
  std::size_t total = std::size_t{8} << 20;
  bool ipv6 = false;

  friend void PrintTo(const transfer& t, std::ostream* out) {
    *out << (t.offload ? "offload " : "") << (t.coalescing ? "coalescing " : "")
         << (t.many ? "many " : "") << "segment " << t.segment << " buffer " << t.buffer
         << (t.ipv6 ? " ipv6" : "");
  }
};

/// Sends `how.total` bytes in trains, draining the receiver whenever its buffer could be full.
void run_transfer(io::shard& shard, const transfer& how, counters& sent, counters& received) {
  const options opts{.send_buffer = how.buffer,
                     .receive_buffer = how.buffer,
                     .allow_segmentation_offload = how.offload,
                     .allow_receive_coalescing = how.coalescing,
                     .allow_multi_message = how.many};
  const address at = how.ipv6 ? loopback6 : loopback4;
  socket from = open_or_die(shard, at, opts), to = open_or_die(shard, at, opts);
  EXPECT_LE(from.capabilities().segmentation_offload, how.offload);
  EXPECT_LE(to.capabilities().receive_coalescing, how.coalescing);

  const std::size_t datagrams = std::min(max_train_segments, max_train_bytes / how.segment);
  std::vector<std::byte> content(datagrams * how.segment);
  std::mt19937_64 random{7};
  for (std::size_t i = 0; i + 8 <= content.size(); i += 8) {
    const std::uint64_t word = random();
    std::memcpy(&content[i], &word, sizeof word);
  }
  // A tiny buffer takes one packet at least, and what stays coalesced is one packet: then that is
  // the window.
  const bool tiny = to.capabilities().receive_buffer < 2 * content.size() * 2;
  const bool whole_trains = !tiny || (how.offload && how.coalescing);
  const std::size_t step = whole_trains ? content.size() : how.segment;
  const std::size_t window = tiny ? step : std::size_t{1} << 20;

  checksum put, got;
  std::size_t in_flight = 0;
  const auto on_train = [&](const train& t) { got.add(t.payload); };
  for (std::size_t done = 0; done < how.total;) {
    const std::size_t size = std::min(step, how.total - done);
    std::memcpy(content.data(), &done, std::min(sizeof done, size));
    const train t{.path = {from.local_address(), to.local_address()},
                  .payload = bytes{content}.first(size),
                  .segment = how.segment};
    put.add(t.payload);
    ASSERT_TRUE(from.send({&t, 1}));
    while (!from.writable()) ASSERT_TRUE(from.flush());
    done += size;
    in_flight += t.datagrams();
    if (in_flight * how.segment >= window || done == how.total)
      in_flight -= receive_exactly(to, in_flight, on_train);
    ASSERT_TRUE(in_flight == 0 || in_flight * how.segment < window) << "datagrams were lost";
  }
  EXPECT_EQ(put, got);
  sent = from.counters();
  received = to.counters();
  EXPECT_EQ(sent.bytes_sent, how.total);
  EXPECT_EQ(received.bytes_received, how.total);
  EXPECT_EQ(sent.datagrams_sent, received.datagrams_received);
  EXPECT_EQ(received.truncated, 0u);
  EXPECT_EQ(received.kernel_drops, 0u);
  EXPECT_EQ(sent.oversize_dropped + sent.unreachable + sent.send_dropped, 0u);
}

std::uint64_t calls_in(const batch_histogram& histogram) {
  std::uint64_t calls = 0;
  for (const auto n : histogram) calls += n;
  return calls;
}

double per_call(std::uint64_t datagrams, std::uint64_t calls) {
  return static_cast<double>(datagrams) / static_cast<double>(calls);
}

TEST(udp_transfer, offload_really_happens_over_100_megabytes) {
  io::shard shard;
  if (!probe(shard)->segmentation_offload) GTEST_SKIP() << "this kernel has no UDP_SEGMENT";
  counters sent, received;
  constexpr std::size_t total = 100'000'000;
  const auto start = io::now();
  run_transfer(shard, {.total = total}, sent, received);
  const std::chrono::duration<double> took = io::now() - start;
  EXPECT_GE(per_call(sent.datagrams_sent, sent.send_calls), 20.0);
  EXPECT_GE(per_call(sent.offloaded_datagrams, sent.offloaded_sends), 20.0);
  EXPECT_GE(sent.offloaded_datagrams, sent.datagrams_sent * 99 / 100);
  EXPECT_EQ(calls_in(sent.send_batch), sent.send_calls);
  EXPECT_GT(received.coalesced_trains, 0u);
  EXPECT_GE(per_call(received.datagrams_received, received.receive_calls), 20.0);
  RecordProperty("gigabytes_per_second", std::to_string(total / took.count() / 1e9));
  RecordProperty("datagrams_per_send",
                 std::to_string(per_call(sent.datagrams_sent, sent.send_calls)));
  RecordProperty("datagrams_per_receive",
                 std::to_string(per_call(received.datagrams_received, received.receive_calls)));
}

class udp_transfers : public testing::TestWithParam<transfer> {};

TEST_P(udp_transfers, every_byte_arrives_in_order) {
  io::shard shard;
  counters sent, received;
  run_transfer(shard, GetParam(), sent, received);
  const transfer& how = GetParam();
  EXPECT_TRUE(how.offload || sent.offloaded_sends == 0);
  EXPECT_TRUE(how.coalescing || received.coalesced_trains == 0);
  if (how.offload || how.buffer == 1) return;
  if (how.many) {
    EXPECT_GE(per_call(sent.datagrams_sent, sent.send_calls), 20.0);
  } else {
    EXPECT_EQ(sent.send_calls, sent.datagrams_sent);
  }
}

std::vector<transfer> transfers() {
  std::vector<transfer> all;
  for (const bool offload : {true, false})
    for (const bool coalescing : {true, false})
      for (const bool many : {true, false})
        for (const bool ipv6 : {true, false})
          all.push_back({.offload = offload, .coalescing = coalescing, .many = many, .ipv6 = ipv6});
  for (transfer t : std::vector{all}) {
    if (t.ipv6) continue;
    t.buffer = 1;  // whatever the kernel's least is
    t.total = std::size_t{1} << 20;
    all.push_back(t);
  }
  for (const std::size_t segment : {1201u, 8176u, 16'000u, 32'745u, 65'488u})
    all.push_back({.segment = segment});
  all.push_back({.segment = 33, .total = std::size_t{1} << 20});
  return all;
}

INSTANTIATE_TEST_SUITE_P(capabilities, udp_transfers, testing::ValuesIn(transfers()));

class udp_odd_sizes : public testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(udp_odd_sizes, in_every_position_of_a_batch_arrive_whole_and_in_order) {
  const auto [offload, coalescing] = GetParam();
  io::shard shard;
  const options opts{.allow_segmentation_offload = offload, .allow_receive_coalescing = coalescing};
  socket from = open_or_die(shard, loopback4, opts), to = open_or_die(shard, loopback4, opts);
  constexpr std::size_t batch = 12, usual = 1200;
  std::mt19937 random{3};
  for (std::size_t first = 0; first < batch; ++first)
    for (std::size_t second = first; second < batch; ++second)
      for (const std::size_t odd : {1u, 777u, 1199u, 1201u, 9001u}) {
        std::vector<std::string> payloads;
        std::vector<train> trains;
        for (std::size_t i = 0; i < batch; ++i) {
          payloads.emplace_back(i == first || i == second ? odd : usual, '\0');
          for (char& c : payloads.back()) c = static_cast<char>(random());
        }
        for (const std::string& p : payloads)
          trains.push_back({.path = {from.local_address(), to.local_address()},
                            .payload = as_bytes(p),
                            .segment = p.size()});
        ASSERT_TRUE(from.send(trains));
        ASSERT_TRUE(receive_payloads(to, batch) == payloads)
            << "odd size " << odd << " at " << first << " and " << second;
      }
  EXPECT_EQ(to.counters().truncated, 0u);
  EXPECT_EQ(from.counters().offloaded_sends > 0, offload);
}

INSTANTIATE_TEST_SUITE_P(capabilities, udp_odd_sizes,
                         testing::Combine(testing::Bool(), testing::Bool()));

TEST(udp_socket, refused_offload_is_switched_off_for_this_socket_and_sent_again) {
  io::shard shard;
  if (!probe(shard)->segmentation_offload) GTEST_SKIP() << "this kernel has no UDP_SEGMENT";
  socket from = open_or_die(shard, loopback4), to = open_or_die(shard, loopback4);
  // Linux refuses UDP_SEGMENT on a socket that sends no checksums.
  const int on = 1;
  ASSERT_EQ(::setsockopt(from.native_handle(), SOL_SOCKET, SO_NO_CHECK, &on, sizeof on), 0);
  std::string payload(20 * 1200 + 17, 'x');
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<char>(i * 31);
  const train t{.path = {from.local_address(), to.local_address()},
                .payload = as_bytes(payload),
                .segment = 1200};
  ASSERT_TRUE(from.send({&t, 1}));
  std::string got;
  for (const auto& d : receive_payloads(to, 21)) got += d;
  EXPECT_TRUE(got == payload);
  EXPECT_FALSE(from.capabilities().segmentation_offload);
  EXPECT_EQ(from.counters().offload_disabled, 1u);
  EXPECT_EQ(from.counters().datagrams_sent, 21u);
  EXPECT_TRUE(to.capabilities().segmentation_offload);
}

TEST(udp_socket, source_address_the_host_lacks_does_not_cost_the_offload) {
  io::shard shard;
  if (!probe(shard)->segmentation_offload) GTEST_SKIP() << "this kernel has no UDP_SEGMENT";
  socket from = open_or_die(shard, address::ipv4({0, 0, 0, 0}, 0)),
         to = open_or_die(shard, loopback4);
  const std::string payload(4 * 100, 'x');
  const address elsewhere = address::ipv4({192, 0, 2, 1}, from.local_address().port());
  const std::array trains{
      train{.path = {elsewhere, to.local_address()}, .payload = as_bytes(payload), .segment = 100},
      train{.path = {loopback4, to.local_address()}, .payload = as_bytes(payload), .segment = 100}};
  ASSERT_TRUE(from.send(trains));
  EXPECT_EQ(receive_payloads(to, 4).size(), 4u);
  EXPECT_TRUE(from.capabilities().segmentation_offload);
  EXPECT_EQ(from.counters().unreachable, 4u);
}

TEST(udp_socket, datagram_too_large_is_dropped_and_counted) {
  io::shard shard;
  socket from = open_or_die(shard, loopback4), to = open_or_die(shard, loopback4);
  const std::string large(65'508, 'x'), small(1200, 'y');
  const weft::path way{from.local_address(), to.local_address()};
  const std::array trains{train{.path = way, .payload = as_bytes(large), .segment = large.size()},
                          train{.path = way, .payload = as_bytes(small), .segment = small.size()}};
  ASSERT_TRUE(from.send(trains));
  const auto got = receive_payloads(to, 1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0], small);
  EXPECT_EQ(from.counters().oversize_dropped, 1u);
}

struct ends {
  const char* from;
  const char* to;       // bound
  const char* reached;  // the address to send to
};

class udp_paths : public testing::TestWithParam<ends> {};

// Marks and both addresses come through, and an answer along the reversed path finds back.
TEST_P(udp_paths, addresses_and_marks_come_through_both_ways) {
  io::shard shard;
  socket client = open_or_die(shard, *address::parse(GetParam().from));
  socket server = open_or_die(shard, *address::parse(GetParam().to));
  const address reached =
      address::parse(GetParam().reached)->with_port(server.local_address().port());
  for (const ecn mark : {ecn::not_ect, ecn::ect0, ecn::ect1, ecn::ce}) {
    const std::string payload(3 * 500, 'p');
    const train request{
        .path = {{}, reached}, .ecn = mark, .payload = as_bytes(payload), .segment = 500};
    ASSERT_TRUE(client.send({&request, 1}));
    std::optional<weft::path> seen;
    EXPECT_EQ(receive_exactly(server, 3,
                              [&](const train& t) {
                                EXPECT_EQ(t.ecn, mark);
                                EXPECT_EQ(t.segment, 500u);
                                seen = t.path;
                              }),
              3u);
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->local, reached);
    EXPECT_EQ(seen->remote.port(), client.local_address().port());
    EXPECT_EQ(seen->remote.ip_family(), reached.ip_family());

    const train answer{.path = *seen, .ecn = mark, .payload = as_bytes(payload), .segment = 500};
    ASSERT_TRUE(server.send({&answer, 1}));
    EXPECT_EQ(receive_exactly(client, 3,
                              [&](const train& t) {
                                EXPECT_EQ(t.ecn, mark);
                                EXPECT_EQ(t.path.remote, reached);
                                EXPECT_EQ(t.path.local.ip_family(), reached.ip_family());
                              }),
              3u);
  }
  EXPECT_EQ(server.counters().unreachable, 0u);
}

INSTANTIATE_TEST_SUITE_P(families, udp_paths,
                         testing::Values(ends{"127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"},
                                         ends{"0.0.0.0:0", "0.0.0.0:0",
                                              "127.0.0.7:0"},  // answers from where it was asked
                                         ends{"[::1]:0", "[::1]:0", "[::1]:0"},
                                         ends{"[::]:0", "[::]:0", "[::1]:0"},
                                         ends{"127.0.0.1:0", "[::]:0", "127.0.0.1:0"},
                                         ends{"127.0.0.1:0", "[::]:0", "127.0.0.9:0"},
                                         ends{"[::]:0", "127.0.0.1:0", "127.0.0.1:0"},
                                         ends{"[::]:0", "[::]:0", "127.0.0.5:0"},
                                         ends{"[::ffff:127.0.0.1]:0", "[::]:0", "127.0.0.1:0"}));

TEST(udp_socket, reports_real_port_and_normalised_address) {
  io::shard shard;
  socket s = open_or_die(shard, *address::parse("[::ffff:127.0.0.1]:0"));
  EXPECT_EQ(s.local_address().ip_family(), address::family::ipv4);
  EXPECT_NE(s.local_address().port(), 0);
  EXPECT_TRUE(open_or_die(shard, any6).local_address().is_ipv6());
}

TEST(udp_socket, failure_to_open_names_the_address) {
  io::shard shard;
  socket first = open_or_die(shard, loopback4);
  const auto second = socket::open(shard, first.local_address());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error(), errc::system);
  EXPECT_EQ(second.error().detail(), static_cast<std::uint64_t>(EADDRINUSE));
  EXPECT_NE(second.error().message().find(first.local_address().to_string()), std::string::npos);
  EXPECT_EQ(socket::open(shard, {}).error(), errc::invalid_argument);
}

TEST(udp_socket, reuse_port_lets_shards_share_a_port) {
  io::shard shard;
  socket first = open_or_die(shard, loopback4, {.reuse_port = true});
  socket second = open_or_die(shard, first.local_address(), {.reuse_port = true});
  EXPECT_EQ(first.local_address(), second.local_address());
}

TEST(udp_socket, a_new_port_to_share_is_nobody_elses) {
  io::shard shard;
  for (const auto& any_port : {loopback4, any6}) {
    std::vector<socket> servers;
    std::set<std::uint16_t> ports;
    for (int i = 0; i < 400; ++i) {
      servers.push_back(open_or_die(shard, any_port, {.reuse_port = true}));
      EXPECT_TRUE(ports.insert(servers.back().local_address().port()).second) << i;
      // Others may still join it.
      socket second = open_or_die(shard, servers.back().local_address(), {.reuse_port = true});
    }
  }
}

TEST(udp_socket, peers_that_refuse_are_never_fatal) {
  io::shard shard;
  socket from = open_or_die(shard, any6);
  address gone;
  {
    socket closed = open_or_die(shard, loopback4);
    gone = closed.local_address();
  }
  socket to = open_or_die(shard, loopback4);
  const std::string payload(100, 'x');
  for (int i = 0; i < 10; ++i) {
    const std::array trains{
        train{.path = {{}, gone}, .payload = as_bytes(payload), .segment = 100},
        train{.path = {{}, to.local_address()}, .payload = as_bytes(payload), .segment = 100}};
    ASSERT_TRUE(from.send(trains));
    ASSERT_TRUE(from.receive(plenty, [](const train&) { FAIL(); }));
  }
  EXPECT_EQ(receive_payloads(to, 10).size(), 10u);
}

// The pending error that an ICMP message leaves on a socket, made certain by IP_RECVERR.
TEST(udp_socket, pending_icmp_error_costs_no_datagram) {
  io::shard shard;
  socket from = open_or_die(shard, loopback4), to = open_or_die(shard, loopback4);
  const int on = 1;
  ASSERT_EQ(::setsockopt(from.native_handle(), IPPROTO_IP, IP_RECVERR, &on, sizeof on), 0);
  address gone;
  {
    socket closed = open_or_die(shard, loopback4);
    gone = closed.local_address();
  }
  const std::string payload(100, 'x');
  const train lost{.path = {{}, gone}, .payload = as_bytes(payload), .segment = 100};
  const train kept{.path = {{}, to.local_address()}, .payload = as_bytes(payload), .segment = 100};
  ASSERT_TRUE(from.send({&lost, 1}));
  ASSERT_TRUE(from.send({&kept, 1}));
  EXPECT_EQ(receive_payloads(to, 1).size(), 1u);
  EXPECT_EQ(from.counters().send_calls, 3u) << "one call met the error of the datagram before";
  ASSERT_TRUE(from.send({&lost, 1}));
  const auto received = from.receive(plenty, [](const train&) { FAIL(); });
  ASSERT_TRUE(received);
  EXPECT_EQ(*received, 0u);
}

TEST(udp_socket, full_receive_buffer_drops_are_counted) {
  io::shard shard;
  socket from = open_or_die(shard, loopback4);
  socket to = open_or_die(shard, loopback4, {.receive_buffer = 1});
  const std::string payload(1000, 'x');
  const train t{.path = {{}, to.local_address()}, .payload = as_bytes(payload), .segment = 1000};
  constexpr std::size_t sent = 100;
  for (std::size_t i = 0; i < sent; ++i) ASSERT_TRUE(from.send({&t, 1}));
  std::size_t got = *to.receive(plenty, [](const train&) {});
  EXPECT_LT(got, sent);
  // The count travels with the next datagram that finds room.
  ASSERT_TRUE(from.send({&t, 1}));
  got += receive_exactly(to, 1, [](const train&) {});
  EXPECT_EQ(to.counters().kernel_drops, sent + 1 - got);
}

TEST(udp_socket, empty_datagram_is_counted_and_not_delivered) {
  io::shard shard;
  socket to = open_or_die(shard, loopback4);
  const int raw = ::socket(AF_INET, SOCK_DGRAM, 0);
  ASSERT_GE(raw, 0);
  const sockaddr_in name{.sin_family = AF_INET,
                         .sin_port = htons(to.local_address().port()),
                         .sin_addr = {htonl(INADDR_LOOPBACK)}};
  EXPECT_EQ(::sendto(raw, "", 0, 0, reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
  ::close(raw);
  EXPECT_EQ(receive_exactly(to, 1, [](const train&) { FAIL(); }), 1u);
}

TEST(udp_socket, receive_stops_at_about_the_bound_and_says_when_it_is_empty) {
  io::shard shard;
  socket from = open_or_die(shard, loopback4);
  socket to = open_or_die(shard, loopback4, {.allow_receive_coalescing = false});
  const std::string payload(100 * 1000, 'x');
  const train t{.path = {{}, to.local_address()}, .payload = as_bytes(payload), .segment = 1000};
  ASSERT_TRUE(from.send({&t, 1}));
  std::size_t got = 0;
  for (std::size_t n; (n = *to.receive(10, [](const train&) {})) == 10;) got += n;
  EXPECT_EQ(got, 100u) << "a short count means empty, nothing before that";
}

TEST(udp_socket, capabilities_are_what_the_kernel_says) {
  io::shard shard;
  const auto gives = probe(shard);
  ASSERT_TRUE(gives);
  socket s = open_or_die(shard, loopback4);
  const int fd = s.native_handle();
  int value = 0;
  socklen_t size = sizeof value;
  EXPECT_EQ(gives->segmentation_offload,
            ::getsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &value, &size) == 0);
  EXPECT_EQ(value, 0) << "never as a socket option: it would cut handshake packets too";
  size = sizeof value;
  EXPECT_EQ(gives->receive_coalescing,
            ::getsockopt(fd, IPPROTO_UDP, UDP_GRO, &value, &size) == 0 && value == 1);
  size = sizeof value;
  ASSERT_EQ(::getsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &value, &size), 0);
  EXPECT_EQ(gives->mtu_probing, value == IP_PMTUDISC_PROBE);
  EXPECT_GT(gives->send_buffer, 0u);
  EXPECT_LE(gives->send_buffer, options{}.send_buffer);
  EXPECT_GT(gives->receive_buffer, 0u);
}

TEST(udp_socket, steady_state_allocates_nothing) {
  io::shard shard;
  socket from = open_or_die(shard, loopback4), to = open_or_die(shard, loopback4);
  const std::string payload(40 * 1200, 'x');
  std::vector<train> trains(8, {.path = {from.local_address(), to.local_address()},
                                .payload = as_bytes(payload),
                                .segment = 1200});
  std::size_t got = 0;
  const std::function<void(const train&)> on_train = [&](const train& t) { got += t.datagrams(); };
  const auto round = [&] {
    ASSERT_TRUE(from.send(trains));
    receive_exactly(to, 320, on_train);
  };
  round();
  const std::size_t before = allocations;
  for (int i = 0; i < 20; ++i) round();
  EXPECT_EQ(allocations - before, 0u);
  EXPECT_EQ(got, 21u * 320);
}

task<> wait_into(socket& s, std::optional<result<>>& out) {
  out = co_await s.wait_readable();
}

task<> send_when_writable(socket& from, const address& to, std::optional<result<>>& out) {
  out = co_await from.wait_writable();
  const train one{.path = {{}, to}, .payload = as_bytes("x"), .segment = 1};
  EXPECT_TRUE(from.send({&one, 1}));
}

TEST(udp_waits, readable_when_something_arrives_and_writable_at_once) {
  io::shard shard;
  socket from = open_or_die(shard, loopback4), to = open_or_die(shard, loopback4);
  std::optional<result<>> readable, writable;
  asio::co_spawn(shard.get_executor(), wait_into(to, readable), asio::detached);
  asio::co_spawn(shard.get_executor(), send_when_writable(from, to.local_address(), writable),
                 asio::detached);
  shard.run();
  ASSERT_TRUE(readable && writable);
  EXPECT_TRUE(*readable);
  EXPECT_TRUE(*writable);
  EXPECT_EQ(receive_payloads(to, 1), std::vector<std::string>{"x"});
}

// Each wait looks again, so nothing that came before it (or between two) is missed.
TEST(udp_waits, readable_is_not_missed_when_it_was_so_before) {
  io::shard shard;
  socket from = open_or_die(shard, loopback4), to = open_or_die(shard, loopback4);
  const train one{.path = {{}, to.local_address()}, .payload = as_bytes("x"), .segment = 1};
  ASSERT_TRUE(from.send({&one, 1}));
  for (int i = 0; i < 3; ++i) {
    std::optional<result<>> readable;
    asio::co_spawn(shard.get_executor(), wait_into(to, readable), asio::detached);
    shard.run();
    ASSERT_TRUE(readable && *readable);
  }
}

/// A loopback that holds packets back, so that a socket's send buffer fills. Only for the calling
/// thread's new network namespace; false where that is not allowed.
bool enter_slow_network() {
  return ::unshare(CLONE_NEWNET) == 0 && std::system("ip link set lo up 2>/dev/null") == 0 &&
         std::system(
             "tc qdisc add dev lo root tbf rate 20mbit burst 100kb limit 10mb "
             "2>/dev/null") == 0;
}

struct slow_transfer {
  static constexpr std::size_t total_trains = 25;
  std::string content = std::string(40 * 1400 + 11, '\0');
  checksum put, got;
  std::size_t received = 0;
  std::function<void()> done;

  train next(std::size_t i, const weft::path& way) {
    std::memcpy(content.data() + 7, &i, sizeof i);
    const train t{.path = way, .payload = as_bytes(content), .segment = 1400};
    put.add(t.payload);
    return t;
  }
};

task<> send_waiting(socket& from, weft::path way, slow_transfer& all) {
  for (std::size_t i = 0; i < slow_transfer::total_trains; ++i) {
    const train t = all.next(i, way);
    EXPECT_TRUE(from.send({&t, 1}));
    while (!from.writable()) {
      EXPECT_TRUE(co_await from.wait_writable());
      EXPECT_TRUE(from.flush());
    }
  }
}

task<> receive_waiting(socket& to, slow_transfer& all) {
  const std::function<void(const train&)> on_train = [&all](const train& t) {
    all.received += t.payload.size();
    all.got.add(t.payload);
  };
  while (all.received < slow_transfer::total_trains * all.content.size()) {
    EXPECT_TRUE(co_await to.wait_readable());
    EXPECT_TRUE(to.receive(plenty, on_train));
  }
  all.done();
}

class udp_full_buffers : public testing::TestWithParam<bool> {};

TEST_P(udp_full_buffers, are_waited_for_and_every_byte_arrives_in_order) {
  bool allowed = false;
  std::thread{[&] {
    if (!(allowed = enter_slow_network())) return;
    io::shard shard;
    const options tiny{.send_buffer = 1, .allow_segmentation_offload = GetParam()};
    socket from = open_or_die(shard, loopback4, tiny), to = open_or_die(shard, loopback4);
    slow_transfer all;
    asio::co_spawn(shard.get_executor(), receive_waiting(to, all), asio::detached);
    asio::co_spawn(shard.get_executor(),
                   send_waiting(from, {from.local_address(), to.local_address()}, all),
                   asio::detached);
    io::timer give_up;  // turns a lost datagram into a failure instead of an endless test
    shard.arm(give_up, io::now() + 10s, [&](time_point) { shard.stop(); });
    all.done = [&] { shard.stop(); };
    shard.run();
    EXPECT_EQ(all.received, slow_transfer::total_trains * all.content.size());
    EXPECT_EQ(all.put, all.got);
    EXPECT_GT(from.counters().send_blocked, 0u);
    EXPECT_GT(from.counters().datagrams_resent, 0u);
    EXPECT_EQ(from.counters().offloaded_sends > 0, GetParam());
  }}.join();
  if (!allowed) GTEST_SKIP() << "needs CAP_SYS_ADMIN, ip and tc";
}

INSTANTIATE_TEST_SUITE_P(offload, udp_full_buffers, testing::Bool());

TEST(udp_waits, cancelled_by_close_destruction_and_cancellation) {
  io::shard shard;
  socket closed = open_or_die(shard, loopback4), cancelled = open_or_die(shard, loopback4);
  auto destroyed = std::make_optional(open_or_die(shard, loopback4));
  std::optional<result<>> by_close, by_cancellation, by_destruction, after;
  asio::cancellation_signal signal;
  asio::co_spawn(shard.get_executor(), wait_into(closed, by_close), asio::detached);
  asio::co_spawn(shard.get_executor(), wait_into(*destroyed, by_destruction), asio::detached);
  asio::co_spawn(shard.get_executor(), wait_into(cancelled, by_cancellation),
                 asio::bind_cancellation_slot(signal.slot(), asio::detached));
  shard.post([&] {
    closed.close();
    closed.close();
    destroyed.reset();
    signal.emit(asio::cancellation_type::terminal);
    asio::co_spawn(shard.get_executor(), wait_into(closed, after), asio::detached);
  });
  shard.run();
  for (const auto* outcome : {&by_close, &by_cancellation, &by_destruction, &after}) {
    ASSERT_TRUE(*outcome);
    ASSERT_FALSE(**outcome);
    EXPECT_EQ((**outcome).error(), errc::cancelled);
  }
  EXPECT_EQ(closed.native_handle(), -1);
  EXPECT_EQ(closed.send({}).error(), errc::closed);
  EXPECT_EQ(closed.receive(1, [](const train&) {}).error(), errc::closed);
}

TEST(udp_waits, socket_may_be_closed_from_inside_receive) {
  io::shard shard;
  socket from = open_or_die(shard, loopback4);
  socket to = open_or_die(shard, loopback4, {.allow_receive_coalescing = false});
  const std::string payload(10 * 100, 'x');
  const train t{.path = {{}, to.local_address()}, .payload = as_bytes(payload), .segment = 100};
  ASSERT_TRUE(from.send({&t, 1}));
  int delivered = 0;
  const auto n = to.receive(plenty, [&](const train&) {
    ++delivered;
    to.close();
  });
  EXPECT_TRUE(n);
  EXPECT_EQ(delivered, 1);
}

}  // namespace
}  // namespace weft::udp
