// The producer: one elected thread that draws tiles and issues every TMA load.
//
// Order inside a tile: K of the last block, the warpgroups' Q slices, then K(j-1) and V(j) downwards: V runs one
// block behind K, as the consumers' Q K^T runs one ahead of P V. A stage is refilled when all consumer warps
// have arrived on its `empty` barrier; the first turn falls through because a fresh barrier has completed
// phase "-1" (parity 1).
#include "gen/tile/forward_context.h"

namespace flashptx::gen {
namespace {

// Where registers are few: the blocks left follow from the row, the tiles from the slots.
bool counts_little(const ForwardContext& f) {
  return f.paired() || ((f.transposers() > 3 || f.backgrounds()) && !f.splits() && !f.config.plan.traced());
}

// V's count and row follow from K's.
bool follows_k(const ForwardContext& f) { return f.paired() || f.backgrounds(); }

struct Producer {
  ForwardContext& f;
  Kernel& k;
  Reg q_map, k_map, v_map;
  Reg k_count, v_count, q_count;
  Reg slot_count;    // tile slots published
  Reg k_row, v_row;  // first key row of the next K and V block
  Reg left, some, more;

  void map(const Reg& out, const std::string& name) {
    k.mov_b64(out, symbol(name));
    k.cvta_param_u64(out, out).note("TMA takes a generic address");
    k.prefetch_tensormap(out);
  }

  // One block of K or V into the next stage of its ring.
  void load_block(const std::string& ring, const Reg& count, const Reg& map, const Reg& row, int tiles,
                  int slabs, int stage_bytes, int full, int empty) {
    bool is_k = ring == "k";
    trace_position(f, count);
    k.scope([&] {
      RingSlot slot = ring_slot(k, ring, count, is_k ? f.config.plan.kv_stages : f.config.plan.v_ring());
      Reg bar = ring_barrier(f, ring + "_bar", slot.stage, full);
      Reg parity = k.b32(ring + "_free"), dst = k.b32(ring + "_dst"), column = k.b32(ring + "_column");
      Reg zero;
      if (!is_k && f.eight_bit() && !f.paired()) {
        zero = k.b32("row0");
        k.mov_b32(zero, 0);
      }
      k.xor_b32(parity, slot.phase, 1);
      trace_mark(f, is_k ? TraceEvent::k_empty_wait : TraceEvent::v_empty_wait);
      k.wait(ring + "_empty", address(bar, empty - full), parity);
      trace_mark(f, is_k ? TraceEvent::k_load : TraceEvent::v_load);
      if (is_k && f.scales_blocks()) emit_write_block_scales(f, slot.stage, k_row);
      k.mbarrier_arrive_expect_tx(address(bar), is_k || !f.sums_p() ? stage_bytes : slabs * f.dv() * 128).note("the whole box, zero fill included");
      k.mul_lo_u32(dst, slot.stage, stage_bytes);
      k.add_u32(dst, dst, f.base);
      k.add_u32(dst, dst, tiles);
      bool transposed = !is_k && f.eight_bit();
      Reg box_row = row;  // rows of V^T are its head dimension
      if (transposed) box_row = zero;
      if (f.paired()) {
        const int half = (transposed ? f.dv() : f.n()) / f.cluster();
        const Reg rank = f.rank;
        box_row = k.b32(ring + "_half");
        k.mad_lo_u32(dst, rank, 128 * half, dst).note("this CTA's half of the rows, to both");
        if (transposed) k.mul_lo_u32(box_row, rank, half);
        else k.mad_lo_u32(box_row, rank, half, row);
      }
      for (int s = 0; s < slabs; ++s) {
        if (transposed) k.add_u32(column, row, 128 * s);
        else k.mov_b32(column, f.smem.slab_columns * s);
        if (s) k.add_u32(dst, dst, is_k ? f.smem.slab_bytes_kv : f.smem.slab_bytes_v);
        const std::vector<Operand> at = {column, box_row, f.kv_head, f.batch_index};
        if (f.paired()) k.cp_async_bulk_tensor_load_multicast(dst, map, at, address(bar), 3);
        else k.cp_async_bulk_tensor_load(dst, map, at, address(bar));
      }
    });
    if (follows_k(f) && !is_k) return;  // K's count and row go on for both
    k.add_u32(count, count, 1);
    k.sub_u32(row, row, f.n()).note("blocks run from the last to the first");
  }
  void load_k() {
    k.comment("K block");
    load_block("k", k_count, k_map, k_row, f.smem.k, f.smem.slabs_qk, f.smem.k_stage_bytes,
               f.smem.k_full, f.smem.k_empty);
  }
  // V as it lies in memory, for the transposing warps: before the K of the same block, whose count and row it shares.
  // A stage is a slab of 128 columns, so that at head_dim 256 too one is loaded while the other is transposed.
  void load_raw_v() {
    k.comment("V block, to be transposed");
    const SharedLayout& m = f.smem;
    for (int s = 0; s < m.raw_slabs; ++s) {
      trace_position(f, k_count);
      k.scope([&] {
        RingSlot slot = ring_slot(k, "raw", raw_position(s), m.raw_stages);
        Reg bar = ring_barrier(f, "raw_bar", slot.stage, 0);
        Reg parity = k.b32("raw_free"), dst = k.b32("raw_dst"), column = k.b32("raw_column");
        k.xor_b32(parity, slot.phase, 1);
        trace_mark(f, TraceEvent::v_empty_wait);
        k.wait("raw_empty", address(bar, m.raw_empty), parity);
        trace_mark(f, TraceEvent::v_load);
        k.st_shared_u32(address(bar, m.raw_kind), 0).note("a block");
        k.mbarrier_arrive_expect_tx(address(bar, m.raw_full), m.raw_stage_bytes);
        k.mul_lo_u32(dst, slot.stage, m.raw_stage_bytes);
        k.add_u32(dst, dst, f.base);
        k.add_u32(dst, dst, m.raw);
        k.mov_b32(column, 128 * s);
        k.cp_async_bulk_tensor_load(dst, v_map, {column, k_row, f.kv_head, f.batch_index}, address(bar, m.raw_full));
      });
    }
  }
  // Slab s of the block at k_count; a register of the innermost scope.
  Operand raw_position(int s) {
    if (f.smem.raw_slabs == 1) return k_count;
    Reg position = k.b32("raw_position");
    k.mad_lo_u32(position, k_count, f.smem.raw_slabs, s);
    return position;
  }
  void end_raw_v() {
    k.comment("no more V: the transposing warps end");
    k.scope([&] {
      const SharedLayout& m = f.smem;
      RingSlot slot = ring_slot(k, "raw", raw_position(0), m.raw_stages);
      Reg bar = ring_barrier(f, "raw_bar", slot.stage, 0), parity = k.b32("raw_free");
      k.xor_b32(parity, slot.phase, 1);
      k.wait("raw_empty", address(bar, m.raw_empty), parity);
      k.st_shared_u32(address(bar, m.raw_kind), 1);
      k.mbarrier_arrive(address(bar, m.raw_full));
    });
  }
  // `behind`: K blocks loaded since this block's.
  void load_v(int behind) {
    k.comment("V block");
    if (f.backgrounds()) emit_wait_vt(f);
    auto load = [&](const Reg& count, const Reg& row) {
      load_block("v", count, v_map, row, f.smem.v, f.eight_bit() ? f.smem.slabs_v : f.smem.slabs_o, f.smem.v_stage_bytes,
                 f.smem.v_full, f.smem.v_empty);
    };
    if (!follows_k(f)) {
      load(v_count, v_row);
      return;
    }
    k.scope([&] {  // the producer has no registers for a count and a row of V's own
      Reg count = k.b32("v_count"), row = k.b32("v_row");
      k.sub_u32(count, k_count, behind + 1);
      k.add_u32(row, k_row, (behind + 1) * f.n());
      load(count, row);
    });
  }

  // `slots`: published so far that were not tiles.
  void load_q(int slots) {
    k.comment("Q: one slice and one barrier a warpgroup, so that each starts as soon as its rows are there");
    trace_position(f, q_count.valid() ? q_count : slot_count);
    const bool one_mark = trace_counts_anew(f);  // in front, where the registers of the loads are not in use yet
    if (one_mark) trace_mark(f, TraceEvent::q_load);
    k.scope([&] {
      int wgs = f.warpgroups();
      Reg position = q_count;
      if (!q_count.valid()) {
        position = k.b32("q_count");
        k.sub_u32(position, slot_count, slots + 1);
      }
      RingSlot slot = ring_slot(k, "q", position, f.config.plan.q_stages);
      Reg bar = k.b32("q_bar"), parity = k.b32("q_free"), dst = k.b32("q_dst"), column = k.b32("q_column");
      Reg row = k.b32("q_row");
      k.xor_b32(parity, slot.phase, 1);
      k.mad_lo_u32(bar, slot.stage, 8 * wgs, f.base);
      k.mad_lo_u32(dst, slot.stage, wgs * f.smem.q_slice_bytes, f.base);
      if (f.smem.q) k.add_u32(dst, dst, f.smem.q);
      k.mov_b32(row, f.q_row0);
      for (int w = 0; w < wgs; ++w) {
        trace_mark(f, TraceEvent::q_empty_wait);
        k.wait("q_empty", address(bar, f.smem.q_empty + 8 * w), parity);
        if (!one_mark) trace_mark(f, TraceEvent::q_load);
        k.mbarrier_arrive_expect_tx(address(bar, f.smem.q_full + 8 * w), f.smem.q_slice_bytes);
        for (int s = 0; s < f.smem.slabs_qk; ++s) {
          k.mov_b32(column, f.smem.slab_columns * s);
          if (w || s) k.add_u32(dst, dst, f.smem.slab_bytes_q);
          k.cp_async_bulk_tensor_load(dst, q_map, {column, row, f.head, f.batch_index},
                                      address(bar, f.smem.q_full + 8 * w));
        }
        if (w + 1 < wgs) k.add_u32(row, row, 64);
      }
    });
    if (q_count.valid()) k.add_u32(q_count, q_count, 1);
  }

  // Everything that one tile needs, in the order in which the consumers want it.
  void load_tile(int slots) {
    k.sub_u32(left, f.blocks, 1);
    if (f.splits()) {
      k.add_u32(k_row, left, f.first_block);
      k.mul_lo_u32(k_row, k_row, f.n());
    } else {
      k.mul_lo_u32(k_row, left, f.n());
    }
    if (!f.transposes() && v_row.valid()) k.mov_b32(v_row, k_row);
    k.setp("ne", "u32", some, f.blocks, 0);
    // V goes first where it is transposed: behind K it would wait for the release of K's stage.
    bool raw = f.transposes();
    k.if_(some, [&] {
      if (raw) load_raw_v();
      load_k();
    }, "no key is visible to any row of the tile");
    load_q(slots);
    auto blocks_left = [&] {
      if (counts_little(f)) k.setp("ge", "s32", more, k_row, 0);
      else k.setp("ne", "u32", more, left, 0);
    };
    k.if_(some, [&] {
      blocks_left();
      k.if_(more, [&] {
        k.loop("producer block", [&] {
          if (raw) load_raw_v();
          load_k();
          if (!raw) load_v(1);
          if (!counts_little(f)) k.sub_u32(left, left, 1);
          blocks_left();
          return more;
        });
      });
      if (!raw) load_v(0);
    });
  }

  // The peer's tile was read from its list: this CTA's of the same pair, of which the consumers derive the same blocks.
  void emit_own_row_of_pair(const Reg& of_peer) {
    k.scope([&] {
      Reg row = k.b32("own_row");
      k.mad_lo_u32(row, f.rank, f.config.cluster_rows(), f.q_row0);
      k.sub_u32(f.q_row0, row, f.config.tile_q()).when(of_peer);
    });
  }

  // guarded: once all tiles are done, those that failed are published again, as lazy.
  void redo_failed() {
    emit_publish_tile(f, slot_count, kSync);
    k.scope([&] {
      Reg position = k.b32("sync_position"), parity = k.b32("sync_parity"), mask = k.b32("redo");
      Reg bit = k.b32("redo_bit"), at = k.b32("redo_at"), failed = k.pred("failed_here"), any = k.pred("any_redo");
      k.sub_u32(position, slot_count, 1);
      RingSlot slot = ring_slot(k, "sync", position, 2);
      Reg bar = ring_barrier(f, "sync_bar", slot.stage, f.smem.tile_empty);
      k.mov_b32(parity, slot.phase);
      k.wait("all done", address(bar), parity);
      // In a cluster: the tiles that failed in CTA 0, then those of CTA 1. Both load them, the other one without rows.
      Reg owner, list = f.base, more_lists;
      const std::string space = f.paired() ? "ld.shared::cluster" : "ld.shared::cta";
      if (f.paired()) {
        owner = k.b32("redo_owner"), list = k.b32("redo_list"), more_lists = k.pred("more_lists");
        emit_meet_peer(f);
        k.mov_b32(owner, 0);
      }
      auto redo_list = [&] {
        if (f.paired()) {
          k.mapa_shared_cluster_u32(list, f.base, owner);
          k.add_u32(at, list, f.smem.redo_mask);
          k.emit("atom.shared::cluster.or.b32", {mask, address(at), 0}, Location::current())
              .note("an atomic read: its owner reads it so too, with each tile that it publishes");
        } else {
          k.ld_shared_u32(mask, address(list, f.smem.redo_mask));
        }
        k.setp("ne", "u32", any, mask, 0);
        k.if_(any, [&] {
          k.mov_b32(bit, 0);
          k.loop("redo", [&] {
            k.emit("shr.u32", {at, mask, bit}, Location::current());
            k.and_b32(at, at, 1);
            k.setp("ne", "u32", failed, at, 0);
            k.if_(failed, [&] {
              if (f.paired()) k.mapa_shared_cluster_u32(list, f.base, owner);  // anew: 8 bit has no register for it
              k.mad_lo_u32(at, bit, 16, list);
              k.emit(space + ".v4.u32",
                     {std::vector<Reg>{f.q_row0, f.head, f.batch_index, f.bh}, address(at, f.smem.redo_tiles)},
                     Location::current());
              if (f.paired()) {
                k.setp("ne", "u32", failed, owner, f.rank);
                if (f.causal()) emit_own_row_of_pair(failed);
                else k.mov_b32(f.q_row0, kNoRows).when(failed);
              }
              if (f.splits()) {
                k.mad_lo_u32(at, bit, 4, list);
                k.ld_shared_u32(f.part, address(at, f.smem.redo_parts));
              }
              k.div_u32(f.kv_head, f.heads_q, f.heads_kv);
              k.div_u32(f.kv_head, f.head, f.kv_head);
              emit_tile_blocks(f);
              if (f.paired() && f.causal()) k.or_b32(f.q_row0, f.q_row0, kAbsent).when(failed);
              emit_publish_tile(f, slot_count, 0);
              if (f.paired() && f.causal()) k.mov_b32(f.q_row0, kNoRows).when(failed);
              load_tile(1);
            });
            k.add_u32(bit, bit, 1);
            k.setp("lt", "u32", any, bit, kRedoSlots);
            return any;
          });
        }, "no tile failed");
      };
      if (!f.paired()) {
        redo_list();
        return;
      }
      k.loop("redo list", [&] {
        redo_list();
        k.add_u32(owner, owner, 1);
        k.setp("lt", "u32", more_lists, owner, f.cluster());
        return more_lists;
      });
    });
  }

  // In a cluster CTA 0 draws for both.
  void next_pair(const Reg& counter) {
    Reg draws = k.pred("draws");
    k.setp("eq", "u32", draws, f.rank, 0);
    k.if_else(draws, [&] {
      k.scope([&] {
        Reg pairs = k.b32("pairs");
        k.mov_b32(pairs, special("nclusterid.x"));
        k.atom_global_add_u32(f.tile, address(counter), 1);
        k.add_u32(f.tile, f.tile, pairs).note("the first are taken by clusterid");
      });
      emit_send_tile(f, slot_count);
    }, [&] { emit_receive_tile(f, slot_count); });
  }

  // The CTA's next tile into f.tile: drawn from the counter, or a grid further on.
  void next_tile(const Reg& counter) {
    if (f.paired() && counter.valid()) {
      k.scope([&] { next_pair(counter); });
      return;
    }
    k.scope([&] {
      Reg ctas = k.b32("ctas");
      k.mov_b32(ctas, special(f.paired() ? "nclusterid.x" : "nctaid.x"));
      if (f.teams() > 1) k.mul_lo_u32(ctas, ctas, f.teams());
      if (counter.valid()) {
        k.atom_global_add_u32(f.tile, address(counter), 1);
        k.add_u32(f.tile, f.tile, ctas).note("the first gridDim tiles are taken by ctaid");
      } else {
        k.add_u32(f.tile, f.tile, ctas);
      }
    });
  }

  // split_tail: `bound` ends the whole tiles, then this CTA's parts. `some_left`: there is a tile or a part.
  void first_tile(const Reg& some_left, const Reg& bound) {
    k.ld_param_u32(bound, "tail_first");
    k.mov_b32(f.part, 0);
    k.setp("ge", "u32", some_left, f.tile, bound);
    k.if_(some_left, [&] { emit_enter_tail(f, bound); }, "a whole tile");
    k.setp("lt", "u32", some_left, f.tile, bound);
  }
  void next_tile_or_part(const Reg& counter, const Reg& bound) {
    k.scope([&] {
      Reg whole = k.pred("was_whole"), past = k.pred("past_whole_tiles");
      k.setp("eq", "u32", whole, f.part, 0);
      k.if_else(whole, [&] {
        next_tile(counter);
        k.setp("ge", "u32", past, f.tile, bound);
        k.if_(past, [&] { emit_enter_tail(f, bound); }, "a whole tile");
      }, [&] {
        k.add_u32(f.tile, f.tile, 1);
        k.add_u32(f.part, f.part, 2);
      });
    });
  }

  // Last CTA out sets the counter back to zero for the next launch.
  void reset_counter(const Reg& counter) {
    k.comment("the last CTA to leave clears the counter for the next launch");
    k.scope([&] {
      Reg left = k.b32("left"), ctas = k.b32("ctas_in_grid"), last = k.pred("is_last");
      k.fence_acq_rel_gpu();
      k.atom_global_add_u32(left, address(counter, 4), 1);
      k.mov_b32(ctas, special("nctaid.x"));
      if (f.teams() > 1) k.mul_lo_u32(ctas, ctas, f.teams());
      k.sub_u32(ctas, ctas, 1);
      k.setp("eq", "u32", last, left, ctas);
      k.st_global_u32(address(counter), 0).when(last);
      k.st_global_u32(address(counter, 4), 0).when(last);
    });
  }
};

}  // namespace

void emit_producer(ForwardContext& f) {
  Kernel& k = f.k;
  emit_let_next_grid(f);
  Producer p{f, k, k.b64("q_map_at"), k.b64("k_map_at"), k.b64("v_map_at"), k.b32("k_count"),
             follows_k(f) ? Reg() : k.b32("v_count"), counts_little(f) ? Reg() : k.b32("q_count"), k.b32("slot_count"), k.b32("k_row"),
             follows_k(f) ? Reg() : k.b32("v_row"), {}, {}, {}};
  f.tile = k.b32("tile");
  f.q_block = k.b32("q_block");
  f.bh = k.b32("bh");
  f.head = k.b32("head");
  f.batch_index = k.b32("batch_index");
  f.kv_head = k.b32("kv_head");
  f.q_row0 = k.b32("q_row0");
  f.blocks = k.b32("blocks");
  if (f.splits()) f.part = k.b32("part"), f.first_block = k.b32("first_block");
  if (f.paired()) {
    const Reg rank = k.b32("rank");
    k.mov_b32(rank, special("cluster_ctarank"));
    f.rank = rank;
  }
  emit_tile_counts(f);
  p.map(p.q_map, "q_map");
  p.map(p.k_map, "k_map");
  p.map(p.v_map, "v_map");
  k.mov_b32(p.k_count, 0);
  if (!f.transposes() && p.v_count.valid()) k.mov_b32(p.v_count, 0);
  if (p.q_count.valid()) k.mov_b32(p.q_count, 0);
  k.mov_b32(p.slot_count, 0);
  if (f.backgrounds()) k.st_shared_u32(address(f.base, f.smem.complete_head), hex(0xFFFFFFFF));
  Reg counter;
  if (f.config.plan.dynamic_tiles) {
    counter = k.b64("counter");
    k.ld_param_u64(counter, "tile_counter");
    k.emit("cvta.to.global.u64", {counter, counter}, Location::current());
  }
  emit_wait_for_grids(f);
  k.mov_b32(f.tile, special(f.paired() ? "clusterid.x" : "ctaid.x"));
  if (f.teams() > 1) k.mad_lo_u32(f.tile, f.tile, f.teams(), f.team);
  p.left = k.b32("blocks_left");
  p.some = k.pred("has_blocks");
  p.more = k.pred("more_blocks");
  Reg again = k.pred("more_tiles"), bound = f.tiles;
  trace_start(f, 0, true, !p.q_count.valid() ? std::vector<Reg>{} : std::vector<Reg>{p.k_count, p.q_count});
  if (f.splits()) {
    bound = k.b32("tile_bound");
    p.first_tile(again, bound);
  }
  auto all_tiles = [&] {
    k.loop("producer tile", [&] {
      emit_decode_tile(f);
      trace_position(f, p.slot_count);
      if (!trace_counts_anew(f)) trace_mark(f, TraceEvent::slot_wait);
      emit_publish_tile(f, p.slot_count, 0);
      p.load_tile(0);
      // Late: a tile drawn at the start of the one before would be committed to too early (a prototype gained 5 % with
      // eight tiles a CTA). The loads run a ring ahead of the consumers, which hides the counter's latency.
      if (f.splits()) p.next_tile_or_part(counter, bound);
      else p.next_tile(counter);
      k.setp("lt", "u32", again, f.tile, bound);
      return again;
    });
    trace_position(f, p.slot_count);
    if (!trace_counts_anew(f)) trace_mark(f, TraceEvent::slot_wait);
    if (f.guarded()) p.redo_failed();
  };
  if (f.teams() > 1) k.setp("lt", "u32", again, f.tile, bound);
  if (f.splits() || f.teams() > 1) k.if_(again, all_tiles, f.splits() ? "no tile is this CTA's" : "no tile is this team's");
  else all_tiles();
  emit_publish_tile(f, p.slot_count, kNoTile);
  if (f.transposes()) p.end_raw_v();
  trace_position(f, p.slot_count);
  trace_mark(f, TraceEvent::done);
  trace_finish(f);
  if (f.backgrounds()) emit_leave_background(f);
  else if (counter.valid()) p.reset_counter(counter);
}

}  // namespace flashptx::gen
