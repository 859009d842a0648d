#include <weft/http/core/h2_session.hpp>

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <weft/http/core/h2_test_frames.hpp>

namespace weft::http {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

/// A client's and a server's session whose bytes go across in pieces of `step`.
class h2_pair : public testing::TestWithParam<std::size_t> {
 protected:
  struct endpoint {
    std::unique_ptr<h2_session> session;
    std::string out;  // bytes under way
    std::vector<event> events;
    std::optional<error> failure;
  };

  void begin(const h2_settings& client = {}, const h2_settings& server = {}) {
    client_.session = std::make_unique<h2_session>(h2_role::client, client);
    server_.session = std::make_unique<h2_session>(h2_role::server, server);
    settle();
  }
  static void take_events(endpoint& at) {
    std::ranges::move(std::exchange(at.session->events(), {}), std::back_inserter(at.events));
  }
  static void collect(endpoint& from, std::size_t most = 64 * 1024) {
    while (from.session->wants_to_send()) {
      std::vector<slice> parts;
      from.session->collect(parts, most);
      if (parts.empty()) break;
      for (const slice& part : parts) from.out += part.text();
    }
    if (from.session->failure()) from.failure = from.session->failure();
    take_events(from);
  }
  bool deliver(endpoint& from, endpoint& to) {
    const std::string bytes = std::exchange(from.out, {});
    for (std::size_t at = 0; at < bytes.size() && !to.failure; at += GetParam()) {
      auto done = to.session->receive(slice::copy(std::string_view{bytes}.substr(at, GetParam())),
                                      time_point{});
      if (!done) to.failure = done.error();
      take_events(to);
    }
    return !bytes.empty();
  }
  /// Until nothing moves any more.
  void settle() {
    for (bool moved = true; moved;) {
      collect(client_);
      collect(server_);
      moved = deliver(client_, server_);
      moved |= deliver(server_, client_);
    }
  }
  static request_head call() {
    request_head head{.method = "POST", .authority = "weft.example", .path = "/a.B/C"};
    head.fields = {{"content-type", "application/grpc"}, {"te", "trailers"}};
    return head;
  }
  exchange_id ask(bool end = false, std::uint8_t urgency = 3) {
    auto id = client_.session->request(call(), end, urgency);
    EXPECT_TRUE(id);
    return id.value_or(-1);
  }

  template <class What>
  static std::vector<const What*> all(const endpoint& at, exchange_id id = 1) {
    std::vector<const What*> found;
    for (const event& each : at.events)
      if (const auto* what = std::get_if<What>(&each.what); what && each.id == id)
        found.push_back(what);
    return found;
  }
  /// Of whom content came, in order.
  static std::string order(const endpoint& at) {
    std::string seen;
    for (const event& each : at.events)
      if (std::holds_alternative<event::content>(each.what))
        if (const char name = static_cast<char>('0' + each.id); !seen.ends_with(name)) seen += name;
    return seen;
  }
  static std::string content(const endpoint& at, exchange_id id = 1) {
    std::string text;
    for (const auto* each : all<event::content>(at, id)) text += each->data.text();
    return text;
  }

  endpoint client_, server_;
};

INSTANTIATE_TEST_SUITE_P(pieces, h2_pair, testing::Values(1, 2, 7, 100'000));

TEST_P(h2_pair, a_request_and_its_response_with_trailers) {
  begin();
  const auto id = ask(false, 1);
  client_.session->send(id, slice::copy("question"), true);
  settle();
  auto heads = all<event::request>(server_);
  ASSERT_EQ(heads.size(), 1u);
  EXPECT_EQ(heads[0]->head.method, "POST");
  EXPECT_EQ(heads[0]->head.scheme, "https");
  EXPECT_EQ(heads[0]->head.authority, "weft.example");
  EXPECT_EQ(heads[0]->head.path, "/a.B/C");
  EXPECT_EQ(heads[0]->head.fields.find("te"), "trailers");
  EXPECT_EQ(heads[0]->urgency, 1);
  EXPECT_EQ(content(server_), "question");
  EXPECT_EQ(all<event::end>(server_).size(), 1u);

  ASSERT_TRUE(server_.session->respond(id, {.status = 200, .fields = {{"x", "y"}}}, false));
  server_.session->send(id, slice::copy("ans"), false);
  server_.session->send(id, slice::copy("wer"), false);
  server_.session->send_trailers(id, {{"grpc-status", "0"}});
  settle();
  auto responses = all<event::response>(client_);
  ASSERT_EQ(responses.size(), 1u);
  EXPECT_EQ(responses[0]->head.status, 200);
  EXPECT_EQ(responses[0]->head.fields.find("x"), "y");
  EXPECT_EQ(content(client_), "answer");
  auto ends = all<event::end>(client_);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0]->trailers.find("grpc-status"), "0");
  EXPECT_EQ(client_.session->open_exchanges(), 0u);
  EXPECT_EQ(server_.session->open_exchanges(), 0u);
}

TEST_P(h2_pair, head_content_and_trailers_leave_at_once_and_small_ones_in_one_slice) {
  begin();
  const auto id = ask(true);
  settle();
  ASSERT_TRUE(server_.session->respond(id, {}, false));
  server_.session->send(id, slice::copy(std::string(1000, 'x')), false);
  server_.session->send_trailers(id, {{"grpc-status", "0"}});
  std::vector<slice> parts;
  server_.session->collect(parts, 64 * 1024);
  EXPECT_EQ(parts.size(), 1u);
  EXPECT_FALSE(server_.session->wants_to_send());
}

TEST_P(h2_pair, long_content_is_shared_not_copied) {
  begin();
  const auto id = ask();
  const slice body = slice::copy(std::string(10'000, 'b'));
  client_.session->send(id, body, true);
  std::vector<slice> parts;
  client_.session->collect(parts, 64 * 1024);
  EXPECT_TRUE(std::ranges::any_of(parts, [&](const slice& p) { return p.data() == body.data(); }));
}

TEST_P(h2_pair, a_response_that_is_only_a_head) {
  begin();
  const auto id = ask(true);
  settle();
  ASSERT_EQ(all<event::end>(server_).size(), 1u);
  ASSERT_TRUE(server_.session->respond(id, {.fields = {{"grpc-status", "12"}}}, true));
  settle();
  ASSERT_EQ(all<event::response>(client_).size(), 1u);
  ASSERT_EQ(all<event::end>(client_).size(), 1u);
  EXPECT_TRUE(all<event::end>(client_)[0]->trailers.empty());
}

TEST_P(h2_pair, a_missing_trailer_section_is_not_made_up_from_the_head) {
  begin();
  const auto id = ask(true);
  settle();
  ASSERT_TRUE(server_.session->respond(id, {.fields = {{"grpc-status", "0"}}}, false));
  server_.session->send(id, slice::copy("x"), true);
  settle();
  ASSERT_EQ(all<event::end>(client_).size(), 1u);
  EXPECT_TRUE(all<event::end>(client_)[0]->trailers.empty());
}

TEST_P(h2_pair, trailers_behind_no_content_need_no_data_frame) {
  begin();
  const auto id = ask(true);
  settle();
  ASSERT_TRUE(server_.session->respond(id, {}, false));
  settle();
  EXPECT_EQ(all<event::response>(client_).size(), 1u);
  server_.session->send_trailers(id, {{"grpc-status", "5"}});
  settle();
  ASSERT_EQ(all<event::end>(client_).size(), 1u);
  EXPECT_EQ(all<event::end>(client_)[0]->trailers.find("grpc-status"), "5");
  EXPECT_TRUE(all<event::content>(client_).empty());
}

TEST_P(h2_pair, repeated_fields_keep_their_order) {
  begin();
  request_head head = call();
  head.fields = {{"x", "1"}, {"y", "2"}, {"x", "3"}, {"x", ""}};
  ASSERT_TRUE(client_.session->request(head, true, 3));
  settle();
  std::string seen;
  for (const field each : all<event::request>(server_)[0]->head.fields)
    seen += std::string{each.name} + '=' + std::string{each.value} + ' ';
  EXPECT_EQ(seen, "x=1 y=2 x=3 x= ");
}

TEST_P(h2_pair, windows_open_as_the_application_consumes) {
  begin({}, {.exchange_window = 100'000, .connection_window = 150'000});
  const auto one = ask(), two = ask();
  const std::string body(300'000, 'w');
  client_.session->send(one, slice::copy(body), true);
  client_.session->send(two, slice::copy(body), true);
  settle();
  EXPECT_LE(content(server_, one).size(), 100'000u);
  EXPECT_EQ(content(server_, one).size() + content(server_, two).size(), 150'000u);
  std::size_t given[2] = {};
  for (int round = 0; round < 100 && given[0] + given[1] < 2 * body.size(); ++round) {
    for (const auto id : {one, two}) {
      const std::size_t now = content(server_, id).size();
      server_.session->consume(id, now - std::exchange(given[id == two], now));
    }
    settle();
  }
  EXPECT_EQ(content(server_, one), body);
  EXPECT_EQ(content(server_, two), body);
  EXPECT_EQ(all<event::end>(server_, two).size(), 1u);
}

TEST_P(h2_pair, content_of_a_stopped_exchange_blocks_no_other) {
  begin({}, {.exchange_window = 100'000, .connection_window = 100'000});
  const auto one = ask();
  client_.session->send(one, slice::copy(std::string(90'000, 'x')), false);
  settle();
  server_.session->stop(one, give_up::no_error);
  server_.session->consume(one, 90'000);
  client_.session->send(one, slice::copy(std::string(50'000, 'x')), false);
  const auto two = ask();
  client_.session->send(two, slice::copy(std::string(90'000, 'y')), true);
  settle();
  EXPECT_EQ(content(server_, two).size(), 90'000u);
}

TEST_P(h2_pair, an_early_response_arrives_whole_before_the_request_is_stopped) {
  begin();
  const auto id = ask();
  client_.session->send(id, slice::copy("a part"), false);
  settle();
  ASSERT_TRUE(server_.session->respond(id, {}, false));
  server_.session->send(id, slice::copy(std::string(50'000, 'r')), false);
  server_.session->send_trailers(id, {{"grpc-status", "9"}});
  server_.session->stop(id, give_up::no_error);
  settle();
  EXPECT_EQ(content(client_).size(), 50'000u);
  ASSERT_EQ(all<event::end>(client_).size(), 1u);
  EXPECT_EQ(all<event::end>(client_)[0]->trailers.find("grpc-status"), "9");
  EXPECT_TRUE(all<event::reset>(client_).empty());
  ASSERT_EQ(all<event::stopped>(client_).size(), 1u);
  EXPECT_EQ(all<event::stopped>(client_)[0]->why, give_up::no_error);
  EXPECT_EQ(server_.session->open_exchanges(), 0u);
  EXPECT_EQ(client_.session->open_exchanges(), 0u);
}

TEST_P(h2_pair, resets_carry_the_reason_both_ways) {
  begin();
  const auto one = ask(), two = ask();
  settle();
  client_.session->reset(one, give_up::cancelled);
  server_.session->reset(two, give_up::excessive_load);
  settle();
  ASSERT_EQ(all<event::reset>(server_, one).size(), 1u);
  EXPECT_EQ(all<event::reset>(server_, one)[0]->why, give_up::cancelled);
  EXPECT_EQ(all<event::stopped>(server_, one).size(), 1u);
  ASSERT_EQ(all<event::reset>(client_, two).size(), 1u);
  EXPECT_EQ(all<event::reset>(client_, two)[0]->why, give_up::excessive_load);
  EXPECT_EQ(server_.session->open_exchanges(), 0u);
  EXPECT_EQ(client_.session->open_exchanges(), 0u);
  EXPECT_FALSE(server_.failure);
}

TEST_P(h2_pair, giving_up_a_complete_request_does_not_take_it_back) {
  begin();
  const auto id = ask();
  client_.session->send(id, slice::copy("all of it"), true);
  client_.session->reset(id, give_up::cancelled);
  settle();
  EXPECT_EQ(content(server_), "all of it");
  EXPECT_EQ(all<event::end>(server_).size(), 1u);
  EXPECT_EQ(all<event::stopped>(server_).size(), 1u);
  EXPECT_TRUE(all<event::reset>(server_).empty());
  EXPECT_EQ(client_.session->open_exchanges(), 0u);
}

TEST_P(h2_pair, giving_up_a_request_that_waits_for_the_window_is_told_at_once) {
  begin({}, {.exchange_window = 65'535});
  const auto id = ask();
  client_.session->send(id, slice::copy(std::string(100'000, 'x')), true);
  settle();
  client_.session->reset(id, give_up::cancelled);
  settle();
  EXPECT_EQ(all<event::reset>(server_).size(), 1u);
}

TEST_P(h2_pair, giving_up_in_the_middle_of_a_frame_is_safe) {
  begin();
  const auto one = ask(), two = ask();
  settle();
  client_.session->send(one, slice::copy(std::string(10'000, '1')), false);
  client_.session->send(two, slice::copy(std::string(10'000, '2')), false);
  std::vector<slice> parts;
  client_.session->collect(parts, 5'000);  // the second's frame is begun, and has no room
  for (const slice& part : parts) client_.out += part.text();
  client_.session->reset(one, give_up::cancelled);
  client_.session->reset(two, give_up::cancelled);
  settle();
  EXPECT_EQ(client_.session->open_exchanges(), 0u);
  EXPECT_EQ(all<event::reset>(server_, one).size(), 1u);
  EXPECT_EQ(all<event::reset>(server_, two).size(), 1u);
  ask(true);
  settle();
  EXPECT_EQ(all<event::request>(server_, two + 2).size(), 1u);
}

TEST_P(h2_pair, being_given_up_in_the_middle_of_a_frame_is_safe) {
  begin();
  const auto one = ask(), two = ask();
  settle();
  client_.session->send(one, slice::copy(std::string(10'000, '1')), false);
  client_.session->send(two, slice::copy(std::string(10'000, '2')), false);
  std::vector<slice> parts;
  client_.session->collect(parts, 5'000);
  for (const slice& part : parts) client_.out += part.text();
  server_.session->reset(one, give_up::cancelled);
  server_.session->reset(two, give_up::cancelled);
  collect(server_);
  deliver(server_, client_);
  settle();
  EXPECT_EQ(client_.session->open_exchanges(), 0u);
  EXPECT_FALSE(client_.failure);
  EXPECT_FALSE(server_.failure);
}

TEST_P(h2_pair, a_request_given_up_before_it_left_leaves_no_trace) {
  begin();
  const auto id = ask();
  client_.session->reset(id, give_up::cancelled);
  settle();
  EXPECT_EQ(client_.session->open_exchanges(), 0u);
  EXPECT_TRUE(client_.events.empty());
  EXPECT_EQ(server_.session->open_exchanges(), 0u);
  ask(true);
  settle();
  EXPECT_EQ(all<event::request>(server_, id + 2).size(), 1u);
}

TEST_P(h2_pair, a_complete_response_is_not_taken_back) {
  begin();
  const auto id = ask();
  settle();
  ASSERT_TRUE(server_.session->respond(id, {}, false));
  server_.session->send(id, slice::copy("done"), true);
  server_.session->reset(id, give_up::cancelled);
  settle();
  EXPECT_EQ(content(client_), "done");
  EXPECT_EQ(all<event::end>(client_).size(), 1u);
  EXPECT_TRUE(all<event::reset>(client_).empty());
}

TEST_P(h2_pair, a_field_section_beyond_the_limit_is_answered_431) {
  client_.session = std::make_unique<h2_session>(h2_role::client, h2_settings{});
  server_.session =
      std::make_unique<h2_session>(h2_role::server, h2_settings{.max_field_section = 1000});
  request_head head = call();
  for (int i = 0; i < 30; ++i) head.fields.add_valid("x-" + std::to_string(i), "some value");
  auto id = client_.session->request(head, false, 3);  // before it can know the server's limit
  ASSERT_TRUE(id);
  client_.session->send(*id, slice::copy("content"), false);
  settle();
  EXPECT_TRUE(server_.events.empty());
  ASSERT_EQ(all<event::response>(client_).size(), 1u);
  EXPECT_EQ(all<event::response>(client_)[0]->head.status, 431);
  EXPECT_EQ(all<event::end>(client_).size(), 1u);
  EXPECT_EQ(server_.session->open_exchanges(), 0u);
  const auto next = ask(true);
  settle();
  EXPECT_EQ(all<event::request>(server_, next).size(), 1u);
}

TEST_P(h2_pair, a_section_beyond_the_peers_limit_is_not_sent_and_the_error_says_both_sizes) {
  begin({.max_field_section = 300}, {.max_field_section = 400});
  const std::string large(500, 'x');
  request_head head = call();
  head.fields.add_valid("x", large);
  auto refused = client_.session->request(head, true, 3);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), errc::too_large);
  EXPECT_THAT(refused.error().message(), HasSubstr("the peer takes 400"));
  EXPECT_EQ(client_.session->open_exchanges(), 0u);
  const auto id = ask(true);
  settle();
  ASSERT_EQ(all<event::request>(server_, id).size(), 1u);
  EXPECT_EQ(server_.session->respond(id, {.fields = {{"x", large}}}, true).error(),
            errc::too_large);
  ASSERT_TRUE(server_.session->respond(id, {}, false));
  const auto trailers = server_.session->send_trailers(id, {{"x", large}});
  ASSERT_FALSE(trailers);
  EXPECT_EQ(trailers.error(), errc::too_large);
  EXPECT_THAT(trailers.error().message(), HasSubstr("takes 533 bytes, the peer takes 300"));
  ASSERT_TRUE(server_.session->send_trailers(id, {{"x", "small"}}));
  settle();
  ASSERT_EQ(all<event::end>(client_, id).size(), 1u);
  EXPECT_EQ(all<event::end>(client_, id)[0]->trailers.find("x"), "small");
  EXPECT_EQ(server_.session->open_exchanges(), 0u);
}

/// Pieces of which each has a time of its own.
TEST(h2_sections, are_under_way_from_their_first_frame_to_the_end_of_their_last) {
  using namespace frames;
  const std::string block = hpack(request_lines());
  const std::string begun = frame(headers, none, 1, block.substr(0, 10));
  const std::string middle = frame(continuation, none, 1, block.substr(10, 10));
  const std::string last = frame(continuation, end_headers, 1, block.substr(20));
  h2_section_watch watch{preface.size()};
  time_point now{};
  const auto take = [&](std::string_view text) {
    for (const char c : text) watch.take(std::as_bytes(std::span{&c, 1}), now += 1s);
  };
  take(greeting());
  EXPECT_EQ(watch.since(), never);
  take(begun.substr(0, 8));
  EXPECT_EQ(watch.since(), never);  // nobody knows yet
  take(begun.substr(8, 1));
  const time_point since = now;
  EXPECT_EQ(watch.since(), since);
  take(begun.substr(9));
  take(middle);
  take(last.substr(0, last.size() - 1));
  EXPECT_EQ(watch.since(), since);
  take(last.substr(last.size() - 1));
  EXPECT_EQ(watch.since(), never);
  take(frame(headers, end_headers | end_stream, 3, block));
  EXPECT_EQ(watch.since(), never);
  take(frame(headers, end_headers, 5, {}));
  EXPECT_EQ(watch.since(), never);
}

TEST_P(h2_pair, too_large_a_response_head_or_trailer_section_fails_the_exchange_alone) {
  begin({.max_field_section = 200});
  const auto one = ask(true), two = ask(true), three = ask(true);
  settle();
  // From a server that does not care.
  const auto section = [](exchange_id id, const frames::lines& lines, bool end) {
    return frames::frame(
        frames::headers,
        static_cast<std::uint8_t>(frames::end_headers | (end ? frames::end_stream : frames::none)),
        static_cast<std::uint32_t>(id), frames::hpack(lines));
  };
  const std::string large(300, 'x');
  server_.out += section(one, {{":status", "200"}, {"x", large}}, true) +
                 section(two, {{":status", "200"}}, false) + section(two, {{"x", large}}, true);
  deliver(server_, client_);
  settle();
  for (const auto id : {one, two}) {
    ASSERT_EQ(all<event::failed>(client_, id).size(), 1u);
    EXPECT_EQ(all<event::failed>(client_, id)[0]->why, errc::too_large);
    EXPECT_TRUE(all<event::end>(client_, id).empty());
  }
  ASSERT_TRUE(server_.session->respond(three, {}, true));
  settle();
  EXPECT_EQ(all<event::end>(client_, three).size(), 1u);
}

TEST_P(h2_pair, content_that_contradicts_its_length_is_malformed) {
  begin();
  request_head head = call();
  head.fields.add_valid("content-length", "5");
  const auto few = *client_.session->request(head, false, 3);
  client_.session->send(few, slice::copy("four"), true);
  const auto many = *client_.session->request(head, false, 3);
  client_.session->send(many, slice::copy("sixsix"), true);
  settle();
  for (const auto id : {few, many}) {
    EXPECT_EQ(all<event::failed>(server_, id).size(), 1u) << id;
    EXPECT_TRUE(all<event::end>(server_, id).empty()) << id;
    ASSERT_EQ(all<event::reset>(client_, id).size(), 1u) << id;
    EXPECT_EQ(all<event::reset>(client_, id)[0]->why, give_up::protocol);
  }
  EXPECT_FALSE(server_.failure);
}

TEST_P(h2_pair, going_away_lets_all_that_was_under_way_through) {
  begin();
  const auto one = ask();
  settle();
  server_.session->go_away();
  const auto crossing = ask(true);  // the client does not know yet
  settle();
  EXPECT_TRUE(client_.session->peer_going_away());
  EXPECT_FALSE(client_.session->may_request());
  EXPECT_TRUE(server_.session->gone_away());
  EXPECT_EQ(all<event::request>(server_, crossing).size(), 1u);
  for (const auto id : {one, crossing}) ASSERT_TRUE(server_.session->respond(id, {}, true));
  client_.session->send(one, slice::copy("late"), true);
  settle();
  EXPECT_EQ(content(server_, one), "late");
  EXPECT_EQ(all<event::end>(client_, one).size(), 1u);
  EXPECT_EQ(all<event::end>(client_, crossing).size(), 1u);
  EXPECT_EQ(server_.session->open_exchanges(), 0u);
}

TEST_P(h2_pair, no_more_requests_are_open_than_the_server_allows) {
  begin({}, {.max_concurrent = 2});
  const auto one = ask(true);
  ask(true);
  settle();
  EXPECT_FALSE(client_.session->may_request());
  ASSERT_TRUE(server_.session->respond(one, {}, true));
  settle();
  EXPECT_TRUE(client_.session->may_request());
}

TEST_P(h2_pair, what_is_more_urgent_goes_first_from_a_client_and_from_a_server) {
  begin();
  const auto low = ask(false, 6), high = ask(false, 0);
  client_.session->send(low, slice::copy(std::string(40'000, 'l')), true);
  client_.session->send(high, slice::copy(std::string(40'000, 'h')), true);
  settle();
  EXPECT_EQ(order(server_), "31");

  for (const auto id : {low, high}) {
    ASSERT_TRUE(server_.session->respond(id, {}, false));
    server_.session->send(id, slice::copy(std::string(40'000, id == low ? 'l' : 'h')), true);
  }
  settle();
  EXPECT_EQ(order(client_), "31");
}

TEST_P(h2_pair, a_window_that_holds_the_urgent_back_does_not_hold_back_the_rest) {
  begin({}, {.exchange_window = 65'535});
  const auto low = ask(false, 6), high = ask(false, 0);
  client_.session->send(high, slice::copy(std::string(100'000, 'h')), true);
  client_.session->send(low, slice::copy(std::string(50'000, 'l')), true);
  settle();
  EXPECT_EQ(content(server_, high).size(), 65'535u);
  EXPECT_EQ(content(server_, low).size(), 50'000u);
  server_.session->consume(high, 65'535);
  settle();
  EXPECT_EQ(content(server_, high).size(), 100'000u);
}

TEST_P(h2_pair, an_urgency_changed_later_counts) {
  begin();
  const auto one = ask(true, 3), two = ask(true, 3);
  settle();
  client_.session->set_urgency(two, 0);
  settle();
  const auto three = ask(true, 0);
  settle();
  server_.session->set_urgency(three, 5);
  for (const auto id : {one, two, three}) ASSERT_TRUE(server_.session->respond(id, {}, false));
  for (const auto id : {one, two, three})
    server_.session->send(id, slice::copy(std::string(40'000, 'x')), true);
  settle();
  EXPECT_EQ(order(client_), "315");
}

TEST_P(h2_pair, terminating_says_why) {
  begin();
  ask();
  settle();
  server_.session->terminate(give_up::excessive_load, "too hot");
  settle();
  ASSERT_TRUE(client_.session->farewell());
  EXPECT_THAT(client_.session->farewell()->message(), HasSubstr("too hot"));
  EXPECT_FALSE(client_.session->may_request());
}

TEST_P(h2_pair, what_cannot_be_a_request_is_refused) {
  begin();
  for (const request_head& bad :
       {request_head{.authority = "a", .path = ""}, request_head{.authority = "a b", .path = "/"},
        request_head{.authority = "a", .path = "/\r\nx: y"},
        request_head{.method = "P\n", .authority = "a", .path = "/"},
        request_head{.scheme = "ftp", .authority = "a", .path = "/"}}) {
    const auto got = client_.session->request(bad, true, 3);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error(), errc::invalid_argument);
  }
  EXPECT_EQ(client_.session->open_exchanges(), 0u);
}

TEST_P(h2_pair, many_exchanges_reuse_their_state) {
  begin();
  for (int i = 0; i < 300; ++i) {
    const auto id = ask();
    client_.session->send(id, slice::copy("q" + std::to_string(i)), true);
    settle();
    ASSERT_EQ(content(server_, id), "q" + std::to_string(i));
    ASSERT_TRUE(server_.session->respond(id, {}, false));
    server_.session->send_trailers(id, {{"n", std::to_string(i)}});
    settle();
    ASSERT_EQ(all<event::end>(client_, id).size(), 1u);
    ASSERT_EQ(all<event::end>(client_, id)[0]->trailers.find("n"), std::to_string(i));
    client_.events.clear();
    server_.events.clear();
  }
  EXPECT_EQ(client_.session->open_exchanges(), 0u);
}

}  // namespace
}  // namespace weft::http
