// Scales of 8-bit inputs: Q, K and V are 8-bit values times an fp32 scale, by (batch, head) or by blocks of rows.
//
// By head: softmax_scale times Q's and K's, and V's, travel with the tile's slot; the producer reads them.
// By blocks: with q' = softmax_scale * log2(e) * (Q row's scale), a score in log2 units is s = S * (q' * key's scale), and all that
// follows (maximum, reference, LSE) is in these units. V's scale goes into the exponent: O is kept in units of the V scale of the tile's
// first block, v_unit, and P is 2^(s + log2(v / v_unit) - reference), whose range e4m3 is used for what a key adds to O,
// not for its weight alone. The row's sum takes each block's by v_unit / v: it knows nothing of V. A block whose scale is out of
// 2^+-60 of the unit changes it, with O, by way of alpha: rare.
// One group of keys a block (scales of 128 rows or more): the factor and the shift are those of the fma in front of ex2, and a maximum
// is taken of raw S: no instruction more an element. More groups: S is brought to these units in place, one fma an element.
// (With S multiplied, and O taken to each block's unit, the chain from bf16 had 795 TFLOP/s at head_dim 128 and 4k; it has 878.)
// K's and V's scales travel with K's stage: the producer writes them before its expect_tx, which releases them.
// Next: gen/tile/tile_load.cpp and tile_scheduler.cpp (the producer's side), gen/tile/softmax.cpp.
#include <cfloat>
#include <string>

#include "gen/tile/forward_context.h"

namespace flashptx::gen {

namespace {

// base += 4 * (batch * batch_stride + head * head_stride), as a global address.
void emit_scale_address(ForwardContext& f, const Reg& base, const std::string& which, const Reg& head) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg offset = k.b64("scale_offset"), stride = k.b32("scale_stride"), of_head = k.b64("scale_of_head");
    k.emit("cvta.to.global.u64", {base, base}, Location::current());
    k.ld_param_u32(stride, which + "_batch");
    k.mul_wide_u32(offset, f.batch_index, stride);
    k.ld_param_u32(stride, which + "_head");
    k.mul_wide_u32(of_head, head, stride);
    k.add_s64(offset, offset, of_head);
    k.emit("shl.b64", {offset, offset, 2}, Location::current());
    k.add_s64(base, base, offset);
  });
}

// at = base + 4 * (min(row, last) / rows): the scale of the block that holds the row.
void emit_block_address(Kernel& k, const Reg& at, const Reg& base, const Reg& row, const Reg& last, const Reg& rows) {
  k.min_u32(row, row, last);
  k.div_u32(row, row, rows);
  k.mul_wide_u32(at, row, 4);
  k.add_s64(at, at, base);
}

// scale = pointer ? pointer[batch * batch_stride + head * head_stride] : 1
void emit_load_scale(ForwardContext& f, const Reg& scale, const std::string& which, const Reg& head) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg base = k.b64(which + "_at"), given = k.pred("scale_given");
    k.mov_f32(scale, f32_imm(1.0f));
    k.ld_param_u64(base, which);
    k.setp("ne", "u64", given, base, 0);
    k.if_(given, [&] {
      emit_scale_address(f, base, which, head);
      k.ld_global_f32(scale, address(base));
    }, "no scale given: 1");
  });
}

}  // namespace

// {softmax_scale_log2 * q_scale * k_scale, v_scale} of the tile beside its slot: the producer runs ahead, which hides
// the latency of reading them.
void emit_publish_scales(ForwardContext& f, const Reg& slot, bool none) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg c = k.f32("tile_scale"), q = k.f32("q_scale_value"), s = k.f32("k_scale_value"), v = k.f32("v_scale_value");
    Reg group = k.b32("scale_group"), at = k.b32("scales_at");
    k.mad_lo_u32(at, slot, 8, f.base);
    if (none) {
      for (int i = 0; i < 2; ++i) k.st_shared_u32(address(at, f.smem.tile_scales + 4 * i), 0);
      return;
    }
    k.ld_param_u32(group, "q_scale_group");
    k.div_u32(group, f.head, group).note("query heads that share a scale");
    k.ld_param_f32(c, "softmax_scale_log2");
    emit_load_scale(f, q, "q_scale", group);
    emit_load_scale(f, s, "k_scale", f.kv_head);
    emit_load_scale(f, v, "v_scale", f.kv_head);
    k.mul_f32(c, c, q);
    k.mul_f32(c, c, s);
    k.max_f32(c, c, f32_imm(1.17549435e-38f)).note("-inf (a masked score) times 0 would be NaN");
    k.st_shared_f32(address(at, f.smem.tile_scales), c);
    k.st_shared_f32(address(at, f.smem.tile_scales + 4), v);
  });
}

// K's and V's scales of the block that starts at k_row, beside its stage; the arrival that follows releases them.
// Rows of a scale are a multiple of the tile or a power of two below it (host/problem.cpp), so that one division serves
// all groups of the block. A loop, not unrolled: the role has few registers and time enough.
void emit_write_block_scales(ForwardContext& f, const Reg& stage, const Reg& k_row) {
  Kernel& k = f.k;
  int groups = f.scale_groups();
  k.scope([&] {
    Reg to = k.b32("scales_at"), value = k.f32("block_scale"), row = k.b32("scale_row"), rest = k.b32("keys_behind");
    Reg group = k.b32("group_row"), rows = k.b32("rows_a_scale"), shift = k.b32("rows_log2");
    Reg base = k.b64("scale_base"), at = k.b64("scale_at");
    Reg given = k.pred("scale_given"), coarse = k.pred("is_coarse"), more = k.pred("more_groups");
    k.mad_lo_u32(to, stage, 8 * groups, f.base);
    for (const std::string which : {"k_scale", "v_scale"}) {
      k.ld_param_u32(rows, which + "_rows");
      k.ld_param_u64(base, which);
      k.setp("ne", "u64", given, base, 0);
      emit_scale_address(f, base, which, f.kv_head);
      k.div_u32(row, k_row, rows);
      k.mul_wide_u32(at, row, 4);
      k.add_s64(base, base, at);
      if (groups > 1) {
        k.emit("bfind.u32", {shift, rows}, Location::current());
        k.setp("ge", "u32", coarse, rows, f.n());
        k.selp_b32(shift, 31, shift, coarse);
        k.sub_u32(rest, f.seqlen_k, 1);
        k.sub_u32(rest, rest, k_row);
        k.mov_b32(group, 0);
      }
      auto next = [&] {
        if (groups > 1) {
          k.min_u32(row, group, rest);
          k.emit("shr.u32", {row, row, shift}, Location::current());
          k.mul_wide_u32(at, row, 4);
          k.add_s64(at, at, base);
        }
        k.mov_f32(value, f32_imm(1.0f));
        k.ld_global_f32(value, address(groups > 1 ? at : base)).when(given);
        k.st_shared_f32(address(to, f.smem.block_scales), value);
        k.add_u32(to, to, 4);
        if (groups > 1) {
          k.add_u32(group, group, f.config.problem.scale_rows);
          k.setp("lt", "u32", more, group, f.n());
        }
        return more;
      };
      if (groups == 1) next();
      else k.rolled_loop(which, next);
    }
  });
}

// scale = pointer ? pointer[batch * batch_stride + (head / group) * head_stride + min(row, last) / rows] : 1
void emit_row_scales(ForwardContext& f, const Reg& exists) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg base = k.b64("q_scale_at"), at = k.b64("row_scale_at"), given = k.pred("scale_given");
    Reg group = k.b32("scale_group"), row = k.b32("scale_row"), rows = k.b32("rows_a_scale"), last = k.b32("last_q_row");
    Reg c = k.f32("softmax_scale");
    for (int r = 0; r < 2; ++r) k.mov_f32(f.q_scale[r], f32_imm(1.0f));
    k.mov_f32(f.v_scale, f32_imm(1.0f)).note("for rows that see no key");
    k.ld_param_u64(base, "q_scale");
    k.setp("ne", "u64", given, base, 0);
    k.and_pred(given, given, exists);
    k.if_(given, [&] {
      k.ld_param_u32(group, "q_scale_group");
      k.div_u32(group, f.head, group);
      emit_scale_address(f, base, "q_scale", group);
      k.ld_param_u32(rows, "q_scale_rows");
      k.sub_u32(last, f.seqlen_q, 1);
      for (int r = 0; r < 2; ++r) {
        k.add_u32(row, f.own_q_row0, f.warp_row);
        if (r) k.add_u32(row, row, 8);
        emit_block_address(k, at, base, row, last, rows);
        k.ld_global_f32(f.q_scale[r], address(at));
      }
    }, "no scale given, or no tile: 1");
    for (int r = 0; r < 2; ++r) {
      k.ld_param_f32(c, "softmax_scale_log2");
      k.mul_f32(f.q_scale[r], f.q_scale[r], c);
    }
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
      const Reg scale = i < groups ? f.k_scale[i] : f.v_scales[i - groups];
      k.emit("mov.b32", {scale, bits}, Location::current());
      if (i >= groups) k.max_f32(scale, scale, f32_imm(FLT_MIN)).note(i == groups ? "its logarithm is taken" : "");
    }
  });
}

namespace {

constexpr float kUnitReach = 60.0f;  // log2

// shift = log2(V's scale of group g / O's unit once the block is added). Below -60 what the group adds to O is nothing
// beside what the group with that unit adds.
void v_shift_of(ForwardContext& f, const Reg& shift, int g) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg unit = k.f32("unit_log2");
    k.lg2_approx_ftz_f32(shift, f.v_scales[g]);
    k.lg2_approx_ftz_f32(unit, f.next_unit);
    k.sub_f32(shift, shift, unit);
    if (f.scale_groups() > 1) k.max_f32(shift, shift, f32_imm(-kUnitReach));
  });
}

}  // namespace

// Factors and shifts of the block at work; S in log2 units where there are several groups.
void emit_block_units(ForwardContext& f, bool first) {
  Kernel& k = f.k;
  int groups = f.scale_groups(), elements = f.s_acc.size() / groups;
  k.comment("scales of the block: V's against O's unit");
  k.scope([&] {
    Reg largest = k.f32("v_largest"), shift = k.f32("group_shift"), moves = k.pred("unit_moves");
    k.mov_f32(largest, f.v_scales[0]);
    for (int g = 1; g < groups; ++g) k.max_f32(largest, largest, f.v_scales[g]);
    if (first) {
      k.mov_f32(f.v_scale, largest);
      k.mov_f32(f.next_unit, largest);
    } else {
      k.lg2_approx_ftz_f32(shift, largest);
      k.lg2_approx_ftz_f32(f.next_unit, f.v_scale);
      k.sub_f32(shift, shift, f.next_unit);
      k.abs_f32(shift, shift);
      k.setp("gtu", "f32", moves, shift, f32_imm(kUnitReach));
      k.selp_f32(f.next_unit, largest, f.v_scale, moves);
    }
    for (int g = 0; g < groups; ++g) {
      v_shift_of(f, groups == 1 ? f.v_shift : shift, g);
      for (int r = 0; r < 2; ++r) {
        k.mul_f32(f.qk_scale[r], f.q_scale[r], f.k_scale[g]);
        k.max_f32(f.qk_scale[r], f.qk_scale[r], f32_imm(FLT_MIN)).note("-inf (a masked score) times 0 would be NaN");
        k.min_f32(f.qk_scale[r], f.qk_scale[r], f32_imm(FLT_MAX));
      }
      if (groups == 1) break;
      for (int i = g * elements; i < (g + 1) * elements; ++i)
        k.fma_rn_ftz_f32(f.s_acc[i], f.s_acc[i], f.qk_scale[i / 2 % 2], shift);
    }
  });
}

// weight = unit / V's scale: by it the group's sums go into the row's.
void emit_sum_weight(ForwardContext& f, const Reg& weight, int g) {
  Kernel& k = f.k;
  if (f.scale_groups() == 1) {
    k.neg_f32(weight, f.v_shift);
  } else {
    v_shift_of(f, weight, g);
    k.neg_f32(weight, weight);
  }
  k.ex2_approx_ftz_f32(weight, weight);
}

// After the exponentials: O's change of unit into alpha.
void emit_change_unit(ForwardContext& f, bool first) {
  Kernel& k = f.k;
  if (first) {
    for (int r = 0; r < 2; ++r) k.mov_f32(f.alpha[r], f32_imm(1.0f));
    return;
  }
  k.scope([&] {
    Reg ratio = k.f32("unit_ratio"), moves = k.pred("unit_moves");
    k.setp("neu", "f32", moves, f.v_scale, f.next_unit);
    k.if_rare(moves, [&] {
      k.rcp_approx_ftz_f32(ratio, f.next_unit);
      k.mul_f32(ratio, ratio, f.v_scale);
      k.min_f32(ratio, ratio, f32_imm(FLT_MAX)).note("old unit / new unit");
      for (int r = 0; r < 2; ++r) {
        if (f.config.plan.softmax != Softmax::plain) k.selp_f32(f.alpha[r], f.alpha[r], f32_imm(1.0f), f.grew);
        k.mul_f32(f.alpha[r], f.alpha[r], ratio);
      }
      k.mov_pred(f.grew, 1);
      k.mov_f32(f.v_scale, f.next_unit);
    }, "V's scale is within 2^60 of O's unit");
  });
}

}  // namespace flashptx::gen
