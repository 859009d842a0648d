#include <weft/rpc/core/compression.hpp>

#include <random>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <zstd.h>

namespace weft::rpc {
namespace {

std::string noise(std::size_t size) {
  std::mt19937_64 random{size};
  std::string text(size, '\0');
  for (auto& c : text) c = static_cast<char>(random());
  return text;
}

class compressions : public testing::TestWithParam<compression> {
 protected:
  slice pack(std::string_view message) {
    auto packed = compress(GetParam(), as_bytes(message));
    EXPECT_TRUE(packed);
    return packed.value_or(slice{});
  }
  result<slice> unpack(const payload& packed, std::size_t limit = 64 << 20) {
    return decompress(GetParam(), packed, limit);
  }
};

TEST_P(compressions, round_trip_of_every_size) {
  for (std::size_t size : {0, 1, 100, 1024, 65'536, 3 << 20}) {
    for (const auto& message : {std::string(size, 'a'), noise(size)}) {
      auto plain = unpack(payload{pack(message)});
      ASSERT_TRUE(plain) << plain.error().to_string();
      EXPECT_EQ(plain->text(), message);
    }
  }
}

TEST_P(compressions, repetition_shrinks) {
  EXPECT_LT(pack(std::string(100'000, 'a')).size(), 1000u);
}

TEST_P(compressions, empty_input_is_an_empty_message) {
  auto plain = unpack(payload{}, 0);
  ASSERT_TRUE(plain);
  EXPECT_TRUE(plain->empty());
}

TEST_P(compressions, arrives_in_parts_of_any_size) {
  const std::string message = noise(5000) + std::string(50'000, 'z');
  const slice whole = pack(message);
  for (std::size_t step : {1, 7, 1000}) {
    payload parts;
    for (std::size_t at = 0; at < whole.size(); at += step)
      parts.append(whole.sub(at, std::min(step, whole.size() - at)));
    auto plain = unpack(parts);
    ASSERT_TRUE(plain) << plain.error().to_string();
    EXPECT_EQ(plain->text(), message);
  }
}

TEST_P(compressions, limit_counts_decompressed_bytes_exactly) {
  for (std::size_t size : {1, 1000, 1024, 1025, 100'000}) {
    const payload packed{pack(std::string(size, 'b'))};
    EXPECT_TRUE(unpack(packed, size)) << size;
    auto over = unpack(packed, size - 1);
    ASSERT_FALSE(over) << size;
    EXPECT_EQ(over.error().code(), code::resource_exhausted);
  }
}

TEST_P(compressions, bombs_end_at_the_limit) {
  const payload bomb{pack(std::string(std::size_t{256} << 20, '\0'))};
  EXPECT_LT(bomb.size(), std::size_t{2} << 20);
  auto plain = unpack(bomb, 1 << 20);
  ASSERT_FALSE(plain);
  EXPECT_EQ(plain.error().code(), code::resource_exhausted);
}

TEST_P(compressions, truncation_at_every_byte_is_internal) {
  const slice whole = pack("a message that is long enough to be cut at many places, many places");
  for (std::size_t size = 1; size < whole.size(); ++size) {
    auto plain = unpack(payload{whole.sub(0, size)});
    ASSERT_FALSE(plain) << size;
    EXPECT_EQ(plain.error().code(), code::internal);
  }
  EXPECT_TRUE(unpack(payload{whole}));  // the context survives
}

TEST_P(compressions, garbage_and_trailing_bytes_are_internal) {
  for (const auto& bytes : {noise(1), noise(64), noise(70'000), std::string(100, '\0')}) {
    auto plain = unpack(payload{slice::copy(bytes)});
    ASSERT_FALSE(plain);
    EXPECT_EQ(plain.error().code(), code::internal);
  }
  payload longer{pack("message")};
  longer.append(slice::copy("x"));
  auto plain = unpack(longer);
  ASSERT_FALSE(plain);
  EXPECT_EQ(plain.error().code(), code::internal);
}

TEST_P(compressions, any_damaged_byte_is_survived) {
  const slice whole = pack(noise(300) + std::string(300, 'q'));
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged{whole.text()};
    damaged[at] ^= 0x55;
    auto plain = unpack(payload{slice::copy(damaged)}, 4096);
    EXPECT_LE(plain.value_or(slice{}).size(), 4096u);
  }
}

TEST_P(compressions, every_thread_has_its_own_contexts) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([this] {
      for (int round = 0; round < 20; ++round) {
        const std::string message = noise(2000 + static_cast<std::size_t>(round));
        auto plain = unpack(payload{pack(message)});
        EXPECT_TRUE(plain && plain->text() == message);
      }
    });
}

INSTANTIATE_TEST_SUITE_P(each, compressions,
                         testing::Values(compression::gzip, compression::zstd, compression::br),
                         [](const auto& which) { return std::string{to_string(which.param)}; });

TEST(compression, concatenated_members_are_one_message) {
  for (const auto algorithm : {compression::gzip, compression::zstd}) {
    payload both{*compress(algorithm, as_bytes("one and "))};
    both.append(*compress(algorithm, as_bytes("another")));
    const slice whole = both.flatten();
    for (const std::size_t cut : {std::size_t{1}, both.part(0).size(), whole.size() - 1}) {
      payload parts{whole.sub(0, cut)};
      parts.append(whole.sub(cut, whole.size() - cut));
      auto plain = decompress(algorithm, parts, 15);
      ASSERT_TRUE(plain) << plain.error().to_string();
      EXPECT_EQ(plain->text(), "one and another");
      EXPECT_FALSE(decompress(algorithm, parts, 14));
    }
  }
}

TEST(compression, names_are_those_of_http) {
  for (const auto each : available_compressions())
    EXPECT_EQ(compression_from_name(to_string(each)), each);
  EXPECT_EQ(compression_from_name("identity"), compression::identity);
  EXPECT_FALSE(compression_from_name("snappy"));
  EXPECT_FALSE(compression_from_name("unknown"));
}

TEST(zstd, streamed_frames_without_a_declared_size) {
  const std::string message = noise(200'000);
  std::string packed(ZSTD_compressBound(message.size()) + 1024, '\0');
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_inBuffer in{message.data(), message.size(), 0};
  ZSTD_outBuffer out{packed.data(), packed.size(), 0};
  while (in.pos < in.size)
    ASSERT_FALSE(ZSTD_isError(ZSTD_compressStream2(context, &out, &in, ZSTD_e_flush)));
  while (ZSTD_compressStream2(context, &out, &in, ZSTD_e_end) != 0) {
  }
  ZSTD_freeCCtx(context);
  packed.resize(out.pos);
  auto plain = decompress(compression::zstd, payload{slice::copy(packed)}, message.size());
  ASSERT_TRUE(plain) << plain.error().to_string();
  EXPECT_EQ(plain->text(), message);
  EXPECT_FALSE(decompress(compression::zstd, payload{slice::copy(packed)}, message.size() - 1));
}

TEST(zstd, claimed_sizes_and_windows_do_not_allocate) {
  // Magic, a frame header that claims 2^40 bytes (single segment, 8-byte size), nothing behind it.
  const std::string huge{"\x28\xb5\x2f\xfd\xe0\0\0\0\0\0\1\0\0", 13};
  auto claimed = decompress(compression::zstd, payload{slice::copy(huge)}, 16 << 20);
  ASSERT_FALSE(claimed);
  EXPECT_EQ(claimed.error().code(), code::resource_exhausted);
  // A window of 2 GiB, no size.
  const std::string window{"\x28\xb5\x2f\xfd\0\xa8\1\0\0", 9};
  auto wide = decompress(compression::zstd, payload{slice::copy(window)}, 16 << 20);
  ASSERT_FALSE(wide);
  EXPECT_EQ(wide.error().code(), code::resource_exhausted);
}

TEST(zstd, formats_before_the_standard_are_refused) {
  // Version 0.7: magic, one segment of 5 bytes, a raw block, the end. libzstd would read it.
  const std::string old{"\x27\xb5\x2f\xfd\x20\x05\x40\0\x05hello\xc0\0\0", 17};
  const slice standard = *compress(compression::zstd, as_bytes("standard "));
  for (const bool second : {false, true}) {
    payload message;
    if (second) message.append(standard);
    message.append(slice::copy(old));
    auto plain = decompress(compression::zstd, message, 100);
    ASSERT_FALSE(plain) << plain->text();
    EXPECT_EQ(plain.error().code(), code::internal);
    const slice whole = message.flatten();
    EXPECT_FALSE(decompress(compression::zstd, payload{whole}, 100));
  }
  // Version 0.6 with a header that makes its decoder allocate 128 MiB.
  const std::string wide = "\x26\xb5\x2f\xfd" + std::string(100, '\x8f');
  EXPECT_FALSE(decompress(compression::zstd, payload{slice::copy(wide)}, 100));
}

TEST(zstd, frames_shorter_than_they_say_are_refused_however_they_are_split) {
  // One segment that says 256 bytes; two empty raw blocks.
  const slice whole = slice::copy(std::string{"\x28\xb5\x2f\xfd\x60\0\0\0\0\0\x01\0\0", 13});
  for (std::size_t cut = 0; cut < whole.size(); ++cut) {
    payload parts{whole.sub(0, cut)};
    parts.append(whole.sub(cut, whole.size() - cut));
    auto plain = decompress(compression::zstd, parts, 1000);
    ASSERT_FALSE(plain) << "cut at " << cut;
    EXPECT_EQ(plain.error().code(), code::internal);
  }
}

TEST(identity, is_bounded_too) {
  EXPECT_EQ(decompress(compression::identity, payload{slice::copy("abc")}, 3)->text(), "abc");
  EXPECT_FALSE(decompress(compression::identity, payload{slice::copy("abcd")}, 3));
}

TEST(compression, numbers_outside_the_enum_are_an_error) {
  const auto nobody = static_cast<compression>(9);
  EXPECT_EQ(to_string(nobody), "unknown");
  EXPECT_FALSE(compress(nobody, as_bytes("x")));
  EXPECT_FALSE(decompress(nobody, payload{slice::copy("x")}, 10));
}

}  // namespace
}  // namespace weft::rpc
