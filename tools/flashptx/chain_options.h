// The recipe of "16 bits in, FP8 attention inside" on the command line; shared by `run` and `bench`.
// Next: problem_options.h, host/fp8_attention.h.
#pragma once

#include <cstdint>
#include <string>

#include "host/fp8_attention.h"
#include "tools/reference/attention.h"

namespace flashptx {

class Command;

struct ChainOptions {
  std::string scales, from = "bf16", rope = "none";  // scales: empty = not given
  bool hadamard = false, hadamard_v = false;
  std::int64_t block_rows = 0;
  std::uint64_t signs_seed = 1;

  // Whether the command line asks for the chain at all.
  bool given() const { return !scales.empty() || hadamard || hadamard_v || rope != "none" || block_rows != 0; }
};

void add_chain_options(Command& app, ChainOptions& options);

// `shape` has the type that FP8 is to have inside; it gets that of the tensors. Leaves with exit_usage.
Fp8Options fp8_from(const ChainOptions& o, reference::Problem* shape);

// "e4m3, a scale a head, hadamard on Q, K"
std::string describe(const Fp8Options& o);

}  // namespace flashptx
