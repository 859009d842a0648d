#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <weft/base/slice.hpp>
#include <weft/rpc/core/status.hpp>

namespace weft::rpc {

/// The form of messages on the wire: protocol buffers' binary one, or their JSON mapping.
enum class codec : std::uint8_t { proto, json };

/// One message's bytes as they arrived: a chain of slices, most often a single one.
class payload {
 public:
  payload() = default;
  explicit payload(slice single) : first_{std::move(single)}, size_{first_.size()} {}

  void append(slice part) {
    size_ += part.size();
    if (first_.empty())
      first_ = std::move(part);
    else if (!part.empty())
      rest_.push_back(std::move(part));
  }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  rpc::codec codec() const noexcept { return codec_; }
  void set_codec(rpc::codec c) noexcept { codec_ = c; }
  bool contiguous() const noexcept { return rest_.empty(); }
  std::size_t parts() const noexcept { return (first_.empty() ? 0 : 1) + rest_.size(); }
  const slice& part(std::size_t index) const noexcept {
    return index == 0 ? first_ : rest_[index - 1];
  }
  /// All bytes in one slice; copies only when there are several parts.
  slice flatten() const;

 private:
  slice first_;
  std::vector<slice> rest_;
  std::size_t size_ = 0;
  rpc::codec codec_ = rpc::codec::proto;
};

/// A message on its way out: its size, and how to write it. Lets a protocol place the bytes right
/// behind its own frame header. Refers to the message: valid during the call it is passed to.
class outgoing {
 public:
  using writer = void (*)(const void* message, std::byte* target, std::size_t size);
  using json_writer = result<std::string> (*)(const void* message);
  outgoing(const void* message, std::size_t size, writer write, json_writer json = nullptr) noexcept
      : message_{message}, size_{size}, write_{write}, json_{json} {}
  /// Bytes that are ready as they are.
  explicit outgoing(bytes ready) noexcept
      : message_{ready.data()}, size_{ready.size()}, write_{nullptr} {}
  /// The same, without a copy where the protocol can keep a share of them until they are delivered.
  explicit outgoing(const slice& ready) noexcept
      : message_{ready.data()}, size_{ready.size()}, write_{nullptr}, shared_{&ready} {}

  /// Of the binary form.
  std::size_t size() const noexcept { return size_; }
  /// Writes exactly `size()` bytes.
  void write_to(std::byte* target) const {
    if (write_)
      write_(message_, target, size_);
    else if (size_ != 0)
      std::memcpy(target, message_, size_);
  }
  /// The bytes themselves, when they may be kept; null otherwise.
  const slice* shared() const noexcept { return shared_; }
  /// The message as JSON; `internal` when it has no such form.
  result<std::string> json() const {
    if (!json_) return fail(code::internal, "this message has no JSON form");
    return json_(message_);
  }

 private:
  const void* message_;
  std::size_t size_;
  writer write_;
  json_writer json_ = nullptr;
  const slice* shared_ = nullptr;
};

}  // namespace weft::rpc
