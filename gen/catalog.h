// The public face of the generator: a kernel is a value.
//
// KernelConfig says what is asked (ProblemClass) and what was decided (Plan); its name() is the file name,
// the entry, the golden and the benchmark row; emit() turns it into PTX text and the facts that a launcher
// needs. Emission is deterministic: the same config gives the same bytes on every machine.
// Next: gen/kernels/attention_forward.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gen/schedule/schedule.h"

namespace flashptx {

enum class DataType { f16, bf16, e4m3, e5m2, f32 };
enum class Mask { full, causal };  // causal is aligned bottom right: query i sees key j when j <= i + seqlen_k - seqlen_q

// plain: running max, O rescaled in every block. lazy: max computed, O rescaled only when a row's max grew
// by more than lazy_threshold_log2 (exact; FlashAttention-4's rule).
// guarded: the running maximum in the blocks that are masked and in the first guard_blocks others, then the reference
// stands and no maximum is taken; a tile whose row sums or outputs left the safe range is done again with the
// maximum of every block (exact; the CTA takes every maximum from then on).
enum class Softmax { plain, lazy, guarded };

// Which steps leave a mark with the clock (gen/trace_events.h). few: of a trip only Q K^T, P V, max and exp (guarded: as one), in one store.
enum class Marks { off, few, all };

const char* to_string(DataType t);
std::string to_string(DataType q, DataType k, DataType v);  // "e4m3"; if they differ "e4m3 Q, e5m2 K, e4m3 V"
const char* to_string(Mask m);
const char* to_string(Softmax s);
const char* to_string(Marks m);

// What is asked.
struct ProblemClass {
  DataType dtype = DataType::bf16;   // of Q, and of K and V; O has the same, or dtype_o for 8-bit input
  int head_dim = 128;                // of Q and K as compiled: a multiple of 16, 16..256; smaller data is zero filled
  int head_dim_v = 128;              // of V and O
  Mask mask = Mask::full;
  DataType dtype_o = DataType::bf16; // of O where Q, K, V are e4m3 or e5m2: bf16 or f16
  bool v_transposed = false;         // 8 bit: P V reads V as (batch, heads_kv, head_dim_v, keys), gen/tile/key_order.h: given so,
                                     // written by a pass in front, or Plan::v_background
  int scale_rows = 0;                // 8 bit: 0: a scale by (batch, head); else also by blocks of rows, those of K and V
                                     // multiples of this: 16, 32, 64 or 128 keys
  std::optional<DataType> dtype_k = {}, dtype_v = {};  // 8 bit: of K and of V, if not Q's; P is e4m3 beside any V

  DataType type_k() const { return dtype_k.value_or(dtype); }
  DataType type_v() const { return dtype_v.value_or(dtype); }
  bool mixed() const { return type_k() != dtype || type_v() != dtype; }
  bool eight_bit() const { return dtype == DataType::e4m3 || dtype == DataType::e5m2; }
  DataType output() const { return eight_bit() ? dtype_o : dtype; }
};

// What was decided.
struct Plan {
  int warpgroups = 2;                // consumer warpgroups, 64 query rows each
  int tile_kv = 128;                 // keys per block; 8 bit: multiples of 128, or 64 where the kernel transposes V of at most 64 columns
  int kv_stages = 2;                 // ring slots of K and of V
  int v_stages = 0;                  // of V (8 bit: of V^T) if they differ; 0: kv_stages
  int q_stages = 1;                  // Q buffers
  int transposers = 3;               // 8 bit, V by rows: warps that transpose it: 3 beside the loading one, or 7 with a second
                                     // warpgroup for them
  bool v_background = false;         // 8 bit, v_transposed: the kernel takes V by rows after all and its idle warps write V^T to
                                     // the workspace, once for all tiles (gen/tile/tile_background.cpp)
  std::string schedule = "overlap";  // a name in gen/schedule/forward_schedules, or of own_schedule
  std::optional<Schedule> own_schedule;  // a table from outside (gen/schedule/text.h); the kernel's name has only its name
  bool ping_pong = true;             // token passed between warpgroups around their wgmma issue
  Softmax softmax = Softmax::lazy;
  int lazy_threshold_log2 = 8;       // lazy: in log2 units
  int guard_blocks = 2;              // guarded: unmasked blocks whose maximum is taken, >= 1
  int direct_of_16 = 0;              // 8 bit, guarded, fast mode: of 16 words of P so many (even) take their e4m3 bits from
                                     // one conversion instead of an exponential (gen/tile/exp_direct.cpp): more error
  int chord_of_16 = 0;               // 8 bit, guarded: so many (even) take the mean of two chords of 2^x instead: 0.6 % more
                                     // error for 4, 1.1 % for 8
  bool p_sums = false;               // 8 bit: a row's sum is a column of P V, of P as it was rounded, so that numerator and
                                     // denominator agree and no exponential is added up (gen/tile/p_sums.cpp)
  bool dynamic_tiles = false;        // tiles drawn from a counter in global memory, heaviest first. After a tile that failed its guard a CTA (a team)
                                     // takes every maximum: which tiles it draws then, and so their last bits, is a matter of time
  bool o_own_buffer = false;         // O staged in its own shared memory, else on the tile's Q slice
  bool late_store = false;           // 16 bit, guarded: a tile's O is scaled and staged under the next tile's first exponentials,
                                     // not in front of them (gen/kernels/attention_forward.cpp, emit_trip_0_and_store)
  bool pin_exp = false;              // a basic-block boundary keeps the exps in front of the wait for PV
  bool symmetric = false;            // no producer warp: every warpgroup computes, thread 0 loads as well
  bool two_level = false;            // 8 bit: each block's P V starts afresh and is added to O in fp32 registers
  int fold_blocks = 0;               // 8 bit: after so many blocks (a power of two) O is added to its staging buffer, as
                                     // bf16, and starts anew; 0: never
  int cluster = 1;                   // 2: two CTAs take neighbouring query tiles of a head and load each K and V block
                                     // once for both (gen/tile/cluster.cpp)
  int teams = 1;                     // 2: 16 bit: the CTA is two teams of `warpgroups`, each with a producer warp, tiles and rings of its
                                     // own, so that one computes while the other ends a tile
  bool split_tail = false;           // full: the tiles of the last, incomplete wave are cut along the keys into two parts,
                                     // so that every CTA gets one; for a launch that asks for it (gen/tile/split_tail.cpp)
  Marks trace = Marks::off;          // steps leave marks with the clock (gen/trace_events.h)

  bool traced() const { return trace != Marks::off; }
  int v_ring() const { return v_stages ? v_stages : kv_stages; }
  int producer_warpgroups() const { return symmetric ? 0 : transposers > 3 ? 2 : 1; }
  int threads() const { return 128 * (producer_warpgroups() + warpgroups * teams); }

  void take(Softmax s);              // words of P without exponentials go with guarded alone
  void follow(const Schedule& s);    // a built-in table or an own one; without tokens it turns ping_pong off
  const Schedule* table() const;     // null: no such schedule
};

struct KernelConfig {
  ProblemClass problem;
  Plan plan;
  // e.g. attn_fwd_bf16_d128_causal__q128_kv128_s2__overlap_pp_lazy8_dyn
  std::string name() const;
  static bool parse(const std::string& name, KernelConfig* out, std::string* error);
  int tile_q() const { return 64 * plan.warpgroups; }
  int cluster_rows() const { return tile_q() * plan.cluster; }  // query rows that a cluster takes at a time
};

enum class ParamKind { tensor_map, pointer, u32, u64, i64, f32 };

// One kernel parameter, in order. For a tensor map also the strided view and box that it must describe,
// innermost dimension first, as formulas of batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim.
struct ParamFact {
  std::string name;
  ParamKind kind = ParamKind::u32;
  std::string meaning;               // one line: shape, unit, access, what 0 means
  bool written = false;
  std::string element;               // tensor map: "bf16"
  std::vector<std::string> dims;     // tensor map: {"head_dim", "seqlen_k", "heads_kv", "batch"}
  std::vector<int> box;              // tensor map: {64, 128, 1, 1}
  int swizzle_bytes = 0;
};

struct LaunchFacts {
  std::string entry;
  std::string grid;                  // formula: "min(tiles, multiprocessors)"
  std::vector<ParamFact> params;
  int block_threads = 0;
  int cluster = 1;
  int teams = 1;                     // tiles that a CTA works on at a time
  std::uint32_t shared_bytes = 0;    // dynamic, alignment slack included
  std::string ptx_version;           // "8.0"
  std::string driver_min;            // "525 (CUDA 12.0)"
  int producer_registers = 0, consumer_registers = 0, entry_registers = 0;
};

// What one step of a usual trip issues, a warp's instructions: for budgets and timing models.
struct StepCost {
  Do what = Do::qk;
  int lag = 0;
  int wgmma = 0, tensor_clocks = 0, ex2 = 0, fma = 0, alu = 0, cvt = 0, issue_slots = 0;
};

struct EmittedKernel {
  std::string text;
  LaunchFacts facts;
  std::vector<StepCost> trip = {};   // attention kernels: the steady trip, step by step
};

// Throws gen::Error with the caller's line for a config that no kernel can have (registers, shared memory,
// an unknown or wrong schedule).
EmittedKernel emit(const KernelConfig& config);

// The plan that won for this class on an H200: `short_rows` is for as few queries as host/select.cpp states.
Plan standard_plan(const ProblemClass& problem, bool short_rows = false);

// 8 bit, guarded, with or without p_sums: Plan::guard_blocks for blocks of `tile_kv` keys, settled by the error (RMS of O at most 5 % above
// FlashAttention-3's), not by speed. `all_keys`: most rows see most keys, as in full attention.
int checked_blocks(int tile_kv, bool all_keys, bool p_sums = false);

// 8 bit: the plan for more than single_level_keys keys. The tensor cores keep 13 bits below the leading one of an FP8 sum and
// cut each product there, so that of n keys of equal weight and V of one sign the later ones are lost: measured on
// an H200 (V = 15/16 everywhere), 47 % of O at 16384 keys, 73 % at 32768, 93 % at 131072; a model of it gives 3 % at
// 2048, 11 % at 4096, 26 % at 8192 in the worst case, nothing to 1024. V of both signs hides it (RMS error
// on normal data over the two-level kernel's: 1 % at 16k keys, 5 % at 64k, 11 % at 128k). Beyond it O is folded every
// 2048 keys (gen/tile/fold.cpp: 3.2 %, measured from 16384 to 131072) for 2 to 6 % of the time; from 2049 keys on
// that would cost 2 to 4 % at 4k and 8k (tools/bench/results/fold_from_2048_e4m3_h200.csv).
constexpr int single_level_keys = 8192;
Plan long_keys_plan(const ProblemClass& problem);
// The same from a plan for fewer keys: O is folded where there is room (scales by blocks: of at least 32 rows, at head
// dimensions up to 128), else sums are in two levels.
Plan long_keys_plan(const ProblemClass& problem, const Plan& plan);

// 8 bit: the plan's fast mode (gen/tile/exp_direct.cpp): RMS error at most 1.25 times that of plain e4m3 on normal data. The
// plan as it was where it has none: scales by blocks of fewer rows than a tile, sums in two levels. Where exponentials bind most, at head
// dimensions up to 64, words that are not direct are chords where O is folded.
// Not for rows in which one key outweighs thousands that together count: a direct word is 0 below 2^-6.9 (of at most 256) where a rounded one
// goes on to 2^-10. RMS on outliers, head_dim 64, exact and 12, 14, 16 words: 16k keys 1.1e-3, 9.6e-3, 1.1e-2, 1.3e-2; 32k 1.0e-3, 3.1e-2, 3.9e-2,
// 4.7e-2 (without p_sums; with it exact and 14 of them 1.5e-3 and 5.5e-3 at 16k, 1.3e-3 and 8.6e-3 at 32k). All 16 direct gave 797 and 857 TFLOP/s at 16k in turns, causal and full, 14 and two chord words
// 784 causal, 14 alone 835 full (fast_all_words_h200.csv; the RMS above: the emulator, `flashptx run --inputs outliers`).
constexpr int fast_words = 14, fast_words_causal = 12;  // of 16: H200 1.19 (head_dim 128) and 1.17 times FlashAttention-3's RMS, emulator up to 1.22 times plain's; 14 spills 8 bytes with causal and folding
Plan fast_plan(const ProblemClass& problem, const Plan& plan);

// The curated kernels that stand in ptx/.
std::vector<KernelConfig> catalog();

// Names of emitted files in ptx/ that are not attention kernels ("probe", ...).
std::vector<std::string> auxiliary_kernels();
EmittedKernel emit_auxiliary(const std::string& name);

}  // namespace flashptx
