#include <weft/base/address.hpp>

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(address_test, parses_and_prints_both_families) {
  for (const char* text : {"127.0.0.1:8443", "0.0.0.0:0", "[::1]:8443", "[2001:db8::7]:65535"}) {
    const auto parsed = address::parse(text);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(parsed->to_string(), text);
  }
}

TEST(address_test, keeps_the_scope) {
  const auto parsed = address::parse("[fe80::1%2]:9");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->scope(), 2u);
  EXPECT_EQ(parsed->to_string(), "[fe80::1%2]:9");
}

TEST(address_test, says_what_is_wrong_with_what_it_was_given) {
  for (const char* text :
       {"", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "localhost:1",
        "::1:80", "[::1]", "[::1:80", "[127.0.0.1]:1", "127.0.0.1:80x", "[fe80::1%x]:1", "[]:1"}) {
    const auto parsed = address::parse(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code(), errc::invalid_argument);
    EXPECT_NE(parsed.error().message().find("is not an address"), std::string::npos);
  }
}

TEST(address_test, knows_loopback) {
  EXPECT_TRUE(address::parse("127.8.9.1:1")->is_loopback());
  EXPECT_TRUE(address::parse("[::1]:1")->is_loopback());
  EXPECT_TRUE(address::parse("[::ffff:127.0.0.1]:1")->is_loopback());
  EXPECT_FALSE(address::parse("128.0.0.1:1")->is_loopback());
  EXPECT_FALSE(address::parse("[::2]:1")->is_loopback());
  EXPECT_FALSE(address{}.is_loopback());
}

TEST(address_test, compares_by_value) {
  EXPECT_EQ(address::parse("10.0.0.1:5")->with_port(6), *address::parse("10.0.0.1:6"));
  EXPECT_NE(*address::parse("10.0.0.1:5"), *address::parse("10.0.0.2:5"));
}

}  // namespace
}  // namespace weft
