// Internal: what a session of either version reports to its driver, and what the driver may ask of
// it.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include <weft/base/error.hpp>
#include <weft/base/slice.hpp>
#include <weft/http/core/fields.hpp>

namespace weft::http {

/// The stream that carries an exchange.
using exchange_id = std::int64_t;

/// Something that happened to one exchange.
struct event {
  struct request {  ///< server: a head is there
    request_head head;
    std::uint8_t urgency = 3;
  };
  struct response {  ///< client: the final head is there
    response_head head;
  };
  struct content {
    slice data;
  };
  struct end {  ///< of the peer's side
    field_list trailers;
  };
  struct reset {  ///< the peer gave its side up
    give_up why;
  };
  struct stopped {  ///< the peer wants no more of ours
    give_up why;
  };
  struct failed {  ///< both sides are over, and the peer was told: what it sent breaks a rule
    error why;
  };

  exchange_id id;
  std::variant<request, response, content, end, reset, stopped, failed> what;
};

/// A session of one connection: bytes in, events out; requests in, bytes out. Neither sockets nor
/// clocks. How bytes come and go differs by version, so that is for the derived classes.
class session {
 public:
  virtual ~session() = default;

  /// Events since the last call, in order.
  std::vector<event>& events() noexcept { return events_; }

  // What the peer's limit on field sections does not allow is errc::too_large, and changes nothing.

  /// Server: queues the final response's head. errc::invalid_argument for one that cannot be.
  virtual result<> respond(exchange_id id, const response_head& head, bool end) = 0;
  /// Queues content, shared; `end`: the last, without trailers.
  virtual void send(exchange_id id, slice data, bool end) = 0;
  /// Ends our side with trailers, which are not empty.
  virtual result<> send_trailers(exchange_id id, const field_list& trailers) = 0;
  /// Bytes of content queued and not yet in packets or frames.
  virtual std::size_t unsent(exchange_id id) const noexcept = 0;
  /// The application has taken `count` bytes of content: flow control may grant as many.
  virtual void consume(exchange_id id, std::size_t count) = 0;
  /// No more of the peer's side; ours goes on.
  virtual void stop(exchange_id id, give_up why) = 0;
  /// Gives up what of both sides is unfinished.
  virtual void reset(exchange_id id, give_up why) = 0;
  virtual void set_urgency(exchange_id id, std::uint8_t urgency) = 0;

  /// Begins to turn new exchanges away. Idempotent.
  virtual void go_away() = 0;
  /// Client: the server takes no new requests.
  virtual bool peer_going_away() const noexcept = 0;
  virtual std::size_t open_exchanges() const noexcept = 0;

 protected:
  void report(exchange_id id, decltype(event::what) what) {
    events_.push_back({id, std::move(what)});
  }
  std::vector<event> events_;
};

}  // namespace weft::http
