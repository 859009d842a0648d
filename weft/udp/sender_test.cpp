#include <weft/udp/sender.hpp>

#include <netinet/udp.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace weft::udp {
namespace {

const address here = address::ipv4({127, 0, 0, 1}, 1000);
const address peer_a = address::ipv4({127, 0, 0, 1}, 2001);
const address peer_b = address::ipv4({127, 0, 0, 1}, 2002);

/// Cuts messages up as the kernel would, and does what a script says before it takes them.
class scripted_kernel final : public message_sink {
 public:
  struct datagram {
    address remote;
    std::string payload;
    int ecn = 0;
    std::optional<in_pktinfo> source;
    std::size_t message = 0;
    friend bool operator==(const datagram&, const datagram&) = delete;
  };

  int accept(std::span<mmsghdr> messages) noexcept override {
    ++calls;
    EXPECT_LE(messages.size(), 32u);
    if (answer) {
      const int said = answer(messages);
      if (said <= 0) return said;
      messages = messages.first(static_cast<std::size_t>(said));
    }
    for (const mmsghdr& m : messages) take(m.msg_hdr);
    return static_cast<int>(messages.size());
  }

  static std::size_t segment_of(const msghdr& header) {
    std::size_t segment = 0;
    each_control(header, [&](const cmsghdr* c) {
      if (c->cmsg_level != IPPROTO_UDP || c->cmsg_type != UDP_SEGMENT) return;
      EXPECT_EQ(c->cmsg_len, CMSG_LEN(sizeof(std::uint16_t)));
      std::uint16_t value = 0;
      std::memcpy(&value, CMSG_DATA(c), sizeof value);
      segment = value;
    });
    return segment;
  }

  static std::string bytes_of(const msghdr& header) {
    std::string all;
    for (std::size_t i = 0; i < header.msg_iovlen; ++i)
      all.append(static_cast<const char*>(header.msg_iov[i].iov_base), header.msg_iov[i].iov_len);
    return all;
  }

  std::vector<std::string> payloads() const {
    std::vector<std::string> all;
    for (const datagram& d : received) all.push_back(d.payload);
    return all;
  }

  std::function<int(std::span<mmsghdr>)> answer;
  std::deque<datagram> received;
  std::size_t calls = 0;
  std::size_t messages = 0;

 private:
  template <class Visit>
  static void each_control(const msghdr& header, Visit&& visit) {
    auto& h = const_cast<msghdr&>(header);
    for (cmsghdr* c = CMSG_FIRSTHDR(&h); c != nullptr; c = CMSG_NXTHDR(&h, c)) visit(c);
  }

  void take(const msghdr& header) {
    ++messages;
    const std::string all = bytes_of(header);
    const std::size_t given = segment_of(header);
    const std::size_t segment = given == 0 ? all.size() : given;
    ASSERT_LE(all.size(), given == 0 ? 65'535u : max_train_bytes);
    if (given != 0) {
      EXPECT_GT(all.size(), given) << "a single packet must never be offloaded";
      EXPECT_LE((all.size() + given - 1) / given, max_train_segments);
    }
    datagram d;
    socket_address name;
    std::memcpy(&name, header.msg_name, header.msg_namelen);
    d.remote = from_socket_address(name);
    d.message = messages;
    each_control(header, [&](const cmsghdr* c) {
      if (c->cmsg_type == IP_TOS) std::memcpy(&d.ecn, CMSG_DATA(c), sizeof d.ecn);
      if (c->cmsg_type == IP_PKTINFO)
        std::memcpy(&d.source.emplace(), CMSG_DATA(c), sizeof(in_pktinfo));
    });
    for (std::size_t at = 0; at < all.size(); at += segment) {
      d.payload = all.substr(at, segment);
      received.push_back(d);
    }
  }
};

using payloads = std::vector<std::string>;

/// Equality without printing megabytes when it fails.
testing::AssertionResult same(const payloads& got, const payloads& wanted) {
  if (got == wanted) return testing::AssertionSuccess();
  const auto at = std::ranges::mismatch(got, wanted).in1 - got.begin();
  return testing::AssertionFailure() << got.size() << " datagrams instead of " << wanted.size()
                                     << ", first difference at " << at;
}

class sending : public testing::Test {
 protected:
  train& add(std::size_t size, std::size_t segment, const address& to = peer_a) {
    std::string payload(size, '\0');
    for (char& c : payload) c = static_cast<char>(random());
    store.push_back(std::move(payload));
    for (std::size_t at = 0; at < size; at += segment)
      expected.push_back(store.back().substr(at, segment));
    trains.push_back({.path = {here, to}, .payload = as_bytes(store.back()), .segment = segment});
    return trains.back();
  }

  /// Sends all, then flushes until nothing is kept.
  void send_and_flush() {
    ASSERT_TRUE(out.send(trains));
    for (int i = 0; !out.writable(); ++i) {
      ASSERT_LT(i, 10'000);
      ASSERT_TRUE(out.flush());
    }
  }

  std::mt19937 random{1};
  std::deque<std::string> store;
  std::vector<train> trains;
  std::vector<std::string> expected;
  scripted_kernel sink;
  capabilities gives{.segmentation_offload = true};
  counters counts;
  sender out{sink, {.family = AF_INET, .bound = here}, gives, counts};
};

TEST_F(sending, one_train_is_one_call_and_one_offloaded_message) {
  add(45 * 1400 + 100, 1400);
  send_and_flush();
  EXPECT_TRUE(same(sink.payloads(), expected));
  EXPECT_EQ(sink.calls, 1u);
  EXPECT_EQ(sink.messages, 1u);
  EXPECT_EQ(counts.offloaded_sends, 1u);
  EXPECT_EQ(counts.offloaded_datagrams, 46u);
  EXPECT_EQ(counts.datagrams_sent, 46u);
  EXPECT_EQ(counts.bytes_sent, 45u * 1400 + 100);
  EXPECT_EQ(counts.send_batch[6], 1u) << "(32, 64]";
}

TEST_F(sending, single_packets_handed_over_together_share_a_message) {
  for (int i = 0; i < 30; ++i) add(1200, 1200);
  add(300, 1200);
  add(1200, 1200);
  send_and_flush();
  EXPECT_TRUE(same(sink.payloads(), expected));
  EXPECT_EQ(sink.calls, 1u);
  EXPECT_EQ(sink.messages, 2u) << "the shorter packet ends a run";
  EXPECT_EQ(counts.offloaded_sends, 1u);
}

TEST_F(sending, a_single_packet_is_never_offloaded) {
  add(1200, 1200);
  send_and_flush();
  EXPECT_TRUE(same(sink.payloads(), expected));
  EXPECT_EQ(counts.offloaded_sends, 0u);
}

TEST_F(sending, messages_stay_within_segments_and_bytes) {
  for (const std::size_t segment : {1u, 40u, 1023u, 1024u, 1400u, 8176u, 16'000u, 32'744u, 32'745u})
    add(200 * segment + segment / 2, segment);
  add(65'507, 65'507);
  send_and_flush();
  EXPECT_TRUE(same(sink.payloads(), expected));
}

TEST_F(sending, empty_trains_are_nothing) {
  trains.push_back({.path = {here, peer_a}});
  add(10, 10);
  trains.push_back({.path = {here, peer_a}, .segment = 100});
  add(10, 10);
  send_and_flush();
  EXPECT_TRUE(same(sink.payloads(), expected));
  EXPECT_EQ(sink.messages, 1u);
  ASSERT_TRUE(out.send({}));
  EXPECT_EQ(sink.calls, 1u);
}

TEST_F(sending, paths_and_marks_are_never_mixed) {
  add(1000, 1000, peer_a);
  add(1000, 1000, peer_b);
  add(1000, 1000, peer_b).ecn = ecn::ect0;
  add(1000, 1000, peer_b).ecn = ecn::ce;
  add(1000, 1000, peer_b).path.local = address::ipv4({127, 0, 0, 9}, 1000);
  send_and_flush();
  EXPECT_TRUE(same(sink.payloads(), expected));
  EXPECT_EQ(sink.messages, 5u);
  EXPECT_EQ(sink.calls, 1u);
  EXPECT_EQ(sink.received[0].remote, peer_a);
  EXPECT_EQ(sink.received[1].remote, peer_b);
  EXPECT_EQ(sink.received[2].ecn, 2);
  EXPECT_EQ(sink.received[3].ecn, 3);
  EXPECT_FALSE(sink.received[3].source) << "the bound address needs no control message";
  ASSERT_TRUE(sink.received[4].source);
  EXPECT_EQ(ntohl(sink.received[4].source->ipi_spec_dst.s_addr), 0x7f000009u);
}

TEST_F(sending, without_offload_datagrams_go_32_a_call) {
  gives.segmentation_offload = false;
  add(100 * 1200, 1200);
  send_and_flush();
  EXPECT_TRUE(same(sink.payloads(), expected));
  EXPECT_EQ(sink.calls, 4u);
  EXPECT_EQ(counts.offloaded_sends, 0u);
}

TEST_F(sending, rest_of_a_batch_refused_at_any_point_is_kept_and_goes_first) {
  constexpr int batch = 8;
  for (int stop = 0; stop <= batch; ++stop) {
    SCOPED_TRACE(stop);
    sink.received.clear();
    trains.clear();
    expected.clear();
    for (int i = 0; i < batch; ++i) add(5 * 1200 + 7, 1200, i % 2 == 0 ? peer_a : peer_b);
    const auto before = counts;
    bool full = false;
    sink.answer = [&](std::span<mmsghdr> m) {
      if (full || stop == 0) return -EAGAIN;
      full = true;
      return std::min(stop, static_cast<int>(m.size()));
    };
    ASSERT_TRUE(out.send(trains));
    EXPECT_EQ(out.writable(), stop == batch);
    EXPECT_EQ(counts.send_blocked - before.send_blocked, stop == batch ? 0u : 1u);
    store.clear();  // what is kept must be a copy
    sink.answer = nullptr;
    trains.clear();
    add(3 * 900, 900);
    ASSERT_TRUE(out.send(trains));
    EXPECT_TRUE(out.writable());
    EXPECT_TRUE(same(sink.payloads(), expected));
  }
}

TEST_F(sending, trains_passed_while_blocked_keep_their_order_up_to_a_bound) {
  sink.answer = [](auto) { return -EAGAIN; };
  add(10 * 1200, 1200);
  ASSERT_TRUE(out.send(trains));
  trains.clear();
  add(10 * 1200, 1200);
  ASSERT_TRUE(out.send(trains));
  EXPECT_EQ(counts.send_dropped, 0u);
  std::size_t sends = 0;
  while (counts.send_dropped == 0 && ++sends < 10'000) ASSERT_TRUE(out.send(trains));
  EXPECT_LT(sends * 12'000, std::size_t{2} << 20) << "what is kept must be bounded";
  sink.answer = nullptr;
  ASSERT_TRUE(out.flush());
  EXPECT_TRUE(out.writable());
  auto got = sink.payloads();
  EXPECT_EQ(counts.datagrams_sent, got.size());
  ASSERT_GE(got.size(), expected.size());
  got.resize(expected.size());
  EXPECT_TRUE(same(got, expected));
}

TEST_F(sending, message_too_large_drops_the_probe_only) {
  add(1200, 1200);
  add(9000, 9000);  // the probe
  add(1200, 1200);
  sink.answer = [](std::span<mmsghdr> m) {
    int fitting = 0;
    for (const mmsghdr& one : m) {
      if (scripted_kernel::bytes_of(one.msg_hdr).size() > 1500) break;
      ++fitting;
    }
    return fitting == 0 ? -EMSGSIZE : fitting;
  };
  send_and_flush();
  expected.erase(expected.begin() + 1);
  EXPECT_TRUE(same(sink.payloads(), expected));
  EXPECT_EQ(counts.oversize_dropped, 1u);
  EXPECT_TRUE(gives.segmentation_offload);
}

class refused_offload : public sending, public testing::WithParamInterface<int> {};

TEST_P(refused_offload, is_switched_off_and_everything_is_sent_again_in_order) {
  for (int i = 0; i < 3; ++i) add(20 * 1200 + 5, 1200);
  sink.answer = [&](std::span<mmsghdr> m) {
    int plain = 0;
    for (const mmsghdr& one : m) {
      if (scripted_kernel::segment_of(one.msg_hdr) != 0) break;
      ++plain;
    }
    return plain == 0 ? -GetParam() : plain;
  };
  send_and_flush();
  EXPECT_TRUE(same(sink.payloads(), expected));
  EXPECT_FALSE(gives.segmentation_offload);
  EXPECT_EQ(counts.offload_disabled, 1u);
  EXPECT_EQ(counts.offloaded_sends, 0u);
  EXPECT_GE(counts.datagrams_resent, 21u);
  EXPECT_EQ(counts.unreachable, 0u);
}

TEST_P(refused_offload, is_kept_when_the_address_is_to_blame) {
  add(20 * 1200, 1200, peer_a);
  add(20 * 1200, 1200, peer_b);
  sink.answer = [&](std::span<mmsghdr> m) {
    socket_address name;
    std::memcpy(&name, m[0].msg_hdr.msg_name, m[0].msg_hdr.msg_namelen);
    return from_socket_address(name) == peer_a ? -GetParam() : 1;
  };
  send_and_flush();
  EXPECT_TRUE(same(sink.payloads(), {expected.begin() + 20, expected.end()}));
  EXPECT_TRUE(gives.segmentation_offload);
  EXPECT_EQ(counts.offload_disabled, 0u);
  EXPECT_EQ(counts.unreachable, 20u);
}

TEST_P(refused_offload, that_is_too_large_as_well_is_dropped_whole) {
  add(3 * 9000, 9000);
  add(10 * 1200, 1200);
  sink.answer = [&](std::span<mmsghdr> m) {
    if (scripted_kernel::bytes_of(m[0].msg_hdr).size() == 3 * 9000) return -GetParam();
    if (scripted_kernel::bytes_of(m[0].msg_hdr).size() == 9000) return -EMSGSIZE;
    return 1;
  };
  send_and_flush();
  EXPECT_TRUE(same(sink.payloads(), {expected.begin() + 3, expected.end()}));
  EXPECT_TRUE(gives.segmentation_offload);
  EXPECT_EQ(counts.oversize_dropped, 3u);
}

TEST_P(refused_offload, is_tried_again_after_a_full_buffer) {
  add(5 * 1200, 1200);
  int plain_tries = 0;
  sink.answer = [&](std::span<mmsghdr> m) {
    if (scripted_kernel::segment_of(m[0].msg_hdr) != 0) return -GetParam();
    return ++plain_tries == 1 ? -EAGAIN : static_cast<int>(m.size());
  };
  send_and_flush();
  EXPECT_TRUE(same(sink.payloads(), expected));
  EXPECT_FALSE(gives.segmentation_offload);
}

INSTANTIATE_TEST_SUITE_P(errors, refused_offload, testing::Values(EIO, EINVAL));

TEST_F(sending, error_of_an_earlier_datagram_is_not_blamed_on_the_next) {
  add(10 * 1200, 1200);
  sink.answer = [&](std::span<mmsghdr>) { return sink.calls == 1 ? -ECONNREFUSED : 1; };
  send_and_flush();
  EXPECT_TRUE(same(sink.payloads(), expected));
  EXPECT_EQ(counts.unreachable, 0u);
}

TEST_F(sending, unreachable_peers_are_counted_and_the_rest_is_sent) {
  for (const int number :
       {ENETUNREACH, EHOSTUNREACH, EPERM, EADDRNOTAVAIL, ENETDOWN, ECONNREFUSED}) {
    SCOPED_TRACE(number);
    trains.clear();
    expected.clear();
    sink.received.clear();
    counts = {};
    add(4 * 1200, 1200, peer_a);
    add(4 * 1200, 1200, peer_b);
    sink.answer = [&](std::span<mmsghdr> m) {
      socket_address name;
      std::memcpy(&name, m[0].msg_hdr.msg_name, m[0].msg_hdr.msg_namelen);
      return from_socket_address(name) == peer_a ? -number : 1;
    };
    send_and_flush();
    EXPECT_TRUE(same(sink.payloads(), {expected.begin() + 4, expected.end()}));
    EXPECT_EQ(counts.unreachable, 4u);
  }
}

TEST_F(sending, interruption_is_retried_and_want_of_memory_loses_one_message) {
  add(4 * 1200, 1200, peer_a);
  add(4 * 1200, 1200, peer_b);
  sink.answer = [&](std::span<mmsghdr>) {
    if (sink.calls == 1) return -EINTR;
    return sink.calls == 2 ? -ENOBUFS : 1;
  };
  send_and_flush();
  EXPECT_TRUE(same(sink.payloads(), {expected.begin() + 4, expected.end()}));
  EXPECT_EQ(counts.send_dropped, 4u);
}

TEST_F(sending, fatal_error_is_reported_and_nothing_stays_kept) {
  add(4 * 1200, 1200);
  sink.answer = [](auto) { return -EBADF; };
  const auto sent = out.send(trains);
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error(), errc::system);
  EXPECT_EQ(sent.error().detail(), static_cast<std::uint64_t>(EBADF));
  EXPECT_TRUE(out.writable());
}

TEST_F(sending, peer_of_a_family_the_socket_lacks_is_unreachable) {
  add(2 * 100, 100, *address::parse("[2001:db8::1]:1"));
  sink.answer = [](std::span<mmsghdr> m) {
    return m[0].msg_hdr.msg_namelen == 0 ? -EDESTADDRREQ : 1;
  };
  send_and_flush();
  EXPECT_EQ(counts.unreachable, 2u);
}

// Whatever trains and whatever the kernel says: each datagram goes out once, whole and in order,
// unless the kernel said that it cannot.
TEST_F(sending, every_datagram_arrives_once_and_in_order_whatever_happens) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    random.seed(seed);
    gives.segmentation_offload = seed % 3 != 0;
    store.clear();
    expected.clear();
    sink.received.clear();
    sink.answer = [&](std::span<mmsghdr> m) {
      switch (random() % 4) {
        case 0:
          return -EAGAIN;
        case 1:
          return -EINTR;
        default:
          return static_cast<int>(random() % m.size()) + 1;
      }
    };
    for (int round = 0; round < 5; ++round) {
      trains.clear();
      const std::size_t count = random() % 60;
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t segment = 1 + random() % (random() % 3 == 0 ? 3000 : 50);
        const std::size_t datagrams = 1 + random() % (random() % 4 == 0 ? 90 : 2);
        const std::size_t cut = random() % segment;
        add(segment * datagrams - cut, segment, random() % 8 == 0 ? peer_b : peer_a);
      }
      send_and_flush();
    }
    ASSERT_TRUE(same(sink.payloads(), expected));
  }
}

}  // namespace
}  // namespace weft::udp
