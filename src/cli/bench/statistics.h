// What a pile of measurements comes to. Pure.
#pragma once

#include <cstddef>
#include <vector>

namespace caravan::cli::bench {

struct Summary {
  std::size_t count = 0;  // 0: everything else is 0
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
};

// `part` from 0 to 1 of values in ascending order, between neighbours by straight line; 0 for no values.
double quantile(const std::vector<double>& ascending, double part);
Summary summarize(std::vector<double> values);

}  // namespace caravan::cli::bench
