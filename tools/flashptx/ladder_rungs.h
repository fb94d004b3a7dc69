// The rungs of the ladder, from standard attention to this repository's own kernel, and what was published of each.
//
// A rung is one of the mma.sync kernels of gen/kernels/ladder.h or a KernelConfig; the latter differ in one decision
// from one rung to the next. Next: ladder_rungs.cpp (the list), ladder_run.h (runs one), ladder_print.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gen/kernels/ladder.h"
#include "tools/reference/inputs.h"

namespace flashptx {

enum class RungGroup { before_wgmma, hopper, ours, fp8, ablation };

struct LadderRung {
  std::string key;   // in files: "wgmma_tma"
  std::string name;  // for people
  RungGroup group = RungGroup::before_wgmma;
  std::optional<Rung> mma_sync;
  std::optional<KernelConfig> kernel;
  // Published TFLOP/s on an H100, forward, head_dim 128, full: a range; 0: none.
  double published_low = 0, published_high = 0;
  std::string published;  // in words, with the source
};

struct LadderShape {
  DataType dtype = DataType::bf16;
  int head_dim = 128;
  Mask mask = Mask::full;
  int batch = 1, seqlen = 16384, heads = 16;
};

std::vector<LadderRung> ladder_rungs(const LadderShape& shape);
// Which of FlashAttention-3's three techniques gives what: the paper's table 2, at the paper's shape.
// The same shape in e4m3, V transposed inside the kernel and its time counted.
LadderShape fp8_shape(LadderShape shape);
std::vector<LadderRung> fp8_rungs(const LadderShape& shape);
LadderShape ablation_shape();
std::vector<LadderRung> ablation_rungs();

reference::Problem problem_of(const LadderShape& shape);

}  // namespace flashptx
