// Which tile a CTA works on: numbering, decoding, and how many key blocks a tile needs.
//
// Full attention: query blocks run fastest, so that the CTAs of a wave share one head's K and V in L2.
// Causal: heaviest query block first inside a group of heads whose K and V fit in L2, heads fastest; with
// tiles drawn from a counter this is longest-processing-time-first scheduling.
#include "gen/tile/forward_context.h"

namespace flashptx::gen {

void emit_problem_sizes(ForwardContext& f) {
  Kernel& k = f.k;
  k.section("problem sizes");
  f.seqlen_q = k.b32("seqlen_q");
  f.seqlen_k = k.b32("seqlen_k");
  f.heads_q = k.b32("heads_q");
  f.heads_kv = k.b32("heads_kv");
  f.q_blocks = k.b32("q_blocks");
  f.bh_count = k.b32("bh_count");
  f.tiles = k.b32("tiles");
  k.ld_param_u32(f.seqlen_q, "seqlen_q");
  k.ld_param_u32(f.seqlen_k, "seqlen_k");
  k.ld_param_u32(f.heads_q, "heads_q");
  k.ld_param_u32(f.heads_kv, "heads_kv");
  k.ld_param_u32(f.bh_count, "batch");
  k.mul_lo_u32(f.bh_count, f.bh_count, f.heads_q);
  int rows = f.config.tile_q();
  k.add_u32(f.q_blocks, f.seqlen_q, rows - 1);
  k.div_u32(f.q_blocks, f.q_blocks, rows).note("ceil(seqlen_q / tile_q)");
  k.mul_lo_u32(f.tiles, f.q_blocks, f.bh_count);
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
    k.div_u32(out, keys, f.n());
  });
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
    Reg last = k.b32("last_row");
    k.mul_lo_u32(f.q_row0, f.q_block, f.config.tile_q());
    k.add_u32(last, f.q_row0, f.config.tile_q() - 1);
    Reg end = k.b32("end_row");
    k.sub_u32(end, f.seqlen_q, 1);
    k.min_u32(last, last, end);
    emit_visible_blocks(f, f.blocks, last);
  });
}

}  // namespace flashptx::gen
