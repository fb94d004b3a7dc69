// Tiles of the last wave cut along the keys (gen/tile/split_tail.cpp, host/split_tail.cpp): the shares, the results,
// the same bits whoever comes second, and tiles that are done again when a part of them overflows.
// Next: redo_test.cpp.
#include <set>
#include <tuple>
#include <vector>

#include "host/emulator/emulator.h"
#include "host/split_tail.h"
#include "tests/attention/beds.h"
#include "tests/attention/scores.h"
#include "tests/support.h"

using namespace flashptx;
using test::Bed;

namespace {

KernelConfig parsed(const std::string& name) {
  KernelConfig c;
  std::string error;
  REQUIRE_MESSAGE(KernelConfig::parse(name, &c, &error), error);
  return c;
}

Bed bed_of(std::uint64_t seed, int ctas) {
  EmulatorOptions o;
  o.seed = seed, o.adversary_level = seed == 0 ? 0 : seed % 2 ? 2 : 1;
  o.multiprocessors = ctas;
  return test::open_bed(DeviceChoice::emulator, o);
}

ForwardProblem problem_of(std::int64_t batch, std::int64_t heads, std::int64_t seqlen_q, std::int64_t seqlen_k, int head_dim) {
  ForwardProblem p;
  p.batch = batch, p.heads_q = p.heads_kv = heads, p.seqlen_q = seqlen_q, p.seqlen_k = seqlen_k;
  p.head_dim = p.head_dim_v = head_dim;
  return p;
}

const char* const kernels[] = {
    "attn_fwd_bf16_d64_full__q256_kv64_s4_qs2__overlap_pp_guarded2_ob_tail",
    "attn_fwd_f16_d128_full__q192_kv64_s3_qs2__overlap_pp_guarded1_tail",
    "attn_fwd_bf16_d64_full__q128_kv48_s2__overlap_lazy8_dyn_tail",
    "attn_fwd_bf16_d32v16_full__q64_kv32_s2__serial_plain_tail",
    "attn_fwd_e4m3_d64_full__q192_kv128_s3_qs2__overlap_guarded3_dyn_ob_tail",
    "attn_fwd_e4m3_d64_full_vt__q128_kv128_s2_qs2__trailing_pp_guarded3_ob_fold2_tail",
    "attn_fwd_e5m2_of16_d64_full_vt__q128_kv128_s2__serial_pp_guarded1_fast12_ob_tail",
};

// Two query heads a K/V head, rows that fill no tile, keys that fill no block.
Case shaped(const KernelConfig& c, std::int64_t heads, std::int64_t blocks, std::uint64_t seed, bool lse) {
  reference::Problem p;
  p.dtype = c.problem.dtype, p.dtype_o = c.problem.dtype_o, p.batch = 1, p.heads_q = heads, p.heads_kv = heads % 2 ? heads : heads / 2;
  p.head_dim = c.problem.head_dim, p.head_dim_v = c.problem.head_dim_v;
  p.seqlen_q = c.tile_q() + 30, p.seqlen_k = (blocks - 1) * c.plan.tile_kv + 9;
  Case made = make_case(p, reference::Layout::bshd, reference::Inputs::random, seed, lse, 24);
  made.fast = c.plan.direct_of_16 != 0;
  return made;
}

}  // namespace

TEST_SUITE("attention/split tail") {
  TEST_CASE("the shares cover every tile's keys once, and nobody has more than a whole tile's") {
    const KernelConfig c = parsed("attn_fwd_bf16_d128_full__q192_kv64_s3_qs2__overlap_pp_guarded1");
    int cut = 0;
    for (std::int64_t ctas : {2, 7, 114, 132, 256})
      for (std::int64_t heads : {1, 3, 16, 64, 100})
        for (std::int64_t seqlen : {64, 500, 4096, 16384, 100000})
          for (bool always : {false, true}) {
            const ForwardProblem p = problem_of(1, heads, seqlen, seqlen, 128);
            const SplitTail t = split_tail(p, c, ctas, always);
            if (t.parts == 0) continue;
            ++cut;
            const std::int64_t tiles = forward_tiles(p, c), all = (seqlen + 63) / 64, last = tiles - t.first;
            CAPTURE(ctas);
            CAPTURE(heads);
            CAPTURE(seqlen);
            CHECK(t.first % ctas == 0);
            CHECK(last > 0);
            CHECK(last < ctas);
            CHECK((t.blocks >= 1 && t.blocks < all));
            CHECK((t.grid - last) * t.parts >= last);  // every second part has a CTA
            CHECK(t.grid <= ctas);
            if (t.first > 0) CHECK(t.grid == ctas);
            if (!always) CHECK(t.parts * (all - t.blocks) <= t.blocks);
            CHECK(t.workspace_bytes == static_cast<std::size_t>(2 * last * 192 * 129 * 4));
          }
    CHECK(cut > 50);
    CHECK(split_tail(problem_of(1, 7, 192, 4096, 128), c, 7).parts == 0);   // a whole wave
    CHECK(split_tail(problem_of(1, 3, 192, 64, 128), c, 7, true).parts == 0);  // one block
    CHECK(split_tail(problem_of(1, 3, 192, 4096, 128), c, 1, true).parts == 0);
  }

  TEST_CASE("whoever comes second: right, and the same bits in every order") {
    for (const char* name : kernels) {
      const KernelConfig c = parsed(name);
      for (const auto& [ctas, heads, blocks] :
           std::vector<std::tuple<int, int, int>>{{3, 4, 7}, {4, 3, 5}, {5, 1, 6}, {7, 2, 2}, {5, 2, 9}, {2, 1, 3}}) {
        const Case data = shaped(c, heads, blocks, static_cast<std::uint64_t>(ctas), heads != 2);
        std::vector<std::uint8_t> o, lse;
        const bool cuts = split_tail(host_problem(data), c, ctas, true).parts != 0;
        for (std::uint64_t seed = 0; seed < 5; ++seed) {
          Bed bed = bed_of(seed, ctas);
          ForwardChoice choice;
          choice.kernel = name;
          const Outcome r = run_case(*bed.device, *bed.attention, data, choice);
          CHECK_MESSAGE(r.ok(), name, " on ", ctas, ": ", r.complaint());
          if (seed == 0) o = r.o_bytes, lse = r.lse_bytes;
          CHECK_MESSAGE((r.o_bytes == o && r.lse_bytes == lse), name, " on ", ctas, ", seed ", seed);
          if (seed >= 2 && !cuts) break;
        }
      }
    }
  }

  TEST_CASE("without the workspace no tile is cut: the bits of the kernel that cannot") {
    const std::string whole = "attn_fwd_bf16_d64_full__q128_kv64_s2__overlap_pp_guarded1_ob";
    const KernelConfig c = parsed(whole + "_tail");
    const Case data = shaped(c, 3, 6, 5, true);
    Bed bed = bed_of(1, 4);
    ForwardChoice choice;
    choice.kernel = whole;
    const Outcome uncut = run_case(*bed.device, *bed.attention, data, choice);
    REQUIRE_MESSAGE(uncut.ok(), uncut.complaint());
    std::unique_ptr<ForwardPlan> plan;
    choice.kernel = c.name();
    REQUIRE(bed.attention->plan_forward(host_problem(data), choice, &plan).ok());
    CHECK(plan->tail().parts > 0);
    CHECK(plan->workspace_bytes() == plan->tail().workspace_bytes);
    ForwardProblem none = host_problem(data);
    none.allow_workspace = false;
    std::unique_ptr<ForwardPlan> without;
    REQUIRE(bed.attention->plan_forward(none, choice, &without).ok());
    CHECK(without->workspace_bytes() == 0);
    const reference::Tensors& t = data.tensors;
    GuardedBuffer q(*bed.device, t.q.size()), k(*bed.device, t.k.size()), v(*bed.device, t.v.size());
    GuardedBuffer o(*bed.device, uncut.o_bytes.size());
    REQUIRE((q.allocate(0).ok() && k.allocate(0).ok() && v.allocate(0).ok()));
    REQUIRE((q.upload(t.q).ok() && k.upload(t.k).ok() && v.upload(t.v).ok()));
    for (ForwardPlan* one : {plan.get(), without.get()}) {
      REQUIRE(o.allocate(0xff).ok());
      ForwardPointers at;
      at.q = q.address(), at.k = k.address(), at.v = v.address(), at.o = o.address();
      REQUIRE(one->run(at, nullptr).ok());
      std::vector<std::uint8_t> bytes;
      bool guards = false;
      REQUIRE(o.download(&bytes, &guards).ok());
      CHECK(guards);
      CHECK(bytes == uncut.o_bytes);
      at.workspace = 24;  // not a multiple of 16
      if (one->workspace_bytes() != 0) CHECK(one->run(at, nullptr).code == StatusCode::invalid_argument);
    }
  }

  TEST_CASE("a part that overflows is done again, its other part and its other rows are not stored twice") {
    for (const char* name : {"attn_fwd_bf16_d64_full__q128_kv64_s2_qs2__overlap_pp_guarded1_ob_tail",
                             "attn_fwd_f16_d64_full__q128_kv64_s2__overlap_pp_guarded1_dyn_tail",
                             "attn_fwd_e4m3_d64_full__q128_kv128_s2__serial_pp_guarded1_ob_tail"}) {
      const KernelConfig c = parsed(name);
      reference::Problem p;
      p.dtype = c.problem.dtype;
      p.heads_q = p.heads_kv = 3, p.head_dim = p.head_dim_v = 64;
      p.seqlen_q = c.tile_q(), p.seqlen_k = 5 * c.plan.tile_kv + 20;
      for (int ctas : {4, 5, 2})
        for (const std::set<int>& failing : {std::set<int>{0}, {2}, {0, 1, 2}}) {
          reference::Problem q = p;
          // One warpgroup's rows jump, and of those one warp's.
          const test::Scores s = test::jumping_scores(&q, 140, [&](std::int64_t head, std::int64_t row) {
            return failing.count(static_cast<int>(head)) != 0 && row / 16 == (failing.size() > 1 ? 6 : 1);
          });
          const Case data = test::scored_case(q, s);
          REQUIRE(split_tail(host_problem(data), c, ctas, true).parts != 0);
          for (std::uint64_t seed = 0; seed < 3; ++seed) {
            Bed bed = bed_of(seed, ctas);
            ForwardChoice choice;
            choice.kernel = name;
            const Outcome r = run_case(*bed.device, *bed.attention, data, choice);
            CHECK_MESSAGE(r.ok(), name, " on ", ctas, " seed ", seed, ": ", r.complaint());
          }
        }
    }
  }

  TEST_CASE("gpu: cut tiles of every kind, 40 runs with the same bits") {
    Bed& gpu = test::gpu_bed();
    if (!gpu.device) FLASHPTX_SKIP("no GPU: " + gpu.missing);
    for (const char* name : kernels) {
      const KernelConfig c = parsed(name);
      for (std::int64_t heads : {40, 100}) {
        const Case data = shaped(c, heads, 20, 3, true);
        ForwardChoice choice;
        choice.kernel = name;
        std::vector<std::uint8_t> o;
        for (int run = 0; run < 20; ++run) {
          const Outcome r = run_case(*gpu.device, *gpu.attention, data, choice);
          REQUIRE_MESSAGE(r.ok(), name, ": ", r.complaint());
          if (run == 0) o = r.o_bytes;
          REQUIRE_MESSAGE(r.o_bytes == o, name, " run ", run);
        }
      }
    }
  }
}
