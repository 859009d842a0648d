#include <weft/rpc/core/payload.hpp>

#include <gtest/gtest.h>

namespace weft::rpc {
namespace {

TEST(payload, one_part_is_shared_not_copied) {
  const slice only = slice::copy("hello");
  payload p{only};
  EXPECT_TRUE(p.contiguous());
  EXPECT_EQ(p.flatten().data(), only.data());
}

TEST(payload, parts_are_joined_in_order_and_empty_ones_dropped) {
  payload p;
  EXPECT_EQ(p.parts(), 0u);
  for (const char* part : {"", "he", "", "l", "lo"}) p.append(slice::copy(part));
  EXPECT_EQ(p.parts(), 3u);
  EXPECT_EQ(p.size(), 5u);
  EXPECT_FALSE(p.contiguous());
  EXPECT_EQ(p.flatten().text(), "hello");
}

TEST(outgoing, writes_ready_bytes_and_messages) {
  std::array<std::byte, 3> target{};
  outgoing{as_bytes("abc")}.write_to(target.data());
  EXPECT_EQ(as_text(target), "abc");
  const char fill = 'x';
  outgoing{&fill, 3,
           [](const void* message, std::byte* to, std::size_t size) {
             std::memset(to, *static_cast<const char*>(message), size);
           }}
      .write_to(target.data());
  EXPECT_EQ(as_text(target), "xxx");
  outgoing{bytes{}}.write_to(nullptr);
}

}  // namespace
}  // namespace weft::rpc
