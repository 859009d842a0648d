#include <weft/rpc/core/payload.hpp>

namespace weft::rpc {

slice payload::flatten() const {
  if (contiguous()) return first_;
  buffer joined = buffer::allocate(size_);
  std::byte* target = joined.data();
  for (std::size_t i = 0; i < parts(); ++i) {
    std::memcpy(target, part(i).data(), part(i).size());
    target += part(i).size();
  }
  return std::move(joined).freeze();
}

}  // namespace weft::rpc
