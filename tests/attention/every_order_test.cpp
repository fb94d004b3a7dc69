// What the catalogue does not hold, in every order: kernels for scales by blocks as the host selects them, the ladder's
// rungs, the symmetric kernel, the preparations of FP8 operands. Odd lengths; no fault, float64's result, and the bits
// of round-robin whatever the order. tests/emulator/attention_test.cpp does the same with the catalogue.
//
// By default a few orders each; FLASHPTX_EVERY_ORDER=1 takes round-robin and eight adversaries.
// Next: tests/attention/fp8_scales_test.cpp (that the right scale meets the right row).
#include <cmath>
#include <cstdlib>

#include "tests/attention/beds.h"
#include "tests/support.h"
#include "tools/flashptx/ladder_run.h"
#include "tools/flashptx/prepare_run.h"
#include "tools/reference/error.h"

using namespace flashptx;
using test::Bed;

namespace {

std::vector<int> all_orders() { return std::getenv("FLASHPTX_EVERY_ORDER") ? std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8} : std::vector<int>{0, 2}; }

std::vector<Bed>& beds() {
  static std::vector<Bed> all = [] {
    std::vector<Bed> out;
    for (int seed : all_orders()) {
      EmulatorOptions o;
      o.seed = static_cast<std::uint64_t>(seed), o.adversary_level = seed == 0 ? 0 : 1 + seed % 2;
      o.multiprocessors = 2, o.threads = 1;
      out.push_back(test::open_bed(DeviceChoice::emulator, o));
    }
    return out;
  }();
  return all;
}

reference::Problem odd_shape(DataType dtype, Mask mask, int dim, std::int64_t seqlen_q, std::int64_t seqlen_k) {
  reference::Problem p;
  p.dtype = dtype, p.mask = mask, p.head_dim = p.head_dim_v = dim, p.threads = 1;
  p.heads_q = 2, p.heads_kv = 1, p.seqlen_q = seqlen_q, p.seqlen_k = seqlen_k;
  p.scale = 1 / std::sqrt(static_cast<float>(dim));
  return p;
}

// Runs made; counted, for the closing line of a long run.
int in_every_order(const Case& c, const std::string& kernel) {
  int runs = 0;
  Outcome first;
  for (Bed& bed : beds()) {
    ForwardChoice choice;
    choice.kernel = kernel;
    const Outcome r = run_case(*bed.device, *bed.attention, c, choice);
    CHECK_MESSAGE(r.complaint() == "", r.kernel, " order ", runs);
    if (runs++ == 0) first = r;
    CHECK_MESSAGE((r.o_bytes == first.o_bytes && r.lse_bytes == first.lse_bytes), r.kernel, " order ", runs, ": other bits");
    if (runs == 1 && kernel.empty()) CHECK_MESSAGE(r.kernel.find("_bs") != std::string::npos, r.kernel);
  }
  return runs;
}

void say(const char* what, int runs) {
  if (std::getenv("FLASHPTX_EVERY_ORDER")) std::printf("%s: %d runs\n", what, runs);
}

}  // namespace

TEST_SUITE("attention/every order") {
  TEST_CASE("emulator: kernels for scales by blocks, as the host selects them and for many keys") {
    int runs = 0;
    for (int dim : {64, 128, 256})
      for (Mask mask : {Mask::full, Mask::causal})
        for (std::int64_t rows : {128, 16}) {
          Case c = make_case(odd_shape(DataType::e4m3, mask, dim, 139, 277), reference::Layout::bshd, reference::Inputs::random, 3, true, 0);
          c.q_block = 64, c.k_block = c.v_block = rows;
          c.q_scale.assign(static_cast<std::size_t>(2 * ((139 + 63) / 64)), 1.0f);
          c.k_scale.assign(static_cast<std::size_t>((277 + rows - 1) / rows), 1.0f), c.v_scale = c.k_scale;
          runs += in_every_order(c, "");
          KernelConfig config;
          config.problem = {DataType::e4m3, dim, dim, mask};
          config.problem.scale_rows = static_cast<int>(rows);
          config.plan = long_keys_plan(config.problem);
          runs += in_every_order(c, config.name());
        }
    say("scales by blocks", runs);
  }

  TEST_CASE("emulator: the symmetric kernel") {
    int runs = 0;
    for (Mask mask : {Mask::full, Mask::causal})
      for (const char* schedule : {"serial", "overlap", "trailing", "rotated"}) {
        KernelConfig c;
        c.problem.mask = mask, c.problem.head_dim = c.problem.head_dim_v = 64;
        c.plan.tile_kv = 64, c.plan.schedule = schedule, c.plan.softmax = Softmax::plain;
        c.plan.ping_pong = false, c.plan.symmetric = true;
        runs += in_every_order(make_case(odd_shape(DataType::bf16, mask, 64, 201, 333), reference::Layout::bshd,
                                         reference::Inputs::random, 17, true, 0), c.name());
      }
    say("symmetric", runs);
  }

  TEST_CASE("emulator: the ladder's rungs that have kernels of their own") {
    int runs = 0;
    for (Rung rung : {Rung::unfused_scores, Rung::fa1, Rung::fa2})
      for (Mask mask : {Mask::full, Mask::causal}) {
        const reference::Tensors t = reference::make_tensors(odd_shape(DataType::bf16, mask, 64, 77, 133), reference::Layout::bshd, reference::Inputs::random, 11);
        const reference::Result exact = attention_float64(t.problem), plain = attention_plain(t.problem);
        std::vector<float> first;
        for (Bed& bed : beds()) {
          LadderResult r;
          const Status s = run_rung(*bed.device, rung, t, 0, &r);
          REQUIRE_MESSAGE(s.ok(), s.message);
          const reference::Error e = compare(t.problem, exact, plain, r.o, r.lse);
          CHECK(e.max <= (rung == Rung::unfused_scores ? 4 : 1) * e.allowed_max);  // unfused: S rounded to 16 bits
          if (first.empty()) first = r.o;
          CHECK(r.o == first);
          ++runs;
        }
      }
    say("rungs", runs);
  }

  TEST_CASE("emulator: preparations of FP8 operands") {
    int runs = 0;
    for (const PrepareJob& job : prepare_sweep(77, 256, 77, 128)) {
      if (job.kind == PrepareKind::copy) continue;
      for (Bed& bed : beds()) {
        PrepareRow row{job, "", "", 0, {}};
        check_prepare_job(*bed.device, "random", 5, &row);
        CHECK_MESSAGE(row.failure == "", job.title(), " ", row.checked, ": ", row.failure);
        CHECK(!row.checked.empty());
        ++runs;
      }
    }
    say("preparations", runs);
  }
}
