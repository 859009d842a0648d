#include <weft/rpc/codec.hpp>

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/wrappers.pb.h>
#include <gtest/gtest.h>

namespace weft::rpc {
namespace {

namespace pb = google::protobuf;

slice serialized(const outgoing& message) {
  buffer target = buffer::allocate(message.size());
  message.write_to(target.data());
  return std::move(target).freeze();
}

TEST(codec, round_trip) {
  pb::StringValue hello;
  hello.set_value("hello");
  auto encoded = encode(hello);
  ASSERT_TRUE(encoded);
  EXPECT_EQ(encoded->size(), hello.ByteSizeLong());
  auto back = decode<pb::StringValue>(payload{serialized(*encoded)});
  ASSERT_TRUE(back);
  EXPECT_EQ(back->value(), "hello");
}

TEST(codec, the_empty_message_has_no_bytes) {
  auto encoded = encode(pb::StringValue{});
  ASSERT_TRUE(encoded);
  EXPECT_EQ(encoded->size(), 0u);
  EXPECT_TRUE(decode<pb::StringValue>(payload{}));
}

TEST(codec, parses_across_parts_of_any_size) {
  pb::FileDescriptorProto file;
  pb::FileDescriptorProto::descriptor()->file()->CopyTo(&file);
  const slice whole = serialized(*encode(file));
  for (std::size_t step : {1, 2, 3, 64, 1000}) {
    payload parts;
    for (std::size_t at = 0; at < whole.size(); at += step)
      parts.append(whole.sub(at, std::min(step, whole.size() - at)));
    auto back = decode<pb::FileDescriptorProto>(parts);
    ASSERT_TRUE(back) << step;
    EXPECT_EQ(back->SerializeAsString(), whole.text());
  }
}

TEST(codec, what_does_not_parse_names_the_type) {
  payload parts{slice::copy("\x0a\x05he")};
  auto one = decode<pb::StringValue>(parts);
  ASSERT_FALSE(one);
  EXPECT_EQ(one.error().code(), code::invalid_argument);
  EXPECT_NE(one.error().message().find("google.protobuf.StringValue"), std::string::npos);
  parts.append(slice::copy("l"));
  EXPECT_FALSE(decode<pb::StringValue>(parts));
  parts.append(slice::copy("lo"));
  EXPECT_TRUE(decode<pb::StringValue>(parts));
}

TEST(codec, missing_required_fields_are_a_defect_of_the_sender) {
  pb::UninterpretedOption::NamePart part;
  auto encoded = encode(part);
  ASSERT_FALSE(encoded);
  EXPECT_EQ(encoded.error().code(), code::internal);
}

payload json_payload(std::string_view text) {
  payload from{slice::copy(text)};
  from.set_codec(codec::json);
  return from;
}

TEST(codec, json_round_trip) {
  pb::MethodOptions options;
  options.set_idempotency_level(pb::MethodOptions::IDEMPOTENT);
  auto text = encode(options)->json();
  ASSERT_TRUE(text) << text.error().to_string();
  EXPECT_EQ(*text, R"({"idempotencyLevel":"IDEMPOTENT"})");
  auto back = decode<pb::MethodOptions>(json_payload(*text));
  ASSERT_TRUE(back) << back.error().to_string();
  EXPECT_EQ(back->idempotency_level(), pb::MethodOptions::IDEMPOTENT);
}

TEST(codec, json_with_fields_of_a_later_schema_is_read) {
  auto back = decode<pb::MethodOptions>(json_payload(R"({"deprecated":true,"tomorrow":[1,{}]})"));
  ASSERT_TRUE(back) << back.error().to_string();
  EXPECT_TRUE(back->deprecated());
}

TEST(codec, what_is_not_json_names_the_type_and_the_cause) {
  for (std::string_view bad : {"", "{", "[]", R"({"deprecated":"perhaps"})", "\x08\x96\x01"}) {
    auto back = decode<pb::MethodOptions>(json_payload(bad));
    ASSERT_FALSE(back) << bad;
    EXPECT_EQ(back.error().code(), code::invalid_argument);
    EXPECT_NE(back.error().message().find("google.protobuf.MethodOptions"), std::string::npos);
  }
}

TEST(codec, json_nested_without_end_is_refused) {
  std::string deep = R"({"a":)";
  for (int i = 0; i < 100'000; ++i) deep += "[";
  EXPECT_FALSE(decode<pb::MethodOptions>(json_payload(deep)));
}

TEST(codec, bytes_that_are_ready_have_no_json_form) {
  auto text = outgoing{as_bytes("ready")}.json();
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code(), code::internal);
}

}  // namespace
}  // namespace weft::rpc
