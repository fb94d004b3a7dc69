// How the tiles of the last, incomplete wave are cut along the keys, and whether that pays (gen/tile/split_tail.cpp).
//
// Plain arithmetic on the problem, the kernel's tile and the number of CTAs. Next: host/split_tail.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gen/catalog.h"
#include "host/problem.h"

namespace flashptx {

constexpr std::uint32_t most_cut_tiles = 256;
constexpr std::int64_t most_parts = 16;  // of a CTA: a bit each

struct SplitTail {
  std::uint32_t first = 0;   // tiles before this one are whole
  std::uint32_t parts = 0;   // second parts that a CTA without a first part takes; 0: nothing is cut
  std::uint32_t blocks = 0;  // key blocks of a first part
  std::uint32_t grid = 0;    // CTAs
  std::size_t workspace_bytes = 0;
};

// ceil(seqlen_q / tile_q) * heads_q * batch, at most INT64_MAX.
std::int64_t forward_tiles(const ForwardProblem& p, const KernelConfig& c);

// For a kernel of the plan `c` (its split_tail is not asked) on `ctas` multiprocessors. `always`: also where it gains
// nothing, as long as a tile has two blocks: for a kernel asked for by name.
SplitTail split_tail(const ForwardProblem& p, const KernelConfig& c, std::int64_t ctas, bool always = false);

// Turns plan.split_tail on where that gains something and the kernel has registers for it.
bool let_split_tail(const ForwardProblem& p, std::int64_t ctas, KernelConfig* config);

}  // namespace flashptx
