// V to V^T inside the kernel, for 8-bit inputs: wgmma takes 8-bit operands K-major only, so P V wants V^T rows of keys.
//
// Warps 1 to 3 of the producer's warpgroup do it (or, Plan::transposers, 1 to 7 of two), a block behind the loads and ahead of the consumers. One unit is
// 32 keys x 16 columns: ldmatrix.trans on pairs of columns gives a lane the pair (2g, 2g + 1) of keys 2t, 2t + 1 and
// four key groups; PRMT splits the pairs, which puts four keys of one column into a word, in the order of
// gen/tile/key_order.h; stmatrix writes the words as rows of V^T. Conflict free on both sides: the eight rows of
// ldmatrix are consecutive keys, and those of stmatrix are columns 0 2 4 6 9 11 13 15 (or 1 3 5 7 8 10 12 14),
// whose numbers mod 8 differ: the lanes with g >= 4 swap even and odd by their own PRMT selector.
// A warp takes every third group of 16 columns: its addresses are then one XOR for the loads and immediates else,
// because the latency of a single warp's instructions is what bounds this (a prototype: 12 % of the kernel's time).
// One unit in flight and few registers kept: the role has 24 to 40 of them.
// Predicted: 4 units x (1 ldmatrix + 4 PRMT + 1 stmatrix) and 10 integer instructions a group; at head_dim 128 three
// groups a warp and block, about 110 issue slots of the 1536 tensor clocks that 192 x 128 take.
// Seven warps, for head_dim 256: three need 2700 clocks for a block of 128 x 256 there, which tensor cores finish in 2048. 512 threads leave
// consumers 232 registers and 128 at entry, so that P V goes in halves (C7602) and the schedule is `rotated`. Predicted 2350 to 2450
// clocks a trip for 3230; measured 3060 (all marks, 3204 less their cost): the chain of one warpgroup binds, exponentials 1100 of it. 1k
// full + 3.5 %, causal + 2.6 %, or shared memory: Q K^T 768 clocks, P V 512, TMA 512 and the transposition 512 are 2304; chord words
// (half of the exponentials) are worth 0 to - 3 % (tile_ends_d256_h200.csv); against the pass in front at 2k full - 4.5 %, causal 0. The plain softmax adds 0.4 % at 1k full and 3 %
// causal, 6 and 4 % at 512 (tools/bench/results/seven_transposers_e4m3_h200.csv). At head_dim 64 and 128 two consumer
// warpgroups with seven transposing warps lose to three with three: 1 to 4 % on short causal rows, 10 to 20 % at 4k.
// Blocks of 64 keys, at head_dim up to 64: V^T fills half of each row of 128 bytes, so that four warpgroups of 112 registers fit (S 32, O 32, P 8), as in 16 bits.
// Expected: their causal diagonals waste half a block less and 256 rows divide what 192 do not, for twice the barriers a key. Measured: causal + 5 %
// at 512, 11 % at 1k, level at 2k beside 128 keys with as few checks; full level at 512 and, with as little error, 1 % behind at 1k, 5 % and more from 2k on: by these times a trip
// takes as long as in 16 bits. Three warpgroups lose 13 to 24 %; at head_dim 128 (192 rows) 64 keys were 8 to 16 % slower than 128, level at 512 causal
// (tools/bench/results/half_rows_e4m3_h200.csv, causal_one_check_e4m3_h200.csv).
// Next: gen/tile/tile_load.cpp (raw V arrives), gen/tile/tile_product.cpp (V^T is read).
#include <algorithm>
#include <string>

#include "gen/tile/forward_context.h"
#include "gen/tile/transpose_lanes.h"

namespace flashptx::gen {

TransposeLanes emit_transpose_lanes(ForwardContext& f, int raw) {
  Kernel& k = f.k;
  TransposeLanes t{k.b32("src_row"), k.b32("src_key"), k.b32("dst_row"), k.b32("pick_first")};
  k.scope([&] {
    Reg lane = k.b32("lane"), row = k.b32("row"), high = k.pred("is_high_row"), odd = k.b32("is_odd_matrix");
    Reg half = k.b32("half");
    k.mov_b32(lane, special("laneid"));
    k.shl_b32(t.src, lane, 7);
    k.add_u32(t.src, t.src, f.base);
    k.add_u32(t.src, t.src, raw);
    k.and_b32(t.key, lane, 7);
    k.shl_b32(t.key, t.key, 4);
    k.comment("data of lane 4g + t: columns 2g and 2g + 1; g < 4 sends the even one first, g >= 4 the odd one");
    k.setp("ge", "u32", high, lane, 16);
    k.selp_b32(t.select, hex(0x7531), hex(0x6420), high);
    k.comment("address of lane 8i + r: matrix i = {first, second} of keys 0-15, then of keys 16-31; row r of it");
    k.and_b32(row, lane, 7);
    k.setp("ge", "u32", high, row, 4);
    k.shr_u32(odd, lane, 3);
    k.and_b32(odd, odd, 1);
    k.xor_b32(odd, odd, 1).when(high);
    k.shl_b32(row, row, 1);
    k.add_u32(row, row, odd).note("column of V inside the group of 16");
    k.shr_u32(half, lane, 4).note("keys 0-15 or 16-31: a chunk of 16 bytes each");
    k.and_b32(odd, row, 7);
    k.xor_b32(half, half, odd);
    k.shl_b32(row, row, 7);
    k.shl_b32(half, half, 4);
    k.add_u32(t.dst, row, half);
  });
  return t;
}

void emit_transpose_group(ForwardContext& f, const TransposeLanes& t, const Reg& src, const Reg& dst, int keys) {
  Kernel& k = f.k;
  k.scope([&] {
    Vec raw = k.b32("v_pairs", 4), word = k.b32("v_words", 4);
    Reg at = k.b32("dst_at"), other = k.b32("pick_second");
    k.xor_b32(other, t.select, hex(0x1111)).note("0x6420 and 0x7531");
    for (int u = 0; u < keys / 32; ++u) {
      k.ldmatrix_trans(raw.all(), address(src, 4096 * u));
      for (int half = 0; half < 2; ++half) {
        k.prmt_b32(word[2 * half], raw[2 * half], raw[2 * half + 1], t.select);
        k.prmt_b32(word[2 * half + 1], raw[2 * half], raw[2 * half + 1], other);
      }
      k.xor_b32(at, dst, 32 * (u % 4)).note(u ? "" : "the row starts at a multiple of 128: chunk ^ 2u");
      k.stmatrix_x4(address(at, u / 4 * f.smem.slab_bytes_v), word.all());
    }
  });
}

namespace {

// Slab `slab` of a block: its 128 columns, every third group of 16 a warp. The warps change places from slab to slab, since
// 8 groups are not shared evenly.
void emit_slab(ForwardContext& f, const TransposeLanes& t, int slab, const Reg& raw_stage, const Reg& v_stage) {
  Kernel& k = f.k;
  int groups = std::min(8, f.dv() / 16 - 8 * slab);
  k.scope([&] {
    Reg from = k.b32("raw_tile"), to = k.b32("vt_tile"), src = k.b32("src"), group = k.b32("column_group");
    Reg more = k.pred("more_groups"), dst = k.b32("dst");
    k.mad_lo_u32(from, raw_stage, f.smem.raw_stage_bytes, t.src);
    k.mad_lo_u32(to, v_stage, f.smem.v_stage_bytes, f.base);
    k.add_u32(to, to, t.dst);
    k.add_u32(to, to, f.smem.v + slab * 128 * 128).note("rows of V^T: the slab's columns");
    k.mov_b32(group, special("tid.x"));
    k.shr_u32(group, group, 5);
    k.sub_u32(group, group, 1).note("the first warp loads; from tid.x each time, which costs no register");
    if (slab % f.transposers()) {
      k.add_u32(group, group, slab % f.transposers());
      k.setp("ge", "u32", more, group, f.transposers());
      k.sub_u32(group, group, f.transposers()).when(more);
    }
    k.setp("lt", "u32", more, group, groups);
    k.if_(more, [&] {
      k.loop("column group", [&] {
        k.shl_b32(src, group, 4);
        k.xor_b32(src, src, t.key);
        k.add_u32(src, src, from);
        k.mad_lo_u32(dst, group, 2048, to).note("16 rows of V^T");
        emit_transpose_group(f, t, src, dst, f.n());
        k.add_u32(group, group, f.transposers());
        k.setp("lt", "u32", more, group, groups);
        return more;
      });
    });
  });
}

// The marks in front of a slab's transposition, which starts now: what was waited for and since when.
void mark_slab(ForwardContext& f, const Reg& count, int slab, const Vec& clocks) {
  Kernel& k = f.k;
  k.scope([&] {
    Operand record = count;
    if (f.smem.raw_slabs > 1) {
      Reg at = k.b32("slab_number");
      k.mad_lo_u32(at, count, f.smem.raw_slabs, slab);
      record = at;
    }
    trace_clock(f, clocks[slab ? 1 : 2], TraceEvent::transpose);
    if (slab) trace_transposer(f, count, record, {clocks[0], clocks[1]}, {TraceEvent::raw_full_wait, TraceEvent::transpose});
    else trace_transposer(f, count, record, clocks.all(), {TraceEvent::raw_full_wait, TraceEvent::v_empty_wait, TraceEvent::transpose});
  });
}

}  // namespace

void emit_transposer(ForwardContext& f) {
  Kernel& k = f.k;
  const SharedLayout& m = f.smem;
  k.section(f.transposers() == 3 ? "V to V^T, a third of the columns a warp" : "V to V^T, every seventh group of 16 columns a warp");
  TransposeLanes lanes = emit_transpose_lanes(f, m.raw);
  Reg count = k.b32("blocks_done"), is_data = k.pred("is_block"), first = k.pred("is_first_lane");
  k.mov_b32(count, 0);
  k.scope([&] {
    Reg lane = k.b32("lane_id");
    k.mov_b32(lane, special("laneid"));
    k.setp("eq", "u32", first, lane, 0);
  });
  trace_transposer_start(f);
  const bool traced = trace_marks_transposer(f);
  Vec clocks;
  if (traced) clocks = k.b32("clocks", 3);
  auto raw_slot = [&](int slab, const char* name) {
    Operand position = count;
    if (m.raw_slabs > 1) {
      Reg at = k.b32(std::string(name) + "_position");
      k.mad_lo_u32(at, count, m.raw_slabs, slab);
      position = at;
    }
    return ring_slot(k, name, position, m.raw_stages);
  };
  auto slab_done = [&](int slab) {
    k.comment("addresses again: kept over the slab they would spill");
    RingSlot raw = raw_slot(slab, "raw_done");
    Reg raw_bar = ring_barrier(f, "raw_done_bar", raw.stage, 0);
    k.bar_warp_sync();
    k.mbarrier_arrive(address(raw_bar, m.raw_empty)).when(first);
  };
  k.loop("transpose", [&] {
    k.scope([&] {
      RingSlot raw = raw_slot(0, "raw");
      Reg raw_bar = ring_barrier(f, "raw_bar", raw.stage, 0), kind = k.b32("kind");
      if (traced) trace_clock(f, clocks[0], TraceEvent::raw_full_wait);
      k.wait("raw_full", address(raw_bar, m.raw_full), raw.phase);
      k.mov_b32(kind, 0);
      k.ld_shared_u32(kind, address(raw_bar, m.raw_kind)).when(first).note("by the lane that frees the stage");
      k.shfl_sync_idx_b32(kind, kind, 0);
      k.setp("eq", "u32", is_data, kind, 0);
    });
    k.if_(is_data, [&] {
      for (int slab = 0; slab < m.raw_slabs; ++slab)
        k.scope([&] {
          RingSlot raw = raw_slot(slab, "raw"), v = ring_slot(k, "v", count, f.config.plan.v_ring());
          if (slab) {
            Reg raw_bar = ring_barrier(f, "raw_bar", raw.stage, 0);
            if (traced) trace_clock(f, clocks[0], TraceEvent::raw_full_wait);
            k.wait("raw_full", address(raw_bar, m.raw_full), raw.phase);
          } else {
            Reg v_bar = ring_barrier(f, "v_bar", v.stage, 0), parity = k.b32("v_free");
            k.xor_b32(parity, v.phase, 1);
            if (traced) trace_clock(f, clocks[1], TraceEvent::v_empty_wait);
            k.wait("v_empty", address(v_bar, m.v_empty), parity);
          }
          if (traced) mark_slab(f, count, slab, clocks);
          emit_slab(f, lanes, slab, raw.stage, v.stage);
          if (slab == m.raw_slabs - 1)
            k.fence_proxy_async_shared().note("generic writes, then wgmma reads: in every writing thread");
          slab_done(slab);
        });
      k.scope([&] {
        RingSlot v = ring_slot(k, "v_done", count, f.config.plan.v_ring());
        Reg v_bar = ring_barrier(f, "v_done_bar", v.stage, 0);
        k.mbarrier_arrive(address(v_bar, m.v_full)).when(first);
      });
    }, "no more blocks");
    k.add_u32(count, count, 1);
    return is_data;
  });
  if (traced) {
    k.mad_lo_u32(count, count, m.raw_slabs, -m.raw_slabs).note("the last turn brought no block");
    trace_transposer_finish(f, count);
  }
}

}  // namespace flashptx::gen
