#include <weft/rpc/core/status.hpp>

#include <gtest/gtest.h>

namespace weft::rpc {
namespace {

TEST(status, codes_have_grpcs_numbers_and_names) {
  EXPECT_EQ(to_string(code::ok), "ok");
  EXPECT_EQ(to_string(code::deadline_exceeded), "deadline_exceeded");
  EXPECT_EQ(static_cast<int>(code::unauthenticated), 16);
  EXPECT_EQ(to_string(code::unauthenticated), "unauthenticated");
  for (std::uint64_t number = 0; number <= 16; ++number)
    EXPECT_EQ(static_cast<std::uint64_t>(code_from_number(number)), number);
}

TEST(status, numbers_nobody_knows_become_unknown) {
  EXPECT_EQ(code_from_number(17), code::unknown);
  EXPECT_EQ(code_from_number(UINT64_MAX), code::unknown);
  EXPECT_EQ(to_string(static_cast<code>(200)), "unknown");
}

TEST(status, says_code_and_message) {
  EXPECT_EQ(status{}.to_string(), "ok");
  EXPECT_EQ((status{code::not_found, "no such user"}.to_string()), "not_found: no such user");
}

TEST(status, carries_details_in_order) {
  status s{code::aborted, "try again"};
  s.add_detail("google.rpc.RetryInfo", std::string{"\x0a\0", 2}).add_detail("x.Y", "");
  ASSERT_EQ(s.details().size(), 2u);
  EXPECT_EQ(s.details()[0].value.size(), 2u);
  EXPECT_EQ(s.details()[1].type, "x.Y");
}

}  // namespace
}  // namespace weft::rpc
