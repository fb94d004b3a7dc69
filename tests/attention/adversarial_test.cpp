// Scores that a softmax can get wrong, for every kept softmax and type, on every device there is.
//
// Blocks of keys run from the last to the first: what "rises" there has its largest keys in front. Logits are
// given in nats; 88.7 of them are 2^128, where fp32 ends. Next: redo_test.cpp forces the redo of guarded.
#include <cmath>
#include <sstream>

#include "host/emulator/emulator.h"
#include "tests/attention/beds.h"
#include "tests/attention/scores.h"
#include "tests/support.h"
#include "tools/flashptx/pattern.h"

using namespace flashptx;
using test::Bed;
using test::Scores;

namespace {

struct Adversary {
  const char* name;
  Scores scores;
  float scale = 1;
};

// Logit of a key, the same in every row: 8 of it from Q.
Scores by_key(std::function<double(std::int64_t)> logit, double noise = 0.25) {
  Scores s;
  s.noise = noise;
  s.q0 = [](std::int64_t, std::int64_t) { return 8.0; };
  s.k0 = [logit](std::int64_t, std::int64_t key) { return logit(key) / 8; };
  return s;
}

// The same with rows of both signs, so that rows of one warp want different things of one block.
Scores by_row_and_key(std::function<double(std::int64_t)> logit, double noise = 0.25) {
  Scores s = by_key(logit, noise);
  s.q0 = [](std::int64_t, std::int64_t row) { return row % 3 == 0 ? 8.0 : row % 3 == 1 ? -8.0 : 0.5; };
  return s;
}

// Scores so large that one fma no longer does (kHuge of gen/tile/softmax.cpp: 2^22 in log2 units, 2^12 in 8 bit),
// but a few units apart. Exact in fp32, and in the 14 bits that 8-bit products are summed in.
Scores huge_and_near(bool eight) {
  Scores s;
  s.noise = 0;
  const double q = eight ? 128 : 1024, k = eight ? 64 : 8192, step = 1;
  s.q0 = [q](std::int64_t, std::int64_t) { return q; };
  s.k0 = [k](std::int64_t, std::int64_t) { return k; };
  s.q1 = [step](std::int64_t, std::int64_t row) { return row % 2 ? step : -step; };
  s.k1 = [](std::int64_t, std::int64_t key) { return static_cast<double>(key * 7 % 16); };
  return s;
}
// As large, and neighbours differ by thousands: one key, or the ties of it, take all of the row.
Scores huge_and_far(bool eight) {
  Scores s;
  s.noise = 0;
  const double q = eight ? 256 : 4096, k = eight ? 64 : 4096;
  s.q0 = [q](std::int64_t, std::int64_t row) { return row % 3 == 0 ? q : row % 3 == 1 ? -q : 0.25; };
  s.k0 = [k](std::int64_t, std::int64_t key) { return k * static_cast<double>(key % 7 + 1); };
  return s;
}

// Scores of which fp32 rounds the reference, in log2 units, by so much that 2^rest is infinite (past 2^16) or 0 (below
// 2^-25) in f16: from 2^29 on. All other scores of a row are far below its largest.
Scores huge_and_rounded() {
  static const std::vector<double> rows = [] {
    std::vector<double> found;
    const float c = static_cast<float>(4 * 1.4426950408889634);
    for (double q = 2050; q < 4096 && found.size() < 64; q += 2) {
      const double exact = 0x1p15 * q * c, rest = exact - static_cast<double>(static_cast<float>(exact));
      if (exact >= 0x1p29 && exact < 0x1p30 && (found.size() % 2 ? rest < -26 : rest > 17)) found.push_back(q);
    }
    REQUIRE(found.size() >= 8);
    return found;
  }();
  Scores s;
  s.noise = 0;
  s.q0 = [](std::int64_t, std::int64_t row) { return rows[static_cast<std::size_t>(row) % rows.size()]; };
  s.k0 = [](std::int64_t, std::int64_t key) { return key % 37 == 5 ? 0x1p15 : static_cast<double>(key % 7) * 4096; };
  return s;
}

// `narrow`: S too is summed in few bits (8 bit on a GPU: 13 below the leading one), so that beside a logit above 64 noise
// is cut to an eighth and coarser, in any FP8 kernel. Without it each S is one product, exact in those bits.
std::vector<Adversary> adversaries(DataType dtype, std::int64_t keys, bool narrow) {
  const double large = narrow ? 0 : 0.25;  // noise beside large logits
  const auto n = static_cast<double>(keys);
  const auto d = [](std::int64_t key) { return static_cast<double>(key); };
  const bool eight = dtype == DataType::e4m3;
  std::vector<Adversary> all = {
      {"rising by 12 a block", by_key([=](std::int64_t k) { return 12 * (n - d(k)) / 64; }, large)},
      {"falling by 12 a block", by_key([=](std::int64_t k) { return 12 * d(k) / 64; }, large)},
      {"rising by 120 a block", by_key([=](std::int64_t k) { return 120 * (n - d(k)) / 64; }, large)},
      {"rising and falling by row", by_row_and_key([=](std::int64_t k) { return 30 * (n - d(k)) / 64; }, large)},
      {"a jump above 2^127 inside a block", by_key([](std::int64_t k) { return k % 64 < 31 ? 180.0 : 0.0; }, large)},
      {"jumps of both signs inside a block",
       by_row_and_key([](std::int64_t k) { return k % 5 == 0 ? 180.0 : k % 5 == 1 ? -180.0 : 0.0; }, large)},
      {"one key of the last block done stands out", by_key([](std::int64_t k) { return k == 5 ? 70.0 : 0.0; }, large)},
      {"one key of the first block done stands out", by_key([=](std::int64_t k) { return k == keys - 2 ? 70.0 : 0.0; }, large)},
      {"every score far below zero", by_key([](std::int64_t k) { return -3000.0 - static_cast<double>(k % 64); }, large)},
      {"all equal", by_key([](std::int64_t) { return 0.0; }, 0)},
      {"all equal, large", by_key([](std::int64_t) { return 1000.0; }, 0)},
      {"ties in a block and across blocks", by_key([](std::int64_t k) { return k % 37 == 0 ? 40.0 : 0.0; }, 0)},
      {"huge and a few apart", huge_and_near(eight)},
      {"huge and far apart", huge_and_far(eight)},
      {"so huge that neighbours of fp32 differ by more than 2^32", huge_and_far(eight), 0x1p24f},
  };
  if (dtype == DataType::f16) all.push_back({"huge, the reference rounded by more than f16 holds", huge_and_rounded(), 4});
  if (dtype == DataType::bf16) {
    all.push_back({"products near the end of fp32", by_key([](std::int64_t k) { return k % 9 ? 0x1p100 : -0x1p110; }, 0)});
    all.back().scores.q0 = [](std::int64_t, std::int64_t row) { return row % 2 ? 0x1p12 : -0x1p10; };
  }
  return all;
}

struct Shape {
  std::int64_t seqlen_q, seqlen_k;
  Mask mask;
  int dim = 64;
  std::int64_t heads = 1;
};

using LineCounts = std::vector<std::uint64_t>;

void check(Bed& bed, DataType dtype, const Shape& shape, const std::string& kernel, float scale = 1,
           LineCounts* executed = nullptr, std::int64_t rows = 0) {
  const bool narrow = dtype == DataType::e4m3 && !bed.device->info().is_emulator;
  reference::Problem p;
  p.dtype = dtype, p.mask = shape.mask, p.head_dim = p.head_dim_v = shape.dim;
  p.seqlen_q = shape.seqlen_q, p.seqlen_k = shape.seqlen_k, p.heads_q = p.heads_kv = shape.heads;
  for (const Adversary& a : adversaries(dtype, shape.seqlen_k, narrow)) {
    p.scale = scale * a.scale;
    const Case c = test::scored_case(p, a.scores, 1, rows);
    ForwardChoice choice;
    choice.kernel = kernel;
    const Outcome r = run_case(*bed.device, *bed.attention, c, choice);
    CHECK_MESSAGE(r.ok(), std::string(to_string(dtype)), " ", std::string(to_string(shape.mask)), " d", shape.dim, " ", shape.seqlen_q, "x",
                  shape.seqlen_k, " scale ", scale, " ", r.kernel, ", ", std::string(a.name), ": ", r.complaint());
    if (!executed) continue;
    const LineCounts counts = emulator_line_counts(*bed.device);
    executed->resize(counts.size());
    for (std::size_t i = 0; i < counts.size(); ++i) (*executed)[i] += counts[i];
  }
}

std::string kernel(DataType dtype, Mask mask, const std::string& softmax, const char* more = "") {
  const std::string head = std::string("attn_fwd_") + to_string(dtype) + "_d64_" + to_string(mask);
  return dtype == DataType::e4m3 ? head + "__q128_kv128_s2__serial_pp_" + softmax + "_ob" + more
                                 : head + "__q128_kv64_s2__overlap_pp_" + softmax;
}

// A test of a rare branch that never ran tests nothing: each instruction of the softmax must have been executed.
void check_coverage(const std::string& kernel, const LineCounts& executed) {
  KernelConfig config;
  std::string error;
  REQUIRE_MESSAGE(KernelConfig::parse(kernel, &config, &error), error);
  std::istringstream text(emit(config).text);
  static const Pattern softmax(R"(== (mask, row max|P = exp2|O \*= alpha|P to ).*)"), section(R"(// == )"),
      instruction(R"(^ *(@!?%(?!hidden)\w+ )?[a-z][\w.:]* .*;.*)"), branch(R"(\bbra\b)");
  // 8 bit, guarded: the first block's maximum is always taken, so its copy of rescale_block waits for nothing.
  bool inside = false, first_exp = config.problem.eight_bit() && config.plan.softmax == Softmax::guarded;
  std::size_t number = 0, seen = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    if (section.search(line)) {
      inside = softmax.search(line);
      if (first_exp && line.find("P = exp2") != std::string::npos) inside = first_exp = false;
    }
    // A branch behind a comparison is counted there. A column is hidden in no loop where it is so in every row's last
    // block: those moves are left out.
    if (!inside || !instruction.matches(line) || branch.search(line)) continue;
    ++seen;
    CHECK_MESSAGE((number < executed.size() && executed[number] != 0), kernel, ":", number, " never ran: ", line);
  }
  CHECK(seen > 200);
}

// Full; causal with a last block that some rows of a warp do not see; causal with rows that see no key at all.
void every_shape(Bed& bed, DataType dtype, const std::string& softmax, bool coverage) {
  const std::int64_t keys = dtype == DataType::e4m3 ? 650 : 330;
  LineCounts causal;
  check(bed, dtype, {70, keys, Mask::full}, kernel(dtype, Mask::full, softmax));
  check(bed, dtype, {70, keys - 3, Mask::causal}, kernel(dtype, Mask::causal, softmax), 1,
        coverage ? &causal : nullptr);
  check(bed, dtype, {150, 70, Mask::causal}, kernel(dtype, Mask::causal, softmax), 1, coverage ? &causal : nullptr);
  if (coverage) check_coverage(kernel(dtype, Mask::causal, softmax), causal);
}

void every_softmax(Bed& bed, DataType dtype, bool coverage) {
  for (const char* softmax : {"plain", "lazy0", dtype == DataType::e4m3 ? "lazy4" : "lazy8", "guarded1", "guarded3"})
    every_shape(bed, dtype, softmax, coverage);
  if (dtype != DataType::e4m3) return;
  for (const char* softmax : {"guarded1_fast8", "guarded3_fast12", "guarded1_fast16", "guarded2_fast4",  // part of P from codes
                              "guarded1_chord8", "guarded3_chord16", "guarded2_fast12_chord4"})  // or from chords
    every_shape(bed, dtype, softmax, coverage);
  // Sums of P as rounded.
  for (const char* softmax : {"plain_psum", "lazy4_psum", "guarded1_psum", "guarded4_psum", "guarded2_fast8_psum", "guarded1_chord8_psum", "guarded2_fast12_chord4_psum"})
    every_shape(bed, dtype, softmax, coverage);
  // O leaves for its staging buffer in the middle of all that, and the reference moves while it is there.
  for (const char* softmax : {"plain", "lazy4", "guarded1", "guarded1_fast12", "guarded1_chord6", "plain_psum", "guarded1_psum", "guarded1_chord6_psum"}) {
    check(bed, dtype, {70, 650, Mask::full}, kernel(dtype, Mask::full, softmax, "_fold2"));
    check(bed, dtype, {150, 647, Mask::causal}, kernel(dtype, Mask::causal, softmax, "_fold2"));
  }
}

// The kernels that problems get, at every head dimension, and scales that are no power of two.
void chosen_kernels(Bed& bed) {
  for (DataType dtype : {DataType::bf16, DataType::f16, DataType::e4m3})
    for (Mask mask : {Mask::full, Mask::causal})
      for (int dim : {64, 128, 256}) {
        check(bed, dtype, {300, 900, mask, dim, 2}, "", 1, nullptr, 100);
        check(bed, dtype, {900, 700, mask, dim, 2}, "", 0.37f, nullptr, 100);
      }
}

}  // namespace

TEST_SUITE("attention/adversarial") {
  TEST_CASE("emulator: bf16, plain, lazy and guarded") { every_softmax(test::emulator_bed(), DataType::bf16, true); }
  TEST_CASE("emulator: f16, plain, lazy and guarded") { every_softmax(test::emulator_bed(), DataType::f16, true); }
  TEST_CASE("emulator: e4m3, plain, lazy and guarded") { every_softmax(test::emulator_bed(), DataType::e4m3, true); }
  // The rule of fast mode, on the data that it speaks of: 1.25 times plain e4m3's, plain being what FlashAttention-3 has.
  TEST_CASE("emulator: fast mode's RMS error on normal data") {
    Bed& bed = test::emulator_bed();
    const auto factor = [&](std::int64_t keys, int dim, Mask mask, const std::string& words, const char* more) {
      reference::Problem p;
      p.dtype = DataType::e4m3, p.mask = mask, p.head_dim = p.head_dim_v = dim, p.heads_q = p.heads_kv = 2;
      p.seqlen_q = 192, p.seqlen_k = keys, p.scale = 1 / std::sqrt(static_cast<float>(dim));
      const Case c = make_case(p, reference::Layout::bshd, reference::Inputs::random, 7, true, 0);
      ForwardChoice choice;
      choice.kernel = std::string("attn_fwd_e4m3_d") + std::to_string(dim) + "_" + to_string(mask) + (dim == 256 ? "__q128" : "__q192") +
                      "_kv128_s2__serial_pp_guarded3" + words + "_ob" + more;
      const Outcome r = run_case(*bed.device, *bed.attention, c, choice);
      CHECK_MESSAGE(r.ok(), choice.kernel, ": ", r.complaint());
      return r.error.rms / r.error.plain_rms;
    };
    for (const auto& [keys, dim] : {std::pair{1024, 64}, {1000, 128}, {640, 256}, {6000, 64}})
      for (Mask mask : {Mask::full, Mask::causal}) {
        const std::string words = "_fast" + std::to_string(mask == Mask::causal ? fast_words_causal : fast_words);
        const double exact = factor(keys, dim, mask, "", ""), some = factor(keys, dim, mask, "_fast4", ""), most = factor(keys, dim, mask, words, "");
        CAPTURE(keys);
        CAPTURE(dim);
        if (dim <= 128) CHECK(factor(keys, dim, mask, words + "_psum", "") < 1.25);
        CHECK(exact < some);  // else nothing is direct
        CHECK(some < most);
        CHECK(most < 1.24);
      }
    CHECK(factor(2500, 64, Mask::full, "_fast12", "_fold2") < 1.22);
    // Chords, the default: 1.1 % for 8 words, in the mean of two data sets.
    for (Mask mask : {Mask::full, Mask::causal}) {
      const double exact = factor(1500, 64, mask, "", ""), some = factor(1500, 64, mask, "_chord8", ""), most = factor(1500, 64, mask, "_chord16", "");
      CHECK(some < 1.025 * exact);
      CHECK(some > exact);
      CHECK(most < 1.045 * exact);
    }
  }
  TEST_CASE("emulator: e4m3, the kernel that problems get") {
    check(test::emulator_bed(), DataType::e4m3, {300, 700, Mask::full, 64, 2}, "", 0.37f, nullptr, 100);
  }
  TEST_CASE("emulator: 16 bit, the kernels that problems get at head_dim 64, which store O late") {
    for (DataType dtype : {DataType::bf16, DataType::f16}) {
      check(test::emulator_bed(), dtype, {300, 330, Mask::full, 64, 2}, "", 0.37f, nullptr, 100);
      check(test::emulator_bed(), dtype, {300, 130, Mask::causal, 64, 2}, "", 1, nullptr, 100);
    }
  }
  TEST_CASE("gpu: every softmax and the kernels that problems get") {
    Bed& gpu = test::gpu_bed();
    if (!gpu.device) FLASHPTX_SKIP("no GPU: " + gpu.missing);
    for (DataType dtype : {DataType::bf16, DataType::f16, DataType::e4m3}) every_softmax(gpu, dtype, false);
    chosen_kernels(gpu);
  }
}
