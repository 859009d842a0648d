#include <weft/base/memory_budget.hpp>

#include <gtest/gtest.h>

#include <limits>
#include <thread>
#include <vector>

namespace weft {
namespace {

TEST(memory_budget_test, refuses_what_would_exceed_it_and_changes_nothing) {
  memory_budget budget{100};
  EXPECT_TRUE(budget.try_charge(60));
  EXPECT_FALSE(budget.try_charge(41));
  EXPECT_EQ(budget.used(), 60u);
  EXPECT_TRUE(budget.try_charge(40));
  budget.release(100);
  EXPECT_EQ(budget.used(), 0u);
  EXPECT_EQ(budget.peak(), 100u);
}

TEST(memory_budget_test, huge_charges_do_not_wrap_around) {
  memory_budget budget{100};
  EXPECT_TRUE(budget.try_charge(1));
  EXPECT_FALSE(budget.try_charge(std::numeric_limits<std::size_t>::max()));
  EXPECT_EQ(budget.used(), 1u);
}

TEST(memory_budget_test, holds_under_threads) {
  memory_budget budget{1000};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20'000; ++i)
        if (budget.try_charge(300)) budget.release(300);
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(budget.used(), 0u);
  EXPECT_LE(budget.peak(), 1000u);
}

}  // namespace
}  // namespace weft
