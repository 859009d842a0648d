#include "statistics.hpp"

#include <hdr/hdr_histogram.h>
#include <sys/resource.h>

#include <algorithm>
#include <new>

namespace weft::bench {

struct latencies::impl {
  hdr_histogram* histogram = nullptr;
};

latencies::latencies() : impl_{std::make_unique<impl>()} {
  constexpr std::int64_t lowest = 1'000, highest = 60'000'000'000;
  constexpr int digits = 3;
  if (hdr_init(lowest, highest, digits, &impl_->histogram) != 0) throw std::bad_alloc{};
}
latencies::~latencies() {
  hdr_close(impl_->histogram);
}

void latencies::record(std::int64_t nanoseconds) noexcept {
  hdr_record_value(impl_->histogram, nanoseconds);
}
void latencies::reset() noexcept {
  hdr_reset(impl_->histogram);
}
double latencies::microseconds_at(double percentile) const noexcept {
  return static_cast<double>(hdr_value_at_percentile(impl_->histogram, percentile)) / 1'000.0;
}

void results::add(const std::string& scenario, const std::string& variant,
                  const std::string& metric, double value) {
  auto [place, fresh] = values_.try_emplace({scenario, variant, metric});
  if (fresh) order_.push_back(place->first);
  place->second.push_back(value);
}

summary results::of(const std::string& scenario, const std::string& variant,
                    const std::string& metric) const {
  const auto found = values_.find({scenario, variant, metric});
  if (found == values_.end()) return {};
  auto sorted = found->second;
  std::ranges::sort(sorted);
  const auto n = sorted.size();
  const double median = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
  return {median, sorted.front(), sorted.back(), n};
}

double process_cpu_seconds() noexcept {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

}  // namespace weft::bench
