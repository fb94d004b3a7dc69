// Order statistics of small samples. Next: statistics.h.
#include "tools/flashptx/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace flashptx {

double quantile(std::vector<float> samples, double q) {
  if (samples.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(samples.begin(), samples.end());
  const double at = q * static_cast<double>(samples.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, samples.size() - 1);
  const double fraction = at - static_cast<double>(below);
  return (1 - fraction) * static_cast<double>(samples[below]) + fraction * static_cast<double>(samples[above]);
}

Quartiles quartiles(const std::vector<float>& samples) {
  return {quantile(samples, 0.25), quantile(samples, 0.5), quantile(samples, 0.75)};
}

std::string refuse_samples(const std::vector<float>& samples) {
  if (samples.size() < 3) return "fewer than 3 samples";
  for (float s : samples)
    if (!std::isfinite(s) || s <= 0) return "a sample is not a positive time";
  const double spread = quartiles(samples).relative_spread();
  if (spread > 0.25) return "the middle half spreads over more than a quarter of the median";
  return "";
}

}  // namespace flashptx
