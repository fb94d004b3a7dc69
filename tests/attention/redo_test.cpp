// The guarded softmax does tiles again whose scores outgrew the blocks that it looked at: forced here.
//
// A key that only unchecked blocks hold exceeds all checked ones by `jump` powers of two, in the tiles that the test
// picks. The line of the text that hands a tile to be redone to the consumers is counted: so many redos took
// place. Results are judged as everywhere. Next: gen/tile/tile_load.cpp (redo_failed), gen/tile/softmax.cpp (emit_guard).
#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "host/emulator/emulator.h"
#include "tests/attention/beds.h"
#include "tests/attention/scores.h"
#include "tests/support.h"

using namespace flashptx;
using test::Bed;

namespace {

struct Kind {
  const char* kernel;
  double below, above;  // jumps in log2 units just inside of the range in which nothing is done again, and outside
  double far;           // past what P, or fp32 in 8 bit, can hold: without the redo the result is wrong
};
// bf16: 2^24 (emit_guard). f16: 2^15. e4m3: what p = 2^(jump + 8) keeps below 2^128 is
// put right block by block, and the 8 may have become less by then (rescale_block).
const Kind kinds[] = {
    {"attn_fwd_bf16_d64_full__q128_kv64_s2_qs2__overlap_pp_guarded1_ob", 23, 25, 140},
    {"attn_fwd_bf16_d64_causal__q128_kv64_s2__overlap_pp_guarded1_dyn", 23, 25, 140},
    {"attn_fwd_bf16_d128_full__q128_kv128_s2_qs2__overlap_guarded1", 23, 25, 140},
    {"attn_fwd_f16_d64_full__q128_kv64_s2__overlap_pp_guarded2", 14, 16, 20},
    {"attn_fwd_f16_d64_causal__q128_kv64_s2_qs2__overlap_pp_guarded1_dyn_ob", 14, 16, 20},
    {"attn_fwd_e4m3_d64_full__q128_kv128_s2__serial_pp_guarded1_ob", 110, 132, 140},
    {"attn_fwd_e4m3_d64_causal__q128_kv128_s2_qs2__trailing_pp_guarded1_dyn_ob", 110, 132, 140},
    {"attn_fwd_e4m3_d64_full_vt__q128_kv128_s2__serial_pp_guarded2_ob", 110, 132, 140},
    {"attn_fwd_e4m3_d64_causal__q128_kv128_s2_qs2__serial_pp_guarded1_dyn_ob_fold2", 110, 132, 140},
    {"attn_fwd_e4m3_d64_full__q128_kv128_s2__serial_pp_guarded1_fast16_ob", 110, 132, 140},
    {"attn_fwd_e4m3_d64_causal_vt__q128_kv128_s2_qs2__trailing_pp_guarded1_fast8_dyn_ob", 110, 132, 140},
    // A p of 2^16 or more by chords is no number of f16.
    {"attn_fwd_e4m3_d64_full__q128_kv128_s2__serial_pp_guarded1_chord16_ob", 6, 20, 140},
    {"attn_fwd_e4m3_d64_causal_vt__q128_kv128_s2_qs2__trailing_pp_guarded1_chord8_dyn_ob", 6, 20, 140},
    // A sum of 440 in a block without a maximum, where P's offset is settled so that the checked ones' is 32 to 64 (gen/tile/p_sums.cpp).
    {"attn_fwd_e4m3_d64_full__q128_kv128_s2__serial_pp_guarded1_psum_ob", 7, 12, 140},
    {"attn_fwd_e4m3_d64_causal__q128_kv128_s2_qs2__trailing_pp_guarded1_chord8_psum_dyn_ob", 7, 12, 140},
    {"attn_fwd_e4m3_d64_full__q256_kv64_s4_qs2__trailing_guarded1_fast8_psum_ob", 7, 12, 140},
    {"attn_fwd_e4m3_d64_causal_vt__q128_kv128_s2_qs2__trailing_guarded1_psum_dyn_ob_fold2", 7, 12, 140},
    {"attn_fwd_e4m3_d64_full_vt__q128_kv128_s2_qs2__trailing_pp_guarded1_chord8_psum_ob_c2", 7, 12, 140},
    // O leaves under the next tile's first block, and so does the note that it failed.
    {"attn_fwd_bf16_d64_full__q128_kv64_s2_qs2__overlap_pp_guarded1_ob_late", 23, 25, 140},
    {"attn_fwd_f16_d64_causal__q128_kv64_s2__overlap_guarded1_dyn_ob_late", 14, 16, 20},
    {"attn_fwd_bf16_d64_full__q128_kv64_s2_qs2__rotated_pp_guarded1_ob_late_tail", 23, 25, 140},
    // V^T written by the kernel itself: a redone tile finds it there.
    {"attn_fwd_e4m3_d64_causal_vt__q128_kv128_s2_qs2_vb__trailing_pp_guarded1_dyn_ob", 110, 132, 140},
    // Cut tiles: a part of one fails, or both; more in split_tail_test.cpp.
    {"attn_fwd_bf16_d64_full__q128_kv64_s2_qs2__overlap_pp_guarded1_ob_tail", 23, 25, 140},
    // Pairs of CTAs: what failed in one is loaded by both.
    {"attn_fwd_bf16_d64_full__q128_kv64_s2_qs2__overlap_pp_guarded1_ob_c2", 23, 25, 140},
    {"attn_fwd_f16_d64_full__q128_kv48_s3__overlap_guarded1_c2", 14, 16, 20},
    {"attn_fwd_e4m3_d64_full_vt__q128_kv128_s2__serial_pp_guarded2_ob_c2", 110, 132, 140},
    // The same with a diagonal: the CTA whose tile did not fail passes over the blocks of the one that did.
    {"attn_fwd_bf16_d64_causal__q128_kv64_s2_qs2__overlap_pp_guarded1_ob_c2", 23, 25, 140},
    {"attn_fwd_bf16_d64_causal__q128_kv64_s2__overlap_pp_guarded1_dyn_c2", 23, 25, 140},
    {"attn_fwd_f16_d64_causal__q128_kv64_s2__overlap_guarded1_dyn_ob_late_c2", 14, 16, 20},
    {"attn_fwd_e4m3_d64_causal_vt__q128_kv128_s2_qs2__trailing_pp_guarded1_dyn_ob_c2", 110, 132, 140},
};

constexpr int tiles_a_head = 2;

// `heads` of two tiles. Row r of a head belongs to its tile r / 128; those of `failing` (numbers head * 2 + tile) meet
// keys that exceed the others by `jump`. Key 7 stands in the block done last.
// `upper_only`: in each 16 rows only the first eight do, so that a thread has one row that jumps and one that does not.
Case jumping(const KernelConfig& config, std::int64_t heads, double jump, const std::set<int>& failing,
             bool upper_only = false) {
  reference::Problem p;
  p.dtype = config.problem.dtype, p.mask = config.problem.mask;
  p.heads_q = p.heads_kv = heads;
  p.head_dim = p.head_dim_v = config.problem.head_dim;
  p.seqlen_q = config.tile_q() + 60;
  p.seqlen_k = 5 * config.plan.tile_kv + 20;
  const int rows = config.tile_q();
  const test::Scores s = test::jumping_scores(&p, jump, [=](std::int64_t head, std::int64_t row) {
    return failing.count(static_cast<int>(head * tiles_a_head + row / rows)) && !(upper_only && row % 16 >= 8);
  });
  return test::scored_case(p, s);
}

struct Redone {
  Outcome outcome;
  std::uint64_t tiles = 0;
};

// `ctas`: CTAs, or pairs of them, that the kernel has at a time.
Bed bed_of(std::uint64_t seed, int ctas, const KernelConfig& c) {
  EmulatorOptions o;
  o.seed = seed, o.adversary_level = seed == 0 ? 0 : seed % 2 ? 2 : 1, o.threads = 1;
  o.multiprocessors = ctas * c.plan.cluster;
  return test::open_bed(DeviceChoice::emulator, o);
}

const std::string& text_of(const KernelConfig& config) {
  static std::map<std::string, std::string> texts;
  std::string& text = texts[config.name()];
  if (text.empty()) text = emit(config).text;
  return text;
}

// `forgets`: the same kernel, but the producer sees no failure.
Redone run(Bed& bed, const KernelConfig& config, const Case& c, bool forgets = false) {
  std::string text = text_of(config);
  ForwardChoice choice;
  choice.kernel = config.name();
  if (forgets) {
    const std::size_t word = text.find("32 %redo, "), at = text.find_last_of("\t ", word) + 1, end = text.find(';', at);
    REQUIRE(at != std::string::npos);
    text.replace(at, end - at, "mov.b32 %redo, 0");
    choice.ptx = text;
  }
  Redone r;
  r.outcome = run_case(*bed.device, *bed.attention, c, choice);
  const std::vector<std::uint64_t> counts = emulator_line_counts(*bed.device);
  std::istringstream lines(text);
  std::size_t number = 0, found = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find("ld.shared::") == std::string::npos || line.find(".v4.") == std::string::npos ||
        line.find("[%redo_at+") == std::string::npos)
      continue;
    ++found;
    if (number < counts.size()) r.tiles += counts[number];  // one elected thread of each CTA
  }
  REQUIRE(found == 1);
  REQUIRE_MESSAGE(r.tiles % static_cast<std::uint64_t>(config.plan.cluster) == 0, r.outcome.complaint());
  r.tiles /= static_cast<std::uint64_t>(config.plan.cluster);  // both CTAs of a pair read the failed tile
  return r;
}

void expect(const Redone& r, std::uint64_t least, std::uint64_t most, const std::string& what) {
  CHECK_MESSAGE(r.outcome.ok(), what, ": ", r.outcome.complaint());
  CHECK_MESSAGE((r.tiles >= least && r.tiles <= most), what, ": ", r.tiles, " tiles were done again");
}

constexpr std::uint64_t seeds[] = {0, 1, 2};

}  // namespace

TEST_SUITE("attention/redo") {
  TEST_CASE("a tile is done again past the range, and not within it") {
    for (const Kind& kind : kinds) {
      const KernelConfig c = test::kernel_named(kind.kernel);
      Bed bed = bed_of(0, 1, c);
      expect(run(bed, c, jumping(c, 2, kind.below, {1})), 0, 0, c.name() + " below");
      expect(run(bed, c, jumping(c, 2, kind.above, {1})), 1, 1, c.name() + " above");
      expect(run(bed, c, jumping(c, 2, kind.far, {0}, true)), 1, 1, c.name() + " one row of a thread");
      for (double jump = kind.below; jump < kind.far; jump += kind.far > 100 && kind.below < 100 ? 13 : 3)
        expect(run(bed, c, jumping(c, 1, jump, {1}, true)), 0, 1, c.name() + " by " + std::to_string(jump));
      expect(run(bed, c, jumping(c, 2, kind.far, {})), 0, 0, c.name() + " no row meets the key");
    }
  }

  TEST_CASE("whichever tile of a CTA fails is done again, under every order") {
    for (const Kind& kind : kinds) {
      const KernelConfig c = test::kernel_named(kind.kernel);
      for (std::uint64_t seed : seeds) {
        Bed bed = bed_of(seed, 1, c);
        for (int tile = static_cast<int>(seed) * 2 + 2 - c.plan.cluster; tile < static_cast<int>(seed) * 2 + 2; ++tile)
          expect(run(bed, c, jumping(c, 3, kind.far, {tile})), 1, 1,
                 c.name() + " seed " + std::to_string(seed) + " tile " + std::to_string(tile));
      }
    }
  }

  // The producer hears of a failure before it publishes the third tile after it, so three are redone at most
  // (kRedoSlots of gen/tile/forward_context.h) and the rest takes every maximum at once.
  TEST_CASE("all tiles of a CTA fail: at most three are done again") {
    for (const Kind& kind : kinds) {
      const KernelConfig c = test::kernel_named(kind.kernel);
      const Case all = jumping(c, 3, kind.far, {0, 1, 2, 3, 4, 5}), late = jumping(c, 3, kind.far, {2, 3, 5});
      std::uint64_t most = 0;
      for (std::uint64_t seed : seeds) {
        const std::string what = c.name() + " seed " + std::to_string(seed);
        Bed one = bed_of(seed, 1, c), three = bed_of(seed, 3, c);
        const Redone r = run(one, c, all);
        const std::uint64_t limit = 3 * static_cast<std::uint64_t>(c.plan.cluster);
        expect(r, 1, limit, what);
        most = std::max(most, r.tiles);
        if (seed == 2) expect(run(three, c, all), 3, 6, what + ", three CTAs");
        expect(run(one, c, late), 1, 3, what + ", some tiles");  // three tiles at most fail
      }
      CHECK_MESSAGE(most > 1, c.name(), ": never more than one");
    }
  }

  TEST_CASE("without the redo these results are wrong") {
    for (const Kind& kind : kinds) {
      const KernelConfig c = test::kernel_named(kind.kernel);
      Bed bed = bed_of(0, 1, c);
      const Redone r = run(bed, c, jumping(c, 2, kind.far, {0}), true);
      CHECK_MESSAGE((r.outcome.status.ok() && !r.outcome.error.ok), c.name(), ": ", r.outcome.status.message);
      CHECK(r.tiles == 0);
    }
  }

  // Rows whose scores fall a little from block to block, beside one that rises: each block scales all of its warp's rows anew, and the falling ones must not be scaled up until O or a sum leaves fp32.
  TEST_CASE("8 bit: rows that fall for long beside one that rises") {
    for (const char* name : {"attn_fwd_e4m3_d64_full__q64_kv64_s2__serial_guarded1_ob", "attn_fwd_e4m3_ve5m2_d64_full__q64_kv64_s2__trailing_guarded1_chord8_ob"})
      for (const auto& [keys, value] : std::vector<std::pair<std::int64_t, double>>{{4096, 1}, {4160, 1}, {4000, 448}}) {
        const KernelConfig c = test::kernel_named(name);
        reference::Problem p;
        p.dtype = c.problem.dtype, p.dtype_v = c.problem.dtype_v, p.heads_q = p.heads_kv = 1, p.head_dim = p.head_dim_v = 64;
        p.seqlen_q = 64, p.seqlen_k = keys, p.scale = std::log(2.0f);
        reference::Tensors t = reference::make_tensors(p, reference::Layout::bshd, reference::Inputs::random, 1);
        for (std::int64_t i = 0; i < p.seqlen_q * 64; ++i) {
          const std::int64_t row = i / 64, d = i % 64;
          reference::store(p.dtype, t.q.data(), i, d < 3 ? row != 20 : d < 5 ? row == 20 : 0);
        }
        for (std::int64_t i = 0; i < keys * 64; ++i) {
          const std::int64_t key = i / 64, d = i % 64;
          const double block = std::floor(static_cast<double>(keys - 1 - key) / 64), falls = -1.875 * block, rises = 3 * block;
          const double high = 16 * std::round(falls / 16), middle = std::round(falls - high), top = 16 * std::round(rises / 16);
          const double columns[] = {high, middle, falls - high - middle, top, rises - top};
          reference::store(p.type_k(), t.k.data(), i, d < 5 ? columns[d] : 0);
          reference::store(p.type_v(), t.v.data(), i, value * (d % 3 ? 1 : 0.5));
        }
        const Case data = make_case(std::move(t), reference::Layout::bshd, true, 0);
        Bed bed = bed_of(0, 2, c);
        ForwardChoice choice;
        choice.kernel = name;
        const Outcome r = run_case(*bed.device, *bed.attention, data, choice);
        CHECK_MESSAGE(r.ok(), std::string(name), " ", keys, " keys: ", r.complaint());
      }
  }

  TEST_CASE("gpu: jumps below, above and far past the range, in one, some and all tiles") {
    Bed& gpu = test::gpu_bed();
    if (!gpu.device) FLASHPTX_SKIP("no GPU: " + gpu.missing);
    for (const Kind& kind : kinds) {
      const KernelConfig c = test::kernel_named(kind.kernel);
      constexpr int heads = 200;  // several tiles a CTA
      std::set<int> every, some;
      for (int t = 0; t < heads * tiles_a_head; ++t) {
        every.insert(t);
        if (t % 5 == 0 || t % 7 < 2) some.insert(t);
      }
      for (double jump : {kind.below, kind.above, kind.far})
        for (const std::set<int>& failing : {std::set<int>{150}, some, every}) {
          const Case data = jumping(c, heads, jump, failing);
          ForwardChoice choice;
          choice.kernel = c.name();
          const Outcome r = run_case(*gpu.device, *gpu.attention, data, choice);
          CHECK_MESSAGE(r.ok(), c.name(), " jump ", jump, ", ", failing.size(), " tiles: ", r.complaint());
        }
    }
  }
}
