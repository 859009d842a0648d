#include <weft/http/core/h3_session.hpp>

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::http {
namespace {

/// A client's and a server's session whose bytes go across in pieces of `step`.
class h3_pair : public testing::TestWithParam<std::size_t> {
 protected:
  struct endpoint {
    std::unique_ptr<h3_session> session;
    std::map<std::int64_t, std::pair<std::string, bool>> out;  // bytes under way, fin
    std::vector<event> events;
    std::vector<h3_command> commands;
    std::optional<error> failure;
  };

  void begin(const h3_settings& client = {}, const h3_settings& server = {}) {
    client_.session = *h3_session::make(end_of::client, client);
    server_.session = *h3_session::make(end_of::server, server);
    ASSERT_TRUE(client_.session->bind(2, 6, 10));
    ASSERT_TRUE(server_.session->bind(3, 7, 11));
    settle();
  }

  void collect(endpoint& from) {
    for (;;) {
      auto next = from.session->next_write();
      ASSERT_TRUE(next) << next.error().to_string();
      if (!*next) break;
      auto& [bytes, fin] = from.out[(*next)->stream];
      for (const slice& part : (*next)->parts) bytes += part.text();
      fin |= (*next)->fin;
      ASSERT_TRUE(from.session->taken(**next));
    }
  }
  void deliver(endpoint& from, endpoint& to) {
    for (auto& [stream, rest] : std::exchange(from.out, {})) {
      auto& [bytes, fin] = rest;
      for (std::size_t at = 0; at < bytes.size() && !to.failure; at += GetParam())
        receive(to, stream, std::string_view{bytes}.substr(at, GetParam()), false);
      if (fin && !to.failure) receive(to, stream, {}, true);
    }
  }
  void receive(endpoint& to, std::int64_t stream, std::string_view bytes, bool fin) {
    auto done = to.session->receive(stream, slice::copy(bytes), fin, time_point{});
    if (!done) to.failure = done.error();
    std::ranges::move(std::exchange(to.session->events(), {}), std::back_inserter(to.events));
  }
  /// Until nothing moves any more; commands go across at once.
  void settle() {
    for (int round = 0; round < 100; ++round) {
      collect(client_);
      collect(server_);
      if (client_.out.empty() && server_.out.empty()) break;
      deliver(client_, server_);
      deliver(server_, client_);
      obey(client_, server_);
      obey(server_, client_);
    }
  }
  void obey(endpoint& from, endpoint& to) {
    for (const h3_command& each : std::exchange(from.session->commands(), {})) {
      from.commands.push_back(each);
      if (each.does == h3_command::what::prioritise) continue;  // no business of the peer's
      if (each.does == h3_command::what::reset)
        ASSERT_TRUE(to.session->receive_reset(each.stream, each.code));
      else
        to.session->receive_stop(each.stream, each.code);
      std::ranges::move(std::exchange(to.session->events(), {}), std::back_inserter(to.events));
    }
  }

  static request_head call() {
    request_head head{.method = "POST", .authority = "weft.example", .path = "/a.B/C"};
    head.fields = {{"content-type", "application/grpc"}, {"te", "trailers"}};
    return head;
  }

  template <class What>
  static std::vector<const What*> all(const endpoint& at, exchange_id id = 0) {
    std::vector<const What*> found;
    for (const event& each : at.events)
      if (const auto* what = std::get_if<What>(&each.what); what && each.id == id)
        found.push_back(what);
    return found;
  }
  static std::string content(const endpoint& at, exchange_id id = 0) {
    std::string text;
    for (const auto* each : all<event::content>(at, id)) text += each->data.text();
    return text;
  }

  endpoint client_, server_;
};

INSTANTIATE_TEST_SUITE_P(pieces, h3_pair, testing::Values(1, 2, 7, 100'000));

TEST_P(h3_pair, a_request_and_its_response_with_trailers) {
  begin();
  ASSERT_TRUE(client_.session->request(0, call(), false, 1));
  client_.session->send(0, slice::copy("question"), true);
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
  ASSERT_EQ(all<event::end>(server_).size(), 1u);

  ASSERT_TRUE(server_.session->respond(0, {.status = 200, .fields = {{"x", "y"}}}, false));
  server_.session->send(0, slice::copy("ans"), false);
  server_.session->send(0, slice::copy("wer"), false);
  server_.session->send_trailers(0, {{"grpc-status", "0"}});
  settle();
  ASSERT_EQ(all<event::response>(client_).size(), 1u);
  EXPECT_EQ(all<event::response>(client_)[0]->head.status, 200);
  EXPECT_EQ(content(client_), "answer");
  ASSERT_EQ(all<event::end>(client_).size(), 1u);
  EXPECT_EQ(all<event::end>(client_)[0]->trailers.find("grpc-status"), "0");
  EXPECT_EQ(client_.session->open_exchanges(), 0u);
  EXPECT_EQ(server_.session->open_exchanges(), 0u);
  EXPECT_FALSE(client_.failure || server_.failure);
}

TEST_P(h3_pair, the_end_may_come_after_the_head_alone) {
  begin();
  ASSERT_TRUE(client_.session->request(0, call(), true, 3));
  settle();
  ASSERT_TRUE(server_.session->respond(0, {.status = 200, .fields = {{"grpc-status", "5"}}}, true));
  settle();
  ASSERT_EQ(all<event::response>(client_).size(), 1u);
  EXPECT_EQ(content(client_), "");
  ASSERT_EQ(all<event::end>(client_).size(), 1u);
  EXPECT_TRUE(all<event::end>(client_)[0]->trailers.empty());
}

TEST_P(h3_pair, an_end_without_trailers_sends_no_trailer_section) {
  begin();
  ASSERT_TRUE(client_.session->request(0, call(), true, 3));
  settle();
  ASSERT_TRUE(server_.session->respond(0, {}, false));
  collect(server_);
  const std::size_t before = server_.out[0].first.size();
  server_.session->send(0, {}, true);
  collect(server_);
  EXPECT_EQ(server_.out[0].first.size(), before);
  EXPECT_TRUE(server_.out[0].second);
}

TEST_P(h3_pair, content_of_any_size_arrives_whole_and_is_let_go_of) {
  begin();
  std::string big(300'000, 'x');
  for (std::size_t i = 0; i < big.size(); ++i) big[i] = static_cast<char>('a' + i % 23);
  ASSERT_TRUE(client_.session->request(0, call(), false, 3));
  for (std::size_t at = 0; at < big.size(); at += 9'999)
    client_.session->send(0, slice::copy(std::string_view{big}.substr(at, 9'999)), false);
  EXPECT_EQ(client_.session->unsent(0), big.size());
  client_.session->send(0, {}, true);
  settle();
  EXPECT_EQ(client_.session->unsent(0), 0u);
  EXPECT_EQ(content(server_), big);
}

TEST_P(h3_pair, a_request_that_waits_for_content_does_not_hold_others_up) {
  begin();
  for (exchange_id id = 0; id < 40; id += 4) {
    ASSERT_TRUE(client_.session->request(id, call(), false, 3));
    client_.session->send(id, slice::copy("part"), false);
  }
  settle();
  for (exchange_id id = 0; id < 40; id += 4) EXPECT_EQ(content(server_, id), "part") << id;
}

TEST_P(h3_pair, a_blocked_stream_gives_nothing_until_it_is_unblocked) {
  begin();
  ASSERT_TRUE(client_.session->request(0, call(), false, 3));
  settle();
  client_.session->block(0);
  client_.session->send(0, slice::copy("later"), true);
  settle();
  EXPECT_EQ(content(server_), "");
  client_.session->unblock(0);
  settle();
  EXPECT_EQ(content(server_), "later");
}

TEST_P(h3_pair, an_early_response_stops_the_request_and_arrives) {
  begin();
  ASSERT_TRUE(client_.session->request(0, call(), false, 3));
  settle();
  ASSERT_TRUE(server_.session->respond(0, {.status = 413}, true));
  server_.session->stop(0, give_up::no_error);
  settle();
  ASSERT_EQ(all<event::response>(client_).size(), 1u);
  ASSERT_EQ(all<event::end>(client_).size(), 1u);
  ASSERT_EQ(all<event::stopped>(client_).size(), 1u);
  EXPECT_EQ(all<event::stopped>(client_)[0]->why, give_up::no_error);
  EXPECT_EQ(server_.session->open_exchanges(), 0u);
  EXPECT_EQ(client_.session->open_exchanges(), 0u);
}

TEST_P(h3_pair, giving_up_does_not_take_a_complete_response_back) {
  begin();
  ASSERT_TRUE(client_.session->request(0, call(), false, 3));
  settle();
  ASSERT_TRUE(server_.session->respond(0, {}, false));
  server_.session->send(0, slice::copy("whole"), true);
  server_.session->reset(0, give_up::cancelled);  // nothing of it has left yet
  settle();
  EXPECT_EQ(content(client_), "whole");
  EXPECT_EQ(all<event::end>(client_).size(), 1u);
  for (const h3_command& each : server_.commands)
    EXPECT_EQ(each.does, h3_command::what::stop_sending);
}

TEST_P(h3_pair, either_side_gives_up) {
  begin();
  ASSERT_TRUE(client_.session->request(0, call(), false, 3));
  ASSERT_TRUE(client_.session->request(4, call(), false, 3));
  settle();
  client_.session->reset(0, give_up::cancelled);
  server_.session->reset(4, give_up::rejected);
  obey(client_, server_);
  obey(server_, client_);
  ASSERT_EQ(all<event::reset>(server_).size(), 1u);
  EXPECT_EQ(all<event::reset>(server_)[0]->why, give_up::cancelled);
  ASSERT_EQ(all<event::reset>(client_, 4).size(), 1u);
  EXPECT_EQ(all<event::reset>(client_, 4)[0]->why, give_up::rejected);
  EXPECT_EQ(client_.session->open_exchanges(), 0u);
  EXPECT_EQ(server_.session->open_exchanges(), 0u);
}

TEST_P(h3_pair, fields_beyond_the_servers_limit_are_answered_with_431) {
  begin({}, {.max_field_section = 300});
  request_head head = call();
  for (int i = 0; i < 20; ++i) head.fields.add_valid("x", "0123456789");
  auto honest = client_.session->request(0, head, false, 3);
  ASSERT_FALSE(honest);  // the server has said so
  EXPECT_EQ(honest.error().code(), errc::too_large);

  // One who does not care.
  endpoint rude;
  rude.session = *h3_session::make(end_of::client, {});
  ASSERT_TRUE(rude.session->bind(2, 6, 10));
  ASSERT_TRUE(rude.session->request(0, head, false, 3));
  std::swap(client_, rude);
  server_.session = *h3_session::make(end_of::server, {.max_field_section = 300});
  ASSERT_TRUE(server_.session->bind(3, 7, 11));
  settle();
  EXPECT_TRUE(all<event::request>(server_).empty());
  ASSERT_EQ(all<event::response>(client_).size(), 1u);
  EXPECT_EQ(all<event::response>(client_)[0]->head.status, 431);
  EXPECT_FALSE(server_.failure);
  EXPECT_EQ(server_.session->open_exchanges(), 0u);
}

TEST_P(h3_pair, fields_and_trailers_beyond_the_clients_limit_fail) {
  for (const bool in_trailers : {false, true}) {
    client_ = {};
    server_ = {};
    begin({.max_field_section = 300}, {});
    ASSERT_TRUE(client_.session->request(0, call(), true, 3));
    settle();
    field_list many;
    for (int i = 0; i < 20; ++i) many.add_valid("x", "0123456789");
    if (!in_trailers) {
      EXPECT_EQ(server_.session->respond(0, {.fields = many}, true).error().code(),
                errc::too_large);
      continue;
    }
    ASSERT_TRUE(server_.session->respond(0, {}, false));
    const auto trailers = server_.session->send_trailers(0, many);
    ASSERT_FALSE(trailers);
    EXPECT_EQ(trailers.error().code(), errc::too_large);
    EXPECT_NE(trailers.error().message().find("takes 860 bytes, the peer takes 300"),
              std::string::npos)
        << trailers.error().message();
    ASSERT_TRUE(server_.session->send_trailers(0, {{"x", "small"}}));
    settle();
    EXPECT_EQ(all<event::end>(client_).size(), 1u);
    EXPECT_EQ(client_.session->open_exchanges(), 0u);
  }
}

/// From a server that does not know the limit, or does not care.
TEST_P(h3_pair, trailers_beyond_our_limit_fail_the_exchange) {
  begin({.max_field_section = 300}, {});
  ASSERT_TRUE(client_.session->request(0, call(), true, 3));
  settle();
  // HEADERS of 200, then of one line: a literal name and value (RFC 9204 §4.5.6).
  const std::string value(290, 'v');
  std::string section{"\0\0\x23\x78\x79\x7a\x7f\xa3\x01", 9};
  section += value;
  std::string text{"\x01\x03\x00\x00\xd9\x01\x41", 7};
  text += static_cast<char>(section.size() & 0xff);
  receive(client_, 0, text + section, true);
  ASSERT_EQ(all<event::failed>(client_).size(), 1u);
  EXPECT_EQ(all<event::failed>(client_)[0]->why.code(), errc::too_large);
}

TEST_P(h3_pair, a_priority_update_reaches_who_schedules_streams) {
  begin();
  for (const exchange_id id : {0, 4}) ASSERT_TRUE(client_.session->request(id, call(), true, 5));
  settle();
  ASSERT_EQ(all<event::request>(server_, 4).size(), 1u);
  EXPECT_EQ(all<event::request>(server_, 4)[0]->urgency, 5u);
  EXPECT_TRUE(server_.commands.empty());
  client_.session->set_urgency(4, 1);
  settle();
  ASSERT_EQ(server_.commands.size(), 1u);
  EXPECT_EQ(server_.commands[0].stream, 4);
  EXPECT_EQ(server_.commands[0].does, h3_command::what::prioritise);
  EXPECT_EQ(server_.commands[0].code, 1u);
  // Not against what the application wants.
  server_.session->set_urgency(4, 6);
  client_.session->set_urgency(4, 2);
  settle();
  EXPECT_EQ(server_.commands.size(), 1u);
}

TEST_P(h3_pair, a_priority_update_that_overtakes_its_request_counts) {
  begin();
  // PRIORITY_UPDATE of stream 0: "u=2" (RFC 9218 §7.2).
  receive(server_, 2, std::string_view{"\x80\x0f\x07\x00\x04\x00u=2", 9}, false);
  ASSERT_FALSE(server_.failure) << server_.failure->to_string();
  ASSERT_TRUE(client_.session->request(0, call(), true, 5));
  settle();
  ASSERT_EQ(all<event::request>(server_).size(), 1u);
  EXPECT_EQ(all<event::request>(server_)[0]->urgency, 2u);
}

TEST_P(h3_pair, interim_responses_are_skipped) {
  begin();
  ASSERT_TRUE(client_.session->request(0, call(), true, 3));
  settle();
  // HEADERS of 103, then of 200 (QPACK: static table entries 24 and 25, no dynamic one).
  receive(client_, 0, std::string_view{"\x01\x03\x00\x00\xd8\x01\x03\x00\x00\xd9", 10}, true);
  ASSERT_FALSE(client_.failure) << client_.failure->to_string();
  ASSERT_EQ(all<event::response>(client_).size(), 1u);
  EXPECT_EQ(all<event::response>(client_)[0]->head.status, 200);
  EXPECT_EQ(all<event::end>(client_).size(), 1u);
}

TEST_P(h3_pair, content_that_disagrees_with_its_length_is_malformed) {
  begin();
  request_head head = call();
  head.fields.add_valid("content-length", "3");
  ASSERT_TRUE(client_.session->request(0, head, false, 3));
  client_.session->send(0, slice::copy("four"), true);
  settle();
  ASSERT_TRUE(server_.failure);
  EXPECT_EQ(server_.failure->detail(), to_h3(give_up::protocol));
}

TEST_P(h3_pair, going_away_rejects_new_requests_and_finishes_old_ones) {
  begin();
  ASSERT_TRUE(client_.session->request(0, call(), true, 3));
  settle();
  server_.session->go_away();
  server_.session->go_away();
  ASSERT_TRUE(client_.session->request(4, call(), true, 3));
  settle();
  EXPECT_TRUE(client_.session->peer_going_away());
  EXPECT_EQ(client_.session->refused_from(), 4);
  EXPECT_TRUE(all<event::request>(server_, 4).empty());
  ASSERT_TRUE(server_.session->respond(0, {}, true));
  settle();
  EXPECT_EQ(all<event::end>(client_).size(), 1u);
  EXPECT_FALSE(all<event::reset>(client_, 4).empty() && all<event::failed>(client_, 4).empty());
}

TEST_P(h3_pair, an_announced_departure_lets_all_that_was_under_way_through) {
  begin();
  server_.session->announce_departure();
  server_.session->announce_departure();
  ASSERT_TRUE(client_.session->request(0, call(), true, 3));  // crosses it
  settle();
  EXPECT_TRUE(client_.session->peer_going_away());
  EXPECT_EQ(client_.session->refused_from(), INT64_MAX);
  EXPECT_EQ(all<event::request>(server_, 0).size(), 1u);
  server_.session->go_away();
  ASSERT_TRUE(server_.session->respond(0, {}, true));
  settle();
  EXPECT_EQ(client_.session->refused_from(), 4);
  EXPECT_EQ(all<event::end>(client_).size(), 1u);
}

TEST_P(h3_pair, repeated_fields_come_from_the_dynamic_table) {
  begin();
  std::size_t first = 0, last = 0;
  for (exchange_id id = 0; id < 40; id += 4) {
    request_head head = call();
    head.fields.add_valid("x-same-every-time", "a value of some length, the same in every request");
    ASSERT_TRUE(client_.session->request(id, head, true, 3));
    collect(client_);
    last = client_.out[id].first.size();
    if (id == 0) first = last;
    settle();
  }
  EXPECT_LT(last, first);
}

struct hostile_case {
  const char* name;
  std::int64_t stream;
  std::string bytes;
  bool fin;
  std::uint64_t code;  // RFC 9114 §8.1, RFC 9204 §6
};

class h3_hostile : public testing::TestWithParam<hostile_case> {};

TEST_P(h3_hostile, ends_in_one_clear_error) {
  auto server = *h3_session::make(end_of::server, {});
  ASSERT_TRUE(server->bind(3, 7, 11));
  const auto& given = GetParam();
  auto done = server->receive(given.stream, slice::copy(given.bytes), given.fin, time_point{});
  if (given.code == 0) {
    EXPECT_TRUE(done) << done.error().to_string();
    return;
  }
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().detail(), given.code) << done.error().to_string();
  EXPECT_FALSE(done.error().message().empty());
}

std::string bytes_of(std::initializer_list<int> values) {
  std::string text;
  for (const int each : values) text += static_cast<char>(each);
  return text;
}

INSTANTIATE_TEST_SUITE_P(
    peers, h3_hostile,
    testing::Values(
        hostile_case{"data_before_headers", 0, bytes_of({0, 1, 'x'}), false, 0x105},
        hostile_case{"settings_on_a_request", 0, bytes_of({4, 0}), false, 0x105},
        hostile_case{"headers_on_control", 2, bytes_of({0, 1, 0}), false, 0x10a},
        hostile_case{"second_settings", 2, bytes_of({0, 4, 0, 4, 0}), false, 0x105},
        hostile_case{"http2_setting", 2, bytes_of({0, 4, 2, 2, 0}), false, 0x109},
        hostile_case{"unknown_setting", 2, bytes_of({0, 4, 2, 0x21, 0}), false, 0},
        hostile_case{"control_ends", 2, bytes_of({0, 4, 0}), true, 0x104},
        hostile_case{"unknown_frame", 0, bytes_of({0x21, 3, 1, 2, 3}), false, 0},
        hostile_case{"unknown_stream_type", 2, bytes_of({0x21, 1, 2, 3}), false, 0},
        hostile_case{"push_stream_of_a_client", 2, bytes_of({1, 0}), false, 0x103},
        hostile_case{
            "qpack_encoder_garbage", 6,
            bytes_of({2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),
            false, 0x201},
        hostile_case{"qpack_table_beyond_what_we_allow", 6, bytes_of({2, 0x3f, 0xe1, 0xff, 0x7f}),
                     false, 0x201},
        hostile_case{"section_that_must_wait", 0, bytes_of({1, 3, 5, 0, 0x80}), false, 0x200},
        hostile_case{"truncated_frame", 0, bytes_of({1, 9, 0, 0}), true, 0x106},
        hostile_case{"endless_string", 0,
                     bytes_of({1, 10, 0, 0, 0x27, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}), false,
                     0x200}),
    [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace weft::http
