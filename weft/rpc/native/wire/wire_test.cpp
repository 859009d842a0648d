#include <gtest/gtest.h>

#include <weft/rpc/native/wire/call_parser.hpp>
#include <weft/rpc/native/wire/control.hpp>
#include <weft/rpc/native/wire/record.hpp>

namespace weft::rpc::native::wire {
namespace {

using byte_vector = std::vector<std::byte>;

byte_vector operator+(byte_vector a, const byte_vector& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
byte_vector raw(std::initializer_list<int> values) {
  byte_vector out;
  for (int v : values) out.push_back(std::byte(v));
  return out;
}
template <class Encode>
byte_vector encoded_by(std::size_t size, Encode encode) {
  byte_vector out(size);
  EXPECT_EQ(encode(out.data()), out.data() + size);
  return out;
}
byte_vector frame(std::uint64_t type, const byte_vector& content) {
  byte_vector out(16);
  std::byte* end = put_varint(put_varint(out.data(), type), content.size());
  out.resize(static_cast<std::size_t>(end - out.data()));
  return out + content;
}
byte_vector request(const request_header& h) {
  return encoded_by(encoded_size(h), [&](std::byte* at) { return encode(h, at); });
}
byte_vector status_frame(const status& s, const metadata& trailers = {}) {
  return encoded_by(encoded_size(s, trailers),
                    [&](std::byte* at) { return encode(s, trailers, at); });
}

struct parsed {
  std::vector<call_event> events;
  std::optional<error> failure;
};
parsed parse(call_parser& parser, bytes input, std::size_t step, bool finish = true) {
  parsed out;
  const auto drain = [&] {
    while (true) {
      auto event = parser.next();
      if (!event) {
        out.failure = event.error();
        return false;
      }
      if (!*event) return true;
      out.events.push_back(std::move(**event));
    }
  };
  while (!input.empty()) {
    const std::size_t count = std::min(step, input.size());
    parser.push(slice::copy(input.first(count)));
    input = input.subspan(count);
    if (!drain()) return out;
  }
  if (finish) {
    parser.finish();
    drain();
  }
  return out;
}
parsed parse(call_parser::side from, const byte_vector& input, std::size_t step = 1 << 20,
             parse_limits limits = {}, memory_budget* budget = nullptr) {
  call_parser parser{from, limits, budget};
  return parse(parser, input, step);
}
constexpr auto client = call_parser::side::client;
constexpr auto server = call_parser::side::server;

TEST(varint, all_sizes_survive) {
  for (std::uint64_t v : {0ull, 63ull, 64ull, 16383ull, 16384ull, 1073741823ull, 1073741824ull,
                          static_cast<unsigned long long>(max_varint)}) {
    std::array<std::byte, 8> memory;
    EXPECT_EQ(put_varint(memory.data(), v), memory.data() + varint_size(v));
    EXPECT_EQ(decode_varint(memory.data()), v);
    cursor in{bytes{memory}.first(varint_size(v) - 1)};
    in.varint();
    EXPECT_TRUE(in.failed());
  }
}

TEST(call_parser, reads_a_request_however_it_is_split) {
  const metadata m{{"key", "value"}, {"x-bin", std::string("\0\xff", 2)}};
  const request_header h{{3, "/t.T/Echo"}, std::chrono::milliseconds{1500}, 1, &m};
  const byte_vector input = request(h) + frame(77, raw({1, 2, 3})) + frame(0, raw({1, 2, 3, 4})) +
                            frame(0, {}) + frame(0, byte_vector(100'000));
  for (std::size_t step : {1u, 2u, 3u, 5u, 1000u, 9000u, 1u << 20}) {
    memory_budget budget{1 << 20};
    auto out = parse(client, input, step, {}, &budget);
    ASSERT_FALSE(out.failure) << out.failure->to_string();
    ASSERT_EQ(out.events.size(), 5u);
    const auto& r = std::get<received_request>(out.events[0]);
    EXPECT_EQ(r.method.number, 3u);
    EXPECT_EQ(r.remaining, std::chrono::milliseconds{1500});
    EXPECT_EQ(r.urgency, 1);
    EXPECT_EQ(r.metadata, m);
    EXPECT_EQ(std::get<received_message>(out.events[1]).content.size(), 4u);
    EXPECT_EQ(std::get<received_message>(out.events[2]).content.size(), 0u);
    EXPECT_EQ(std::get<received_message>(out.events[3]).content.size(), 100'000u);
    EXPECT_TRUE(std::holds_alternative<call_end>(out.events[4]));
    EXPECT_EQ(budget.used(), 0u);
  }
}

TEST(call_parser, every_truncation_is_one_error) {
  const metadata m{{"key", "value"}};
  const byte_vector head = request({{1, "/t/m"}, std::chrono::seconds{1}, 0, &m});
  const byte_vector whole = head + frame(1, raw({2, 9, 9}));
  for (std::size_t cut = 0; cut < whole.size(); ++cut) {
    auto out = parse(client, byte_vector(whole.begin(), whole.begin() + long(cut)));
    EXPECT_EQ(!out.failure, cut == head.size()) << cut;
  }
  const byte_vector reply = frame(2, {}) + frame(0, raw({7})) +
                            status_frame(status{code::aborted, "so"}.add_detail("T", "v"), m);
  for (std::size_t cut = 0; cut < reply.size(); ++cut)
    EXPECT_TRUE(parse(server, byte_vector(reply.begin(), reply.begin() + long(cut))).failure)
        << cut;
  auto out = parse(server, reply, 1);
  ASSERT_FALSE(out.failure);
  const auto& s = std::get<received_status>(out.events.back());
  EXPECT_EQ(s.status, status(code::aborted, "so", {{"T", "v"}}));
  EXPECT_EQ(s.trailers, m);
}

TEST(call_parser, truncated_fields_inside_whole_frames_are_errors) {
  const metadata m{{"key", "value"}};
  const byte_vector whole = request({{1, "/t/m"}, std::chrono::seconds{1}, 0, &m});
  const byte_vector content(whole.begin() + 2, whole.end());
  std::size_t accepted = 0;
  for (std::size_t cut = 0; cut < content.size(); ++cut)
    accepted +=
        !parse(client, frame(2, byte_vector(content.begin(), content.begin() + long(cut)))).failure;
  EXPECT_EQ(accepted, 3u);  // behind the path, and behind each field but the last
}

TEST(call_parser, order_is_checked) {
  const byte_vector head = request({{0, "/t/m"}});
  EXPECT_TRUE(parse(client, frame(0, {})).failure);
  EXPECT_TRUE(parse(client, head + head).failure);
  EXPECT_TRUE(parse(client, head + frame(3, {})).failure);
  EXPECT_TRUE(parse(client, {}).failure);
  EXPECT_TRUE(parse(server, frame(3, {}) + frame(0, {})).failure);
  EXPECT_TRUE(parse(server, frame(0, {}) + frame(2, {}) + frame(3, {})).failure);
  EXPECT_FALSE(parse(server, frame(3, {}) + frame(99, raw({1}))).failure);
}

TEST(call_parser, lengths_are_judged_before_anything_is_kept) {
  const byte_vector head = request({{0, "/t/m"}});
  memory_budget budget{1000};
  const auto huge = raw({0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff});
  EXPECT_EQ(parse(client, head + huge).failure->code(), errc::too_large);
  const auto over =
      parse(client, head + raw({0, 0x48, 0}), 1 << 20, {.max_message = 4000}, &budget);
  EXPECT_EQ(over.failure->code(), errc::exhausted);
  EXPECT_EQ(budget.used(), 0u);
  EXPECT_EQ(parse(client, raw({2, 0x80, 1, 0, 0})).failure->code(), errc::too_large);
  byte_vector bomb = raw({0, 2, '/', 'm', 0});
  byte_vector entries;
  for (int i = 0; i < 200; ++i) entries = entries + raw({1, 'a', 0});
  bomb.resize(4);
  bomb = bomb + frame(0, entries);
  EXPECT_EQ(parse(client, frame(2, bomb), 1 << 20, {.max_metadata = 4096}).failure->code(),
            errc::too_large);
}

TEST(header, bad_contents_are_malformed) {
  for (const auto& content :
       {raw({}), raw({1, 1, '/'}), raw({0, 1, 'x'}), raw({0, 0}), raw({0, 1, '/', 1, 0}),
        raw({0, 1, '/', 1, 2, 1, 1}), raw({0, 1, '/', 0, 3, 1, 'A', 0})})
    EXPECT_FALSE(decode_request(content, 4096));
  EXPECT_TRUE(decode_request(raw({2, 63, 1, 0}), 4096));  // an unknown field
}

TEST(header, repeated_metadata_fields_count_together) {
  const auto content = raw({2}) + raw({0, 3, 1, 'a', 0}) + raw({0, 3, 1, 'b', 0});
  EXPECT_EQ(decode_request(content, 66)->metadata.size(), 2u);
  EXPECT_EQ(decode_request(content, 65).error().code(), errc::too_large);
}

// Counting anew what is held for each field would take minutes here.
TEST(header, metadata_fields_that_add_nothing_cost_nothing) {
  constexpr std::size_t entries = 100'000, fields = 2'000'000;
  byte_vector pairs;
  for (std::size_t i = 0; i < entries; ++i) {
    pairs.insert(pairs.end(), {std::byte{1}, std::byte{'a'}, std::byte{0}});
  }
  byte_vector content = raw({2}) + frame(0, pairs);
  content.resize(content.size() + 2 * fields);  // empty metadata fields
  const auto read = decode_request(content, entries * 33);
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->metadata.size(), entries);
}

TEST(header, sizes_are_what_the_specification_says) {
  EXPECT_EQ(status_frame({}).size(), 2u);
  EXPECT_EQ(request({{7, {}}}).size(), 3u);
  EXPECT_EQ(request({{7, {}}, std::chrono::milliseconds{200}}).size(), 3u + 6u);
}

TEST(header, a_refusal_says_that_the_call_was_not_looked_at) {
  const status why{code::unavailable, "elsewhere, please"};
  std::vector<std::byte> frame(encoded_size_of_refusal(why));
  EXPECT_EQ(encode_refusal(why, frame.data()), frame.data() + frame.size());
  auto read = decode_status(bytes{frame}.subspan(2), 1000);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->status, why);
  EXPECT_TRUE(read->unseen);
  // No status of a handler's says so.
  frame.resize(encoded_size(why, {}));
  encode(why, {}, frame.data());
  EXPECT_FALSE(decode_status(bytes{frame}.subspan(2), 1000)->unseen);
}

TEST(header, a_refusal_is_as_long_as_it_says_whatever_its_status) {
  status detailed{code::unavailable, "elsewhere, please"};
  detailed.add_detail("T", "a detail");
  for (const status& why : {status{}, status{code::aborted, ""}, detailed}) {
    std::vector<std::byte> frame(encoded_size_of_refusal(why) + 8, std::byte{0xee});
    const auto* end = encode_refusal(why, frame.data());
    EXPECT_EQ(end, frame.data() + encoded_size_of_refusal(why)) << why.to_string();
    frame.resize(encoded_size_of_refusal(why));
    auto read = decode_status(bytes{frame}.subspan(2), 1000);
    ASSERT_TRUE(read) << why.to_string();
    EXPECT_EQ(read->status.code(), why.code());
    EXPECT_TRUE(read->unseen);
  }
}

TEST(header, a_status_is_made_to_fit) {
  status s{code::internal, std::string(50'000, 'x')};
  s.add_detail("T", std::string(50'000, 'y'));
  const status cut = fitted(s, {}, 1000);
  EXPECT_EQ(cut.code(), code::internal);
  auto out = parse(server, status_frame(cut), 1 << 20, {.max_metadata = 1000});
  EXPECT_FALSE(out.failure);
}

struct control_out {
  std::vector<control_event> events;
  bool failed = false;
};
control_out control(const byte_vector& input, std::size_t step) {
  control_parser parser;
  control_out out;
  for (bytes left{input}; !left.empty();) {
    const std::size_t count = std::min(step, left.size());
    parser.push(left.first(count));
    left = left.subspan(count);
    while (true) {
      auto event = parser.next();
      if (!event) {
        out.failed = true;
        return out;
      }
      if (!*event) break;
      out.events.push_back(std::move(**event));
    }
  }
  return out;
}

TEST(control_parser, all_frames_survive_however_they_are_split) {
  settings s;
  s.max_message = 123456;
  s.compressions = {compression::zstd, compression::gzip};
  s.call_window = 1 << 20;
  const std::vector<control_event> events{
      s,       method_ack{7},   cancel{9, code::aborted}, goaway{12}, credit{5, 70'000},
      ping{1}, pong{max_varint}};
  byte_vector input;
  for (const auto& e : events) append(input, e);
  input = input + frame(1000, byte_vector(300));
  append(input, ping{2});
  for (std::size_t step : {1u, 2u, 7u, 100'000u}) {
    auto out = control(input, step);
    EXPECT_FALSE(out.failed);
    ASSERT_EQ(out.events.size(), events.size() + 1);
    for (std::size_t i = 0; i < events.size(); ++i) EXPECT_EQ(out.events[i], events[i]);
  }
}

TEST(control_parser, broken_settings_are_errors) {
  byte_vector good;
  append(good, settings{});
  EXPECT_TRUE(control(frame(5, raw({1})), 99).failed);
  EXPECT_TRUE(control(good + good, 99).failed);
  EXPECT_TRUE(control(frame(0, raw({1, 1, 1, 1, 1, 1})), 99).failed);  // twice
  EXPECT_TRUE(control(frame(0, raw({5, 1, 1})), 99).failed);           // window
  EXPECT_TRUE(control(frame(0, raw({1, 2, 1, 1})), 99).failed);        // two integers
  EXPECT_TRUE(control(frame(0, raw({1, 9, 1})), 99).failed);           // cut off
  EXPECT_TRUE(control(raw({0, 0x80, 1, 0, 0}), 99).failed);            // too long
  EXPECT_TRUE(control(good + frame(4, raw({1})), 99).failed);
  EXPECT_FALSE(control(frame(0, raw({62, 2, 1, 1})), 99).failed);  // unknown
}

TEST(record_parser, takes_records_apart_however_they_are_split) {
  byte_vector input;
  const std::vector<std::pair<record_tag, std::size_t>> records{{{0, false, false}, 5},
                                                                {{1, false, true}, 0},
                                                                {{70, true, true}, 100},
                                                                {{1 << 20, false, false}, 3000}};
  for (const auto& [tag, size] : records) {
    byte_vector head(max_record_head);
    head.resize(static_cast<std::size_t>(put_record_head(head.data(), tag, size) - head.data()));
    EXPECT_EQ(head.size(), record_head_size(tag, size));
    input = input + head + byte_vector(size);
  }
  for (std::size_t step : {1u, 3u, 64u, 1u << 20}) {
    record_parser parser{4096};
    std::vector<std::pair<record_tag, std::size_t>> seen;
    for (bytes left{input}; !left.empty();) {
      const std::size_t count = std::min(step, left.size());
      parser.push(slice::copy(left.first(count)));
      left = left.subspan(count);
      while (true) {
        auto part = parser.next();
        ASSERT_TRUE(part);
        if (!*part) break;
        if ((*part)->first) seen.push_back({(*part)->tag, 0});
        seen.back().second += (*part)->bytes.size();
      }
    }
    EXPECT_EQ(seen, records);
    EXPECT_TRUE(parser.at_boundary());
  }
}

TEST(record_parser, impossible_heads_are_errors) {
  for (const auto& input : {raw({0}), raw({0x7f, 0xff}), raw({1, 0x40, 4}),
                            raw({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})}) {
    record_parser parser{4096};
    parser.push(slice::copy(bytes{input}));
    EXPECT_FALSE(parser.next());
  }
}

}  // namespace
}  // namespace weft::rpc::native::wire
