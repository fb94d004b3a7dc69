// Forward attention, warp specialised (FlashAttention-3 paper, algorithm 1 and 2), for f16, bf16, e4m3 and e5m2.
//
// Reads top to bottom: entry and barriers, the producer warp, then the consumer warpgroups, whose trips are
// emitted step by step in the order of the schedule table. What a step emits is in gen/tile/.
// Next: gen/schedule/forward_schedules.cpp, gen/tile/softmax.cpp.
#include "gen/kernels/attention_forward.h"

#include <algorithm>

#include "gen/kernels/forward_parts.h"
#include "gen/kernels/schedule_lines.h"
#include "gen/schedule/schedule.h"
#include "gen/tile/forward_context.h"

namespace flashptx::gen {

namespace {

// Of all teams, one after the other.
void emit_init_barriers(ForwardContext& f) {
  Kernel& k = f.k;
  const Plan& plan = f.config.plan;
  for (int team = 0; team < f.teams(); ++team) {
    const SharedLayout m = f.smem.of_team(team);
    int warps = 4 * f.warpgroups() * f.cluster(), v_writers = f.transposes() ? f.transposers() : 1;
    for (int i = 0; i < plan.q_stages * f.warpgroups(); ++i) {
      k.mbarrier_init(address(f.base, m.q_full + 8 * i), 1);
      k.mbarrier_init(address(f.base, m.q_empty + 8 * i), 4).note("the warpgroup's four warps");
    }
    for (int i = 0; i < std::max(plan.kv_stages, plan.v_ring()); ++i) {
      if (i < plan.kv_stages) {
        k.mbarrier_init(address(f.base, m.k_full + 8 * i), 1).note("the producer's expect_tx; TMA completes it");
        k.mbarrier_init(address(f.base, m.k_empty + 8 * i), warps)
            .note(f.paired() ? "one arrival a consumer warp of both CTAs" : "one arrival a consumer warp");
      }
      if (i < plan.v_ring()) {
        k.mbarrier_init(address(f.base, m.v_full + 8 * i), v_writers);
        k.mbarrier_init(address(f.base, m.v_empty + 8 * i), warps);
      }
    }
    for (int i = 0; i < m.raw_stages; ++i) {
      k.mbarrier_init(address(f.base, m.raw_full + 8 * i), 1).note("V as it lies in memory");
      k.mbarrier_init(address(f.base, m.raw_empty + 8 * i), f.transposers()).note("one arrival a transposing warp");
    }
    if (m.unit_full) k.mbarrier_init(address(f.base, m.unit_full), 2).note("its load's expect_tx; the store before it is over");
    if (f.guarded()) k.st_shared_u32(address(f.base, m.redo_mask), 0);
    for (int i = 0; i < 2 && !plan.symmetric; ++i) {
      k.mbarrier_init(address(f.base, m.tile_full + 8 * i), 1);
      k.mbarrier_init(address(f.base, m.tile_empty + 8 * i), warps / f.cluster());
    }
    for (int i = 0; i < 2 && m.drawn_full; ++i) {
      k.mbarrier_init(address(f.base, m.drawn_full + 8 * i), 1).note("CTA 0's producer, in CTA 1");
      k.mbarrier_init(address(f.base, m.drawn_empty + 8 * i), 1).note("CTA 1's, in CTA 0");
    }
    if (m.peer_done) k.mbarrier_init(address(f.base, m.peer_done), 1).note("the peer's producer");
  }
}

}  // namespace

void emit_barrier_init(ForwardContext& f) {
  Kernel& k = f.k;
  k.section("shared memory and barriers");
  f.base = k.b32("smem_base");
  Reg thread = k.b32("thread"), first = k.pred("is_thread0");
  k.mov_b32(f.base, symbol("smem"));
  k.add_u32(f.base, f.base, 1023);
  k.and_b32(f.base, f.base, hex(0xFFFFFC00)).note("128-byte swizzle wants 1024-aligned tiles");
  k.mov_b32(thread, special("tid.x"));
  k.setp("eq", "u32", first, thread, 0);
  if (f.sums_p()) emit_ones(f);
  k.if_(first, [&] {
    emit_init_barriers(f);
    k.fence_mbarrier_init().note("visible to the async proxy");
  });
  k.bar_sync_all(0);
  if (f.paired()) emit_cluster_start(f);
}

namespace {

// Whether S, O and `words` of P of a consumer fit beside the rest of what it keeps.
bool holds_words_beside_s(const KernelConfig& c, int words) {
  const Plan& p = c.plan;
  const int rest = 24 + (p.fold_blocks ? 16 : 0) + (p.split_tail ? 16 : 0) + (c.problem.scale_rows ? 24 : 0) + (p.traced() ? 8 : 0);
  return p.tile_kv / 2 + c.problem.head_dim_v / 2 + words * (p.table()->p_outlives_exps() ? 2 : 1) + rest <= register_split(c).consumer;
}

int early_words(const ForwardContext& f) {
  if (f.sums_p()) return 0;  // no vote stands between the exponentials and P
  if (!f.checks_block_sums() || (f.dv() > 128 && f.transposers() == 3)) return 0;  // wide: spills, or products taken apart (C7512)
  if (f.keeps_p() && f.n() != 128) return 0;  // slower: 0.5 % with 64 keys, 3 % with 256
  // Until the vote S is needed as well.
  if (!f.folds() && holds_words_beside_s(f.config, f.n() / 8)) return f.n() / 8;
  return holds_words_beside_s(f.config, f.n() / 16) ? f.n() / 16 : 0;
}

}  // namespace


// lazy: the threshold in units of S.
void emit_lazy_slack(ForwardContext& f) {
  const Plan& plan = f.config.plan;
  if (plan.softmax != Softmax::lazy) return;
  Kernel& k = f.k;
  if (f.scales_blocks()) {
    k.mov_f32(f.max_slack, f32_imm(static_cast<float>(plan.lazy_threshold_log2)));
    return;
  }
  k.rcp_approx_ftz_f32(f.max_slack, f.scale_log2);
  k.mul_f32(f.max_slack, f.max_slack, f32_imm(static_cast<float>(plan.lazy_threshold_log2)));
  k.min_f32(f.max_slack, f.max_slack, f32_imm(3.402823466e38f)).note("threshold in units of S");
}

void emit_consumer_setup(ForwardContext& f) {
  Kernel& k = f.k;
  f.lane = k.b32("lane");
  f.warp_row = k.b32("warp_row");
  if (!f.eight_bit()) f.warp_row0 = k.b32("warp_row0");  // 8 bit: a register too many
  f.quad_col = k.b32("quad_col");
  f.is_lane0 = k.pred("is_lane0");
  f.kv_count = k.b32("kv_count");
  f.q_count = k.b32("q_count");
  f.bh = k.b32("bh");
  f.head = k.b32("head");
  f.batch_index = k.b32("batch_index");
  f.q_row0 = k.b32("q_row0");
  f.blocks = k.b32("blocks");
  f.own_q_row0 = k.b32("own_q_row0");
  f.out_row0 = k.b32("out_row0");
  f.out_head = k.b32("out_head");
  f.out_batch = k.b32("out_batch");
  f.inverse = k.f32("inverse", 2);
  if (f.splits()) f.part = k.b32("part"), f.out_part = k.b32("out_part"), f.first_block = k.b32("first_block"), f.parts_done = k.b32("parts_done");
  f.own_blocks = k.b32("own_blocks");
  f.first_masked = k.b32("first_masked");
  f.block = k.b32("block");
  f.s_acc = k.f32("s_acc", f.n() / 2);
  f.o_acc = k.f32("o_acc", f.dv() / 2);
  if (f.folds()) f.fold_scale = k.f32("fold_scale", 2), f.folded = k.pred("folded");
  if (f.config.plan.two_level) f.o_new = k.f32("o_new", (f.promotes_at_once() ? f.promoted_columns() : f.dv()) / 2);
  if (f.sums_p()) f.o_sum = k.f32("o_sum", kSumColumns / 2);
  if (f.sums_p() && f.guarded()) f.worst_sum = k.f32("worst_sum");
  f.p = k.b32("p", f.eight_bit() ? f.n() / 8 : f.n() / 4);
  f.early_words = early_words(f);
  if (f.early_words) f.p_next = f.keeps_p() ? k.b32("p_next", f.early_words) : f.p;
  f.row_max = k.f32("row_max", 2);
  f.exp_offset = k.f32("exp_offset", 2);
  f.row_sum = k.f32("row_sum", 2 * f.sums_per_row());
  f.alpha = k.f32("alpha", 2);
  if (!f.scales_blocks()) f.scale_log2 = k.f32("scale_log2");
  if (f.eight_bit()) f.v_scale = k.f32("v_scale");
  if (f.checks_block_sums()) f.p_offset = k.f32("p_offset", 2);
  if (f.direct_words()) f.p_direct = k.b32("p_direct", 2 * f.direct_words());
  if (f.chord_words()) f.p_chord = k.b32("p_chord", 2 * f.chord_words());
  if (f.scales_blocks()) {
    f.q_scale = k.f32("q_scale", 2);
    f.k_scale = k.f32("k_scale", f.scale_groups());
    f.v_scales = k.f32("v_scales", f.scale_groups());
    f.qk_scale = k.f32("qk_scale", 2);
    f.v_shift = k.f32("v_shift");
    f.next_unit = k.f32("next_unit");
  }
  f.max_slack = k.f32("max_slack");
  f.k_ready = k.pred("k_ready");
  if (f.looks_at_v()) f.v_ready = k.pred("v_ready");
  f.grew = k.pred("grew");
  f.huge = k.pred("huge");
  f.o_keep = k.pred("o_keep");
  if (f.has_col_limits()) f.col_limit = k.b32("col_limit", 2);
  if (!f.eight_bit()) k.ld_param_f32(f.scale_log2, "softmax_scale_log2");
  f.slot_count = f.q_count;
  if (f.guarded()) {
    f.slot_count = k.b32("slot_count");
    f.safe = k.pred("safe");
    f.was_safe = k.pred("was_safe");
    f.first_unchecked = k.b32("first_unchecked");
    k.mov_b32(f.slot_count, 0);
  }
  if (f.guarded()) {
    k.mov_f32(f.max_slack, f32_imm(0.0f)).note("where the maximum is taken it is the running one");
  } else if (!f.eight_bit()) {
    emit_lazy_slack(f);
  }
  k.mov_b32(f.lane, special("tid.x"));
  k.shr_u32(f.warp_row, f.lane, 1);
  k.and_b32(f.warp_row, f.warp_row, 0x30).note("16 * warp");
  if (f.warp_row0.valid()) k.shfl_sync_idx_b32(f.warp_row0, f.warp_row, 0).note("known to be the warp's: TMA's coordinates need no loop over lanes");
  k.and_b32(f.lane, f.lane, 31);
  k.and_b32(f.quad_col, f.lane, 3);
  k.shl_b32(f.quad_col, f.quad_col, 1);
  k.setp("eq", "u32", f.is_lane0, f.lane, 0);
  k.scope([&] {
    Reg quad = k.b32("quad");
    k.shr_u32(quad, f.lane, 2);
    k.add_u32(f.warp_row, f.warp_row, quad).note("this lane's rows: warp_row and warp_row + 8");
  });
  k.mov_b32(f.kv_count, 0);
  k.mov_b32(f.q_count, 0);
  if (f.splits()) k.mov_b32(f.parts_done, 0);
}

// This warpgroup's share of the tile: its rows, its key blocks, where masking starts.
void emit_warpgroup_range(ForwardContext& f) {
  Kernel& k = f.k;
  k.comment("this warpgroup's 64 rows: key blocks, and the first block with a mask");
  k.scope([&] {
    Reg last = k.b32("last_row"), end = k.b32("end_row"), none = k.pred("no_rows"), t = k.b32("column");
    k.mad_lo_u32(f.own_q_row0, f.warpgroup, 64, f.q_row0);
    k.add_u32(last, f.own_q_row0, 63);
    k.sub_u32(end, f.seqlen_q, 1);
    k.min_u32(last, last, end);
    if (f.splits()) k.mov_b32(f.own_blocks, f.blocks);
    else emit_visible_blocks(f, f.own_blocks, last);
    k.setp("ge", "u32", none, f.own_q_row0, f.seqlen_q);
    k.mov_b32(f.own_blocks, 0).when(none);
    k.mov_b32(t, f.seqlen_k);
    if (f.causal()) {
      k.add_s32(t, f.own_q_row0, 1);
      k.add_s32(t, t, f.seqlen_k);
      k.sub_s32(t, t, f.seqlen_q);
      k.max_s32(t, t, 0);
      k.min_s32(t, t, f.seqlen_k).note("keys that every row sees");
    }
    emit_blocks_of_keys(f, f.first_masked, t);
    if (f.splits()) k.sub_s32(f.first_masked, f.first_masked, f.first_block);
    if (f.guarded()) {
      k.min_s32(f.first_unchecked, f.first_masked, f.own_blocks);
      k.sub_s32(f.first_unchecked, f.first_unchecked, f.config.plan.guard_blocks);
      k.selp_b32(f.first_unchecked, 0, f.first_unchecked, f.safe);
    }
    for (int r = 0; r < 2 && f.has_col_limits(); ++r) {
      if (f.causal()) {
        k.add_s32(t, f.own_q_row0, f.warp_row);
        k.add_s32(t, t, 1 + 8 * r);
        k.add_s32(t, t, f.seqlen_k);
        k.sub_s32(t, t, f.seqlen_q);
        k.min_s32(f.col_limit[r], t, f.seqlen_k);
      } else {
        k.mov_b32(f.col_limit[r], f.seqlen_k);
      }
    }
  });
}

namespace {

// One Q buffer, O staged elsewhere: Q goes back as soon as the tile's last Q K^T is complete, a softmax and a product
// before the tile ends. At head_dim 256 nothing else hid the latency of the next Q (64 KB; at 1k a tile takes 40,000 clocks):
// + 2.6 % at 512, 1.1 % at 1k, 0.4 % at 2k; in 8 bit with V by rows 5 % at 512. The rest of that wait, 2.7 % of a warp's time at 1k, is worth
// nothing: Q asked of L2 a trip ahead (cp.async.bulk.prefetch.tensor) + 0.4 to - 3 % (tile_ends_d256_h200.csv).
bool releases_q_early(const KernelConfig& c) {
  if (c.plan.q_stages != 1 || !c.plan.o_own_buffer || c.plan.symmetric) return false;
  for (const Step& s : c.plan.table()->steps)
    if ((s.what == Do::wait_qk || s.what == Do::free_k) && s.lag != 0) return false;
  return true;
}

void emit_release_q_after_last(ForwardContext& f) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg bar = k.b32("q_empty_bar"), last = k.pred("is_last_block");
    k.setp("eq", "u32", last, f.block, 0);
    k.and_pred(last, last, f.is_lane0);
    k.mad_lo_u32(bar, f.warpgroup, 8, f.base);
    k.mbarrier_arrive(address(bar, f.smem.q_empty)).when(last).note("the tile's last Q K^T: the next Q may land");
  });
}

void emit_token(ForwardContext& f, bool wait) {
  Kernel& k = f.k;
  if (!f.config.plan.ping_pong || f.warpgroups() == 1) return;
  k.scope([&] {
    Reg id = k.b32("token");
    if (wait) {
      k.add_u32(id, f.seat, 1);
      k.bar_sync(id, 256).note("128 threads wait, 128 of the warpgroup before arrive");
    } else if (f.teams() > 1) {
      k.xor_b32(id, f.seat, 1);
      k.add_u32(id, id, 1);
      k.bar_arrive(id, 256);
    } else {
      Reg wraps = k.pred("wraps");
      k.add_u32(id, f.warpgroup, 2);
      k.setp("gt", "u32", wraps, id, f.warpgroups());
      k.mov_b32(id, 1).when(wraps);
      k.bar_arrive(id, 256);
    }
  });
}

// Blocks that only later warpgroups of the tile need: keep the rings and the token going.
void emit_skip_blocks(ForwardContext& f) {
  Kernel& k = f.k;
  Reg skips = k.pred("skips"), turn = k.pred("takes_turn");
  k.setp("lt", "u32", skips, f.own_blocks, f.blocks);
  k.if_(skips, [&] {
    k.section("blocks past this warpgroup's diagonal");
    trace_mark(f, TraceEvent::skip_blocks);
    k.mov_b32(f.block, f.blocks);
    k.loop("skip", [&] {
      k.setp("ne", "u32", turn, f.block, 1).note("one turn a block, but none for the tile's last: blocks - 1");
      if (f.config.plan.ping_pong)
        k.if_(turn, [&] {
          emit_token(f, true);
          emit_token(f, false);
        });
      k.scope([&] {
        RingSlot slot = ring_slot(k, "kv", f.kv_count, f.config.plan.kv_stages);
        Reg bar = ring_barrier(f, "kv_bar", slot.stage, 0);
        k.wait("k_full", address(bar, f.smem.k_full), slot.phase);
        emit_stage_free(f, bar, f.smem.k_empty);
        if (f.config.plan.v_ring() != f.config.plan.kv_stages) {
          slot = ring_slot(k, "v", f.kv_count, f.config.plan.v_ring());
          bar = ring_barrier(f, "v_bar", slot.stage, 0);
        }
        k.wait("v_full", address(bar, f.smem.v_full), slot.phase);
        emit_stage_free(f, bar, f.smem.v_empty);
      });
      k.add_u32(f.kv_count, f.kv_count, 1);
      k.sub_u32(f.block, f.block, 1);
      k.setp("gt", "u32", skips, f.block, f.own_blocks);
      return skips;
    });
  });
}

}  // namespace

// Whether the next K block and this block's V have landed, asked where the exponentials hide the 40 to 50 clocks that the answer takes; at the wait they
// stood in the chain of a warpgroup that has nothing else to issue. Expected up to 5 % where neither another warpgroup's turn nor a product hides it; measured
// (tools/bench/results/branches_and_looks_h200.csv) in 8 bit + 0.8 % on average, up to 4; in 16 bit 0.8 %: head_dim 64 without turns 3 to 7, with them 0 to 1, 128 and
// 256 0 to 1. The descriptors computed here as well gained nothing.
void emit_look_ahead(ForwardContext& f) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg position = k.b32("next_position");
    k.add_u32(position, f.kv_count, 1);
    RingSlot slot = ring_slot(k, "next_k", position, f.config.plan.kv_stages);
    Reg bar = ring_barrier(f, "next_k_bar", slot.stage, 0);
    k.mbarrier_test_wait_parity(f.k_ready, address(bar, f.smem.k_full), slot.phase);
    if (!f.looks_at_v()) return;
    slot = ring_slot(k, "next_v", f.kv_count, f.config.plan.v_ring());
    bar = ring_barrier(f, "next_v_bar", slot.stage, 0);
    k.mbarrier_test_wait_parity(f.v_ready, address(bar, f.smem.v_full), slot.phase);
  });
}

void emit_step(ForwardContext& f, const PlannedStep& step, bool looked_ahead) {
  Kernel& k = f.k;
  auto wait_group = [&](const char* what) {
    if (step.pending < 0) return;
    k.wgmma_wait_group(step.pending).note(what);
  };
  switch (step.what) {
    case Do::token_wait:
      if (f.config.plan.ping_pong && f.warpgroups() > 1) trace_mark(f, TraceEvent::token_wait);
      emit_token(f, true);
      break;
    case Do::token_pass: emit_token(f, false); break;
    case Do::qk:
      k.section("S = Q K^T");
      k.scope([&] {
        RingSlot slot = ring_slot(k, "k", f.kv_count, f.config.plan.kv_stages);
        Reg bar = ring_barrier(f, "k_bar", slot.stage, f.smem.k_full);
        trace_mark(f, TraceEvent::k_full_wait);
        if (looked_ahead) k.wait_unless(f.k_ready, "k_full", address(bar), slot.phase);
        else k.wait("k_full", address(bar), slot.phase);
      });
      break;
    case Do::wait_qk:
      trace_mark(f, TraceEvent::wait_qk);
      wait_group("S is complete");
      if (f.scales_blocks()) emit_read_block_scales(f);
      break;
    case Do::free_k:
      emit_free(f, "k", f.smem.k_empty, step.lag);
      if (releases_q_early(f.config)) emit_release_q_after_last(f);
      break;
    case Do::mask_max:
      k.section("mask, row max");
      trace_mark(f, TraceEvent::mask_max);
      emit_mask_max(f, step.first);
      break;
    case Do::exp_sum:
      k.section("P = exp2(S * c - max * c), row sum");
      trace_mark(f, TraceEvent::exp_sum);
      emit_look_ahead(f);
      emit_exp_sum(f, step.first);
      if (f.scales_blocks()) emit_change_unit(f, step.first);
      break;
    case Do::wait_pv:
      trace_mark(f, TraceEvent::wait_pv);
      wait_group("O is complete, P's registers are free");
      emit_promote(f);
      if (f.sums_p()) emit_take_sums(f, f.drains ? 0 : step.lag);
      if (f.folds_behind()) emit_fold(f);
      break;
    case Do::free_v: emit_free(f, "v", f.smem.v_empty, step.lag); break;
    case Do::rescale_o:
      k.section("O *= alpha");
      trace_mark(f, TraceEvent::rescale_o);
      emit_rescale_o(f);
      if (!f.folds_behind() && !f.folds_early()) emit_fold(f);
      break;
    case Do::pack_p:
      k.section(f.eight_bit() ? "P to e4m3" : "P to " + f.type());
      trace_mark(f, TraceEvent::pack_p);
      emit_pack_p(f);
      break;
    case Do::pv:
      k.section("O += P V");
      emit_pv(f, step.lag);
      break;
  }
}

namespace {

StepCost step_cost(const Kernel& k, const PlannedStep& s, std::size_t from) {
  InstrCounts n = k.counts(from, k.mark());
  return {s.what, s.lag, n.wgmma, static_cast<int>(n.wgmma_cycles), n.ex2, n.fma, n.alu, n.cvt, n.issue_slots()};
}

}  // namespace

// K's barrier is waited for before the token is taken: a warpgroup that waits for data must not hold up the others.
std::vector<StepCost> emit_trip(ForwardContext& f, const std::vector<PlannedStep>& steps, Trip trip) {
  bool k_waited = false;
  trace_batch(f, f.kv_count, trip == Trip::steady);
  std::vector<StepCost> costs;
  for (const PlannedStep& s : steps) {
    std::size_t from = f.k.mark();
    if ((s.what == Do::token_wait || s.what == Do::qk) && !k_waited) {
      const PlannedStep wait{Do::qk, 0, -1, false};
      f.k.step(step_line(f, wait, trip), [&] { emit_step(f, wait, trip == Trip::steady); });
      k_waited = true;
    }
    f.k.step(step_line(f, s, trip), [&] {
      if (s.what == Do::qk) emit_qk(f);
      else emit_step(f, s);
      if (&s == &steps.back()) trace_batch_end(f);
    });
    costs.push_back(step_cost(f.k, s, from));
  }
  if (steps.empty()) trace_batch_end(f);
  return costs;
}

namespace {

// With two Q buffers and O staged on the tile's own slice, the slice is handed back one trip into the next tile:
// by then its store has been read, and no warp stands waiting for it.
bool deferred_q_release(const KernelConfig& c) { return c.plan.q_stages == 2 && !c.plan.o_own_buffer; }

void emit_release_previous_q(ForwardContext& f) {
  Kernel& k = f.k;
  Reg second = k.pred("after_first_tile_" + std::to_string(k.mark()));
  k.setp("ne", "u32", second, f.q_count, 0);
  k.if_(second, [&] {
    k.if_(f.is_lane0, [&] { k.cp_async_bulk_wait_group_read(0).note("the last tile's O has left its slice"); });
    emit_release_q(f, 1);
  });
}

// The next tile's first Q K^T can be issued before this tile's O is stored, if its Q does not wait for that store. Worth 0.5 to 1 % in 16 bits up to 2k at
// head_dim 64 full, causal nothing, 1 % at 128, + 0.5 (512) to - 1 % at 256; 8 bits: 64 - 2 to + 4, mostly + 1, 128 full - 1 to + 1.5, causal 0 to - 2 % up to 1k.
// With a plain softmax in 8 bits it costs 7 to 8 % at 512 and head_dim 128, with O in two passes at head_dim 256 0 to 7 %
// (tools/bench/results/tile_crossing_h200.csv): not traced.
bool crosses_tiles(const KernelConfig& c, const Derived& trips) {
  // With lazy the extra path costs registers: 30 % slower at three and four warpgroups (ptxas 13.0).
  if (c.plan.softmax != Softmax::guarded) return false;
  if (c.plan.two_level) return false;  // spills at head_dim 128
  if (c.plan.p_sums && c.plan.fold_blocks && c.problem.mask == Mask::causal && c.problem.head_dim_v > 64) return false;  // spills 28 bytes
  if (c.problem.eight_bit()) {
    // Also where P V is complete by then. With O leaving in two passes the path spills 24 bytes (ptxas 13.0).
    SharedLayout m(c);
    return c.plan.o_own_buffer && m.o_slabs == m.slabs_o;
  }
  bool pv_lags = !trips.epilogue.empty() && trips.epilogue.front().what == Do::pv;
  return pv_lags && (c.plan.q_stages == 2 || c.plan.o_own_buffer);
}

// In pairs of causal kernels also a tile that the peer does again: of its own key blocks, here without rows.
void emit_blocks_of_absent(ForwardContext& f, const Reg& exists) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg bit = k.b32("absent_bit"), absent = k.pred("is_absent");
    k.and_b32(bit, f.q_row0, kAbsent);
    k.setp("ne", "u32", absent, bit, 0);
    k.and_pred(absent, absent, exists);
    k.sub_u32(f.q_row0, f.q_row0, bit).when(absent);
    emit_tile_blocks(f);
    k.mov_b32(f.q_row0, kNoRows).when(absent);
  });
}

// From a slot to this warpgroup's ranges. `exists`: the slot holds a tile.
void emit_prepare_tile(ForwardContext& f, const Reg& exists) {
  Kernel& k = f.k;
  k.setp("lt", "u32", exists, f.q_row0, hex(kSync));
  if (f.guarded())
    k.scope([&] {
      Reg bit = k.b32("safe_bit");
      k.and_b32(bit, f.q_row0, kSafe);
      k.setp("ne", "u32", f.safe, bit, 0);
      k.and_b32(f.q_row0, f.q_row0, hex(~std::uint32_t{kSafe})).when(exists);
    });
  if (f.eight_bit()) emit_lazy_slack(f);
  if (f.guarded() && f.paired() && f.causal()) emit_blocks_of_absent(f, exists);
  else emit_tile_blocks(f);
  emit_warpgroup_range(f);
  if (f.scales_blocks()) emit_row_scales(f, exists);
}

}  // namespace

void emit_wait_q(ForwardContext& f) {
  Kernel& k = f.k;
  k.scope([&] {
    RingSlot q = ring_slot(k, "q", f.q_count, f.config.plan.q_stages);
    Reg bar = k.b32("q_bar");
    k.mad_lo_u32(bar, q.stage, f.warpgroups(), f.warpgroup);
    k.mad_lo_u32(bar, bar, 8, f.base);
    trace_mark(f, TraceEvent::q_full_wait);
    k.wait("q_full", address(bar, f.smem.q_full), q.phase);
  });
}

namespace {

void emit_first_qk(ForwardContext& f) {
  emit_step(f, {Do::qk, 0, -1, false});
  emit_qk(f);
}

}  // namespace

std::vector<PlannedStep> without(std::vector<PlannedStep> steps, std::initializer_list<Do> dropped) {
  for (Do what : dropped)
    steps.erase(std::remove_if(steps.begin(), steps.end(), [&](const PlannedStep& s) { return s.what == what; }),
                steps.end());
  return steps;
}

constexpr const char* kLoopLine = "loop over the blocks of keys";

Budget emit_kv_loop(ForwardContext& f, const std::vector<PlannedStep>& steady, const Reg& more,
                    const std::function<void()>& ahead) {
  Kernel& k = f.k;
  Budget budget;
  k.add_u32(f.kv_count, f.kv_count, 1);
  k.setp("ne", "u32", more, f.block, 0);
  k.if_(more, [&] {
    trace_trips(f, f.kv_count);
    budget.from = k.mark();
    k.loop("kv loop", [&] {
      k.step(kLoopLine, [&] { k.sub_u32(f.block, f.block, 1); });
      if (ahead) ahead();
      budget.steps = emit_trip(f, steady, Trip::steady);
      k.step(kLoopLine, [&] {
        k.add_u32(f.kv_count, f.kv_count, 1);
        k.setp("ne", "u32", more, f.block, 0);
      });
      return more;
    });
    budget.to = k.mark();
  });
  return budget;
}

void emit_empty_rows(ForwardContext& f) {
  Kernel& k = f.k;
  k.comment("no key is visible: O = 0, LSE = -inf");
  if (f.folds()) k.mov_pred(f.folded, 0);
  for (const Reg& o : f.o_acc.all()) k.mov_f32(o, f32_imm(0.0f));
  for (const Reg& sum : f.row_sum.all()) k.mov_f32(sum, f32_imm(0.0f));
  if (f.sums_p()) emit_start_sums(f);
  if (f.checks_block_sums())
    for (int r = 0; r < 2; ++r) k.mov_f32(f.p_offset[r], f32_imm(0.0f));
  for (int r = 0; r < 2; ++r) k.mov_f32(f.row_max[r], f32_imm(0.0f));
}

namespace {

struct ConsumerState {
  Reg exists;  // the slot read last holds a tile
  std::string tile_start, tile_begun, end;  // begun: its first Q K^T is issued; with late_store its trip 0 is done
};

// From a first Q K^T already issued to where the loop begins; `done`: steps that the caller has emitted.
void emit_trip_0(ForwardContext& f, const Derived& trips, std::initializer_list<Do> done) {
  Kernel& k = f.k;
  k.section("trip 0: the steps whose block exists");
  k.mov_pred(f.o_keep, 0).note("the first P V starts O afresh");
  if (f.config.plan.two_level)
    for (const Reg& o : f.o_acc.all()) k.mov_f32(o, f32_imm(0.0f));
  if (f.folds()) {
    for (int r = 0; r < 2; ++r) k.mov_f32(f.fold_scale[r], f32_imm(1.0f));
    k.setp("gt", "u32", f.folded, f.own_blocks, f.config.plan.fold_blocks).note("O will be folded once at least");
  }
  k.sub_u32(f.block, f.own_blocks, 1).note("from the last block to the first");
  if (f.sums_p()) emit_start_sums(f);
  emit_trip(f, without(trips.peeled, done), Trip::peeled);
}

// Trips 1 .. blocks-1, to the last P V's issue (or end).
Budget emit_blocks(ForwardContext& f, const Derived& trips, const Reg& more) {
  Kernel& k = f.k;
  if (deferred_q_release(f.config)) emit_release_previous_q(f);
  Budget budget = emit_kv_loop(f, trips.steady, more);
  k.section("epilogue trip: what still lags");
  bool crossing = crosses_tiles(f.config, trips);
  f.drains = true;
  emit_trip(f, crossing && !f.sums_p() ? without(trips.epilogue, {Do::wait_pv, Do::free_v}) : trips.epilogue, Trip::epilogue);
  f.drains = false;
  return budget;
}

// The slot of the next tile, while this one's last P V runs; this tile's coordinates are kept for its store.
void emit_turn_to_next(ForwardContext& f, const ConsumerState& st) {
  Kernel& k = f.k;
  trace_position(f, f.kv_count);
  const auto finish_rows = [&] {
    trace_mark(f, TraceEvent::finish_rows);
    emit_finish_rows(f);
  };
  if (f.eight_bit()) finish_rows();
  if (f.config.plan.o_own_buffer && !releases_q_early(f.config)) {
    k.comment("every Q K^T of the tile is complete: the next Q may land while O is finished");
    emit_release_q(f, 0);
  }
  k.section("the next tile");
  k.mov_b32(f.out_row0, f.own_q_row0);
  k.mov_b32(f.out_head, f.head);
  k.mov_b32(f.out_batch, f.batch_index);
  if (f.splits()) k.mov_b32(f.out_part, f.part);
  if (f.guarded()) k.mov_pred(f.was_safe, f.safe);
  k.add_u32(f.q_count, f.q_count, 1);
  trace_mark(f, TraceEvent::tile_wait);
  // 16 bit, with three more changes at a tile's end (no division, four chains in the guard, TMA's coordinates known to be the warp's):
  // + 1.3 % at head_dim 64 and 512 keys, 1 % at 1k, causal 1.3 and 1.1 %, 4k - 0.3 and + 1 %; 128 at 1k 1.5, causal 0.9 %; 256 at 512
  // nothing (tools/bench/results/tile_end_h200.csv).
  // Behind a wait: in front of it ptxas puts the rows' shuffles and logarithms between the products of the last P V.
  if (f.eight_bit()) emit_fetch_tile(f);
  else emit_fetch_tile(f, finish_rows);
  emit_prepare_tile(f, st.exists);
}

// O leaves; then to the next tile's start, or out.
void emit_store_and_go(ForwardContext& f, const ConsumerState& st) {
  Kernel& k = f.k;
  trace_position(f, f.kv_count);
  trace_mark(f, TraceEvent::store_o);
  emit_epilogue(f);
  trace_mark(f, TraceEvent::tile_wait);
  emit_release_slot(f);
  if (f.guarded())
    k.scope([&] {
      Reg asked = k.pred("asked_if_done");
      k.setp("eq", "u32", asked, f.q_row0, hex(kSync));
      k.if_(asked, [&] {
        k.if_(f.is_lane0, [&] {
          k.cp_async_bulk_wait_group(0).note("this warp's stores have landed: a redone tile overwrites them");
        });
        emit_fetch_tile(f);
        emit_prepare_tile(f, st.exists);
        emit_release_slot(f);
      });
    });
  k.branch_if(st.exists, st.tile_start);
  k.branch(st.end);
}

// late_store: O stands in its registers until the next tile's S is there. Its scaling, packing and stmatrix then fill issue slots
// between that tile's first exponentials, which leave seven of eight free, and the guard's chains those of its maxima. Trip 0 has
// no product in flight, so S, O and P need no more registers than in the loop.
// Expected, head_dim 64, 256 x 64: some 130 instructions of each of a scheduler's four warps, 520 clocks a tile, no longer stand
// alone in front of 4 x 256 clocks of exponentials; what the other warpgroups hid already is no gain. Measured
// (tools/bench/results/late_store_h200.csv): 17 clocks a tile at 512, 200 at 1k, 0.1 and 0.7 %; causal 200 and 260, 1.6 and
// 1.3 %; at 4k nothing, causal 2 %. As it stands now (rows labelled landed): 1.2, 0.7 and 0.8 % at 512, 1k and 2k, causal with
// eight stages 0.7, 0.3 and 0.3 %, 4k 0.6 %. O staged beside the maxima, or the next slot read in the last trip: the same or less.
void emit_trip_0_and_store(ForwardContext& f, const Derived& trips, const ConsumerState& st) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg failed = k.pred("failed"), worst = k.f32("guard_sum"), bad = k.pred("out_of_range");
    emit_guard_sums(f, failed, worst);
    trace_mark(f, TraceEvent::wait_pv);
    const StagingPlace place = emit_staging_place(f);
    k.cp_async_bulk_wait_group_read(0).note("the last tile's store has left");
    k.bar_warp_sync();
    k.wgmma_wait_group(0).note("O and the next tile's S are complete");
    emit_free(f, "v", f.smem.v_empty, 1);
    f.beside_max = [&] {
      k.comment("the finished tile: whether its outputs are in range, under the maxima of this one");
      emit_guard_outputs(f, failed, bad);
    };
    f.beside_exp = [&] {
      k.comment("the finished tile's O into shared memory, under the exponentials of this one");
      emit_scale_and_stage(f, place);
    };
    emit_trip_0(f, trips, {Do::qk, Do::wait_qk});
    f.beside_max = f.beside_exp = {};
    trace_position(f, f.kv_count);
    trace_mark(f, TraceEvent::store_o);
    emit_note_failure(f, failed, bad);
    emit_store_staged(f, place);
    emit_release_slot(f);
    k.branch(st.tile_begun);
  });
}

// The end of a tile. Where the next tile's first Q K^T may run under this tile's store it is issued before; the two
// ways have their own copy of the store, because ptxas must see on each path which products are in flight.
// `pv_pending`: the last P V is still in flight here.
void emit_tile_end(ForwardContext& f, const Derived& trips, bool crossing, bool pv_pending, const ConsumerState& st) {
  Kernel& k = f.k;
  emit_turn_to_next(f, st);
  if (!crossing) {
    emit_store_and_go(f, st);
    return;
  }
  const bool late = f.config.plan.late_store;
  Reg issues = k.pred("issues_next"), sees = k.pred("next_sees_keys");
  k.setp("eq", "u32", issues, f.own_blocks, f.blocks).note("one that must skip blocks stores O first");
  k.setp("ne", "u32", sees, f.own_blocks, 0);
  k.and_pred(issues, issues, sees);
  k.and_pred(issues, issues, st.exists);
  if (late && f.splits()) {
    Reg whole = k.pred("is_whole");
    k.setp("eq", "u32", whole, f.out_part, 0);
    k.and_pred(issues, issues, whole).note("a part goes to memory: no staging");
  }
  k.if_(issues, [&] {
    trace_position(f, f.kv_count);
    emit_wait_q(f);
    emit_first_qk(f);
    if (late) {
      emit_trip_0_and_store(f, trips, st);
      return;
    }
    if (pv_pending) {
      trace_mark(f, TraceEvent::wait_pv);
      k.wgmma_wait_group(0).note("O and the next tile's S are complete");
      emit_free(f, "v", f.smem.v_empty, 1);
    }
    trace_mark(f, TraceEvent::store_o);
    emit_epilogue(f);
    emit_release_slot(f);
    k.branch(st.tile_begun);
  });
  if (pv_pending) {
    trace_position(f, f.kv_count);
    trace_mark(f, TraceEvent::wait_pv);
    k.wgmma_wait_group(0).note("O is complete");
    emit_free(f, "v", f.smem.v_empty, 1);
  }
  emit_store_and_go(f, st);
}

// A tile (or this warpgroup's part of it) in which no key is visible.
void emit_no_keys(ForwardContext& f, const Derived& trips, const ConsumerState& st) {
  emit_empty_rows(f);
  if (deferred_q_release(f.config)) emit_release_previous_q(f);
  if (releases_q_early(f.config)) emit_release_q(f, 0);
  emit_tile_end(f, trips, false, false, st);
}

Budget emit_consumer(ForwardContext& f, const Derived& trips) {
  Kernel& k = f.k;
  const Plan& plan = f.config.plan;
  Budget budget;
  emit_consumer_setup(f);
  bool ring = plan.ping_pong && f.warpgroups() > 1;
  if (ring) {
    Reg last = k.pred("is_last_wg");
    k.setp("eq", "u32", last, f.warpgroup, f.warpgroups() - 1);
    k.if_(last, [&] {
      if (f.teams() > 1) k.bar_arrive(f.seat, 256).note("the first turn is the team's warpgroup 0's");
      else k.bar_arrive(1, 256).note("the first turn is warpgroup 0's");
    });
  }
  ConsumerState st{k.pred("tile_exists"), k.new_label("tile start"),
                   k.new_label(plan.late_store ? "tile begun" : "tile issued"), k.new_label("consumer end")};
  Reg writer;
  if (plan.traced()) {
    writer = k.b32("trace_writer");
    k.add_u32(writer, f.warpgroup, 1);
  }
  trace_start(f, writer.valid() ? Operand(writer) : Operand(0), false);
  trace_position(f, f.kv_count);
  trace_mark(f, TraceEvent::tile_wait);
  emit_fetch_tile(f);
  emit_prepare_tile(f, st.exists);
  emit_release_slot(f);
  if (f.splits() || f.teams() > 1) k.unless(st.exists, [&] { k.branch(st.end); }, f.splits() ? "this CTA has a tile" : "this team has a tile");
  k.label(st.tile_start);
  trace_position(f, f.kv_count);
  emit_wait_q(f);
  emit_skip_blocks(f);
  Reg sees = k.pred("sees_keys");
  k.setp("ne", "u32", sees, f.own_blocks, 0);
  k.unless(sees, [&] { emit_no_keys(f, trips, st); }, "some key is visible");
  trace_position(f, f.kv_count);
  emit_first_qk(f);
  Reg more = k.pred("more_blocks");
  if (!plan.late_store) k.label(st.tile_begun);
  emit_trip_0(f, trips, {Do::qk});
  if (plan.late_store) k.label(st.tile_begun);
  budget = emit_blocks(f, trips, more);
  emit_tile_end(f, trips, crosses_tiles(f.config, trips), !trips.epilogue.empty() && !f.sums_p(), st);
  k.label(st.end);
  if (f.splits()) emit_merge_parts(f);
  trace_position(f, f.kv_count);
  trace_mark(f, TraceEvent::done);
  k.if_(f.is_lane0, [&] { k.cp_async_bulk_wait_group_read(0).note("shared memory must outlive the store"); });
  if (ring) {
    Reg first = k.pred("is_first_wg");
    k.setp("eq", "u32", first, f.warpgroup, 0);
    k.if_(first, [&] {
      if (f.teams() > 1) emit_token(f, true);
      else k.bar_sync(1, 256).note("takes the turn that nobody needs");
    });
  }
  trace_finish(f);
  return budget;
}

}  // namespace

void emit_params(Kernel& k, const KernelConfig& c) {
  k.param_tensor_map("q_map", "(batch, heads_q, seqlen_q, head_dim)");
  k.param_tensor_map("k_map", "(batch, heads_kv, seqlen_k, head_dim)");
  k.param_tensor_map("v_map", c.problem.v_transposed ? "V^T (batch, heads_kv, head_dim_v, keys), keys in the order of "
                                                        "gen/tile/key_order.h"
                                                      : "(batch, heads_kv, seqlen_k, head_dim_v)");
  k.param_tensor_map("o_map", "(batch, heads_q, seqlen_q, head_dim_v)");
  if (c.plan.v_background) {
    k.param_tensor_map("v_rows_map", "V as it lies in memory (batch, heads_kv, seqlen_k, head_dim_v)");
    k.param_tensor_map("vt_store_map", "what v_map describes, in the boxes in which it is written");
  }
  k.param("lse", "u64", "fp32 (batch, heads_q, seqlen_q), natural log; 0: none");
  if (c.plan.dynamic_tiles) k.param("tile_counter", "u64", "two u32, zero before launch, zero after");
  if (c.plan.v_background) k.param("v_flags", "u64", "2 + batch * heads_kv u32, zero before launch, zero after");
  k.param("seqlen_q", "u32");
  k.param("seqlen_k", "u32");
  k.param("heads_q", "u32");
  k.param("heads_kv", "u32");
  k.param("batch", "u32");
  if (c.plan.split_tail) {
    k.param("tail_first", "u32", "the first tile cut in two; the number of tiles: none");
    k.param("tail_parts", "u32", "second parts that a CTA without a first one takes");
    k.param("tail_blocks", "u32", "key blocks, the last ones, of a first part");
    k.param("tail_partials", "u64", "O, and the row's reference and sum, of parts, fp32; 0: none");
    k.param("tail_arrivals", "u64", "u32 a cut tile, zero before launch, zero after; 0: none");
  }
  if (c.problem.mask == Mask::causal) k.param("head_group", "u32", "heads scheduled together (K, V in L2)");
  k.param("softmax_scale_log2", "f32", "softmax_scale * log2(e), > 0");
  if (c.problem.eight_bit()) {
    for (const char* which : {"q_scale", "k_scale", "v_scale"}) {
      k.param(which, "u64", "fp32 scales; 0: 1");
      k.param(std::string(which) + "_batch", "u32", "stride in elements, 0: all batches share");
      k.param(std::string(which) + "_head", "u32", "stride in elements, 0: all heads share");
    }
    k.param("q_scale_group", "u32", "query heads that share a scale, >= 1");
    if (c.problem.scale_rows)
      for (const char* which : {"q_scale_rows", "k_scale_rows", "v_scale_rows"}) k.param(which, "u32", "rows that share a scale");
  }
  if (c.plan.traced()) {
    k.param("trace", "u64", "marks, gen/trace_events.h; 0: none");
    k.param("trace_capacity", "u32", "records, and trips, of one writer");
  }
}

namespace {

ParamFact map_fact(const KernelConfig& c, const std::string& name, const char* dim, const char* rows,
                   const char* heads, int box_rows, bool written) {
  ParamFact p;
  p.name = name;
  p.kind = ParamKind::tensor_map;
  p.element = to_string(written ? c.problem.output() : name == "k_map" ? c.problem.type_k() : name == "v_map" ? c.problem.type_v() : c.problem.dtype);
  p.dims = {dim, rows, heads, "batch"};
  p.box = {c.problem.eight_bit() && !written ? 128 : 64, box_rows, 1, 1};
  p.swizzle_bytes = 128;
  p.written = written;
  p.meaning = "strided view (batch, " + std::string(heads) + ", " + rows + ", " + dim +
              "), innermost stride 1, others multiples of 16 bytes";
  return p;
}

ParamFact transposed_v_fact(const KernelConfig& c) {
  ParamFact p = map_fact(c, "v_map", "keys_padded", "head_dim_v", "heads_kv", c.problem.head_dim_v / c.plan.cluster, false);
  p.meaning = "V^T (batch, heads_kv, head_dim_v, keys_padded), keys innermost in the order of gen/tile/key_order.h, "
              "keys_padded = seqlen_k rounded up to 128, zeros past seqlen_k";
  return p;
}

// v_background: V as it lies in memory, and V^T once more, in the boxes of a unit.
void add_background_facts(const KernelConfig& c, std::vector<ParamFact>* params) {
  ParamFact rows = map_fact(c, "v_rows_map", "head_dim_v", "seqlen_k", "heads_kv", 128, false);
  ParamFact store = transposed_v_fact(c);
  rows.element = store.element;
  store.name = "vt_store_map";
  store.box[1] = std::min(128, c.problem.head_dim_v);
  store.written = true;
  store.meaning += "; the same memory as v_map's, which the kernel fills with V: any content before";
  params->push_back(rows);
  params->push_back(store);
}

}  // namespace

LaunchFacts launch_facts(const KernelConfig& c, const Kernel& k, const SharedLayout& m) {
  LaunchFacts facts;
  RegisterSplit split = register_split(c);
  facts.entry = c.name();
  facts.grid = "min(ceil(seqlen_q / " + std::to_string(c.cluster_rows()) + ") * heads_q * batch, multiprocessors)";
  if (c.plan.teams > 1) {
    facts.teams = c.plan.teams;
    facts.grid = "min(ceil(ceil(seqlen_q / " + std::to_string(c.tile_q()) + ") * heads_q * batch / " + std::to_string(c.plan.teams) + "), multiprocessors)";
  }
  if (c.plan.cluster > 1) {
    const std::string n = std::to_string(c.plan.cluster);
    facts.grid = n + " * min(ceil(seqlen_q / " + std::to_string(c.cluster_rows()) + ") * heads_q * batch, multiprocessors // " + n + ")";
    facts.cluster = c.plan.cluster;
  }
  facts.params = {
      map_fact(c, "q_map", "head_dim", "seqlen_q", "heads_q", 64, false),
      map_fact(c, "k_map", "head_dim", "seqlen_k", "heads_kv", c.plan.tile_kv / c.plan.cluster, false),
      c.problem.v_transposed ? transposed_v_fact(c)
                             : map_fact(c, "v_map", "head_dim_v", "seqlen_k", "heads_kv", c.plan.tile_kv / c.plan.cluster, false),
      map_fact(c, "o_map", "head_dim_v", "seqlen_q", "heads_q", 16, true)};
  if (c.plan.v_background) add_background_facts(c, &facts.params);
  auto add = [&](const char* name, ParamKind kind, const char* meaning, bool written = false) {
    ParamFact p;
    p.name = name;
    p.kind = kind;
    p.meaning = meaning;
    p.written = written;
    facts.params.push_back(p);
  };
  add("lse", ParamKind::pointer, "fp32 (batch, heads_q, seqlen_q) contiguous, natural log, -inf for a row "
      "without keys; 0 = not wanted", true);
  if (c.plan.dynamic_tiles)
    add("tile_counter", ParamKind::pointer, "two u32, zero before the first launch; the kernel leaves them zero",
        true);
  if (c.plan.v_background)
    add("v_flags", ParamKind::pointer, "2 + batch * heads_kv u32, zero before the first launch; the kernel leaves them zero; "
        "not those of a launch that may run at the same time", true);
  add("seqlen_q", ParamKind::u32, "query rows");
  add("seqlen_k", ParamKind::u32, "keys; may be 0");
  add("heads_q", ParamKind::u32, "query heads, a multiple of heads_kv");
  add("heads_kv", ParamKind::u32, "key/value heads");
  add("batch", ParamKind::u32, "batch size");
  if (c.plan.split_tail) {
    add("tail_first", ParamKind::u32, "tiles before this one are whole; ceil(seqlen_q / tile_q) * heads_q * batch: all are. "
        "CTA i takes the first part of cut tile i: the grid is at least cut tiles + ceil(cut tiles / tail_parts), with whole "
        "tiles best a divisor of tail_first");
    add("tail_parts", ParamKind::u32, "second parts that a CTA without a first one takes, 1 to 16; 0 where all are whole");
    add("tail_blocks", ParamKind::u32, "key blocks, the last ones of a tile, in its first part, 1 to "
        "ceil(seqlen_k / tile_kv) - 1; 0 where all are whole");
    add("tail_partials", ParamKind::pointer, "2 * cut tiles * tile_q * (head_dim_v + 2) fp32 that parts are kept in, at a multiple of 16; "
        "not those of a launch that may run at the same time; 0 where all are whole", true);
    add("tail_arrivals", ParamKind::pointer, "u32 for each cut tile, zero before the first launch; the kernel leaves them zero; "
        "not those of a launch that may run at the same time; 0 where all are whole", true);
  }
  if (c.problem.mask == Mask::causal)
    add("head_group", ParamKind::u32, "(batch, head) pairs whose tiles are scheduled together, >= 1");
  add("softmax_scale_log2", ParamKind::f32, "softmax_scale * log2(e); greater than 0");
  if (c.problem.eight_bit()) {
    for (const char* which : {"q_scale", "k_scale", "v_scale"}) {
      add(which, ParamKind::pointer, "fp32 scales by (batch, head): the tensor is its 8-bit values times its scale; 0 = 1");
      add((std::string(which) + "_batch").c_str(), ParamKind::u32, "stride of the scales over batches, elements");
      add((std::string(which) + "_head").c_str(), ParamKind::u32, "stride of the scales over heads, elements");
    }
    add("q_scale_group", ParamKind::u32, "query heads that share a scale, at least 1");
    if (c.problem.scale_rows) {
      add("q_scale_rows", ParamKind::u32, "query rows that share a scale, at least 1; blocks are the innermost dimension");
      for (const char* which : {"k_scale_rows", "v_scale_rows"})
        add(which, ParamKind::u32, "keys that share a scale: a multiple of the kernel's scale rows");
    }
  }
  if (c.plan.traced()) {
    add("trace", ParamKind::pointer, "marks of CTA 0 and 1: for each role 48 bytes and 32 * trace_capacity, zeroed before "
        "the launch (gen/trace_events.h); 0 = none", true);
    add("trace_capacity", ParamKind::u32, "records, and trips, that one role may write; those beyond are counted");
  }
  facts.block_threads = c.plan.threads();
  facts.shared_bytes = static_cast<std::uint32_t>(m.dynamic_bytes());
  facts.ptx_version = std::to_string(k.ptx_version() / 10) + "." + std::to_string(k.ptx_version() % 10);
  facts.driver_min = "525 (CUDA 12.0)";
  facts.producer_registers = split.producer;
  facts.consumer_registers = split.consumer;
  facts.entry_registers = split.entry;
  return facts;
}

void emit_header(Kernel& k, const KernelConfig& c, const LaunchFacts& facts, const SharedLayout& m,
                 const Schedule& schedule, const Budget& budget) {
  auto line = [&](const std::string& s) { k.header(s); };
  auto num = [](long v) { return std::to_string(v); };
  line(facts.entry);
  line("");
  line("Written by: flashptx emit " + facts.entry +
       (c.plan.own_schedule ? " --schedule FILE (the table below)" : ""));
  line("Exact attention O = softmax(softmax_scale * Q K^T) V on a Hopper GPU (sm_90a), " +
       to_string(c.problem.dtype, c.problem.type_k(), c.problem.type_v()) +
       (c.problem.eight_bit() ? std::string(" in, ") + to_string(c.problem.output()) + " out, fp32 inside; P in e4m3."
                              : std::string(" in and out, fp32 inside.")));
  line("");
  line("Launch: grid " + facts.grid + (facts.cluster > 1 ? ", clusters of " + num(facts.cluster) : "") + ", block " + num(facts.block_threads) + ", dynamic shared memory " +
       num(facts.shared_bytes) + " bytes");
  line("  (raise MAX_DYNAMIC_SHARED_SIZE_BYTES first). Pass parameters as a kernelParams array, never as a packed");
  line("  buffer: tensor maps are 64-byte aligned. All maps: rank 4, 128-byte swizzle, zero fill.");
  if (!c.plan.traced())
    line("  It may be a programmatic dependent of the grid before it: every CTA waits for that before it touches memory.");
  for (const ParamFact& p : facts.params) {
    std::string what = "  " + p.name + ": ";
    if (p.kind == ParamKind::tensor_map) {
      what += p.element + " {";
      for (std::size_t i = 0; i < p.dims.size(); ++i) what += (i ? ", " : "") + p.dims[i];
      what += "} innermost first, box {" + num(p.box[0]) + ", " + num(p.box[1]) + ", 1, 1}";
    } else {
      what += p.meaning;
    }
    line(what);
  }
  line("");
  if (c.plan.symmetric)
    line("Roles: none apart. " + num(c.plan.warpgroups) + " warpgroups of 64 query rows compute; thread 0 also issues the loads");
  else if (c.plan.teams > 1)
    line("Roles: warps 0 and 1 of warpgroup 0 produce, one for each team (" + num(facts.producer_registers) + " registers); " + num(c.plan.teams) + " teams of " +
         num(c.plan.warpgroups) + " consumer warpgroups of 64 query rows (" + num(facts.consumer_registers) + " registers), " + num(facts.entry_registers) + " at entry.");
  else line("Roles: warp 0 of warpgroup 0 produces (" + num(facts.producer_registers) + " registers), " +
       num(c.plan.warpgroups) + " consumer warpgroups of 64 query rows (" + num(facts.consumer_registers) +
       " registers), " + num(facts.entry_registers) + " at entry.");
  line("Shared memory (bytes from a 1024-aligned base):");
  line("  Q " + num(m.q) + ": " + num(c.plan.q_stages) + " stages x " + num(c.plan.warpgroups) + " slices x " +
       num(m.q_slice_bytes) + (c.plan.o_own_buffer ? "" : "; O is staged on the tile's own slice"));
  line("  K " + num(m.k) + ": " + num(c.plan.kv_stages) + " stages x " + num(m.k_stage_bytes) + ";  V " + num(m.v) +
       ": " + num(c.plan.v_ring()) + " stages x " + num(m.v_stage_bytes));
  if (m.raw_stages)
    line("  V before its transposition " + num(m.raw) + ": " + num(m.raw_stages) + " stages x " + num(m.raw_stage_bytes) +
         " (warps 1 to " + num(c.plan.transposers) + (c.plan.transposers > 3 ? " of warpgroups 0 and 1" : " of warpgroup 0") + " transpose)");
  if (m.unit_full)
    line("  a unit of V " + num(m.unit_raw) + ", of V^T " + num(m.unit_vt) + " (warps 1 to 3 of warpgroup 0 write V^T to memory)");
  if (c.plan.o_own_buffer) line("  O " + num(m.o) + ": " + num(c.plan.warpgroups * m.o_slabs * m.slab_bytes_q));
  line((c.plan.symmetric ? "  mbarriers " : "  next-tile slots " + num(m.tile_slot) + ", mbarriers ") + num(m.q_full) + " to " + num(m.end));
  if (c.plan.ping_pong && c.plan.warpgroups > 1)
    line("Named barriers: 1 to " + num(c.plan.warpgroups * c.plan.teams) + ", the turn of each warpgroup.");
  if (m.unit_full) line("Named barrier " + num(kUnitBarrier) + ": the warps that share a unit of V.");
  line("");
  InstrCounts n = k.counts(budget.from, budget.to);
  line("Budget of one trip (one warpgroup, one warp's instructions; " + num(c.plan.warpgroups * c.plan.teams) +
       " warpgroups share the SM):");
  line("  wgmma " + num(n.wgmma) + " = " + num(n.wgmma_cycles) + " tensor clocks; ex2 " + num(n.ex2) + " = " +
       num(n.ex2 * 8) + " MUFU clocks; fma/add/mul " + num(n.fma) + " = " + num(n.fma) + "; alu " + num(n.alu) +
       "; cvt " + num(n.cvt) + "; issue slots about " + num(n.issue_slots()) + " (a usual trip: no mask, no new maximum)");
  line("Schedule \"" + schedule.name + "\": " + schedule.about);
  std::string table = draw(schedule, 3);
  std::size_t from = 0;
  while (from < table.size()) {
    std::size_t to = table.find('\n', from);
    line("  " + table.substr(from, to - from));
    from = to + 1;
  }
}

RegisterSplit register_split(const KernelConfig& c) {
  if (c.plan.symmetric) {
    const int registers = c.plan.warpgroups <= 2 ? 255 : c.plan.warpgroups == 3 ? 168 : 128;
    return {0, registers, registers};
  }
  if (c.plan.teams > 1) return {24, 112, 96};
  // Entry count = 65536 / threads rounded down to 8; the sum over warpgroups must fit what was launched.
  switch (c.plan.warpgroups) {
    case 1: return {56, 240, 255};  // as ptxas counts: 256 threads start with all registers there are
    case 2: {
      if (c.plan.transposers > 3) return {24, 232, 128};
      // Beside V's slabs and two of Q and K the producer of a kernel that cuts tiles has no room for its part.
      const bool wide_cut = c.plan.split_tail && c.problem.head_dim > 128;
      const bool wide_producer = c.problem.eight_bit() ? (c.problem.scale_rows || c.plan.trace == Marks::all || wide_cut) && !c.problem.v_transposed
                                                       : c.plan.dynamic_tiles;
      return wide_producer || (c.plan.cluster > 1 && !c.problem.eight_bit()) ? RegisterSplit{40, 232, 168} : RegisterSplit{24, 240, 168};
    }
    case 3: return {32, 160, 128};
    case 4: return {c.plan.cluster > 1 || c.problem.eight_bit() ? 32 : 24, 112, 96};
    default: return {};
  }
}

std::string check_forward(const KernelConfig& c) {
  const ProblemClass& p = c.problem;
  const Plan& plan = c.plan;
  auto at = [&](const char* field, long value, const std::string& rule) {
    return std::string(field) + " " + std::to_string(value) + " " + rule;
  };
  if (p.dtype != DataType::f16 && p.dtype != DataType::bf16 && !p.eight_bit())
    return std::string("dtype ") + to_string(p.dtype) + " has no forward kernel; f16, bf16, e4m3 or e5m2";
  for (const auto& [field, type] : {std::pair{"dtype_k", p.type_k()}, std::pair{"dtype_v", p.type_v()}})
    if (type != p.dtype && (!p.eight_bit() || (type != DataType::e4m3 && type != DataType::e5m2)))
      return std::string(field) + " " + to_string(type) + " does not go with dtype " + to_string(p.dtype) +
             ": only e4m3 and e5m2 mix";
  if (p.eight_bit() && p.dtype_o != DataType::f16 && p.dtype_o != DataType::bf16)
    return std::string("dtype_o ") + to_string(p.dtype_o) + " is no output of an 8-bit kernel; f16 or bf16";
  // What comes from memory transposed goes by whole rows.
  const bool half_rows = plan.tile_kv == 64 && !p.v_transposed && p.head_dim_v <= 64;
  if (p.eight_bit() && plan.tile_kv % 128 && !half_rows)
    return at("tile_kv", plan.tile_kv, "must be a multiple of 128 in 8 bit, as V^T lies in rows of 128 bytes; or 64, half a row, where the kernel transposes V and head_dim_v is at most 64");
  if (p.scale_rows && p.scale_rows != 16 && p.scale_rows != 32 && p.scale_rows != 64 && p.scale_rows != 128)
    return at("scale_rows", p.scale_rows, "must be 16, 32, 64 or 128");
  if (p.scale_rows > plan.tile_kv) return at("scale_rows", p.scale_rows, "must be at most tile_kv, " + std::to_string(plan.tile_kv));
  if (!p.eight_bit() && plan.two_level)
    return std::string("dtype ") + to_string(p.dtype) + " needs no two_level: its sums are fp32";
  for (const auto& [field, words] : {std::pair{"direct_of_16", plan.direct_of_16}, std::pair{"chord_of_16", plan.chord_of_16}}) {
    if (words && (!p.eight_bit() || plan.softmax != Softmax::guarded))
      return at(field, words, "is for 8-bit kernels with a guarded softmax: P in e4m3, each block's sum checked");
    if (words < 0 || words > 16 || words % 2)
      return at(field, words, "must be even and in [0, 16]: each of a thread's two rows has half of the words");
    if (words % 4 && plan.tile_kv % 128)
      return at(field, words, "must be a multiple of 4 with blocks of 64 keys: a thread's two rows have four words each");
    if (words && p.scale_rows && p.scale_rows < plan.tile_kv)
      return at(field, words, "wants scales by blocks of at least tile_kv keys: P itself takes finer ones");
  }
  if (plan.direct_of_16 && plan.chord_of_16 && plan.direct_of_16 + plan.chord_of_16 != 16)
    return at("chord_of_16", plan.chord_of_16, "beside direct words must be all the others, " + std::to_string(16 - plan.direct_of_16));
  if (plan.fold_blocks && (!p.eight_bit() || plan.two_level || plan.symmetric || !plan.o_own_buffer))
    return at("fold_blocks", plan.fold_blocks, "is for 8-bit kernels with one level, a producer and O's own buffer");
  if (plan.fold_blocks < 0 || plan.fold_blocks == 1 || plan.fold_blocks > 1024 || (plan.fold_blocks & (plan.fold_blocks - 1)))
    return at("fold_blocks", plan.fold_blocks, "must be 0 or a power of two in [2, 1024]");
  const int widest = std::max(p.head_dim, p.head_dim_v);
  if (plan.fold_blocks && p.scale_rows && (widest > 128 || p.scale_rows < 32))  // spills (ptxas 13.0: 28 to 80 bytes at 256, 12 to 32 at 16 rows)
    return at("fold_blocks", plan.fold_blocks, "with scales by blocks is for blocks of at least 32 rows and head_dim up to 128: use two levels");
  if (plan.fold_blocks && p.scale_rows && plan.direct_of_16 && widest > 112)  // spills 4 to 8 bytes
    return at("direct_of_16", plan.direct_of_16, "with fold_blocks and scales by blocks is for head_dim up to 112");
  if (!p.eight_bit() && (p.v_transposed || p.scale_rows))
    return std::string("dtype ") + to_string(p.dtype) + " takes neither a transposed V nor scales";
  if (p.eight_bit() && plan.softmax == Softmax::lazy && plan.lazy_threshold_log2 > 8)
    return at("lazy_threshold_log2", plan.lazy_threshold_log2, "must be in [0, 8] in 8 bit (P ends at 448)");
  if (p.head_dim < 16 || p.head_dim > 256 || p.head_dim % 16)
    return at("head_dim", p.head_dim, "must be a multiple of 16 in [16, 256]");
  if (p.head_dim_v < 16 || p.head_dim_v > 256 || p.head_dim_v % 16)
    return at("head_dim_v", p.head_dim_v, "must be a multiple of 16 in [16, 256]");
  if (plan.warpgroups < 1 || plan.warpgroups > 4)
    return at("warpgroups", plan.warpgroups, "must be in [1, 4]");
  if (plan.tile_kv < 16 || plan.tile_kv > 256 || plan.tile_kv % 16)
    return at("tile_kv", plan.tile_kv, "must be a multiple of 16 in [16, 256]");
  if (plan.kv_stages < 2 || plan.kv_stages > 8) return at("kv_stages", plan.kv_stages, "must be in [2, 8]");
  if (plan.v_ring() < 2 || plan.v_ring() > 8) return at("v_stages", plan.v_ring(), "must be in [2, 8]");
  if (plan.q_stages < 1 || plan.q_stages > 2) return at("q_stages", plan.q_stages, "must be 1 or 2");
  if (plan.softmax == Softmax::guarded && (plan.guard_blocks < 1 || plan.guard_blocks > 1000))
    return at("guard_blocks", plan.guard_blocks, "must be in [1, 1000]");
  if (plan.lazy_threshold_log2 < 0 || plan.lazy_threshold_log2 > 12)
    return at("lazy_threshold_log2", plan.lazy_threshold_log2, "must be in [0, 12] (f16 P ends at 2^16)");
  if (plan.symmetric && (plan.ping_pong || plan.dynamic_tiles || plan.o_own_buffer || plan.q_stages != 1 ||
                         plan.softmax == Softmax::guarded))
    return "a symmetric kernel has no ping_pong, dynamic_tiles, o_own_buffer, second Q buffer or guarded softmax";
  if (plan.symmetric && p.eight_bit()) return std::string("dtype ") + to_string(p.dtype) + " has no symmetric kernel: its scales come with the producer's tiles";
  if (plan.late_store && (p.eight_bit() || plan.softmax != Softmax::guarded || !plan.o_own_buffer || plan.symmetric))
    return "late_store is for 16-bit kernels with a producer, a guarded softmax and O's own buffer";
  if (plan.late_store && plan.split_tail && p.head_dim_v > 224)  // spills 4 bytes in blocks of 32 and 48 keys
    return at("head_dim_v", p.head_dim_v, "is too wide for late_store with split_tail: at most 224");
  if (plan.transposers != 3 && (plan.transposers != 7 || plan.warpgroups != 2 || !p.eight_bit() || p.v_transposed || plan.symmetric))
    return at("transposers", plan.transposers, "must be 3, or 7 for an 8-bit kernel with V by rows and two consumer warpgroups");
  if (plan.transposers != 3 && (plan.split_tail || plan.fold_blocks))  // spill, 8 to 52 bytes
    return at("transposers", plan.transposers, "goes with neither split_tail nor fold_blocks: no register is left for them");
  if (plan.p_sums && (!p.eight_bit() || plan.symmetric)) return "p_sums is for 8-bit kernels with a producer";
  if (plan.p_sums && p.head_dim_v > 128) return at("head_dim_v", p.head_dim_v, "is too wide for p_sums: at most 128");
  if (plan.p_sums && plan.two_level) return "p_sums is for one level: two_level must be off";
  if (plan.p_sums && p.scale_rows) return at("scale_rows", p.scale_rows, "does not go with p_sums, which is for scales by head");
  if (plan.p_sums && plan.pin_exp) return "pin_exp holds the exponentials by their sums: not with p_sums";
  if (plan.v_background && (!p.eight_bit() || !p.v_transposed || plan.symmetric || plan.cluster != 1))
    return "v_background is for 8-bit kernels that read V transposed, with a producer, outside of clusters";
  if (plan.v_background && plan.split_tail && widest > 128)  // spills 48 bytes, at 232 registers C7512
    return at("head_dim", widest, "is too wide for v_background with split_tail: the producer has no registers for parts");
  if (plan.cluster != 1 && plan.cluster != 2) return at("cluster", plan.cluster, "must be 1 or 2");
  if (plan.cluster > 1 && (plan.symmetric || p.scale_rows || (p.eight_bit() && !p.v_transposed)))
    return at("cluster", plan.cluster, "is for kernels with a producer; in 8 bit V is given transposed, scales by head");
  if (plan.split_tail && (p.mask != Mask::full || plan.cluster > 1 || plan.symmetric))
    return "split_tail is for full attention with a producer, outside of clusters";
  const Schedule* s = plan.table();
  if (!s) return "schedule \"" + plan.schedule + "\" is not built in; one of your own needs its table (--schedule FILE)";
  if (s->name != plan.schedule) return "schedule \"" + plan.schedule + "\" has the table of \"" + s->name + "\"";
  std::string bad = check(*s);
  if (!bad.empty()) return bad + "\n" + draw(*s, 3);
  if (plan.ping_pong && plan.warpgroups > 1 && !s->has(Do::token_wait))
    return "schedule \"" + s->name + "\" passes no token: ping_pong must be off";
  if (p.eight_bit() && (plan.softmax == Softmax::guarded || p.scale_rows) && s->step(Do::rescale_o) < s->step(Do::exp_sum))
    return "schedule \"" + s->name + "\" scales O in front of exp_sum, which in 8 bit may still move the reference";
  if (plan.ping_pong && plan.warpgroups > 1 && plan.kv_stages == 2 && s->step(Do::pv)->lag == 0 && s->step(Do::pv) < s->step(Do::token_pass))
    return "schedule \"" + s->name + "\" keeps its turn over P V: with two stages V waits for a stage of K that other warpgroups free in their turn";
  if ((plan.p_sums || plan.two_level) && !s->o_is_whole_when_scaled())
    return "schedule \"" + s->name + "\" scales O before it has waited for P V: " + (plan.p_sums ? "p_sums" : "two_level") + " takes the product out of its registers then, and must be off";
  if (plan.p_sums && plan.softmax == Softmax::guarded && !s->o_is_still())
    return "schedule \"" + s->name + "\" takes the maximum while P V is in flight: p_sums with guarded needs the sums by then";
  SharedLayout m(c);
  if (plan.fold_blocks && m.o_slabs != m.slabs_o)
    return at("fold_blocks", plan.fold_blocks, "needs a buffer for all of O; there is room for " + std::to_string(64 * m.o_slabs) + " columns");
  if (plan.late_store && !crosses_tiles(c, derive(*s)))
    return "schedule \"" + s->name + "\" has no P V in flight at a tile's end: late_store must be off";
  if (plan.late_store && m.o_slabs != m.slabs_o)
    return "late_store needs a buffer for all of O; there is room for " + std::to_string(64 * m.o_slabs) + " columns";
  if (!plan.o_own_buffer && m.slabs_o > m.slabs_qk)
    return at("head_dim_v", p.head_dim_v, "is wider than Q's slice: O needs its own buffer (o_own_buffer)");
  if (plan.teams != 1 && plan.teams != 2) return at("teams", plan.teams, "must be 1 or 2");
  if (plan.teams == 2 && (p.eight_bit() || plan.warpgroups != 2 || plan.cluster > 1 || plan.split_tail || plan.symmetric || plan.traced()))
    return at("teams", 2, "is for 16-bit kernels with two warpgroups a team and producers, without a cluster, cut tiles and marks");
  if (m.dynamic_bytes() > kMaxDynamicBytes)
    return at("shared memory", m.dynamic_bytes(), "bytes are more than the 232448 of a CTA");
  RegisterSplit split = register_split(c);
  int packed = p.eight_bit() ? plan.tile_kv / 8 : s->p_shares_s() ? 0 : plan.tile_kv / 4;
  int fresh = !plan.two_level ? 0 : s->p_shares_s() ? p.head_dim_v / (p.head_dim_v > 64 ? 4 : 2) : p.head_dim_v / 2;
  int live = plan.two_level && s->p_shares_s() ? std::max(plan.tile_kv / 2, fresh) : plan.tile_kv / 2 + fresh;
  live += p.head_dim_v / 2 + packed;
  if (live + (p.eight_bit() ? 14 : 24) > split.consumer)
    return at("accumulators need", live, "registers a thread (S, O, P) and 24 for the rest, more than the " +
                                             std::to_string(split.consumer) + " of a consumer");
  return "";
}

// Teams (Plan::teams). All warpgroups of a CTA that share tiles end them together, and 2,000 clocks of a tile's end stand against 1,437 of a trip (64 keys by four
// warpgroups, head_dim 64): hidden behind another team's trips, at most 15 % at 512 and 8 % at 1k. Two teams of 128 rows are what two CTAs a multiprocessor would be, which the
// register file does not take: nine warps of 112 registers each, five of them on one of its quarters, or 104 registers beside a producing warpgroup (C7512). K and V are
// read from L2 twice as often. Measured (tools/bench/results/candidates_h200.csv): causal, where tiles of 128 rows also fit the diagonal better, + 1.8 to 2.2 % from 1k to 4k,
// 0 at 512, - 1 to - 3 at 16k; full 0 to - 2 up to 2k: a tile's end is mostly issue slots, which the teams share.
EmittedKernel emit_attention_forward(const KernelConfig& config, std::string* line_table) {
  std::string bad = check_forward(config);
  if (!bad.empty()) throw Error(config.name() + ": " + bad);
  const Schedule& schedule = *config.plan.table();
  Derived trips = derive(schedule);
  RegisterSplit split = register_split(config);
  Kernel k(config.name());
  ForwardContext f(k, config);
  if (line_table) point_at_schedule(k, config);
  k.threads(config.plan.threads());
  k.min_ctas_per_sm(1);  // with .reqntid this fixes the entry register count, which setmaxnreg needs
  k.dynamic_shared("smem", 1024);
  k.cluster(config.plan.cluster);
  emit_params(k, config);
  emit_barrier_init(f);
  emit_problem_sizes(f);
  f.warpgroup = k.b32("warpgroup");
  Reg consumes = k.pred("is_consumer");
  k.mov_b32(f.warpgroup, special("tid.x"));
  k.shr_u32(f.warpgroup, f.warpgroup, 7);
  const int producers = config.plan.producer_warpgroups();
  if (producers == 1) k.setp("ne", "u32", consumes, f.warpgroup, 0);
  else k.setp("ge", "u32", consumes, f.warpgroup, producers);
  Budget budget;
  k.if_else(consumes, [&] {
    k.role("consumer", "one warpgroup owns 64 query rows", [&] {
      if (split.consumer < split.entry) k.setmaxnreg_dec(split.consumer);
      else k.setmaxnreg_inc(split.consumer);
      k.sub_u32(f.warpgroup, f.warpgroup, producers);
      f.seat = f.warpgroup;
      if (f.teams() > 1) {
        f.seat = k.b32("seat"), f.team = k.b32("team");
        k.mov_b32(f.seat, f.warpgroup);
        k.shr_u32(f.team, f.seat, 1).note("two warpgroups a team");
        k.and_b32(f.warpgroup, f.seat, 1);
        k.mad_lo_u32(f.base, f.team, f.smem.team_bytes, f.base);
      }
      budget = emit_consumer(f, trips);
    });
  }, [&] {
    ForwardContext p = f;
    k.role("producer", "one thread issues all loads", [&] {
      k.setmaxnreg_dec(split.producer);
      Reg thread = k.b32("producer_thread"), elected = k.pred("is_elected"), warp0 = k.pred("is_warp0");
      k.mov_b32(thread, special("tid.x"));
      k.setp("lt", "u32", warp0, thread, 32 * f.teams());
      k.if_(warp0, [&] {
        if (f.teams() > 1) {
          p.team = k.b32("team");
          k.shr_u32(p.team, thread, 5);
          k.mad_lo_u32(p.base, p.team, p.smem.team_bytes, p.base);
        }
        k.elect_sync(elected);
        k.if_(elected, [&] { emit_producer(p); });
      });
      if (p.transposes()) {
        Reg transposer = k.b32("transposer"), transposes = k.pred("transposes");
        k.shr_u32(transposer, thread, 5);
        k.sub_u32(transposer, transposer, 1);
        k.setp("lt", "u32", transposes, transposer, f.transposers()).note("all warps but the loading one");
        k.if_(transposes, [&] { emit_transposer(p); });
      }
      if (p.backgrounds()) {
        ForwardContext b = f;  // the producer's registers are its own
        Reg rest = k.pred("is_background");
        k.setp("ge", "u32", rest, thread, 32);
        k.if_(rest, [&] { emit_background(b); });
      }
    });
  });
  if (f.paired()) emit_cluster_end(f);
  EmittedKernel out;
  out.facts = launch_facts(config, k, f.smem);
  emit_header(k, config, out.facts, f.smem, drawn_schedule(config.plan), budget);
  out.text = k.text();
  if (line_table) *line_table = k.line_table();
  out.trip = budget.steps;
  return out;
}

}  // namespace flashptx::gen
