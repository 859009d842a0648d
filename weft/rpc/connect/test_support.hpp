#pragma once

#include <gtest/gtest.h>

#include <weft/rpc/connect/session.hpp>
#include <weft/rpc/http/test_support.hpp>
#include <weft/rpc/http/wire/envelope.hpp>

// For tests: both ends of Connect in memory, and what stands in for either.

namespace weft::rpc::connect::testing {

using namespace weft::rpc::http::testing;
namespace wire = http::wire;

inline constexpr method echo_method{.path = "/t.S/Echo", .service = "t.S", .name = "Echo"};
inline constexpr method pure_method{
    .path = "/t.S/Pure", .service = "t.S", .name = "Pure", .level = idempotency::no_side_effects};
inline constexpr method chat_method{
    .path = "/t.S/Chat", .service = "t.S", .name = "Chat", .kind = call_kind::bidi_streaming};

/// What a raw client got.
struct reply {
  std::uint16_t status = 0;
  weft::http::field_list fields, trailers;
  std::string body;
  std::optional<error> failed;

  std::string field(std::string_view name) const {
    return std::string{fields.find(name).value_or("(none)")};
  }
  std::vector<std::string> all(std::string_view name) const {
    std::vector<std::string> values;
    for (const auto& [key, value, sensitive] : fields)
      if (key == name) values.emplace_back(value);
    return values;
  }
};

inline std::string framed(std::uint8_t flags, std::string_view content) {
  std::string text(wire::envelope_head, '\0');
  wire::write_envelope_head(reinterpret_cast<std::byte*>(text.data()), flags, content.size());
  return text.append(content);
}

/// The envelopes of a body.
inline std::vector<std::pair<int, std::string>> cut(std::string_view body) {
  wire::envelope_parser parser{1 << 20, nullptr};
  (void)parser.push(slice::copy(body));
  std::vector<std::pair<int, std::string>> all;
  while (true) {
    auto next = parser.next();
    if (!next || !*next) break;
    all.emplace_back((*next)->flags, (*next)->content.flatten().text());
  }
  EXPECT_TRUE(parser.at_boundary());
  return all;
}

inline task<> read_all(weft::http::exchange& e, reply& into) {
  while (true) {
    auto part = co_await e.read();
    if (!part) {
      into.failed = part.error();
      co_return;
    }
    if (part->empty()) break;
    into.body += part->text();
  }
  into.trailers = e.trailers();
}

inline task<reply> read_reply_of(weft::http::exchange& e) {
  reply got;
  auto head = co_await e.receive_head();
  if (!head) {
    got.failed = head.error();
    co_return got;
  }
  got.status = e.response()->status;
  got.fields = e.response()->fields;
  co_await read_all(e, got);
  co_return got;
}

inline weft::http::request_head post(std::string path, weft::http::field_list fields) {
  weft::http::request_head head;
  head.path = std::move(path);
  head.fields = std::move(fields);
  return head;
}

inline task<status> echo(server_call& call) {
  while (true) {
    auto message = co_await call.read();
    if (!message) co_return std::move(message).error();
    if (!*message) co_return status{};
    auto sent = co_await call.write(text_message{text_of(**message)});
    if (!sent) co_return std::move(sent).error();
  }
}

class connect_fixture : public ::testing::Test {
 public:
  connect_fixture() { calls.on(echo_method, echo).on(pure_method, echo).on(chat_method, echo); }
  ~connect_fixture() override {
    core.reset();
    shard.run();  // what is left of ended calls goes
  }

  /// After all that changes `options`.
  memory_connection& connection() {
    if (!core) core = std::make_shared<http::server_core>(shard, calls, options);
    if (!raw)
      raw = std::make_unique<memory_connection>(
          shard, [c = core](std::unique_ptr<weft::http::exchange> e) { serve(std::move(e), c); });
    return *raw;
  }
  std::unique_ptr<weft::http::exchange> request(weft::http::request_head head, bool end = false) {
    return std::move(connection().try_request(head, end, 3)->value());
  }
  static task<> ask_for(connect_fixture& self, weft::http::request_head head, std::string body,
                        reply& into) {
    auto e = self.request(std::move(head));
    (void)co_await e->write(slice::copy(body), true);
    into = co_await read_reply_of(*e);
  }
  /// One request with all of its content, and all of the response.
  reply ask(weft::http::request_head head, std::string body = {}) {
    reply got;
    EXPECT_TRUE(run(shard, ask_for(*this, std::move(head), std::move(body), got)));
    shard.post([] {});
    return got;
  }
  reply ask_get(std::string path, weft::http::field_list fields = {}) {
    weft::http::request_head head;
    head.method = "GET";
    head.path = std::move(path);
    head.fields = std::move(fields);
    return ask(std::move(head));
  }

  io::shard shard;
  handlers calls;
  http::server_options options;
  std::shared_ptr<http::server_core> core;
  std::unique_ptr<memory_connection> raw;
};

}  // namespace weft::rpc::connect::testing
