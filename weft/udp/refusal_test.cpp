// Peers whose host says that nobody listens.

#include <poll.h>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <weft/udp/socket.hpp>

namespace weft::udp {
namespace {

const address loopback4 = address::ipv4({127, 0, 0, 1}, 0);
const address loopback6 = address::ipv6({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 0);

socket must_open(io::shard& shard, const address& local, const options& opts = {}) {
  auto opened = socket::open(shard, local, opts);
  if (!opened) throw std::runtime_error{opened.error().to_string()};
  return std::move(*opened);
}

/// Sends a datagram to each of `to` and receives what the kernel has to say about that.
std::vector<address> refusals_of(socket& from, std::vector<address> to) {
  const std::string text = "anybody there?";
  for (const address& each : to) {
    const train t{
        .path = {{}, each}, .payload = std::as_bytes(std::span{text}), .segment = text.size()};
    EXPECT_TRUE(from.send({&t, 1}));
    pollfd answer{.fd = from.native_handle(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&answer, 1, 10'000), 1);
    EXPECT_TRUE(from.receive(16, [](const train&) { ADD_FAILURE() << "nobody sends anything"; }));
  }
  return from.take_refusals();
}

TEST(udp_refusals, tell_whom_they_are_about) {
  io::shard shard;
  for (const address& at : {loopback4, loopback6}) {
    const address dead = must_open(shard, at).local_address();
    socket from = must_open(shard, at, {.report_refusals = true});
    EXPECT_EQ(refusals_of(from, {dead}), std::vector{dead});
    EXPECT_TRUE(from.take_refusals().empty());
    // Nothing is left that keeps the socket ready.
    pollfd quiet{.fd = from.native_handle(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&quiet, 1, 0), 0);
  }
}

TEST(udp_refusals, of_ipv4_peers_reach_a_socket_for_both_families) {
  io::shard shard;
  const address dead = must_open(shard, loopback4).local_address();
  socket from = must_open(shard, address::ipv6({}, 0), {.report_refusals = true});
  EXPECT_EQ(refusals_of(from, {dead}), std::vector{dead});
}

TEST(udp_refusals, are_found_though_a_send_met_the_error) {
  io::shard shard;
  const address dead = must_open(shard, loopback4).local_address();
  socket from = must_open(shard, loopback4, {.report_refusals = true});
  const std::string text = "anybody there?";
  const train t{
      .path = {{}, dead}, .payload = std::as_bytes(std::span{text}), .segment = text.size()};
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(from.send({&t, 1}));
  ASSERT_TRUE(from.receive(16, [](const train&) {}));
  const auto found = from.take_refusals();
  EXPECT_FALSE(found.empty());
  for (const address& each : found) EXPECT_EQ(each, dead);
}

TEST(udp_refusals, are_kept_within_bounds) {
  io::shard shard;
  const address dead = must_open(shard, loopback4).local_address();
  socket from = must_open(shard, loopback4, {.report_refusals = true});
  EXPECT_LE(refusals_of(from, std::vector(100, dead)).size(), 16u);
}

TEST(udp_refusals, are_not_told_unless_asked_for) {
  io::shard shard;
  const address dead = must_open(shard, loopback4).local_address();
  socket from = must_open(shard, loopback4);
  const std::string text = "anybody there?";
  const train t{
      .path = {{}, dead}, .payload = std::as_bytes(std::span{text}), .segment = text.size()};
  ASSERT_TRUE(from.send({&t, 1}));
  ASSERT_TRUE(from.receive(16, [](const train&) {}));
  EXPECT_TRUE(from.take_refusals().empty());
}

}  // namespace
}  // namespace weft::udp
