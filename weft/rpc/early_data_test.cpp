#include <array>

#include <google/protobuf/wrappers.pb.h>
#include <gtest/gtest.h>

#include <weft/rpc/loopback_fake.hpp>
#include <weft/rpc/router.hpp>

// What a router does with calls that arrived as 0-RTT data, and so may be replays.

namespace weft::rpc {
namespace {

using text = google::protobuf::StringValue;

constexpr std::array<method, 3> methods{{
    {.path = "/t.Early/Look",
     .service = "t.Early",
     .name = "Look",
     .level = idempotency::no_side_effects},
    {.path = "/t.Early/Pay", .service = "t.Early", .name = "Pay"},
    {.path = "/t.Early/Set", .service = "t.Early", .name = "Set", .level = idempotency::idempotent},
}};
constexpr service description{"t.Early", methods, {}};

/// Shows by its status that it was reached.
class handler final : public service_handler {
 public:
  const service& descriptor() const noexcept override { return description; }
  task<status> invoke(std::size_t, server_context&, server_call&) override {
    ++reached;
    co_return status{code::data_loss, "reached"};
  }
  int reached = 0;
};

task<code> call(fake::loopback& via, const method& m, bool early) {
  via.early_data = early;
  auto reply = co_await unary_call<text, text>(via, m, text{}, {});
  if (!reply && reply.error().code() == code::unavailable) {
    EXPECT_NE(reply.error().message().find("retry it after the handshake"), std::string::npos);
  }
  co_return reply ? code::ok : reply.error().code();
}

task<> call_all(fake::loopback& via, handler& h) {
  EXPECT_EQ(co_await call(via, methods[0], true), code::data_loss);
  EXPECT_EQ(co_await call(via, methods[2], true), code::data_loss);
  EXPECT_EQ(h.reached, 2);
  EXPECT_EQ(co_await call(via, methods[1], true), code::unavailable);
  via.early_data = true;
  EXPECT_TRUE(co_await one_way_call(via, methods[1], text{}, {}));
  EXPECT_EQ(h.reached, 2) << "what must not be repeated was not looked at";
  EXPECT_EQ(co_await call(via, methods[1], false), code::data_loss);
}

TEST(early_data, reaches_only_what_may_be_repeated) {
  io::shard shard;
  router r{shard};
  const auto reached = std::make_shared<handler>();
  ASSERT_TRUE(r.add(reached));
  fake::loopback via{shard, r};
  asio::co_spawn(shard.get_executor(), call_all(via, *reached), [&](std::exception_ptr failure) {
    shard.stop();
    if (failure) std::rethrow_exception(failure);
  });
  shard.run();
  EXPECT_EQ(r.stats()[1].started, 1u);
}

}  // namespace
}  // namespace weft::rpc
