#pragma once

#include <array>
#include <cstdint>
#include <variant>
#include <vector>

#include <weft/base/memory_budget.hpp>
#include <weft/rpc/core/compression.hpp>
#include <weft/rpc/core/payload.hpp>
#include <weft/rpc/native/wire/header.hpp>

// One direction of a call: frames (docs/specs/native.md §5).

namespace weft::rpc::native::wire {

struct parse_limits {
  std::size_t max_message = std::size_t{16} << 20;  ///< as it travels
  std::size_t max_metadata = default_max_metadata;
};

struct received_headers {
  rpc::metadata headers;
};
struct received_message {
  payload content;
  compression algorithm = compression::identity;
};
/// The sender has ended its direction, in order.
struct call_end {};

using call_event =
    std::variant<received_request, received_headers, received_message, received_status, call_end>;

/// A message being put together: shares large arrivals, gathers small ones, so that what it holds
/// stays near what the message has. Charged to a budget from its header on.
class message_assembly {
 public:
  explicit message_assembly(memory_budget* budget) noexcept : budget_{budget} {}
  message_assembly(const message_assembly&) = delete;
  message_assembly& operator=(const message_assembly&) = delete;
  ~message_assembly() { reset(); }

  /// False when the budget is exhausted.
  bool begin(std::size_t size);
  void add(slice part);
  payload take();
  void reset() noexcept;

 private:
  void gather(bytes part);

  memory_budget* budget_;
  payload parts_;
  buffer gathering_;
  std::size_t gathered_ = 0;
  std::size_t missing_ = 0;
  std::size_t charged_ = 0;
};

/// Reads one direction of a call piecewise and checks the order of its frames. The first error is
/// final. Views in an event are valid until the next `push`.
class call_parser {
 public:
  enum class side : std::uint8_t { client, server };

  /// `from`: who sends what is parsed. `budget` may be null.
  call_parser(side from, parse_limits limits, memory_budget* budget) noexcept
      : assembly_{budget}, limits_{limits}, from_{from} {}

  /// Feeds what follows; `next` must have returned nothing before.
  void push(slice input) noexcept { input_ = std::move(input); }
  /// No more will follow.
  void finish() noexcept { finished_ = true; }
  /// The next event; nothing when more bytes are needed.
  weft::result<std::optional<call_event>> next();
  /// A status or the end has been seen.
  bool done() const noexcept { return stage_ == stage::done; }

 private:
  enum class stage : std::uint8_t { start, messages, done };
  using outcome = weft::result<std::optional<call_event>>;

  weft::result<bool> read_head();
  weft::result<> admit();
  outcome read_block();
  outcome read_message();
  outcome decode_block(bytes content);
  outcome at_end();
  slice take(std::uint64_t most) noexcept;

  slice input_;
  slice held_;  // what the views of the latest event point into
  message_assembly assembly_;
  std::vector<std::byte> block_;
  parse_limits limits_;
  std::array<std::byte, 2 * max_varint_size> head_{};
  std::size_t head_size_ = 0;
  std::uint64_t type_ = 0;
  std::uint64_t left_ = 0;
  compression algorithm_ = compression::identity;
  side from_;
  stage stage_ = stage::start;
  bool in_frame_ = false;
  bool wants_algorithm_ = false;
  bool assembling_ = false;
  bool finished_ = false;
  bool ended_ = false;
};

}  // namespace weft::rpc::native::wire
