#include <weft/base/slice.hpp>

#include <array>
#include <bit>
#include <cstdlib>
#include <new>
#include <vector>

namespace weft {
namespace {

using detail::storage;

constexpr std::size_t header = 64;      // keeps payloads on a cache line of their own
constexpr unsigned smallest_class = 7;  // 128 bytes, header included
constexpr unsigned largest_class = 23;  // 8 MiB
constexpr std::size_t cached_bytes_per_class = std::size_t{16} << 20;

static_assert(sizeof(storage) <= header);

/// Free blocks of this thread, by power of two. Fresh pages are dear and so is the allocator's
/// lock, so freed blocks stay here, up to a bound.
struct block_cache {
  std::array<std::vector<void*>, largest_class + 1> free;

  ~block_cache() {
    for (auto& blocks : free)
      for (void* block : blocks) std::free(block);
    alive = false;
  }
  // A slice may be destroyed by another thread_local's destructor after this one's.
  static thread_local bool alive;
};
thread_local bool block_cache::alive = true;
thread_local block_cache cache;

void free_block(storage* block) noexcept {
  const unsigned size_class = block->size_class;
  block->~storage();
  if (size_class == 0 || !block_cache::alive) return std::free(block);
  auto& blocks = cache.free[size_class];
  if (blocks.size() >= std::max<std::size_t>(8, cached_bytes_per_class >> size_class))
    return std::free(block);
  try {
    blocks.push_back(block);
  } catch (const std::bad_alloc&) {
    std::free(block);
  }
}

storage* make_block(std::size_t payload) {
  const std::size_t total = payload + header;
  unsigned size_class = std::max<unsigned>(smallest_class, std::bit_width(total - 1));
  if (size_class > largest_class) size_class = 0;
  void* memory = nullptr;
  if (size_class != 0 && block_cache::alive && !cache.free[size_class].empty()) {
    memory = cache.free[size_class].back();
    cache.free[size_class].pop_back();
  } else {
    memory = std::malloc(size_class ? std::size_t{1} << size_class : total);
    if (!memory) throw std::bad_alloc{};
  }
  auto* block = new (memory) storage;
  block->size_class = size_class;
  block->destroy = free_block;
  return block;
}

std::byte* payload_of(storage* block) noexcept {
  return reinterpret_cast<std::byte*>(block) + header;
}

struct string_storage : storage {
  std::string text;
};

}  // namespace

slice slice::copy(bytes from) {
  if (from.empty()) return {};
  buffer target = buffer::allocate(from.size());
  std::memcpy(target.data(), from.data(), from.size());
  return std::move(target).freeze();
}

slice slice::adopt(std::string&& from) {
  if (from.empty()) return {};
  auto* owner = new string_storage;
  owner->text = std::move(from);
  owner->destroy = [](storage* self) noexcept { delete static_cast<string_storage*>(self); };
  return slice{reinterpret_cast<const std::byte*>(owner->text.data()), owner->text.size(), owner};
}

buffer buffer::allocate(std::size_t size) {
  buffer result;
  result.owner_ = make_block(size);
  result.data_ = payload_of(result.owner_);
  result.size_ = size;
  return result;
}

slice arena::copy(bytes from) {
  if (from.empty()) return {};
  if (from.size() > chunk_size_ / 2) return slice::copy(from);
  if (!chunk_ || static_cast<std::size_t>(end_ - next_) < from.size()) {
    reset();
    // The block's own header is part of the size class, so a chunk fills its class exactly.
    chunk_ = make_block(chunk_size_ - header);
    next_ = payload_of(chunk_);
    end_ = next_ + (chunk_size_ - header);
  }
  std::memcpy(next_, from.data(), from.size());
  chunk_->acquire();
  slice result{next_, from.size(), chunk_};
  next_ += from.size();
  return result;
}

bool arena::extend(slice& tail, bytes from) {
  if (from.empty()) return true;
  if (!chunk_ || tail.owner_ != chunk_ || tail.data_ + tail.size_ != next_) return false;
  if (static_cast<std::size_t>(end_ - next_) < from.size()) return false;
  std::memcpy(next_, from.data(), from.size());
  tail.size_ += from.size();
  next_ += from.size();
  return true;
}

void arena::reset() noexcept {
  if (chunk_) chunk_->release();
  chunk_ = nullptr;
  next_ = end_ = nullptr;
}

}  // namespace weft
