#include "report.hpp"

#include <algorithm>
#include <cstdio>
#include <format>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "scenario.hpp"

namespace weft::bench {
namespace {

constexpr const char* baseline = "tls-tcp";
constexpr const char* limit = "limit";

std::string number(double value) {
  if (value >= 1e9) return std::format("{:.2f} G", value / 1e9);
  if (value >= 1e6) return std::format("{:.2f} M", value / 1e6);
  if (value >= 1e4) return std::format("{:.1f} k", value / 1e3);
  return std::format("{:.2f}", value);
}

std::vector<std::string> distinct(const results& measured, const std::string& scenario,
                                  std::string results::key::* part) {
  std::vector<std::string> seen;
  for (const auto& key : measured.keys())
    if (key.scenario == scenario && !std::ranges::contains(seen, key.*part))
      seen.push_back(key.*part);
  return seen;
}

void print_row(const results& measured, const std::string& scenario, const std::string& variant,
               const std::string& metric) {
  const auto here = measured.of(scenario, variant, metric);
  if (here.n == 0) return;
  const auto base = measured.of(scenario, baseline, metric);
  const std::string ratio = base.n && variant != baseline && base.median > 0
                                ? std::format("{:5.2f} x tls-tcp", here.median / base.median)
                                : "";
  std::printf("  %-16s %-13s %10s  (%s .. %s)  %s\n", variant.c_str(), metric.c_str(),
              number(here.median).c_str(), number(here.min).c_str(), number(here.max).c_str(),
              ratio.c_str());
}

}  // namespace

void print_tables(const results& measured) {
  std::vector<std::string> scenarios;
  for (const auto& key : measured.keys())
    if (!std::ranges::contains(scenarios, key.scenario)) scenarios.push_back(key.scenario);
  for (const auto& name : scenarios) {
    const auto known = std::ranges::find(all_scenarios(), name, &scenario::name);
    const bool described = known != all_scenarios().end();
    std::printf("\n%s\n",
                described ? std::format("{}: {}", name, known->what).c_str() : name.c_str());
    for (const auto& metric : distinct(measured, name, &results::key::metric))
      for (const auto& variant : distinct(measured, name, &results::key::variant))
        print_row(measured, name, variant, metric);
  }
}

weft::result<> write_json(const results& measured, const std::string& file) {
  std::ofstream out{file};
  for (const auto& key : measured.keys()) {
    const auto s = measured.of(key.scenario, key.variant, key.metric);
    out << nlohmann::ordered_json{{"case", key.scenario},
                                  {"variant", key.variant},
                                  {"metric", key.metric},
                                  {"median", s.median},
                                  {"min", s.min},
                                  {"max", s.max},
                                  {"n", s.n}}
               .dump()
        << '\n';
  }
  out.close();
  if (!out) return weft::fail(errc::system, layer::app, "cannot write " + file);
  return {};
}

}  // namespace weft::bench
