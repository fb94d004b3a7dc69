// Runs a rung of the ladder on a device: uploads a problem, launches the rung's kernels, brings O and LSE back.
// Next: gen/kernels/ladder.h.
#pragma once

#include <string>
#include <vector>

#include "gen/kernels/ladder.h"
#include "host/device.h"
#include "tools/reference/inputs.h"

namespace flashptx {

struct LadderResult {
  std::vector<float> o, lse;          // (batch, row, head, head_dim), (batch, head, row)
  std::vector<float> milliseconds;    // of each repeat; empty on a device without time
};

// `rung` fa1 or fa2. Tensors must be bshd. repeats 0: no timing.
Status run_rung(Device& device, Rung rung, const reference::Tensors& tensors, int repeats, LadderResult* out);

}  // namespace flashptx
