// P without exponentials, 8 bit, guarded softmax: chord words (Plan::chord_of_16, the default at head_dim up to 128) and
// direct words (Plan::direct_of_16, fast mode).
//
// Chords. The bits of a float, as an integer, are linear in its exponent: 1024 y read as the bits of an f16 is a chord of
// 2^y from power of two to power of two, up to 6 % above it. The mean of two that lie half an octave apart (496 of 1024,
// weights 0.57 and 0.43, so placed that 2^x is met exactly at every whole x: the largest key of a row has x = 8) is within
// -1.6 and + 1.1 % of 2^x, RMS 0.55 %; rounding to e4m3 is 2.6 %. n = round(64 x + 889) by one fma and
// cvt.rn.relu.f16x2.f32 (in units of 2^-24, f16's subnormals, as below), 16 n is one chord, 16 n + 496 the other,
// fma.rn.ftz.f16x2 their mean, 0 at n = 0; cvt makes e4m3 of it. p of 2^16 or more is no number of f16: the sum shows it,
// or bits of n beyond 2047; the tile is done again. RMS error over the kernel's without them, H200, normal data: 4 words of
// 16 0.6 %, 6 0.9 %, 8 1.1 %, 16 on the emulator 2 %.
// Predicted for 6 words: MUFU 1280 of 2048 clocks a trip of 192 x 128 (below), bound by it no more; ALU 750. Measured in
// turns (tools/bench/results/chord_words_e4m3_h200.csv): head_dim 64 full + 5 to 8 % from 4k on, causal 2 to 6 %, 128
// causal 2 to 4 %, full at 16k 6 %; 4 words gain nothing at 64, 8 about as much as 6 (not paced, below, 1 to 3 % more than 6 that are). More than 8, and head_dim 256, were measured
// with the form below alone: 16 lose at 64 and 128 (the ALU then binds), at 256 nothing is gained (the tensor cores do).
// Tried and dropped (tools/bench/results/chord_forms_e4m3_h200.csv): the product of two chords of x / 2 (RMS 1.1 % for the same
// instructions), 2^e (2 + m^2) / 3 of 2^x = 2^e m's chord (0.37 %, two LOP3 more a pair, which run at half rate beside wgmma:
// no gain left but 2 to 4 % at 64).
// ptxas puts every other word in front of the first ex2, so that they do not overlap (with 8 words of the product 370 clocks by stall
// counts in place of 500 once they do): a word's offset is therefore made to depend on the sums of the exact word before it (`paced`).
//
// Direct words. e4m3's bits, read as an integer, are close to 8 (log2 p + 7): exact at powers of two, linear between them. With
// x = S c - mc + offset, n = round(8 (x + 7 - kBias)) clamped at 0 *is* the code. One fma gives n in units of 2^-24, the step of f16's
// subnormals, so that cvt.rn.relu.f16x2.f32 rounds, clamps and leaves the codes of two keys in the halves of a
// register; prmt takes four of them as a word of P. Shifted left by 7 a code is the f16 of p * 2^-8 (e4m3's bias is 7, f16's
// 15, subnormals included): add.f16x2 sums exactly what the tensor cores multiply, numerator and denominator agree.
//
// Linear between powers of two is up to 6 % above 2^x; kBias takes the mean of that away, so that direct and exact words weigh
// the same. It stays below 1/16, so that the largest key of a row (x = 8) still gets its exact code. RMS error over
// plain's in float64 on normal data, 1k keys: 4 words of 16 1.05, 6 1.07, 8 1.09, 10 1.12, 12 1.14, 16 1.18 times
// (without the bias 16: 1.30), a little less at 8k. Kernels on the emulator: 4 1.02 to 1.07, 12 1.15 to 1.19, 16 1.24.
//
// Nothing wraps unseen: above 2^11 the conversion counts in f16 numbers, still monotone, to infinity. Codes from 128 on show in
// the bits that an OR over all codes has beyond 7; those from 121 to 127 make the f16 sum more than 256. Either sends the warp to
// rescale_block, with p from the codes (decode_all), which then follow from what is left of p. A p that overflows fp32 there
// makes the sum infinite, the tile is done again. Below a true maximum no code exceeds 120.
//
// Per word of 4 elements, warp instructions (ALU runs at half rate beside wgmma, MUFU at 3/4; clocks of a quarter SM; SASS of
// ptxas 13.0, which makes shl an imad on the FMA pipe):
//   exact:  4 fma, 4 ex2, 4 add, 2 cvt                    MUFU 43, ALU  8, FMA pipe 8
//   direct: 4 fma, 2 cvt, 2 imad, 2 add, 1 lop3, 1 prmt    MUFU  0, ALU 16, FMA pipe 8
//   chord:  4 fma, 4 cvt, 2 imad, 2 viadd, 2 hfma2, 2 hadd2, 1 lop3  MUFU 0, ALU 28, FMA pipe 16
// A trip of 192 x 128 has 48 words, of 128 x 128 32; predicted MUFU / ALU clocks of 192 x 128 by words of 16: 0: 2048 / 384,
// 4: 1536 / 480, 8: 1024 / 576, 12: 512 / 672, 16: 0 / 768, beside 768 tensor clocks at head_dim 64 and 1536 at 128.
// From them 1050 TFLOP/s at head_dim 64 and 1310 at 128 were predicted for 16k keys and 12 words. Measured on an H200, in turns,
// words of 16 (tools/bench/results/fast_in_turns_h200.csv): 64: 0 671, 4 720, 8 805, 12 841, 16 853; 128: 0 976, 4 1025, 6 1064, 12 1117,
// 14 1138; 256: 0 1262, 12 1339. After a rest, 12 words: 862, 1219, 1469; 14 and paced: 876, 1270, 1467. RMS error over FlashAttention-3's there: 4 1.07, 8 1.12, 12 1.17,
// 14 1.19, 16 1.22. What keeps it from the prediction has not been traced.
// Next: softmax.cpp (rescale_block), pack_p_e4m3 there for the order of the bytes.
#include <array>

#include "gen/tile/forward_context.h"

namespace flashptx::gen {
namespace {

constexpr float kBias = 0.055f;       // log2 units
constexpr float kCodeUnit = 0x1p-21f; // 8 codes a log2 unit, 2^-24 each

// Chord words: n = round(64 x + kShift), in f16's subnormal steps.
constexpr float kSteps = 64.0f;
constexpr int kTopStep = 1401;                 // n of x = 8
constexpr float kShift = kTopStep - 8 * 64;    // 889: n = 0 is x = -13.9
constexpr std::uint32_t kHalfOctave = 496;     // of f16's bits, 1024 an octave
constexpr std::uint32_t kWeight = 0x3a23;      // f16: 0.767

enum class Word { exact, direct, chord };
using PairOffsets = std::array<Reg, 2>;  // by pair of a word's elements

// Of a thread's words of P (16 keys of one row each), spread over columns; the rows' columns differ.
Word kind_of(ForwardContext& f, int word) {
  const Plan& plan = f.config.plan;
  const int saved = plan.direct_of_16 ? plan.direct_of_16 : plan.chord_of_16;
  const int half = saved / 2, row = word % 2;  // of 8 words a row
  const int at = word / 2 + row * (half == 0 ? 0 : half < 4 ? 4 / half : 1);
  const bool picked = (at + 1) * half / 8 != at * half / 8;
  if (plan.direct_of_16 && plan.chord_of_16) return picked ? Word::direct : Word::chord;
  return !picked ? Word::exact : plan.direct_of_16 ? Word::direct : Word::chord;
}

// visit(word, first element, kind, register): the word's elements are first, first + 1, first + 4, first + 5; its register
// the first of its two in p_direct or p_chord.
template <class F>
void for_words(ForwardContext& f, F&& visit) {
  int codes = 0, chords = 0;
  for (int word = 0; word < f.p.size(); ++word) {
    const int first = 16 * (word / 4) + 8 * (word / 2 % 2) + 2 * (word % 2);
    const Word kind = kind_of(f, word);
    visit(word, first, kind, kind == Word::direct ? codes : kind == Word::chord ? chords : -1);
    if (kind == Word::direct) codes += 2;
    if (kind == Word::chord) chords += 2;
  }
}

// In the rare branch: p of every element without an exponential into S's registers. Direct: the value that its code has and that
// the sums of other blocks got for it. From 1080 on, 2^128, infinity.
void decode_all(ForwardContext& f) {
  Kernel& k = f.k;
  k.comment("p of the codes");
  k.scope([&] {
    Vec half = k.b16("p_half", 2);
    Reg code = k.b32("code"), bits = k.b32("code_bits"), subnormal = k.f32("subnormal"), is_small = k.pred("is_subnormal");
    for_words(f, [&](int, int first, Word kind, int codes) {
      for (int i = 0; i < 4 && kind == Word::chord; ++i) {
        if (i % 2 == 0) k.mov_b32(half.all(), f.p_chord[codes + i / 2]);
        k.cvt_f32_f16(f.s_acc[first + 4 * (i / 2) + i % 2], half[i % 2]);
      }
      for (int i = 0; i < 4 && kind == Word::direct; ++i) {
        const Reg p = f.s_acc[first + 4 * (i / 2) + i % 2], pair = f.p_direct[codes + i / 2];
        if (i % 2) k.shr_u32(code, pair, 16);
        else k.and_b32(code, pair, hex(0xffff));
        k.min_u32(code, code, 1080);
        k.shl_b32(bits, code, 20);
        k.add_u32(bits, bits, hex(0x3c000000));
        k.emit("mov.b32", {p, bits}, Location::current());
        k.fma_rn_f32(subnormal, p, f32_imm(2.0f), f32_imm(-0x1p-6f));
        k.setp("lt", "u32", is_small, code, 8);
        k.mov_f32(p, subnormal).when(is_small);
      }
    });
  });
}

struct Sums {
  Vec exact;   // two a row
  Vec direct;  // f16x2, one a row: p * 2^-8
  Vec chord;   // f16x2, one a row
  Reg codes;   // OR of all codes
  Reg steps;   // OR of all n
};

void direct_word(ForwardContext& f, const Sums& s, int r, int first, int codes, const Reg& c, const PairOffsets& offset, bool* started) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg p = k.b32("p_f16x2");
    for (int pair = 0; pair < 2; ++pair) {
      const Reg low = f.s_acc[first + 4 * pair], high = f.s_acc[first + 4 * pair + 1], to = f.p_direct[codes + pair];
      k.fma_rn_ftz_f32(low, low, c, offset[pair]);
      k.fma_rn_ftz_f32(high, high, c, offset[pair]);
      k.cvt_rn_relu_x2_f32("f16", to, high, low);
      if (f.sums_p()) continue;
      k.shl_b32(p, to, 7);
      if (started[r]) k.add_f16x2(s.direct[r], s.direct[r], p);
      else k.mov_b32(s.direct[r], p);
      started[r] = true;
    }
    if (codes) {
      k.or_b32(s.codes, s.codes, f.p_direct[codes]);
      k.or_b32(s.codes, s.codes, f.p_direct[codes + 1]);
    } else {
      k.or_b32(s.codes, f.p_direct[0], f.p_direct[1]);
    }
  });
}

void chord_word(ForwardContext& f, const Sums& s, int r, int first, int at, const Reg& c, const PairOffsets& offset, bool* started) {
  Kernel& k = f.k;
  k.scope([&] {
    Vec n = k.b32("steps", 2);
    Reg chord = k.b32("chord"), later = k.b32("half_an_octave_on"), weight = k.b32("chord_weight");
    for (int pair = 0; pair < 2; ++pair) {
      const Reg x = f.s_acc[first + 4 * pair], y = f.s_acc[first + 4 * pair + 1], p = f.p_chord[at + pair];
      k.fma_rn_ftz_f32(x, x, c, offset[pair]);
      k.fma_rn_ftz_f32(y, y, c, offset[pair]);
      k.cvt_rn_relu_x2_f32("f16", n[pair], y, x);
      k.shl_b32(chord, n[pair], 4).note("f16 of a chord of 2^x");
      k.add_u32(later, chord, hex(kHalfOctave * 0x10001u));
      k.mov_b32(weight, hex(kWeight * 0x10001u));
      k.fma_rn_ftz_f16x2(p, later, weight, chord).note("0 at n = 0");
      if (f.sums_p()) continue;
      if (started[r]) k.add_f16x2(s.chord[r], s.chord[r], p);
      else k.mov_b32(s.chord[r], p);
      started[r] = true;
    }
    if (at) {
      k.or_b32(s.steps, s.steps, n[0]);
      k.or_b32(s.steps, s.steps, n[1]);
    } else {
      k.or_b32(s.steps, n[0], n[1]);
    }
  });
}

// P by words and their sums: sum[r] of this thread's columns.
void exp_and_sum(ForwardContext& f, const Sums& s, const Vec& sum) {
  Kernel& k = f.k;
  k.scope([&] {
    // One factor serves both rows, but with scales by blocks.
    const Plan& plan = f.config.plan;
    const std::size_t factors = f.scales_blocks() ? 2 : 1;
    const auto factor = [&](int r) { return f.scales_blocks() ? f.qk_scale[r] : f.scale_log2; };
    Reg low = k.f32("low_sum"), high = k.f32("high_sum");
    Vec half = k.b16("sum_half", 2);
    Vec exact_offset = f.exp_offset;
    if (f.scales_blocks()) {
      exact_offset = k.f32("block_offset", 2);
      for (int r = 0; r < 2; ++r) k.add_f32(exact_offset[r], f.exp_offset[r], f.v_shift);
    }
    struct Units { std::vector<Reg> scale; Vec offset; } code, step;
    const auto units = [&](Units& to, const std::string& name, float unit, float shift) {
      to.scale = k.f32(name + "_scale", static_cast<int>(factors)).all(), to.offset = k.f32(name + "_offset", 2);
      for (std::size_t r = 0; r < factors; ++r) {
        k.mul_ftz_f32(to.scale[r], factor(static_cast<int>(r)), f32_imm(unit));
        k.max_f32(to.scale[r], to.scale[r], f32_imm(1.17549435e-38f)).note(r ? "" : "-inf (a masked score) times 0 would be NaN");
      }
      for (int r = 0; r < 2; ++r) k.fma_rn_f32(to.offset[r], exact_offset[r], f32_imm(unit), f32_imm(shift * unit));
    };
    if (f.direct_words()) units(code, "code", kCodeUnit, 7 - kBias);
    if (f.chord_words()) units(step, "step", kSteps * 0x1p-24f, kShift / kSteps);
    bool exact_started[4] = {}, direct_started[2] = {}, chord_started[2] = {};
    // ptxas would issue all other words before the first ex2. So that both go on side by side, each pair of keys waits for half of
    // the exact word before it, through its offset: 0 x is not 0 for every x, and nobody may leave it out.
    // Not where the tensor cores bind, head_dim above 128: there the registers are wanted (spills with folding). Nor with 8 and more chord words, or with 4 of
    // a wide head: then ptxas does better alone (tools/bench/results/branches_and_looks_h200.csv, run 3: 8 words at head_dim 64 full + 4 to 8 %, past 6 paced ones by 2 to 3; 4 at
    // 128 - 1 to + 3 %; but 6 words at 64 and 128 - 1 to - 4).
    const bool never_paced = !f.direct_words() && (plan.chord_of_16 >= 8 || (f.dv() > 64 && plan.chord_of_16 <= 4));
    int paced_by = -1;
    const auto paced = [&](const Reg& offset) {
      PairOffsets own{offset, offset};
      if (paced_by < 0 || f.dv() > 128 || never_paced || f.sums_p()) return own;
      for (int pair = 0; pair < 2; ++pair) {
        own[pair] = k.f32("paced_offset" + std::to_string(pair));
        k.fma_rn_ftz_f32(own[pair], s.exact[2 * paced_by + pair], f32_imm(0.0f), offset);
      }
      return own;
    };
    for_words(f, [&](int word, int first, Word kind, int at) {
      const int r = word % 2;
      const std::size_t of = factors == 2 ? static_cast<std::size_t>(r) : 0;
      if (kind != Word::exact) {
        k.scope([&] {
          const PairOffsets own = paced(kind == Word::direct ? code.offset[r] : step.offset[r]);
          if (kind == Word::direct) direct_word(f, s, r, first, at, code.scale[of], own, direct_started);
          else chord_word(f, s, r, first, at, step.scale[of], own, chord_started);
        });
        return;
      }
      paced_by = r;
      for (int i : {first, first + 1, first + 4, first + 5}) {
        const int chain = 2 * r + i % 2;
        k.fma_rn_ftz_f32(f.s_acc[i], f.s_acc[i], factor(r), exact_offset[r]);
        k.ex2_approx_ftz_f32(f.s_acc[i], f.s_acc[i]);
        if (f.sums_p()) continue;
        if (exact_started[chain]) k.add_ftz_f32(s.exact[chain], s.exact[chain], f.s_acc[i]);
        else k.mov_f32(s.exact[chain], f.s_acc[i]);
        exact_started[chain] = true;
      }
    });
    for (int r = 0; r < 2 && !f.sums_p(); ++r) {
      bool started = exact_started[2 * r];
      if (started) k.add_ftz_f32(sum[r], s.exact[2 * r], s.exact[2 * r + 1]);
      const auto add_halves = [&](const Reg& pair, float unit, const std::string& note) {
        k.mov_b32(half.all(), pair);
        k.cvt_f32_f16(low, half[0]);
        k.cvt_f32_f16(high, half[1]);
        k.add_ftz_f32(low, low, high);
        if (started) k.fma_rn_ftz_f32(sum[r], low, f32_imm(unit), sum[r]).note(note);
        else k.mul_ftz_f32(sum[r], low, f32_imm(unit)).note(note);
        started = true;
      };
      if (direct_started[r]) add_halves(s.direct[r], 256.0f, "f16 held p * 2^-8");
      if (chord_started[r]) add_halves(s.chord[r], 1.0f, "");
    }
  });
}

}  // namespace

namespace {

void sum_elements(ForwardContext& f, const Reg& to, int r) {
  std::vector<Reg> row = row_elements(f, r);
  f.k.add_ftz_f32(to, row[0], row[1]);
  for (std::size_t i = 2; i < row.size(); ++i) f.k.add_ftz_f32(to, to, row[i]);
}

}  // namespace

void emit_decode_words(ForwardContext& f, const Vec& sum) {
  decode_all(f);
  for (int r = 0; r < 2; ++r) sum_elements(f, sum[r], r);
}

// Back to codes, rounded as exact elements are.
void emit_encode_words(ForwardContext& f) {
  Kernel& k = f.k;
  k.comment("codes of the scaled p");
  k.scope([&] {
    Reg half = k.b16("two_codes"), zero = k.b16("no_codes");
    k.emit("mov.b16", {zero, 0}, Location::current());
    for_words(f, [&](int, int first, Word kind, int codes) {
      for (int pair = 0; pair < 2 && kind == Word::chord; ++pair)
        k.cvt_rn_x2_f32("f16", f.p_chord[codes + pair], f.s_acc[first + 4 * pair + 1], f.s_acc[first + 4 * pair]);
      for (int pair = 0; pair < 2 && kind == Word::direct; ++pair) {
        const Reg to = f.p_direct[codes + pair];
        k.cvt_rn_satfinite_fp8x2_f32("e4m3", half, f.s_acc[first + 4 * pair + 1], f.s_acc[first + 4 * pair]);
        k.mov_b32(to, std::vector<Reg>{half, zero});
        k.prmt_b32(to, to, 0, hex(0x4140)).note("a code in each half");
      }
    });
  });
}

void emit_exp_sum_direct(ForwardContext& f, bool first) {
  Kernel& k = f.k;
  k.scope([&] {
    Sums s;
    if (f.sums_p()) {
      Reg over = k.pred("over");
      const auto past_range = [&](const Reg& seen, std::uint32_t bits, const std::string& why) {
        k.and_b32(seen, seen, hex(bits));
        k.setp("ne", "u32", over, seen, 0).note(why);
        k.mov_f32(f.worst_sum, f32_imm(__builtin_inff())).when(over).note("the tile is done again");
      };
      if (f.direct_words()) s.codes = k.b32("all_codes");
      if (f.chord_words()) s.steps = k.b32("all_steps");
      exp_and_sum(f, s, {});
      if (f.direct_words()) past_range(s.codes, 0xff80ff80u, "p of 512 or more: its code is no e4m3");
      if (f.chord_words()) past_range(s.steps, 0xf800f800u, "p of 2^17 or more: no number of f16");
      return;
    }
    s.exact = k.f32("block_sum", 4);
    if (f.direct_words()) s.direct = k.b32("direct_sum", 2), s.codes = k.b32("all_codes");
    if (f.chord_words()) s.chord = k.b32("square_sum", 2), s.steps = k.b32("all_steps");
    Vec sum = k.f32("row_block_sum", 2);
    Reg worst = k.f32("worst"), over = k.pred("over"), also = k.pred("also_over"), free = k.pred("no_maximum");
    exp_and_sum(f, s, sum);
    Reg weight;
    Vec weighted = sum;
    if (f.scales_blocks()) {
      weight = k.f32("sum_weight"), weighted = k.f32("weighted_sum", 2);
      emit_sum_weight(f, weight, 0);
      for (int r = 0; r < 2; ++r) k.mul_ftz_f32(weighted[r], sum[r], weight);
    }
    emit_pack_early(f);
    const auto add_sums = [&] {
      for (int r = 0; r < 2; ++r) {
        if (f.scales_blocks()) k.fma_rn_ftz_f32(f.row_sum[r], sum[r], weight, f.row_sum[r]);
        else k.add_ftz_f32(f.row_sum[r], f.row_sum[r], sum[r]);
      }
    };
    if (first) {  // below a true maximum no p exceeds 256
      add_sums();
      return;
    }
    emit_sums_exceed(f, over, also, worst, sum, weighted);
    if (f.direct_words()) {
      k.and_b32(s.codes, s.codes, hex(0xff80ff80u));
      k.setp("ne", "u32", also, s.codes, 0).note("p of 512 or more: its code is no e4m3, its share of the sum is wrong");
      k.or_pred(over, over, also);
    }
    if (f.chord_words()) {
      k.and_b32(s.steps, s.steps, hex(0xf800f800u));
      k.setp("ne", "u32", also, s.steps, 0).note("p of 2^17 or more: no number of f16");
      k.or_pred(over, over, also);
    }
    k.setp("lt", "s32", free, f.block, f.first_unchecked).note("below a true maximum no p exceeds 256");
    k.and_pred(over, over, free);
    const auto mark_lost = [&] {  // chords past f16
      if (!f.chord_words()) return;
      k.setp("ne", "u32", also, s.steps, 0);
      for (int r = 0; r < 2; ++r) k.mov_f32(sum[r], f32_imm(__builtin_inff())).when(also).note(r ? "" : "the tile is done again");
    };
    k.vote_sync_any_pred(over, over);
    k.if_rare(over, [&] {
      emit_decode_words(f, sum);
      mark_lost();
      rescale_block(f, sum);
      emit_encode_words(f);
      emit_pack_early(f);
    }, "no p can exceed 256");
    add_sums();
  });
}

void emit_pack_p_direct(ForwardContext& f, const Vec& p, int from, int end) {
  Kernel& k = f.k;
  k.scope([&] {
    Vec half = k.b16("p_half", 2);
    for_words(f, [&](int word, int first, Word kind, int at) {
      if (word < from || word >= end) return;
      if (kind == Word::direct) {
        k.prmt_b32(p[word], f.p_direct[at], f.p_direct[at + 1], hex(0x6420));
        return;
      }
      for (int h = 0; h < 2; ++h) {
        const int low = first + 4 * h;
        if (kind == Word::chord) k.cvt_rn_satfinite_fp8x2_f16x2("e4m3", half[h], f.p_chord[at + h]);
        else k.cvt_rn_satfinite_fp8x2_f32("e4m3", half[h], f.s_acc[low + 1], f.s_acc[low]);
      }
      k.mov_b32(p[word], half.all());
    });
  });
}

}  // namespace flashptx::gen
