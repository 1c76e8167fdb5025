#include "cli/bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace caravan::cli::bench {

double quantile(const std::vector<double>& ascending, double part) {
  if (ascending.empty()) return 0;
  const double place = std::clamp(part, 0.0, 1.0) * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(place));
  const std::size_t above = std::min(below + 1, ascending.size() - 1);
  return std::lerp(ascending[below], ascending[above], place - static_cast<double>(below));
}

Summary summarize(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {.count = values.size(),
          .mean = sum / static_cast<double>(values.size()),
          .p50 = quantile(values, 0.5),
          .p90 = quantile(values, 0.9),
          .p99 = quantile(values, 0.99),
          .max = values.back()};
}

}  // namespace caravan::cli::bench
