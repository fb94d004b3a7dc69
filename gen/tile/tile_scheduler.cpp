// Which tile a CTA works on: numbering, decoding, and how many key blocks a tile needs.
//
// Full attention: query blocks run fastest, so that the CTAs of a wave share one head's K and V in L2.
// Causal: heaviest query block first inside a group of heads whose K and V fit in L2, heads fastest; with
// tiles drawn from a counter this is longest-processing-time-first scheduling.
#include <bit>

#include "gen/tile/forward_context.h"

namespace flashptx::gen {

// Programmatic launches (griddepcontrol, PTX ISA 9.7.13.13). A grid behind this one may start once each CTA has said so or is over: it gets
// an SM when one is free, and waits there. Said where the producer begins: beside the wait below ptxas orders the consumers' instructions
// anew (bf16, head_dim 64, full: a fifth of them).
void emit_let_next_grid(ForwardContext& f) {
  f.k.griddepcontrol_launch_dependents().note("the grid behind this one may take each SM as it gets free");
}

// The grid before this one may still run: what stands above is hidden behind its tail. All that a CTA reads or writes in global memory comes
// after: a consumer gets there behind a barrier that the loading thread has arrived on since, for a tile is published or loaded, or
// that there is none; transposing warps have shared memory only, and those that write V^T in the background wait themselves. The marks of a
// traced kernel alone are written earlier: it is launched the plain way. No CTA leaves without waiting, with tiles or not, so that who
// waits for this grid has waited for those before it as well.
void emit_wait_for_grids(ForwardContext& f) {
  f.k.griddepcontrol_wait().note("the grids before are complete, and what they wrote is there");
}

void emit_problem_sizes(ForwardContext& f) {
  Kernel& k = f.k;
  k.section("problem sizes");
  f.seqlen_q = k.b32("seqlen_q");
  f.seqlen_k = k.b32("seqlen_k");
  k.ld_param_u32(f.seqlen_q, "seqlen_q");
  k.ld_param_u32(f.seqlen_k, "seqlen_k");
}

// keys / tile_kv. ptxas takes a division by a power of two for any other: an inverse, conversions, products and corrections,
// some 200 clocks between a tile and the next.
void emit_blocks_of_keys(ForwardContext& f, const Reg& out, const Reg& keys) {
  const unsigned n = static_cast<unsigned>(f.n());
  if (std::has_single_bit(n)) f.k.shr_u32(out, keys, std::countr_zero(n));
  else f.k.div_u32(out, keys, f.n());
}

void emit_visible_blocks(ForwardContext& f, const Reg& out, const Reg& last_row) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg keys = k.b32("keys");
    if (f.causal()) {
      k.add_s32(keys, last_row, 1);
      k.add_s32(keys, keys, f.seqlen_k);
      k.sub_s32(keys, keys, f.seqlen_q).note("row i sees keys j <= i + seqlen_k - seqlen_q");
      k.max_s32(keys, keys, 0);
      k.min_s32(keys, keys, f.seqlen_k);
    } else {
      k.mov_b32(keys, f.seqlen_k);
    }
    k.add_u32(keys, keys, f.n() - 1);
    emit_blocks_of_keys(f, out, keys);
  });
}

void emit_tile_counts(ForwardContext& f) {
  Kernel& k = f.k;
  f.heads_q = k.b32("heads_q");
  f.heads_kv = k.b32("heads_kv");
  f.q_blocks = k.b32("q_blocks");
  f.bh_count = k.b32("bh_count");
  f.tiles = k.b32("tiles");
  k.ld_param_u32(f.heads_q, "heads_q");
  k.ld_param_u32(f.heads_kv, "heads_kv");
  k.ld_param_u32(f.bh_count, "batch");
  k.mul_lo_u32(f.bh_count, f.bh_count, f.heads_q);
  k.add_u32(f.q_blocks, f.seqlen_q, f.config.cluster_rows() - 1);
  k.div_u32(f.q_blocks, f.q_blocks, f.config.cluster_rows())
      .note(f.paired() ? "ceil(seqlen_q / (2 tile_q)): pairs of tiles" : "ceil(seqlen_q / tile_q)");
  k.mul_lo_u32(f.tiles, f.q_blocks, f.bh_count);
}

void emit_decode_tile(ForwardContext& f) {
  Kernel& k = f.k;
  k.comment("tile -> query block, batch, head");
  k.scope([&] {
    if (f.causal()) {
      Reg group = k.b32("group"), group_tiles = k.b32("group_tiles"), heads = k.b32("group_heads");
      Reg rest = k.b32("rest"), first_bh = k.b32("first_bh");
      k.ld_param_u32(heads, "head_group");
      k.mul_lo_u32(group_tiles, heads, f.q_blocks);
      k.div_u32(group, f.tile, group_tiles);
      k.mul_lo_u32(first_bh, group, heads);
      k.mul_lo_u32(rest, group, group_tiles);
      k.sub_u32(rest, f.tile, rest);
      k.sub_u32(group, f.bh_count, first_bh);
      k.min_u32(heads, heads, group).note("the last group may be smaller");
      k.div_u32(f.q_block, rest, heads);
      k.mul_lo_u32(group, f.q_block, heads);
      k.sub_u32(f.bh, rest, group);
      k.add_u32(f.bh, f.bh, first_bh);
      k.sub_u32(f.q_block, f.q_blocks, f.q_block);
      k.sub_u32(f.q_block, f.q_block, 1).note("heaviest first");
    } else {
      Reg whole = k.b32("whole");
      k.div_u32(f.bh, f.tile, f.q_blocks);
      k.mul_lo_u32(whole, f.bh, f.q_blocks);
      k.sub_u32(f.q_block, f.tile, whole);
    }
    Reg group_size = k.b32("heads_per_kv");
    k.div_u32(f.batch_index, f.bh, f.heads_q);
    k.mul_lo_u32(f.head, f.batch_index, f.heads_q);
    k.sub_u32(f.head, f.bh, f.head);
    if (f.kv_head.valid()) {
      k.div_u32(group_size, f.heads_q, f.heads_kv);
      k.div_u32(f.kv_head, f.head, group_size);
    }
    k.mul_lo_u32(f.q_row0, f.q_block, f.config.cluster_rows());
    if (f.paired())
      k.mad_lo_u32(f.q_row0, f.rank, f.config.tile_q(), f.q_row0)
          .note("a head's last tile may be the peer's alone: then all rows here are past the end");
  });
  emit_tile_blocks(f);
}

void emit_tile_blocks(ForwardContext& f) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg last = k.b32("tile_last_row"), end = k.b32("tile_end_row");
    if (f.paired() && f.causal()) {
      k.mul_lo_u32(last, emit_rank(f), f.config.tile_q());
      k.sub_u32(last, f.q_row0, last);
      k.add_u32(last, last, f.config.cluster_rows() - 1).note("the pair's: CTA 0 passes over blocks that only CTA 1's rows see");
    } else {
      k.add_u32(last, f.q_row0, f.config.tile_q() - 1);
    }
    k.sub_u32(end, f.seqlen_q, 1);
    k.min_u32(last, last, end);
    emit_visible_blocks(f, f.blocks, last);
  });
  if (f.splits()) emit_part_range(f, f.blocks);
}

// Divisions take some hundred clocks: the producer does them ahead of time and hands over the result.
// `marker` other than 0: no tile, but kNoTile or kSync.
void emit_publish_tile(ForwardContext& f, const Reg& position, std::uint32_t marker) {
  Kernel& k = f.k;
  k.comment(marker == 0         ? "the tile into a slot of two, for the consumers"
            : marker == kNoTile ? "no tile left: the consumers end"
                                : "are all tiles done?");
  k.scope([&] {
    RingSlot slot = ring_slot(k, "slot", position, 2);
    Reg bar = ring_barrier(f, "slot_bar", slot.stage, f.smem.tile_full);
    Reg parity = k.b32("slot_free"), at = k.b32("slot_at");
    k.xor_b32(parity, slot.phase, 1);
    k.wait("tile_empty", address(bar, f.smem.tile_empty - f.smem.tile_full), parity);
    k.mad_lo_u32(at, slot.stage, 16, f.base);
    if (f.eight_bit() && !f.scales_blocks()) emit_publish_scales(f, slot.stage, marker != 0);
    if (marker) {
      k.st_shared_u32(address(at, f.smem.tile_slot), hex(marker));
    } else if (f.guarded()) {
      Reg row = k.b32("slot_row"), mask = k.b32("failed"), any = k.pred("any_failed");
      Reg mask_at = k.b32("failed_at");
      k.add_u32(mask_at, f.base, f.smem.redo_mask);
      k.emit("atom.shared::cta.or.b32", {mask, address(mask_at), 0}, Location::current())
          .note("an atomic read: warps may be adding to it");
      k.setp("ne", "u32", any, mask, 0);
      k.selp_b32(mask, kSafe, 0, any).note("one failure, and the CTA goes on with lazy");
      k.or_b32(row, f.q_row0, mask);
      k.emit("st.shared::cta.v4.u32",
             {address(at, f.smem.tile_slot), std::vector<Reg>{row, f.head, f.batch_index, f.bh}},
             Location::current());
    } else {
      k.emit("st.shared::cta.v4.u32",
             {address(at, f.smem.tile_slot), std::vector<Reg>{f.q_row0, f.head, f.batch_index, f.bh}},
             Location::current());
    }
    if (f.splits()) {
      k.mad_lo_u32(at, slot.stage, 8, f.base);
      k.st_shared_u32(address(at, f.smem.tile_part), marker ? Operand(0) : Operand(f.part));
    }
    k.mbarrier_arrive(address(bar)).note("release: the slot is readable");
  });
  k.add_u32(position, position, 1);
}

void emit_fetch_tile(ForwardContext& f, const std::function<void()>& meanwhile) {
  Kernel& k = f.k;
  k.comment("the next tile: {first query row, head, batch, batch * heads_q + head}");
  k.scope([&] {
    RingSlot slot = ring_slot(k, "slot", f.slot_count, 2);
    Reg bar = ring_barrier(f, "slot_bar", slot.stage, f.smem.tile_full), at = k.b32("slot_at");
    k.wait("tile_full", address(bar), slot.phase);
    if (meanwhile) meanwhile();
    k.mad_lo_u32(at, slot.stage, 16, f.base);
    for (const Reg& word : {f.q_row0, f.head, f.batch_index, f.bh}) k.mov_b32(word, 0);
    // One lane reads and passes it on, so that the lane that frees the slot is the one that has read it.
    k.emit("ld.shared::cta.v4.u32",
           {std::vector<Reg>{f.q_row0, f.head, f.batch_index, f.bh}, address(at, f.smem.tile_slot)},
           Location::current())
        .when(f.is_lane0);
    for (const Reg& word : {f.q_row0, f.head, f.batch_index, f.bh}) k.shfl_sync_idx_b32(word, word, 0);
    if (f.splits()) {
      k.mad_lo_u32(at, slot.stage, 8, f.base);
      k.mov_b32(f.part, 0);
      k.ld_shared_u32(f.part, address(at, f.smem.tile_part)).when(f.is_lane0);
      k.shfl_sync_idx_b32(f.part, f.part, 0);
    }
    if (f.eight_bit() && !f.scales_blocks()) {
      Reg bits = k.b32("scale_bits");
      k.mad_lo_u32(at, slot.stage, 8, f.base);
      for (const Reg& scale : {f.scale_log2, f.v_scale}) {
        bool first = scale.name == f.scale_log2.name;
        k.mov_b32(bits, 0);
        k.ld_shared_u32(bits, address(at, f.smem.tile_scales + (first ? 0 : 4))).when(f.is_lane0);
        k.shfl_sync_idx_b32(bits, bits, 0);
        k.emit("mov.b32", {scale, bits}, Location::current());
      }
    }
  });
}

void emit_release_slot(ForwardContext& f) {
  Kernel& k = f.k;
  k.scope([&] {
    RingSlot slot = ring_slot(k, "slot", f.slot_count, 2);
    Reg bar = ring_barrier(f, "slot_bar", slot.stage, f.smem.tile_empty);
    k.mbarrier_arrive(address(bar)).when(f.is_lane0);
  });
  if (f.guarded()) k.add_u32(f.slot_count, f.slot_count, 1);
}

}  // namespace flashptx::gen
