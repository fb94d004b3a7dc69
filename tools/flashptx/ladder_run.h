// Runs a rung of the ladder on a device: uploads a problem, launches the rung's kernels, brings O
// and LSE back. Next: gen/kernels/ladder.h; ladder_command.cpp prints.
#pragma once

#include <string>
#include <vector>

#include "gen/kernels/ladder.h"
#include "host/device.h"
#include "tools/reference/inputs.h"

namespace flashptx {

struct LadderResult {
  std::vector<float> o, lse;        // (batch, row, head, head_dim), (batch, head, row)
  std::vector<float> milliseconds;  // of each repeat, all kernels of the rung; empty without timing
};

// The kernels of a rung in launch order: one for fa1 and fa2, three for standard attention (name
// any of them).
std::vector<LadderConfig> kernels_of_rung(Rung rung, DataType dtype, int head_dim, Mask mask);

// Tensors must be bshd. repeats 0: no timing (the emulator has none).
Status run_rung(Device& device, Rung rung, const reference::Tensors& tensors, int repeats,
                LadderResult* out);

}  // namespace flashptx
