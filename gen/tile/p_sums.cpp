// Plan::p_sums, 8 bit: the rows' sums by the tensor cores.
//
// V^T has dv rows of keys; behind each stage of it stand eight more (the least that wgmma counts in) of ones, written
// once, and P V is one product of dv + 8 columns: the last ones are the sums of P as it was rounded, in all four lanes that share a
// row. Numerator and denominator then agree: a key that carries its row alone gives exactly its V, and the mean of what
// rounding does to P cancels.
//
// The tensor cores keep 13 bits below the leading one of an FP8 sum (gen/catalog.h, single_level_keys), and a sum of P has one
// sign: it must not run on over the tile. So each block's is taken out once its P V is complete (emit_take_sums), added
// to row_sum in fp32, and its accumulators start at 0 again. row_sum belongs to O's reference at every point and is scaled with O.
//
// guarded: a block's sum below 440 proves that no p of it was cut to 448, and that none was NaN or infinite; the largest such sum of the
// tile is kept and asked at the tile's end, by the guard. No vote stands in a trip, and nothing in front of P V depends on
// sums. What that costs is room: P's offset cannot move with the block (rescale_block). It is settled once, behind the
// last block that has its maximum taken: 2^offset so that the sum of those is below 64 (128 from two, 256 from four checked blocks
// on), 15 to 60 a block: twice that would, by estimate, let a row of normal data reach 440 about once in two launches of 1e9 scores. A p below 2^-10 is 0, and many such keys may be what a row consists of (a strong local window, a long weak tail): so a row whose sum is, at
// the tile's end, less than 64 times what its unchecked keys can have lost (2^-10 each) fails its guard too: 1.6 % of the sum at most are lost, with direct words, which end at 2^-7, 12 %. Normal data
// stand 1.6 to 10 times above that (the least of 1e4 to 2e5 rows drawn). A warp with a row of which one key carries half or more goes on taking maxima, at offset 8.
// What stays: a late key that carries a part of the row has its p rounded (3 % of its share), where rescale_block put it on a power of two.
//
// Expected: 64 additions of 128 keys and the vote's chain of 60 to 80 clocks a trip less (without both, right on normal
// data alone, kernels were 20 % faster at head_dim 64 and 9 % at 128: tools/bench/results/vote_and_sums_e4m3_h200.csv) for 1 / 8 and 1 / 16 more of
// P V's tensor time and 10 instructions. Measured in turns, the same plan with and without (p_sums_turns_e4m3_h200.csv): head_dim 64 full with eight chord words + 10 % at 1k
// and 4k, 12 at 8k, causal 10 and 11 at 1k and 4k (with no chord word 4 to 9 % below eight words without: the special function unit binds then); 128 full + 8 %, causal 9 to 10; plain + 2 to
// 6 %; fast mode 64 + 24 % at 1k, 11 at 8k, 128 + 22, 18 and 7 at 512, 2k and 8k. head_dim 256, P V in halves of 128 and 136 columns: - 5 to + 1 %, not kept.
// RMS error on normal data is 0.5 to 2 % above that with rescale_block at the same number of checked blocks, since no later block's largest p is exact
// (p_sums_e4m3_h200.csv, relative to FlashAttention-3's): so full attention checks twice as many (checked_blocks), for 1 to 6 % of time. On outliers (192 rows, the
// emulator) 1.47e-3 at 16k keys and 1.30e-3 at 32k beside 1.54 and 1.41e-3 without: their rows take maxima, or are done again.
// In 16 bit, the ones in a slab that every stage reaches by its LBO (V is MN-major), the sums left in the accumulators, head_dim 64: - 3 % at 512, - 6 at 1k, - 8 at 4k and
// 16k, plain + 1 to 2 % (p_sums_bf16_h200.csv): one product in nine is one too many where tensor cores are at 71 %. Not kept.
#include <algorithm>

#include "gen/tile/forward_context.h"

namespace flashptx::gen {
namespace {

constexpr float kMostPSum = 440.0f;  // below what a single p of 448 makes it, whatever the tensor cores cut off
constexpr float kOneKeyRow = 512.0f; // twice the largest p at offset 8

}  // namespace

void emit_ones(ForwardContext& f) {
  Kernel& k = f.k;
  const SharedLayout& m = f.smem;
  const int vectors = kSumColumns * 128 / 16, slabs = f.config.plan.v_ring() * m.slabs_v, threads = f.config.plan.threads();
  k.comment("ones behind V^T's columns, for the sums of P");
  k.scope([&] {
    Reg at = k.b32("ones_at"), slab = k.b32("ones_slab"), ones = k.b32("ones"), inside = k.pred("writes_ones");
    k.mov_b32(ones, hex(f.config.problem.type_v() == DataType::e5m2 ? 0x3c3c3c3cu : 0x38383838u));
    for (int first = 0; first < vectors * slabs; first += threads) {
      k.mov_b32(at, special("tid.x"));
      if (first) k.add_u32(at, at, first);
      k.setp("lt", "u32", inside, at, vectors * slabs);
      k.shr_u32(slab, at, 6);
      k.and_b32(at, at, vectors - 1);
      k.mad_lo_u32(at, at, 16, f.base);
      k.mad_lo_u32(at, slab, m.slab_bytes_v, at);
      k.emit("st.shared::cta.v4.u32", {address(at, m.v + f.dv() * 128), std::vector<Reg>{ones, ones, ones, ones}}, Location::current()).when(inside);
    }
    k.fence_proxy_async_shared().note("generic writes, then wgmma reads");
  });
}

void emit_start_sums(ForwardContext& f) {
  Kernel& k = f.k;
  if (f.worst_sum.valid()) k.mov_f32(f.worst_sum, f32_imm(0.0f));
}

// `lag`: trips that the product is behind the block at work.
void emit_take_sums(ForwardContext& f, int lag) {
  Kernel& k = f.k;
  for (int r = 0; r < 2; ++r) k.add_f32(f.row_sum[r], f.row_sum[r], f.o_sum[2 * r]);
  if (f.guarded())
    k.scope([&] {
      Reg summed = f.block, larger = k.f32("larger_sum"), unchecked = k.pred("had_no_maximum");
      if (lag) {
        summed = k.b32("summed_block");
        k.add_s32(summed, f.block, lag);
      }
      k.setp("lt", "s32", unchecked, summed, f.first_unchecked);
      k.max_f32(larger, f.o_sum[0], f.o_sum[2]);
      k.max_f32(f.worst_sum, f.worst_sum, larger).when(unchecked);
    });
  for (const Reg& sum : f.o_sum.all()) k.mov_f32(sum, f32_imm(0.0f)).note("the tensor cores' sums are short");
}

// At the tile's end, `sum` a row's: whether what was too small for e4m3 could matter.
void emit_check_lost(ForwardContext& f, const Reg& sum) {
  if (!f.worst_sum.valid()) return;
  Kernel& k = f.k;
  k.scope([&] {
    Reg keys = k.f32("unchecked_keys"), lost = k.pred("may_have_lost");
    k.cvt_rn_f32_s32(keys, f.first_unchecked);
    k.mul_f32(keys, keys, f32_imm(static_cast<float>(f.n()) * 0x1p-4f));
    k.setp("lt", "f32", lost, sum, keys);
    k.mov_f32(f.worst_sum, f32_imm(__builtin_inff())).when(lost).note("the tile is done again with every maximum");
  });
}

void emit_settle_offset(ForwardContext& f) {
  Kernel& k = f.k;
  const int blocks = f.config.plan.guard_blocks, wanted_log2 = blocks >= 4 ? 7 : blocks >= 2 ? 6 : 5;
  k.comment("P's offset for blocks without a maximum");
  k.scope([&] {
    Reg lone = k.pred("one_key_row"), also = k.pred("also_one_key"), shift = k.b32("sum_log2"), fall = k.f32("offset_fall");
    k.setp("lt", "f32", lone, f.row_sum[0], f32_imm(kOneKeyRow));
    k.setp("lt", "f32", also, f.row_sum[1], f32_imm(kOneKeyRow));
    k.or_pred(lone, lone, also);
    k.vote_sync_any_pred(lone, lone);
    k.mov_b32(f.first_unchecked, 0).when(lone).note("a row of few keys: all maxima");
    k.unless(lone, [&] {
      for (int r = 0; r < 2; ++r) {
        k.emit("mov.b32", {shift, f.row_sum[r]}, Location::current());
        k.shr_u32(shift, shift, 23);
        k.sub_s32(shift, shift, 127 + wanted_log2);
        k.cvt_rn_f32_s32(fall, shift);
        k.sub_f32(f.exp_offset[r], f.exp_offset[r], fall);
        k.sub_f32(f.p_offset[r], f.p_offset[r], fall);
        k.neg_f32(fall, fall);
        k.ex2_approx_ftz_f32(f.alpha[r], fall);
      }
      if (f.scales_still_o()) scale_o_by_alpha(f);
      else k.mov_pred(f.grew, 1);
    });
  });
}

// 1 in `failed` too if some p left e4m3.
void emit_p_out_of_range(ForwardContext& f, const Reg& failed) {
  f.k.scope([&] {
    Reg also = f.k.pred("p_was_cut");
    f.k.setp("geu", "f32", also, f.worst_sum, f32_imm(kMostPSum));
    f.k.or_pred(failed, failed, also);
  });
}

}  // namespace flashptx::gen
