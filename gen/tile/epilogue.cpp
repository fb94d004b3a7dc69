// The end of a tile: O /= row_sum, LSE, O to shared memory by stmatrix, TMA store of this warpgroup's rows.
//
// TMA clips rows at seqlen_q, so tail tiles need no special case. LSE = ln 2 * (mc + log2(row_sum)), natural
// logarithm of the scaled scores; a row without keys has row_sum 0: O = 0, LSE = -inf. O is staged on the
// tile's own Q slice (free after the last Q K^T) unless the plan gives it a buffer.
//
// In two passes, where the buffer holds half of O (head_dim 256), a warp waits in between until TMA has read the first, behind the
// next tile's loads: 1,000 clocks, at 512 keys in 8 bit 7 % of a warp's time (samples of ncu). A kernel that does not wait, and is wrong,
// is 1.5 % faster there, 0 to 1.3 elsewhere: the other warpgroup works meanwhile, and from 1k on power binds (1.6 to 1.75 GHz).
// Tried and dropped (tools/bench/results/tile_ends_d256_h200.csv): the other half on the K stage that the tile read last, freed behind the next
// tile's first Q K^T, - 1 to - 5 % (waiting for that stage's next block grew by as much); that with this Q K^T issued in front of
// the store, - 3 to - 6.
#include <algorithm>
#include <cfloat>

#include "gen/tile/forward_context.h"

namespace flashptx::gen {

// LSE of this lane's row r, by lane 0 of each quad, if the caller wants it and the row exists.
void emit_write_lse(ForwardContext& f, int r, const Reg& lse) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg lse_base = k.b64("lse_base"), writes = k.pred("writes_lse"), wanted = k.pred("lse_wanted");
    Reg row = k.b32("row"), own_row = k.b32("lse_row"), row64 = k.b64("row64"), at = k.b64("lse_at");
    k.ld_param_u64(lse_base, "lse");
    k.setp("ne", "u64", wanted, lse_base, 0);
    k.emit("cvta.to.global.u64", {lse_base, lse_base}, Location::current());
    k.setp("eq", "u32", writes, f.quad_col, 0);
    k.and_pred(writes, writes, wanted).note("lane 0 of each quad writes");
    k.add_u32(row, f.own_q_row0, f.warp_row);
    // One address serves both rows; in 8 bit it would be kept in two registers too many (ptxas 13.0 spills).
    const bool own_address = f.eight_bit() && r;
    if (own_address) k.add_u32(row, row, 8);
    else k.add_u32(own_row, row, 8 * r);
    k.setp("lt", "u32", wanted, own_address ? row : own_row, f.seqlen_q);
    k.and_pred(writes, writes, wanted);
    k.mul_wide_u32(at, f.bh, f.seqlen_q).note("64-bit row of the (batch, head, row) array");
    k.cvt_u64_u32(row64, row);
    k.add_s64(at, at, row64);
    k.emit("shl.b64", {at, at, 2}, Location::current());
    k.add_s64(at, at, lse_base);
    k.st_global_f32(address(at, own_address ? 0 : 4 * 8 * r), lse).when(writes);
  });
}

namespace {

// What the exponentials were taken against, log2 units: row_sum is of 2^(score - mc + P's offset).
void final_reference(ForwardContext& f, const Reg& mc, int r) {
  f.k.mul_f32(mc, f.row_max[r], f.score_unit());
  f.k.min_f32(mc, mc, f32_imm(FLT_MAX));
}

void subtract_offset(ForwardContext& f, const Reg& x, int r) {
  if (f.checks_block_sums()) f.k.sub_f32(x, x, f.p_offset[r]);
  else if (f.p_offset_log2()) f.k.sub_f32(x, x, f32_imm(static_cast<float>(f.p_offset_log2())));
}

void store_lse(ForwardContext& f, int r, const Reg& sum, const Reg& empty) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg lse = k.f32("lse_value"), mc = k.f32("mc_final");
    k.lg2_approx_ftz_f32(lse, sum);
    final_reference(f, mc, r);
    subtract_offset(f, lse, r);
    k.add_f32(lse, lse, mc);
    k.mul_f32(lse, lse, f32_imm(0.693147180559945f)).note("ln 2");
    k.mov_f32(lse, f32_imm(-__builtin_inff())).when(empty);
    emit_write_lse(f, r, lse);
  });
}

// split_tail: of a part its reference and sum, for whoever weighs it.
void store_part_sums(ForwardContext& f, int r, const Reg& sum) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg mc = k.f32("mc_final"), at = k.b64("part_sums_at"), writes = k.pred("writes_sums"), done = k.pred("is_published");
    final_reference(f, mc, r);
    k.max_f32(mc, mc, f32_imm(-FLT_MAX)).note("finite: the other part's is subtracted from it");
    subtract_offset(f, mc, r);
    emit_part_sums(f, at, f.part, r);
    emit_is_published(f, done, f.part);
    k.not_pred(done, done);
    k.setp("eq", "u32", writes, f.quad_col, 0);
    k.and_pred(writes, writes, done);
    k.st_global("v2.f32", address(at), std::vector<Reg>{mc, sum}).when(writes);
  });
}

void show_to_tma(ForwardContext& f) {
  f.k.fence_proxy_async_shared().note("generic writes, then TMA reads: in every writing thread");
  f.k.bar_warp_sync();
}

// This warp's 16 rows, slabs [first, first + count) of O, as 16-bit pairs by stmatrix into rows of 128 bytes with
// the swizzle that TMA expects: 16-byte chunk ^= row % 8.
void stage_o(ForwardContext& f, const StagingPlace& place, int first, int count, bool shows = true) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg at = k.b32("st_at");
    Vec packed = k.b32("o_packed", 4);
    int blocks16 = f.dv() / 16;
    for (int j = 4 * first; j < 4 * (first + count) && j < blocks16; ++j) {
      // 16 columns: accumulator blocks 2j and 2j+1 of eight; matrices {rows 0-7, rows 8-15} of each.
      for (int h = 0; h < 4; ++h) {
        int i = 8 * j + 4 * (h / 2) + 2 * (h % 2);
        k.cvt_rn_x2_f32(f.type_o(), packed[h], f.o_acc[i + 1], f.o_acc[i]);
      }
      k.xor_b32(at, place.key, 32 * (j % 4));
      k.add_u32(at, at, place.line);
      k.stmatrix_x4(address(at, (j / 4 - first) * f.smem.slab_bytes_q), packed.all());
    }
    if (shows) show_to_tma(f);
  });
}

void store_slabs(ForwardContext& f, const StagingPlace& place, int first, int count) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg map = k.b64("o_map_at"), column = k.b32("o_column"), at = k.b32("o_at");
    k.mov_b64(map, symbol("o_map"));
    k.cvta_param_u64(map, map);
    k.mov_b32(at, place.stage);
    for (int s = 0; s < count; ++s) {
      k.mov_b32(column, 64 * (first + s));
      if (s) k.add_u32(at, at, f.smem.slab_bytes_q);
      k.cp_async_bulk_tensor_store(map, {column, place.row, f.out_head, f.out_batch}, at);
    }
    k.cp_async_bulk_commit_group();
  });
}

}  // namespace

namespace {

// Lane 0 leaves the tile in the redo list; the first warp of the tile to do so writes it.
void note_failure(ForwardContext& f) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg index = k.b32("redo_index"), at = k.b32("redo_at"), bit = k.b32("redo_bit"), row = k.b32("redo_row");
    Reg bh = k.b32("redo_bh"), heads = k.b32("redo_heads"), first = k.pred("is_first_note");
    k.sub_u32(index, f.q_count, 1);
    k.and_b32(index, index, kRedoSlots - 1);
    k.mov_b32(bit, 1);
    k.shl_b32(bit, bit, index);
    k.add_u32(at, f.base, f.smem.redo_mask);
    k.emit("atom.shared::cta.or.b32", {heads, address(at), bit}, Location::current());
    k.and_b32(heads, heads, bit);
    k.setp("eq", "u32", first, heads, 0);
    k.if_(first, [&] {
      k.mul_lo_u32(row, f.warpgroup, 64);
      k.sub_u32(row, f.out_row0, row).note("the tile's first row");
      k.ld_param_u32(heads, "heads_q");
      k.mad_lo_u32(bh, f.out_batch, heads, f.out_head);
      k.mad_lo_u32(at, index, 16, f.base);
      k.emit("st.shared::cta.v4.u32",
             {address(at, f.smem.redo_tiles), std::vector<Reg>{row, f.out_head, f.out_batch, bh}},
             Location::current());
      if (f.splits()) {
        k.mad_lo_u32(at, index, 4, f.base);
        k.st_shared_u32(address(at, f.smem.redo_parts), f.out_part);
      }
    });
  });
}

}  // namespace

void emit_note_failure(ForwardContext& f, const Reg& failed, const Reg& noted) {
  f.k.and_pred(noted, failed, f.is_lane0);
  f.k.if_(noted, [&] { note_failure(f); }, "in range");
}

// Each warp arrives once for the tile that is `tiles_ago` behind: its rows of that Q slice are free.
void emit_release_q(ForwardContext& f, int tiles_ago) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg position = f.q_count;
    if (tiles_ago) {
      position = k.b32("q_before");
      k.sub_u32(position, f.q_count, tiles_ago);
    }
    RingSlot q = ring_slot(k, "q", position, f.config.plan.q_stages);
    Reg bar = k.b32("q_empty_bar");
    k.mad_lo_u32(bar, q.stage, f.warpgroups(), f.warpgroup);
    k.mad_lo_u32(bar, bar, 8, f.base);
    k.mbarrier_arrive(address(bar, f.smem.q_empty)).when(f.is_lane0).note("one arrival a warp");
  });
}

// Under the last P V: the quad's row sums, their inverses, LSE.
void emit_finish_rows(ForwardContext& f) {
  Kernel& k = f.k;
  k.section("row sums, LSE");
  k.scope([&] {
    Reg sum = k.f32("sum"), other = k.f32("sum_other"), empty = k.pred("is_empty");
    for (int r = 0; r < 2; ++r) {
      if (f.sums_per_row() == 2) k.add_ftz_f32(sum, f.row_sum[2 * r], f.row_sum[2 * r + 1]);
      else k.mov_f32(sum, f.row_sum[r]);
      for (int lane_xor : {1, 2}) {
        if (f.sums_p()) break;  // the tensor cores summed all of the row
        k.shfl_sync_bfly_b32(other, sum, lane_xor);
        k.add_ftz_f32(sum, sum, other);
      }
      if (f.sums_p()) emit_check_lost(f, sum);
      k.setp("eq", "f32", empty, sum, f32_imm(0.0f));
      k.rcp_approx_ftz_f32(f.inverse[r], sum);
      if (f.eight_bit()) k.mul_ftz_f32(f.inverse[r], f.inverse[r], f.v_scale);
      k.mov_f32(f.inverse[r], f32_imm(0.0f)).when(empty);
      if (!f.splits()) {
        store_lse(f, r, sum, empty);
        continue;
      }
      k.scope([&] {
        Reg is_part = k.pred("is_part");
        k.setp("ne", "u32", is_part, f.part, 0);
        k.if_else(is_part, [&] { store_part_sums(f, r, sum); }, [&] { store_lse(f, r, sum, empty); });
      });
    }
  });
}

StagingPlace emit_staging_place(ForwardContext& f) {
  Kernel& k = f.k;
  const Plan& plan = f.config.plan;
  Reg stage = k.b32("o_staging"), line = k.b32("st_line"), key = k.b32("st_key"), row = k.b32("first_row");
  Reg half = k.b32("st_half"), stores = k.pred("stores");
  Reg warp = f.warp_row0;
  if (!warp.valid()) {
    warp = k.b32("warp16");
    k.and_b32(warp, f.warp_row, 0x30).note("16 * warp");
  }
  k.add_u32(row, f.out_row0, warp);
  k.setp("lt", "u32", stores, row, f.seqlen_q);
  k.and_pred(stores, stores, f.is_lane0);
  if (plan.o_own_buffer) {
    k.mad_lo_u32(stage, f.warpgroup, f.smem.o_slabs * f.smem.slab_bytes_q, f.base);
    k.add_u32(stage, stage, f.smem.o);
  } else {
    Reg position = k.b32("o_position");
    k.sub_u32(position, f.q_count, 1).note("the tile's own Q slice");
    RingSlot q = ring_slot(k, "o", position, plan.q_stages);
    k.mad_lo_u32(stage, q.stage, plan.warpgroups, f.warpgroup);
    k.mad_lo_u32(stage, stage, f.smem.q_slice_bytes, f.base);
    if (f.smem.q) k.add_u32(stage, stage, f.smem.q);
  }
  k.mad_lo_u32(stage, warp, 128, stage).note("this warp's 16 rows of each slab");
  k.and_b32(line, f.lane, 15);
  k.and_b32(key, line, 7);
  k.shr_u32(half, f.lane, 4);
  k.xor_b32(key, key, half);
  k.shl_b32(key, key, 4).note("16 * (half ^ row % 8); chunk 2j + half is this ^ 32j");
  k.mad_lo_u32(line, line, 128, stage);
  return {stage, line, key, row, stores};
}

// Every warp stores its own 16 rows: it has read its Q rows, nobody else has, so no barrier is needed. TMA clips
// rows at seqlen_q; a box that starts past the end is not issued.
void emit_store_rows(ForwardContext& f) {
  Kernel& k = f.k;
  const Plan& plan = f.config.plan;
  k.scope([&] {
    const StagingPlace place = emit_staging_place(f);
    for (int first = 0; first < f.smem.slabs_o; first += f.smem.o_slabs) {
      int count = std::min(f.smem.o_slabs, f.smem.slabs_o - first);
      if (plan.o_own_buffer) {
        const auto wait = [&] { k.cp_async_bulk_wait_group_read(0).note(first ? "the pass before has left" : "the last tile's store has left"); };
        if (f.eight_bit() && f.splits()) k.if_(f.is_lane0, wait);  // without a branch these spill (ptxas 13.0)
        else wait();
        k.bar_warp_sync();
      }
      stage_o(f, place, first, count);
      k.if_(place.stores, [&] { store_slabs(f, place, first, count); });
    }
  });
}

namespace {

void scale_o(ForwardContext& f) {
  for (int i = 0; i < f.o_acc.size(); ++i)
    f.k.mul_ftz_f32(f.o_acc[i], f.o_acc[i], f.inverse[i / 2 % 2]);
}

}  // namespace

void emit_scale_and_stage(ForwardContext& f, const StagingPlace& place) {
  scale_o(f);
  stage_o(f, place, 0, f.smem.slabs_o, false);
}

void emit_store_staged(ForwardContext& f, const StagingPlace& place) {
  show_to_tma(f);
  f.k.if_(place.stores, [&] { store_slabs(f, place, 0, f.smem.slabs_o); });
}

void emit_epilogue(ForwardContext& f) {
  Kernel& k = f.k;
  const Plan& plan = f.config.plan;
  k.section("epilogue: O / row_sum, store");
  Reg failed;
  if (f.splits()) failed = k.pred("part_failed_" + std::to_string(k.mark()));
  if (f.guarded())
    k.scope([&] {
      Reg noted = k.pred("notes_failure");
      if (!failed.valid()) failed = k.pred("failed");
      emit_guard(f, failed);
      emit_note_failure(f, failed, noted);
    });
  emit_unfold(f);
  scale_o(f);
  if (f.splits()) {
    Reg is_part = k.pred("stores_part_" + std::to_string(k.mark()));
    k.setp("ne", "u32", is_part, f.out_part, 0);
    if (!f.guarded()) k.mov_pred(failed, 0);
    k.if_else(is_part, [&] { emit_store_part(f, failed); }, [&] { emit_store_rows(f); });
  } else {
    emit_store_rows(f);
  }
  if (!plan.o_own_buffer && plan.q_stages == 1) {
    k.if_(f.is_lane0, [&] { k.cp_async_bulk_wait_group_read(0).note("O has left before Q may land on it"); });
    emit_release_q(f, 1);
  }
}

}  // namespace flashptx::gen
