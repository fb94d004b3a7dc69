// The mask: columns past seqlen_k, and for causal attention past the diagonal, become -inf.
//
// Only blocks at or after first_masked run it, behind a branch that is uniform in the warpgroup. This lane's
// element i of S stands in row warp_row + 8 * (i / 2 % 2) and column 8 * (i / 4) + quad_col + i % 2 (PTX ISA,
// wgmma accumulator fragment); col_limit[r] is the first column of the whole key axis that row r must not see.
#include <limits>

#include "gen/tile/forward_context.h"

namespace flashptx::gen {

void emit_mask(ForwardContext& f) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg edge = k.pred("at_edge");
    k.setp("ge", "s32", edge, f.block, f.first_masked);
    k.if_rare(edge, [&] {
      k.scope([&] {
        Vec limit = k.b32("limit", 2);
        Reg first_col = k.b32("first_col"), hidden = k.pred("hidden");
        k.mad_lo_u32(first_col, f.block, f.n(), f.quad_col);
        if (f.splits()) k.mad_lo_u32(first_col, f.first_block, f.n(), first_col);
        for (int r = 0; r < 2; ++r)
          k.sub_s32(limit[r], f.has_col_limits() ? f.col_limit[r] : f.seqlen_k, first_col);
        for (int i = 0; i < f.s_acc.size(); ++i) {
          int column = 8 * (i / 4) + i % 2;
          k.setp("le", "s32", hidden, limit[i / 2 % 2], column);
          k.mov_f32(f.s_acc[i], f32_imm(-std::numeric_limits<float>::infinity())).when(hidden);
        }
      });
    }, "the block is inside every row's range");
  });
}

}  // namespace flashptx::gen
