#include <weft/rpc/connect/test_support.hpp>

#include <weft/rpc/http/wire/base64.hpp>
#include <weft/rpc/http/wire/codes.hpp>
#include <weft/rpc/http/wire/error_json.hpp>
#include <weft/rpc/http/wire/percent.hpp>

namespace weft::rpc::connect::testing {
namespace {

using namespace std::chrono_literals;
using envelopes = std::vector<std::pair<int, std::string>>;

class connect_server : public connect_fixture {
 protected:
  void on_echo(handlers::handler h) { calls.on(echo_method, std::move(h)); }
  void on_chat(handlers::handler h) { calls.on(chat_method, std::move(h)); }
};

task<status> fail_with(server_call&, status s) {
  co_return s;
}

std::string packed(compression algorithm, std::string_view text) {
  return std::string{compress(algorithm, as_bytes(text))->text()};
}

// Unary
// ----------------------------------------------------------------------------------------------

TEST_F(connect_server, unary_is_a_bare_message_each_way) {
  const auto got = ask(post("/t.S/Echo", {{"content-type", "application/proto"}}), "hello");
  EXPECT_EQ(got.status, 200);
  EXPECT_EQ(got.field("content-type"), "application/proto");
  EXPECT_EQ(got.field("content-length"), "5");
  EXPECT_EQ(got.body, "hello");
}

TEST_F(connect_server, unary_json) {
  const auto got =
      ask(post("/t.S/Echo", {{"content-type", "application/json; charset=utf-8"}}), "\"hello\"");
  EXPECT_EQ(got.field("content-type"), "application/json");
  EXPECT_EQ(got.body, "\"hello\"");
}

TEST_F(connect_server, empty_messages_are_messages) {
  const auto got = ask(post("/t.S/Echo", {{"content-type", "application/proto"}}));
  EXPECT_EQ(got.status, 200);
  EXPECT_EQ(got.field("content-length"), "0");
  EXPECT_EQ(got.body, "");
  const auto stream = ask(post("/t.S/Chat", {{"content-type", "application/connect+proto"}}),
                          framed(0, "") + framed(0, ""));
  EXPECT_EQ(cut(stream.body), (envelopes{{0, ""}, {0, ""}, {2, "{}"}}));
}

TEST_F(connect_server, errors_are_json_whatever_the_codec) {
  for (std::uint64_t number = 1; number <= 16; ++number) {
    const code c = code_from_number(number);
    on_echo(
        [c](server_call& call) { return fail_with(call, status{c, "why", {{"a.B", "\xff"}}}); });
    const auto got = ask(post("/t.S/Echo", {{"content-type", "application/proto"}}), "x");
    EXPECT_EQ(got.status, wire::connect_http_status(c));
    EXPECT_EQ(got.field("content-type"), "application/json");
    EXPECT_EQ(got.field("content-length"), std::to_string(got.body.size()));
    EXPECT_EQ(wire::error_from_json(got.body, code::ok), (status{c, "why", {{"a.B", "\xff"}}}));
  }
}

task<status> with_metadata(server_call& call, status s) {
  (void)co_await call.send_headers({{"x-head", "1"}, {"x-head", "2"}, {"x-head-bin", "f"}});
  call.set_trailers({{"x-tail", "3"}, {"x-tail", "4"}, {"x-tail-bin", "f"}});
  (void)co_await call.write(text_message{"reply"});
  co_return s;
}

TEST_F(connect_server, trailers_are_headers_of_unary_replies_and_errors) {
  for (const auto& s : {status{}, status{code::aborted, "m"}}) {
    on_echo([s](server_call& call) { return with_metadata(call, s); });
    const auto got = ask(post("/t.S/Echo", {{"content-type", "application/proto"}}), "x");
    EXPECT_EQ(got.status, s.ok() ? 200 : 409);
    EXPECT_EQ(got.all("x-head"), (std::vector<std::string>{"1", "2"}));
    EXPECT_EQ(got.all("trailer-x-tail"), (std::vector<std::string>{"3", "4"}));
    EXPECT_EQ(got.field("x-head-bin"), "Zg");
    EXPECT_EQ(got.field("trailer-x-tail-bin"), "Zg");
    EXPECT_TRUE(got.trailers.empty());
  }
}

TEST_F(connect_server, never_sends_http_trailers) {
  on_chat([](server_call& call) { return with_metadata(call, status{code::aborted, "m"}); });
  const auto got = ask(post("/t.S/Chat", {{"content-type", "application/connect+proto"}}), "");
  EXPECT_TRUE(got.trailers.empty());
  EXPECT_EQ(got.status, 200);
}

task<status> show_request(server_call& call) {
  std::string seen;
  for (const auto& [key, value] : call.info().metadata) seen += key + "=" + value + ";";
  (void)co_await call.write(text_message{seen});
  co_return status{};
}

TEST_F(connect_server, request_metadata_keeps_duplicates_and_hides_the_protocol) {
  on_echo(show_request);
  const auto got = ask(post("/t.S/Echo", {{"content-type", "application/proto"},
                                          {"connect-protocol-version", "1"},
                                          {"connect-timeout-ms", "5000"},
                                          {"accept-encoding", "gzip"},
                                          {"x-a", "1"},
                                          {"x-b-bin", "Zg=="},
                                          {"x-a", "2"},
                                          {"x-b-bin", "Zm8"}}),
                       "");
  EXPECT_EQ(got.body, "x-a=1;x-b-bin=f;x-a=2;x-b-bin=fo;");
}

TEST_F(connect_server, an_early_answer_does_not_wait_for_the_request) {
  on_echo([](server_call& call) { return fail_with(call, {code::unauthenticated, "who?"}); });
  struct local {
    static task<> go(connect_server& self, reply& got) {
      auto e = self.request(post("/t.S/Echo", {{"content-type", "application/proto"}}));
      (void)e->try_write(slice::copy("half of"), false);
      got = co_await read_reply_of(*e);
      co_await settle(self.shard);
    }
  };
  reply got;
  ASSERT_TRUE(run(shard, local::go(*this, got)));
  EXPECT_EQ(got.status, 401);
  EXPECT_FALSE(got.failed);
  EXPECT_TRUE(raw->last->stopped_reading[1]);
  EXPECT_FALSE(raw->last->given_up[1]);
}

// Compression
// ----------------------------------------------------------------------------------------

TEST_F(connect_server, unary_compression_each_way) {
  const std::string text(5000, 'a');
  for (const auto algorithm : available_compressions()) {
    const std::string name{to_string(algorithm)};
    const auto got = ask(post("/t.S/Echo", {{"content-type", "application/proto"},
                                            {"content-encoding", name},
                                            {"accept-encoding", name}}),
                         packed(algorithm, text));
    EXPECT_EQ(got.field("content-encoding"), name);
    EXPECT_EQ(got.field("content-length"), std::to_string(got.body.size()));
    EXPECT_EQ(decompress(algorithm, payload{slice::copy(got.body)}, 5000)->text(), text);
  }
}

TEST_F(connect_server, who_accepts_nothing_by_name_understands_what_it_sends) {
  const auto got =
      ask(post("/t.S/Echo", {{"content-type", "application/proto"}, {"content-encoding", "gzip"}}),
          packed(compression::gzip, std::string(500, 'a')));
  EXPECT_EQ(got.field("content-encoding"), "gzip");
  const auto plain = ask(post("/t.S/Echo", {{"content-type", "application/proto"},
                                            {"content-encoding", "gzip"},
                                            {"accept-encoding", "identity"}}),
                         packed(compression::gzip, std::string(500, 'a')));
  EXPECT_EQ(plain.field("content-encoding"), "(none)");
  EXPECT_EQ(plain.body, std::string(500, 'a'));
}

TEST_F(connect_server, empty_bodies_are_not_decompressed) {
  const auto got =
      ask(post("/t.S/Echo", {{"content-type", "application/proto"}, {"content-encoding", "gzip"}}));
  EXPECT_EQ(got.status, 200);
  EXPECT_EQ(got.body, "");
}

TEST_F(connect_server, unknown_encodings_are_unimplemented_and_known_ones_listed) {
  const auto got = ask(
      post("/t.S/Echo", {{"content-type", "application/proto"}, {"content-encoding", "snappy"}}),
      "x");
  EXPECT_EQ(got.status, 501);
  const auto failure = wire::error_from_json(got.body, code::ok);
  EXPECT_EQ(failure->code(), code::unimplemented);
  EXPECT_TRUE(failure->message().contains("zstd, gzip, br"));
  const auto stream = ask(post("/t.S/Chat", {{"content-type", "application/connect+proto"},
                                             {"connect-content-encoding", "snappy"}}));
  EXPECT_EQ(stream.status, 200);
  EXPECT_EQ(wire::end_from_json(cut(stream.body).at(0).second)->status.code(), code::unimplemented);
}

TEST_F(connect_server, limits_count_after_decompression_too) {
  options.limits.max_message = 1000;
  const std::string bomb = packed(compression::gzip, std::string(100'000, '\0'));
  ASSERT_LT(bomb.size(), 1000u);
  const auto got =
      ask(post("/t.S/Echo", {{"content-type", "application/proto"}, {"content-encoding", "gzip"}}),
          bomb);
  EXPECT_EQ(got.status, 429);
  const auto plain =
      ask(post("/t.S/Echo", {{"content-type", "application/proto"}}), std::string(1001, 'a'));
  EXPECT_EQ(plain.status, 429);
  const auto stream = ask(post("/t.S/Chat", {{"content-type", "application/connect+proto"},
                                             {"connect-content-encoding", "gzip"}}),
                          framed(1, bomb));
  EXPECT_EQ(wire::end_from_json(cut(stream.body).at(0).second)->status.code(),
            code::resource_exhausted);
}

TEST_F(connect_server, streams_compress_each_message_by_itself) {
  const std::string text(500, 'a');
  const auto got = ask(post("/t.S/Chat", {{"content-type", "application/connect+proto"},
                                          {"connect-content-encoding", "gzip"},
                                          {"connect-accept-encoding", "br, gzip"}}),
                       framed(1, packed(compression::gzip, text)) + framed(0, "plain") +
                           framed(1, packed(compression::gzip, text)));
  EXPECT_EQ(got.field("connect-content-encoding"), "gzip");
  EXPECT_EQ(got.field("content-encoding"), "(none)");
  const auto all = cut(got.body);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0], all[2]);
  EXPECT_EQ(all[0].first, 1);
  EXPECT_EQ(all[1], std::pair(0, std::string{"plain"}));
  EXPECT_EQ(decompress(compression::gzip, payload{slice::copy(all[0].second)}, 500)->text(), text);
}

TEST_F(connect_server, content_encoding_means_nothing_on_a_stream) {
  const auto got = ask(post("/t.S/Chat", {{"content-type", "application/connect+proto"},
                                          {"content-encoding", "gzip"},
                                          {"accept-encoding", "gzip"}}),
                       framed(0, "plain"));
  EXPECT_EQ(cut(got.body), (envelopes{{0, "plain"}, {2, "{}"}}));
}

TEST_F(connect_server, a_compressed_flag_without_an_encoding_is_internal) {
  const auto got =
      ask(post("/t.S/Chat", {{"content-type", "application/connect+proto"}}), framed(1, "x"));
  EXPECT_EQ(wire::end_from_json(cut(got.body).at(0).second)->status.code(), code::internal);
}

// GET
// ------------------------------------------------------------------------------------------------

TEST_F(connect_server, get_takes_the_query_in_any_order) {
  const auto got = ask_get("/t.S/Pure?message=aGk&x=y&encoding=proto&base64=1&connect=v1");
  EXPECT_EQ(got.status, 200);
  EXPECT_EQ(got.field("content-type"), "application/proto");
  EXPECT_EQ(got.body, "hi");
  EXPECT_EQ(ask_get("/t.S/Pure?encoding=json&message=%22h+i%22&connect=v1").body, "\"h i\"");
  EXPECT_EQ(ask_get("/t.S/Pure?encoding=json&message=%22h%20i%22").body, "\"h i\"");
}

TEST_F(connect_server, get_base64_is_url_safe_and_padding_optional) {
  const std::string text{"\xfb\xff\xbf\x01"};
  for (const char* message : {"-_-_AQ", "-_-_AQ==", "-_-_AQ%3D%3D"})
    EXPECT_EQ(ask_get("/t.S/Pure?base64=1&encoding=proto&message=" + std::string{message}).body,
              text);
  EXPECT_EQ(ask_get("/t.S/Pure?base64=1&encoding=proto&message=%2B%2F%2B%2FAQ").status, 400);
}

TEST_F(connect_server, get_compresses_before_base64) {
  const std::string text(300, 'a');
  const std::string message =
      wire::base64_encode(as_bytes(packed(compression::gzip, text)), wire::alphabet::url);
  const auto got = ask_get("/t.S/Pure?base64=1&compression=gzip&encoding=proto&message=" + message);
  EXPECT_EQ(decompress(compression::gzip, payload{slice::copy(got.body)}, 300)->text(), text);
  EXPECT_EQ(ask_get("/t.S/Pure?compression=identity&encoding=proto&message=x").body, "x");
  EXPECT_EQ(ask_get("/t.S/Pure?compression=snappy&encoding=proto&message=x").status, 501);
}

task<status> show_query(server_call& call) {
  (void)co_await call.write(
      text_message{std::string{call.info().http_method} + " " + std::string{call.info().query}});
  co_return status{};
}

TEST_F(connect_server, get_shows_its_query_to_the_handler) {
  calls.on(pure_method, show_query);
  EXPECT_EQ(ask_get("/t.S/Pure?connect=v1&encoding=proto&message=").body,
            "GET connect=v1&encoding=proto&message=");
}

TEST_F(connect_server, bad_gets_are_refused) {
  EXPECT_EQ(ask_get("/t.S/Echo?encoding=proto&message=").status, 405);  // it has side effects
  EXPECT_EQ(ask_get("/t.S/Chat?encoding=proto&message=").status, 405);
  EXPECT_EQ(ask_get("/t.S/Nobody?encoding=proto&message=").status, 404);
  EXPECT_EQ(ask_get("/t.S/Pure?encoding=thrift&message=").status, 415);
  EXPECT_EQ(ask_get("/t.S/Pure?message=").status, 415);
  EXPECT_EQ(ask_get("/t.S/Pure?encoding=proto").status, 400);
  EXPECT_EQ(ask_get("/t.S/Pure?encoding=proto&message=&connect=v2").status, 400);
}

// Refusals
// -------------------------------------------------------------------------------------------

TEST_F(connect_server, unknown_content_types_are_415_and_name_what_is_taken) {
  for (const char* type : {"application/xml", "application/grpc", "application/connect+thrift",
                           "application/connect+proto", "text/plain"}) {
    const auto got = ask(post("/t.S/Echo", {{"content-type", type}}), "x");
    EXPECT_EQ(got.status, 415) << type;
    EXPECT_EQ(got.field("accept-post"), "application/proto, application/json");
  }
  EXPECT_EQ(ask(post("/t.S/Echo", {}), "x").status, 415);
  EXPECT_EQ(ask(post("/t.S/Chat", {{"content-type", "application/proto"}}), "x").status, 415);
}

TEST_F(connect_server, other_http_methods_are_405) {
  for (const char* name : {"PUT", "HEAD", "OPTIONS", "DELETE"}) {
    auto head = post("/t.S/Pure", {{"content-type", "application/proto"}});
    head.method = name;
    const auto got = ask(std::move(head));
    EXPECT_EQ(got.status, 405);
    EXPECT_EQ(got.field("allow"), "POST, GET");
  }
  auto head = post("/t.S/Echo", {});
  head.method = "PUT";
  EXPECT_EQ(ask(std::move(head)).field("allow"), "POST");
}

TEST_F(connect_server, unknown_paths_are_404_and_unimplemented) {
  const auto got = ask(post("/t.S/echo", {{"content-type", "application/proto"}}), "x");
  EXPECT_EQ(got.status, 404);
  EXPECT_EQ(wire::error_from_json(got.body, code::ok)->code(), code::unimplemented);
  const auto stream = ask(post("/t.S/none", {{"content-type", "application/connect+json"}}));
  EXPECT_EQ(stream.status, 200);
  EXPECT_EQ(wire::end_from_json(cut(stream.body).at(0).second)->status.code(), code::unimplemented);
}

TEST_F(connect_server, a_known_method_that_is_unimplemented_is_501) {
  on_echo([](server_call& call) { return fail_with(call, {code::unimplemented, "later"}); });
  EXPECT_EQ(ask(post("/t.S/Echo", {{"content-type", "application/proto"}}), "x").status, 501);
}

TEST_F(connect_server, other_protocol_versions_and_bad_timeouts_are_400) {
  EXPECT_EQ(ask(post("/t.S/Echo",
                     {{"content-type", "application/proto"}, {"connect-protocol-version", "2"}}))
                .status,
            400);
  for (const char* timeout : {"", "x", "-1", "12345678901"})
    EXPECT_EQ(ask(post("/t.S/Echo",
                       {{"content-type", "application/proto"}, {"connect-timeout-ms", timeout}}))
                  .status,
              400);
}

// Browsers
// -------------------------------------------------------------------------------------------

TEST_F(connect_server, preflights_of_allowed_origins_are_granted) {
  options.origins = {"https://app.example"};
  for (const char* origin : {"https://app.example", "https://other.example"}) {
    auto head = post("/t.S/Echo", {{"origin", origin},
                                   {"access-control-request-method", "POST"},
                                   {"access-control-request-headers", "content-type,x-a"}});
    head.method = "OPTIONS";
    const auto got = ask(std::move(head));
    EXPECT_EQ(got.status, 204);
    const bool allowed = std::string_view{origin} == "https://app.example";
    EXPECT_EQ(got.field("access-control-allow-origin"), allowed ? origin : "(none)");
    EXPECT_EQ(got.field("access-control-allow-headers"), allowed ? "content-type,x-a" : "(none)");
  }
}

TEST_F(connect_server, pages_see_all_metadata_of_replies_and_errors) {
  options.origins = {"*"};
  for (const auto& s : {status{}, status{code::aborted, "m"}}) {
    on_echo([s](server_call& call) { return with_metadata(call, s); });
    const auto got = ask(post("/t.S/Echo", {{"content-type", "application/proto"},
                                            {"origin", "https://any.example"}}),
                         "x");
    EXPECT_EQ(got.field("access-control-allow-origin"), "https://any.example");
    const std::string exposed = got.field("access-control-expose-headers");
    for (const char* name : {"x-head", "trailer-x-tail", "trailer-x-tail-bin"})
      EXPECT_TRUE(exposed.contains(name)) << exposed;
  }
  EXPECT_EQ(ask(post("/t.S/Echo", {{"content-type", "application/proto"}}), "x")
                .field("access-control-allow-origin"),
            "(none)");
}

// Streams
// --------------------------------------------------------------------------------------------

TEST_F(connect_server, streams_end_with_json_whatever_the_codec) {
  const auto got = ask(post("/t.S/Chat", {{"content-type", "application/connect+proto"}}),
                       framed(0, "a") + framed(0, "b"));
  EXPECT_EQ(got.status, 200);
  EXPECT_EQ(got.field("content-type"), "application/connect+proto");
  EXPECT_EQ(cut(got.body), (envelopes{{0, "a"}, {0, "b"}, {2, "{}"}}));
  const auto json =
      ask(post("/t.S/Chat", {{"content-type", "application/connect+json"}}), framed(0, "\"a\""));
  EXPECT_EQ(cut(json.body), (envelopes{{0, "\"a\""}, {2, "{}"}}));
}

TEST_F(connect_server, streaming_errors_are_200_with_the_error_at_the_end) {
  on_chat([](server_call& call) { return with_metadata(call, {code::aborted, "m"}); });
  const auto got = ask(post("/t.S/Chat", {{"content-type", "application/connect+proto"}}));
  EXPECT_EQ(got.status, 200);
  EXPECT_EQ(got.all("x-head"), (std::vector<std::string>{"1", "2"}));
  const auto all = cut(got.body);
  ASSERT_EQ(all.size(), 2u);
  const auto end = wire::end_from_json(all[1].second);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->status, (status{code::aborted, "m"}));
  EXPECT_EQ(end->trailers, (metadata{{"x-tail", "3"}, {"x-tail", "4"}, {"x-tail-bin", "f"}}));
}

TEST_F(connect_server, streams_without_messages) {
  const auto got = ask(post("/t.S/Chat", {{"content-type", "application/connect+proto"}}));
  EXPECT_EQ(cut(got.body), (envelopes{{2, "{}"}}));
}

TEST_F(connect_server, requests_cut_inside_a_message_are_internal) {
  const std::string whole = framed(0, "abc");
  for (std::size_t size = 1; size < whole.size(); ++size) {
    const auto got = ask(post("/t.S/Chat", {{"content-type", "application/connect+proto"}}),
                         whole.substr(0, size));
    EXPECT_EQ(wire::end_from_json(cut(got.body).at(0).second)->status.code(), code::internal);
  }
}

TEST_F(connect_server, an_end_of_stream_from_a_client_is_internal) {
  const auto got =
      ask(post("/t.S/Chat", {{"content-type", "application/connect+proto"}}), framed(2, "{}"));
  EXPECT_EQ(wire::end_from_json(cut(got.body).at(0).second)->status.code(), code::internal);
}

task<status> headers_then_wait(server_call& call, io::event& go) {
  (void)co_await call.send_headers({{"x-early", "yes"}});
  (void)co_await go.wait();
  co_return status{};
}

TEST_F(connect_server, headers_leave_before_the_first_message) {
  io::event go;
  on_chat([&](server_call& call) { return headers_then_wait(call, go); });
  struct local {
    static task<> ask(connect_server& self, io::event& go, bool& early, reply& got) {
      auto e = self.request(post("/t.S/Chat", {{"content-type", "application/connect+proto"}}));
      EXPECT_TRUE(co_await e->receive_head());
      early = e->response()->fields.find("x-early") == "yes";
      go.notify();
      co_await read_all(*e, got);
    }
  };
  bool early = false;
  reply got;
  ASSERT_TRUE(run(shard, local::ask(*this, go, early, got)));
  EXPECT_TRUE(early);
  EXPECT_EQ(cut(got.body), (envelopes{{2, "{}"}}));
}

task<status> write_then_wait(server_call& call, io::event& go) {
  (void)co_await call.write(text_message{"first"});
  (void)co_await go.wait();
  (void)co_await call.write(text_message{"second"});
  co_return status{};
}

TEST_F(connect_server, small_messages_leave_at_the_end_of_the_turn) {
  io::event go;
  on_chat([&](server_call& call) { return write_then_wait(call, go); });
  struct local {
    static task<> ask(connect_server& self, io::event& go, reply& got) {
      auto e = self.request(post("/t.S/Chat", {{"content-type", "application/connect+proto"}}));
      auto first = co_await e->read();
      EXPECT_EQ(first->text(), framed(0, "first"));
      go.notify();
      co_await read_all(*e, got);
    }
  };
  reply got;
  ASSERT_TRUE(run(shard, local::ask(*this, go, got)));
  EXPECT_EQ(cut(got.body), (envelopes{{0, "second"}, {2, "{}"}}));
}

task<status> write_much(server_call& call) {
  for (int i = 0; i < 200; ++i) {
    auto sent =
        co_await call.write(text_message{std::string(1000, static_cast<char>('a' + i % 26))});
    if (!sent) co_return std::move(sent).error();
  }
  co_return status{};
}

TEST_F(connect_server, slow_readers_get_every_message_in_order) {
  on_chat(write_much);
  connection().capacity = 3000;
  connection().granularity = 700;
  const auto got = ask(post("/t.S/Chat", {{"content-type", "application/connect+proto"}}));
  const auto all = cut(got.body);
  ASSERT_EQ(all.size(), 201u);
  for (int i = 0; i < 200; ++i)
    ASSERT_EQ(all[static_cast<std::size_t>(i)].second,
              std::string(1000, static_cast<char>('a' + i % 26)));
}

// Time and giving up
// ---------------------------------------------------------------------------------

task<status> read_for_ever(server_call& call) {
  auto next = co_await call.read();
  while (next && *next) next = co_await call.read();
  co_return next ? status{} : next.error();
}

TEST_F(connect_server, a_deadline_ends_the_handler_and_is_told) {
  on_chat(read_for_ever);
  struct local {
    static task<> ask(connect_server& self, reply& got) {
      auto e = self.request(post("/t.S/Chat", {{"content-type", "application/connect+proto"},
                                               {"connect-timeout-ms", "20"}}));
      got = co_await read_reply_of(*e);
    }
  };
  reply got;
  ASSERT_TRUE(run(shard, local::ask(*this, got)));
  EXPECT_EQ(wire::end_from_json(cut(got.body).at(0).second)->status.code(),
            code::deadline_exceeded);
  EXPECT_EQ(calls.running, 0u);
}

TEST_F(connect_server, a_client_that_gives_up_cancels_the_handler) {
  std::optional<status> seen;
  on_chat([&](server_call& call) -> task<status> {
    struct local {
      static task<status> go(server_call& call, std::optional<status>& seen) {
        seen = co_await read_for_ever(call);
        co_return *seen;
      }
    };
    return local::go(call, seen);
  });
  struct local {
    static task<> ask(connect_server& self) {
      auto e = self.request(post("/t.S/Chat", {{"content-type", "application/connect+proto"}}));
      co_await settle(self.shard);
      EXPECT_EQ(self.calls.running, 1u);
      e.reset();
      co_await settle(self.shard);
      EXPECT_EQ(self.calls.running, 0u);
    }
  };
  ASSERT_TRUE(run(shard, local::ask(*this)));
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->code(), code::cancelled);
  EXPECT_EQ(core->stats().running, 0u);
}

TEST_F(connect_server, a_reader_that_stops_is_given_up_at_the_deadline) {
  on_chat(write_much);
  connection().capacity = 3000;
  struct local {
    static task<> ask(connect_server& self) {
      auto e = self.request(post("/t.S/Chat", {{"content-type", "application/connect+proto"},
                                               {"connect-timeout-ms", "20"}}));
      while (self.core->stats().running != 0 || self.core->stats().calls_started == 0)
        co_await settle(self.shard);
      EXPECT_EQ(self.raw->last->given_up[1], weft::http::give_up::cancelled);
    }
  };
  ASSERT_TRUE(run(shard, local::ask(*this)));
}

TEST_F(connect_server, memory_for_half_a_message_is_charged_and_released) {
  options.memory = std::make_shared<memory_budget>(4000);
  const auto got =
      ask(post("/t.S/Echo", {{"content-type", "application/proto"}}), std::string(5000, 'a'));
  EXPECT_EQ(got.status, 429);
  const auto stream = ask(post("/t.S/Chat", {{"content-type", "application/connect+proto"}}),
                          framed(0, std::string(5000, 'a')));
  EXPECT_EQ(wire::end_from_json(cut(stream.body).at(0).second)->status.code(),
            code::resource_exhausted);
  EXPECT_EQ(ask(post("/t.S/Echo", {{"content-type", "application/proto"}}), "small").status, 200);
  EXPECT_EQ(options.memory->used(), 0u);
}

TEST(connect_speaks, by_content_type_and_query) {
  const auto typed = [](std::string_view type) { return post("/a/b", {{"content-type", type}}); };
  EXPECT_TRUE(speaks(typed("application/proto")));
  EXPECT_TRUE(speaks(typed("application/connect+json")));
  EXPECT_FALSE(speaks(typed("application/grpc")));
  EXPECT_FALSE(speaks(typed("text/html")));
  weft::http::request_head get;
  get.method = "GET";
  get.path = "/a/b?encoding=proto&message=";
  EXPECT_TRUE(speaks(get));
  get.path = "/index.html";
  EXPECT_FALSE(speaks(get));
}

}  // namespace
}  // namespace weft::rpc::connect::testing
