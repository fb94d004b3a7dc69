// V to V^T in the background (Plan::v_background): the idle warps of the producer's warpgroup write V^T to the caller's
// workspace, once for all tiles, while the products of other heads run.
//
// A unit is 128 keys x 128 columns of a head of V. The warps of every CTA draw units from one counter, heads in the order in
// which tiles are taken, until none is left: TMA load, the transposition of gen/tile/tile_transpose.cpp, TMA store, then
// one more on the head's flag. The producer's thread polls the flag once a tile, before its first V; K and Q go ahead. A CTA waits
// for units that are drawn by CTAs that run, never for a tile, so that nothing can hang; alone it does all itself.
//
// Memory order (PTX ISA 8, proxies): wait_group without .read makes the store's writes visible to the thread that waits; fence.proxy.async and
// red.release.gpu pass them on; ld.acquire.gpu and fence.proxy.async in front of the load on the other side.
// Two buffers of a unit: the next unit is drawn while this one is turned and loaded while this one leaves. One mbarrier
// orders both: its phase ends when the load has arrived and the store before it is over.
//
// Why. Three warps that turn each block again for every query tile bind at head_dim 256; a pass in front costs 18 us where V
// has 33 MB, bound by memory while attention is not. Predicted, a unit: load 0.6 us, turning 0.5, store and flag 0.5 beside the next
// load, so 1.3 to 2.5 us, 132 units at once: 33 MB in 20 to 40 us beside the products, the first wave's 4 MB (128 rows of 256 columns) in
// two rounds, 3 to 5 us, which is what a full kernel should lose. A causal one starts with the heaviest tile of every head of its group
// (32 MB of K and V): eight rounds until the last of them has its V^T. At head_dim 64 half of a unit is zero fill.
// Measured (H200, tools/bench/results/background_e4m3_h200.csv, to what was best before): head_dim 256 full, 512 - 6 %, 1k + 4.7 %, 2k + 1.7 %, 4k
// - 0.6 %, causal - 21, - 10, + 0.4, - 2 %; 128 full 1k - 7, 2k + 2.5, 4k + 0.5 %, causal - 6 to - 2 %; 64 full 2k + 3 % of a kernel without the token,
// nothing of one with it. The predicted 3 to 5 us were not
// checked by themselves. Causal heads in groups of one to four waves: at 256, 512 and 1k + 4 to 6 %,
// still behind V by rows; from 2k on some 10 % lost in the worst case (background_groups_e4m3_h200.csv). host/select.cpp takes it at 256 full from 1k to 2k.
// Next: gen/tile/tile_load.cpp (who waits), host/attention.cpp (flags and maps).
#include <algorithm>

#include "gen/tile/forward_context.h"
#include "gen/tile/transpose_lanes.h"

namespace flashptx::gen {
namespace {

constexpr int kWarps = 3;
constexpr int kUnitKeys = 128;
constexpr int kUnitBytes = kUnitKeys * 128;
constexpr int kFlagsHead = 8;  // bytes: units drawn, roles that left; then a flag a head

void emit_flags(ForwardContext& f, const Reg& at) {
  f.k.ld_param_u64(at, "v_flags");
  f.k.emit("cvta.to.global.u64", {at, at}, Location::current());
}

void emit_units_of_head(ForwardContext& f, const Reg& out) {
  Kernel& k = f.k;
  k.add_u32(out, f.seqlen_k, kUnitKeys - 1);
  k.shr_u32(out, out, 7);
  if (f.v_slabs() > 1) k.mul_lo_u32(out, out, f.v_slabs());
}

void emit_heads(ForwardContext& f, const Reg& out) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg heads = k.b32("heads_of_v");
    k.ld_param_u32(out, "batch");
    k.ld_param_u32(heads, "heads_kv");
    k.mul_lo_u32(out, out, heads);
  });
}

struct Background {
  ForwardContext& f;
  Kernel& k;
  TransposeLanes lanes;
  Reg count;   // units done
  Reg next;    // leader: the unit drawn last
  Reg leads;   // one thread draws, loads, stores
  Reg is_unit;

  void slot_at(const Reg& at, const Reg& position) {
    k.and_b32(at, position, 1);
    k.mad_lo_u32(at, at, 16, f.base);
  }

  Instr& draw(const Reg& flags) { return k.atom_global_add_u32(next, address(flags), 1); }

  // `next` into the slot of `position`: where it lies, or that there is none.
  void place_next(const Reg& position) {
    k.scope([&] {
      Reg each = k.b32("units_of_head"), all = k.b32("units"), at = k.b32("next_slot"), exists = k.pred("next_exists");
      slot_at(at, position);
      emit_units_of_head(f, each);
      emit_heads(f, all);
      k.mul_lo_u32(all, all, each);
      k.setp("lt", "u32", exists, next, all);
      k.if_else(exists, [&] { k.scope([&] { place_unit(each, at); }); }, [&] {
        k.st_shared_u32(address(at, f.smem.unit_slot), hex(kNoUnit));
      });
    });
  }

  void place_unit(const Reg& each, const Reg& slot) {
    Reg head = k.b32("next_head"), batch = k.b32("next_batch"), heads = k.b32("heads_of_v"), key = k.b32("next_key");
    Reg column = k.b32("next_column");
    k.div_u32(head, next, each);
    k.mul_lo_u32(key, head, each);
    k.sub_u32(key, next, key).note("unit of the head: slabs run fastest");
    if (f.v_slabs() > 1) {
      k.and_b32(column, key, 1);
      k.shl_b32(column, column, 7);
      k.shr_u32(key, key, 1);
    } else {
      k.mov_b32(column, 0);
    }
    k.shl_b32(key, key, 7);
    k.ld_param_u32(heads, "heads_kv");
    k.div_u32(batch, head, heads);
    k.mul_lo_u32(heads, batch, heads);
    k.sub_u32(head, head, heads);
    k.emit("st.shared::cta.v4.u32", {address(slot, f.smem.unit_slot), std::vector<Reg>{key, column, head, batch}},
           Location::current());
  }

  // What the slot of `position` says is loaded, or the phase ends without.
  void load_next(const Reg& position) {
    k.scope([&] {
      Reg at = k.b32("next_slot"), key = k.b32("next_key"), column = k.b32("next_column"), head = k.b32("next_head");
      Reg batch = k.b32("next_batch"), exists = k.pred("next_exists"), to = k.b32("next_to"), map = k.b64("v_rows_map_at");
      slot_at(at, position);
      k.emit("ld.shared::cta.v4.u32", {std::vector<Reg>{key, column, head, batch}, address(at, f.smem.unit_slot)}, Location::current());
      k.setp("ne", "u32", exists, key, hex(kNoUnit));
      k.if_else(exists, [&] {
        k.mov_b64(map, symbol("v_rows_map"));
        k.cvta_param_u64(map, map);
        k.add_u32(to, f.base, f.smem.unit_raw);
        k.mbarrier_arrive_expect_tx(address(f.base, f.smem.unit_full), kUnitBytes).note("the whole box, zero fill included");
        k.cp_async_bulk_tensor_load(to, map, {column, key, head, batch}, address(f.base, f.smem.unit_full));
      }, [&] { k.mbarrier_arrive(address(f.base, f.smem.unit_full)); });
    });
  }

  void next_position(const Reg& position) { k.add_u32(position, count, 1); }

  // The unit leaves, the next one is loaded meanwhile and may be turned as soon as this one's buffer is read; then the head's flag.
  void store_unit() {
    Reg key = k.b32("unit_key"), column = k.b32("unit_column"), head = k.b32("unit_head"), batch = k.b32("unit_batch");
    k.scope([&] {
      Reg at = k.b32("unit_slot"), from = k.b32("unit_vt"), map = k.b64("vt_store_map_at");
      slot_at(at, count);
      k.emit("ld.shared::cta.v4.u32", {std::vector<Reg>{key, column, head, batch}, address(at, f.smem.unit_slot)},
             Location::current());
      k.mov_b64(map, symbol("vt_store_map"));
      k.cvta_param_u64(map, map);
      k.add_u32(from, f.base, f.smem.unit_vt);
      k.cp_async_bulk_tensor_store(map, {key, column, head, batch}, from);
      k.cp_async_bulk_commit_group();
    });
    k.scope([&] {
      Reg position = k.b32("next_position");
      next_position(position);
      load_next(position);
    });
    k.cp_async_bulk_wait_group_read(0);
    k.mbarrier_arrive(address(f.base, f.smem.unit_full)).note("the V^T buffer is free");
    k.scope([&] {
      Reg heads = k.b32("heads_of_v"), flag = k.b64("flag"), wide = k.b64("flag_offset");
      k.ld_param_u32(heads, "heads_kv");
      k.mad_lo_u32(head, batch, heads, head);
      emit_flags(f, flag);
      k.mul_wide_u32(wide, head, 4);
      k.add_s64(flag, flag, wide);
      k.cp_async_bulk_wait_group(0).note("written, not only read");
      k.fence_proxy_async_global().note("by the async proxy; other CTAs will read it through theirs");
      k.red_global("release", "gpu", "add.u32", address(flag, kFlagsHead), 1);
    });
  }

  // This warp's groups of 16 columns, every third.
  void turn() {
    k.scope([&] {
      Reg from = k.b32("src"), to = k.b32("dst"), group = k.b32("column_group"), more = k.pred("more_groups");
      k.mov_b32(group, special("tid.x"));
      k.shr_u32(group, group, 5);
      k.sub_u32(group, group, 1);
      k.rolled_loop("unit group", [&] {
        k.shl_b32(from, group, 4);
        k.xor_b32(from, from, lanes.key);
        k.add_u32(from, from, lanes.src);
        k.mad_lo_u32(to, group, 2048, lanes.dst).note("16 rows of V^T");
        emit_transpose_group(f, lanes, from, to, kUnitKeys);
        k.add_u32(group, group, kWarps);
        k.setp("lt", "u32", more, group, groups());
        return more;
      });
    });
  }
  int groups() const { return std::max(kWarps, std::min(8, f.dv() / 16)); }
};

}  // namespace

void emit_background(ForwardContext& f) {
  Kernel& k = f.k;
  const SharedLayout& m = f.smem;
  k.section("V to V^T in the background, units of all heads");
  Background b{f, k, emit_transpose_lanes(f, m.unit_raw), k.b32("units_done"), k.b32("next_unit"), k.pred("leads"), k.pred("is_unit")};
  k.add_u32(b.lanes.dst, b.lanes.dst, f.base);
  k.add_u32(b.lanes.dst, b.lanes.dst, m.unit_vt);
  k.mov_b32(b.count, 0);
  k.scope([&] {
    Reg thread = k.b32("thread_of_role");
    k.mov_b32(thread, special("tid.x"));
    k.setp("eq", "u32", b.leads, thread, 32 * kWarps).note("of the warp with two groups of eight");
  });
  k.griddepcontrol_wait().note("V may come from the kernel before, which may also still use the workspace");
  k.if_(b.leads, [&] {
    k.scope([&] {
      Reg flags = k.b64("flags");
      emit_flags(f, flags);
      b.draw(flags);
    });
    b.place_next(b.count);
    b.load_next(b.count);
    k.mbarrier_arrive(address(f.base, m.unit_full)).note("no store before it");
  });
  k.loop("unit", [&] {
    k.scope([&] {
      Reg parity = k.b32("unit_parity"), at = k.b32("unit_slot"), key = k.b32("unit_key");
      k.and_b32(parity, b.count, 1);
      k.wait("unit_full", address(f.base, m.unit_full), parity);
      b.slot_at(at, b.count);
      k.ld_shared_u32(key, address(at, m.unit_slot));
      k.setp("ne", "u32", b.is_unit, key, hex(kNoUnit));
    });
    k.bar_warp_sync();
    k.if_(b.is_unit, [&] {
      k.scope([&] {
        Reg flags = k.b64("flags");
        emit_flags(f, flags);
        b.draw(flags).when(b.leads).note("ahead: its latency is hidden");
      });
      b.turn();
      k.if_(b.leads, [&] {
        k.scope([&] {
          Reg position = k.b32("next_position");
          b.next_position(position);
          b.place_next(position);
        });
      });
      k.fence_proxy_async_shared().note("generic writes, then TMA reads: in every writing thread");
      k.bar_sync(kUnitBarrier, 32 * kWarps).note("the unit is read, and all of it turned");
      k.if_(b.leads, [&] { k.scope([&] { b.store_unit(); }); });
    }, "no unit is left");
    k.add_u32(b.count, b.count, 1);
    return b.is_unit;
  });
  k.if_(b.leads, [&] { emit_leave_background(f); });
}

void emit_wait_vt(ForwardContext& f) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg head = k.b32("v_head"), complete = k.b32("complete_head"), other = k.pred("is_other_head");
    k.ld_shared_u32(complete, address(f.base, f.smem.complete_head));
    k.mad_lo_u32(head, f.batch_index, f.heads_kv, f.kv_head);
    k.setp("ne", "u32", other, head, complete);
    k.if_(other, [&] {
      Reg flag = k.b64("flag"), wide = k.b64("flag_offset"), done = k.b32("units_done"), wanted = k.b32("units_wanted");
      Reg waits = k.pred("waits_for_vt");
      emit_flags(f, flag);
      k.mul_wide_u32(wide, head, 4);
      k.add_s64(flag, flag, wide);
      emit_units_of_head(f, wanted);
      k.rolled_loop("head in background", [&] {
        k.ld_acquire_global("gpu", "u32", done, address(flag, kFlagsHead));
        k.setp("ne", "u32", waits, done, wanted);
        return waits;
      });
      k.fence_proxy_async_global().note("what this thread knows to be written, its loads through TMA see too");
      k.st_shared_u32(address(f.base, f.smem.complete_head), head);
    }, "seen complete before");
  });
}

void emit_leave_background(ForwardContext& f) {
  Kernel& k = f.k;
  k.comment("the last role to leave clears flags and counters for the next launch: no one draws, stores or polls any more");
  k.scope([&] {
    Reg at = k.b64("flags"), left = k.b32("left"), roles = k.b32("roles_in_grid"), last = k.pred("is_last");
    emit_flags(f, at);
    k.fence_acq_rel_gpu();
    k.atom_global_add_u32(left, address(at, 4), 1);
    k.mov_b32(roles, special("nctaid.x"));
    k.shl_b32(roles, roles, 1).note("a producer and a leader of transposing warps in each CTA");
    k.sub_u32(roles, roles, 1);
    k.setp("eq", "u32", last, left, roles);
    k.if_(last, [&] {
      Reg words = k.b32("words"), more = k.pred("more_words");
      k.fence_acq_rel_gpu();
      if (f.config.plan.dynamic_tiles) {
        Reg counter = k.b64("counter_at");
        k.ld_param_u64(counter, "tile_counter");
        k.emit("cvta.to.global.u64", {counter, counter}, Location::current());
        k.st_global_u32(address(counter), 0);
      }
      emit_heads(f, words);
      k.add_u32(words, words, kFlagsHead / 4);
      k.rolled_loop("clear", [&] {
        k.st_global_u32(address(at), 0);
        k.add_s64(at, at, 4);
        k.sub_u32(words, words, 1);
        k.setp("ne", "u32", more, words, 0);
        return more;
      });
    });
  });
}

}  // namespace flashptx::gen
