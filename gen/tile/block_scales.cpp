// Scales by blocks of rows, for 8-bit inputs: Q, K and V are 8-bit values times an fp32 scale of their block of rows.
//
// S is multiplied in fp32 by (Q row's scale) * (key's scale) as it comes from the tensor cores, so that all that follows
// (mask, maximum, reference) knows only real scores. V's scale of the block (the largest of its groups) is the unit
// in which O is kept: when it changes from block to block O changes unit together with its alpha, which a
// plain softmax multiplies by anyway; where V's blocks are smaller than the tile, P takes the ratio of group to
// block (at most 1, so that P's range holds), after the row sums, which know nothing of V. The epilogue multiplies by
// the last unit. K's and V's scales travel with K's stage: the producer writes them before its expect_tx, which
// releases them. Predicted: 64 more multiplications a thread and block of 128 keys, of about 290 instructions.
// Next: gen/tile/tile_load.cpp (the producer's side), gen/tile/softmax.cpp.
#include "gen/tile/forward_context.h"

namespace flashptx::gen {

// scale = pointer ? pointer[batch * batch_stride + (head / group) * head_stride + min(row, last) / rows] : 1
void emit_row_scales(ForwardContext& f, const Reg& exists) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg base = k.b64("q_scale_at"), at = k.b64("row_scale_at"), given = k.pred("scale_given"), index = k.b64("scale_index");
    Reg n = k.b32("scale_n"), row = k.b32("scale_row"), rows = k.b32("rows_a_scale"), last = k.b32("last_q_row");
    for (int r = 0; r < 2; ++r) k.mov_f32(f.q_scale[r], f32_imm(1.0f));
    k.ld_param_u64(base, "q_scale");
    k.setp("ne", "u64", given, base, 0);
    k.and_pred(given, given, exists);
    k.if_(given, [&] {
      k.emit("cvta.to.global.u64", {base, base}, Location::current());
      k.ld_param_u32(n, "q_scale_batch");
      k.mul_wide_u32(index, f.batch_index, n);
      k.emit("shl.b64", {index, index, 2}, Location::current());
      k.add_s64(base, base, index);
      k.ld_param_u32(n, "q_scale_group");
      k.div_u32(row, f.head, n);
      k.ld_param_u32(n, "q_scale_head");
      k.mul_wide_u32(index, row, n);
      k.emit("shl.b64", {index, index, 2}, Location::current());
      k.add_s64(base, base, index);
      k.ld_param_u32(rows, "q_scale_rows");
      k.sub_u32(last, f.seqlen_q, 1);
      for (int r = 0; r < 2; ++r) {
        k.add_u32(row, f.own_q_row0, f.warp_row);
        if (r) k.add_u32(row, row, 8);
        k.min_u32(row, row, last);
        k.div_u32(row, row, rows);
        k.mul_wide_u32(at, row, 4);
        k.add_s64(at, at, base);
        k.ld_global_f32(f.q_scale[r], address(at));
      }
    }, "no scale given, or no tile: 1");
  });
}

// Lane 0, which frees the stage, reads them and passes them on.
void emit_read_block_scales(ForwardContext& f) {
  Kernel& k = f.k;
  int groups = f.scale_groups();
  k.scope([&] {
    RingSlot slot = ring_slot(k, "scale", f.kv_count, f.config.plan.kv_stages);
    Reg at = k.b32("scales_at"), bits = k.b32("scale_word");
    k.mad_lo_u32(at, slot.stage, 8 * groups, f.base);
    for (int i = 0; i < 2 * groups; ++i) {
      k.mov_b32(bits, 0);
      k.ld_shared_u32(bits, address(at, f.smem.block_scales + 4 * i)).when(f.is_lane0);
      k.shfl_sync_idx_b32(bits, bits, 0);
      k.emit("mov.b32", {i < groups ? f.k_scale[i] : f.v_scales[i - groups], bits}, Location::current());
    }
  });
}

void emit_scale_s(ForwardContext& f) {
  Kernel& k = f.k;
  int groups = f.scale_groups(), elements = f.s_acc.size() / groups;
  k.comment("S times the scales of its query and key");
  k.scope([&] {
    Vec c = k.f32("qk_scale", 2);
    for (int g = 0; g < groups; ++g) {
      for (int r = 0; r < 2; ++r) k.mul_f32(c[r], f.q_scale[r], f.k_scale[g]);
      for (int i = g * elements; i < (g + 1) * elements; ++i) k.mul_ftz_f32(f.s_acc[i], f.s_acc[i], c[i / 2 % 2]);
    }
  });
}

void emit_scale_pv(ForwardContext& f, bool first) {
  Kernel& k = f.k;
  int groups = f.scale_groups(), elements = f.s_acc.size() / groups;
  k.comment("V's scale: P by groups of keys, O by blocks");
  k.scope([&] {
    Reg unit = k.f32("v_unit"), ratio = k.f32("v_ratio"), same = k.pred("same_unit");
    k.mov_f32(unit, f.v_scales[0]);
    for (int g = 1; g < groups; ++g) k.max_f32(unit, unit, f.v_scales[g]);
    for (int g = 0; g < groups && groups > 1; ++g) {
      k.rcp_approx_ftz_f32(ratio, unit);
      k.mul_f32(ratio, ratio, f.v_scales[g]);
      for (int i = g * elements; i < (g + 1) * elements; ++i) k.mul_ftz_f32(f.s_acc[i], f.s_acc[i], ratio);
    }
    if (first) {
      for (int r = 0; r < 2; ++r) k.mov_f32(f.alpha[r], f32_imm(1.0f));
    } else {
      k.rcp_approx_ftz_f32(ratio, unit);
      k.mul_f32(ratio, ratio, f.v_scale).note("old unit / new unit");
      k.setp("eq", "f32", same, f.v_scale, unit);
      for (int r = 0; r < 2; ++r) {
        if (f.config.plan.softmax != Softmax::plain)
          k.emit("selp.f32", {f.alpha[r], f.alpha[r], f32_imm(1.0f), f.grew}, Location::current());
        k.mul_f32(f.alpha[r], f.alpha[r], ratio);
      }
      if (f.config.plan.softmax != Softmax::plain) {
        k.not_pred(same, same);
        k.or_pred(f.grew, f.grew, same).note("uniform: so is the scale");
      }
    }
    k.mov_f32(f.v_scale, unit);
  });
}

}  // namespace flashptx::gen
