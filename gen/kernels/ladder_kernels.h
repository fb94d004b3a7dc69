// Bodies of the ladder's kernels, for ladder.cpp, which names them and states their parameters.
#pragma once

#include "gen/isa/kernel.h"
#include "gen/kernels/ladder.h"

namespace flashptx::gen {

void emit_fused(Kernel& k, const LadderConfig& config);  // fa1, fa2
int fused_shared_bytes(const LadderConfig& config);
void emit_unfused_scores(Kernel& k, const LadderConfig& config);
void emit_unfused_softmax(Kernel& k, const LadderConfig& config);
void emit_unfused_output(Kernel& k, const LadderConfig& config);
int unfused_shared_bytes(const LadderConfig& config);

}  // namespace flashptx::gen
