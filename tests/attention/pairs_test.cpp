// Pairs of CTAs (Plan::cluster) in causal attention and with drawn tiles: the bits of the kernel without pairs, for every size,
// order and number of pairs; tiles done again in either CTA or both; counters left at zero; what it goes with.
//
// Next: gen/tile/cluster.cpp, redo_test.cpp (how many tiles are done again), tests/emulator/attention_test.cpp.
#include <algorithm>
#include <cmath>

#include "gen/kernels/attention_forward.h"
#include "tests/attention/beds.h"
#include "tests/attention/scores.h"
#include "tests/forwarding_device.h"
#include "tests/support.h"

using namespace flashptx;
using test::Bed;

namespace {

const char* const paired[] = {
    "attn_fwd_bf16_d64_causal__q256_kv64_s4_qs2__overlap_pp_guarded2_dyn_ob_c2",
    "attn_fwd_f16_d64_causal__q128_kv48_s2__rotated_guarded1_dyn_ob_late_c2",
    "attn_fwd_bf16_d128_causal__q192_kv64_s3_qs2__overlap_pp_guarded1_dyn_c2",
    "attn_fwd_bf16_d128_causal__q128_kv128_s2_qs2__trailing_pp_guarded1_c2",
    "attn_fwd_bf16_d256_causal__q128_kv64_s2__overlap_pp_guarded1_dyn_ob_c2",
    "attn_fwd_bf16_d64_causal__q64_kv80_s3_vs2__serial_lazy8_dyn_c2",
    "attn_fwd_bf16_d64_full__q128_kv64_s3_qs2__overlap_pp_guarded2_dyn_ob_c2",
    "attn_fwd_e4m3_d64_causal_vt__q128_kv128_s2_qs2__trailing_pp_guarded1_dyn_ob_c2",
};

KernelConfig alone(KernelConfig c) {
  c.plan.cluster = 1;
  return c;
}

Case shaped(const KernelConfig& c, int batch, int heads, int heads_kv, int rows, int keys) {
  reference::Problem p;
  p.dtype = c.problem.dtype, p.mask = c.problem.mask, p.threads = 1;
  p.batch = batch, p.heads_q = heads, p.heads_kv = heads_kv, p.seqlen_q = rows, p.seqlen_k = keys;
  p.head_dim = p.head_dim_v = c.problem.head_dim;
  p.scale = 1 / std::sqrt(static_cast<float>(p.head_dim));
  return make_case(p, reference::Layout::bshd, reference::Inputs::random, 7, true, 0);
}

Bed bed_of(std::uint64_t seed, int pairs) {
  EmulatorOptions o = test::emulated_order(seed, 2 * pairs);
  o.threads = 1;
  return test::open_bed(DeviceChoice::emulator, o);
}

Outcome run(Device& device, Attention& attention, const Case& data, const KernelConfig& c) {
  ForwardChoice choice;
  choice.kernel = c.name();
  return run_case(device, attention, data, choice);
}
Outcome run(const Bed& bed, const Case& data, const KernelConfig& c) { return run(*bed.device, *bed.attention, data, c); }

// Looks at the tile counter behind each launch.
struct CounterWatch : test::ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  std::size_t parameter = 0;
  int launches = 0, left = 0;  // of them, words that were not zero after one
  Status launch_choosing(LoadedKernel* kernel, const LaunchDims& dims, void** params, int count, Stream stream,
                         const std::function<void(bool)>& choose) override {
    if (Status s = inner->launch_choosing(kernel, dims, params, count, stream, choose); !s.ok()) return s;
    if (Status s = inner->synchronize(stream); !s.ok()) return s;
    std::uint32_t words[2];
    if (Status s = inner->copy_from_device(words, *static_cast<const std::uint64_t*>(params[parameter]), sizeof words); !s.ok()) return s;
    ++launches, left += (words[0] != 0) + (words[1] != 0);
    return {};
  }
};

}  // namespace

TEST_SUITE("attention/pairs") {
  // Odd and even many tiles a head; rows that see no key in whole pairs, in a pair's first tile, in a part of one; groups of
  // query heads; more pairs than tiles and fewer.
  TEST_CASE("the bits of the kernel without pairs, in every order, on few multiprocessors and on many") {
    struct Shape {
      int batch, heads, heads_kv, rows, keys;
    };
    for (const char* name : paired) {
      const KernelConfig c = test::kernel_named(name);
      REQUIRE(c.name() == name);
      for (const Shape& s : {Shape{2, 4, 2, 700, 333}, {1, 3, 1, 385, 900}, {1, 2, 2, 520, 140}, {3, 2, 1, 129, 129}, {1, 1, 1, 1, 70}, {1, 2, 1, 300, 1}, {2, 2, 2, 200, 0}}) {
        const Case data = shaped(c, s.batch, s.heads, s.heads_kv, s.rows, s.keys);
        const Outcome without = run(bed_of(0, 1), data, alone(c));
        REQUIRE_MESSAGE(without.ok(), alone(c).name(), ": ", without.complaint());
        for (std::uint64_t seed = 0; seed < 4; ++seed) {
          const Outcome r = run(bed_of(seed, seed == 3 ? 66 : 1 + static_cast<int>(seed)), data, c);
          const std::string what = c.name() + " " + std::to_string(s.rows) + " x " + std::to_string(s.keys) + " seed " + std::to_string(seed);
          CHECK_MESSAGE(r.ok(), what, ": ", r.complaint());
          CHECK_MESSAGE((r.o_bytes == without.o_bytes && r.lse_bytes == without.lse_bytes), what, ": other bits");
        }
      }
    }
  }

  // Three tiles a head: the last pair's second CTA has no rows. A tile of CTA 0 alone, of CTA 1 alone, of both, that of the
  // half-empty pair, all.
  TEST_CASE("whichever tiles of a pair leave the guard's range are done again") {
    for (const char* name : {paired[0], paired[2], paired[3], paired[4], paired[7]}) {
      const KernelConfig c = test::kernel_named(name);
      const int tile = c.tile_q();
      for (const std::vector<int>& failing : {std::vector<int>{0}, {1}, {0, 1}, {2}, {0, 1, 2}}) {
        reference::Problem p;
        p.dtype = c.problem.dtype, p.mask = c.problem.mask, p.threads = 1;
        p.heads_q = p.heads_kv = 2, p.head_dim = p.head_dim_v = c.problem.head_dim;
        p.seqlen_q = 2 * tile + 44, p.seqlen_k = p.seqlen_q + (c.plan.guard_blocks + 2) * c.plan.tile_kv;
        const test::Scores s = test::jumping_scores(&p, p.dtype == DataType::f16 ? 20 : 140, [&](std::int64_t head, std::int64_t row) {
          return head == 1 && std::count(failing.begin(), failing.end(), static_cast<int>(row / tile));
        });
        const Case data = test::scored_case(p, s, 1, 48);
        for (std::uint64_t seed = 0; seed < 3; ++seed) {
          const Outcome r = run(bed_of(seed, 1 + static_cast<int>(seed)), data, c);
          CHECK_MESSAGE(r.ok(), name, " seed ", seed, ", ", failing.size(), " from ", failing[0], ": ", r.complaint());
        }
      }
    }
  }

  TEST_CASE("each launch leaves the counter at zero, and the grid is of whole pairs") {
    for (const char* name : {paired[0], paired[6]}) {
      const KernelConfig c = test::kernel_named(name);
      for (int pairs : {1, 3, 66}) {
        EmulatorOptions options = test::emulated_order(1, 2 * pairs);
        options.threads = 1;
        CounterWatch device(options);
        Attention attention(device);
        const LaunchFacts facts = emit(c).facts;
        while (facts.params[device.parameter].name != "tile_counter") ++device.parameter;
        const Case data = shaped(c, 1, 2, 2, 600, 200);
        for (int launch = 0; launch < 3; ++launch) {
          const Outcome r = run(device, attention, data, c);
          CHECK_MESSAGE(r.ok(), name, ": ", r.complaint());
        }
        CHECK(device.launches == 3);
        CHECK(device.left == 0);
        ForwardChoice choice;
        choice.kernel = name;
        std::unique_ptr<ForwardPlan> plan;
        REQUIRE(attention.plan_forward(host_problem(data), choice, &plan).ok());
        const int tiles = 2 * ((600 + c.cluster_rows() - 1) / c.cluster_rows());
        CHECK(plan->dims().grid[0] == static_cast<unsigned>(2 * std::min(pairs, tiles)));
        CHECK(plan->dims().cluster[0] == 2);
      }
    }
  }

  // Rows without keys: no stage of K holds CTA 0 back, which then draws as far ahead as the words let it.
  TEST_CASE("a draw that overwrites one not read yet, or is read before it is there, is seen") {
    const KernelConfig c = test::kernel_named(paired[2]);
    const Case data = shaped(c, 1, 24, 1, 200, 0);
    const std::string text = emit(c).text;
    for (const char* what : {"", "$WAIT_DRAWN_EMPTY;", "$WAIT_DRAWN_FULL;"}) {
      ForwardChoice choice;
      choice.kernel = c.name(), choice.ptx = text;
      const std::size_t at = choice.ptx.find(std::string("bra ") + what);
      REQUIRE(at != std::string::npos);
      const std::size_t line = choice.ptx.rfind('\n', at) + 1;
      if (*what) choice.ptx.erase(line, choice.ptx.find('\n', line) - line);
      int seen = 0;
      for (std::uint64_t seed = 0; seed < 6; ++seed) {
        const Bed bed = bed_of(seed, 1);
        seen += !run_case(*bed.device, *bed.attention, data, choice).ok();
      }
      CHECK_MESSAGE((seen > 0) == (*what != 0), "without ", what, ": ", seen);
    }
  }

  TEST_CASE("what it does not go with is refused by name") {
    for (const auto& [name, why] : {std::pair{"attn_fwd_e4m3_d64_causal__q128_kv128_s2__overlap_pp_guarded1_dyn_ob_c2", "V is given transposed"},
                                    {"attn_fwd_e4m3_d64_causal_vt_bs128__q128_kv128_s2__overlap_pp_guarded1_dyn_ob_c2", "scales by head"},
                                    {"attn_fwd_bf16_d64_full__q128_kv64_s2__overlap_pp_guarded1_dyn_ob_tail_c2", "outside of clusters"},
                                    {"attn_fwd_bf16_d64_causal__q128_kv64_s4_qs2__overlap_guarded2_dyn_ob_c2_x2", "without a cluster"}})
      test::check_refused(name, {why});
  }

  TEST_CASE("gpu: pairs are right, twice in a row") {
    Bed& gpu = test::gpu_bed();
    if (!gpu.device) FLASHPTX_SKIP("no GPU: " + gpu.missing);
    for (const char* name : paired) {
      const KernelConfig c = test::kernel_named(name);
      for (const auto& [rows, keys] : {std::pair{4000, 4000}, {1500, 700}, {700, 1500}}) {
        const Case data = shaped(c, 4, 16, 4, rows, keys);
        const Outcome without = run(gpu, data, alone(c)), first = run(gpu, data, c), second = run(gpu, data, c);
        CHECK_MESSAGE(first.ok(), name, ": ", first.complaint());
        CHECK_MESSAGE((first.o_bytes == without.o_bytes && second.o_bytes == without.o_bytes && second.lse_bytes == without.lse_bytes), name, ": other bits");
      }
    }
  }
}
