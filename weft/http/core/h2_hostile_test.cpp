#include <weft/http/core/h2_session.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <weft/http/core/h2_test_frames.hpp>

namespace weft::http {
namespace {

using testing::HasSubstr;
using namespace frames;

/// One session, and a peer that sends what it likes.
class h2_hostile : public testing::Test {
 protected:
  void serve(const h2_settings& settings = {}) {
    session_ = std::make_unique<h2_session>(h2_role::server, settings);
    feed(greeting());
  }
  /// A client that has sent one request, number 1.
  void ask() {
    session_ = std::make_unique<h2_session>(h2_role::client, h2_settings{});
    feed(frame(settings, none, 0, {}) + frame(settings, ack, 0, {}));
    ASSERT_TRUE(session_->request(request_head{.authority = "a.example", .path = "/"}, true, 3));
    settle();
  }
  bool feed(std::string_view bytes) {
    auto done = session_->receive(slice::copy(bytes), now_);
    if (!done) failure_ = done.error();
    settle();
    return !failure_;
  }
  void settle() {
    std::vector<slice> parts;
    session_->collect(parts, 1 << 20);
    std::string out;
    for (const slice& part : parts) out += part.text();
    for (seen_frame& each : cut(out)) sent_.push_back(std::move(each));
    if (session_->failure()) failure_ = session_->failure();
    for (event& each : std::exchange(session_->events(), {})) events_.push_back(std::move(each));
  }
  std::vector<seen_frame> sent(std::uint8_t type) const {
    std::vector<seen_frame> found;
    for (const seen_frame& each : sent_)
      if (each.type == type) found.push_back(each);
    return found;
  }
  template <class What>
  std::size_t count() const {
    std::size_t found = 0;
    for (const event& each : events_) found += std::holds_alternative<What>(each.what);
    return found;
  }
  /// The connection ended with GOAWAY of this code.
  void expect_over(std::uint32_t code) {
    ASSERT_TRUE(failure_);
    EXPECT_EQ(failure_->detail(), code) << failure_->to_string();
    ASSERT_FALSE(sent(goaway).empty());
    EXPECT_EQ(sent(goaway).back().payload.substr(4, 4), number(code, 4));
    EXPECT_FALSE(session_->receive(slice::copy("x"), now_));
  }
  /// This exchange alone was reset.
  void expect_reset(std::uint32_t stream, std::uint32_t code) {
    EXPECT_FALSE(failure_) << failure_->to_string();
    ASSERT_EQ(sent(rst_stream).size(), 1u);
    EXPECT_EQ(sent(rst_stream)[0].stream, stream);
    EXPECT_EQ(sent(rst_stream)[0].payload, number(code, 4));
    EXPECT_EQ(session_->open_exchanges(), 0u);
  }

  std::unique_ptr<h2_session> session_;
  std::vector<seen_frame> sent_;
  std::vector<event> events_;
  std::optional<error> failure_;
  time_point now_{};
};

constexpr std::uint32_t protocol_error = 1, flow_control_error = 3, refused = 7, calm = 11;

TEST_F(h2_hostile, a_peer_of_another_protocol_is_told_so) {
  session_ = std::make_unique<h2_session>(h2_role::server, h2_settings{});
  EXPECT_FALSE(feed("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
  EXPECT_THAT(failure_->message(), HasSubstr("GET / HTTP/1.1"));
  expect_over(protocol_error);
}

TEST_F(h2_hostile, rapid_resets_end_the_connection) {
  serve();
  std::uint32_t stream = 1;
  for (; stream < 100'000 && !failure_; stream += 2)
    feed(request(stream, false) + frame(rst_stream, none, stream, number(8, 4)));
  expect_over(calm);
  EXPECT_LE(count<event::request>(), 1'002u);
  EXPECT_LE(session_->open_exchanges(), 1u);
}

TEST_F(h2_hostile, resets_at_a_bearable_rate_do_not) {
  serve();
  for (std::uint32_t i = 0; i < 5'000; ++i) {
    now_ += std::chrono::milliseconds{10};
    ASSERT_TRUE(feed(request(2 * i + 1, false) + frame(rst_stream, none, 2 * i + 1, number(8, 4))));
  }
}

TEST_F(h2_hostile, making_us_reset_ends_the_connection_as_well) {
  serve();
  for (std::uint32_t i = 0; i < 50'000 && !failure_; ++i)
    feed(request(2 * i + 1, false) + frame(window_update, none, 2 * i + 1, number(0, 4)));
  ASSERT_TRUE(failure_);
  EXPECT_LE(count<event::request>(), 1'002u);
}

TEST_F(h2_hostile, requests_beyond_the_limit_are_rejected_and_bounded) {
  serve({.max_concurrent = 3});
  for (std::uint32_t i = 0; i < 5; ++i) feed(request(2 * i + 1, true));
  EXPECT_EQ(count<event::request>(), 3u);
  ASSERT_EQ(sent(rst_stream).size(), 2u);
  EXPECT_EQ(sent(rst_stream)[0].payload, number(refused, 4));
  EXPECT_EQ(session_->rejected(), 2u);
  for (std::uint32_t i = 5; i < 5'000 && !failure_; ++i) feed(request(2 * i + 1, true));
  expect_over(calm);
}

TEST_F(h2_hostile, a_header_bomb_costs_no_memory) {
  serve({.max_field_section = 4'000});
  // One field of 3 KiB enters the table; each byte behind it names it again.
  const std::string entry = std::string("\x40\x01x", 3) + hpack_length(3'000) +
                            std::string(3'000, 'v') + std::string(10'000, '\xbe');
  feed(frame(headers, end_headers, 1, hpack(request_lines()) + entry));
  EXPECT_FALSE(failure_);
  EXPECT_TRUE(events_.empty());
  ASSERT_FALSE(sent(headers).empty());  // 431
  EXPECT_EQ(session_->open_exchanges(), 0u);
  ASSERT_TRUE(feed(request(3, true)));
  EXPECT_EQ(count<event::request>(), 1u);
}

TEST_F(h2_hostile, a_flood_of_continuations_ends_the_connection) {
  serve();
  std::string flood = frame(headers, none, 1, hpack(request_lines()));
  for (int i = 0; i < 1'000; ++i) flood += frame(continuation, none, 1, hpack({{"x", "y"}}));
  feed(flood);
  expect_over(calm);
  EXPECT_TRUE(events_.empty());
}

TEST_F(h2_hostile, a_flood_of_pings_that_are_not_collected_ends_the_connection) {
  serve();
  std::string flood;
  for (int i = 0; i < 2'000; ++i) flood += frame(ping, none, 0, "12345678");
  feed(flood);
  expect_over(calm);
}

struct idle_flood : h2_hostile, testing::WithParamInterface<std::string> {};
TEST_P(idle_flood, ends_the_connection) {
  serve();
  feed(request(1, false));
  std::size_t taken = 0;
  for (; taken < 100'000 && !failure_; ++taken) feed(GetParam());
  expect_over(calm);
  EXPECT_GE(taken, 9'000u);
  EXPECT_EQ(count<event::content>(), 0u);
}
TEST_P(idle_flood, is_fine_at_a_bearable_rate) {
  serve();
  feed(request(1, false));
  for (int i = 0; i < 20'000; ++i) {
    now_ += std::chrono::milliseconds{2};
    ASSERT_TRUE(feed(GetParam())) << failure_->to_string();
  }
}
INSTANTIATE_TEST_SUITE_P(of, idle_flood,
                         testing::Values(frame(ping, none, 0, "12345678"),
                                         frame(settings, none, 0, {}), frame(data, none, 1, {}),
                                         frame(window_update, none, 0, number(1, 4)),
                                         frame(window_update, none, 1, number(1, 4)),
                                         frame(priority, none, 1, number(0, 4) + 'x'),
                                         frame(priority, none, 77, number(0, 4) + 'x')));

TEST_F(h2_hostile, more_content_than_the_window_ends_it) {
  serve({.exchange_window = 65'535});
  std::string all = request(1, false);
  for (int i = 0; i < 5; ++i) all += frame(data, none, 1, std::string(16'384, 'x'));
  feed(all);
  EXPECT_TRUE(failure_ || !sent(rst_stream).empty());
  std::size_t content = 0;
  for (const event& each : events_)
    if (const auto* c = std::get_if<event::content>(&each.what)) content += c->data.size();
  EXPECT_LE(content, 65'535u + 16'384u);
}

TEST_F(h2_hostile, short_pieces_are_joined_and_do_not_keep_what_came_with_them) {
  serve();
  std::string all = request(1, false);
  for (int i = 0; i < 1'000; ++i) all += frame(data, none, 1, "x");
  feed(all);
  EXPECT_LE(count<event::content>(), 2u);
}

struct malformed_request : h2_hostile, testing::WithParamInterface<lines> {};
TEST_P(malformed_request, is_reset_and_not_reported) {
  serve();
  feed(frame(headers, end_headers | end_stream, 1, hpack(GetParam())));
  expect_reset(1, protocol_error);
  EXPECT_EQ(count<event::request>(), 0u);
  ASSERT_TRUE(feed(request(3, true)));
  EXPECT_EQ(count<event::request>(), 1u);
}
INSTANTIATE_TEST_SUITE_P(
    of, malformed_request,
    testing::Values(lines{}, lines{{":method", "GET"}},
                    lines{{":method", "GET"}, {":path", "/"}, {":authority", "a"}},
                    request_lines({{":path", "/b"}}), request_lines({{":what", "x"}}),
                    request_lines({{":status", "200"}}), request_lines({{"Upper", "x"}}),
                    request_lines({{"connection", "close"}}), request_lines({{"te", "gzip"}}),
                    request_lines({{"transfer-encoding", "chunked"}}),
                    request_lines({{"a b", "x"}}), request_lines({{"x", "a\r\nb"}}),
                    request_lines({{"x", std::string("a\0b", 3)}}),
                    request_lines({{"content-length", "-1"}}),
                    request_lines({{"content-length", "5"}}),
                    request_lines({{"content-length", "0"}, {"content-length", "1"}}),
                    lines{{"x", "y"}, {":method", "GET"}, {":scheme", "https"}, {":path", "/"}}));

TEST_F(h2_hostile, trailers_that_do_not_end_the_message_break_it) {
  serve();
  feed(request(1, false) + frame(headers, end_headers, 1, hpack({{"x", "y"}})));
  EXPECT_EQ(count<event::end>(), 0u);
  EXPECT_TRUE(failure_ || count<event::failed>() == 1);
}

TEST_F(h2_hostile, pseudo_fields_in_trailers_break_the_message) {
  serve();
  feed(request(1, false) +
       frame(headers, end_headers | end_stream, 1, hpack({{":path", "/other"}})));
  EXPECT_EQ(count<event::end>(), 0u);
  EXPECT_EQ(count<event::failed>(), 1u);
}

TEST_F(h2_hostile, garbage_in_a_field_section_ends_the_connection) {
  serve();
  feed(frame(headers, end_headers, 1, "\xff\xff\xff\xff\xff\xff\xff"));
  ASSERT_TRUE(failure_);
  EXPECT_EQ(failure_->code(), errc::protocol);
}

TEST_F(h2_hostile, interim_responses_are_skipped) {
  ask();
  feed(frame(headers, end_headers, 1, hpack({{":status", "103"}, {"link", "x"}})) +
       frame(headers, end_headers, 1, hpack({{":status", "100"}})) +
       frame(headers, end_headers, 1, hpack({{":status", "200"}, {"a", "b"}})) +
       frame(data, end_stream, 1, "x"));
  ASSERT_EQ(count<event::response>(), 1u);
  const auto& head = std::get<event::response>(events_[0].what).head;
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.fields.size(), 1u);
  EXPECT_EQ(count<event::end>(), 1u);
}

TEST_F(h2_hostile, a_response_without_status_breaks_the_exchange) {
  ask();
  feed(frame(headers, end_headers | end_stream, 1, hpack({{"a", "b"}})));
  EXPECT_EQ(count<event::response>(), 0u);
  EXPECT_EQ(count<event::failed>(), 1u);
  expect_reset(1, protocol_error);
}

TEST_F(h2_hostile, content_before_the_head_breaks_the_exchange) {
  ask();
  feed(frame(data, end_stream, 1, "x"));
  EXPECT_EQ(count<event::response>() + count<event::end>(), 0u);
  EXPECT_TRUE(failure_ || count<event::failed>() == 1);
}

TEST_F(h2_hostile, requests_the_leaving_server_did_not_look_at_are_refused) {
  ask();
  feed(frame(goaway, none, 0, number(0, 4) + number(0, 4)));
  ASSERT_EQ(count<event::failed>(), 1u);
  EXPECT_EQ(std::get<event::failed>(events_.back().what).why, errc::refused);
  EXPECT_EQ(session_->open_exchanges(), 0u);
}

TEST_F(h2_hostile, a_request_sent_after_the_answer_to_a_leaving_servers_ping_is_let_in) {
  serve();
  session_->go_away();
  settle();
  const std::string answer = frame(ping, ack, 0, "\x02" + std::string(7, '\0'));
  ASSERT_TRUE(feed(answer + request(1, true)));  // as libraries do that answer first
  EXPECT_EQ(count<event::request>(), 1u);
  EXPECT_FALSE(session_->gone_away());
  ASSERT_TRUE(feed(answer));
  EXPECT_TRUE(session_->gone_away());
}

TEST_F(h2_hostile, a_request_queued_when_the_server_leaves_is_refused) {
  ask();
  auto queued = session_->request(request_head{.authority = "a.example", .path = "/"}, true, 3);
  ASSERT_TRUE(queued);
  (void)session_->receive(slice::copy(frame(goaway, none, 0, number(1, 4) + number(0, 4))), now_);
  settle();
  ASSERT_EQ(count<event::failed>(), 1u);
  EXPECT_EQ(events_.back().id, *queued);
  EXPECT_EQ(std::get<event::failed>(events_.back().what).why, errc::refused);
}

TEST_F(h2_hostile, a_rejected_request_says_so) {
  ask();
  feed(frame(rst_stream, none, 1, number(refused, 4)));
  ASSERT_EQ(count<event::reset>(), 1u);
  EXPECT_EQ(std::get<event::reset>(events_.back().what).why, give_up::rejected);
}

TEST_F(h2_hostile, pushes_are_not_taken) {
  ask();
  feed(frame(5, end_headers, 1, number(2, 4) + hpack(request_lines())));
  ASSERT_TRUE(failure_);
}

TEST_F(h2_hostile, unknown_frames_are_ignored) {
  serve();
  ASSERT_TRUE(feed(frame(0xee, 0xff, 77, "whatever") + request(1, true)));
  EXPECT_EQ(count<event::request>(), 1u);
}

}  // namespace
}  // namespace weft::http
