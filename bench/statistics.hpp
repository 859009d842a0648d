#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace weft::bench {

/// Latencies in nanoseconds, 1 µs to 60 s, three significant digits (an HDR histogram).
class latencies {
 public:
  latencies();
  ~latencies();
  latencies(const latencies&) = delete;
  latencies& operator=(const latencies&) = delete;

  void record(std::int64_t nanoseconds) noexcept;
  void reset() noexcept;
  double microseconds_at(double percentile) const noexcept;

 private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

struct summary {
  double median = 0, min = 0, max = 0;
  std::size_t n = 0;
};

/// One measured value of every repetition, by case, variant and metric, in order of first use.
class results {
 public:
  void add(const std::string& scenario, const std::string& variant, const std::string& metric,
           double value);
  /// n == 0 when there is none.
  summary of(const std::string& scenario, const std::string& variant,
             const std::string& metric) const;

  struct key {
    std::string scenario, variant, metric;
    friend auto operator<=>(const key&, const key&) = default;
  };
  const std::vector<key>& keys() const noexcept { return order_; }

 private:
  std::map<key, std::vector<double>> values_;
  std::vector<key> order_;
};

/// CPU time, user and system, of this process.
double process_cpu_seconds() noexcept;

}  // namespace weft::bench
