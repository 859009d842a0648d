#pragma once

#include <string>

#include <weft/base/error.hpp>

#include "statistics.hpp"

namespace weft::bench {

/// One table a scenario, with each variant's ratio to TLS/TCP, to standard output.
void print_tables(const results& measured);
/// One JSON object a line: case, variant, metric, median, min, max, n.
weft::result<> write_json(const results& measured, const std::string& file);

}  // namespace weft::bench
