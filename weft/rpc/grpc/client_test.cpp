#include <weft/rpc/grpc/test_support.hpp>

#include <google/protobuf/wrappers.pb.h>

#include <weft/rpc/client.hpp>
#include <weft/rpc/http/wire/base64.hpp>
#include <weft/rpc/http/wire/timeout.hpp>

namespace weft::rpc::grpc::testing {
namespace {

using namespace std::chrono_literals;

class grpc_client : public grpc_fixture {
 public:
  /// What becomes of a call that is answered so.
  outcome ask(canned answer, method m = chat_method) {
    answer_with(std::move(answer));
    return call(m, {"x"});
  }
  outcome ask_web(canned answer) {
    settings.dialect = dialect::grpc_web;
    auto got = ask(std::move(answer));
    settings.dialect = dialect::grpc;
    return got;
  }
};

const weft::http::field_list plain{{"content-type", "application/grpc"}};
const weft::http::field_list web{{"content-type", "application/grpc-web+proto"}};
const weft::http::field_list good_end{{"grpc-status", "0"}};

weft::http::field_list with(const weft::http::field_list& some, std::string_view name,
                            std::string_view value) {
  weft::http::field_list all = some;
  all.add_valid(name, value);
  return all;
}

canned answer(std::string body, weft::http::field_list trailers) {
  return {.fields = plain, .body = std::move(body), .trailers = std::move(trailers)};
}

std::string packed(compression algorithm, std::string_view text) {
  return std::string{compress(algorithm, as_bytes(text))->text()};
}

// With our own server
// --------------------------------------------------------------------------------

TEST_F(grpc_client, every_dialect_codec_and_compression) {
  const std::string text(3000, 'a');
  for (const auto d : {dialect::grpc, dialect::grpc_web})
    for (const auto c : {codec::proto, codec::json})
      for (const auto algorithm :
           {compression::identity, compression::gzip, compression::zstd, compression::br}) {
        restart_client(d);
        settings.codec = c;
        const auto got = call(chat_method, {text, "", "b"}, {.request_compression = algorithm});
        EXPECT_TRUE(got.end.ok()) << got.end.to_string();
        EXPECT_EQ(got.messages, (std::vector<std::string>{text, "", "b"}));
        EXPECT_EQ(call(echo_method, {text}).messages, std::vector{text});
      }
}

task<status> answer_in_full(server_call& call) {
  metadata headers = call.info().metadata;
  headers.erase("user-agent");
  headers.erase("x-grpc-web");
  (void)co_await call.send_headers(headers);
  call.set_trailers({{"x-tail", "1"}, {"x-tail", "2"}, {"x-tail-bin", std::string{"\0\xff", 2}}});
  co_return status{code::aborted, "caf\xc3\xa9 100%", {{"a.B", std::string{"\xfe\0", 2}}}};
}

TEST_F(grpc_client, metadata_and_errors_arrive_whole) {
  const metadata sent{{"x-a", "1"}, {"x-a", "2"}, {"x-b-bin", std::string{"\0\x80", 2}}};
  calls.on(chat_method, answer_in_full);
  for (const auto d : {dialect::grpc, dialect::grpc_web}) {
    restart_client(d);
    response_info info;
    const auto got = call(chat_method, {"x"}, {.metadata = sent, .info = &info});
    EXPECT_EQ(got.end,
              (status{code::aborted, "caf\xc3\xa9 100%", {{"a.B", std::string{"\xfe\0", 2}}}}));
    EXPECT_EQ(got.headers, sent);
    EXPECT_EQ(
        got.trailers,
        (metadata{{"x-tail", "1"}, {"x-tail", "2"}, {"x-tail-bin", std::string{"\0\xff", 2}}}));
    EXPECT_EQ(info.trailers, got.trailers);
  }
}

TEST_F(grpc_client, bytes_split_anywhere_and_narrow_buffers) {
  for (const auto d : {dialect::grpc, dialect::grpc_web}) {
    restart_client(d);
    connection().capacity = 100;
    raw->granularity = 3;
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < 20; ++i) texts.emplace_back(i * 40, 'x');
    struct local {
      static task<> pump(rpc::transport& t, const std::vector<std::string>& texts) {
        auto call = co_await t.start(chat_method, {}, never);
        for (const std::string& text : texts) {
          (void)co_await (*call)->write(text_message{text}, &text == &texts.back());
          auto back = co_await (*call)->read();
          const bool there = back && *back;
          EXPECT_EQ(there ? text_of(**back) : "(none)", text);
        }
        auto end = co_await (*call)->read();
        EXPECT_TRUE(end && !*end);
      }
    };
    ASSERT_TRUE(run(shard, local::pump(open_client(), texts)));
  }
}

// What is sent
// ---------------------------------------------------------------------------------------

TEST_F(grpc_client, requests_say_what_they_are) {
  settings.authority = "host:1";
  settings.path_prefix = "/api";
  answer_with(answer(framed(0, "reply"), good_end));
  const auto got = call(echo_method, {"hello"}, {.timeout = 5s, .metadata = {{"x-a", "1"}}});
  EXPECT_EQ(got.messages, (std::vector<std::string>{"reply"}));
  EXPECT_EQ(sent().method, "POST");
  EXPECT_EQ(sent().authority, "host:1");
  EXPECT_EQ(sent().path, "/api/t.S/Echo");
  EXPECT_EQ(sent("content-type"), "application/grpc+proto");
  EXPECT_EQ(sent("te"), "trailers");
  EXPECT_EQ(sent("grpc-accept-encoding"), "zstd, gzip, br");
  EXPECT_EQ(sent("grpc-encoding"), "(none)");
  EXPECT_EQ(sent("content-length"), "(none)");
  EXPECT_EQ(sent("x-grpc-web"), "(none)");
  EXPECT_EQ(sent("x-a"), "1");
  EXPECT_EQ(request_body, framed(0, "hello"));
  const auto timeout = wire::parse_grpc_timeout(sent("grpc-timeout"));
  ASSERT_TRUE(timeout);
  EXPECT_LE(*timeout, 5s);
  EXPECT_LE(sent("grpc-timeout").size(), 9u);
}

TEST_F(grpc_client, web_requests_ask_for_no_trailers) {
  settings.dialect = dialect::grpc_web;
  (void)call(echo_method, {"x"}, {.request_compression = compression::br});
  EXPECT_EQ(sent("content-type"), "application/grpc-web+proto");
  EXPECT_EQ(sent("te"), "(none)");
  EXPECT_EQ(sent("x-grpc-web"), "1");
  EXPECT_EQ(sent("grpc-encoding"), "br");
}

TEST_F(grpc_client, half_closing_comes_after_the_last_message) {
  answer_with(answer("", good_end));
  (void)call(chat_method, {"a", "", "b"});
  EXPECT_EQ(request_body, framed(0, "a") + framed(0, "") + framed(0, "b"));
  request_body.clear();
  (void)call(chat_method, {});
  EXPECT_EQ(request_body, "");
}

// What servers may answer
// ----------------------------------------------------------------------------

TEST_F(grpc_client, a_head_that_is_all_holds_the_status) {
  const auto fields =
      with(with(with(plain, "grpc-status", "5"), "grpc-message", "caf%C3%A9%"), "x-tail", "1");
  for (const bool is_web : {false, true}) {
    canned only{.fields = fields};
    if (is_web) only.fields = with(with(web, "grpc-status", "5"), "grpc-message", "caf%C3%A9%");
    const auto got = is_web ? ask_web(only) : ask(only);
    EXPECT_EQ(got.end, (status{code::not_found, "caf\xc3\xa9%"}));
    EXPECT_TRUE(got.headers.empty());
    EXPECT_EQ(got.trailers, is_web ? metadata{} : (metadata{{"x-tail", "1"}}));
  }
}

TEST_F(grpc_client, a_status_in_the_head_means_nothing_when_content_or_trailers_follow) {
  const auto fields = with(plain, "grpc-status", "5");
  const auto followed = ask({.fields = fields, .body = framed(0, "m"), .trailers = good_end});
  EXPECT_TRUE(followed.end.ok());
  EXPECT_EQ(followed.messages.size(), 1u);
  const auto trailed = ask({.fields = fields, .trailers = {{"grpc-status", "7"}}});
  EXPECT_EQ(trailed.end.code(), code::permission_denied);
  // Response headers are no trailers, where those are missing.
  const auto cut_off = ask({.fields = with(plain, "grpc-status", "0"), .body = framed(0, "m")});
  EXPECT_EQ(cut_off.end.code(), code::internal);
}

TEST_F(grpc_client, a_missing_status_is_internal_or_unknown) {
  EXPECT_EQ(ask(answer(framed(0, "m"), {})).end.code(), code::internal);
  EXPECT_EQ(ask(answer("", {})).end.code(), code::internal);
  EXPECT_EQ(ask(answer(framed(0, "m"), {{"x-tail", "1"}})).end.code(), code::unknown);
}

TEST_F(grpc_client, a_status_that_is_no_number_is_unknown) {
  for (const char* text : {"", "x", "-1", "17", "1000000000000000000000", "0x0"})
    EXPECT_EQ(ask(answer("", {{"grpc-status", text}})).end.code(), code::unknown) << text;
}

TEST_F(grpc_client, http_statuses_count_where_there_is_no_grpc_status) {
  const std::pair<std::uint16_t, code> table[] = {
      {400, code::internal},      {401, code::unauthenticated}, {403, code::permission_denied},
      {404, code::unimplemented}, {429, code::unavailable},     {431, code::unknown},
      {502, code::unavailable},   {503, code::unavailable},     {504, code::unavailable},
      {500, code::unknown},       {302, code::unknown}};
  for (const auto& [number, wanted] : table) {
    const canned page{number, {{"content-type", "text/html"}}, "<html>"};
    EXPECT_EQ(ask(page).end.code(), wanted) << number;
    EXPECT_EQ(ask_web(page).end.code(), wanted) << number;
  }
  EXPECT_EQ(ask({503, with(plain, "grpc-status", "5")}).end.code(), code::not_found);
  EXPECT_EQ(ask({503, with(plain, "grpc-status", "0")}).end.code(), code::unavailable);
}

TEST_F(grpc_client, other_content_types_are_refused) {
  const std::pair<const char*, code> table[] = {{"application/grpc+json", code::internal},
                                                {"application/grpc+thrift", code::internal},
                                                {"application/grpc-web", code::unknown},
                                                {"application/proto", code::unknown},
                                                {"text/html", code::unknown},
                                                {"", code::unknown}};
  for (const auto& [type, wanted] : table)
    EXPECT_EQ(ask({200, {{"content-type", type}}, "", {}, good_end}).end.code(), wanted) << type;
  EXPECT_EQ(ask_web({200, plain, framed(0x80, "grpc-status: 0\r\n")}).end.code(), code::unknown);
}

TEST_F(grpc_client, unknown_response_encodings_are_internal) {
  for (const char* name : {"snappy", "br"}) {
    settings.compressions = {compression::gzip};
    const auto got =
        ask({.fields = with(plain, "grpc-encoding", name), .body = "", .trailers = good_end});
    EXPECT_EQ(got.end.code(), code::internal);
    EXPECT_TRUE(got.end.message().contains("offered were gzip")) << got.end.message();
  }
}

TEST_F(grpc_client, unfounded_flags_are_internal) {
  for (const std::uint8_t flags : {1, 2, 0x80, 0x81})
    EXPECT_EQ(ask(answer(framed(flags, "x"), good_end)).end.code(), code::internal);
}

TEST_F(grpc_client, content_encoding_means_nothing) {
  const auto got = ask({.fields = with(plain, "content-encoding", "gzip"),
                        .body = framed(0, "m"),
                        .trailers = good_end});
  EXPECT_TRUE(got.end.ok());
}

TEST_F(grpc_client, limits_count_after_decompression_too) {
  settings.limits.max_message = 1000;
  const auto fields = with(plain, "grpc-encoding", "gzip");
  EXPECT_EQ(ask(answer(framed(0, std::string(1001, 'a')), good_end)).end.code(),
            code::resource_exhausted);
  EXPECT_EQ(ask({.fields = fields,
                 .body = framed(1, packed(compression::gzip, std::string(1001, 'a'))),
                 .trailers = good_end})
                .end.code(),
            code::resource_exhausted);
}

TEST_F(grpc_client, responses_cut_inside_a_message_are_internal) {
  EXPECT_EQ(ask(answer(framed(0, "hello").substr(0, 7), good_end)).end.code(), code::internal);
}

TEST_F(grpc_client, details_that_contradict_the_trailers_are_left_out) {
  const status told{code::aborted, "m", {{"a.B", "v"}}};
  const auto encoded = [](const status& s) {
    return wire::base64_encode(as_bytes(encode_details(s)));
  };
  const auto ends_with = [&](std::string details) {
    return ask(answer("", {{"grpc-status", "10"},
                           {"grpc-message", "m"},
                           {"grpc-status-details-bin", details}}))
        .end;
  };
  EXPECT_EQ(ends_with(encoded(told)), told);
  EXPECT_EQ(ends_with(encoded(told) + std::string((4 - encoded(told).size() % 4) % 4, '=')), told);
  const status bare{code::aborted, "m"};
  EXPECT_EQ(ends_with(encoded({code::not_found, "m", {{"a.B", "v"}}})), bare);
  EXPECT_EQ(ends_with("!"), bare);
  EXPECT_EQ(ends_with(wire::base64_encode(as_bytes(std::string_view{"\x1a\xff"}))), bare);
}

// gRPC-Web
// ------------------------------------------------------------------------------------

TEST_F(grpc_client, web_trailers_as_servers_write_them) {
  const std::pair<std::string, status> blocks[] = {
      {"grpc-status: 0\r\n", {}},
      {"grpc-status:0", {}},
      {"Grpc-Status: 5\r\nGRPC-MESSAGE: no%20one\r\n", {code::not_found, "no one"}},
      {"grpc-status: 5\ngrpc-message: m\n", {code::not_found, "m"}},
  };
  for (const auto& [block, wanted] : blocks)
    EXPECT_EQ(ask_web({.fields = web, .body = framed(0x80, block)}).end, wanted) << block;
  const auto got = ask_web(
      {.fields = web,
       .body = framed(0, "m") + framed(0x80, "X-Tail: 1\r\ngrpc-status: 0\r\nx-tail:2\r\n")});
  EXPECT_EQ(got.messages.size(), 1u);
  EXPECT_EQ(got.trailers, (metadata{{"x-tail", "1"}, {"x-tail", "2"}}));
}

TEST_F(grpc_client, web_trailers_may_be_compressed) {
  const std::string block = "grpc-status: 5\r\ngrpc-message: " + std::string(500, 'm') + "\r\n";
  const auto got = ask_web({.fields = with(web, "grpc-encoding", "gzip"),
                            .body = framed(0x81, packed(compression::gzip, block))});
  EXPECT_EQ(got.end, (status{code::not_found, std::string(500, 'm')}));
}

TEST_F(grpc_client, web_trailers_that_are_none_are_internal) {
  for (const char* block : {"grpc-status\r\n", "grpc-status: 0\r\nno line"})
    EXPECT_EQ(ask_web({.fields = web, .body = framed(0x80, block)}).end.code(), code::internal)
        << block;
  for (const char* block : {"", "x-tail: 1\r\n", "grpc-message: error\r\n"})
    EXPECT_EQ(ask_web({.fields = web, .body = framed(0x80, block)}).end.code(), code::unknown)
        << block;
  EXPECT_EQ(ask_web({.fields = web, .body = framed(0, "m")}).end.code(), code::internal);
  EXPECT_EQ(ask_web({.fields = web, .body = framed(0, "m"), .trailers = good_end}).end.code(),
            code::internal);
}

TEST_F(grpc_client, nothing_may_follow_web_trailers) {
  const std::string end = framed(0x80, "grpc-status: 0\r\n");
  for (const std::string& more : {framed(0, "m"), end, std::string{"x"}})
    EXPECT_EQ(ask_web({.fields = web, .body = end + more}).end.code(), code::internal);
}

/// Many short lines would take several times their size.
TEST_F(grpc_client, web_trailers_have_the_limit_of_http_trailers) {
  const std::string lines = "grpc-status: 5\r\nx-a: " + std::string(40'000, 'a') + "\r\n";
  EXPECT_EQ(ask_web({.fields = web, .body = framed(0x80, lines)}).end.code(),
            code::resource_exhausted);
  EXPECT_EQ(ask_web({.fields = with(web, "grpc-encoding", "gzip"),
                     .body = framed(0x81, packed(compression::gzip, lines))})
                .end.code(),
            code::resource_exhausted);
}

TEST_F(grpc_client, a_reset_after_complete_web_trailers_does_not_destroy_the_response) {
  const auto got = ask_web({.fields = web,
                            .body = framed(0, "m") + framed(0x80, "grpc-status: 0\r\n"),
                            .reset_with = weft::http::give_up::no_error});
  EXPECT_TRUE(got.end.ok()) << got.end.to_string();
  EXPECT_EQ(got.messages, (std::vector<std::string>{"m"}));
}

// One message and no more
// -----------------------------------------------------------------------------

using text = google::protobuf::StringValue;

struct single {
  static task<> ask(rpc::transport& t, result<text>& got) {
    auto call = (co_await t.start(echo_method, {}, never)).value();
    (void)co_await call->write(encode(text{}).value(), true);
    got = co_await read_reply<text>(*call);
  }
};

TEST_F(grpc_client, replies_that_are_not_one_are_unimplemented) {
  text hello;
  hello.set_value("hello");
  const std::string message = framed(0, hello.SerializeAsString());
  const std::string end = framed(0x80, "grpc-status: 0\r\n");
  for (const bool is_web : {false, true})
    for (const std::size_t count : {0, 1, 2}) {
      std::string body;
      for (std::size_t i = 0; i < count; ++i) body += message;
      settings.dialect = is_web ? dialect::grpc_web : dialect::grpc;
      answer_with(is_web ? canned{.fields = web, .body = body + end} : answer(body, good_end));
      result<text> got;
      ASSERT_TRUE(run(shard, single::ask(open_client(), got)));
      EXPECT_EQ(got ? code::ok : got.error().code(), count == 1 ? code::ok : code::unimplemented);
      EXPECT_EQ(got.value_or(hello).value(), "hello");
    }
}

TEST_F(grpc_client, a_failure_after_the_reply_is_the_calls_end) {
  answer_with(answer(framed(0, ""), {{"grpc-status", "10"}}));
  result<text> got;
  ASSERT_TRUE(run(shard, single::ask(open_client(), got)));
  EXPECT_EQ(got.error().code(), code::aborted);
}

// When the end is known
// -------------------------------------------------------------------------------

/// HTTP/3 tells the end of a response apart from its head, and later.
TEST_F(grpc_client, a_head_is_no_end_until_the_end_has_come) {
  struct local {
    static task<> serve(io::shard& shard, std::unique_ptr<weft::http::exchange> e,
                        weft::http::field_list trailers) {
      weft::http::response_head head{.fields = with(plain, "grpc-status", "5")};
      (void)e->send_head(head);
      co_await settle(shard);
      (void)e->finish(trailers);
    }
    static task<> call(rpc::transport& t, status& got) {
      auto call = (co_await t.start(chat_method, {}, never)).value();
      (void)co_await call->finish_writing();
      auto headers = co_await call->read_headers();
      EXPECT_TRUE(headers);
      auto next = co_await call->read();
      if (!next) got = std::move(next).error();
    }
  };
  for (const auto& [trailers, wanted] :
       std::initializer_list<std::pair<weft::http::field_list, code>>{{{}, code::not_found},
                                                                      {good_end, code::ok}}) {
    client.reset();
    raw = std::make_unique<memory_connection>(
        shard, [this, &trailers](std::unique_ptr<weft::http::exchange> e) {
          asio::co_spawn(shard.get_executor(), local::serve(shard, std::move(e), trailers),
                         [](std::exception_ptr) {});
        });
    status got;
    ASSERT_TRUE(run(shard, local::call(open_client(), got)));
    EXPECT_EQ(got.code(), wanted);
  }
}

// Giving up
// -------------------------------------------------------------------------------------

TEST_F(grpc_client, resets_mean_what_proposal_g2_says_of_them) {
  using weft::http::give_up;
  const std::pair<give_up, code> table[] = {{give_up::rejected, code::unavailable},
                                            {give_up::cancelled, code::cancelled},
                                            {give_up::excessive_load, code::resource_exhausted},
                                            {give_up::no_error, code::internal},
                                            {give_up::internal, code::internal},
                                            {give_up::protocol, code::internal}};
  for (const auto& [why, wanted] : table) {
    const canned given_up{.fields = plain, .body = framed(0, "m"), .reset_with = why};
    EXPECT_EQ(ask(given_up).end.code(), wanted) << to_string(why);
  }
}

struct silent {
  static task<> until_deadline(rpc::transport& t, duration wait, status& got) {
    auto call = co_await t.start(chat_method, {}, io::now() + wait);
    auto next = co_await (*call)->read();
    if (!next) got = std::move(next).error();
  }
};

TEST_F(grpc_client, its_own_deadline_ends_a_silent_call_and_tells_the_server) {
  auto kept = std::make_shared<std::unique_ptr<weft::http::exchange>>();
  raw = std::make_unique<memory_connection>(
      shard, [kept](std::unique_ptr<weft::http::exchange> e) { *kept = std::move(e); });
  status got;
  ASSERT_TRUE(run(shard, silent::until_deadline(open_client(), 5ms, got)));
  EXPECT_EQ(got.code(), code::deadline_exceeded);
  EXPECT_EQ(link->last->given_up[0], weft::http::give_up::cancelled);
  kept->reset();
}

TEST_F(grpc_client, a_reset_after_its_own_deadline_is_deadline_exceeded) {
  // The server's reset is handed over first: the deadline is past before the loop turns again.
  raw = std::make_unique<memory_connection>(shard, [](std::unique_ptr<weft::http::exchange> e) {
    const time_point until = io::now() + 20ms;
    while (io::now() < until) {
    }
    e->reset(weft::http::give_up::cancelled);
  });
  status got;
  ASSERT_TRUE(run(shard, silent::until_deadline(open_client(), 10ms, got)));
  EXPECT_EQ(got.code(), code::deadline_exceeded);
}

TEST_F(grpc_client, its_own_cancellation_is_what_it_said) {
  struct local {
    static task<> go(grpc_client& self, status& got) {
      auto call = co_await self.open_client().start(chat_method, {}, never);
      (*call)->cancel({code::cancelled, "changed our mind"});
      self.link->last->down.failed = gone_error(weft::http::give_up::internal);
      auto next = co_await (*call)->read();
      if (!next) got = std::move(next).error();
    }
  };
  status got;
  ASSERT_TRUE(run(shard, local::go(*this, got)));
  EXPECT_EQ(got, (status{code::cancelled, "changed our mind"}));
}

task<status> see_cancellation(server_call& call, bool& seen) {
  auto next = co_await call.read();
  seen = !next && next.error().code() == code::cancelled;
  co_return status{};
}

TEST_F(grpc_client, cancellation_reaches_the_handler) {
  bool seen = false;
  calls.on(chat_method, [&](server_call& call) { return see_cancellation(call, seen); });
  struct local {
    static task<> go(grpc_client& self) {
      auto call = co_await self.open_client().start(chat_method, {}, never);
      co_await settle(self.shard);
      call->reset();
      co_await settle(self.shard);
    }
  };
  ASSERT_TRUE(run(shard, local::go(*this)));
  EXPECT_TRUE(seen);
  EXPECT_EQ(calls.running, 0u);
}

}  // namespace
}  // namespace weft::rpc::grpc::testing
