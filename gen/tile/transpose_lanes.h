// What the two ways of turning V inside the kernel share: 16 columns of V, keys as rows, to 16 rows of V^T.
//
// Defined in gen/tile/tile_transpose.cpp, where the layout is explained. Next: gen/tile/tile_background.cpp.
#pragma once

#include "gen/tile/forward_context.h"

namespace flashptx::gen {

struct TransposeLanes {
  Reg src;     // this lane's key row of a unit in raw stage 0
  Reg key;     // 16 * (lane % 8): the swizzle of that row
  Reg dst;     // this lane's row of stmatrix and its chunk, for the first 32 keys: the others are this ^ 32 u
  Reg select;  // PRMT selector of what goes into matrix 0; matrix 1 takes the other one of the pair
};
// `raw`: where V lies in shared memory.
TransposeLanes emit_transpose_lanes(ForwardContext& f, int raw);
// One group of 16 columns, `keys` keys: `src` and `dst` are this lane's addresses for the first 32.
void emit_transpose_group(ForwardContext& f, const TransposeLanes& t, const Reg& src, const Reg& dst, int keys);

}  // namespace flashptx::gen
