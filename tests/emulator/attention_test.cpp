// The catalogue on the emulator: every kernel against float64 under round-robin and adversaries.
//
// Two multiprocessors make the persistent kernels walk several tiles a CTA. Next:
// mutation_test.cpp, host/emulator/checkers/.
#include <ctime>

#include "tests/emulator/attention.h"

using namespace flashptx;
using namespace flashptx::emulator::test;

namespace {

AttentionOutcome outcome_of(const AttentionCase& c, std::uint64_t seed, int level) {
  EmulatorOptions options;
  options.seed = seed, options.adversary_level = level, options.threads = 1,
  options.multiprocessors = 2;
  return run_attention(c, options);
}

// Seven orders: the same result in each, and the right one.
void right_in_every_order(const std::string& name, const std::vector<std::pair<int, int>>& shapes) {
  KernelConfig c;
  std::string error;
  REQUIRE_MESSAGE(KernelConfig::parse(name, &c, &error), error);
  for (const auto& [rows, keys] : shapes) {
    const AttentionCase data = make_attention(c, rows, keys);
    double first_o = 0, first_lse = 0;
    for (std::uint64_t seed = 0; seed <= 6; ++seed) {
      const AttentionOutcome o = outcome_of(data, seed, seed % 2 ? 1 : 2);
      if (seed == 0) first_o = o.o_error, first_lse = o.lse_error;
      const std::string what = name + ", " + std::to_string(rows) + " x " + std::to_string(keys) + ", seed " + std::to_string(seed) + ": ";
      CHECK_MESSAGE((o.o_error == first_o && o.lse_error == first_lse), what, "another result than round-robin's");
      CHECK_MESSAGE(o.right(), what, o.status.message, " O error ", o.o_error, ", LSE error ", o.lse_error);
    }
  }
}

}  // namespace

TEST_SUITE("emulator/attention") {
  TEST_CASE(
      "every catalogued kernel is right round-robin and under eight adversaries, with no fault") {
    for (const KernelConfig& c : catalog()) {
      AttentionCase data = make_attention(c, 201, 307);
      double first_o = 0, first_lse = 0;
      for (std::uint64_t seed = 0; seed <= 8; ++seed) {
        AttentionOutcome o = outcome_of(data, seed, seed % 2 ? 1 : 2);
        if (seed == 0) first_o = o.o_error, first_lse = o.lse_error;
        CHECK_MESSAGE((o.o_error == first_o && o.lse_error == first_lse),
                      c.name() << " seed " << seed << ": another result than round-robin's");
        CHECK_MESSAGE(o.right(), c.name()
                                    << " seed " << seed << ": " << o.status.message << " O error "
                                    << o.o_error << ", LSE error " << o.lse_error);
      }
    }
  }

  // 201 rows: a second CTA with part of a tile, or (q256) with none; 430 rows: with q128 the last pair's second has
  // none. Each cluster walks several pairs.
  TEST_CASE("pairs of CTAs that share K and V are right under every order, with part or none of a tile in the second") {
    for (const char* name : {"attn_fwd_bf16_d256_full__q128_kv64_s2__overlap_pp_guarded1_ob_c2",
                             "attn_fwd_bf16_d128_full__q192_kv80_s3__overlap_pp_guarded1_c2",
                             "attn_fwd_f16_d128_full__q128_kv128_s2_qs2__trailing_pp_guarded1_c2",
                             "attn_fwd_bf16_d64_full__q256_kv64_s4_qs2__overlap_pp_guarded2_ob_c2",
                             "attn_fwd_bf16_d64_full__q128_kv16_s3_vs2__serial_lazy8_c2",
                             "attn_fwd_e4m3_d128_full_vt__q192_kv128_s3_qs2__serial_pp_guarded3_ob_c2",
                             "attn_fwd_e5m2_d64_full_vt__q128_kv256_s2__overlap_plain_ob_fold2_c2"}) {
      right_in_every_order(name, {std::pair{201, 307}, std::pair{430, 63}, std::pair{1, 1}, std::pair{65, 0}});
    }
  }

  // The first tile of a pair needs fewer blocks than the second. 63 keys and none: rows that see none, in whole pairs and in a
  // pair's first tile alone; 700: every row sees many.
  TEST_CASE("causal pairs are right under every order, whatever their tiles see, with fixed and drawn tiles") {
    for (const char* name : {"attn_fwd_bf16_d64_causal__q256_kv64_s4_qs2__overlap_pp_guarded2_dyn_ob_c2",
                             "attn_fwd_bf16_d64_causal__q128_kv64_s2_qs2__overlap_guarded2_ob_late_c2",
                             "attn_fwd_bf16_d128_causal__q192_kv64_s3_qs2__overlap_pp_guarded1_dyn_c2",
                             "attn_fwd_f16_d128_causal__q128_kv128_s2_qs2__trailing_pp_guarded1_c2",
                             "attn_fwd_bf16_d64_causal__q128_kv16_s3_vs2__serial_lazy8_dyn_c2",
                             "attn_fwd_f16_d64_causal__q64_kv80_s2__overlap_plain_dyn_c2",
                             "attn_fwd_bf16_d256_causal__q128_kv64_s2__overlap_pp_guarded1_dyn_ob_c2",
                             "attn_fwd_bf16_d256_causal__q128_kv64_s2__overlap_pp_guarded1_ob_c2",
                             "attn_fwd_bf16_d128_full__q192_kv64_s3_qs2__overlap_pp_guarded1_dyn_c2",
                             "attn_fwd_e4m3_d128_causal_vt__q192_kv128_s3_qs2__serial_pp_guarded1_dyn_ob_c2",
                             "attn_fwd_e5m2_d64_causal_vt__q128_kv256_s2__overlap_plain_ob_fold2_c2"}) {
      right_in_every_order(name, {std::pair{201, 307}, std::pair{430, 63}, std::pair{330, 700}, std::pair{600, 600}, std::pair{1, 1}, std::pair{65, 0}});
    }
  }

  TEST_CASE("kernels of one warpgroup, whose consumer gives registers back, are right") {
    for (const char* name : {"attn_fwd_bf16_d64_full__q64_kv64_s2__overlap_guarded1", "attn_fwd_bf16_d128_causal__q64_kv64_s2_qs2__overlap_guarded1_dyn",
                             "attn_fwd_e4m3_d64_full__q64_kv128_s2__serial_guarded3_ob"}) {
      KernelConfig c;
      std::string error;
      REQUIRE_MESSAGE(KernelConfig::parse(name, &c, &error), error);
      const AttentionCase data = make_attention(c, 150, 200);
      for (int seed : {0, 3}) {
        const AttentionOutcome o = outcome_of(data, seed, seed ? 2 : 0);
        CHECK_MESSAGE(o.right(), name, o.status.message, " O error ", o.o_error, ", LSE error ", o.lse_error);
      }
    }
  }

  TEST_CASE("one head of 1024 x 1024, head dim 128, takes less than 3 seconds of one core") {
    KernelConfig c;
    std::string error;
    REQUIRE(KernelConfig::parse("attn_fwd_bf16_d128_full__q128_kv128_s2__overlap_pp_lazy8", &c,
                                &error));
    AttentionCase data = make_attention(c, 512, 1024);  // two heads of half the queries: the same work
    std::clock_t begin = std::clock();
    AttentionOutcome o = outcome_of(data, 0, 0);
    CHECK(o.right());
    CHECK(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC < 3.0);
  }
}
