#include <weft/tcp/engine.hpp>

#include <random>

#include <gmock/gmock.h>

namespace weft::tcp {
namespace {

using testing::HasSubstr;
using status = engine::status;

std::string noise(std::size_t size, unsigned seed) {
  std::mt19937 random{seed};
  std::string text(size, '\0');
  for (auto& c : text) c = static_cast<char>(random());
  return text;
}

/// A client and a server, their ciphertext carried by hand.
struct ends : testing::Test {
  tls::credentials identity = tls::credentials::development().value();
  tls::client_options wanted{.trusted = tls::trust::pem(identity.certificate_pem()).value(),
                             .alpn = {"weft/1"}};
  tls::server_options offered{.identity = identity, .alpn = {"weft/1"}};
  std::optional<engine> client, server;

  void make(std::uint64_t records_per_key = 1u << 23) {
    const auto client_context = tls::make_client_context(wanted).value();
    const auto server_context = tls::make_server_context(offered).value();
    tls::ssl_ptr left{SSL_new(client_context.get())}, right{SSL_new(server_context.get())};
    SSL_set_connect_state(left.get());
    SSL_set_accept_state(right.get());
    ASSERT_TRUE(tls::prepare_client(left.get(), wanted, "localhost"));
    client.emplace(std::move(left), "server.example", records_per_key);
    server.emplace(std::move(right), "client.example", records_per_key);
  }

  /// Moves all output, `piece` bytes at a time, and lets `each` look after each.
  static void carry(engine& from, engine& to, std::size_t piece,
                    const std::function<void()>& each) {
    while (from.has_output()) {
      const std::size_t count = std::min(piece, from.output().size());
      const auto space = to.input_space(count);
      std::ranges::copy(from.output().first(count), space.begin());
      to.input_arrived(count);
      from.output_sent(count);
      each();
    }
  }

  void shake(std::size_t piece = 100'000) {
    auto left = client->handshake();
    auto right = status::want_read;
    std::string early;
    for (int turn = 0; turn < 8; ++turn) {
      carry(*client, *server, piece, [&] {
        if (right != status::ok) right = server->handshake();
      });
      carry(*server, *client, piece, [&] {
        if (left != status::ok) left = client->handshake();
        if (left == status::ok) drain(*client, early);  // tickets
      });
    }
    ASSERT_EQ(left, status::ok);
    ASSERT_EQ(right, status::ok);
    ASSERT_EQ(early, "");
  }

  /// Writes `parts` at one end and reads them at the other.
  std::string pass(engine& from, engine& to, std::vector<slice> parts, std::size_t piece) {
    std::string got;
    source rest{parts};
    while (!rest.empty()) {
      if (from.write(rest) != status::ok) {
        ADD_FAILURE() << from.failure().to_string();
        break;
      }
      carry(from, to, piece, [&] { drain(to, got); });
    }
    return got;
  }

  static status drain(engine& from, std::string& into) {
    slice data;
    status last;
    while ((last = from.read(data)) == status::ok) {
      EXPECT_FALSE(data.empty());
      into += data.text();
    }
    return last;
  }
};

TEST_F(ends, carry_bytes_however_they_are_cut) {
  for (const std::size_t piece : {1uz, 7uz, 1000uz, 100'000uz}) {
    make();
    shake(piece);
    EXPECT_EQ(pass(*client, *server, {slice::copy("hello")}, piece), "hello");
    const std::string text = noise(50'000, 1);
    EXPECT_TRUE(pass(*server, *client, {slice::copy(text)}, piece) == text);
  }
}

TEST_F(ends, small_parts_share_records) {
  make();
  shake();
  std::vector<slice> parts;
  std::string sent;
  for (int i = 0; i < 1000; ++i) {
    sent += noise(static_cast<std::size_t>(i % 60), static_cast<unsigned>(i));
    parts.push_back(slice::copy(std::string_view{sent}.substr(sent.size() - i % 60)));
  }
  source rest{parts};
  ASSERT_EQ(client->write(rest), status::ok);
  ASSERT_TRUE(rest.empty());
  EXPECT_LT(client->output().size(), sent.size() + 100);  // two records of 22 bytes overhead
  std::string got;
  carry(*client, *server, 1'000'000, [&] { drain(*server, got); });
  EXPECT_TRUE(got == sent);
}

TEST_F(ends, mixed_parts_keep_their_order) {
  make();
  shake();
  std::vector<slice> parts;
  std::string sent;
  unsigned seed = 9;
  for (const std::size_t size : {0uz, 1uz, 16384uz, 16385uz, 0uz, 100'000uz, 5uz, 300'000uz, 0uz}) {
    const std::string text = noise(size, ++seed);
    sent += text;
    parts.push_back(slice::copy(text));
  }
  EXPECT_TRUE(pass(*client, *server, parts, 100'000) == sent);
}

TEST_F(ends, output_is_bounded_and_resumes) {
  make();
  shake();
  const std::vector<slice> parts{slice::copy(noise(1'000'000, 3))};
  source rest{parts};
  ASSERT_EQ(client->write(rest), status::ok);
  EXPECT_FALSE(rest.empty());
  EXPECT_LE(client->output().size(), 256u * 1024);
  const std::size_t left = rest.size();
  ASSERT_EQ(client->write(rest), status::ok);  // full: takes nothing, breaks nothing
  EXPECT_EQ(rest.size(), left);
  std::string got;
  while (client->has_output() || !rest.empty()) {
    carry(*client, *server, 10'000, [&] { drain(*server, got); });
    ASSERT_EQ(client->write(rest), status::ok);
  }
  EXPECT_TRUE(got == parts[0].text());
}

TEST_F(ends, keys_change_while_bytes_flow) {
  make(3);
  shake();
  const std::string text = noise(400'000, 4);
  EXPECT_TRUE(pass(*client, *server, {slice::copy(text)}, 20'000) == text);
  EXPECT_TRUE(pass(*server, *client, {slice::copy(text)}, 20'000) == text);
}

TEST_F(ends, a_requested_key_update_is_answered_with_the_next_write) {
  make();
  shake();
  ASSERT_EQ(SSL_key_update(client->native(), SSL_KEY_UPDATE_REQUESTED), 1);
  EXPECT_EQ(pass(*client, *server, {slice::copy("x")}, 1000), "x");
  const std::vector<slice> parts{slice::copy("y")};
  source rest{parts};
  ASSERT_EQ(server->write(rest), status::ok);
  constexpr std::size_t data_record = 5 + 1 + 1 + 16, update_record = 5 + 5 + 1 + 16;
  EXPECT_EQ(server->output().size(), update_record + data_record);
  std::string got;
  carry(*server, *client, 1000, [&] { drain(*client, got); });
  EXPECT_EQ(got, "y");
}

TEST_F(ends, a_flood_of_key_updates_stalls_its_sender_not_the_memory) {
  make();
  shake();
  std::string got;
  status last = status::ok;
  for (int i = 0; i < 20'000 && last != status::want_write; ++i) {
    ASSERT_EQ(SSL_key_update(client->native(), SSL_KEY_UPDATE_REQUESTED), 1);
    const std::vector<slice> parts{slice::copy("x")};
    source rest{parts};
    ASSERT_EQ(client->write(rest), status::ok);
    carry(*client, *server, 100'000, [&] { last = drain(*server, got); });
    ASSERT_NE(last, status::failed) << server->failure().to_string();
  }
  ASSERT_EQ(last, status::want_write);
  EXPECT_LE(server->output().size(), 256u * 1024);
  // Once its answers are read, the stream goes on.
  std::string answers;
  carry(*server, *client, 100'000, [&] { drain(*client, answers); });
  EXPECT_EQ(drain(*server, got), status::want_read);
  EXPECT_EQ(pass(*client, *server, {slice::copy("still here")}, 100'000), "still here");
}

TEST_F(ends, an_end_is_orderly_only_with_close_notify) {
  make();
  shake();
  std::string got;
  ASSERT_EQ(client->close_notify(), status::ok);
  ASSERT_EQ(client->close_notify(), status::ok);
  carry(*client, *server, 100'000, [&] { drain(*server, got); });
  EXPECT_EQ(drain(*server, got), status::end);
  EXPECT_EQ(drain(*server, got), status::end);
  EXPECT_EQ(pass(*server, *client, {slice::copy("still open")}, 1000), "still open");
}

TEST_F(ends, a_cut_anywhere_is_an_error) {
  make();
  shake();
  const std::vector<slice> parts{slice::copy(noise(100, 5))};
  source rest{parts};
  ASSERT_EQ(client->write(rest), status::ok);
  const auto whole = slice::copy(client->output());
  for (std::size_t cut = 0; cut <= whole.size(); cut += 13) {
    make();
    shake();
    source again{parts};
    ASSERT_EQ(client->write(again), status::ok);
    const std::size_t count = std::min(cut, client->output().size());
    if (count > 0) {
      std::ranges::copy(client->output().first(count), server->input_space(count).begin());
      server->input_arrived(count);
    }
    std::string got;
    ASSERT_EQ(drain(*server, got), status::want_read);
    server->input_ended();
    ASSERT_EQ(drain(*server, got), status::failed) << cut;
    EXPECT_EQ(server->failure().code(), errc::reset);
    EXPECT_THAT(server->failure().message(), HasSubstr("client.example broke"));
    EXPECT_EQ(drain(*server, got), status::failed);
  }
}

TEST_F(ends, a_changed_byte_is_noticed) {
  make();
  shake();
  const std::vector<slice> parts{slice::copy(noise(100, 5))};
  source rest{parts};
  ASSERT_EQ(client->write(rest), status::ok);
  const auto space = server->input_space(client->output().size());
  std::ranges::copy(client->output(), space.begin());
  space[50] ^= std::byte{1};
  server->input_arrived(space.size());
  std::string got;
  ASSERT_EQ(drain(*server, got), status::failed);
  EXPECT_EQ(got, "");
  EXPECT_EQ(server->failure().code(), errc::tls);
  EXPECT_EQ(server->failure().detail(), static_cast<std::uint64_t>(SSL_AD_BAD_RECORD_MAC));
  EXPECT_TRUE(server->has_output());  // the alert
  slice data;
  carry(*server, *client, 100'000, [&] { client->read(data); });
  ASSERT_EQ(client->read(data), status::failed);
  EXPECT_THAT(client->failure().message(), HasSubstr("bad record mac"));
}

TEST_F(ends, a_record_that_is_too_long_is_an_error) {
  make();
  shake();
  const std::string_view header{"\x17\x03\x03\xff\xff", 5};
  std::ranges::copy(as_bytes(header), server->input_space(5).begin());
  server->input_arrived(5);
  std::string got;
  EXPECT_EQ(drain(*server, got), status::failed);
  EXPECT_EQ(server->failure().code(), errc::tls);
}

TEST_F(ends, an_end_during_the_handshake_is_an_error) {
  make();
  client->handshake();
  client->input_ended();
  ASSERT_EQ(client->handshake(), status::failed);
  EXPECT_EQ(client->failure().code(), errc::tls);
  EXPECT_THAT(client->failure().message(),
              HasSubstr("server.example closed the connection during the handshake"));
}

}  // namespace
}  // namespace weft::tcp
