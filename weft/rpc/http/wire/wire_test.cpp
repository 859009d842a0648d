#include <random>
#include <string>

#include <gtest/gtest.h>

#include <weft/rpc/http/wire/base64.hpp>
#include <weft/rpc/http/wire/codes.hpp>
#include <weft/rpc/http/wire/encodings.hpp>
#include <weft/rpc/http/wire/envelope.hpp>
#include <weft/rpc/http/wire/error_json.hpp>
#include <weft/rpc/http/wire/fields.hpp>
#include <weft/rpc/http/wire/media_type.hpp>
#include <weft/rpc/http/wire/percent.hpp>
#include <weft/rpc/http/wire/timeout.hpp>

namespace weft::rpc::http::wire {
namespace {

using namespace std::chrono_literals;

std::string framed(std::uint8_t flags, std::string_view content) {
  std::string text(envelope_head, '\0');
  write_envelope_head(reinterpret_cast<std::byte*>(text.data()), flags, content.size());
  return text.append(content);
}

// Envelopes
// ------------------------------------------------------------------------------------------

TEST(envelopes, split_anywhere_are_the_same) {
  const std::string long_one(70'000, 'x');
  const std::string all =
      framed(0, "first") + framed(1, "") + framed(0x80, long_one) + framed(2, "{}");
  for (const std::size_t step : {1, 2, 3, 4, 5, 6, 7, 1000, 100'000}) {
    envelope_parser parser{1 << 20, nullptr};
    std::vector<std::pair<int, std::string>> seen;
    for (std::size_t at = 0; at < all.size(); at += step) {
      ASSERT_TRUE(parser.push(slice::copy(std::string_view{all}.substr(at, step))));
      while (true) {
        auto next = parser.next();
        ASSERT_TRUE(next);
        if (!*next) break;
        seen.emplace_back((*next)->flags, (*next)->content.flatten().text());
      }
    }
    EXPECT_TRUE(parser.at_boundary());
    const std::vector<std::pair<int, std::string>> wanted{
        {0, "first"}, {1, ""}, {0x80, long_one}, {2, "{}"}};
    EXPECT_EQ(seen, wanted) << step;
  }
}

TEST(envelopes, content_is_not_copied) {
  envelope_parser parser{1 << 20, nullptr};
  const slice whole = slice::copy(framed(0, "content"));
  ASSERT_TRUE(parser.push(whole));
  auto next = parser.next();
  ASSERT_TRUE(next && *next);
  EXPECT_EQ((*next)->content.part(0).data(), whole.data() + envelope_head);
}

TEST(envelopes, a_length_beyond_the_limit_fails_before_its_content_comes) {
  envelope_parser parser{100, nullptr};
  ASSERT_TRUE(parser.push(slice::copy(framed(0, std::string(100, 'a')))));
  EXPECT_TRUE(parser.next().value());
  ASSERT_TRUE(parser.push(slice::copy(std::string_view{"\0\xff\xff\xff\xff", 5})));
  for (int again = 0; again < 2; ++again) {
    auto next = parser.next();
    ASSERT_FALSE(next);
    EXPECT_EQ(next.error().code(), code::resource_exhausted);
  }
}

TEST(envelopes, an_end_inside_one_is_no_boundary) {
  const std::string all = framed(0, "abc");
  for (std::size_t size = 0; size <= all.size(); ++size) {
    envelope_parser parser{100, nullptr};
    ASSERT_TRUE(parser.push(slice::copy(std::string_view{all}.substr(0, size))));
    (void)parser.next();
    EXPECT_EQ(parser.at_boundary(), size == 0 || size == all.size()) << size;
  }
}

TEST(envelopes, charge_memory_until_handed_out) {
  memory_budget budget{20};
  {
    envelope_parser parser{100, &budget};
    ASSERT_TRUE(parser.push(slice::copy(framed(0, "0123456789"))));
    EXPECT_EQ(budget.used(), 15u);
    auto refused = parser.push(slice::copy("another"));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), code::resource_exhausted);
    EXPECT_TRUE(parser.next().value());
    EXPECT_EQ(budget.used(), 0u);
    ASSERT_TRUE(parser.push(slice::copy(framed(0, "half")).sub(0, 7)));
    EXPECT_FALSE(parser.next().value());
  }
  EXPECT_EQ(budget.used(), 0u);
}

// base64
// ---------------------------------------------------------------------------------------------

TEST(base64, rfc_4648_vectors) {
  const std::pair<std::string, std::string> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, padded] : vectors) {
    const std::string bare = padded.substr(0, padded.find('='));
    EXPECT_EQ(base64_encode(as_bytes(plain)), bare);
    EXPECT_EQ(base64_encode(as_bytes(plain), alphabet::standard, true), padded);
    EXPECT_EQ(base64_decode(bare), plain);
    EXPECT_EQ(base64_decode(padded), plain);
  }
}

TEST(base64, alphabets_differ_where_they_do) {
  const std::string bytes{"\xfb\xff\xbf"};
  EXPECT_EQ(base64_encode(as_bytes(bytes)), "+/+/");
  EXPECT_EQ(base64_encode(as_bytes(bytes), alphabet::url), "-_-_");
  EXPECT_EQ(base64_decode("-_-_", alphabet::url), bytes);
  EXPECT_FALSE(base64_decode("-_-_"));
  EXPECT_FALSE(base64_decode("+/+/", alphabet::url));
}

TEST(base64, every_byte_and_length_round_trips) {
  std::mt19937 random{7};
  for (std::size_t size = 0; size < 300; ++size) {
    std::string bytes(size, '\0');
    for (auto& c : bytes) c = static_cast<char>(random());
    for (const auto letters : {alphabet::standard, alphabet::url})
      for (const bool padding : {false, true})
        EXPECT_EQ(base64_decode(base64_encode(as_bytes(bytes), letters, padding), letters), bytes);
  }
}

TEST(base64, malformed_is_refused) {
  for (const char* text : {"A", "AAAAA", "=", "==", "A===", "A=", "AA=", "AAA==", "AA==AA==",
                           "A A A", "AA\n", "AA=A", "\x80\x80\x80\x80"})
    EXPECT_FALSE(base64_decode(text)) << text;
}

// Percent encoding
// -----------------------------------------------------------------------------------

TEST(percent, grpc_message_escapes_what_is_not_printable_and_the_sign_itself) {
  EXPECT_EQ(encode_message("100% of \"caf\xc3\xa9\"\r\n~\x7f"),
            "100%25 of \"caf%C3%A9\"%0D%0A~%7F");
  EXPECT_EQ(decode_message("100%25 of \"caf%c3%A9\"%0D%0A~%7F"),
            "100% of \"caf\xc3\xa9\"\r\n~\x7f");
}

TEST(percent, messages_have_no_space_at_their_ends) {
  for (const std::string text : {" ", "  ", " a", "a ", "  a b  "}) {
    const std::string encoded = encode_message(text);
    EXPECT_FALSE(encoded.starts_with(' ') || encoded.ends_with(' ')) << encoded;
    EXPECT_EQ(decode_message(encoded), text);
  }
}

TEST(percent, decoding_never_fails) {
  EXPECT_EQ(decode_message("%"), "%");
  EXPECT_EQ(decode_message("%4"), "%4");
  EXPECT_EQ(decode_message("%zz%41%"), "%zzA%");
  EXPECT_EQ(decode_message("a+b"), "a+b");
}

TEST(percent, queries) {
  EXPECT_EQ(encode_query("{\"a\": \"+&=%\"}"), "%7B%22a%22%3A%20%22%2B%26%3D%25%22%7D");
  EXPECT_EQ(decode_query("a+b%2Bc%20d"), "a b+c d");
  EXPECT_EQ(find_query("connect=v1&message=&x", "connect"), "v1");
  EXPECT_EQ(find_query("connect=v1&message=&x", "message"), "");
  EXPECT_EQ(find_query("connect=v1&message=&x", "x"), "");
  EXPECT_EQ(find_query("mess%61ge=a%3Db&message=2", "message"), "a%3Db");
  EXPECT_FALSE(find_query("connect=v1", "v1"));
  EXPECT_FALSE(find_query("", "a"));
}

// Content types
// --------------------------------------------------------------------------------------

TEST(media_types, of_all_protocols) {
  using rpc::codec;
  const auto is = [](std::string_view text, form f, std::optional<codec> c) {
    const auto parsed = parse_media_type(text);
    return parsed && parsed->form == f && parsed->codec == c;
  };
  EXPECT_TRUE(is("application/grpc", form::grpc, codec::proto));
  EXPECT_TRUE(is("application/grpc+json", form::grpc, codec::json));
  EXPECT_TRUE(is("Application/gRPC-Web+Proto; charset=x", form::grpc_web, codec::proto));
  EXPECT_TRUE(is("application/grpc-web", form::grpc_web, codec::proto));
  EXPECT_TRUE(is("application/grpc-web-text+proto", form::grpc_web_text, codec::proto));
  EXPECT_TRUE(is("application/json ; charset=utf-8", form::connect_unary, codec::json));
  EXPECT_TRUE(is("application/connect+proto", form::connect_stream, codec::proto));
  EXPECT_TRUE(is("application/connect+thrift", form::connect_stream, std::nullopt));
  EXPECT_TRUE(is("application/grpc+thrift", form::grpc, std::nullopt));
  for (const char* text : {"", "application/", "application", "text/json", "application/connect",
                           "application/xml", "application/grpcx", "application/protobuf"})
    EXPECT_FALSE(parse_media_type(text)) << text;
}

TEST(media_types, are_read_as_they_are_written) {
  for (const auto f :
       {form::connect_unary, form::connect_stream, form::grpc, form::grpc_web, form::grpc_web_text})
    for (const auto c : {rpc::codec::proto, rpc::codec::json}) {
      const auto parsed = parse_media_type(to_string(f, c));
      ASSERT_TRUE(parsed);
      EXPECT_EQ(parsed->form, f);
      EXPECT_EQ(parsed->codec, c);
    }
}

// Timeouts
// -------------------------------------------------------------------------------------------

TEST(timeouts, grpc_uses_the_finest_unit_of_eight_digits) {
  EXPECT_EQ(grpc_timeout(1ns), "1n");
  EXPECT_EQ(grpc_timeout(99'999'999ns), "99999999n");
  EXPECT_EQ(grpc_timeout(100'000'001ns), "100001u");
  EXPECT_EQ(grpc_timeout(500ms), "500000u");
  EXPECT_EQ(grpc_timeout(100s), "100000m");
  EXPECT_EQ(grpc_timeout(-5s), "1n");
  EXPECT_EQ(grpc_timeout(duration::max()), "2562048H");
}

TEST(timeouts, grpc_reads_every_unit_and_nothing_else) {
  EXPECT_EQ(parse_grpc_timeout("1H"), 1h);
  EXPECT_EQ(parse_grpc_timeout("2M"), 2min);
  EXPECT_EQ(parse_grpc_timeout("3S"), 3s);
  EXPECT_EQ(parse_grpc_timeout("4m"), 4ms);
  EXPECT_EQ(parse_grpc_timeout("5u"), 5us);
  EXPECT_EQ(parse_grpc_timeout("6n"), 6ns);
  EXPECT_EQ(parse_grpc_timeout("99999999H"), duration::max());
  for (const char* text : {"", "1", "H", "123456789n", "-1S", "+1S", "1 S", "1s", "1.5S", "1SS"})
    EXPECT_FALSE(parse_grpc_timeout(text)) << text;
}

TEST(timeouts, connect_counts_milliseconds) {
  EXPECT_EQ(connect_timeout(500ms), "500");
  EXPECT_EQ(connect_timeout(499'000'001ns), "500");
  EXPECT_EQ(connect_timeout(0ns), "1");
  EXPECT_EQ(connect_timeout(-1s), "1");
  EXPECT_EQ(connect_timeout(duration::max()), "9999999999");
  EXPECT_EQ(parse_connect_timeout("0"), 0ns);
  EXPECT_EQ(parse_connect_timeout("1500"), 1500ms);
  EXPECT_EQ(parse_connect_timeout("9999999999"), 9'999'999'999ms);
  for (const char* text : {"", "12345678901", "-1", "1.0", " 1", "1m"})
    EXPECT_FALSE(parse_connect_timeout(text)) << text;
}

// Codes
// ----------------------------------------------------------------------------------------------

TEST(codes, every_code_has_a_connect_name_and_status) {
  for (std::uint64_t number = 1; number <= 16; ++number) {
    const code c = code_from_number(number);
    EXPECT_EQ(code_from_connect(connect_name(c)), c);
    EXPECT_GE(connect_http_status(c), 400);
  }
  EXPECT_EQ(connect_name(code::cancelled), "canceled");
  EXPECT_EQ(connect_http_status(code::deadline_exceeded), 504);
  EXPECT_EQ(connect_http_status(code::failed_precondition), 400);
  EXPECT_EQ(connect_http_status(code::unimplemented), 501);
  EXPECT_FALSE(code_from_connect("ok"));
  EXPECT_FALSE(code_from_connect("cancelled"));
}

TEST(codes, from_http) {
  const std::pair<int, code> table[] = {
      {400, code::internal},      {401, code::unauthenticated}, {403, code::permission_denied},
      {404, code::unimplemented}, {408, code::unknown},         {409, code::unknown},
      {412, code::unknown},       {429, code::unavailable},     {431, code::unknown},
      {500, code::unknown},       {501, code::unknown},         {502, code::unavailable},
      {503, code::unavailable},   {504, code::unavailable},     {302, code::unknown}};
  for (const auto& [number, wanted] : table)
    EXPECT_EQ(code_from_http(static_cast<std::uint16_t>(number)), wanted) << number;
}

TEST(codes, an_error_page_is_told_with_its_type) {
  EXPECT_EQ(status_from_http(502, "").message(), "the server answered with HTTP status 502");
  const status page = status_from_http(404, "text/html");
  EXPECT_EQ(page.code(), code::unimplemented);
  EXPECT_EQ(page.message(),
            "the server answered with HTTP status 404 and content of type \"text/html\"");
  EXPECT_LT(status_from_http(404, std::string(10'000, 'x')).message().size(), 200u);
}

// Encodings
// ------------------------------------------------------------------------------------------

TEST(encodings, accepted_lists_keep_the_peers_order) {
  const std::vector all{compression::zstd, compression::gzip, compression::br};
  EXPECT_EQ(parse_accepted("gzip,br", all), (std::vector{compression::gzip, compression::br}));
  EXPECT_EQ(parse_accepted(" br ; q=0.5 , gzip;q=0, identity, snappy, zstd, zstd", all),
            (std::vector{compression::br, compression::zstd}));
  EXPECT_EQ(parse_accepted("gzip, br", std::vector{compression::br}),
            (std::vector{compression::br}));
  EXPECT_TRUE(parse_accepted("", all).empty());
  EXPECT_TRUE(parse_accepted(",,;q=1,", all).empty());
  EXPECT_EQ(accepted_list(all), "zstd, gzip, br");
}

// Metadata
// -------------------------------------------------------------------------------------------

TEST(metadata_fields, travel_there_and_back) {
  const metadata sent{{"x-text", "a value"},
                      {"x-bytes-bin", std::string{"\0\xff\n", 3}},
                      {"x-text", "another"},
                      {"x-empty", ""},
                      {"x-empty-bin", ""}};
  weft::http::field_list fields;
  append_metadata(fields, sent);
  EXPECT_EQ(fields.find("x-bytes-bin"), "AP8K");
  metadata received;
  ASSERT_TRUE(read_metadata(received, fields, 16'384));
  EXPECT_EQ(received, sent);
}

TEST(metadata_fields, reserved_names_neither_leave_nor_arrive) {
  metadata sent;
  weft::http::field_list arrived;
  for (const char* name :
       {"content-type", "grpc-status", "connect-timeout-ms", "te", "host", "connection",
        "content-length", "grpc-timeout", "accept-encoding", "alt-svc"}) {
    ASSERT_TRUE(sent.add(name, "x"));
    arrived.add_valid(name, "x");
  }
  ASSERT_TRUE(sent.add("grpc-previous-rpc-attempts", "1"));
  weft::http::field_list fields;
  append_metadata(fields, sent);
  ASSERT_EQ(fields.size(), 1u);
  EXPECT_EQ(fields[0].name, "grpc-previous-rpc-attempts");
  metadata received;
  ASSERT_TRUE(read_metadata(received, arrived, 16'384));
  EXPECT_TRUE(received.empty());
}

TEST(metadata_fields, binary_values_may_be_padded_and_joined) {
  weft::http::field_list fields{{"a-bin", "Zg=="}, {"b-bin", "Zg, Zm8= ,Zm9v"}};
  metadata received;
  ASSERT_TRUE(read_metadata(received, fields, 16'384));
  EXPECT_EQ(received,
            (metadata{{"a-bin", "f"}, {"b-bin", "f"}, {"b-bin", "fo"}, {"b-bin", "foo"}}));
  weft::http::field_list bad{{"a-bin", "%%%"}};
  auto refused = read_metadata(received, bad, 16'384);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), code::internal);
}

TEST(metadata_fields, prefixes_tell_trailers_from_headers) {
  weft::http::field_list fields;
  append_metadata(fields, metadata{{"x-head", "1"}});
  append_metadata(fields, metadata{{"x-tail", "2"}, {"x-tail-bin", "f"}}, "trailer-");
  EXPECT_EQ(fields.find("trailer-x-tail-bin"), "Zg");
  fields.add_valid("trailer-connect-secret", "3");
  metadata headers, trailers;
  ASSERT_TRUE(read_metadata(headers, fields, 16'384, "trailer-"));
  ASSERT_TRUE(read_prefixed(trailers, fields, 16'384, "trailer-"));
  EXPECT_EQ(headers, (metadata{{"x-head", "1"}}));
  EXPECT_EQ(trailers, (metadata{{"x-tail", "2"}, {"x-tail-bin", "f"}}));
}

TEST(metadata_fields, have_a_limit) {
  weft::http::field_list fields{{"a", "12345"}, {"b", "12345"}};
  metadata received;
  EXPECT_TRUE(read_metadata(received, fields, 2 * 38));
  metadata again;
  auto refused = read_metadata(again, fields, 2 * 38 - 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), code::resource_exhausted);
}

TEST(metadata_fields, joined_values_count_with_the_name_that_each_of_them_gets) {
  const std::string name = std::string(100, 'n') + "-bin";
  weft::http::field_list fields;
  fields.add_valid(name, std::string(99, ','));
  metadata received;
  EXPECT_TRUE(read_metadata(received, fields, 100 * (name.size() + 32)));
  EXPECT_EQ(received.size(), 100u);
  for (const std::size_t limit : {std::size_t{1000}, 100 * (name.size() + 32) - 1}) {
    metadata again;
    auto refused = read_metadata(again, fields, limit);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), code::resource_exhausted);
    EXPECT_LE(again.wire_size(), limit);
  }
}

TEST(metadata_fields, what_is_no_visible_ascii_is_left_out) {
  weft::http::field_list fields;
  fields.add_valid("x-name", "caf\xc3\xa9");
  fields.add_valid("x-good", "yes");
  metadata received;
  ASSERT_TRUE(read_metadata(received, fields, 16'384));
  EXPECT_EQ(received, (metadata{{"x-good", "yes"}}));
}

// Error JSON
// -----------------------------------------------------------------------------------------

TEST(error_json, travels_there_and_back) {
  const status sent{code::not_found,
                    "no \"such\" thing: caf\xc3\xa9",
                    {{"google.rpc.RetryInfo", std::string{"\0\xff", 2}}, {"a.B", ""}}};
  const std::string text = error_to_json(sent);
  EXPECT_TRUE(text.contains(R"("value":"AP8")")) << text;  // unpadded
  EXPECT_EQ(error_from_json(text, code::unknown), sent);
}

TEST(error_json, has_no_keys_without_content) {
  EXPECT_EQ(error_to_json({code::cancelled}), R"({"code":"canceled"})");
  EXPECT_EQ(end_to_json({}, {}), "{}");
}

TEST(error_json, text_that_is_no_utf8_is_replaced) {
  const auto back = error_from_json(error_to_json({code::unknown, "\xff!"}), code::internal);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->message(), "\xef\xbf\xbd!");
}

TEST(error_json, code_missing_null_or_unheard_of_is_inferred) {
  for (const char* text : {R"({})", R"({"message":"m"})", R"({"code":null,"message":"m"})",
                           R"({"code":"teapot"})", R"({"code":7})", R"({"code":"cancelled"})"}) {
    const auto parsed = error_from_json(text, code::unavailable);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(parsed->code(), code::unavailable) << text;
  }
}

TEST(error_json, unknown_keys_and_debug_are_ignored) {
  const auto parsed = error_from_json(
      R"({"code":"aborted","extra":[1],"details":[
          {"type":"a.B","value":"Zg==","debug":{"@type":"nonsense","x":[null]},"y":1},
          {"type":"type.googleapis.com/c.D","value":"Zg"},
          {"type":7,"value":"Zg"}, {"type":"e.F","value":"%"}, "no object"]})",
      code::unknown);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(*parsed, (status{code::aborted, "", {{"a.B", "f"}, {"c.D", "f"}}}));
}

TEST(error_json, what_is_no_object_is_refused) {
  for (const char* text : {"", "null", "[]", "\"error\"", "{", "{\"code\":}", "<html>", "{} x"})
    EXPECT_FALSE(error_from_json(text, code::unknown)) << text;
}

TEST(error_json, deep_nesting_is_refused_without_recursion) {
  const std::string deep =
      R"({"code":"aborted","x":)" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}";
  EXPECT_FALSE(error_from_json(deep, code::unknown));
  EXPECT_FALSE(end_from_json(deep.substr(0, 500'000)));
}

TEST(end_json, travels_there_and_back) {
  const metadata trailers{{"x-a", "1"}, {"x-a", "2"}, {"x-b-bin", std::string{"\0", 1}}};
  const std::string text = end_to_json({code::aborted, "m"}, trailers);
  const auto end = end_from_json(text);
  ASSERT_TRUE(end) << text;
  EXPECT_EQ(end->status, (status{code::aborted, "m"}));
  EXPECT_EQ(end->trailers, trailers);
}

TEST(end_json, an_error_of_null_is_success) {
  EXPECT_TRUE(end_from_json(R"({"error":null,"metadata":null})")->status.ok());
  EXPECT_TRUE(end_from_json("{}")->status.ok());
}

TEST(end_json, code_missing_null_or_unheard_of_is_unknown) {
  for (const char* text : {R"({"error":{}})", R"({"error":{"code":null}})",
                           R"({"error":{"code":"teapot","message":"m"}})"}) {
    const auto end = end_from_json(text);
    ASSERT_TRUE(end) << text;
    EXPECT_EQ(end->status.code(), code::unknown) << text;
  }
}

TEST(end_json, malformed_is_refused) {
  for (const char* text : {"", "[]", "{", R"({"error":"text"})", R"({"metadata":[]})",
                           R"({"metadata":{"a":"not a list"}})", R"({"metadata":{"a":[1]}})",
                           R"({"metadata":{"a-bin":["%"]}})"})
    EXPECT_FALSE(end_from_json(text)) << text;
}

// Half a megabyte of name for each of 131 072 values would fit no machine.
TEST(end_json, metadata_is_bounded_while_it_is_read) {
  for (const std::string& key : {std::string(1 << 19, 'k'), std::string(1 << 19, 'k') + "-bin"}) {
    std::string values = "\"" + std::string(1 << 17, ',') + "\"";
    for (int i = 0; i < 1 << 17; ++i) values += ",\"\"";
    const auto end = end_from_json("{\"metadata\":{\"" + key + "\":[" + values + "]}}", 4 << 20);
    ASSERT_FALSE(end);
    EXPECT_EQ(end.error().code(), code::resource_exhausted);
  }
}

TEST(end_json, reserved_names_are_left_out_and_letters_lowered) {
  const auto end = end_from_json(R"({"metadata":{"Content-Type":["x"],"X-Mixed":["y"]}})");
  ASSERT_TRUE(end);
  EXPECT_EQ(end->trailers, (metadata{{"x-mixed", "y"}}));
}

}  // namespace
}  // namespace weft::rpc::http::wire
