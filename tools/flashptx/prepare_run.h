// Preparations of FP8 operands as jobs: checked against float64 on a small shape, timed on the one asked for.
//
// The bandwidth counts each byte that a job must move: x read, y written, cos and sin once; where the scale is that
// of a head or tensor x is read twice. A plain copy kernel, timed in the same run, is what to compare with.
// Next: prepare_command.cpp, host/prepare.h, tools/reference/prepare.h (the judge).
#pragma once

#include <string>
#include <vector>

#include "host/prepare.h"
#include "tools/flashptx/statistics.h"

namespace flashptx {

enum class PrepareKind { copy, transpose, prepare };

struct PrepareJob {
  PrepareKind kind = PrepareKind::prepare;
  PrepareProblem problem;            // of a transposition: its shape, x for v
  std::string title() const;         // "rope half f32 + hadamard + e4m3 blocks of 128"
  std::string kernels() const;       // names joined by "+"
  double bytes() const;
};

struct PrepareRow {
  PrepareJob job;
  std::string failure;               // why there is no result, or the first wrong value
  std::string checked;               // the shape that was compared with float64
  double rms = 0;                    // relative error of what was checked
  std::vector<float> microseconds;   // a call, over several in a row
  double terabytes() const;          // per second, at the median
};

// Everything that `--sweep` times, for one shape.
std::vector<PrepareJob> prepare_sweep(std::int64_t tokens, std::int64_t hidden, std::int64_t seqlen, int head_dim);

// On at most 2 x 200 x 3 rows. `inputs` as in tools/reference/prepare.h.
void check_prepare_job(Device& device, const std::string& inputs, std::uint64_t seed, PrepareRow* row);
void time_prepare_job(Device& device, int repeats, PrepareRow* row);

}  // namespace flashptx
