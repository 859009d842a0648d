#include <weft/rpc/core/metadata.hpp>

#include <stdexcept>

#include <gtest/gtest.h>

namespace weft::rpc {
namespace {

TEST(metadata, keeps_order_and_repeats) {
  metadata m;
  ASSERT_TRUE(m.add("a", "1"));
  ASSERT_TRUE(m.add("b", "2"));
  ASSERT_TRUE(m.add("a", "3"));
  EXPECT_EQ(m.find("a"), "1");
  EXPECT_EQ(m.find_all("a"), (std::vector<std::string_view>{"1", "3"}));
  EXPECT_EQ(m.find("c"), std::nullopt);
  EXPECT_EQ(m.erase("a"), 2u);
  EXPECT_EQ(m.size(), 1u);
}

TEST(metadata, keys_are_lower_cased_and_found_in_any_case) {
  metadata m{{"X-Trace", "7"}};
  EXPECT_EQ(m.begin()->first, "x-trace");
  EXPECT_EQ(m.find("X-TRACE"), "7");
}

TEST(metadata, refuses_what_cannot_travel) {
  metadata m;
  for (const char* key : {"", "a b", "a:b", "\xc3\xa4", "a\n"})
    EXPECT_FALSE(m.add(key, "v")) << key;
  for (const char* value : {"line\n", "tab\t", "\xc3\xa4", "\x7f"})
    EXPECT_FALSE(m.add("k", value)) << value;
  EXPECT_FALSE(m.add("k", std::string_view{"\0", 1}));
  EXPECT_TRUE(m.empty());
  EXPECT_THROW((metadata{{"bad key", "v"}}), std::invalid_argument);
}

TEST(metadata, binary_values_are_any_bytes) {
  metadata m;
  const std::string_view bytes{"\0\xff\n", 3};
  ASSERT_TRUE(m.add("Token-Bin", bytes));
  EXPECT_EQ(m.find("token-bin"), bytes);
}

TEST(metadata, wire_size_counts_as_http_does) {
  metadata m{{"ab", "cde"}, {"f", ""}};
  EXPECT_EQ(m.wire_size(), 2u + 3 + 32 + 1 + 32);
}

}  // namespace
}  // namespace weft::rpc
