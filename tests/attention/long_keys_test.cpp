// Sums over many keys in 8 bit, on an emulator with the tensor cores' narrow accumulators: what one level loses, and
// that folding O (gen/tile/fold.cpp) and sums in two levels keep it. Next: gen/catalog.h (single_level_keys).
#include <cmath>

#include "gen/kernels/attention_forward.h"
#include "host/emulator/emulator.h"
#include "tests/attention/beds.h"
#include "tests/attention/scores.h"
#include "tests/support.h"

using namespace flashptx;

namespace {

// All keys weigh the same and V is 15/16 throughout: O should be 15/16. The largest part of it that is missing.
// scale_block: 0 or the keys that share a scale (1, as all).
double lost(const std::string& kernel, std::int64_t keys, std::int64_t scale_block = 0) {
  EmulatorOptions narrow;
  narrow.fp8_narrow_accumulator = true;
  static const test::Bed bed = test::open_bed(DeviceChoice::emulator, narrow);
  reference::Problem p;
  p.dtype = DataType::e4m3, p.head_dim = p.head_dim_v = 64, p.seqlen_q = 20, p.seqlen_k = keys;
  test::Scores zero;
  zero.noise = 0;
  reference::Tensors t = test::scored_tensors(p, zero);
  for (std::int64_t i = 0; i < keys * 64; ++i) reference::store(p.dtype, t.v.data(), i, 0.9375);
  Case c = make_case(std::move(t), reference::Layout::bshd, true, 0);
  if (scale_block) c.k_block = scale_block, c.k_scale.assign(static_cast<std::size_t>((keys + scale_block - 1) / scale_block), 1.0f);
  const Outcome r = run_case(*bed.device, *bed.attention, c, {kernel, ""});
  INFO(kernel);
  REQUIRE_MESSAGE(r.status.ok(), r.status.message);
  return r.error.max / 0.9375;
}

}  // namespace

TEST_SUITE("attention/long keys") {
  TEST_CASE("equal weights and V of one sign: one level loses keys, folded and two-level sums do not") {
    const std::string head = "attn_fwd_e4m3_d64_full__q128_kv128_s2__serial_pp_guarded3_ob";
    const double one = lost(head, 8192), folded = lost(head + "_fold16", 8192), often = lost(head + "_fold2", 8192),
                 two = lost(head + "_two", 8192);
    CAPTURE(one);
    CAPTURE(folded);
    CAPTURE(often);
    CAPTURE(two);
    CHECK(one > 0.2);
    CHECK(folded < 0.035);
    CHECK(folded > 0.01);  // the model that gave these figures is the emulator's
    CHECK(often < 0.01);  // 32 times: what bf16 rounds away must not add up
    CHECK(two < 0.01);
    const auto by_blocks = [](const char* fold) {
      return lost(std::string("attn_fwd_e4m3_d64_full_bs128__q128_kv128_s2__serial_pp_guarded3_ob") + fold, 8192, 128);
    };
    CHECK(by_blocks("") > 0.2);
    CHECK(by_blocks("_fold16") < 0.035);
  }

  TEST_CASE("what the host takes beyond single_level_keys folds, or sums in two levels where O has no room") {
    for (int d : {64, 128, 256})
      for (bool v_transposed : {false, true})
        for (int rows : {0, 128, 64, 32, 16}) {
          ProblemClass c{DataType::e4m3, d, d, Mask::full};
          c.v_transposed = v_transposed, c.scale_rows = rows;
          const Plan p = long_keys_plan(c);
          CHECK(p.two_level != (p.fold_blocks != 0));
          if (rows != 0) CHECK(p.two_level == (d > 128 || rows == 16));
        }
  }

  TEST_CASE("folding refuses scales by blocks where its kernel would spill, by a sentence") {
    const auto refusal = [](const std::string& name) {
      KernelConfig c;
      std::string error;
      REQUIRE_MESSAGE(KernelConfig::parse(name, &c, &error), error);
      return gen::check_forward(c);
    };
    CHECK(refusal("attn_fwd_e4m3_d256_causal_vt_bs128__q128_kv128_s2__overlap_pp_guarded3_dyn_ob_fold16").find("head_dim up to 128") != std::string::npos);
    CHECK(refusal("attn_fwd_e4m3_d128_full_bs16__q128_kv128_s2__serial_pp_guarded3_dyn_ob_fold16").find("at least 32 rows") != std::string::npos);
    CHECK(refusal("attn_fwd_e4m3_d128_full_bs128__q192_kv128_s2_qs2__serial_pp_guarded3_fast12_dyn_ob_fold16").find("up to 112") != std::string::npos);
    CHECK(refusal("attn_fwd_e4m3_d128_full_bs128__q192_kv128_s2_qs2__serial_pp_guarded3_dyn_ob_fold16") == "");
  }
}
