#include <weft/rpc/connect/test_support.hpp>

#include <weft/rpc/http/wire/base64.hpp>
#include <weft/rpc/http/wire/percent.hpp>

namespace weft::rpc::connect::testing {
namespace {

using namespace std::chrono_literals;

class connect_client : public connect_fixture {
 public:
  ~connect_client() override { client.reset(); }

  rpc::transport& open_client() {
    if (!client) {
      auto link = std::move(raw);
      if (!link) {
        (void)connection();
        link = std::move(raw);
      }
      wire_link = link.get();
      client = open(std::move(link), shard, client_settings);
    }
    return *client;
  }
  /// The client talks to a server that answers so, after it has read the request.
  void answer_with(canned answer) {
    client.reset();
    raw = std::make_unique<memory_connection>(
        shard, [this, answer = std::move(answer)](std::unique_ptr<weft::http::exchange> e) {
          asio::co_spawn(shard.get_executor(), play(std::move(e), answer, request_body),
                         [](std::exception_ptr) {});
        });
  }
  outcome call(method m, std::vector<std::string> messages, call_options options = {}) {
    outcome got;
    EXPECT_TRUE(
        run(shard, run_call(open_client(), m, std::move(messages), std::move(options), got)));
    return got;
  }
  const weft::http::request_head& sent() const { return wire_link->last->request; }
  std::string sent(std::string_view name) const {
    return std::string{sent().fields.find(name).value_or("(none)")};
  }

  client_options client_settings;
  std::unique_ptr<rpc::transport> client;
  memory_connection* wire_link = nullptr;
  std::string request_body;
};

canned json_error(std::uint16_t status, std::string body) {
  return {status, {{"content-type", "application/json"}}, std::move(body)};
}

canned stream_of(std::string body) {
  return {200, {{"content-type", "application/connect+proto"}}, std::move(body)};
}

// With our own server
// --------------------------------------------------------------------------------

TEST_F(connect_client, every_kind_codec_and_compression) {
  const std::string text(3000, 'a');
  for (const auto c : {codec::proto, codec::json})
    for (const auto algorithm :
         {compression::identity, compression::gzip, compression::zstd, compression::br})
      for (const bool by_get : {false, true}) {
        client.reset();
        client_settings.codec = c;
        client_settings.use_get = by_get;
        for (const method& m : {echo_method, pure_method}) {
          const auto unary = call(m, {text}, {.request_compression = algorithm});
          EXPECT_TRUE(unary.end.ok()) << unary.end.to_string();
          EXPECT_EQ(unary.messages, std::vector{text});
        }
        const auto stream = call(chat_method, {text, "", "b"}, {.request_compression = algorithm});
        EXPECT_TRUE(stream.end.ok()) << stream.end.to_string();
        EXPECT_EQ(stream.messages, (std::vector<std::string>{text, "", "b"}));
      }
}

task<status> answer_in_full(server_call& call) {
  metadata headers = call.info().metadata;
  headers.erase("user-agent");
  (void)co_await call.send_headers(headers);
  call.set_trailers({{"x-tail", "1"}, {"x-tail", "2"}, {"x-tail-bin", std::string{"\0\xff", 2}}});
  co_return status{code::aborted, "caf\xc3\xa9 100%", {{"a.B", std::string{"\xfe\0", 2}}}};
}

TEST_F(connect_client, metadata_and_errors_arrive_whole) {
  const metadata sent{{"x-a", "1"}, {"x-a", "2"}, {"x-b-bin", std::string{"\0\x80", 2}}};
  for (const method& m : {echo_method, chat_method}) {
    calls.on(m, answer_in_full);
    response_info info;
    const auto got = call(m, {"x"}, {.metadata = sent, .info = &info});
    EXPECT_EQ(got.end,
              (status{code::aborted, "caf\xc3\xa9 100%", {{"a.B", std::string{"\xfe\0", 2}}}}));
    EXPECT_EQ(got.headers.find_all("x-a"), sent.find_all("x-a"));
    EXPECT_EQ(got.headers.find("x-b-bin"), sent.find("x-b-bin"));
    EXPECT_EQ(
        got.trailers,
        (metadata{{"x-tail", "1"}, {"x-tail", "2"}, {"x-tail-bin", std::string{"\0\xff", 2}}}));
    EXPECT_EQ(info.trailers, got.trailers);
  }
}

TEST_F(connect_client, bytes_split_anywhere_and_narrow_buffers) {
  (void)connection();
  raw->capacity = 100;
  raw->granularity = 3;
  struct local {
    static task<> pump(rpc::transport& t, std::vector<std::string>& got) {
      auto call = co_await t.start(chat_method, {}, never);
      for (int i = 0; i < 20; ++i) {
        const std::string text(static_cast<std::size_t>(i * 40), 'x');
        (void)co_await (*call)->write(text_message{text}, i == 19);
        auto back = co_await (*call)->read();
        if (back && *back) got.push_back(text_of(**back));
      }
      auto end = co_await (*call)->read();
      EXPECT_TRUE(end && !*end);
    }
  };
  std::vector<std::string> got;
  ASSERT_TRUE(run(shard, local::pump(open_client(), got)));
  ASSERT_EQ(got.size(), 20u);
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(got[i].size(), i * 40);
}

TEST_F(connect_client, a_stream_without_messages_ends_well) {
  const auto got = call(chat_method, {});
  EXPECT_TRUE(got.end.ok());
  EXPECT_TRUE(got.messages.empty());
}

// What is sent
// ---------------------------------------------------------------------------------------

TEST_F(connect_client, unary_requests_say_what_they_are) {
  client_settings.authority = "host:1";
  client_settings.path_prefix = "/api";
  answer_with({200, {{"content-type", "application/proto"}}, "reply"});
  const auto got = call(echo_method, {"hello"}, {.timeout = 5s, .metadata = {{"x-a", "1"}}});
  EXPECT_EQ(got.messages, (std::vector<std::string>{"reply"}));
  EXPECT_EQ(sent().method, "POST");
  EXPECT_EQ(sent().authority, "host:1");
  EXPECT_EQ(sent().path, "/api/t.S/Echo");
  EXPECT_EQ(sent("content-type"), "application/proto");
  EXPECT_EQ(sent("content-length"), "5");
  EXPECT_EQ(sent("connect-protocol-version"), "1");
  EXPECT_EQ(sent("connect-timeout-ms"), "5000");
  EXPECT_EQ(sent("accept-encoding"), "zstd, gzip, br");
  EXPECT_EQ(sent("content-encoding"), "(none)");
  EXPECT_EQ(sent("te"), "(none)");
  EXPECT_EQ(sent("x-a"), "1");
  EXPECT_EQ(request_body, "hello");
}

TEST_F(connect_client, content_encoding_is_named_only_where_it_was_used) {
  answer_with({200, {{"content-type", "application/proto"}}, ""});
  (void)call(echo_method, {"tiny"}, {.request_compression = compression::gzip});
  EXPECT_EQ(sent("content-encoding"), "(none)");
  EXPECT_EQ(request_body, "tiny");
  request_body.clear();
  (void)call(echo_method, {std::string(500, 'a')}, {.request_compression = compression::gzip});
  EXPECT_EQ(sent("content-encoding"), "gzip");
  EXPECT_EQ(sent("content-length"), std::to_string(request_body.size()));
}

TEST_F(connect_client, who_wants_everything_compressed_gets_it) {
  client_settings.compress_from = 0;
  answer_with({200, {{"content-type", "application/proto"}}, ""});
  for (const char* text : {"", "tiny"}) {
    request_body.clear();
    (void)call(echo_method, {text}, {.request_compression = compression::gzip});
    EXPECT_EQ(sent("content-encoding"), "gzip");
    EXPECT_EQ(decompress(compression::gzip, payload{slice::copy(request_body)}, 10)->text(), text);
  }
}

TEST_F(connect_client, streams_use_names_of_their_own) {
  (void)call(chat_method, {"x"}, {.request_compression = compression::br});
  EXPECT_EQ(sent("content-type"), "application/connect+proto");
  EXPECT_EQ(sent("connect-content-encoding"), "br");
  EXPECT_EQ(sent("connect-accept-encoding"), "zstd, gzip, br");
  EXPECT_EQ(sent("content-encoding"), "(none)");
  EXPECT_EQ(sent("accept-encoding"), "(none)");
}

TEST_F(connect_client, get_has_the_querys_parts_in_order) {
  client_settings.use_get = true;
  (void)call(pure_method, {"\xfb\xff\xbf\x01"});
  EXPECT_EQ(sent().method, "GET");
  EXPECT_EQ(sent().path, "/t.S/Pure?connect=v1&base64=1&encoding=proto&message=-_-_AQ");
  EXPECT_EQ(sent("content-type"), "(none)");
  EXPECT_EQ(sent("content-length"), "(none)");
  EXPECT_TRUE(wire_link->last->up.ended);
  EXPECT_EQ(wire_link->last->up.bytes, 0u);
}

TEST_F(connect_client, get_compresses_before_base64_and_never_names_identity) {
  client_settings.use_get = true;
  client_settings.codec = codec::json;
  (void)call(pure_method, {"a b"}, {.request_compression = compression::gzip});  // too small
  EXPECT_EQ(sent().path, "/t.S/Pure?connect=v1&encoding=json&message=%22a%20b%22");
  (void)call(pure_method, {std::string(500, 'a')}, {.request_compression = compression::gzip});
  const std::string prefix =
      "/t.S/Pure?connect=v1&base64=1&compression=gzip&encoding=json&message=";
  ASSERT_TRUE(sent().path.starts_with(prefix)) << sent().path;
  const auto message = wire::base64_decode(sent().path.substr(prefix.size()), wire::alphabet::url);
  ASSERT_TRUE(message);
  EXPECT_EQ(decompress(compression::gzip, payload{slice::copy(*message)}, 1000)->text(),
            '"' + std::string(500, 'a') + '"');
}

TEST_F(connect_client, get_falls_back_to_post_when_the_url_grows_too_long) {
  client_settings.use_get = true;
  client_settings.max_get_path = 200;
  const std::size_t head =
      std::string{"/t.S/Pure?connect=v1&base64=1&encoding=proto&message="}.size();
  const std::size_t fits = (200 - head) / 4 * 3;
  for (const std::size_t size : {fits, fits + 3, std::size_t{5000}}) {
    const auto got = call(pure_method, {std::string(size, 'a')});
    EXPECT_EQ(sent().method, size == fits ? "GET" : "POST") << size;
    EXPECT_EQ(got.messages.at(0).size(), size);
  }
}

TEST_F(connect_client, get_is_only_for_methods_without_side_effects) {
  client_settings.use_get = true;
  (void)call(echo_method, {"x"});
  EXPECT_EQ(sent().method, "POST");
}

// What servers may answer
// ----------------------------------------------------------------------------

TEST_F(connect_client, error_bodies_without_a_code_take_it_from_the_http_status) {
  for (const char* body :
       {R"({"message":"m"})", R"({"code":null})", R"({"code":"teapot"})", "", "nonsense", "null"}) {
    answer_with(json_error(503, body));
    EXPECT_EQ(call(echo_method, {"x"}).end.code(), code::unavailable) << body;
  }
  answer_with(json_error(404, R"({"code":"not_found","message":"m"})"));
  EXPECT_EQ(call(echo_method, {"x"}).end, (status{code::not_found, "m"}));
}

TEST_F(connect_client, errors_that_are_no_json_are_told_by_the_http_status) {
  const std::pair<std::uint16_t, code> table[] = {
      {400, code::internal},      {401, code::unauthenticated}, {403, code::permission_denied},
      {404, code::unimplemented}, {429, code::unavailable},     {431, code::unknown},
      {502, code::unavailable},   {500, code::unknown},         {302, code::unknown}};
  for (const auto& [number, wanted] : table) {
    answer_with({number, {{"content-type", "text/html"}}, "<html>"});
    EXPECT_EQ(call(echo_method, {"x"}).end.code(), wanted) << number;
    EXPECT_EQ(call(chat_method, {"x"}).end.code(), wanted) << number;
  }
}

TEST_F(connect_client, compressed_errors_are_read) {
  const std::string text = R"({"code":"aborted","message":")" + std::string(500, 'm') + "\"}";
  auto answer = json_error(409, std::string{compress(compression::gzip, as_bytes(text))->text()});
  answer.fields.add_valid("content-encoding", "gzip");
  answer_with(std::move(answer));
  EXPECT_EQ(call(echo_method, {"x"}).end, (status{code::aborted, std::string(500, 'm')}));
}

TEST_F(connect_client, other_content_types_are_refused) {
  const std::pair<const char*, code> unary[] = {
      {"application/json", code::internal}, {"text/html", code::unknown}, {"", code::unknown}};
  for (const auto& [type, wanted] : unary) {
    answer_with({200, {{"content-type", type}}, "x"});
    EXPECT_EQ(call(echo_method, {"x"}).end.code(), wanted) << type;
  }
  const std::pair<const char*, code> streams[] = {{"application/connect+json", code::internal},
                                                  {"application/proto", code::unknown}};
  for (const auto& [type, wanted] : streams) {
    answer_with({200, {{"content-type", type}}, framed(2, "{}")});
    EXPECT_EQ(call(chat_method, {"x"}).end.code(), wanted) << type;
  }
}

TEST_F(connect_client, unknown_response_encodings_are_internal) {
  answer_with({200, {{"content-type", "application/proto"}, {"content-encoding", "snappy"}}, "x"});
  EXPECT_EQ(call(echo_method, {"x"}).end.code(), code::internal);
  auto stream = stream_of(framed(2, "{}"));
  stream.fields.add_valid("connect-content-encoding", "snappy");
  answer_with(std::move(stream));
  EXPECT_EQ(call(chat_method, {"x"}).end.code(), code::internal);
}

TEST_F(connect_client, a_compressed_empty_body_is_an_empty_message) {
  answer_with({200, {{"content-type", "application/proto"}, {"content-encoding", "gzip"}}, ""});
  EXPECT_EQ(call(echo_method, {"x"}).messages, (std::vector<std::string>{""}));
}

TEST_F(connect_client, limits_count_after_decompression_too) {
  client_settings.limits.max_message = 1000;
  const std::string bomb{compress(compression::gzip, as_bytes(std::string(100'000, '\0')))->text()};
  answer_with({200, {{"content-type", "application/proto"}, {"content-encoding", "gzip"}}, bomb});
  EXPECT_EQ(call(echo_method, {"x"}).end.code(), code::resource_exhausted);
  auto stream = stream_of(framed(1, bomb) + framed(2, "{}"));
  stream.fields.add_valid("connect-content-encoding", "gzip");
  answer_with(std::move(stream));
  EXPECT_EQ(call(chat_method, {"x"}).end.code(), code::resource_exhausted);
  answer_with(stream_of(std::string{"\0\xff\xff\xff\xff", 5}));
  EXPECT_EQ(call(chat_method, {"x"}).end.code(), code::resource_exhausted);
}

TEST_F(connect_client, a_stream_without_its_end_message_is_internal) {
  for (const std::string& body : {std::string{}, framed(0, "a"), framed(0, "abc").substr(0, 7)}) {
    answer_with(stream_of(body));
    EXPECT_EQ(call(chat_method, {"x"}).end.code(), code::internal);
  }
}

TEST_F(connect_client, nothing_may_follow_the_end_message) {
  answer_with(stream_of(framed(0, "a") + framed(2, "{}") + framed(0, "b")));
  const auto got = call(chat_method, {"x"});
  EXPECT_EQ(got.messages, (std::vector<std::string>{"a"}));
  EXPECT_EQ(got.end.code(), code::internal);
}

TEST_F(connect_client, end_messages_as_servers_write_them) {
  const std::pair<std::string, code> table[] = {
      {"{}", code::ok},
      {R"({"error":null})", code::ok},
      {R"({"error":{}})", code::unknown},
      {R"({"error":{"code":null}})", code::unknown},
      {R"({"error":{"code":"teapot"}})", code::unknown},
      {R"({"error":{"code":"aborted"},"more":1})", code::aborted},
      {"", code::internal},
      {"nonsense", code::internal}};
  for (const auto& [text, wanted] : table) {
    answer_with(stream_of(framed(0, "a") + framed(2, text)));
    EXPECT_EQ(call(chat_method, {"x"}).end.code(), wanted) << text;
  }
}

TEST_F(connect_client, end_messages_may_be_compressed) {
  const std::string text = R"({"metadata":{"x-a":[")" + std::string(500, 'v') + "\"]}}";
  auto stream = stream_of(framed(3, compress(compression::gzip, as_bytes(text))->text()));
  stream.fields.add_valid("connect-content-encoding", "gzip");
  answer_with(std::move(stream));
  const auto got = call(chat_method, {"x"});
  EXPECT_TRUE(got.end.ok()) << got.end.to_string();
  EXPECT_EQ(got.trailers, (metadata{{"x-a", std::string(500, 'v')}}));
}

TEST_F(connect_client, unknown_and_unfounded_flags_are_internal) {
  for (const int flags : {1, 4, 0x80, 0xff}) {
    answer_with(stream_of(framed(static_cast<std::uint8_t>(flags), "x") + framed(2, "{}")));
    EXPECT_EQ(call(chat_method, {"x"}).end.code(), code::internal) << flags;
  }
}

TEST_F(connect_client, resets_mean_what_http_says_of_them) {
  using weft::http::give_up;
  const std::pair<give_up, code> table[] = {{give_up::rejected, code::unavailable},
                                            {give_up::cancelled, code::cancelled},
                                            {give_up::excessive_load, code::resource_exhausted},
                                            {give_up::internal, code::internal},
                                            {give_up::no_error, code::internal}};
  for (const auto& [why, wanted] : table) {
    auto answer = stream_of(framed(0, "a"));
    answer.reset_with = why;
    answer_with(std::move(answer));
    EXPECT_EQ(call(chat_method, {"x"}).end.code(), wanted) << to_string(why);
  }
}

/// The end message came; the end of the content never does.
TEST_F(connect_client, a_reset_after_a_complete_response_does_not_destroy_it) {
  auto answer = stream_of(framed(0, "a") + framed(2, "{}"));
  answer.reset_with = weft::http::give_up::internal;
  answer_with(std::move(answer));
  struct local {
    static task<> go(connect_client& self) {
      auto call = co_await self.open_client().start(chat_method, {}, never);
      (void)co_await (*call)->finish_writing();
      auto message = co_await (*call)->read();
      EXPECT_TRUE(message && *message);
      co_await settle(self.shard);  // the reset is there
      EXPECT_TRUE(self.wire_link->last->down.failed);
      auto end = co_await (*call)->read();
      EXPECT_TRUE(end && !*end);
    }
  };
  ASSERT_TRUE(run(shard, local::go(*this)));
}

// Time and giving up
// ---------------------------------------------------------------------------------

/// The deadline is there as soon as the call is, and the server resets as soon as it has the
/// request: whoever is first, both have found the deadline passed.
TEST_F(connect_client, its_own_deadline_is_deadline_exceeded_even_when_a_reset_comes_first) {
  struct local {
    static task<> go(rpc::transport& t, outcome& got) {
      auto call = co_await t.start(chat_method, {}, io::now());
      auto next = co_await (*call)->read();
      if (!next) got.end = std::move(next).error();
    }
  };
  std::size_t asked = 0;
  raw = std::make_unique<memory_connection>(shard, [&](std::unique_ptr<weft::http::exchange> e) {
    ++asked;
    e->reset(weft::http::give_up::cancelled);
  });
  outcome got;
  ASSERT_TRUE(run(shard, local::go(open_client(), got)));
  EXPECT_EQ(asked, 1u);
  EXPECT_EQ(got.end.code(), code::deadline_exceeded);
}

TEST_F(connect_client, its_own_deadline_ends_a_silent_call_and_tells_the_server) {
  auto kept = std::make_shared<std::unique_ptr<weft::http::exchange>>();
  raw = std::make_unique<memory_connection>(
      shard, [kept](std::unique_ptr<weft::http::exchange> e) { *kept = std::move(e); });
  for (const method& m : {echo_method, chat_method}) {
    EXPECT_EQ(call(m, {"x"}, {.timeout = 10ms}).end.code(), code::deadline_exceeded);
    EXPECT_EQ(wire_link->last->given_up[0], weft::http::give_up::cancelled);
  }
}

TEST_F(connect_client, its_own_cancellation_is_what_it_said) {
  auto kept = std::make_shared<std::unique_ptr<weft::http::exchange>>();
  raw = std::make_unique<memory_connection>(
      shard, [kept](std::unique_ptr<weft::http::exchange> e) { *kept = std::move(e); });
  struct local {
    static task<> read(client_call& call, status& into) {
      auto next = co_await call.read();
      if (!next) into = std::move(next).error();
    }
    static task<> go(connect_client& self, status& got) {
      auto call = co_await self.open_client().start(chat_method, {}, never);
      asio::co_spawn(self.shard.get_executor(), read(**call, got), [](std::exception_ptr) {});
      co_await settle(self.shard);
      (*call)->cancel({code::cancelled, "enough"});
      auto again = co_await (*call)->read();
      EXPECT_EQ(again.error().message(), "enough");
      auto written = co_await (*call)->write(text_message{"x"}, false);
      EXPECT_EQ(written.error().message(), "enough");
      co_await settle(self.shard);
    }
  };
  status got;
  ASSERT_TRUE(run(shard, local::go(*this, got)));
  EXPECT_EQ(got, (status{code::cancelled, "enough"}));
  EXPECT_EQ(wire_link->last->given_up[0], weft::http::give_up::cancelled);
}

TEST_F(connect_client, waiting_for_the_servers_leave_to_start_ends_at_the_deadline) {
  (void)open_client();
  wire_link->blocked = true;
  for (const method& m : {echo_method, chat_method})
    EXPECT_EQ(call(m, {"x"}, {.timeout = 10ms}).end.code(), code::deadline_exceeded);
  struct local {
    static task<> unblock(connect_client& self) {
      co_await settle(self.shard);
      self.wire_link->blocked = false;
      self.wire_link->credit.notify();
    }
  };
  asio::co_spawn(shard.get_executor(), local::unblock(*this), [](std::exception_ptr) {});
  EXPECT_EQ(call(echo_method, {"x"}).messages, (std::vector<std::string>{"x"}));
}

TEST_F(connect_client, a_server_that_goes_away_is_unavailable) {
  (void)open_client();
  wire_link->refuses = true;
  EXPECT_EQ(call(echo_method, {"x"}).end.code(), code::unavailable);
  EXPECT_FALSE(client->usable());
}

TEST_F(connect_client, a_call_turned_away_goes_on_at_another_connection) {
  for (const method& m : {echo_method, pure_method, chat_method})
    for (const bool before_it_leaves : {false, true}) {
      std::shared_ptr<rpc::transport> other =
          open(std::make_unique<memory_connection>(
                   shard, [c = std::make_shared<http::server_core>(shard, calls, options)](
                              std::unique_ptr<weft::http::exchange> e) { serve(std::move(e), c); }),
               shard, client_settings);
      client_options with = client_settings;
      with.use_get = true;
      with.elsewhere = [&](idempotency, bool, time_point) {
        return [](std::shared_ptr<rpc::transport> to)
                   -> task<result<std::shared_ptr<rpc::transport>>> { co_return to; }(other);
      };
      auto wire = std::make_unique<memory_connection>(
          shard,
          [](std::unique_ptr<weft::http::exchange> e) { e->reset(weft::http::give_up::rejected); });
      memory_connection& link = *wire;
      auto first = open(std::move(wire), shard, with);
      struct local {
        static task<> go(rpc::transport& t, method m, memory_connection& link, bool refuse,
                         outcome& got) {
          auto call = co_await t.start(m, {}, never);
          EXPECT_TRUE(call.has_value());
          link.refuses = refuse && m.kind == call_kind::unary;
          (void)co_await (*call)->write(text_message{"x"}, true);
          while (auto next = co_await (*call)->read()) {
            if (!*next) co_return;
            got.messages.push_back(text_of(**next));
          }
          ADD_FAILURE() << m.path;
        }
      };
      outcome got;
      ASSERT_TRUE(run(shard, local::go(*first, m, link, before_it_leaves, got)));
      EXPECT_EQ(got.messages, (std::vector<std::string>{"x"})) << m.path;
    }
}

TEST_F(connect_client, closing_the_transport_ends_its_calls_with_the_reason) {
  calls.on(chat_method, [](server_call& call) -> task<status> {
    struct local {
      static task<status> go(server_call& call) {
        auto next = co_await call.read();
        co_return next ? status{} : next.error();
      }
    };
    return local::go(call);
  });
  struct local {
    static task<> go(connect_client& self, status& got) {
      auto call = co_await self.open_client().start(chat_method, {}, never);
      co_await settle(self.shard);
      self.client->close({code::unavailable, "closing"});
      auto next = co_await (*call)->read();
      got = next.error();
      co_await settle(self.shard);
    }
  };
  status got;
  ASSERT_TRUE(run(shard, local::go(*this, got)));
  EXPECT_EQ(got, (status{code::unavailable, "closing"}));
  EXPECT_EQ(calls.running, 0u);
}

TEST_F(connect_client, one_way_calls_complete_once_taken) {
  struct local {
    static task<> go(connect_client& self) {
      auto sent = co_await self.open_client().one_way(echo_method, {}, never, text_message{"x"});
      EXPECT_TRUE(sent);
      co_await settle(self.shard);
    }
  };
  ASSERT_TRUE(run(shard, local::go(*this)));
  EXPECT_EQ(core->stats().calls_finished, 1u);
}

TEST_F(connect_client, initial_metadata_can_be_waited_for) {
  io::event go_on;
  calls.on(chat_method, [&](server_call& call) -> task<status> {
    struct local {
      static task<status> go(server_call& call, io::event& go_on) {
        (void)co_await call.send_headers({{"x-early", "yes"}});
        (void)co_await go_on.wait();
        (void)co_await call.write(text_message{"late"});
        co_return status{};
      }
    };
    return local::go(call, go_on);
  });
  struct local {
    static task<> go(connect_client& self, io::event& go_on) {
      auto call = co_await self.open_client().start(chat_method, {}, never);
      auto headers = co_await (*call)->read_headers();
      EXPECT_EQ(headers->find("x-early"), "yes");
      go_on.notify();
      auto message = co_await (*call)->read();
      EXPECT_EQ(text_of(**message), "late");
      auto end = co_await (*call)->read();
      EXPECT_TRUE(end && !*end);
    }
  };
  ASSERT_TRUE(run(shard, local::go(*this, go_on)));
}

}  // namespace
}  // namespace weft::rpc::connect::testing
