#include <weft/rpc/grpc/test_support.hpp>

#include <google/protobuf/wrappers.pb.h>

#include <weft/rpc/handler.hpp>
#include <weft/rpc/http/wire/base64.hpp>

namespace weft::rpc::grpc::testing {
namespace {

using namespace std::chrono_literals;

class grpc_server : public grpc_fixture {
 protected:
  void on_chat(handlers::handler h) { calls.on(chat_method, std::move(h)); }
  reply ask_chat(weft::http::field_list fields, std::string body) {
    return ask(post("/t.S/Chat", std::move(fields)), std::move(body));
  }
};

task<status> end_with(server_call&, status s) {
  co_return s;
}

handlers::handler ending(status s) {
  return [s](server_call& call) { return end_with(call, s); };
}

const weft::http::field_list plain{{"content-type", "application/grpc"}, {"te", "trailers"}};
const weft::http::field_list web{{"content-type", "application/grpc-web+proto"}};

std::string packed(compression algorithm, std::string_view text) {
  return std::string{compress(algorithm, as_bytes(text))->text()};
}

weft::http::field_list with(const weft::http::field_list& some, std::string_view name,
                            std::string_view value) {
  weft::http::field_list all = some;
  all.add_valid(name, value);
  return all;
}

// The good case
// ---------------------------------------------------------------------------------

TEST_F(grpc_server, messages_in_envelopes_and_the_status_in_trailers) {
  for (const char* type : {"application/grpc", "application/grpc+proto", "Application/GRPC"}) {
    const auto got = ask_chat({{"content-type", type}, {"te", "trailers"}},
                              framed(0, "hello") + framed(0, "") + framed(0, "you"));
    EXPECT_EQ(got.status, 200);
    EXPECT_EQ(got.field("content-type"), "application/grpc+proto");
    EXPECT_EQ(got.field("grpc-accept-encoding"), "zstd, gzip, br");
    EXPECT_EQ(got.field("grpc-encoding"), "(none)");
    EXPECT_EQ(got.field("grpc-status"), "(none)");
    EXPECT_EQ(cut(got.body), (envelopes{{0, "hello"}, {0, ""}, {0, "you"}}));
    EXPECT_EQ(value_of(got.trailers, "grpc-status"), "0");
    EXPECT_EQ(value_of(got.trailers, "grpc-message"), "(none)");
  }
}

TEST_F(grpc_server, json) {
  const auto got =
      ask_chat({{"content-type", "application/grpc+json; charset=utf-8"}}, framed(0, "\"hi\""));
  EXPECT_EQ(got.field("content-type"), "application/grpc+json");
  EXPECT_EQ(cut(got.body), (envelopes{{0, "\"hi\""}}));
}

TEST_F(grpc_server, streams_without_messages_have_a_head_and_trailers) {
  const auto got = ask_chat(plain, "");
  EXPECT_EQ(got.status, 200);
  EXPECT_EQ(got.body, "");
  EXPECT_EQ(got.field("grpc-status"), "(none)");
  EXPECT_EQ(value_of(got.trailers, "grpc-status"), "0");
}

task<status> with_metadata(server_call& call, status s) {
  (void)co_await call.send_headers({{"x-head", "1"}, {"x-head", "2"}, {"x-head-bin", "f"}});
  call.set_trailers({{"x-tail", "3"}, {"x-tail", "4"}, {"x-tail-bin", "f"}});
  co_return s;
}

TEST_F(grpc_server, metadata_keeps_duplicates_and_binary_values_are_unpadded) {
  for (const auto& s : {status{}, status{code::aborted, "m"}}) {
    on_chat([s](server_call& call) { return with_metadata(call, s); });
    const auto got = ask_chat(plain, "");
    EXPECT_EQ(got.all("x-head"), (std::vector<std::string>{"1", "2"}));
    EXPECT_EQ(got.field("x-head-bin"), "Zg");
    EXPECT_EQ(got.field("x-tail"), "(none)");
    EXPECT_EQ(value_of(got.trailers, "x-tail"), "3");
    EXPECT_EQ(value_of(got.trailers, "x-tail-bin"), "Zg");
    EXPECT_EQ(got.trailers.size(), s.ok() ? 4u : 5u);
    EXPECT_EQ(value_of(got.trailers, "grpc-status"), s.ok() ? "0" : "10");
  }
}

task<status> show_request(server_call& call) {
  std::string seen;
  for (const auto& [key, value] : call.info().metadata) seen += key + "=" + value + ";";
  (void)co_await call.write(text_message{seen});
  co_return status{};
}

TEST_F(grpc_server, request_metadata_hides_the_protocol_and_takes_joined_binary_values) {
  on_chat(show_request);
  const auto got = ask_chat({{"content-type", "application/grpc"},
                             {"te", "trailers"},
                             {"grpc-timeout", "5S"},
                             {"grpc-accept-encoding", "gzip"},
                             {"x-a", "1"},
                             {"x-b-bin", "Zg==,Zm8"},
                             {"x-a", "2"}},
                            "");
  EXPECT_EQ(cut(got.body), (envelopes{{0, "x-a=1;x-b-bin=f;x-b-bin=fo;x-a=2;"}}));
}

// Failures
// --------------------------------------------------------------------------------------

TEST_F(grpc_server, failures_before_anything_was_sent_are_trailers_only) {
  on_chat([](server_call& call) {
    call.set_trailers({{"x-tail", "1"}});
    return end_with(call, {code::not_found, "caf\xc3\xa9 100%\n", {{"a.B", "\xff"}}});
  });
  for (const auto& type : {plain, web}) {
    const auto got = ask_chat(type, framed(0, "x"));
    EXPECT_EQ(got.status, 200);
    EXPECT_EQ(got.field("grpc-status"), "5");
    EXPECT_EQ(got.field("grpc-message"), "caf%C3%A9 100%25%0A");
    EXPECT_EQ(got.field("x-tail"), "1");
    EXPECT_EQ(got.body, "");
    EXPECT_TRUE(got.trailers.empty());
    EXPECT_EQ(read_status(got.fields),
              (status{code::not_found, "caf\xc3\xa9 100%\n", {{"a.B", "\xff"}}}));
  }
}

TEST_F(grpc_server, details_say_the_same_as_the_trailers) {
  on_chat(ending({code::aborted, "m", {{"a.B", "value"}}}));
  const auto got = ask_chat(plain, "");
  const std::string text = got.field("grpc-status-details-bin");
  EXPECT_FALSE(text.contains('='));
  const auto decoded = wire::base64_decode(text);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decode_details(*decoded), (status{code::aborted, "m", {{"a.B", "value"}}}));
  on_chat(ending({code::aborted, "m"}));
  EXPECT_EQ(ask_chat(plain, "").field("grpc-status-details-bin"), "(none)");
}

TEST_F(grpc_server, an_ok_status_has_no_message_and_no_details) {
  on_chat(ending(status{code::ok, "fine", {{"a.B", "value"}}}));
  const auto got = ask_chat(plain, "");
  EXPECT_EQ(got.trailers.size(), 1u);
  EXPECT_EQ(value_of(got.trailers, "grpc-status"), "0");
}

TEST_F(grpc_server, unknown_paths_are_unimplemented) {
  const auto got = ask(post("/t.S/Nothing", plain), framed(0, "x"));
  EXPECT_EQ(got.status, 200);
  EXPECT_EQ(got.field("grpc-status"), "12");
}

TEST_F(grpc_server, other_content_types_are_415_and_other_http_methods_405) {
  for (const char* type : {"application/grpc+thrift", "application/grpcd", "text/plain", ""}) {
    const auto got = ask_chat({{"content-type", type}}, framed(0, "x"));
    EXPECT_EQ(got.status, 415) << type;
    EXPECT_TRUE(got.field("accept-post").contains("application/grpc+proto"));
  }
  auto head = post("/t.S/Chat", plain);
  head.method = "PUT";
  const auto got = ask(std::move(head));
  EXPECT_EQ(got.status, 405);
  EXPECT_EQ(got.field("allow"), "POST");
}

TEST_F(grpc_server, an_early_answer_does_not_wait_for_the_request) {
  on_chat(ending({code::unauthenticated, "who?"}));
  struct local {
    static task<> go(grpc_server& self, reply& got) {
      auto e = self.request(post("/t.S/Chat", plain));
      (void)e->try_write(slice::copy("half of"), false);
      got = co_await read_reply_of(*e);
      co_await settle(self.shard);
    }
  };
  reply got;
  ASSERT_TRUE(run(shard, local::go(*this, got)));
  EXPECT_EQ(got.field("grpc-status"), "16");
  EXPECT_FALSE(got.failed);
  EXPECT_TRUE(raw->last->stopped_reading[1]);
  EXPECT_FALSE(raw->last->given_up[1]);
}

TEST_F(grpc_server, requests_cut_inside_a_message_are_internal) {
  const auto got = ask_chat(plain, framed(0, "hello").substr(0, 7));
  EXPECT_EQ(got.field("grpc-status"), "13");
}

TEST_F(grpc_server, flags_that_mean_nothing_are_internal) {
  for (const std::uint8_t flags : {2, 0x40, 0x80}) {
    EXPECT_EQ(ask_chat(plain, framed(flags, "x")).field("grpc-status"), "13");
    EXPECT_EQ(ask_chat(web, framed(flags, "x")).field("grpc-status"), "13");
  }
}

// Compression and limits
// ---------------------------------------------------------------------------------

TEST_F(grpc_server, each_message_is_compressed_by_itself) {
  const std::string text(5000, 'a');
  for (const auto algorithm : available_compressions()) {
    const std::string name{to_string(algorithm)};
    const auto got =
        ask_chat(with(with(plain, "grpc-encoding", name), "grpc-accept-encoding", name),
                 framed(1, packed(algorithm, text)) + framed(0, "tiny"));
    EXPECT_EQ(got.field("grpc-encoding"), name);
    EXPECT_EQ(got.field("content-encoding"), "(none)");
    const auto parts = cut(got.body);
    ASSERT_EQ(parts.size(), 2u);
    EXPECT_EQ(parts[0].first, 1);
    EXPECT_EQ(decompress(algorithm, payload{slice::copy(parts[0].second)}, 5000)->text(), text);
    EXPECT_EQ(parts[1], (std::pair<int, std::string>{0, "tiny"}));
  }
}

TEST_F(grpc_server, who_accepts_nothing_gets_nothing_compressed) {
  const std::string text(5000, 'a');
  const auto got =
      ask_chat(with(plain, "grpc-encoding", "gzip"), framed(1, packed(compression::gzip, text)));
  EXPECT_EQ(got.field("grpc-encoding"), "(none)");
  EXPECT_EQ(cut(got.body), (envelopes{{0, text}}));
}

TEST_F(grpc_server, unknown_encodings_are_unimplemented_and_known_ones_listed) {
  for (const auto& type : {plain, web}) {
    const auto got = ask_chat(with(type, "grpc-encoding", "snappy"), framed(1, "x"));
    EXPECT_EQ(got.field("grpc-status"), "12");
    EXPECT_EQ(got.field("grpc-accept-encoding"), "zstd, gzip, br");
    EXPECT_TRUE(got.field("grpc-message").contains("snappy"));
    EXPECT_TRUE(got.field("grpc-message").contains("zstd, gzip, br"));
  }
}

TEST_F(grpc_server, a_compressed_flag_without_an_encoding_is_internal) {
  EXPECT_EQ(ask_chat(plain, framed(1, "x")).field("grpc-status"), "13");
  EXPECT_EQ(ask_chat(with(plain, "grpc-encoding", "identity"), framed(1, "x")).field("grpc-status"),
            "13");
}

TEST_F(grpc_server, compressed_empty_messages_are_empty) {
  const auto got = ask_chat(with(plain, "grpc-encoding", "gzip"), framed(1, ""));
  EXPECT_EQ(cut(got.body), (envelopes{{0, ""}}));
}

TEST_F(grpc_server, limits_count_after_decompression_too) {
  options.limits.max_message = 1000;
  EXPECT_EQ(ask_chat(plain, framed(0, std::string(1001, 'a'))).field("grpc-status"), "8");
  EXPECT_EQ(ask_chat(with(plain, "grpc-encoding", "gzip"),
                     framed(1, packed(compression::gzip, std::string(1001, 'a'))))
                .field("grpc-status"),
            "8");
  EXPECT_EQ(value_of(ask_chat(plain, framed(0, std::string(1000, 'a'))).trailers, "grpc-status"),
            "0");
}

TEST_F(grpc_server, metadata_has_a_limit) {
  options.limits.max_metadata = 200;
  EXPECT_EQ(ask_chat(with(plain, "x-a", std::string(300, 'a')), "").field("grpc-status"), "8");
}

task<status> fail_at_length(server_call& call, bool headers_first, std::size_t tail) {
  if (headers_first) (void)co_await call.send_headers({{"x-head", "1"}});
  call.set_trailers({{"x-tail", std::string(tail, 't')}});
  co_return tail != 0 ? status{} : status{code::aborted, std::string(20'000, 'm')};
}

TEST_F(grpc_server, a_status_beyond_the_clients_limit_keeps_its_code) {
  on_chat([](server_call& call) { return fail_at_length(call, false, 0); });
  for (const auto& type : {plain, web}) {
    const auto got = ask_chat(type, "");
    EXPECT_EQ(got.field("grpc-status"), "10");
    EXPECT_TRUE(got.field("grpc-message").contains("more than the client takes"));
  }
  on_chat([](server_call& call) { return fail_at_length(call, true, 0); });
  const auto got = ask_chat(plain, "");
  EXPECT_EQ(got.field("x-head"), "1");
  EXPECT_EQ(value_of(got.trailers, "grpc-status"), "10");
}

TEST_F(grpc_server, trailing_metadata_beyond_the_clients_limit_is_no_success) {
  on_chat([](server_call& call) { return fail_at_length(call, true, 20'000); });
  const auto got = ask_chat(plain, "");
  EXPECT_EQ(value_of(got.trailers, "grpc-status"), "8");
}

task<status> boast(server_call& call, bool heed) {
  auto sent = co_await call.send_headers({{"x-head", std::string(20'000, 'h')}});
  EXPECT_FALSE(sent);
  if (heed) co_return std::move(sent).error();
  auto written = co_await call.write(text_message{"m"});
  EXPECT_FALSE(written);
  co_return status{};
}

TEST_F(grpc_server, initial_metadata_beyond_the_clients_limit_is_resource_exhausted) {
  for (const bool heed : {true, false})
    for (const auto& type : {plain, web}) {
      on_chat([=](server_call& call) { return boast(call, heed); });
      const auto got = ask_chat(type, "");
      EXPECT_EQ(got.field("grpc-status"), "8");
      EXPECT_EQ(got.body, "");
    }
}

// One message and no more
// -----------------------------------------------------------------------------

task<status> take_one(server_call& call) {
  auto request = co_await read_single<google::protobuf::StringValue>(call);
  if (!request) co_return std::move(request).error();
  co_return co_await write_reply(call, std::move(request));
}

TEST_F(grpc_server, requests_that_are_not_one_are_unimplemented) {
  calls.on(echo_method, take_one);
  google::protobuf::StringValue hello;
  hello.set_value("hello");
  const std::string message = framed(0, hello.SerializeAsString());
  for (const auto& type : {plain, web}) {
    EXPECT_EQ(ask(post("/t.S/Echo", type), "").field("grpc-status"), "12");
    EXPECT_EQ(ask(post("/t.S/Echo", type), message + message).field("grpc-status"), "12");
    EXPECT_EQ(cut(ask(post("/t.S/Echo", type), message).body).front().second,
              hello.SerializeAsString());
  }
}

// Deadlines
// -----------------------------------------------------------------------------------

TEST_F(grpc_server, malformed_timeouts_are_refused) {
  for (const char* text : {"", "5", "S", "123456789S", "-1S", "5 S", "5s", "1.5S"})
    EXPECT_EQ(ask_chat(with(plain, "grpc-timeout", text), "").field("grpc-status"), "3") << text;
}

task<status> wait_for_ever(server_call& call) {
  auto next = co_await call.read();
  co_return next ? status{code::internal, "a message?"} : std::move(next).error();
}

struct unanswered {
  static task<> go(grpc_server& self, weft::http::field_list fields, std::string_view version,
                   reply& got) {
    self.connection().version = version;
    auto e = self.request(post("/t.S/Chat", std::move(fields)));
    got = co_await read_reply_of(*e);
    co_await settle(self.shard);
  }
};

TEST_F(grpc_server, over_http3_a_passed_deadline_gives_the_exchange_up) {
  on_chat(wait_for_ever);
  reply got;
  ASSERT_TRUE(run(shard, unanswered::go(*this, with(plain, "grpc-timeout", "5m"), "h3", got)));
  ASSERT_TRUE(got.failed);
  EXPECT_EQ(raw->last->given_up[1], weft::http::give_up::cancelled);
}

TEST_F(grpc_server, elsewhere_a_passed_deadline_is_a_status) {
  on_chat(wait_for_ever);
  reply got;
  ASSERT_TRUE(run(shard, unanswered::go(*this, with(plain, "grpc-timeout", "5m"), "h2", got)));
  EXPECT_FALSE(got.failed);
  EXPECT_EQ(got.field("grpc-status"), "4");
  ASSERT_TRUE(run(shard, unanswered::go(*this, with(web, "grpc-timeout", "5m"), "h3", got)));
  EXPECT_EQ(got.field("grpc-status"), "4");
}

TEST_F(grpc_server, a_handlers_own_deadline_exceeded_is_a_status) {
  on_chat(ending({code::deadline_exceeded, "somewhere else"}));
  EXPECT_EQ(ask_chat(with(plain, "grpc-timeout", "5S"), "").field("grpc-status"), "4");
}

TEST_F(grpc_server, the_head_leaves_before_the_first_message_when_the_handler_says_so) {
  on_chat([](server_call& call) {
    struct local {
      static task<status> go(server_call& call) {
        (void)co_await call.send_headers({{"x-early", "1"}});
        co_return co_await wait_for_ever(call);
      }
    };
    return local::go(call);
  });
  struct local {
    static task<> go(grpc_server& self, std::string& early) {
      auto e = self.request(post("/t.S/Chat", plain));
      auto head = co_await e->receive_head();
      if (head) early = value_of(e->response()->fields, "x-early");
    }
  };
  std::string early;
  ASSERT_TRUE(run(shard, local::go(*this, early)));
  EXPECT_EQ(early, "1");
}

// gRPC-Web
// ------------------------------------------------------------------------------------

TEST_F(grpc_server, web_trailers_are_the_last_frame_and_never_http_trailers) {
  on_chat([](server_call& call) {
    struct local {
      static task<status> go(server_call& call) {
        (void)co_await call.write(text_message{"one"});
        call.set_trailers({{"X-Tail", "1"}, {"x-tail", "2"}, {"x-tail-bin", "f"}});
        co_return status{code::aborted, "no \xc3\xa9"};
      }
    };
    return local::go(call);
  });
  const auto got = ask_chat(web, "");
  EXPECT_EQ(got.field("content-type"), "application/grpc-web+proto");
  EXPECT_TRUE(got.trailers.empty());
  EXPECT_EQ(cut(got.body), (envelopes{{0, "one"},
                                      {0x80,
                                       "grpc-status: 10\r\ngrpc-message: no %C3%A9\r\n"
                                       "x-tail: 1\r\nx-tail: 2\r\nx-tail-bin: Zg\r\n"}}));
}

TEST_F(grpc_server, web_json) {
  const auto got = ask_chat({{"content-type", "application/grpc-web+json"}}, framed(0, "\"a\""));
  EXPECT_EQ(got.field("content-type"), "application/grpc-web+json");
  EXPECT_EQ(cut(got.body), (envelopes{{0, "\"a\""}, {0x80, "grpc-status: 0\r\n"}}));
}

std::string in_base64(std::string_view text) {
  return wire::base64_encode(as_bytes(text), wire::alphabet::standard, true);
}

std::string of_base64(std::string_view text) {
  std::string all;
  while (!text.empty()) {
    const auto padding = text.find('=');
    const auto end = std::min(text.size(), padding == text.npos ? text.npos : padding / 4 * 4 + 4);
    all += wire::base64_decode(text.substr(0, end)).value();
    text.remove_prefix(end);
  }
  return all;
}

TEST_F(grpc_server, web_text_is_base64_each_way_however_it_is_split) {
  const std::string body = in_base64(framed(0, "a")) + in_base64(framed(0, "bcd"));
  for (const std::size_t granularity : {1, 3, 1000}) {
    raw.reset();
    connection().granularity = granularity;
    const auto got = ask_chat({{"content-type", "application/grpc-web-text"}}, body);
    EXPECT_EQ(got.field("content-type"), "application/grpc-web-text+proto");
    EXPECT_EQ(got.body.size() % 4, 0u);
    EXPECT_EQ(cut(of_base64(got.body)),
              (envelopes{{0, "a"}, {0, "bcd"}, {0x80, "grpc-status: 0\r\n"}}));
  }
}

TEST_F(grpc_server, web_text_that_is_no_base64_is_internal) {
  const auto got = ask_chat({{"content-type", "application/grpc-web-text"}}, "!!!!");
  EXPECT_EQ(got.field("grpc-status"), "13");
  EXPECT_EQ(got.body, "");
}

TEST_F(grpc_server, pages_of_other_origins_may_call_and_see_the_status) {
  options.origins = {"https://app.example"};
  weft::http::request_head preflight;
  preflight.method = "OPTIONS";
  preflight.path = "/t.S/Chat";
  preflight.fields = {{"origin", "https://app.example"},
                      {"access-control-request-method", "POST"},
                      {"access-control-request-headers", "content-type,x-grpc-web"}};
  const auto granted = ask(std::move(preflight));
  EXPECT_EQ(granted.status, 204);
  EXPECT_EQ(granted.field("access-control-allow-headers"), "content-type,x-grpc-web");
  on_chat(ending({code::aborted, "m"}));
  const auto got = ask_chat(with(web, "origin", "https://app.example"), "");
  EXPECT_EQ(got.field("access-control-allow-origin"), "https://app.example");
  EXPECT_TRUE(got.field("access-control-expose-headers").contains("grpc-status"));
}

}  // namespace
}  // namespace weft::rpc::grpc::testing
