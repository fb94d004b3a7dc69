// Pairs of CTAs (Plan::cluster = 2): two neighbouring query tiles of a head, each K and V block loaded once for both.
//
// Each producer loads one half of a block's rows and the copy arrives in both CTAs at the same offset, each half
// counted by the `full` barrier of the CTA it lands in: a barrier still expects the whole stage. A stage is
// refilled when the consumer warps of both CTAs have arrived on the `empty` barrier of the CTA that asks, since
// its half lands in both. Q, O and the row's end stay a CTA's own. Next: gen/tile/tile_load.cpp.
//
// Why. From L2 to the SMs flow, per product of tile_q x tile_kv x d (4 tile_q tile_kv d FLOP in both products of 16 bit), 4
// tile_kv d bytes: FLOP / tile_q. At 750 TFLOP/s that is 5.9 TB/s with 128 rows and 3.9 with 192: all of L2's reading
// rate, or most of it. Pairs halve it. At 16k keys the card is at its power cap, where what a byte costs between L2
// and an SM is lost to the tensor cores. Prototypes gained 3 % with 128 rows and 0.5 to 2 % with 192 sustained, nothing
// in short runs, and lost up to 20 % where few tiles a head make half of the last pairs empty: so it is for long rows.
// What it costs: a stage is free when the slower CTA has freed it, two ALU instructions more in each release, one to build
// a descriptor.
// Measured on an H200 at 16k keys, without and with pairs, bf16, TFLOP/s. Sustained: head_dim 256 725 and 743 (1560 and 1605 MHz), 128 with
// 192 rows 716 and 720, with 128 rows 708 and 710, 64 586 and 574. In turns with other kernels: 742 and 731, 725 and 713, 719 and
// 717, 601 and 566; at 1k 1 to 5 % less. e4m3 in turns: 256 1338 and 1281, 128 1013 and 993. So the prediction holds where the card
// is at its cap and rows are 128 (tools/bench/results/multicast_h200.csv, multicast_sustained_h200.csv); no class has pairs by default.
//
// Causal. The second tile's rows see up to tile_q keys more than the first's, and both CTAs go through the pair's blocks: CTA 0 passes
// over the tile_q / tile_kv that only CTA 1 needs, as a warpgroup does whose diagonal is earlier (emit_skip_blocks). Loads are the
// pair's longer row's, once instead of twice, so bytes from L2 halve as in full attention. But CTA 0 idles meanwhile: tile_q /
// seqlen of all multiprocessors' time, with 128 rows 3.1 % at 4k, 1.6 at 8k and 0.8 at 16k, with 192 4.7, 2.3 and 1.2 %, with 256 6.3, 3.1
// and 1.6 %. Predicted, beside full attention's figures above: a loss up to 8k, and a gain at most where those have one, at 16k
// under sustained load, 1 to 2 % at head_dim 256 and nothing at 128 and 64. Query heads that share K and V could pair one tile's rows
// without that loss; these do not. Tiles drawn from the counter are drawn in pairs, heaviest first, by CTA 0, which hands each
// to CTA 1's producer (emit_send_tile): a fence, an arrival and a wait more a tile, behind the loads of a ring that is full then.
// Measured, bf16, drawn tiles, without and with pairs (tools/bench/results/multicast_causal_h200.csv): sustained at 16k 256 698 and 703 (1470 and 1530 MHz), 128
// with 192 rows 698 and 697; in turns 256 743 and 746 at 4k, 756 and 744 at 8k, 780 and 746 at 16k; 128 734 and 679 at 8k, 721 and 696 at 16k, with
// 128 rows 719 and 672, 699 and 676; 64 (256 rows, the run's output) 630 and 598, 589 and 545. So as predicted where power binds, and in turns pairs wait for each other: no
// class has them. In fixed order (256) 564, 549 and 531: what one CTA of a pair idles no later draw makes good.
//
// Memory order. What a stage hands over is read by wgmma and written by TMA, both in the async proxy, which
// wgmma.wait_group and the barrier's phase order; nothing that ld or st touched is published. So the arrivals on
// a peer's `empty` stay without .release.cluster: with it ptxas puts MEMBAR.ALL.GPU in front of each (a quarter of the
// time in a prototype), and .acquire.cluster on the waits would drop the L1 cache in every trip.
#include "gen/tile/forward_context.h"

namespace flashptx::gen {

Reg emit_rank(ForwardContext& f) {
  if (f.rank.valid()) return f.rank;
  Reg rank = f.k.b32("rank");
  f.k.mov_b32(rank, special("cluster_ctarank"));
  return rank;
}

void emit_cluster_start(ForwardContext& f) {
  Kernel& k = f.k;
  k.barrier_cluster_arrive_relaxed().note("the inits were released to the cluster by their fence");
  k.barrier_cluster_wait_acquire().note("the peer may now arrive here, and its copies too");
}

void emit_cluster_end(ForwardContext& f) {
  Kernel& k = f.k;
  k.section("the pair ends together");
  k.bar_warp_sync();
  k.barrier_cluster_arrive_release().note("this CTA signals its peer no more ...");
  k.barrier_cluster_wait_acquire().note("... nor is signalled: its shared memory may go");
}

namespace {

Reg peer_address(ForwardContext& f, const Reg& own) {
  Reg peer = f.k.b32("peer_rank"), at = f.k.b32("peer_at");
  f.k.xor_b32(peer, emit_rank(f), 1);
  f.k.mapa_shared_cluster_u32(at, own, peer);
  return at;
}

}  // namespace

// The peer's rank is computed each time: it is the same in all threads, so ptxas keeps it in a uniform register, and
// mapa is one PRMT. (Lane i arriving in CTA i saves an arrival but keeps the lane in a register: 24 bytes of
// spills at 112 registers.)
void emit_stage_free(ForwardContext& f, const Reg& bar, int offset, const std::string& note) {
  Kernel& k = f.k;
  k.mbarrier_arrive(address(bar, offset)).when(f.is_lane0).note(note);
  if (!f.paired()) return;
  k.scope([&] {
    Reg at = peer_address(f, bar);
    k.mbarrier_arrive_cluster(address(at, offset)).when(f.is_lane0).note("and one in the peer");
  });
}

void emit_meet_peer(ForwardContext& f) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg at = peer_address(f, f.base);
    k.mbarrier_arrive_remote(address(at, f.smem.peer_done)).note("release: this CTA's list of failed tiles is complete");
    k.wait_cluster("peer done", address(f.base, f.smem.peer_done), 0);
  });
}

// Draw n >= 0 goes through word n & 1 of CTA 1. That word is free once CTA 1 has read draw n - 2, which it says, on CTA 0's
// barrier of the word, behind the loads of the tile after: at draw n - 1. So neither waits there unless it is a tile ahead,
// and CTA 1's fence does not stand between a draw and the loads of what was drawn. Draw 0 finds the fresh barrier's phase "-1".
void emit_send_tile(ForwardContext& f, const Reg& position) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg word = k.b32("word"), parity = k.b32("word_empty");
    k.sub_u32(word, position, 1).note("draw n");
    k.sub_u32(parity, word, 1);
    k.and_b32(word, word, 1);
    Reg bar = ring_barrier(f, "word_bar", word, 0);
    k.shr_u32(parity, parity, 1);
    k.and_b32(parity, parity, 1);
    k.wait_cluster("drawn empty", address(bar, f.smem.drawn_empty), parity);
    bar = peer_address(f, bar);
    k.st_shared_cluster("u32", address(bar, f.smem.drawn_tile), f.tile);
    k.mbarrier_arrive_remote(address(bar, f.smem.drawn_full)).note("release: the peer may read it");
  });
}

void emit_receive_tile(ForwardContext& f, const Reg& position) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg draw = k.b32("draw"), next = k.b32("next_word");
    k.and_b32(next, position, 1);
    Reg bar = ring_barrier(f, "next_word_bar", next, 0);
    bar = peer_address(f, bar);
    k.mbarrier_arrive_remote(address(bar, f.smem.drawn_empty)).note("release: the word of the draw after this one has been read");
    k.sub_u32(draw, position, 1);
    RingSlot word = ring_slot(k, "word", draw, 2);
    bar = ring_barrier(f, "word_bar", word.stage, 0);
    k.wait_cluster("drawn full", address(bar, f.smem.drawn_full), word.phase);
    k.ld_shared_u32(f.tile, address(bar, f.smem.drawn_tile));
  });
}

}  // namespace flashptx::gen
