// One problem on one kernel of the emulator, against float64; shared by attention_test.cpp and
// mutation_test.cpp. One batch. Next: mutation_test.cpp.
#pragma once

#include <cmath>
#include <cstring>

#include "gen/catalog.h"
#include "host/attention.h"
#include "host/emulator/emulator.h"
#include "host/emulator/numeric.h"
#include "tests/support.h"
#include "tools/reference/inputs.h"

namespace flashptx::emulator::test {

struct AttentionOutcome {
  Status status;
  double o_error = 0, lse_error = 0;
  double o_allowed = 0.016;  // 8 bit: 0.08, a key with half of a row's weight and P's 2^-4
  double lse_allowed = 1e-5;               // fast mode: what its values of p may be off
  std::vector<std::uint64_t> line_counts;  // warp instructions executed, by line of the text
  bool right() const { return status.ok() && o_error < o_allowed && lse_error < lse_allowed; }
};

struct AttentionCase {
  KernelConfig config;
  reference::Tensors tensors;
  reference::Result want;
};

AttentionCase make_attention(const KernelConfig& config, int seqlen_q, int seqlen_k,
                             reference::Inputs inputs = reference::Inputs::random, int heads = 2);

// The same of tensors that exist; their problem has one batch and as many heads of K as of Q.
AttentionCase make_attention(const KernelConfig& config, reference::Tensors tensors);

// `ptx` in place of the generated text unless empty.
AttentionOutcome run_attention(const AttentionCase& c, const EmulatorOptions& options,
                               const std::string& ptx = "");

}  // namespace flashptx::emulator::test
