#include <cstdio>
#include <cstdlib>
#include <new>

#include <weft/rpc/host/suite_fixture.hpp>

// What a call costs the allocator once everything has warmed up. This binary's operator new counts.

namespace {

thread_local std::size_t allocations = 0;

void* counted(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc{};
}
void* counted(std::size_t size, std::align_val_t alignment) {
  ++allocations;
  const auto unit = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(unit, (size + unit - 1) / unit * unit)) return memory;
  throw std::bad_alloc{};
}

}  // namespace

void* operator new(std::size_t size) {
  return counted(size);
}
void* operator new[](std::size_t size) {
  return counted(size);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted(size, alignment);
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return counted(size, alignment);
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size == 0 ? 1 : size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size == 0 ? 1 : size);
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return counted(size, alignment);
}
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace weft::rpc::suite {
namespace {

WEFT_SUITE(allocations_of);

constexpr int warm_up = 1000, measured = 500;

task<> call_often(carriers& t, int count) {
  const text request = value("short");
  for (int i = 0; i < count; ++i) {
    auto reply = co_await unary_call<text, text>(t.channel(), methods[echo], request, {});
    EXPECT_TRUE(reply) << reply.error().to_string();
    if (!reply) co_return;
  }
}

/// Client and server together.
WEFT_SUITE_TEST(allocations_of, a_unary_call) {
  co_await call_often(t, warm_up);
  const std::size_t before = allocations;
  co_await call_often(t, measured);
  const double each = static_cast<double>(allocations - before) / measured;
  std::printf("operator new per unary call: %.3f\n", each);
  // Two are the strings that protobuf makes of request and reply. Calls that share a stream find
  // each other through a table at either end, whose entries are allocated.
  const bool by_number = t.GetParam() != carrier::quic || t.GetParam().lanes;
  EXPECT_LT(each, by_number ? 4.05 : 2.05);
}

}  // namespace
}  // namespace weft::rpc::suite
