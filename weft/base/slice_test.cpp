#include <weft/base/slice.hpp>

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace weft {
namespace {

TEST(slice_test, copies_share_memory_until_the_last_one_goes) {
  slice first = slice::copy("hello, world");
  const slice second = first;
  const std::byte* where = first.data();
  first = {};
  EXPECT_EQ(second.data(), where);
  EXPECT_EQ(second.text(), "hello, world");
}

TEST(slice_test, sub_and_take_front_share) {
  slice whole = slice::copy("abcdef");
  const slice middle = whole.sub(2, 3);
  const slice head = whole.take_front(2);
  EXPECT_EQ(middle.text(), "cde");
  EXPECT_EQ(head.text(), "ab");
  EXPECT_EQ(whole.text(), "cdef");
}

TEST(slice_test, adopting_a_string_does_not_move_its_bytes) {
  std::string text(1000, 'x');
  const char* where = text.data();
  const slice adopted = slice::adopt(std::move(text));
  EXPECT_EQ(reinterpret_cast<const char*>(adopted.data()), where);
  EXPECT_EQ(adopted.size(), 1000u);
}

TEST(slice_test, empty_sources_make_empty_slices) {
  EXPECT_TRUE(slice::copy("").empty());
  EXPECT_TRUE(slice::adopt("").empty());
  EXPECT_TRUE(slice{}.empty());
}

TEST(slice_test, may_die_on_another_thread) {
  slice made = slice::copy(std::string(5000, 'y'));
  std::thread other{[moved = std::move(made)]() mutable {
    EXPECT_EQ(moved.size(), 5000u);
    moved = {};
  }};
  other.join();
}

TEST(buffer_test, sizes_of_every_class_are_writable_and_exact) {
  for (std::size_t size : {0, 1, 63, 64, 65, 4096, 65'472, 65'473, 1 << 20, (8 << 20) + 1}) {
    buffer memory = buffer::allocate(size);
    ASSERT_EQ(memory.size(), size);
    if (size) std::memset(memory.data(), 0xab, size);
    EXPECT_EQ(std::move(memory).freeze().size(), size);
  }
}

TEST(buffer_test, freed_memory_is_used_again) {
  const std::byte* where = nullptr;
  {
    buffer first = buffer::allocate(3000);
    where = first.data();
  }
  buffer second = buffer::allocate(3000);
  EXPECT_EQ(second.data(), where);
}

TEST(arena_test, extends_only_its_latest_slice) {
  arena chunks{4096};
  slice a = chunks.copy(as_bytes("one"));
  ASSERT_TRUE(chunks.extend(a, as_bytes(" two")));
  EXPECT_EQ(a.text(), "one two");
  slice b = chunks.copy(as_bytes("other"));
  EXPECT_FALSE(chunks.extend(a, as_bytes(" three")));
  EXPECT_TRUE(chunks.extend(b, as_bytes("!")));
  EXPECT_EQ(a.text(), "one two");
  EXPECT_EQ(b.text(), "other!");
}

TEST(arena_test, extending_a_shared_slice_leaves_the_other_copy_as_it_was) {
  arena chunks{4096};
  slice tail = chunks.copy(as_bytes("abc"));
  const slice copy = tail;
  ASSERT_TRUE(chunks.extend(tail, as_bytes("def")));
  EXPECT_EQ(copy.text(), "abc");
  EXPECT_EQ(tail.text(), "abcdef");
}

TEST(arena_test, extending_by_nothing_is_fine_even_without_a_chunk) {
  arena chunks{1024};
  slice tail;
  EXPECT_TRUE(chunks.extend(tail, {}));
  EXPECT_TRUE(tail.empty());
}

TEST(arena_test, moves_on_to_a_new_chunk_and_keeps_old_slices_alive) {
  arena chunks{1024};
  std::vector<slice> kept;
  for (int i = 0; i < 100; ++i)
    kept.push_back(chunks.copy(as_bytes(std::string(100, 'a' + i % 26))));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(kept[i].text(), std::string(100, 'a' + i % 26));
}

TEST(arena_test, large_pieces_get_memory_of_their_own) {
  arena chunks{1024};
  const std::string large(4000, 'z');
  EXPECT_EQ(chunks.copy(as_bytes(large)).text(), large);
}

}  // namespace
}  // namespace weft
