// What FP8 costs in error, and what it must not cost: three tests of the methods side by side.
//
//   outliers  N(0, 1) and N(0, 100) on one element in a thousand (FlashAttention-3 paper, section 4.3): RMSE against
//             float64 of the 16-bit tensors as given
//   constant  Q = 0 and a V whose rows are all the same: O must be that row whatever the number of keys. What is off is
//             accumulation: the tensor cores keep about 14 bits of a sum of 8-bit products
//   needle    one key in the haystack meets its query, by e^6 more than all others together; O must be its value.
//             Every query has its needle, spread over all positions from the first to the last
//
// Methods: an unfused computation on the CPU, the 16-bit kernels, and the FP8 chain by recipe; the kernels with both
// softmaxes, FP8 in fast mode too on request. Next: accuracy_print.cpp, accuracy_command.cpp, host/fp8_attention.h.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "host/fp8_attention.h"
#include "tools/reference/inputs.h"

namespace flashptx {

struct AccuracySize {
  int head_dim = 128;
  std::vector<std::int64_t> outlier_seqlens, constant_keys, needle_keys;
  std::int64_t heads = 16, rows = 512;  // outliers: rows of each head that are compared
  std::int64_t queries = 256;           // constant, needle
  std::uint64_t seed = 1;
  bool fast = false;                    // FP8 in fast mode too
};
AccuracySize accuracy_size(bool small);  // small: seconds on the emulator

enum class AccuracyTest { outliers, constant, needle };
const char* to_string(AccuracyTest test);

struct AccuracyRow {
  AccuracyTest test = AccuracyTest::outliers;
  std::string method, softmax, kernel;  // softmax and kernel: "" on the CPU
  std::int64_t seqlen_q = 0, seqlen_k = 0, heads = 0, rows = 0;
  double error = 0;    // outliers: RMSE; constant: largest, relative to the constant; needle: worst RMS over that of V
  double limit = 0;    // of error; 0: it is what others are limited by
  double claimed = 0;  // by the paper, for a shape that it does not tell; 0: nothing
  std::int64_t found = 0, wanted = 0;  // needle
  std::string note;    // why it was not run, or what is wrong; "" if all is well
  bool ok() const { return note.empty(); }
};

struct AccuracyReport {
  std::vector<AccuracyRow> rows;
};
// `done` after each row. Stops at the first device error that is not a refusal.
Status run_accuracy(Device& device, const AccuracySize& size, const std::vector<AccuracyTest>& tests,
                    const std::function<void(const AccuracyRow&)>& done, AccuracyReport* out);

std::string accuracy_line(const AccuracyRow& r);
std::string accuracy_csv(const AccuracyReport& r, const std::string& device);
std::string accuracy_json(const AccuracyReport& r, const std::string& device);
std::string accuracy_rmse_svg(const AccuracyReport& r, const std::string& device);      // outliers, as bars
std::string accuracy_constant_svg(const AccuracyReport& r, const std::string& device);  // constant, over keys

}  // namespace flashptx
