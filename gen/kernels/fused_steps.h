// What FA-1 and FA-2 share: the registers of a CTA and the steps of a trip.
// Next: fused_steps.cpp; fused_mma_sync.cpp puts them in order.
#pragma once

#include <string>

#include "gen/kernels/ladder_tiles.h"

namespace flashptx::gen {

struct Fused {
  Fused(Kernel& k, const LadderConfig& c) : t(k, c) {}
  LadderTiles t;
  Reg tile;  // shared memory, aligned to the swizzle
  Reg scale_log2;
  Reg q_addr, k_addr, v_addr;  // of ldmatrix
  Reg kv_at;  // bytes from the start of K, and of V, to this thread's chunk of a block: FA-2 the
              // block whose V comes next, FA-1 the block that comes next
  Reg block;  // counts down
  Vec s, o, row_max, row_sum, alpha;  // rows: [m tile][half]
  bool causal() const { return t.config.mask == Mask::causal; }
  bool async() const { return t.config.rung == Rung::fa2; }
  int rows() const { return 2 * t.m_tiles(); }  // of this lane: g and g + 8 of each row tile
  int n_tiles() const { return t.config.tile_kv() / 8; }
  int o_tiles() const { return t.config.head_dim / 8; }
  int q_bytes() const { return t.config.tile_q() * t.row_bytes(); }
  int kv_bytes() const { return t.config.tile_kv() * t.row_bytes(); }
  int k_offset() const { return q_bytes(); }  // FA-2: two K buffers, one V
  int v_offset() const { return q_bytes() + (async() ? 2 : 1) * kv_bytes(); }
  Reg score(int m, int n, int i) const { return s[4 * (m * n_tiles() + n) + i]; }
};

// Sizes and coordinates are read again where they are needed: they cost an instruction there, and a
// register of the 255 for the whole loop otherwise.
struct StepPlace {
  StepPlace(Fused& f) : k(f.t.k) {
    for (const char* name : {"seqlen_q", "seqlen_k", "heads_q", "heads_kv"})
      k.ld_param_u32(size(name), name);
    k.mov_b32(head, special("ctaid.y"));
    k.mov_b32(batch, special("ctaid.z"));
    k.mov_b32(q0, special("ctaid.x"));
    if (f.causal()) {
      Reg last = k.b32("last_tile");
      k.mov_b32(last, special("nctaid.x"));
      k.sub_u32(last, last, 1);
      k.sub_u32(q0, last, q0).note("the longest rows first");
    }
    k.mul_lo_u32(q0, q0, f.t.config.tile_q());
    k.mov_b32(row, special("tid.x"));
    k.shr_u32(quad_col, row, 5);
    k.and_b32(row, row, 31);
    k.shr_u32(row, row, 2);
    k.mad_lo_u32(row, quad_col, f.t.config.warp_rows(), row);
    k.add_u32(row, row, q0).note("this lane's first row: one a quad");
    k.mov_b32(quad_col, special("tid.x"));
    k.and_b32(quad_col, quad_col, 3);
    k.shl_b32(quad_col, quad_col, 1);
  }
  Reg size(const std::string& name) {
    return name == "seqlen_q"   ? seqlen_q
           : name == "seqlen_k" ? seqlen_k
           : name == "heads_q"  ? heads_q
                                : heads_kv;
  }
  Kernel& k;
  Reg seqlen_q = k.b32("n_q"), seqlen_k = k.b32("n_k"), heads_q = k.b32("n_heads_q"),
      heads_kv = k.b32("n_heads_kv");
  Reg head = k.b32("head"), batch = k.b32("batch_index"), q0 = k.b32("q0"),
      row = k.b32("first_row"), quad_col = k.b32("first_col");
};

// Keys that row `row + plus` of the sequence sees.
void keys_seen(Fused& f, const Reg& d, const Reg& row, int plus, StepPlace& at);
// d = address in the K buffer of `block`: FA-2 has two, taken in turn.
void k_buffer(Fused& f, const Reg& d, const Reg& address, const Reg& block);

void scores(Fused& f);       // S = Q K^T for the block in shared memory
void mask_scores(Fused& f);  // -inf for keys that a row does not see
void softmax(Fused& f);      // P = exp2(S c - m c) in place, row sums, and alpha, the factor for O
void output(Fused& f);       // O = O alpha + P V

void quad_reduce(Kernel& k, const Reg& x, const Reg& other,
                 bool maximum);  // over the four lanes of a row
void inverse_of_sum(Kernel& k, const Reg& d, const Reg& sum,
                    const Reg& empty);  // 1 where no key was seen
void scale_o(Fused& f, const Vec& factor);

}  // namespace flashptx::gen
