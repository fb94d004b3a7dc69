// Plan::fold_blocks, 8 bit: sums over many keys in parts.
//
// The tensor cores keep 13 bits below the leading one of an FP8 sum and cut each product there, so that late keys of a long
// row are lost (gen/catalog.h, single_level_keys). Here O is moved out of the accumulators after fold_blocks blocks: added to
// what the tile has left in its staging buffer so far, as bf16, where the end of the tile takes it up again. The buffer
// is free until then (once the tile before has been stored), every lane keeps its own words there, and a warp's words lie where
// its own 16 rows will be staged, so that no warp waits for another. What bf16 rounds away (2^-9 of the sum) stays in the
// accumulators, so that it does not add up over many folds. What O is multiplied by in between (alpha) is kept for the buffer: fold_scale.
// Predicted: 9 instructions a pair of elements, at head_dim 128 290 a thread and 16 blocks, which have 4600. Measured with 5
// of them (without what was rounded away): 0.8 % at 8k and head_dim 128, 2 % at 256; every 8 blocks 3 and 5 %. As it is: 2 to
// 4 % at 4k and 8k, 4 % at head_dim 64 and 16k.
// Next: epilogue.cpp, which stages O in the same place.
#include "gen/tile/forward_context.h"

namespace flashptx::gen {
namespace {

// Word w of a lane holds O elements 2w (low half) and 2w + 1, of row w % 2. A slab's 16 words are four vectors of 16 bytes,
// 512 bytes apart, so that a warp's access is free of bank conflicts.
Operand words_at(ForwardContext& f, const Reg& at, int word) {
  return address(at, word / 16 * f.smem.slab_bytes_q + word % 16 / 4 * 512);
}

Reg lane_address(ForwardContext& f) {
  Kernel& k = f.k;
  Reg at = k.b32("fold_at"), warp = k.b32("fold_warp");
  k.and_b32(warp, f.warp_row, 0x30).note("16 * warp");
  k.mad_lo_u32(at, f.warpgroup, f.smem.o_slabs * f.smem.slab_bytes_q, f.base);
  k.mad_lo_u32(at, warp, 128, at);
  k.mad_lo_u32(at, f.lane, 16, at);
  k.add_u32(at, at, f.smem.o);
  return at;
}

// One of the two bf16 of a word, in a register of the innermost scope.
Reg half_of(ForwardContext& f, const Reg& word, int half) {
  Kernel& k = f.k;
  const std::string n = word.name + (half ? "_high" : "_low");
  Reg bits = k.b32(n + "_bits"), value = k.f32(n);
  if (half) k.and_b32(bits, word, hex(0xffff0000u));
  else k.shl_b32(bits, word, 16);
  k.emit("mov.b32", {value, bits}, Location::current());
  return value;
}

// O += fold_scale * what the buffer holds, words [word, word + 4).
void add_words(ForwardContext& f, const Reg& at, int word) {
  Kernel& k = f.k;
  k.scope([&] {
    Vec words = k.b32("folded_words", 4);
    k.emit("ld.shared::cta.v4.u32", {words.all(), words_at(f, at, word)}, Location::current());
    for (int w = 0; w < 4; ++w)
      for (int half = 0; half < 2; ++half) {
        const Reg part = half_of(f, words[w], half), o = f.o_acc[2 * (word + w) + half];
        k.fma_rn_ftz_f32(o, part, f.fold_scale[w % 2], o);
      }
  });
}

// Words [word, word + 4) of O into the buffer; O keeps what was rounded away.
void keep_words(ForwardContext& f, const Reg& at, int word) {
  Kernel& k = f.k;
  k.scope([&] {
    Vec words = k.b32("fold_words", 4);
    for (int w = 0; w < 4; ++w) k.cvt_rn_x2_f32("bf16", words[w], f.o_acc[2 * (word + w) + 1], f.o_acc[2 * (word + w)]);
    k.emit("st.shared::cta.v4.u32", {words_at(f, at, word), words.all()}, Location::current());
    for (int w = 0; w < 4; ++w)
      for (int half = 0; half < 2; ++half) {
        const Reg part = half_of(f, words[w], half), o = f.o_acc[2 * (word + w) + half];
        k.sub_ftz_f32(o, o, part);
      }
  });
}

}  // namespace

// In the step rescale_o, before the block's P V: no product into O is in flight, and O and fold_scale know the block's reference.
// folds_behind: once its P V is complete. folds_early: with the block's maximum, behind the branch of unusual blocks; head_dim 64 at 16k, a
// ratio to FlashAttention-3 of 1.36 in place of 1.22 full, 1.48 in place of 1.35 causal, two runs (tools/bench/results/p_sums_e4m3_h200.csv): a branch a trip, and that O is scaled where
// the reference moves, cost more than folding.
void emit_fold(ForwardContext& f) {
  if (!f.folds()) return;
  Kernel& k = f.k;
  const int n = f.config.plan.fold_blocks;
  k.scope([&] {
    Reg turn = k.b32("fold_turn"), due = k.pred("fold_is_due"), again = k.pred("folded_before");
    k.and_b32(turn, f.block, n - 1);
    k.setp("eq", "u32", due, turn, f.folds_behind() ? 0 : n - 1);
    if (f.folds_behind()) {
      k.setp("ne", "u32", again, f.block, 0);
      k.and_pred(due, due, again);
    }
    k.if_rare(due, [&] {
      k.section("O into its staging buffer");
      const Reg at = lane_address(f);
      k.add_u32(turn, f.block, f.folds_behind() ? n : n + 1);
      k.setp("lt", "u32", again, turn, f.own_blocks);
      k.if_else(again, [&] {
        for (int word = 0; word < f.o_acc.size() / 2; word += 4) add_words(f, at, word);
      }, [&] {
        k.if_(f.is_lane0, [&] { k.cp_async_bulk_wait_group_read(0).note("the last tile's store has left"); });
        k.bar_warp_sync();
      });
      for (int word = 0; word < f.o_acc.size() / 2; word += 4) keep_words(f, at, word);
      for (int r = 0; r < 2; ++r) k.mov_f32(f.fold_scale[r], f32_imm(1.0f));
    }, "not after this block");
  });
}

// The words are read before any lane stages O over them: a warp barrier stands between (epilogue.cpp).
void emit_unfold(ForwardContext& f) {
  if (!f.folds()) return;
  Kernel& k = f.k;
  k.if_(f.folded, [&] {
    k.section("the part of O in the staging buffer");
    k.scope([&] {
      const Reg at = lane_address(f);
      for (int word = 0; word < f.o_acc.size() / 2; word += 4) add_words(f, at, word);
    });
  }, "all of O is in registers");
}

}  // namespace flashptx::gen
