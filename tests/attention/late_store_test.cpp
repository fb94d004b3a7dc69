// late_store: a tile's O leaves under the next tile's first exponentials (gen/kernels/attention_forward.cpp,
// emit_trip_0_and_store). The arithmetic is that of the kernel without, so are the bits, in every order.
//
// Next: redo_test.cpp and split_tail_test.cpp, which have such kernels too.
#include <cmath>

#include "gen/kernels/attention_forward.h"
#include "tests/attention/beds.h"
#include "tests/support.h"

using namespace flashptx;
using test::Bed;

namespace {

const char* const late_kernels[] = {
    "attn_fwd_bf16_d64_full__q256_kv64_s8_qs2__overlap_pp_guarded2_ob_late",
    "attn_fwd_bf16_d64_causal__q256_kv64_s4_qs2__overlap_pp_guarded2_dyn_ob_late",
    "attn_fwd_f16_d64_causal__q128_kv48_s2__rotated_guarded1_dyn_ob_late_pin",
    "attn_fwd_f16_d32v80_full__q128_kv32_s3_qs2__overlap_guarded1_dyn_ob_late",
    "attn_fwd_bf16_d128_causal__q192_kv64_s3__overlap_guarded1_dyn_ob_late",
    "attn_fwd_bf16_d64_full__q128_kv64_s2_qs2__overlap_pp_guarded1_ob_late_c2",
    "attn_fwd_f16_d256_full__q64_kv48_s2__overlap_guarded1_ob_late",
};

KernelConfig early(KernelConfig c) {
  c.plan.late_store = false;
  return c;
}

Bed bed_of(std::uint64_t seed) {
  EmulatorOptions o;
  o.seed = seed, o.adversary_level = seed == 0 ? 0 : 1 + static_cast<int>(seed % 2);
  o.multiprocessors = 2, o.threads = 1;  // several tiles a CTA
  return test::open_bed(DeviceChoice::emulator, o);
}

// Two query heads of each K/V head.
Case shaped(const KernelConfig& c, std::int64_t rows, std::int64_t keys, std::int64_t heads, int threads = 1) {
  reference::Problem p;
  p.dtype = c.problem.dtype, p.mask = c.problem.mask, p.threads = threads;
  p.heads_q = heads, p.heads_kv = std::max<std::int64_t>(1, heads / 2), p.seqlen_q = rows, p.seqlen_k = keys;
  p.head_dim = c.problem.head_dim, p.head_dim_v = c.problem.head_dim_v;
  p.scale = 1 / std::sqrt(static_cast<float>(p.head_dim));
  return make_case(p, reference::Layout::bshd, reference::Inputs::random, 19, true, 0);
}

Outcome run(const Bed& bed, const Case& data, const std::string& kernel, const std::string& ptx = "") {
  ForwardChoice choice;
  choice.kernel = kernel, choice.ptx = ptx;
  return run_case(*bed.device, *bed.attention, data, choice);
}

// Without its first `what` behind (or the last in front of) the place where O and the next tile's S are complete.
std::string without(std::string text, const std::string& what, bool in_front) {
  const std::size_t place = text.find("O and the next tile's S are complete");
  REQUIRE(place != std::string::npos);
  const std::size_t at = in_front ? text.rfind(what, place) : text.find(what, place);
  REQUIRE(at != std::string::npos);
  return text.replace(at, text.find(';', at) + 1 - at, "");
}

}  // namespace

TEST_SUITE("attention/late store") {
  // Causal, of 1100 rows the first 523 see none of 577 keys: whole tiles, and warpgroups of one, that have nothing to compute.
  TEST_CASE("right, and the bits of the kernel that stores O at once, in every order") {
    for (const char* name : late_kernels) {
      const KernelConfig c = test::kernel_named(name);
      for (const auto& [rows, keys, heads] : std::vector<std::tuple<int, int, int>>{{1100, 577, 1}, {430, 333, 4}, {300, 1, 2}, {129, 0, 4}, {65, 64, 6}}) {
        const Case data = shaped(c, rows, keys, heads);
        const Outcome at_once = run(bed_of(0), data, early(c).name());
        REQUIRE_MESSAGE(at_once.ok(), early(c).name(), ": ", at_once.complaint());
        for (std::uint64_t seed = 0; seed < (rows > 1000 ? 2u : 5u); ++seed) {
          const Outcome r = run(bed_of(seed), data, name);
          const std::string what = c.name() + " " + std::to_string(rows) + " x " + std::to_string(keys) + " seed " + std::to_string(seed);
          CHECK_MESSAGE(r.ok(), what, ": ", r.complaint());
          CHECK_MESSAGE((r.o_bytes == at_once.o_bytes && r.lse_bytes == at_once.lse_bytes), what, ": other bits");
        }
      }
    }
  }

  // What keeps O's buffer whole: without one of these some order, or the checkers, must show it.
  TEST_CASE("a store ahead of its fence, or into a buffer that is still read, is seen") {
    const KernelConfig c = test::kernel_named(late_kernels[0]);
    const Case data = shaped(c, 700, 150, 4);
    const std::string text = emit(c).text;
    CHECK(run(bed_of(0), data, c.name(), text).ok());
    for (const auto& [what, in_front] : {std::pair{"fence.proxy.async", false}, {"cp.async.bulk.wait_group.read", true}}) {
      int seen = 0;
      for (std::uint64_t seed = 0; seed < 4; ++seed) seen += !run(bed_of(seed), data, c.name(), without(text, what, in_front)).ok();
      CHECK_MESSAGE(seen > 0, "without ", what);
    }
  }

  TEST_CASE("names say it and are read back") {
    for (const char* name : late_kernels) {
      const KernelConfig c = test::kernel_named(name);
      CHECK(c.plan.late_store);
      CHECK(c.name() == name);
      CHECK_FALSE(test::kernel_named(early(c).name()).plan.late_store);
    }
    KernelConfig c;
    std::string error;
    CHECK_FALSE(KernelConfig::parse("attn_fwd_bf16_d64_full__q256_kv64_s8_qs2__overlap_pp_guarded2_late_ob", &c, &error));
    CHECK(error.find("_ob") != std::string::npos);
  }

  TEST_CASE("it is refused by a sentence where O cannot wait") {
    for (const auto& [name, why] : {std::pair{"attn_fwd_bf16_d64_full__q256_kv64_s8_qs2__overlap_pp_guarded2_late", "O's own buffer"},
                                    {"attn_fwd_bf16_d64_full__q256_kv64_s4_qs2__overlap_pp_lazy8_ob_late", "a guarded softmax"},
                                    {"attn_fwd_e4m3_d64_full__q128_kv128_s2__overlap_pp_guarded1_ob_late", "16-bit kernels"},
                                    {"attn_fwd_bf16_d128_full__q128_kv128_s2__trailing_pp_guarded1_ob_late", "has no P V in flight"},
                                    {"attn_fwd_bf16_d64_full__q128_kv64_s2__serial_pp_guarded1_ob_late", "has no P V in flight"},
                                    {"attn_fwd_bf16_d256_full__q128_kv64_s2__overlap_pp_guarded1_ob_late", "room for 128 columns"},
                                    {"attn_fwd_bf16_d256_full__q128_kv48_s2__overlap_pp_guarded1_ob_late_tail", "at most 224"}})
      test::check_refused(name, {"late_store", why});
  }

  TEST_CASE("gpu: the bits of the kernel that stores O at once, 20 runs") {
    Bed& gpu = test::gpu_bed();
    if (!gpu.device) FLASHPTX_SKIP("no GPU: " + gpu.missing);
    for (const char* name : late_kernels) {
      const KernelConfig c = test::kernel_named(name);
      for (const auto& [rows, keys, heads] : std::vector<std::tuple<int, int, int>>{{1100, 577, 256}, {2048, 1024, 64}, {300, 1, 800}}) {
        const Case data = shaped(c, rows, keys, heads, 0);  // threads: all cores
        const Outcome at_once = run(gpu, data, early(c).name());
        REQUIRE_MESSAGE(at_once.ok(), early(c).name(), ": ", at_once.complaint());
        for (int i = 0; i < 20; ++i) {
          const Outcome r = run(gpu, data, name);
          CHECK_MESSAGE(r.ok(), name, ": ", r.complaint());
          CHECK_MESSAGE((r.o_bytes == at_once.o_bytes && r.lse_bytes == at_once.lse_bytes), name, ", run ", i);
        }
      }
    }
  }
}
