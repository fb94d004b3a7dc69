// What the tile operations of the forward kernel share: the config, the shared-memory map, named registers.
//
// A tile operation emits code for one thing (a product, a mask, a softmax part, an epilogue) and knows nothing
// of order; gen/kernels/attention_forward.cpp calls them in the order that a schedule says.
// Next: gen/tile/shared_layout.cpp, gen/kernels/attention_forward.cpp.
#pragma once

#include <functional>

#include "gen/catalog.h"
#include "gen/isa/kernel.h"
#include "gen/trace_events.h"

namespace flashptx::gen {

// Byte offsets from the 1024-aligned base of dynamic shared memory. All tiles use TMA's 128-byte swizzle, so
// each slab of 64 16-bit columns starts at a multiple of 1024 (PTX ISA, wgmma shared memory layout).
constexpr int kMaxDynamicBytes = 232448;  // of a CTA on compute capability 9.0
constexpr int kBarrierBytes = 512;        // more than any plan's barriers and slots take
constexpr std::uint32_t kNoTile = 0xFFFFFFFF;  // q_row0 of the slot that ends the CTA
constexpr std::uint32_t kSync = 0xFFFFFFFE;    // of the slot that asks whether all tiles so far are done
constexpr std::uint32_t kSafe = 1;             // bit in a slot's q_row0: take every block's maximum
constexpr std::uint32_t kAbsent = 2;           // bit in a slot's q_row0, pairs of causal kernels: the key blocks are those of this tile, its rows are not to be done
constexpr std::uint32_t kNoRows = 0x7FFFF000;  // q_row0 past every problem's end: a tile of which a CTA does nothing
constexpr std::uint32_t kNoUnit = 0xFFFFFFFF;  // first key in the slot of a unit: there is none left
constexpr int kUnitBarrier = 7;                // named barrier of the warps that share a unit
constexpr int kSumColumns = 8;                 // p_sums: columns of ones beside V's, the least that wgmma counts in
constexpr int kRedoSlots = 4;                  // three tiles can fail before the producer hears of the first

struct SharedLayout {
  explicit SharedLayout(const KernelConfig& config);
  int slab_columns = 64;        // of Q and K in 128 bytes
  int slab_bytes_q = 64 * 128;  // 64 rows x 128 B: one warpgroup's rows, one slab's columns
  int slab_bytes_kv = 0;        // tile_kv rows x 128 B
  int slabs_qk = 0;
  int slabs_v = 0;              // V: of head_dim_v columns; V^T: of 128 keys
  int slab_bytes_v = 0;
  int slabs_o = 0;              // 64 16-bit columns each
  int q_slice_bytes = 0;        // one warpgroup's Q rows
  int q = 0, k = 0, v = 0, o = 0;
  int k_stage_bytes = 0, v_stage_bytes = 0;
  // mbarriers, 8 bytes each
  int q_full = 0, q_empty = 0;  // [q stage][warpgroup]
  int k_full = 0, k_empty = 0, v_full = 0, v_empty = 0;  // [stage]
  // 8 bit, V transposed in the kernel: V as it lies in memory, on its way to V^T
  int raw = 0, raw_stage_bytes = 0, raw_stages = 0;  // a stage is a slab: 128 columns of a block
  int raw_slabs = 0;                  // of a block
  int raw_full = 0, raw_empty = 0;    // [raw stage]
  int raw_kind = 0;                   // [raw stage] u32: 0 a block, 1 no more
  // v_background: a unit of V as it lies in memory, 128 keys x 128 columns, and as V^T
  int unit_raw = 0, unit_vt = 0;
  int unit_slot = 0;                  // [2] x {first key or kNoUnit, first column, head, batch}
  int complete_head = 0;              // u32: the head whose V^T the producer has seen complete last; it has no register for it
  int unit_full = 0;                  // mbarrier: the unit has arrived, and the one before has left
  int tile_full = 0, tile_empty = 0;  // [2]
  int tile_slot = 0;                  // [2] x {q_row0, head, batch, bh}: the tile that comes next
  int block_scales = 0;               // scales by blocks: [K stage] x {K's scales of the block's groups, then V's}
  int tile_scales = 0;                // 8 bit: [2] x {softmax_scale_log2 * q_scale * k_scale, v_scale} of that tile
  int tile_part = 0;                  // split_tail: [2] u32, which part of that tile; [kRedoSlots] likewise below
  int redo_parts = 0;
  int redo_mask = 0, redo_tiles = 0;  // guarded: u32 bits, [kRedoSlots] x {q_row0, head, batch, bh}
  int peer_done = 0;                  // guarded, in a cluster: mbarrier, the peer has done all its tiles
  int drawn_tile = 0;                 // dynamic tiles in a cluster, CTA 1's: [2] u32, 8 bytes apart: the pair that CTA 0 drew
  int drawn_full = 0, drawn_empty = 0;  // [2] mbarriers, of CTA 1 and of CTA 0
  int o_slabs = 0;                    // 64-column slabs that the O buffer holds a warp
  int end = 0;                  // first byte after
  int team_bytes = 0;           // from one team's memory to the next one's
  int all_teams = 0;            // first byte after them
  int dynamic_bytes() const { return all_teams + 1023; }  // the base is rounded up by the kernel
  SharedLayout of_team(int team) const;  // its barriers and redo_mask, from the CTA's base
};

// Plan::trace: what one role's marks need (gen/tile/trace_marks.cpp).
struct TraceRegs {
  Reg at, used, fits;           // the writer's header; records so far; this one is inside the region
  Reg writes, room;             // this thread leaves marks; how many records and trips, 0 if it does not
  Vec line;                     // the record: tag and three clocks; few's of a trip: its clocks
  Reg trip_at;                  // few: the trip's place
  Reg position;                 // counter that the marks carry
  bool anew = false;            // `at`, `used` and `writes` are found again for each record: used as the sum of
  std::vector<Reg> counts;      // these, each of which grows by one behind its mark
  bool shared = false;          // marks share records: between trace_batch and trace_batch_end
  bool trip = false;            // few: the batch is a steady trip's,
  int trip_marks = 0;           // which has so many marks; 0 once they are stored
  int filled = 0;               // marks in `line`
  int events = 0;               // theirs, five bits each
};

// Registers of one role, by the names they have in the emitted text.
struct ForwardContext {
  ForwardContext(Kernel& kernel, const KernelConfig& c) : k(kernel), config(c), smem(c) {}
  Kernel& k;
  const KernelConfig& config;
  SharedLayout smem;

  // whole kernel
  Reg base;                     // 1024-aligned shared address
  Reg seqlen_q, seqlen_k, heads_q, heads_kv, batch;
  Reg q_blocks, bh_count, tiles;  // producer only; in a cluster q_blocks and tiles count pairs
  Reg rank;                     // of this CTA in its cluster; producer only, the consumers read it anew
  // one tile
  Reg tile, q_block, bh, head, batch_index, kv_head;
  Reg q_row0;                   // first query row of the tile
  Reg blocks;                   // key blocks that the tile needs (its last warpgroup with rows), in a cluster the pair of tiles
  Reg part;                     // split_tail: 0: all of its keys; else 1 + 2 * (tile - tail_first), one more for the second part
  Reg first_block;              // split_tail: key block of the tile's axis that is the part's block 0
  // consumer
  Reg warpgroup;                // 0 .. warpgroups-1, in its team
  Reg team, seat;               // teams: which; this warpgroup among those of all teams
  Reg warp_row;                 // this lane's first row inside the warpgroup: 16 * warp + lane / 4
  Reg warp_row0;                // 16 * warp, which ptxas knows to be the warp's: a coordinate of TMA's without a loop over lanes
  Reg lane, is_lane0, quad_col;  // quad_col = 2 * (lane % 4)
  Reg own_q_row0;               // first query row of this warpgroup
  Reg own_blocks;               // key blocks of this warpgroup
  Reg first_masked;             // blocks from this number on need a mask
  Reg block;                    // key block at work
  Reg kv_count, q_count;        // ring positions: blocks and tiles consumed so far
  Reg slot_count;               // tile slots read so far
  Reg safe, was_safe;           // guarded: the tile takes every maximum; the tile being stored did
  Reg out_row0, out_head, out_batch;  // the tile being stored: own first row, head, batch
  Reg out_part;                 // split_tail: its part
  Reg parts_done;               // split_tail, by part of this CTA: bit i: this warp has published its rows; 16 + i: it stores them
  Vec inverse;                  // 1 / row sum of the tile being stored
  Reg first_unchecked;          // guarded: blocks from this number on have their maximum taken
  Vec fold_scale;               // folds: what the rows of O in the staging buffer must be multiplied by
  Reg folded;                   // folds: O is in part in the staging buffer
  Vec o_new;                    // two_level: P V of one block
  Vec s_acc, o_acc, p;          // S, O fp32; P packed 16 bit
  int early_words = 0;          // so many words of P are packed beside their exponentials, in front of the vote on the block's sums
  Vec p_next;                   // early_words: of the block's P, in p itself where the block before needs it no more
  Vec o_sum;                    // p_sums: the columns of ones of P V, two of each row
  Reg worst_sum;                // p_sums, guarded: the largest sum of a block without a maximum; infinite where words of P left their range
  bool drains = false;          // p_sums: behind the loop
  Vec row_max, exp_offset, row_sum, alpha;
  Vec p_direct;                 // e4m3 codes of the direct words, two in the halves of a register
  Vec p_chord;                  // p of the chord words, f16x2
  Vec p_offset;                 // 8 bit, guarded: P = 2^(S c - mc + p_offset), log2 units
  Reg scale_log2, max_slack;    // c; lazy threshold in raw score units
  Reg v_scale;                  // 8 bit: the tile's V scale; by blocks: the unit in which O is kept
  Vec q_scale, k_scale, v_scales;  // by blocks: of this lane's two rows, times c; of the block's groups of keys
  Vec qk_scale;                 // by blocks: from S to log2 units, by row
  Reg v_shift, next_unit;       // by blocks: log2(the block's V scale / O's unit); O's unit once the block is added
  Reg k_ready, v_ready;         // the next K and V block had landed when their barriers were last looked at
  Reg grew, huge, o_keep;       // some row's max moved; scores too big for one fma; O holds something
  Vec col_limit;                // first column that the row must not see, by row
  // late_store: what is emitted between the instructions of the next tile's first maxima, and of its first exponentials.
  std::function<void()> beside_max, beside_exp;

  TraceRegs trace;

  int n() const { return config.plan.tile_kv; }
  int d() const { return config.problem.head_dim; }
  int dv() const { return config.problem.head_dim_v; }
  int warpgroups() const { return config.plan.warpgroups; }
  int teams() const { return config.plan.teams; }
  int transposers() const { return config.plan.transposers; }
  std::string type() const { return to_string(config.problem.dtype); }
  std::string type_k() const { return to_string(config.problem.type_k()); }
  std::string type_v() const { return to_string(config.problem.type_v()); }
  std::string type_o() const { return to_string(config.problem.output()); }
  bool eight_bit() const { return config.problem.eight_bit(); }
  bool scales_blocks() const { return config.problem.scale_rows != 0; }
  int scale_groups() const { return n() / config.problem.scale_rows; }
  // By blocks, one group: S stays as the tensor cores gave it, qk_scale and v_shift go into the fma in front of ex2.
  bool scales_in_fma() const { return scales_blocks() && scale_groups() == 1; }
  // What takes the scores that the reference is of to log2 units: by blocks they are in them.
  Operand score_unit() const { return scales_blocks() ? f32_imm(1.0f) : Operand(scale_log2); }
  bool transposes() const { return eight_bit() && !config.problem.v_transposed; }
  bool backgrounds() const { return config.plan.v_background; }
  int v_slabs() const { return (dv() + 127) / 128; }  // of 128 columns
  int k_step() const { return eight_bit() ? 32 : 16; }  // K of one wgmma: always 32 bytes
  bool guarded() const { return config.plan.softmax == Softmax::guarded; }
  // 8 bit with guarded: a block's sums are checked before they join the row's, so that one register holds a row's.
  bool checks_block_sums() const { return eight_bit() && guarded(); }
  // Mask, maximum and re-centring behind one branch, which a usual trip skips: blocks with a mask have their maximum taken. ptxas lays rare code out inline, whatever
  // the order in PTX, so that each branch costs a jump: 8 clocks of a trip in 16 bit, 15 to 26 in 8, where what is skipped is longer than the instruction cache
  // reads ahead (88 of 1811 clocks at head_dim 64, 122 of 2324 at 128: tools/bench/results/stalls_h200.csv). Expected for three jumps fewer 45 to 60 clocks, 2 to 3 %;
  // measured in 8 bit + 1.4 % on average, up to 5 (branches_and_looks_h200.csv). In 16 bit under P V (overlap) - 0.4 %, at head_dim 64 - 1 to - 3, for the same code
  // in the usual trip: not there.
  bool one_unusual_branch() const { return guarded() && (eight_bit() || config.plan.table()->o_is_still()); }
  // The next P V behind the exponentials of a block is that block's. An own schedule may have that of the block before there: its V is waited for as it is.
  bool looks_at_v() const {
    const Schedule& s = *config.plan.table();
    return s.step(Do::pv)->lag == 0 || s.step(Do::pv) < s.step(Do::exp_sum);
  }
  // O is complete from the maximum to the exponentials: whatever moves the reference scales it there, and no step asks
  // again. Not with folds: 32 bytes of stack at head_dim 128 in fast mode.
  bool scales_still_o() const { return config.plan.softmax != Softmax::plain && !scales_blocks() && (!folds() || folds_early()) && !config.plan.two_level && config.plan.table()->o_is_still(); }
  bool keeps_p() const { return config.plan.table()->p_outlives_exps(); }
  bool sums_p() const { return config.plan.p_sums; }
  int sums_per_row() const { return checks_block_sums() || sums_p() ? 1 : 2; }
  // P's largest value is 2^this: e4m3 ends at 448 = 2^8.8, and lazy lets P grow past its reference.
  int p_offset_log2() const {
    if (!eight_bit()) return 0;
    return config.plan.softmax == Softmax::lazy ? 8 - config.plan.lazy_threshold_log2 : 8;
  }
  bool saves_exps() const { return config.plan.direct_of_16 != 0 || config.plan.chord_of_16 != 0; }
  int direct_words() const { return n() / 8 * config.plan.direct_of_16 / 16; }
  int chord_words() const { return n() / 8 * config.plan.chord_of_16 / 16; }
  int cluster() const { return config.plan.cluster; }
  bool paired() const { return config.plan.cluster > 1; }
  bool splits() const { return config.plan.split_tail; }
  bool folds() const { return config.plan.fold_blocks != 0; }
  // O is folded where its P V is complete and neither S nor P holds anything, not in front of it: registers.
  bool folds_behind() const { return folds() && sums_p() && !folds_early() && config.plan.table()->step(Do::wait_pv)->lag == 0; }
  // ... or behind the branch that a usual trip skips anyway, where registers allow.
  bool folds_early() const { return folds() && sums_p() && guarded() && dv() <= 64; }
  bool promotes_at_once() const { return config.plan.two_level && config.plan.table()->p_shares_s(); }
  int promoted_columns() const { return dv() > 64 ? dv() / 2 : dv(); }
  // 8 bit, full: every row's limit is seqlen_k, and the two registers are wanted elsewhere.
  bool has_col_limits() const { return causal() || !eight_bit(); }
  // P V in front of Q K^T, in two groups, and Q K^T is issued once the first is complete. ptxas (13.0) takes products in flight
  // apart (C7512) unless their registers leave it 32 of the role's: of 232 that is O, S and half of P at head_dim 256.
  bool pv_in_groups() const { return eight_bit() && !config.plan.two_level && dv() > 128 && config.plan.table()->steps.front().what == Do::pv; }
  bool causal() const { return config.problem.mask == Mask::causal; }
};

// --- ring: stage and phase of a position. stage = position % stages, phase = (position / stages) & 1.
struct RingSlot {
  Reg stage, phase;
};
RingSlot ring_slot(Kernel& k, const std::string& ring, const Operand& position, int stages);
// barrier address: base + offset + 8 * stage
Reg ring_barrier(ForwardContext& f, const std::string& name, const Reg& stage, int offset);

// --- pairs of CTAs (gen/tile/cluster.cpp)
void emit_cluster_start(ForwardContext& f);           // all threads: the peer's barriers are there
void emit_cluster_end(ForwardContext& f);             // all threads: the peer needs nothing of this CTA any more
Reg emit_rank(ForwardContext& f);                     // of this CTA
// A warp is done with a K or V stage: to this CTA's `empty` barrier, in a cluster to the peer's too. Converged warp.
void emit_stage_free(ForwardContext& f, const Reg& bar, int offset, const std::string& note = "");
// The producer's thread: what came before it in the peer's producer is done and visible.
void emit_meet_peer(ForwardContext& f);
// The producers' threads, behind the loads of tile `position` (from 0): f.tile, which CTA 0 has drawn, in CTA 1 too.
void emit_send_tile(ForwardContext& f, const Reg& position);
void emit_receive_tile(ForwardContext& f, const Reg& position);

// --- tile scheduling (gen/tile/tile_scheduler.cpp)
void emit_let_next_grid(ForwardContext& f);
void emit_wait_for_grids(ForwardContext& f);          // by who loads, ahead of every access to global memory
void emit_problem_sizes(ForwardContext& f);           // loads sizes, computes q_blocks, tiles
void emit_tile_counts(ForwardContext& f);             // heads, query blocks, tiles: by whoever decodes
void emit_decode_tile(ForwardContext& f);             // tile -> q_row0, bh, head, batch, kv_head, blocks
void emit_tile_blocks(ForwardContext& f);             // q_row0 -> blocks
void emit_publish_tile(ForwardContext& f, const Reg& position, std::uint32_t marker);  // producer
// consumer: reads the next slot; `meanwhile` between the wait for it and the read
void emit_fetch_tile(ForwardContext& f, const std::function<void()>& meanwhile = {});
void emit_release_slot(ForwardContext& f);            // consumer: the slot may be written again
// Key blocks that rows up to and including `last_row` see: into `out`.
void emit_visible_blocks(ForwardContext& f, const Reg& out, const Reg& last_row);
void emit_blocks_of_keys(ForwardContext& f, const Reg& out, const Reg& keys);  // keys / tile_kv

// --- tiles cut along the keys (gen/tile/split_tail.cpp)
void emit_enter_tail(ForwardContext& f, const Reg& bound);  // this CTA's parts: first tile, its part; `bound` ends them
void emit_part_range(ForwardContext& f, const Reg& blocks);  // blocks of the tile -> of the part; first_block
void emit_part_sums(ForwardContext& f, const Reg& at, const Operand& part, int r);  // where a row's {reference, sum} is kept
void emit_is_published(ForwardContext& f, const Reg& out, const Reg& part);  // by this warp, in a pass before this one
void emit_store_part(ForwardContext& f, const Reg& failed);  // O, fp32; then says so, unless the tile is done anew
void emit_merge_parts(ForwardContext& f);             // consumer, at the CTA's end

// --- marks (gen/tile/trace_marks.cpp); all do nothing unless the plan asks
// `counts`: their sum numbers the role's marks where trace_counts_anew.
void trace_start(ForwardContext& f, const Operand& writer, bool one_thread, const std::vector<Reg>& counts = {});
bool trace_counts_anew(const ForwardContext& f);
void trace_position(ForwardContext& f, const Reg& position);        // what the marks from here on carry
void trace_trips(ForwardContext& f, const Reg& position);           // few: steady trips from this position on
void trace_batch(ForwardContext& f, const Reg& position, bool steady_trip = false);  // marks share records until
void trace_batch_end(ForwardContext& f);                                             // here; no branch around one
void trace_mark(ForwardContext& f, TraceEvent e);                   // the step e begins
void trace_finish(ForwardContext& f);
// The transposing warps have no register to spare: with all marks one record a slab, its place computed when it is written;
// with few none.
bool trace_marks_transposer(const ForwardContext& f);
void trace_transposer_start(ForwardContext& f);
void trace_clock(ForwardContext& f, const Reg& clock, TraceEvent e);
void trace_transposer(ForwardContext& f, const Reg& position, const Operand& record, const std::vector<Reg>& clocks,
                      const std::vector<TraceEvent>& events);
void trace_transposer_finish(ForwardContext& f, const Operand& records);

// --- producer (gen/tile/tile_load.cpp)
void emit_producer(ForwardContext& f);
// --- V to V^T (gen/tile/tile_transpose.cpp): the producer's warps but the first
void emit_transposer(ForwardContext& f);
// --- v_background (gen/tile/tile_background.cpp): the same warps, units of the whole tensor
void emit_background(ForwardContext& f);
void emit_wait_vt(ForwardContext& f);           // producer: V^T of the tile's head is there
void emit_leave_background(ForwardContext& f);  // one thread of either role, at its end: the last clears flags and counters

// --- consumer
void emit_qk(ForwardContext& f);                      // tile_product.cpp
void emit_pv(ForwardContext& f, int lag);
void emit_promote(ForwardContext& f);                 // two_level: O += the product that has just completed
void emit_free(ForwardContext& f, const std::string& ring, int empty_offset, int lag);
void emit_mask(ForwardContext& f);                    // mask.cpp
void emit_mask_max(ForwardContext& f, bool first);    // softmax.cpp
void emit_exp_sum(ForwardContext& f, bool first);
std::vector<Reg> row_elements(ForwardContext& f, int r);  // of S or P
// 8 bit, guarded: P, row sums and O of a block whose sums show that its offset is too high or too low
void rescale_block(ForwardContext& f, const Vec& sum);
void emit_sums_exceed(ForwardContext& f, const Reg& over, const Reg& also, const Reg& worst, const Vec& sum, const Vec& weighted);
void emit_exp_sum_direct(ForwardContext& f, bool first);          // exp_direct.cpp: part of P without exponentials
void emit_pack_p_direct(ForwardContext& f, const Vec& p, int first, int end);  // words [first, end)
void emit_decode_words(ForwardContext& f, const Vec& sum);  // the rare branch: p of all words into S's registers, and their sums
void emit_encode_words(ForwardContext& f);            // and back
void emit_pack_early(ForwardContext& f);              // softmax.cpp: the early words
// p_sums (gen/tile/p_sums.cpp)
void emit_ones(ForwardContext& f);                    // all threads, before the kernel's first barrier
void emit_start_sums(ForwardContext& f);              // of a tile
void emit_take_sums(ForwardContext& f, int lag);      // of a P V that is complete
void emit_settle_offset(ForwardContext& f);           // guarded: P's offset for the blocks without a maximum, before the first of them
void emit_check_lost(ForwardContext& f, const Reg& sum);  // guarded: at the tile's end, of each row
void emit_p_out_of_range(ForwardContext& f, const Reg& failed);  // some p left e4m3
void scale_o_by_alpha(ForwardContext& f);             // softmax.cpp: O, and the sums that go with it
// 8 bit: scales (gen/tile/scales.cpp)
void emit_publish_scales(ForwardContext& f, const Reg& slot, bool none);  // producer, with the tile's slot
void emit_write_block_scales(ForwardContext& f, const Reg& stage, const Reg& k_row);  // producer, with K's stage
void emit_row_scales(ForwardContext& f, const Reg& exists);  // consumer: of the tile's Q rows, if it is one
void emit_read_block_scales(ForwardContext& f);       // of the K stage at work
void emit_block_units(ForwardContext& f, bool first);  // before the mask
void emit_sum_weight(ForwardContext& f, const Reg& weight, int group);
void emit_change_unit(ForwardContext& f, bool first);  // after exp_sum: O's change of unit into alpha
void emit_guard(ForwardContext& f, const Reg& failed);
void emit_guard_sums(ForwardContext& f, const Reg& failed, const Reg& worst);   // its parts: of this thread's row sums alone,
void emit_guard_outputs(ForwardContext& f, const Reg& failed, const Reg& bad);  // of its outputs, and of the warp's other threads
void emit_rescale_o(ForwardContext& f);
void emit_pack_p(ForwardContext& f);
void emit_fold(ForwardContext& f);                    // fold.cpp: O into its staging buffer, every fold_blocks blocks
void emit_unfold(ForwardContext& f);                  // and back
void emit_finish_rows(ForwardContext& f);             // epilogue.cpp: 1 / row_sum, LSE
void emit_epilogue(ForwardContext& f);
void emit_store_rows(ForwardContext& f);              // o_acc to the rows at out_row0
// late_store: the same in pieces, with all of O in the buffer.
struct StagingPlace {
  Reg stage, line, key, row, stores;
};
StagingPlace emit_staging_place(ForwardContext& f);   // of this warp's rows; its registers are the caller's scope's
void emit_scale_and_stage(ForwardContext& f, const StagingPlace& at);  // o_acc is multiplied by `inverse`
void emit_store_staged(ForwardContext& f, const StagingPlace& at);
void emit_note_failure(ForwardContext& f, const Reg& failed, const Reg& noted);  // of the tile at out_row0, into the redo list
void emit_write_lse(ForwardContext& f, int r, const Reg& lse);
void emit_release_q(ForwardContext& f, int tiles_ago);  // Q's slice may be refilled

}  // namespace flashptx::gen
