// Scores, mask, online softmax and output of one block, on mma.sync fragments.
// Next: fused_mma_sync.cpp.
#include "gen/kernels/fused_steps.h"

namespace flashptx::gen {
namespace {

// d = address, in a way that the assembler cannot see through: it would keep eight addresses of
// steps in registers over the whole loop, and spill others for them. An exclusive or a step is
// cheaper.
void fresh_each_trip(Fused& f, const Reg& d, const Reg& address) {
  f.t.k.shr_s32(d, f.block, 31).note("0: blocks are never negative here");
  f.t.k.add_s32(d, d, address);
}

}  // namespace

// Keys that row `row` of the tile sees: all, or those up to its own place, aligned bottom right.
void keys_seen(Fused& f, const Reg& d, const Reg& row, int plus, StepPlace& at) {
  Kernel& k = f.t.k;
  k.mov_b32(d, at.seqlen_k);
  if (!f.causal()) return;
  k.sub_s32(d, d, at.seqlen_q);
  k.add_s32(d, d, row);
  k.add_s32(d, d, plus + 1);
  k.min_s32(d, d, at.seqlen_k);
  k.max_s32(d, d, 0);
}

// d = address in the K buffer of `block`: FA-2 has two, taken in turn.
void k_buffer(Fused& f, const Reg& d, const Reg& address, const Reg& block) {
  Kernel& k = f.t.k;
  k.and_b32(d, block, 1);
  k.mad_lo_u32(d, d, f.kv_bytes(), address);
}

// S = Q K^T for the block in shared memory.
void scores(Fused& f) {
  Kernel& k = f.t.k;
  k.section("S = Q K^T");
  k.scope([&] {
    Vec q = k.b32("q_frag", 4 * f.t.m_tiles()), b = k.b32("k_frag", 4);
    Reg qa = k.b32("q_step"), ka = k.b32("k_step"), k_now = k.b32("k_now"), q_now = k.b32("q_now");
    fresh_each_trip(f, q_now, f.q_addr);
    if (f.async()) k_buffer(f, k_now, f.k_addr, f.block);
    else fresh_each_trip(f, k_now, f.k_addr);
    for (int i = 0; i < f.s.size(); ++i) k.mov_f32(f.s[i], f32_imm(0));
    for (int step = 0; step < f.t.config.head_dim / 16; ++step) {
      at_step(f.t, qa, q_now, step);
      at_step(f.t, ka, k_now, step);
      for (int m = 0; m < f.t.m_tiles(); ++m)
        k.ldmatrix(q.slice(4 * m, 4), address(qa, 16 * m * f.t.row_bytes()));
      for (int n = 0; n < f.n_tiles(); n += 2) {
        k.ldmatrix(b.all(), address(ka, 8 * n * f.t.row_bytes()));
        mma_pair(f.t, f.s, f.n_tiles(), n, q, b.all());
      }
    }
  });
}

void mask_scores(Fused& f) {
  Kernel& k = f.t.k;
  k.section("mask");
  k.scope([&] {
    StepPlace at(f);
    Vec left = k.b32("keys_left", f.rows());
    Reg first = k.b32("first_key"), sees = k.pred("sees");
    k.mad_lo_u32(first, f.block, f.t.config.tile_kv(), at.quad_col);
    for (int r = 0; r < f.rows(); ++r) {
      keys_seen(f, left[r], at.row, 8 * r, at);
      k.sub_s32(left[r], left[r], first);
    }
    for (int m = 0; m < f.t.m_tiles(); ++m)
      for (int n = 0; n < f.n_tiles(); ++n)
        for (int i = 0; i < 4; ++i) {
          k.setp("gt", "s32", sees, left[2 * m + i / 2], 8 * n + i % 2);
          k.selp_f32(f.score(m, n, i), f.score(m, n, i), f32_imm(-f32_infinity), sees);
        }
  });
}

// Over the four lanes that share a row.
void quad_reduce(Kernel& k, const Reg& x, const Reg& other, bool maximum) {
  for (int lane_xor : {1, 2}) {
    k.shfl_sync_bfly_b32(other, x, lane_xor);
    if (maximum) k.max_ftz_f32(x, x, other);
    else k.add_ftz_f32(x, x, other);
  }
}

// 1 / sum, and 1 where no key was seen.
void inverse_of_sum(Kernel& k, const Reg& d, const Reg& sum, const Reg& empty) {
  k.setp("eq", "f32", empty, sum, f32_imm(0));
  k.rcp_approx_ftz_f32(d, sum);
  k.selp_f32(d, f32_imm(1), d, empty);
}

// P = exp2(S c - m c) in place, row sums, and alpha, the factor for O.
void softmax(Fused& f) {
  Kernel& k = f.t.k;
  k.section("online softmax");
  k.scope([&] {
    Vec largest = k.f32("largest", f.rows()), offset = k.f32("offset", f.rows()),
        sum = k.f32("sum", f.rows());
    Reg other = k.f32("other"), empty = k.pred("is_empty");
    for (int r = 0; r < f.rows(); ++r) {
      const int m = r / 2, half = 2 * (r % 2);
      k.max_ftz_f32(largest[r], f.row_max[r], f.score(m, 0, half));
      for (int n = 0; n < f.n_tiles(); ++n)
        for (int e = 0; e < 2; ++e)
          if (n || e) k.max_ftz_f32(largest[r], largest[r], f.score(m, n, half + e));
      quad_reduce(k, largest[r], other, true);
      k.setp("eq", "f32", empty, largest[r], f32_imm(-f32_infinity));
      k.selp_f32(other, f32_imm(0), largest[r], empty)
          .note("a row without keys: -inf - 0, not -inf - -inf");
      k.mul_ftz_f32(offset[r], other, f.scale_log2);
      k.neg_f32(offset[r], offset[r]);
      k.fma_rn_ftz_f32(f.alpha[r], f.row_max[r], f.scale_log2, offset[r]);
      k.ex2_approx_ftz_f32(f.alpha[r], f.alpha[r]);
      k.mov_f32(f.row_max[r], largest[r]);
    }
    for (int r = 0; r < f.rows(); ++r) {
      const int m = r / 2, half = 2 * (r % 2);
      for (int n = 0; n < f.n_tiles(); ++n)
        for (int e = 0; e < 2; ++e) {
          const Reg x = f.score(m, n, half + e);
          k.fma_rn_ftz_f32(x, x, f.scale_log2, offset[r]);
          k.ex2_approx_ftz_f32(x, x);
          if (n || e) k.add_ftz_f32(sum[r], sum[r], x);
          else k.mov_f32(sum[r], x);
        }
      if (!f.async()) {  // FA-1: the whole row's sum is needed now; O stands normalised by the old
                         // one
        quad_reduce(k, sum[r], other, false);
        k.mul_ftz_f32(f.alpha[r], f.alpha[r], f.row_sum[r]);
        k.add_ftz_f32(f.row_sum[r], f.alpha[r], sum[r]);
      } else {
        k.fma_rn_ftz_f32(f.row_sum[r], f.row_sum[r], f.alpha[r], sum[r]);
      }
    }
  });
}

void scale_o(Fused& f, const Vec& factor) {
  for (int m = 0; m < f.t.m_tiles(); ++m)
    for (int n = 0; n < f.o_tiles(); ++n)
      for (int i = 0; i < 4; ++i) {
        const Reg x = f.o[4 * (m * f.o_tiles() + n) + i];
        f.t.k.mul_ftz_f32(x, x, factor[2 * m + i / 2]);
      }
}

void output(Fused& f) {
  Kernel& k = f.t.k;
  k.section("O = O alpha + P V");
  scale_o(f, f.alpha);
  k.scope([&] {
    Vec p = k.b32("p_frag", 4 * f.t.m_tiles()), v = k.b32("v_frag", 4);
    Reg va = k.b32("v_step"), v_now = k.b32("v_now");
    fresh_each_trip(f, v_now, f.v_addr);
    for (int step = 0; step < f.t.config.tile_kv() / 16; ++step) {
      for (int m = 0; m < f.t.m_tiles(); ++m)
        for (int r = 0; r < 4; ++r)  // registers: rows g, g + 8 of keys 0..7, then of keys 8..15
          k.cvt_rn_x2_f32(f.t.type(), p[4 * m + r], f.score(m, 2 * step + r / 2, 2 * (r % 2) + 1),
                          f.score(m, 2 * step + r / 2, 2 * (r % 2)));
      for (int n = 0; n < f.o_tiles(); n += 2) {
        at_step(f.t, va, v_now, n / 2);
        k.ldmatrix_trans(v.all(), address(va, 16 * step * f.t.row_bytes()));
        mma_pair(f.t, f.o, f.o_tiles(), n, p, v.all());
      }
    }
  });
  if (f.async()) return;
  k.section("FA-1: O normalised after every block");
  k.scope([&] {
    Vec inverse = k.f32("inverse", f.rows());
    Reg empty = k.pred("is_empty");
    for (int r = 0; r < f.rows(); ++r) inverse_of_sum(k, inverse[r], f.row_sum[r], empty);
    scale_o(f, inverse);
  });
}

}  // namespace flashptx::gen
