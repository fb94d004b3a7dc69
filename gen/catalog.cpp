// Names of configs, the curated catalogue, and emit().
#include "gen/catalog.h"

#include <algorithm>
#include <cstdlib>

#include "gen/isa/error.h"
#include "gen/kernels/attention_forward.h"
#include "gen/kernels/attention_symmetric.h"

namespace flashptx {

const char* to_string(DataType t) {
  switch (t) {
    case DataType::f16: return "f16";
    case DataType::bf16: return "bf16";
    case DataType::e4m3: return "e4m3";
    case DataType::e5m2: return "e5m2";
    case DataType::f32: return "f32";
  }
  return "?";
}
std::string to_string(DataType q, DataType k, DataType v) {
  if (k == q && v == q) return to_string(q);
  return std::string(to_string(q)) + " Q, " + to_string(k) + " K, " + to_string(v) + " V";
}
const char* to_string(Mask m) { return m == Mask::full ? "full" : "causal"; }
const char* to_string(Softmax s) {
  return s == Softmax::plain ? "plain" : s == Softmax::lazy ? "lazy" : "guarded";
}

const char* to_string(Marks m) { return m == Marks::off ? "off" : m == Marks::few ? "few" : "all"; }

void Plan::take(Softmax s) {
  softmax = s;
  if (s != Softmax::guarded) direct_of_16 = chord_of_16 = 0;
}
void Plan::follow(const Schedule& s) {
  schedule = s.name;
  own_schedule.reset();
  if (!find_forward_schedule(s.name)) own_schedule = s;
  if (!s.o_is_whole_when_scaled() || (softmax == Softmax::guarded && !s.o_is_still())) p_sums = false;
  if (!s.has(Do::token_wait)) ping_pong = false;
  else late_store = false;  // no P V is in flight at a tile's end
}
const Schedule* Plan::table() const { return own_schedule ? &*own_schedule : find_forward_schedule(schedule); }

// attn_fwd_<dtype>[_k<dtype>][_v<dtype>][_of16]_d<d>[v<dv>]_<mask>[_vt][_bs<rows>]__q<tile_q>_kv<tile_kv>_s<stages>[_vs<v stages>][_qs2][_vw7][_vb]__<schedule>[_pp]_<softmax>[_fast<words>][_chord<words>][_psum][_dyn][_ob][_late][_pin][_two][_fold<blocks>][_sym][_tail][_c<cluster>][_trace|_tracefew]
std::string KernelConfig::name() const {
  auto n = [](int v) { return std::to_string(v); };
  std::string s = std::string("attn_fwd_") + to_string(problem.dtype);
  if (problem.type_k() != problem.dtype) s += std::string("_k") + to_string(problem.type_k());
  if (problem.type_v() != problem.dtype) s += std::string("_v") + to_string(problem.type_v());
  if (problem.eight_bit() && problem.dtype_o != DataType::bf16) s += std::string("_o") + to_string(problem.dtype_o);
  s += "_d" + n(problem.head_dim);
  if (problem.head_dim_v != problem.head_dim) s += "v" + n(problem.head_dim_v);
  s += std::string("_") + to_string(problem.mask) + (problem.v_transposed ? "_vt" : "") +
       (problem.scale_rows ? "_bs" + n(problem.scale_rows) : "") + "__q" + n(tile_q()) + "_kv" + n(plan.tile_kv) + "_s" +
       n(plan.kv_stages);
  if (plan.v_stages) s += "_vs" + n(plan.v_stages);
  if (plan.q_stages != 1) s += "_qs" + n(plan.q_stages);
  if (plan.transposers != 3) s += "_vw" + n(plan.transposers);
  if (plan.v_background) s += "_vb";
  s += "__" + plan.schedule;
  if (plan.ping_pong) s += "_pp";
  s += std::string("_") + to_string(plan.softmax);
  if (plan.softmax == Softmax::lazy) s += n(plan.lazy_threshold_log2);
  if (plan.softmax == Softmax::guarded) s += n(plan.guard_blocks);
  if (plan.direct_of_16) s += "_fast" + n(plan.direct_of_16);
  if (plan.chord_of_16) s += "_chord" + n(plan.chord_of_16);
  if (plan.p_sums) s += "_psum";
  if (plan.dynamic_tiles) s += "_dyn";
  if (plan.o_own_buffer) s += "_ob";
  if (plan.late_store) s += "_late";
  if (plan.pin_exp) s += "_pin";
  if (plan.two_level) s += "_two";
  if (plan.fold_blocks) s += "_fold" + n(plan.fold_blocks);
  if (plan.symmetric) s += "_sym";
  if (plan.split_tail) s += "_tail";
  if (plan.cluster != 1) s += "_c" + n(plan.cluster);
  if (plan.teams != 1) s += "_x" + n(plan.teams);
  if (plan.traced()) s += plan.trace == Marks::few ? "_tracefew" : "_trace";
  return s;
}

namespace {

// Reads a name left to right; keeps the first complaint.
struct NameReader {
  explicit NameReader(const std::string& n) : name(n) {}
  const std::string& name;
  std::size_t at = 0;
  std::string error;

  bool take(const std::string& word) {
    if (name.compare(at, word.size(), word) != 0) return false;
    at += word.size();
    return true;
  }
  void expect(const std::string& word) {
    if (error.empty() && !take(word)) fail("\"" + word + "\"");
  }
  int number(const char* what) {
    std::size_t end = name.find_first_not_of("0123456789", at);
    if (end == std::string::npos) end = name.size();
    if (end == at || end - at > 4) {
      fail(std::string(what) + " (a number)");
      return 0;
    }
    int v = std::atoi(name.substr(at, end - at).c_str());
    at = end;
    return v;
  }
  std::string word() {
    std::size_t end = name.find('_', at);
    if (end == std::string::npos) end = name.size();
    std::string w = name.substr(at, end - at);
    at = end;
    return w;
  }
  DataType data_type() {
    const std::string w = word();
    for (DataType t : {DataType::f16, DataType::bf16, DataType::e4m3, DataType::e5m2})
      if (w == to_string(t)) return t;
    fail("a dtype (f16, bf16, e4m3, e5m2)");
    return DataType::bf16;
  }
  void fail(const std::string& wanted) {
    if (error.empty())
      error = "kernel name \"" + name + "\": wanted " + wanted + " at \"" + name.substr(std::min(at, name.size())) + "\"";
  }
};

}  // namespace

bool KernelConfig::parse(const std::string& name, KernelConfig* out, std::string* error) {
  KernelConfig c;
  NameReader r(name);
  r.expect("attn_fwd_");
  c.problem.dtype = r.data_type();
  if (r.take("_k")) c.problem.dtype_k = r.data_type();
  if (r.take("_v")) c.problem.dtype_v = r.data_type();
  if (r.take("_of16")) c.problem.dtype_o = DataType::f16;
  r.expect("_d");
  c.problem.head_dim = c.problem.head_dim_v = r.number("head_dim");
  if (r.take("v")) c.problem.head_dim_v = r.number("head_dim_v");
  if (r.take("_causal")) c.problem.mask = Mask::causal;
  else r.expect("_full");
  c.problem.v_transposed = r.take("_vt");
  if (r.take("_bs")) c.problem.scale_rows = r.number("scale rows");
  r.expect("__q");
  int rows = r.number("tile_q");
  if (rows % 64) r.fail("a tile_q that is a multiple of 64");
  c.plan.warpgroups = rows / 64;
  r.expect("_kv");
  c.plan.tile_kv = r.number("tile_kv");
  r.expect("_s");
  c.plan.kv_stages = r.number("stages");
  if (r.take("_vs")) c.plan.v_stages = r.number("v stages");
  if (r.take("_qs")) c.plan.q_stages = r.number("q stages");
  if (r.take("_vw")) c.plan.transposers = r.number("transposing warps");
  c.plan.v_background = r.take("_vb");
  r.expect("__");
  c.plan.schedule = r.word();
  c.plan.ping_pong = r.take("_pp");
  if (r.take("_plain")) {
    c.plan.softmax = Softmax::plain;
  } else if (r.take("_guarded")) {
    c.plan.softmax = Softmax::guarded;
    c.plan.guard_blocks = r.number("guard blocks");
  } else {
    r.expect("_lazy");
    c.plan.softmax = Softmax::lazy;
    c.plan.lazy_threshold_log2 = r.number("threshold");
  }
  if (r.take("_fast")) c.plan.direct_of_16 = r.number("direct words of 16");
  if (r.take("_chord")) c.plan.chord_of_16 = r.number("chord words of 16");
  c.plan.p_sums = r.take("_psum");
  c.plan.dynamic_tiles = r.take("_dyn");
  c.plan.o_own_buffer = r.take("_ob");
  c.plan.late_store = r.take("_late");
  c.plan.pin_exp = r.take("_pin");
  c.plan.two_level = r.take("_two");
  if (r.take("_fold")) c.plan.fold_blocks = r.number("blocks between folds");
  c.plan.symmetric = r.take("_sym");
  c.plan.split_tail = r.take("_tail");
  if (r.take("_c")) c.plan.cluster = r.number("CTAs of a cluster");
  if (r.take("_x")) c.plan.teams = r.number("teams of a CTA");
  c.plan.trace = r.take("_tracefew") ? Marks::few : r.take("_trace") ? Marks::all : Marks::off;
  if (r.at != name.size()) r.fail("the end");
  if (!r.error.empty()) {
    if (error) *error = r.error;
    return false;
  }
  *out = c;
  return true;
}

EmittedKernel emit(const KernelConfig& config) {
  return config.plan.symmetric ? gen::emit_attention_symmetric(config) : gen::emit_attention_forward(config);
}

// Full: 384 keys. RMS error over plain's by 3.3 % at 1k keys, 4.7 at 2k, 3.5 at 8k and 2.7 at 16k with three blocks of 128, by 2.0 and 4.1 % at 1k and
// 2k with four, 4.8 and 5.3 with two, and by what chord words add. Causal rows take the maximum of their diagonal's block anyway and see half of
// the keys on average: with one block more the error is - 1 to + 3 % of FlashAttention-3's, and speed over three + 2 to 3.5 % at 1k and 2k,
// 1 to 2 % at 4k and 8k, 0 to 1.6 % at 16k (tools/bench/results/causal_one_check_e4m3_h200.csv, tile_crossing_h200.csv). With sums of P as rounded, full, over
// FlashAttention-3's at 1k, 2k and 4k: three blocks 5.5, 6.1 and 5.5 % (head_dim 128, four chord words), six 2.0, 4.4 and 4.6 %; 64 with six chord words 6.4, 6.7, 6.1 and 2.7, 4.9, 5.2 %;
// beyond 8k one gives 3.0 to 3.8 % (p_sums_e4m3_h200.csv).
int checked_blocks(int tile_kv, bool all_keys, bool p_sums) {
  const int keys = p_sums ? 768 : 384;
  return all_keys ? std::max(3, keys / tile_kv) : 1;
}

// What each value of a plan gives alone, in % of speed: pairs of kernels of one tuning run that differ in nothing else (bf16, H200, in turns,
// tools/bench/results/tune_bf16_h200.csv), and what was to be expected.
//   schedule "overlap": a warpgroup's softmax under its own P V, where "serial" hides only what the other warpgroup's products cover. The paper's ablation (f16,
//     batch 4, 8448, 16 heads; ladder_h200.csv), TFLOP/s and the paper's: all three techniques 729 (661), no overlap 592 (582), no producer warp 678 (570), no token 706.
//   ping_pong: full, head_dim 64 + 2.8 to 3.5 up to 2k (eight_stages_h200.csv), 128 - 0.8 at 512 and - 0.5 at 2k, 256 at 512 - 0.7 and - 0.9. Causal warpgroups end at
//     diagonals of their own and had better wait for nobody: - 0.1 to - 5.9 up to 4k (256 at 4k + 0.3 and + 3.4), + 0.4 to 0.7 from 8k.
//   dynamic_tiles: full, where tiles are alike, nothing expected: 0 within 0.2, but - 1.6 (128, 2k) and + 1.3 (256, 4k). Causal: heaviest first, always.
//   kv_stages 3 to 4: full 0 to + 1.1, causal + 0.2 to 2.2. Eight: + 0.2 to 0.7 at head_dim 64 up to 2k.
//   o_own_buffer: frees Q a store earlier, for shared memory that a stage might have: - 0.9 to + 0.7; it is what late_store and an early Q need.
//   pin_exp: ptxas puts exponentials behind the wait for P V; held in front they should hide under it. + 0.1 to - 0.7, once - 3.4.
//   softmax guarded: spares most trips 16 three-way maxima, shuffles, a vote and 32 products of O by alpha (head_dim 64, a thread's share of 64 x 64), where issue slots
//     and the register file bind: + 4 to 22 against the best kernel that takes the maximum, 128 0 to 22, 256 1 to 6 (equal_error_bf16_h200.csv).
// late_store, split_tail, cluster, an early Q: where they are emitted.
//
// Shapes by head dimension; the figures are TFLOP/s of bf16 at 16k / 4k / 1k keys on an H200, interleaved, from tuning
// runs with different clocks: compare inside a line only. tools/bench/results/ has the runs beside the peers.
Plan standard_plan(const ProblemClass& problem, bool short_rows) {
  Plan p;
  p.softmax = Softmax::guarded;  // d=64: 606 / 586 / 529 against lazy's 555 / 542 / 503 and plain's 474 / 468 / 440
  p.dynamic_tiles = problem.mask == Mask::causal;
  int d = std::max(problem.head_dim, problem.head_dim_v);
  if (problem.eight_bit()) {
    // Figures are TFLOP/s of `flashptx tune` (tools/bench/results/tune_e4m3_h200.csv), V^T's pass counted; this plan is within some
    // percent of the best from about 8k on. host/select_table.inc has the best for each length.
    p.o_own_buffer = true, p.tile_kv = 128, p.p_sums = d <= 128 && problem.scale_rows == 0;
    p.guard_blocks = checked_blocks(p.tile_kv, problem.mask == Mask::full, p.p_sums);
    if (d <= 128) {
      // Three warpgroups hide each other's softmax, so that none needs the registers of an overlap inside; at head_dim 64
      // there is room for it. Full too draws its tiles: 192 rows divide few lengths, the last tile of a head is short,
      // and dealt out in order all short ones may go to the same CTAs (1k to 4k: 2 to 9 % at head_dim 64, up to 3 at 128).
      p.dynamic_tiles = true;
      p.warpgroups = 3, p.q_stages = 2;
      if (p.p_sums && d <= 64) {
        p.schedule = "trailing", p.kv_stages = problem.v_transposed ? 3 : 2, p.ping_pong = false;
      } else if (d <= 64) {  // 684 at 8k; with the token and P V over the back edge 667
        p.schedule = "overlap", p.kv_stages = 3, p.ping_pong = false;
      } else {  // 1008 and, with V^T, 1034 at 8k
        p.schedule = "serial", p.kv_stages = problem.v_transposed ? 3 : 2;
      }
      // Eight groups of scales a block and the registers of 192 rows do not fit by one word.
      if (d > 64 && problem.scale_rows == 16) p.warpgroups = 2;
      // Where the special-function units bind: + 2 to 8 % from 2k on (gen/tile/exp_direct.cpp).
      if (problem.scale_rows == 0 || problem.scale_rows == 128) p.chord_of_16 = d <= 64 ? 6 : 4;
      if (p.p_sums && problem.mask == Mask::causal) p.chord_of_16 = 8;
    } else if (problem.v_transposed) {  // by a pass of its own, faster from 1k rows on (host/select.cpp): 1317 at 8k
      p.warpgroups = 2, p.kv_stages = 2, p.q_stages = 2, p.schedule = "overlap";
      if (problem.scale_rows != 0 && problem.scale_rows <= 32) p.schedule = "serial";  // overlap: spills
    } else {  // 1101 at 8k; overlap 1010
      p.warpgroups = 2, p.kv_stages = 2, p.schedule = "trailing";
      if (problem.scale_rows != 0) p.schedule = "serial";
    }
    return p;
  }
  // RMS error over plain at 1k keys: 4.6 % with two blocks at d=64 (5.2 % with one), 4.5 to 4.7 % with one above.
  p.guard_blocks = d <= 64 ? 2 : 1;
  if (d <= 64) {  // four small warpgroups: exp binds, and more of them keep the MUFU busy (eight stages: + 0.2 to 0.4 % full to
                  // 1k, 0.5 to 0.7 % causal to 2k, where the host takes them: tools/bench/results/eight_stages_h200.csv)
    p.warpgroups = 4, p.tile_kv = 64, p.kv_stages = 4, p.q_stages = 2, p.o_own_buffer = true;
    if (short_rows) p.ping_pong = false;  // causal, 430 at 1k where the token gives 425
  } else if (d <= 128 && short_rows && problem.mask == Mask::full) {  // 693 at 1k where 192 x 64 gives less than 684
    p.warpgroups = 2, p.tile_kv = 128, p.kv_stages = 2, p.q_stages = 2, p.schedule = "trailing";
  } else if (d <= 128) {  // 746 / 713 / 599
    p.warpgroups = 3, p.tile_kv = 64, p.kv_stages = 3, p.q_stages = 2;
    // Causal warpgroups end at diagonals of their own: waiting for a turn costs 4 % at 1k and 7 % at 4k.
    if (short_rows) p.kv_stages = 4, p.ping_pong = false;
  } else if (d <= 192 && problem.head_dim_v <= 128) {  // (192, 128), in turns, 16k / 4k / 1k: 742 / 720 / 689, 128 x 80 712 / 697 / 675
    p.warpgroups = 2, p.tile_kv = 128, p.kv_stages = 2, p.schedule = "trailing";
    if (problem.mask == Mask::causal)  // 706 / 668 / 481; trailing 128 x 128 707 / 668 / 470, 128 x 80 690 / 645 / 468
      p.tile_kv = 96, p.q_stages = 2, p.schedule = "overlap";
  } else if (d <= 192) {  // 731 / 733 / 703, causal 731 / 653 / 464; with O in a buffer of its own 1.5 % less at 1k
    p.warpgroups = 2, p.tile_kv = 80, p.kv_stages = 2, p.q_stages = 2;
  } else {  // O takes 128 of 240 registers; 848 / 707 / 638
    p.warpgroups = 2, p.tile_kv = 64, p.kv_stages = 2, p.o_own_buffer = true;
  }
  // O staged on Q's slice must fit there.
  if ((problem.head_dim_v + 63) / 64 > (problem.head_dim + 63) / 64) p.o_own_buffer = true;
  return p;
}

Plan long_keys_plan(const ProblemClass& problem, const Plan& plan) {
  if (plan.transposers > 3 || plan.tile_kv < 128) return long_keys_plan(problem, standard_plan(problem));  // spill
  KernelConfig c{problem, plan};
  c.plan.fold_blocks = std::max(2, 2048 / plan.tile_kv);  // 2048 keys: 3 % in the worst case
  if (plan.p_sums) c.plan.guard_blocks = std::min(plan.guard_blocks, checked_blocks(plan.tile_kv, true));
  const int d = std::max(problem.head_dim, problem.head_dim_v);
  // Spills otherwise (ptxas 13.0: 12 and 44 bytes at 128 and 112, 20 to 80 at 240; at 128 with 8 chord words, causal with 6).
  if (d > 64) c.plan.v_stages = 0;
  if (d > 64 && d <= 128 && !plan.p_sums) c.plan.ping_pong = true, c.plan.chord_of_16 = std::min(problem.scale_rows ? 0 : problem.mask == Mask::full ? 6 : 4, plan.chord_of_16);
  if (d > 128 && d % 64 != 0) c.plan.schedule = "serial";
  if (d > 96 && d < 128 && problem.scale_rows && !problem.v_transposed) c.plan.q_stages = 1;  // 4 bytes
  if (gen::check_forward(c).empty()) return c.plan;
  c.plan.q_stages = 1;  // all of O may fit beside one Q
  if (gen::check_forward(c).empty()) return c.plan;
  Plan p = standard_plan(problem);
  p.chord_of_16 = 0;
  p.p_sums = false;
  p.two_level = true;
  p.schedule = "serial";  // a block's product then lives in S's registers
  p.ping_pong = true;     // and the token is worth its waits: no product overlaps inside a warpgroup
  return p;
}
Plan long_keys_plan(const ProblemClass& problem) { return long_keys_plan(problem, standard_plan(problem)); }

Plan fast_plan(const ProblemClass& problem, const Plan& plan) {
  KernelConfig c{problem, plan};
  if (plan.softmax != Softmax::guarded) c.plan.softmax = Softmax::guarded, c.plan.guard_blocks = 3;
  c.plan.chord_of_16 = 0;
  c.plan.direct_of_16 = problem.mask == Mask::causal || plan.tile_kv % 128 ? fast_words_causal : fast_words;
  if (plan.fold_blocks && std::max(problem.head_dim, problem.head_dim_v) <= 64) c.plan.direct_of_16 = fast_words, c.plan.chord_of_16 = 16 - fast_words;
  for (const bool sums : {true, plan.p_sums}) {
    c.plan.p_sums = sums;
    if (!plan.two_level && gen::check_forward(c).empty()) return c.plan;
  }
  return plan;
}

std::vector<KernelConfig> catalog() {
  std::vector<KernelConfig> out;
  for (DataType dtype : {DataType::bf16, DataType::f16})
    for (int d : {64, 128, 256})
      for (Mask mask : {Mask::full, Mask::causal}) {
        KernelConfig c;
        c.problem = {dtype, d, d, mask};
        c.plan = standard_plan(c.problem);
        out.push_back(c);
        c.plan = standard_plan(c.problem, true);
        if (c.name() != out.back().name() && (d > 64 || mask == Mask::causal)) out.push_back(c);
      }
  for (int d : {64, 128, 256})
    for (Mask mask : {Mask::full, Mask::causal})
      for (bool v_transposed : {false, true}) {
        KernelConfig c;
        c.problem = {DataType::e4m3, d, d, mask};
        c.problem.v_transposed = v_transposed;
        c.plan = standard_plan(c.problem);
        out.push_back(c);
        if (v_transposed) {
          c.plan = long_keys_plan(c.problem);
          out.push_back(c);
        }
      }
  KernelConfig fast;
  fast.problem = {DataType::e4m3, 128, 128, Mask::full};
  fast.problem.v_transposed = true;
  fast.plan = fast_plan(fast.problem, standard_plan(fast.problem));
  out.push_back(fast);
  // Tiles of the last wave cut along the keys, in 16 and in 8 bits.
  for (const KernelConfig& whole : std::vector<KernelConfig>(out))
    if (whole.problem.head_dim == 128 && whole.problem.mask == Mask::full &&
        (whole.problem.dtype == DataType::bf16 ? whole.plan.warpgroups == 3 : whole.plan.fold_blocks != 0)) {
      out.push_back(whole);
      out.back().plan.split_tail = true;
    }
  // Rows up to 2k at head_dim 64 (host/select_table.inc).
  for (const char* measured : {"attn_fwd_bf16_d64_full__q256_kv64_s8_qs2__overlap_pp_guarded2_ob_late",
                               "attn_fwd_bf16_d64_causal__q128_kv64_s4_qs2__overlap_guarded2_dyn_ob_late_x2",
                               "attn_fwd_e4m3_d64_causal__q256_kv64_s4_qs2__trailing_guarded1_chord4_dyn_ob"}) {
    KernelConfig c;
    KernelConfig::parse(measured, &c, nullptr);
    out.push_back(c);
  }
  // The same computation with a plain softmax and two warpgroups: the one to read first.
  KernelConfig simple;
  simple.plan.softmax = Softmax::plain;
  out.push_back(simple);
  return out;
}

}  // namespace flashptx
