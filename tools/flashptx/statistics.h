// Medians and quartiles, and when samples are no good. Next: bench.h.
#pragma once

#include <string>
#include <vector>

namespace flashptx {

struct Quartiles {
  double low = 0, median = 0, high = 0;
  // Spread of the middle half over the median: 0.01 is a quiet machine.
  double relative_spread() const { return median > 0 ? (high - low) / median : 0; }
};

// Linear interpolation between order statistics. NaN for an empty sample.
double quantile(std::vector<float> samples, double q);
Quartiles quartiles(const std::vector<float>& samples);

// Empty if the samples may be reported; else one sentence that says why not.
std::string refuse_samples(const std::vector<float>& samples);

}  // namespace flashptx
