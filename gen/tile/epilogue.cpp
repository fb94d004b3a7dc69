// The end of a tile: O /= row_sum, LSE, O to shared memory by stmatrix, TMA store of this warpgroup's rows.
//
// TMA clips rows at seqlen_q, so tail tiles need no special case. LSE = ln 2 * (mc + log2(row_sum)), natural
// logarithm of the scaled scores; a row without keys has row_sum 0: O = 0, LSE = -inf. O is staged on the
// tile's own Q slice (free after the last Q K^T) unless the plan gives it a buffer.
#include <cfloat>

#include "gen/tile/forward_context.h"

namespace flashptx::gen {
namespace {

void normalise_and_lse(ForwardContext& f) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg lse_base = k.b64("lse_base"), has_lse = k.pred("has_lse"), writes = k.pred("writes_lse");
    Reg row = k.b32("row"), row64 = k.b64("row64"), at = k.b64("lse_at"), in_range = k.pred("in_range");
    Reg sum = k.f32("sum"), other = k.f32("sum_other"), inverse = k.f32("inverse"), lse = k.f32("lse_value");
    Reg empty = k.pred("is_empty"), mc = k.f32("mc_final");
    k.ld_param_u64(lse_base, "lse");
    k.setp("ne", "u64", has_lse, lse_base, 0);
    k.emit("cvta.to.global.u64", {lse_base, lse_base}, Location::current());
    k.setp("eq", "u32", writes, f.quad_col, 0);
    k.and_pred(has_lse, has_lse, writes).note("lane 0 of each quad writes");
    for (int r = 0; r < 2; ++r) {
      k.add_ftz_f32(sum, f.row_sum[2 * r], f.row_sum[2 * r + 1]);
      for (int lane_xor : {1, 2}) {
        k.shfl_sync_bfly_b32(other, sum, lane_xor);
        k.add_ftz_f32(sum, sum, other);
      }
      k.setp("eq", "f32", empty, sum, f32_imm(0.0f));
      k.rcp_approx_ftz_f32(inverse, sum);
      k.mov_f32(inverse, f32_imm(0.0f)).when(empty);
      for (int i = 0; i < f.o_acc.size(); ++i)
        if (i / 2 % 2 == r) k.mul_ftz_f32(f.o_acc[i], f.o_acc[i], inverse);
      k.lg2_approx_ftz_f32(lse, sum);
      k.mul_f32(mc, f.row_max[r], f.scale_log2);
      k.min_f32(mc, mc, f32_imm(FLT_MAX));
      k.add_f32(lse, lse, mc);
      k.mul_f32(lse, lse, f32_imm(0.693147180559945f)).note("ln 2");
      k.mov_f32(lse, f32_imm(-__builtin_inff())).when(empty);
      k.add_u32(row, f.own_q_row0, f.warp_row);
      if (r) k.add_u32(row, row, 8);
      k.setp("lt", "u32", in_range, row, f.seqlen_q);
      k.and_pred(in_range, in_range, has_lse);
      k.mul_wide_u32(at, f.bh, f.seqlen_q).note("64-bit row of the (batch, head, row) array");
      k.cvt_u64_u32(row64, row);
      k.add_s64(at, at, row64);
      k.emit("shl.b64", {at, at, 2}, Location::current());
      k.add_s64(at, at, lse_base);
      k.st_global_f32(address(at), lse).when(in_range);
    }
  });
}

// bf16/f16 pairs by stmatrix into 64-row slabs with the swizzle that TMA expects: chunk ^= row % 8.
void stage_o(ForwardContext& f, const Reg& slice) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg row = k.b32("st_row"), key = k.b32("st_key"), half = k.b32("st_half"), line = k.b32("st_line");
    Reg at = k.b32("st_at"), warp = k.b32("st_warp");
    Vec packed = k.b32("o_packed", 4);
    k.and_b32(row, f.lane, 15);
    k.and_b32(warp, f.warp_row, 0x30).note("16 * warp");
    k.add_u32(row, row, warp);
    k.and_b32(key, row, 7);
    k.shr_u32(half, f.lane, 4);
    k.xor_b32(key, key, half).note("chunk 2j + half, swizzled: (2j) ^ (half ^ row % 8)");
    k.mad_lo_u32(line, row, 128, slice);
    for (int j = 0; j < f.dv() / 16; ++j) {  // 16 columns: accumulator blocks 2j and 2j+1 of eight
      for (int h = 0; h < 4; ++h) {
        int i = 8 * j + 4 * (h / 2) + 2 * (h % 2);
        k.cvt_rn_x2_f32(f.type(), packed[h], f.o_acc[i + 1], f.o_acc[i]);
      }
      int slab = j / 4, chunk = 2 * (j % 4);
      k.xor_b32(at, key, chunk);
      k.shl_b32(at, at, 4);
      k.add_u32(at, at, line);
      k.stmatrix_x4(address(at, slab * f.smem.slab_bytes_q), packed.all());
    }
    k.fence_proxy_async_shared().note("generic writes before the TMA store reads them");
  });
}

}  // namespace

void emit_epilogue(ForwardContext& f) {
  Kernel& k = f.k;
  const Plan& plan = f.config.plan;
  k.section("epilogue: O / row_sum, LSE, store");
  normalise_and_lse(f);
  k.scope([&] {
    RingSlot q = ring_slot(k, "o", f.q_count, plan.q_stages);
    Reg slice = k.b32("o_slice"), own_barrier = k.b32("own_barrier"), q_bar = k.b32("q_empty_bar");
    Reg leader = k.pred("is_store_leader"), map = k.b64("o_map_at"), column = k.b32("o_column");
    Reg thread = k.b32("wg_thread"), rows_left = k.pred("has_rows");
    k.add_u32(own_barrier, f.warpgroup, 1 + plan.warpgroups).note("named barrier of this warpgroup");
    k.mov_b32(thread, special("tid.x"));
    k.and_b32(thread, thread, 127);
    k.setp("eq", "u32", leader, thread, 0);
    k.mad_lo_u32(q_bar, q.stage, plan.warpgroups, f.warpgroup);
    k.mad_lo_u32(q_bar, q_bar, 8, f.base);
    if (plan.o_own_buffer) {
      k.mad_lo_u32(slice, f.warpgroup, f.smem.slabs_v * f.smem.slab_bytes_q, f.base);
      k.add_u32(slice, slice, f.smem.o);
      // The buffer's last store has had a whole tile to be read.
      k.if_(leader, [&] { k.cp_async_bulk_wait_group_read(0); });
      k.bar_sync(own_barrier, 128);
    } else {
      k.mad_lo_u32(slice, q.stage, plan.warpgroups, f.warpgroup);
      k.mad_lo_u32(slice, slice, f.smem.q_slice_bytes, f.base);
      if (f.smem.q) k.add_u32(slice, slice, f.smem.q);
      k.bar_sync(own_barrier, 128).note("all four warps have read Q");
    }
    stage_o(f, slice);
    k.bar_sync(own_barrier, 128).note("the whole slice is written");
    k.if_(leader, [&] {
      k.setp("lt", "u32", rows_left, f.own_q_row0, f.seqlen_q);
      k.if_(rows_left, [&] {
        k.mov_b64(map, symbol("o_map"));
        k.cvta_param_u64(map, map);
        for (int s = 0; s < f.smem.slabs_v; ++s) {
          k.mov_b32(column, 64 * s);
          if (s) k.add_u32(slice, slice, f.smem.slab_bytes_q);
          k.cp_async_bulk_tensor_store(map, {column, f.own_q_row0, f.head, f.batch_index}, slice);
        }
        k.cp_async_bulk_commit_group();
        if (!plan.o_own_buffer) k.cp_async_bulk_wait_group_read(0).note("before Q may land on it");
      }, "TMA stores start inside the tensor");
      k.mbarrier_arrive(address(q_bar, f.smem.q_empty)).note("the next Q may land here");
    });
  });
}

}  // namespace flashptx::gen
