// How far a result may be from float64, and how far it is.
//
// The rule is FlashAttention's: the largest error is at most twice that of the plain computation in the same type,
// plus a small absolute term (8 bit: error.cpp, allowance). It is asked of every tile of 64 query rows of a head, not only of the whole tensor:
// under a causal mask the first rows are a hundred times larger than the last, and their rounding would hide
// anything wrong further down. Next: tests/reference/.
#pragma once

#include <string>
#include <vector>

#include "tools/reference/attention.h"

namespace flashptx::reference {

struct Error {
  double max = 0, rms = 0;        // of the result against float64
  double plain_max = 0, plain_rms = 0;
  double allowed_max = 0;         // 2 * plain_max + the small term
  double lse_max = 0;             // over rows that have keys
  double lse_allowed = 0;
  bool ok = true;
  std::string first_failure;      // element, wanted, got; empty if ok
};

// A dense result, (batch, row, head, head_dim_v) and (batch, head, row), of the rows that `problem` selects.
// `lse` may be empty: then it is not checked. NaN or a wrong empty row is a failure whatever its size.
Error compare(const Problem& problem, const Result& exact, const Result& plain,
              const std::vector<float>& o, const std::vector<float>& lse);

}  // namespace flashptx::reference
