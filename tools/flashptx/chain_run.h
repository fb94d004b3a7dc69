// The chain "16 bits in, FP8 attention inside" on a device, judged against float64 attention of the tensors as they were
// given, before RoPE, Hadamard and quantisation.
//
// The allowance is that of FP8 attention (tools/reference/error.h) over an unfused computation with the same recipe on
// the CPU: the largest error of a tile at most four times that computation's, the RMS at most 1.25 times, and O not
// further from that computation than what rounding P in another way explains. Beside it stands plain FP8: one scale a tensor, no Hadamard. Next: host/fp8_attention.h, run_command.cpp, accuracy.h.
#pragma once

#include <vector>

#include "host/fp8_attention.h"
#include "tools/flashptx/runner.h"

namespace flashptx {

struct ChainCase {
  Case base;                   // exact: of the tensors given, behind RoPE; plain: the same recipe, unfused
  Fp8Options options;
  std::vector<float> cos, sin; // with RoPE: base 10000, positions aligned bottom right
  double baseline_max = 0, baseline_rms = 0;  // error of plain FP8
};

// `shape` has a 16-bit type. Sets positions and table_rows of options with RoPE.
ChainCase make_chain_case(const reference::Problem& shape, reference::Layout layout, reference::Inputs inputs,
                          std::uint64_t seed, bool lse, std::int64_t check_rows, const Fp8Options& options);

// As run_case, with a workspace between guard bytes.
Outcome run_chain(Device& device, Attention& attention, const ChainCase& c, const ForwardChoice& choice,
                  int repeats = 0);

// Size of the difference over all elements.
struct Difference {
  double max = 0, rms = 0;
};
Difference difference(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace flashptx
