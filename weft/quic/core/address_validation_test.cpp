#include <weft/quic/core/address_validation.hpp>
#include <weft/quic/core/pair_test.hpp>

namespace weft::quic::core::test {
namespace {

using kind = connection_event::kind;

std::vector<std::byte> octets_of(std::initializer_list<int> values, std::size_t size = 0) {
  std::vector<std::byte> out;
  for (int v : values) out.push_back(static_cast<std::byte>(v));
  if (out.size() < size) out.resize(size);
  return out;
}

endpoint_options with_secret(std::uint8_t fill, std::uint8_t shard = 0) {
  endpoint_options options;
  options.secret.fill(fill);
  options.shard = shard;
  return options;
}

TEST(ConnectionId, HidesAndShowsTheShard) {
  std::array<std::uint8_t, 32> secret{};
  secret.fill(7);
  const auto mask = connection_id_mask::derive(secret);
  std::array<int, 256> first_octets{};
  for (int i = 0; i < 4096; ++i) {
    connection_id id{};
    for (std::size_t k = 1; k < id.size(); ++k)
      id[k] = static_cast<std::uint8_t>((i * 2654435761u) >> (k * 3));
    mask.hide(id, 5);
    EXPECT_EQ(mask.shard_of(id), 5);
    ++first_octets[id[0]];
  }
  EXPECT_LT(*std::max_element(first_octets.begin(), first_octets.end()), 200);
}

TEST(Retry, AsksUnderLoadAndAdmitsTheTokenHolder) {
  auto server = server_defaults();
  server.retry_above = 0;
  pair p{client_defaults(), server};
  p.handshake();
  // One for each datagram of the first flight; the client heeds the first.
  EXPECT_EQ(p.server_endpoint->stats().retries, 2u);
  EXPECT_EQ(p.server_endpoint->stats().accepted, 1u);
}

TEST(Retry, TokenFromAnEarlierVisitSpareTheDetour) {
  auto server = server_defaults();
  server.retry_above = 0;
  pair p{client_defaults(), server};
  p.handshake();
  ASSERT_TRUE(has(p.client_events, kind::new_session));
  p.config.resume = p.client->resumption();
  p.client->close(0, "", p.now);
  p.run(1s);
  p.server = nullptr;
  p.handshake();
  EXPECT_EQ(p.server_endpoint->stats().retries, 2u);
  EXPECT_EQ(p.server_endpoint->stats().accepted, 2u);
  EXPECT_TRUE(p.client->session().resumed);
}

TEST(Retry, TokenIsWorthNothingAtAnotherAddress) {
  auto server = server_defaults();
  server.retry_above = 0;
  pair p{client_defaults(), server};
  p.handshake();
  p.config.resume = p.client->resumption();
  p.client->close(0, "", p.now);
  p.run(1s);
  p.server = nullptr;
  p.way.local = far(77, 5001);
  p.handshake();
  EXPECT_EQ(p.server_endpoint->stats().retries, 4u);
  EXPECT_GE(p.server_endpoint->stats().tokens_rejected, 1u);
}

TEST(Retry, StolenRetryTokenIsRefused) {
  auto server = server_defaults();
  server.retry_above = 0;
  pair p{client_defaults(), server};
  // After the Retry the client's datagrams seem to come from somebody else.
  p.tamper = [&](flight& f) {
    if (f.to_server && p.server_endpoint->stats().retries > 0) f.where.remote = far(66, 1);
    return true;
  };
  p.connect();
  p.run(2s);
  EXPECT_EQ(p.server_endpoint->stats().accepted, 0u);
  EXPECT_GE(p.server_endpoint->stats().tokens_rejected, 1u);
}

TEST(VersionNegotiation, AnswersUnknownVersionsOfFullSizeOnly) {
  pair p;
  auto probe = octets_of({0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0}, 1200);
  p.server_endpoint->handle_datagrams({local(443), local(9)}, ecn::not_ect, probe, 1200, p.now);
  auto answer = p.server_endpoint->poll_transmit(p.buffer, p.now);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->path.remote, local(9));
  EXPECT_LT(answer->size, 100u);
  EXPECT_EQ(p.buffer[1], std::byte{0});
  probe.resize(1199);
  p.server_endpoint->handle_datagrams({local(443), local(9)}, ecn::not_ect, probe, 1199, p.now);
  EXPECT_FALSE(p.server_endpoint->poll_transmit(p.buffer, p.now));
  EXPECT_EQ(p.server_endpoint->stats().version_negotiations, 1u);
}

/// What a client says when it is offered `version` and a reserved one.
std::string told_after_offer_of(std::uint32_t version) {
  pair p;
  p.connect();
  EXPECT_TRUE(p.client_endpoint->poll_transmit(p.buffer, p.now));
  // The packet's ids, swapped.
  const auto dcid_size = static_cast<std::size_t>(p.buffer[5]);
  const auto scid_size = static_cast<std::size_t>(p.buffer[6 + dcid_size]);
  std::vector<std::byte> answer{std::byte{0x80}, {}, {}, {}, {}};
  answer.push_back(static_cast<std::byte>(scid_size));
  answer.insert(answer.end(), p.buffer.begin() + 7 + static_cast<long>(dcid_size),
                p.buffer.begin() + 7 + static_cast<long>(dcid_size + scid_size));
  answer.push_back(static_cast<std::byte>(dcid_size));
  answer.insert(answer.end(), p.buffer.begin() + 6,
                p.buffer.begin() + 6 + static_cast<long>(dcid_size));
  for (const std::uint32_t each : {0x1a1a1a1au, version})
    for (const int shift : {24, 16, 8, 0})
      answer.push_back(static_cast<std::byte>(each >> shift & 0xff));
  p.client_endpoint->handle_datagrams(p.way, ecn::not_ect, answer, answer.size(), p.now);
  while (p.client_endpoint->poll_connection()) {
    while (auto e = p.client->poll_event()) p.client_events.push_back(e->what);
  }
  EXPECT_TRUE(has(p.client_events, kind::closed));
  EXPECT_EQ(p.client->close_reason().code(), errc::unsupported);
  return p.client->close_reason().to_string();
}

TEST(VersionNegotiation, ClientSaysWhatAForeignServerOffersAndWhatItWants) {
  const std::string text = told_after_offer_of(0xff00001d);
  EXPECT_NE(text.find("speaks none of"), std::string::npos) << text;
  EXPECT_NE(text.find("offers 0xff00001d"), std::string::npos) << text;
  EXPECT_NE(text.find("wanted is one of 0x1, 0x6b3343cf"), std::string::npos) << text;
}

TEST(VersionNegotiation, ClientDoesNotSayThatItSpeaksNoVersionThatItDoes) {
  const std::string text = told_after_offer_of(0x6b3343cf);
  EXPECT_EQ(text.find("speaks none of"), std::string::npos) << text;
  EXPECT_NE(text.find("begins with QUIC version 0x1; it offers 0x6b3343cf"), std::string::npos)
      << text;
}

TEST(StatelessReset, EndsAConnectionTheServerForgot) {
  pair p{client_defaults(), server_defaults(), {}, with_secret(9)};
  p.handshake();
  stream* s = p.client->open_stream(true).value();
  p.run(1s);
  // The server dies and comes back with the same secret.
  p.server = nullptr;
  p.server_endpoint = endpoint::create(with_secret(9)).value();
  ASSERT_TRUE(p.server_endpoint->listen(server_defaults()));
  ASSERT_TRUE(s->write(slice::copy(pattern(200))));
  EXPECT_TRUE(p.run_until([&] { return has(p.client_events, kind::closed); }, 1s));
  EXPECT_EQ(p.client->close_reason().code(), errc::reset);
  EXPECT_EQ(p.server_endpoint->stats().stateless_resets, 1u);
}

TEST(StatelessReset, IsShorterThanItsCauseAndLimitedInRate) {
  pair p{client_defaults(), server_defaults(), {}, with_secret(9)};
  std::array<std::uint8_t, 32> secret{};
  secret.fill(9);
  connection_id id{0, 1, 2, 3, 4, 5, 6, 7};
  connection_id_mask::derive(secret).hide(id, 0);
  for (const std::size_t size : {9u, 21u, 22u, 30u, 100u, 1400u}) {
    std::vector<std::byte> packet(size, std::byte{0x40});
    std::memcpy(packet.data() + 1, id.data(), 8);
    p.server_endpoint->handle_datagrams({local(443), local(9)}, ecn::not_ect, packet, size, p.now);
    const auto answer = p.server_endpoint->poll_transmit(p.buffer, p.now);
    EXPECT_EQ(answer.has_value(), size >= 22) << size;
    if (answer) {
      EXPECT_LT(answer->size, size);
    }
  }
  std::vector<std::byte> packet(100, std::byte{0x40});
  std::memcpy(packet.data() + 1, id.data(), 8);
  for (int i = 0; i < 1000; ++i)
    p.server_endpoint->handle_datagrams({local(443), local(9)}, ecn::not_ect, packet, 100, p.now);
  EXPECT_LT(p.server_endpoint->stats().stateless_resets, 60u);
}

TEST(Routing, UnknownPacketsLeaveNothingBehind) {
  pair p;
  auto& server = *p.server_endpoint;
  const path from{local(443), local(9)};
  for (const auto& packet :
       {octets_of({0x40}), octets_of({0x40, 1, 2, 3, 4, 5, 6, 7, 8}, 60),
        octets_of({0xe0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0}, 1200),  // Handshake
        octets_of({0xd0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0}, 1200),  // 0-RTT
        octets_of({0xf0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0}, 1200),  // Retry
        octets_of({0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0}, 600),   // too short an Initial
        octets_of({0x80, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1}), octets_of({0xc0}), octets_of({})})
    server.handle_datagrams(from, ecn::not_ect, packet, packet.size(), p.now);
  EXPECT_EQ(server.stats().connections, 0u);
  EXPECT_EQ(server.next_timeout(), never);
  EXPECT_EQ(server.stats().dropped_unknown + server.stats().dropped_malformed +
                server.stats().wrong_shard,
            8u);
}

TEST(Routing, IdsCarryTheShard) {
  pair p{client_defaults(), server_defaults(), with_secret(3, 4), with_secret(3, 9)};
  std::vector<std::byte> to_server, to_client;
  p.tamper = [&](flight& f) {
    if ((f.data[0] & std::byte{0x80}) == std::byte{0})
      (f.to_server ? to_server : to_client) = f.data;
    return true;
  };
  p.handshake();
  ASSERT_FALSE(to_server.empty());
  EXPECT_EQ(p.client_endpoint->shard_of(to_server), 9);
  EXPECT_EQ(p.server_endpoint->shard_of(to_client), 4);
  EXPECT_FALSE(p.server_endpoint->shard_of(octets_of({0x40, 1})));
}

TEST(Routing, StrangersAreRefusedWithoutListening) {
  pair p;
  p.server_endpoint->stop_listening();
  auto client = client_defaults();
  p.connect();
  p.run(2s);
  EXPECT_EQ(p.server_endpoint->stats().connections, 0u);
  EXPECT_GT(p.server_endpoint->stats().dropped_unknown, 0u);
}

}  // namespace
}  // namespace weft::quic::core::test
