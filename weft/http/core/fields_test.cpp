#include <weft/http/core/fields.hpp>

#include <gtest/gtest.h>

namespace weft::http {
namespace {

TEST(field_list, keeps_order_and_repetition) {
  field_list list{{"Content-Type", "application/grpc"}, {"x", "1"}, {"x", "2"}, {"empty", ""}};
  ASSERT_EQ(list.size(), 4u);
  EXPECT_EQ(list[0].name, "content-type");
  EXPECT_EQ(list[1].value, "1");
  EXPECT_EQ(list[2].value, "2");
  EXPECT_EQ(list.find("x"), "1");
  EXPECT_EQ(list.find("empty"), "");
  EXPECT_EQ(list.find("none"), std::nullopt);
  EXPECT_EQ(list.section_size(), 12 + 16 + 2 + 2 + 5 + 4 * 32u);
  std::string names;
  for (const field each : list) names += each.name;
  EXPECT_EQ(names, "content-typexxempty");
}

TEST(field_list, takes_nothing_that_cannot_travel) {
  field_list list;
  EXPECT_FALSE(list.add("", "v"));
  EXPECT_FALSE(list.add("a b", "v"));
  EXPECT_FALSE(list.add(":path", "v"));
  EXPECT_FALSE(list.add("a", "x\r\ny: z"));
  EXPECT_FALSE(list.add("a", std::string_view{"x\0y", 3}));
  EXPECT_FALSE(list.add("a", " x"));
  EXPECT_FALSE(list.add("a", "x\t"));
  EXPECT_TRUE(list.empty());
  EXPECT_TRUE(list.add("a", "\xc3\xa9 with spaces"));
}

TEST(give_up, numbers_of_both_versions) {
  for (give_up why : {give_up::no_error, give_up::cancelled, give_up::rejected,
                      give_up::excessive_load, give_up::internal, give_up::protocol}) {
    EXPECT_EQ(from_h3(to_h3(why)), why);
    EXPECT_EQ(from_h2(to_h2(why)), why);
  }
  EXPECT_EQ(from_h3(0), give_up::protocol);
  EXPECT_EQ(from_h2(99), give_up::protocol);
  EXPECT_EQ(to_h3(give_up::cancelled), 0x10cu);
  EXPECT_EQ(to_h2(give_up::cancelled), 8u);
}

}  // namespace
}  // namespace weft::http
