// FlashAttention-1 and -2 with mma.sync: one CTA of 4 warps owns 128 query rows, each warp 32 of them.
//
// FA-2 (Dao 2023): K and V come by cp.async, K of the next block while softmax and P V of this one run, V while Q K^T runs;
// two CTAs an SM fill what is left. Blocks go from the last to the first, so that masked ones come first and the loop that
// matters has no mask. FA-1 (Dao et al. 2022, algorithm 1): the same arithmetic, but every tile is copied through registers
// between barriers, nothing overlaps, and O is kept normalised: divided by the row sum after every block.
// Next: ladder_tiles.h.
#include <cmath>
#include <limits>

#include "gen/kernels/ladder_kernels.h"
#include "gen/kernels/ladder_tiles.h"

namespace flashptx::gen {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

struct Fused {
  Fused(Kernel& k, const LadderConfig& c) : t(k, c) {}
  LadderTiles t;
  Reg tile;                                     // shared memory, aligned to the swizzle
  Reg scale_log2;
  Reg q_addr, k_addr, v_addr;                   // of ldmatrix
  Reg kv_at;                                    // bytes from the start of K, and of V, to this thread's chunk of a block: FA-2 the
                                                // block whose V comes next, FA-1 the block that comes next
  Reg block;                                    // counts down
  Vec s, o, row_max, row_sum, alpha;            // rows: [m tile][half]
  bool causal() const { return t.config.mask == Mask::causal; }
  bool async() const { return t.config.rung == Rung::fa2; }
  int rows() const { return 2 * t.m_tiles(); }   // of this lane: g and g + 8 of each row tile
  int n_tiles() const { return t.config.tile_kv() / 8; }
  int o_tiles() const { return t.config.head_dim / 8; }
  int q_bytes() const { return t.config.tile_q() * t.row_bytes(); }
  int kv_bytes() const { return t.config.tile_kv() * t.row_bytes(); }
  int k_offset() const { return q_bytes(); }                                 // FA-2: two K buffers, one V
  int v_offset() const { return q_bytes() + (async() ? 2 : 1) * kv_bytes(); }
  Reg score(int m, int n, int i) const { return s[4 * (m * n_tiles() + n) + i]; }
};

// Sizes and coordinates are read again where they are needed: they cost an instruction there, and a register of the 255
// for the whole loop otherwise.
struct Place {
  Place(Fused& f) : k(f.t.k) {
    for (const char* name : {"seqlen_q", "seqlen_k", "heads_q", "heads_kv"}) k.ld_param_u32(size(name), name);
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
  Reg size(const std::string& name) { return name == "seqlen_q" ? seqlen_q : name == "seqlen_k" ? seqlen_k : name == "heads_q" ? heads_q : heads_kv; }
  Kernel& k;
  Reg seqlen_q = k.b32("n_q"), seqlen_k = k.b32("n_k"), heads_q = k.b32("n_heads_q"), heads_kv = k.b32("n_heads_kv");
  Reg head = k.b32("head"), batch = k.b32("batch_index"), q0 = k.b32("q0"), row = k.b32("first_row"), quad_col = k.b32("first_col");
};

void setup_addresses(Fused& f) {
  Kernel& k = f.t.k;
  k.section("addresses");
  f.tile = k.b32("tile"), f.scale_log2 = k.f32("scale_log2");
  f.q_addr = k.b32("q_addr"), f.k_addr = k.b32("k_addr"), f.v_addr = k.b32("v_addr"), f.kv_at = k.b64("kv_at");
  k.ld_param_f32(f.scale_log2, "softmax_scale_log2");
  k.mov_b32(f.tile, symbol("smem"));
  k.add_u32(f.tile, f.tile, 1023);
  k.and_b32(f.tile, f.tile, hex(0xFFFFFC00)).note("the xor of a step must not carry");
  fragment_address_a(f.t, f.q_addr, f.tile, 0);
  fragment_address_b(f.t, f.k_addr, f.tile, f.k_offset());
  fragment_address_bt(f.t, f.v_addr, f.tile, f.v_offset());
}

// Keys that row `row` of the tile sees: all, or those up to its own place, aligned bottom right.
void keys_seen(Fused& f, const Reg& d, const Reg& row, int plus, Place& at) {
  Kernel& k = f.t.k;
  k.mov_b32(d, at.seqlen_k);
  if (!f.causal()) return;
  k.sub_s32(d, d, at.seqlen_q);
  k.add_s32(d, d, row);
  k.add_s32(d, d, plus + 1);
  k.min_s32(d, d, at.seqlen_k);
  k.max_s32(d, d, 0);
}

// blocks = how many the tile needs; full = how many of those need no mask.
void count_blocks(Fused& f, const Reg& blocks, const Reg& full) {
  Kernel& k = f.t.k;
  k.section("which blocks");
  k.scope([&] {
    Place at(f);
    const int log2 = f.t.config.tile_kv() == 64 ? 6 : 7;
    keys_seen(f, full, at.q0, 0, at);
    keys_seen(f, blocks, at.q0, f.t.config.tile_q() - 1, at);
    k.shr_u32(full, full, log2);
    k.add_u32(blocks, blocks, f.t.config.tile_kv() - 1);
    k.shr_u32(blocks, blocks, log2);
  });
}

// Copies the block at kv_at - back blocks of K or V ("k", "v") to shared memory.
void copy_block(Fused& f, const char* tensor, const Reg& tile, int offset, int back, const Reg& rows_left) {
  Kernel& k = f.t.k;
  k.scope([&] {
    Reg from = k.b64("source"), pass = k.b64("pass_bytes"), heads = k.b32("heads");
    k.ld_param_u32(heads, "heads_kv");
    k.ld_param_u64(from, tensor);
    k.add_u64(from, from, f.kv_at);
    if (back) {
      k.mul_wide_u32(pass, heads, f.t.row_bytes() * f.t.config.tile_kv());
      k.sub_u64(from, from, pass);
    }
    k.mul_wide_u32(pass, heads, f.t.row_bytes() * f.t.rows_per_pass());
    copy_tile(f.t, tile, offset, from, pass, f.t.config.tile_kv(), rows_left, f.async());
  });
}

void step_back(Fused& f) {
  Kernel& k = f.t.k;
  k.scope([&] {
    Reg heads = k.b32("heads"), bytes = k.b64("block_bytes");
    k.ld_param_u32(heads, "heads_kv");
    k.mul_wide_u32(bytes, heads, f.t.row_bytes() * f.t.config.tile_kv());
    k.sub_u64(f.kv_at, f.kv_at, bytes);
  });
}

// d = address, in a way that the assembler cannot see through: it would keep eight addresses of steps in registers over the
// whole loop, and spill others for them. An exclusive or a step is cheaper.
void fresh_each_trip(Fused& f, const Reg& d, const Reg& address) {
  f.t.k.shr_s32(d, f.block, 31).note("0: blocks are never negative here");
  f.t.k.add_s32(d, d, address);
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
      for (int m = 0; m < f.t.m_tiles(); ++m) k.ldmatrix(q.slice(4 * m, 4), address(qa, 16 * m * f.t.row_bytes()));
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
    Place at(f);
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
          k.selp_f32(f.score(m, n, i), f.score(m, n, i), f32_imm(-infinity), sees);
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
    Vec largest = k.f32("largest", f.rows()), offset = k.f32("offset", f.rows()), sum = k.f32("sum", f.rows());
    Reg other = k.f32("other"), empty = k.pred("is_empty");
    for (int r = 0; r < f.rows(); ++r) {
      const int m = r / 2, half = 2 * (r % 2);
      k.max_ftz_f32(largest[r], f.row_max[r], f.score(m, 0, half));
      for (int n = 0; n < f.n_tiles(); ++n)
        for (int e = 0; e < 2; ++e)
          if (n || e) k.max_ftz_f32(largest[r], largest[r], f.score(m, n, half + e));
      quad_reduce(k, largest[r], other, true);
      k.setp("eq", "f32", empty, largest[r], f32_imm(-infinity));
      k.selp_f32(other, f32_imm(0), largest[r], empty).note("a row without keys: -inf - 0, not -inf - -inf");
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
      if (!f.async()) {  // FA-1: the whole row's sum is needed now; O stands normalised by the old one
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
          k.cvt_rn_x2_f32(f.t.type(), p[4 * m + r], f.score(m, 2 * step + r / 2, 2 * (r % 2) + 1), f.score(m, 2 * step + r / 2, 2 * (r % 2)));
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

// One trip of FA-2: V of this block and K of the next arrive under Q K^T, softmax and P V.
void trip_fa2(Fused& f, bool masked, const Reg& rows_left) {
  Kernel& k = f.t.k;
  k.section("K has arrived, and nobody reads V or the other K any more");
  k.cp_async_wait_group(0);
  k.bar_sync_all(0);
  copy_block(f, "v", f.tile, f.v_offset(), 0, masked ? rows_left : Reg{});
  k.cp_async_commit_group();
  k.scope([&] {
    Reg more = k.pred("is_more"), next = k.b32("next_block"), other = k.b32("other_buffer");
    k.setp("gt", "s32", more, f.block, 0);
    k.add_s32(next, f.block, 1);
    k_buffer(f, other, f.tile, next);
    k.if_(more, [&] { copy_block(f, "k", other, f.k_offset(), 1, Reg{}); });
  });
  k.cp_async_commit_group();
  step_back(f);
  scores(f);
  k.section("V has arrived");
  k.cp_async_wait_group(1);
  k.bar_sync_all(0);
  if (masked) mask_scores(f);
  softmax(f);
  output(f);
}

// One trip of FA-1: copy, barrier, compute, barrier.
void trip_fa1(Fused& f, bool masked, const Reg& rows_left) {
  Kernel& k = f.t.k;
  k.section("copy K and V through registers");
  k.bar_sync_all(0);
  copy_block(f, "k", f.tile, f.k_offset(), 0, masked ? rows_left : Reg{});
  copy_block(f, "v", f.tile, f.v_offset(), 0, masked ? rows_left : Reg{});
  step_back(f);
  k.bar_sync_all(0);
  scores(f);
  if (masked) mask_scores(f);
  softmax(f);
  output(f);
}

// Q into shared memory; kv_at at the last block, FA-2: its K on the way.
void start_copies(Fused& f, const Reg& blocks, const Reg& rows_left) {
  Kernel& k = f.t.k;
  k.section("first copies: Q, and K of the last block");
  k.scope([&] {
    Place at(f);
    Reg q_from = k.b64("q_from"), q_pass = k.b64("q_pass"), row0 = k.b32("row0"), key0 = k.b32("key0"), q_left = k.b32("q_rows_left"),
        head_kv = k.b32("head_kv"), base = k.b64("k_base");
    k.mad_lo_u32(row0, at.batch, at.seqlen_q, at.q0);
    copy_source(f.t, q_from, q_pass, "q", row0, at.heads_q, at.head);
    k.sub_s32(q_left, at.seqlen_q, at.q0);
    k.sub_s32(q_left, q_left, f.t.copy_row);
    copy_tile(f.t, f.tile, 0, q_from, q_pass, f.t.config.tile_q(), q_left, f.async());
    k.sub_u32(f.block, blocks, 1);
    k.mul_lo_u32(key0, f.block, f.t.config.tile_kv());
    k.sub_s32(rows_left, at.seqlen_k, key0);
    k.sub_s32(rows_left, rows_left, f.t.copy_row);
    k.mad_lo_u32(row0, at.batch, at.seqlen_k, key0);
    k.div_u32(head_kv, at.heads_q, at.heads_kv);
    k.div_u32(head_kv, at.head, head_kv).note("grouped queries share a key head");
    copy_source(f.t, f.kv_at, q_pass, "k", row0, at.heads_kv, head_kv);
    k.ld_param_u64(base, "k");
    k.sub_u64(f.kv_at, f.kv_at, base);
  });
  if (!f.async()) return;
  k.scope([&] {
    Reg buffer = k.b32("first_buffer");
    k_buffer(f, buffer, f.tile, f.block);
    copy_block(f, "k", buffer, f.k_offset(), 0, rows_left);
  });
  k.cp_async_commit_group();
}

// A loop of trips from f.block down to `stop` (inclusive), if there is one.
void blocks_down_to(Fused& f, const char* name, const Operand& stop, bool masked, const Reg& rows_left) {
  Kernel& k = f.t.k;
  k.scope([&] {
    Reg any = k.pred("is_any");
    k.setp("ge", "s32", any, f.block, stop);
    k.if_(any, [&] {
      k.loop(name, [&] {
        Reg more = k.pred("goes_on");
        if (f.async()) trip_fa2(f, masked, rows_left);
        else trip_fa1(f, masked, rows_left);
        k.sub_s32(f.block, f.block, 1);
        if (masked) k.add_s32(rows_left, rows_left, f.t.config.tile_kv());
        k.setp("ge", "s32", more, f.block, stop);
        return more;
      });
    });
  });
}

// O / row sum and the log-sum-exp of this lane's four rows.
void store_result(Fused& f) {
  Kernel& k = f.t.k;
  k.section("O and LSE");
  k.scope([&] {
    Place place(f);
    Vec inverse = k.f32("inverse", f.rows());
    Reg other = k.f32("other"), lse = k.f32("lse_value"), empty = k.pred("is_empty"), valid = k.pred("is_valid"), leads = k.pred("leads"),
        wanted = k.pred("is_wanted");
    Reg row = k.b32("row"), line = k.b64("line"), head64 = k.b64("head64"), o = k.b64("o_ptr"), lse_ptr = k.b64("lse_ptr"), at = k.b64("at"), packed = k.b32("packed"),
        index = k.b32("index");
    k.ld_param_u64(o, "o");
    k.ld_param_u64(lse_ptr, "lse");
    k.setp("ne", "u64", wanted, lse_ptr, 0);
    k.setp("eq", "and", "u32", leads, place.quad_col, 0, wanted).note("one lane a row writes the LSE");
    k.cvt_u64_u32(head64, place.head);
    for (int r = 0; r < f.rows(); ++r) {
      if (f.async()) quad_reduce(k, f.row_sum[r], other, false);
      inverse_of_sum(k, inverse[r], f.row_sum[r], empty);
      if (!f.async()) k.mov_f32(inverse[r], f32_imm(1)).note("normalised already");
    }
    scale_o(f, inverse);
    for (int r = 0; r < f.rows(); ++r) {
      k.add_u32(row, place.row, 8 * r);
      k.setp("lt", "u32", valid, row, place.seqlen_q);
      k.if_(valid, [&] {
        k.mad_lo_u32(index, place.batch, place.seqlen_q, row);
        k.mul_wide_u32(line, index, place.heads_q);
        k.add_u64(line, line, head64);
        k.mul_lo_u64(line, line, f.t.row_bytes());
        k.add_u64(at, o, line);
        k.mul_wide_u32(line, place.quad_col, 2);
        k.add_u64(at, at, line);
        for (int n = 0; n < f.o_tiles(); ++n) {
          const int first = 4 * (r / 2 * f.o_tiles() + n) + 2 * (r % 2);
          k.cvt_rn_x2_f32(f.t.type(), packed, f.o[first + 1], f.o[first]);
          k.st_global("b32", address(at, 16 * n), packed);
        }
        k.mad_lo_u32(index, place.batch, place.heads_q, place.head);
        k.mul_wide_u32(line, index, place.seqlen_q);
        k.cvt_u64_u32(at, row);
        k.add_u64(line, line, at);
        k.mul_lo_u64(line, line, 4);
        k.add_u64(line, lse_ptr, line);
        k.setp("eq", "f32", empty, f.row_max[r], f32_imm(-infinity));
        k.selp_f32(other, f32_imm(0), f.row_max[r], empty);
        k.lg2_approx_ftz_f32(lse, f.row_sum[r]);
        k.fma_rn_ftz_f32(lse, other, f.scale_log2, lse);
        k.mul_ftz_f32(lse, lse, f32_imm(static_cast<float>(std::log(2.0)))).note("natural logarithm; -inf for a row without keys");
        k.st_global_f32(address(line), lse).when(leads);
      });
    }
  });
}

}  // namespace

int fused_shared_bytes(const LadderConfig& c) {
  return 1023 + 2 * c.head_dim * (c.tile_q() + (c.rung == Rung::fa2 ? 3 : 2) * c.tile_kv());
}

void emit_fused(Kernel& k, const LadderConfig& config) {
  Fused f(k, config);
  k.dynamic_shared("smem", 1024);
  k.threads(128);
  k.min_ctas_per_sm(2);
  k.section("coordinates of the thread");
  setup_tiles(f.t);
  setup_addresses(f);
  Reg blocks = k.b32("blocks"), full = k.b32("full_blocks"), rows_left = k.b32("rows_left"), any = k.pred("has_blocks");
  count_blocks(f, blocks, full);
  f.block = k.b32("block");
  f.s = k.f32("s_acc", 4 * f.t.m_tiles() * f.n_tiles()), f.o = k.f32("o_acc", 4 * f.t.m_tiles() * f.o_tiles());
  f.row_max = k.f32("row_max", f.rows()), f.row_sum = k.f32("row_sum", f.rows()), f.alpha = k.f32("alpha", f.rows());
  for (int i = 0; i < f.o.size(); ++i) k.mov_f32(f.o[i], f32_imm(0));
  for (int r = 0; r < f.rows(); ++r) {
    k.mov_f32(f.row_max[r], f32_imm(-infinity));
    k.mov_f32(f.row_sum[r], f32_imm(0));
  }
  k.setp("gt", "s32", any, blocks, 0);
  k.if_(any, [&] {
    start_copies(f, blocks, rows_left);
    blocks_down_to(f, "masked_block", full, true, rows_left);
    blocks_down_to(f, "block", 0, false, rows_left);
  });
  store_result(f);
}

}  // namespace flashptx::gen
