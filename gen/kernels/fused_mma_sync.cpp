// FlashAttention-1 and -2 with mma.sync: how the blocks come and go. A CTA of 4 warps owns 128
// query rows (FA-1: 64), each warp its 32 (16).
//
// FA-2 (Dao 2023): V of this block and K of the next come by cp.async while the products run; two
// CTAs an SM fill what is left. Blocks go from the last to the first, so that masked ones come
// first and the loop that matters has no mask. FA-1 (Dao et al. 2022, algorithm 1): every tile is
// copied through registers between barriers, nothing overlaps, and O is kept normalised: divided by
// the row sum after every block. Next: fused_steps.cpp (what a trip computes), ladder_tiles.h.
#include <cmath>

#include "gen/kernels/fused_steps.h"
#include "gen/kernels/ladder_kernels.h"

namespace flashptx::gen {
namespace {

void setup_addresses(Fused& f) {
  Kernel& k = f.t.k;
  k.section("addresses");
  f.tile = k.b32("tile"), f.scale_log2 = k.f32("scale_log2");
  f.q_addr = k.b32("q_addr"), f.k_addr = k.b32("k_addr"), f.v_addr = k.b32("v_addr"),
  f.kv_at = k.b64("kv_at");
  k.ld_param_f32(f.scale_log2, "softmax_scale_log2");
  k.mov_b32(f.tile, symbol("smem"));
  k.add_u32(f.tile, f.tile, 1023);
  k.and_b32(f.tile, f.tile, hex(0xFFFFFC00)).note("the xor of a step must not carry");
  fragment_address_a(f.t, f.q_addr, f.tile, 0);
  fragment_address_b(f.t, f.k_addr, f.tile, f.k_offset());
  fragment_address_bt(f.t, f.v_addr, f.tile, f.v_offset());
}

// blocks = how many the tile needs; full = how many of those need no mask.
void count_blocks(Fused& f, const Reg& blocks, const Reg& full) {
  Kernel& k = f.t.k;
  k.section("which blocks");
  k.scope([&] {
    StepPlace at(f);
    const int log2 = f.t.config.tile_kv() == 64 ? 6 : 7;
    keys_seen(f, full, at.q0, 0, at);
    keys_seen(f, blocks, at.q0, f.t.config.tile_q() - 1, at);
    k.shr_u32(full, full, log2);
    k.add_u32(blocks, blocks, f.t.config.tile_kv() - 1);
    k.shr_u32(blocks, blocks, log2);
  });
}

// Copies the block at kv_at - back blocks of K or V ("k", "v") to shared memory.
void copy_block(Fused& f, const char* tensor, const Reg& tile, int offset, int back,
                const Reg& rows_left) {
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
    StepPlace at(f);
    Reg q_from = k.b64("q_from"), q_pass = k.b64("q_pass"), row0 = k.b32("row0"),
        key0 = k.b32("key0"), q_left = k.b32("q_rows_left"), head_kv = k.b32("head_kv"),
        base = k.b64("k_base");
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
void blocks_down_to(Fused& f, const char* name, const Operand& stop, bool masked,
                    const Reg& rows_left) {
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
    StepPlace place(f);
    Vec inverse = k.f32("inverse", f.rows());
    Reg other = k.f32("other"), lse = k.f32("lse_value"), empty = k.pred("is_empty"),
        valid = k.pred("is_valid"), leads = k.pred("leads"), wanted = k.pred("is_wanted");
    Reg row = k.b32("row"), line = k.b64("line"), head64 = k.b64("head64"), o = k.b64("o_ptr"),
        lse_ptr = k.b64("lse_ptr"), at = k.b64("at"), packed = k.b32("packed"),
        index = k.b32("index");
    k.ld_param_u64(o, "o");
    k.ld_param_u64(lse_ptr, "lse");
    k.setp("ne", "u64", wanted, lse_ptr, 0);
    k.setp("eq", "and", "u32", leads, place.quad_col, 0, wanted)
        .note("one lane a row writes the LSE");
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
        k.setp("eq", "f32", empty, f.row_max[r], f32_imm(-f32_infinity));
        k.selp_f32(other, f32_imm(0), f.row_max[r], empty);
        k.lg2_approx_ftz_f32(lse, f.row_sum[r]);
        k.fma_rn_ftz_f32(lse, other, f.scale_log2, lse);
        k.mul_ftz_f32(lse, lse, f32_imm(static_cast<float>(std::log(2.0))))
            .note("natural logarithm; -inf for a row without keys");
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
  Reg blocks = k.b32("blocks"), full = k.b32("full_blocks"), rows_left = k.b32("rows_left"),
      any = k.pred("has_blocks");
  count_blocks(f, blocks, full);
  f.block = k.b32("block");
  f.s = k.f32("s_acc", 4 * f.t.m_tiles() * f.n_tiles()),
  f.o = k.f32("o_acc", 4 * f.t.m_tiles() * f.o_tiles());
  f.row_max = k.f32("row_max", f.rows()), f.row_sum = k.f32("row_sum", f.rows()),
  f.alpha = k.f32("alpha", f.rows());
  for (int i = 0; i < f.o.size(); ++i) k.mov_f32(f.o[i], f32_imm(0));
  for (int r = 0; r < f.rows(); ++r) {
    k.mov_f32(f.row_max[r], f32_imm(-f32_infinity));
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
