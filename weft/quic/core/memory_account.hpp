#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include <weft/base/memory_budget.hpp>

namespace weft::quic::core::detail {

/// One connection's share of the process-wide budget. A small guaranteed part is never charged, so
/// that a connection makes progress however full the process is.
class memory_account {
 public:
  static constexpr std::size_t guaranteed = 64 * 1024;

  explicit memory_account(std::shared_ptr<memory_budget> budget) noexcept
      : budget_{std::move(budget)} {}
  memory_account(const memory_account&) = delete;
  memory_account& operator=(const memory_account&) = delete;
  ~memory_account() {
    if (budget_) budget_->release(charged_);
  }

  void add(std::size_t count) noexcept {
    used_ += count;
    if (budget_ && used_ > guaranteed + charged_) settle();
  }
  void remove(std::size_t count) noexcept {
    used_ -= count;
    // In steps, so that the shared counter is not touched for every read.
    if (budget_ && (charged_ > used_ + step || pressed_ || used_ == 0)) settle();
  }
  std::size_t used() const noexcept { return used_; }
  /// The budget refused: hold less.
  bool pressed() const noexcept { return pressed_; }
  /// Asks the budget again, which others may have relieved. Returns `pressed()`.
  bool retry() noexcept {
    if (budget_) settle();
    return pressed_;
  }

 private:
  static constexpr std::size_t step = 64 * 1024;

  void settle() noexcept {
    const std::size_t want = used_ > guaranteed ? used_ - guaranteed : 0;
    pressed_ = false;
    if (want < charged_) {
      budget_->release(charged_ - want);
      charged_ = want;
    } else if (want > charged_) {
      const std::size_t more = want - charged_;
      if (budget_->try_charge(more + step))
        charged_ += more + step;
      else if (budget_->try_charge(more))
        charged_ += more;
      else
        pressed_ = true;
    }
  }

  std::shared_ptr<memory_budget> budget_;
  std::size_t used_ = 0;
  std::size_t charged_ = 0;
  bool pressed_ = false;
};

}  // namespace weft::quic::core::detail
