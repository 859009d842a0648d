#include <random>

#include <weft/rpc/host/suite_fixture.hpp>
#include <weft/rpc/native/session.hpp>
#include <weft/tcp/connector.hpp>

// Compression, size limits, the memory budget, identities, hostile peers.

namespace weft::rpc::suite {
namespace {

WEFT_SUITE(limited);

std::string noise(std::size_t size) {
  std::mt19937_64 random{size};
  std::string text(size, '\0');
  for (auto& c : text) c = static_cast<char>('0' + random() % 64);
  return text;
}

WEFT_SUITE_TEST(limited, compression_both_ways_with_empty_messages_between) {
  for (const auto algorithm : available_compressions()) {
    t.probe_->reply_compression = algorithm;
    for (const auto& message : {std::string{}, std::string(200'000, 'c'), std::string{"x"},
                                noise(100'000), std::string{}}) {
      auto reply = co_await t.call(echo, message, {.request_compression = algorithm});
      EXPECT_TRUE(reply && reply->value() == message) << to_string(algorithm);
    }
    auto stream = co_await streaming_call<bidi_stream<text, text>>(
        t.channel(), methods[chat], {.request_compression = algorithm});
    for (const auto& message : {std::string{}, std::string(50'000, 's'), std::string{}}) {
      EXPECT_TRUE(co_await stream->write(value(message)));
      auto next = co_await stream->read();
      EXPECT_TRUE(next && *next && (*next)->value() == message);
    }
    EXPECT_TRUE(co_await stream->finish_writing());
    auto end = co_await stream->read();
    EXPECT_TRUE(end && !*end);
  }
}

task<> speak_plainly(carriers& t) {
  for (const auto algorithm : available_compressions()) {
    t.probe_->reply_compression = algorithm;
    const std::string message(100'000, 'c');
    auto reply = co_await t.call(echo, message, {.request_compression = algorithm});
    EXPECT_TRUE(reply && reply->value() == message);
  }
}

TEST_P(limited, a_server_that_takes_no_compression_gets_none) {
  server_options_.compressions = {};
  start_server();
  run(speak_plainly(*this));
}
TEST_P(limited, a_client_that_takes_no_compression_gets_none) {
  channel_options_.accept = {};
  start_server();
  run(speak_plainly(*this));
}

// Sizes
// ----------------------------------------------------------------------------------------------

task<> send_too_much(carriers& t) {
  EXPECT_EQ(code_of(co_await t.call(echo, std::string(60'000, 'x'))), code::ok);
  std::optional<result<text>> bystander;
  t.call_beside(hold, "x", bystander);
  co_await t.until([&] { return t.probe_->held.size() == 1; });
  for (std::size_t size : {70'000, 1 << 20, 20 << 20}) {
    auto reply = co_await t.call(echo, std::string(size, 'x'));
    EXPECT_EQ(code_of(reply), code::resource_exhausted) << size;
  }
  for (const auto algorithm : available_compressions()) {
    auto reply =
        co_await t.call(echo, std::string(1 << 20, 'x'), {.request_compression = algorithm});
    EXPECT_EQ(code_of(reply), code::resource_exhausted) << "once decompressed";
  }
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
  EXPECT_FALSE(bystander);
  t.probe_->release(0);
  co_await t.until([&] { return bystander.has_value(); });
  EXPECT_EQ(code_of(*bystander), code::ok) << "the connection lives";
}

TEST_P(limited, oversized_requests_end_only_their_call) {
  server_options_.limits.max_message = 64 << 10;
  channel_options_.limits.max_message = 64 << 20;
  start_server();
  run(send_too_much(*this));
}

task<> receive_too_much(carriers& t) {
  for (const auto algorithm : {compression::identity, compression::zstd, compression::gzip}) {
    t.probe_->reply_compression = algorithm;
    auto reply = co_await t.call(echo, std::string(1 << 20, 'x'));
    EXPECT_EQ(code_of(reply), code::resource_exhausted) << to_string(algorithm);
    EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
  }
}

TEST_P(limited, oversized_replies_end_only_their_call) {
  channel_options_.limits.max_message = 64 << 10;
  start_server();
  run(receive_too_much(*this));
}

task<> send_much_metadata(carriers& t) {
  metadata much;
  for (int i = 0; i < 50; ++i)
    EXPECT_TRUE(much.add("x-" + std::to_string(i), std::string(100, 'v')));
  auto reply = co_await t.call(about, "", {.metadata = much});
  EXPECT_EQ(code_of(reply), code::resource_exhausted) << reply.error().to_string();
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
}

TEST_P(limited, too_much_metadata_ends_only_its_call) {
  server_options_.limits.max_metadata = 2000;
  start_server();
  run(send_much_metadata(*this));
}

// One budget for all connections
// ---------------------------------------------------------------------

/// Sends most of a message over a channel of its own, then the rest when told.
task<> strain(carriers& t, std::size_t size, int& ok, int& exhausted, int& ended) {
  const auto own = t.connect_to(t.target_);
  auto reply =
      co_await unary_call<text, text>(*own, methods[note], value(std::string(size, 'b')), {});
  if (reply) ++ok;
  if (code_of(reply) == code::resource_exhausted) ++exhausted;
  if (!reply && code_of(reply) != code::resource_exhausted)
    ADD_FAILURE() << reply.error().to_string();
  ++ended;
}

task<> exceed_the_budget(carriers& t) {
  int ok = 0, exhausted = 0, ended = 0;
  for (int i = 0; i < 12; ++i) t.beside(strain(t, 3 << 20, ok, exhausted, ended));
  co_await t.until([&] { return ended == 12; });
  EXPECT_LE(t.server_->memory().peak(), t.server_->memory().limit());
  EXPECT_EQ(ok + exhausted, 12);
  EXPECT_EQ(code_of(co_await t.call(echo, std::string(1 << 20, 'x'))), code::ok)
      << "what was refused has been given back";
}

TEST_P(limited, one_memory_budget_for_all_connections) {
  server_options_.memory_limit = 8 << 20;
  start_server();
  run(exceed_the_budget(*this));
}

// Identities
// -----------------------------------------------------------------------------------------

task<> call_with_identity(carriers& t) {
  auto anonymous = co_await t.call(echo, "x", {.timeout = 10s});
  EXPECT_EQ(code_of(anonymous), code::unavailable) << anonymous.error().to_string();
  t.channel_options_.identity = std::make_shared<tls::credentials>(client_identity());
  t.channel_ = t.connect_to(t.target_);
  auto known = co_await t.call(echo, "x");
  EXPECT_EQ(code_of(known), code::ok) << known.error().to_string();
  EXPECT_FALSE(t.probe_->seen.peer_subject.empty());
}

TEST_P(limited, mutual_tls_shows_the_client_to_the_handler) {
  server_options_.client_trust =
      std::make_shared<tls::trust>(tls::trust::pem(client_identity().certificate_pem()).value());
  start_server();
  run(call_with_identity(*this));
}

WEFT_SUITE_TEST(limited, a_server_that_is_not_trusted_gets_no_call) {
  t.channel_options_.trust = tls::trust::pem(client_identity().certificate_pem()).value();
  auto reply = co_await t.call(echo, "x");
  EXPECT_EQ(code_of(reply), code::unavailable);
  EXPECT_NE(reply.error().message().find("tls"), std::string::npos) << reply.error().to_string();
}

// Hostile peers
// --------------------------------------------------------------------------------------

class attacker {
 public:
  explicit attacker(carriers& t) : t_{t} {
    trusted_.trusted = t.channel_options_.trust;
    const bool one = t.GetParam() == carrier::quic_one_stream;
    trusted_.alpn = {std::string{one ? native::alpn_one_stream : native::alpn}};
  }

  /// Connects and sends `bytes` where the protocol begins; stays a moment.
  task<> send(std::string bytes, bool end) {
    const auto to = address::parse(t_.target_).value();
    if (t_.GetParam() == carrier::tls_tcp) {
      auto stream = co_await tcp::connect(t_.shard(), to, "127.0.0.1", trusted_, io::now() + 5s);
      if (!stream) co_return;
      const std::array parts{slice::copy(bytes)};
      (void)co_await (*stream)->write(parts);
      if (end) (void)co_await (*stream)->finish();
      co_await t_.settle(2ms);
    } else {
      if (!endpoint_) endpoint_.emplace(quic::endpoint::open(t_.shard(), {}).value());
      auto connection = co_await endpoint_->connect(to, "127.0.0.1", {.tls = trusted_});
      if (!connection) co_return;
      for (auto d : {quic::direction::bidirectional, quic::direction::unidirectional}) {
        auto stream = connection->try_open_stream(d);
        if (!stream || !*stream) continue;
        streams_.push_back(std::move(**stream));
        (void)streams_.back().try_write(slice::copy(bytes));
        if (end) (void)streams_.back().finish();
      }
      co_await t_.settle(2ms);
      streams_.clear();
    }
  }

 private:
  carriers& t_;
  tls::client_options trusted_;
  std::optional<quic::endpoint> endpoint_;
  std::vector<quic::stream> streams_;
};

WEFT_SUITE_TEST(limited, garbage_harms_nobody_else) {
  std::optional<result<text>> bystander;
  t.call_beside(hold, "x", bystander);
  co_await t.until([&] { return t.probe_->held.size() == 1; });
  attacker evil{t};
  std::mt19937_64 random{7};
  for (int round = 0; round < 60; ++round) {
    std::string bytes(1 + random() % 3000, '\0');
    for (auto& c : bytes) c = static_cast<char>(round % 3 == 0 ? random() : random() % 8);
    if (round % 5 == 1) bytes.assign(5000, '\xff');
    if (round % 5 == 2) bytes = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    co_await evil.send(std::move(bytes), round % 2 == 0);
  }
  EXPECT_EQ(code_of(co_await t.call(echo, "x")), code::ok);
  EXPECT_FALSE(bystander);
  t.probe_->release(0);
  co_await t.until([&] { return bystander.has_value(); });
  EXPECT_EQ(code_of(*bystander), code::ok);
}

}  // namespace
}  // namespace weft::rpc::suite
