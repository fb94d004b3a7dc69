// Attention on the CPU, twice: in float64, which judges, and "plain" in the tensors' own type, which sets the
// allowance: what an unfused computation with fp32 softmax and P rounded to the type is off by.
//
// Both take any strides, GQA, causal masks aligned bottom right, and give O = 0, LSE = -inf for a row
// without keys. Next: attention.cpp; error.h compares; inputs.h makes data.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "gen/catalog.h"

namespace flashptx::reference {

// Element strides of a (batch, seqlen, heads, head_dim) view; head_dim is contiguous.
struct Strides {
  std::int64_t batch = 0, seqlen = 0, head = 0;
};

struct Problem {
  DataType dtype = DataType::bf16;
  std::optional<DataType> dtype_k = {}, dtype_v = {};  // of K and V, if not that of Q
  DataType dtype_o = DataType::bf16;  // of O if dtype has 8 bits or P is e4m3; else O has dtype
  // Of the plain computation: scores rounded to dtype as well; 8 bit: P rounded behind the division by the sum, with one
  // scale, 1 / 448, for all of it. Both as an unfused program does it that keeps S and P in memory.
  bool unfused_scores = false, unfused_p = false;
  bool p_e4m3 = false;  // the plain computation rounds P as for 8 bit: tensors that FP8 stands for, given in f32
  bool direct_p = false;  // the result judged has part of P from e4m3 codes (fast mode, gen/tile/exp_direct.cpp)
  double lse_slack = 0;   // what P without exponentials may add to the error of its LSE (lse_slack_of)
  std::int64_t batch = 1, heads_q = 1, heads_kv = 1, seqlen_q = 1, seqlen_k = 1;
  int head_dim = 128, head_dim_v = 128;
  Mask mask = Mask::full;
  float scale = 1.0f;
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  Strides q_strides, k_strides, v_strides;
  // Query rows to compute (ascending), for every batch and head; empty means all. Long sequences are
  // checked on a sample of rows.
  std::vector<std::int64_t> rows;
  int threads = 0;  // 0: all cores

  DataType type_k() const { return dtype_k.value_or(dtype); }
  DataType type_v() const { return dtype_v.value_or(dtype); }
  bool eight_bit() const { return dtype == DataType::e4m3 || dtype == DataType::e5m2; }
  bool rounds_p_to_e4m3() const { return eight_bit() || p_e4m3; }
  DataType output() const { return rounds_p_to_e4m3() ? dtype_o : dtype; }
  std::int64_t row_count() const {
    return rows.empty() ? seqlen_q : static_cast<std::int64_t>(rows.size());
  }
  std::int64_t row(std::int64_t i) const { return rows.empty() ? i : rows[static_cast<std::size_t>(i)]; }
  // Keys that query row i sees.
  std::int64_t visible(std::int64_t i) const {
    if (mask == Mask::full) return seqlen_k;
    const std::int64_t n = i + seqlen_k - seqlen_q + 1;
    return n < 0 ? 0 : n > seqlen_k ? seqlen_k : n;
  }
};

struct Result {
  std::vector<double> o;    // (batch, row, head, head_dim_v), dense
  std::vector<double> lse;  // (batch, head, row), natural logarithm
};

// By how much a p of this plan's kernel may differ from 2^x, as a difference of logarithms (gen/tile/exp_direct.cpp): a direct
// one is 0.922 to 1.066 times it, one by chords 0.984 to 1.011 times; where e4m3's are summed (p_sums) one in 16 more, and the smallest are 0.
constexpr double lse_slack_of(const Plan& plan) {
  const double p = plan.direct_of_16 ? 0.082 : plan.chord_of_16 ? 0.0163 : 0;
  return plan.p_sums ? p + 0.0645 : p;
}

Result attention_float64(const Problem& problem);
// Rounds O and P to the problem's type; S, softmax and sums are float. 8 bit: P is e4m3 of 256 exp(s - max), before the
// division by the sum, since e4m3 has nothing near 1 / seqlen_k.
Result attention_plain(const Problem& problem);

// Calls body(0..count-1) from `threads` threads (0: all cores).
void parallel_for(std::int64_t count, int threads, const std::function<void(std::int64_t)>& body);

}  // namespace flashptx::reference
