// For tests: a pair of byte streams in memory.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include <weft/io/byte_stream.hpp>
#include <weft/io/event.hpp>

namespace weft::http::test {

/// One direction. Cuts what goes through wherever it likes.
struct pipe_lane {
  std::deque<slice> content;
  std::size_t size = 0;
  bool ended = false, broken = false;
  io::event readable, writable;
  std::mt19937 random{1};
  static constexpr std::size_t capacity = 100'000;

  void cut() {
    broken = true;
    readable.notify();
    writable.notify();
  }
};

class pipe_end final : public io::byte_stream {
 public:
  using lane_ptr = std::shared_ptr<pipe_lane>;

  static std::pair<std::unique_ptr<pipe_end>, std::unique_ptr<pipe_end>> make() {
    auto up = std::make_shared<pipe_lane>(), down = std::make_shared<pipe_lane>();
    return {std::make_unique<pipe_end>(up, down), std::make_unique<pipe_end>(down, up)};
  }
  pipe_end(lane_ptr in, lane_ptr out) : in_{std::move(in)}, out_{std::move(out)} {}
  ~pipe_end() override { abort(); }

  task<result<slice>> read() override { return read_from(in_); }
  task<result<>> write(std::span<const slice> parts) override {
    return write_to(out_, {parts.begin(), parts.end()});
  }
  task<result<>> finish() override {
    out_->ended = true;
    out_->readable.notify();
    co_return result<>{};
  }
  void abort() noexcept override {
    in_->cut();
    if (!out_->ended) out_->cut();
  }

 private:
  static error broken() { return {errc::reset, layer::tcp, "the pipe broke"}; }

  static task<result<slice>> read_from(lane_ptr lane) {
    while (lane->content.empty()) {
      if (lane->broken) co_return std::unexpected{broken()};
      if (lane->ended) co_return slice{};
      const bool woken = co_await lane->readable.wait();
      if (!woken) co_return fail(errc::cancelled, layer::tcp, "cancelled");
    }
    slice& front = lane->content.front();
    slice got = front.take_front(1 + lane->random() % front.size());
    if (front.empty()) lane->content.pop_front();
    lane->size -= got.size();
    lane->writable.notify();
    co_return got;
  }
  static task<result<>> write_to(lane_ptr lane, std::vector<slice> parts) {
    for (slice& part : parts) {
      while (lane->size > pipe_lane::capacity && !lane->broken) {
        const bool woken = co_await lane->writable.wait();
        if (!woken) co_return fail(errc::cancelled, layer::tcp, "cancelled");
      }
      if (lane->broken) co_return std::unexpected{broken()};
      lane->size += part.size();
      if (!part.empty()) lane->content.push_back(std::move(part));
      lane->readable.notify();
    }
    co_return result<>{};
  }

  lane_ptr in_, out_;
};

}  // namespace weft::http::test
