// V to V^T inside the kernel, for 8-bit inputs: wgmma takes 8-bit operands K-major only, so P V wants V^T rows of keys.
//
// Warps 1 to 3 of the producer's warpgroup do it, a block behind the loads and ahead of the consumers. One unit is
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
// Next: gen/tile/tile_load.cpp (raw V arrives), gen/tile/tile_product.cpp (V^T is read).
#include "gen/tile/forward_context.h"

namespace flashptx::gen {
namespace {

struct TransposeLanes {
  Reg src;     // 128 * lane: this lane's key row of a unit
  Reg key;     // 16 * (lane % 8): the swizzle of that row
  Reg dst;     // this lane's row of stmatrix and its chunk, for the first 32 keys: the others are this ^ 32 u
  Reg select;  // PRMT selector of what goes into matrix 0; matrix 1 takes the other one of the pair
};

TransposeLanes emit_lanes(ForwardContext& f) {
  Kernel& k = f.k;
  TransposeLanes t{k.b32("src_row"), k.b32("src_key"), k.b32("dst_row"), k.b32("pick_first")};
  k.scope([&] {
    Reg lane = k.b32("lane"), row = k.b32("row"), high = k.pred("is_high_row"), odd = k.b32("is_odd_matrix");
    Reg half = k.b32("half");
    k.mov_b32(lane, special("laneid"));
    k.shl_b32(t.src, lane, 7);
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

// One group of 16 columns, 128 keys: `src` and `dst` are the addresses of its first byte in both tiles.
void emit_group(ForwardContext& f, const TransposeLanes& t, const Reg& src, const Reg& dst) {
  Kernel& k = f.k;
  k.scope([&] {
    Vec raw = k.b32("v_pairs", 4), word = k.b32("v_words", 4);
    Reg at = k.b32("dst_at"), other = k.b32("pick_second");
    k.xor_b32(other, t.select, hex(0x1111)).note("0x6420 and 0x7531");
    for (int u = 0; u < f.n() / 32; ++u) {
      k.ldmatrix_trans(raw.all(), address(src, 4096 * u));
      for (int half = 0; half < 2; ++half) {
        k.prmt_b32(word[2 * half], raw[2 * half], raw[2 * half + 1], t.select);
        k.prmt_b32(word[2 * half + 1], raw[2 * half], raw[2 * half + 1], other);
      }
      k.xor_b32(at, t.dst, 32 * (u % 4));
      k.add_u32(at, at, dst);
      k.stmatrix_x4(address(at, u / 4 * f.smem.slab_bytes_v), word.all());
    }
  });
}

void emit_block(ForwardContext& f, const TransposeLanes& t, const Reg& index, const Reg& raw_stage, const Reg& v_stage) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg from = k.b32("raw_tile"), to = k.b32("vt_tile"), src = k.b32("src"), group = k.b32("column_group");
    Reg more = k.pred("more_groups"), dst = k.b32("dst"), swizzled = k.b32("swizzled");
    k.mad_lo_u32(from, raw_stage, f.smem.raw_stage_bytes, f.base);
    k.add_u32(from, from, f.smem.raw);
    k.add_u32(from, from, t.src);
    k.mad_lo_u32(to, v_stage, f.smem.v_stage_bytes, f.base);
    k.add_u32(to, to, f.smem.v);
    k.mov_b32(group, index);
    k.setp("lt", "u32", more, group, f.dv() / 16);
    k.if_(more, [&] {
      k.loop("column group", [&] {
        k.shl_b32(swizzled, group, 4);
        if (f.dv() > 128) k.and_b32(swizzled, swizzled, 127);
        k.xor_b32(swizzled, swizzled, t.key);
        k.add_u32(src, from, swizzled);
        if (f.dv() > 128) {
          k.shr_u32(swizzled, group, 3).note("the next 128 columns of V lie one slab further on");
          k.mad_lo_u32(src, swizzled, f.n() * 128, src);
        }
        k.mad_lo_u32(dst, group, 2048, to).note("16 rows of V^T");
        emit_group(f, t, src, dst);
        k.add_u32(group, group, kTransposers);
        k.setp("lt", "u32", more, group, f.dv() / 16);
        return more;
      });
    });
  });
}

}  // namespace

void emit_transposer(ForwardContext& f, const Reg& index) {
  Kernel& k = f.k;
  k.section("V to V^T, a third of the columns a warp");
  TransposeLanes lanes = emit_lanes(f);
  Reg count = k.b32("blocks_done"), is_data = k.pred("is_block"), first = k.pred("is_first_lane");
  k.mov_b32(count, 0);
  k.scope([&] {
    Reg lane = k.b32("lane_id");
    k.mov_b32(lane, special("laneid"));
    k.setp("eq", "u32", first, lane, 0);
  });
  k.loop("transpose", [&] {
    k.scope([&] {
      RingSlot raw = ring_slot(k, "raw", count, f.smem.raw_stages);
      Reg raw_bar = ring_barrier(f, "raw_bar", raw.stage, 0), kind = k.b32("kind");
      k.wait("raw_full", address(raw_bar, f.smem.raw_full), raw.phase);
      k.ld_shared_u32(kind, address(raw_bar, f.smem.raw_kind));
      k.setp("eq", "u32", is_data, kind, 0);
      k.if_(is_data, [&] {
        RingSlot v = ring_slot(k, "v", count, f.config.plan.v_ring());
        Reg v_bar = ring_barrier(f, "v_bar", v.stage, 0), parity = k.b32("v_free");
        k.xor_b32(parity, v.phase, 1);
        k.wait("v_empty", address(v_bar, f.smem.v_empty), parity);
        emit_block(f, lanes, index, raw.stage, v.stage);
        k.fence_proxy_async_shared().note("generic writes, then wgmma reads: in every writing thread");
        k.bar_warp_sync();
        k.comment("addresses again: kept over the block they would spill");
        raw = ring_slot(k, "raw_done", count, f.smem.raw_stages);
        raw_bar = ring_barrier(f, "raw_done_bar", raw.stage, 0);
        v = ring_slot(k, "v_done", count, f.config.plan.v_ring());
        v_bar = ring_barrier(f, "v_done_bar", v.stage, 0);
        k.mbarrier_arrive(address(v_bar, f.smem.v_full)).when(first);
        k.mbarrier_arrive(address(raw_bar, f.smem.raw_empty)).when(first);
      }, "no more blocks");
    });
    k.add_u32(count, count, 1);
    return is_data;
  });
}

}  // namespace flashptx::gen
