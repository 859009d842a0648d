#pragma once

#include <asio/execution_context.hpp>

#include <weft/quic/detail/endpoint_state.hpp>

namespace weft::quic::detail {

/// Knows the endpoints of one event loop, so that a loop that is destroyed while coroutines wait on
/// streams takes those coroutines with it.
class endpoint_registry final : public asio::execution_context::service {
 public:
  static inline asio::execution_context::id id;

  explicit endpoint_registry(asio::execution_context& context) : service{context} {}

  void add(endpoint_state& e) noexcept {
    e.registry_ = this;
    e.next_ = first_;
    if (first_) first_->previous_ = &e;
    first_ = &e;
  }
  void remove(endpoint_state& e) noexcept {
    (e.previous_ ? e.previous_->next_ : first_) = e.next_;
    if (e.next_) e.next_->previous_ = e.previous_;
    e.registry_ = nullptr;
  }

 private:
  void shutdown() noexcept override {
    while (first_) {
      endpoint_state& e = *first_;
      remove(e);
      e.abandon();
    }
  }

  endpoint_state* first_ = nullptr;
};

}  // namespace weft::quic::detail
