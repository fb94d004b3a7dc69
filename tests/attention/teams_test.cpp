// Two teams of warpgroups in a CTA, each with its own producer, tiles and rings (Plan::teams): right for every size, order and number of CTAs, with the same bits;
// teams without a tile; tiles done again; the next launch finds its counters at zero; what it goes with.
// Next: gen/kernels/attention_forward.cpp (emit_attention_forward), gen/tile/shared_layout.cpp (of_team).
#include <cmath>

#include "gen/kernels/attention_forward.h"
#include "tests/attention/beds.h"
#include "tests/attention/scores.h"
#include "tests/support.h"

using namespace flashptx;
using test::Bed;

namespace {

const char* const in_teams[] = {
    "attn_fwd_bf16_d64_causal__q128_kv64_s4_qs2__overlap_guarded2_dyn_ob_late_x2",
    "attn_fwd_f16_d64_full__q128_kv64_s3_qs2__overlap_pp_guarded2_ob_x2",
    "attn_fwd_bf16_d48_full__q128_kv64_s4_qs2__overlap_pp_lazy8_dyn_x2",
    "attn_fwd_f16_d64_causal__q128_kv48_s3_qs2__trailing_plain_x2",
};

Case teams_shape(const KernelConfig& c, int rows, int keys, int heads) {
  reference::Problem p;
  p.dtype = c.problem.dtype, p.mask = c.problem.mask, p.threads = 1;
  p.batch = 2, p.heads_q = heads, p.heads_kv = heads > 1 ? heads / 2 : 1, p.seqlen_q = rows, p.seqlen_k = keys;
  p.head_dim = p.head_dim_v = c.problem.head_dim;
  p.scale = 1 / std::sqrt(static_cast<float>(p.head_dim));
  return make_case(p, reference::Layout::bshd, reference::Inputs::random, 5, true, 0);
}

}  // namespace

TEST_SUITE("attention/teams") {
  TEST_CASE("right in every order and size, on few multiprocessors and on many, twice in a row, with the same bits") {
    for (const char* name : in_teams) {
      const KernelConfig c = test::kernel_named(name);
      REQUIRE(c.name() == name);
      for (const auto& [rows, keys, heads] : std::vector<std::tuple<int, int, int>>{{700, 333, 2}, {129, 500, 4}, {1, 70, 1}, {300, 1, 2}, {200, 0, 2}}) {
        const Case data = teams_shape(c, rows, keys, heads);
        std::vector<std::uint8_t> o, lse;
        for (std::uint64_t seed = 0; seed < 4; ++seed) {
          EmulatorOptions options = test::emulated_order(seed, seed == 3 ? 132 : 1 + static_cast<int>(seed));
          options.threads = 1;
          Bed bed = test::open_bed(DeviceChoice::emulator, options);
          ForwardChoice choice;
          choice.kernel = name;
          for (int launch = 0; launch < 2; ++launch) {
            const Outcome r = run_case(*bed.device, *bed.attention, data, choice);
            const std::string what = std::string(name) + " " + std::to_string(rows) + " x " + std::to_string(keys) + " seed " + std::to_string(seed);
            CHECK_MESSAGE(r.ok(), what, ": ", r.complaint());
            if (o.empty()) o = r.o_bytes, lse = r.lse_bytes;
            CHECK_MESSAGE((r.o_bytes == o && r.lse_bytes == lse), what, ": other bits");
          }
        }
      }
    }
  }

  TEST_CASE("tiles that leave the guard's range are done again by the team that had them") {
    for (const char* name : {in_teams[0], in_teams[1]}) {
      const KernelConfig c = test::kernel_named(name);
      reference::Problem p;
      p.dtype = c.problem.dtype, p.mask = c.problem.mask, p.threads = 1;
      p.heads_q = p.heads_kv = 3, p.head_dim = p.head_dim_v = 64, p.seqlen_q = 300, p.seqlen_k = 500;
      const test::Scores s = test::jumping_scores(&p, 200.0, [](std::int64_t head, std::int64_t row) { return head == 1 || row < 128; });
      const Case data = test::scored_case(p, s);
      for (std::uint64_t seed = 0; seed < 3; ++seed) {
        EmulatorOptions options = test::emulated_order(seed, 1 + static_cast<int>(seed));
        options.threads = 1;
        Bed bed = test::open_bed(DeviceChoice::emulator, options);
        ForwardChoice choice;
        choice.kernel = name;
        const Outcome r = run_case(*bed.device, *bed.attention, data, choice);
        CHECK_MESSAGE(r.ok(), name, " seed ", seed, ": ", r.complaint());
      }
    }
  }

  TEST_CASE("the grid holds half as many CTAs as there are tiles, and no more than multiprocessors") {
    Bed bed = test::open_bed(DeviceChoice::emulator, test::emulated_order(0, 6));
    const KernelConfig c = test::kernel_named(in_teams[1]);
    for (const auto& [rows, ctas] : std::vector<std::pair<int, unsigned>>{{100, 1}, {300, 3}, {128 * 40, 6}}) {
      const Case data = teams_shape(c, rows, 64, 1);  // of two batches
      ForwardChoice choice;
      choice.kernel = in_teams[1];
      std::unique_ptr<ForwardPlan> plan;
      REQUIRE(bed.attention->plan_forward(host_problem(data), choice, &plan).ok());
      CHECK(plan->dims().grid[0] == ctas);
      CHECK(plan->dims().block[0] == 640);
    }
  }

  TEST_CASE("what it does not go with is refused by name") {
    for (const auto& [name, words] : std::vector<std::pair<std::string, std::string>>{
             {"attn_fwd_e4m3_d64_full__q128_kv128_s2__overlap_pp_guarded3_ob_x2", "is for 16-bit kernels"},
             {"attn_fwd_bf16_d64_full__q256_kv64_s4__overlap_pp_guarded2_ob_x2", "with two warpgroups a team"},
             {"attn_fwd_bf16_d64_full__q128_kv64_s3_qs2__overlap_pp_guarded2_ob_tail_x2", "without a cluster, cut tiles and marks"},
             {"attn_fwd_bf16_d64_full__q128_kv64_s3_qs2__overlap_pp_guarded2_ob_x2_tracefew", "without a cluster, cut tiles and marks"},
             {"attn_fwd_bf16_d64_full__q128_kv64_s3_qs2__overlap_pp_guarded2_ob_x3", "must be 1 or 2"},
             {"attn_fwd_bf16_d128_full__q128_kv64_s2__overlap_pp_guarded2_x2", "registers a thread"},
             {"attn_fwd_bf16_d64_full__q128_kv64_s8_qs2__overlap_pp_guarded2_ob_x2", "bytes are more than the 232448 of a CTA"}})
      test::check_refused(name, {words});
  }
}
