// The earlier rungs of the ladder, each a kernel of its own: what attention on NVIDIA GPUs looked
// like before wgmma and TMA.
//
//   unfused_scores, unfused_softmax, unfused_output   S and P go through memory (standard
//   attention, three kernels) fa1    one fused kernel, copies through registers, O normalised after
//   every block, nothing overlaps fa2    cp.async under the products, split over Q, O normalised
//   once at the end
// All use mma.sync on tiles in swizzled shared memory, dense (batch, seqlen, heads, head_dim)
// tensors and no tensor maps. Next: ladder_tiles.h (tiles and fragments), fused_mma_sync.cpp (fa1,
// fa2), unfused.cpp.
#pragma once

#include <string>
#include <vector>

#include "gen/catalog.h"

namespace flashptx {

enum class Rung { unfused_scores, unfused_softmax, unfused_output, fa1, fa2 };

struct LadderConfig {
  Rung rung = Rung::fa2;
  DataType dtype = DataType::bf16;  // bf16 or f16
  int head_dim = 128;               // 64 or 128
  Mask mask = Mask::full;
  std::string name() const;  // fa2_fwd_bf16_d128_causal
  static bool parse(const std::string& name, LadderConfig* out);
  int warp_rows() const { return rung == Rung::fa1 ? 16 : 32; }
  int tile_q() const { return 4 * warp_rows(); }
  int tile_kv() const { return head_dim == 128 ? 64 : 128; }
};

// Throws gen::Error for a configuration that there is no kernel for.
EmittedKernel emit_ladder(const LadderConfig& config, std::string* line_table = nullptr);
// The rungs that are shown by default: bf16, head_dim 128, full.
std::vector<LadderConfig> ladder_catalog();

}  // namespace flashptx
