// The ladder's kernels: names, assembly, and their results against float64 on the emulator.
// Next: gen/kernels/ladder.h, tools/flashptx/ladder_run.h.
#include "gen/kernels/ladder.h"

#include <cmath>

#include "tests/support.h"
#include "tools/flashptx/ladder_run.h"
#include "tools/reference/error.h"

using namespace flashptx;

namespace {

reference::Problem problem(int d, Mask mask, int sq, int sk, int heads_q, int heads_kv,
                           DataType type = DataType::bf16) {
  reference::Problem p;
  p.dtype = type;
  p.batch = 2;
  p.heads_q = heads_q, p.heads_kv = heads_kv;
  p.seqlen_q = sq, p.seqlen_k = sk;
  p.head_dim = p.head_dim_v = d;
  p.mask = mask;
  p.scale = 1.0f / std::sqrt(static_cast<float>(d));
  return p;
}

// Unfused attention rounds S to 16 bits, which the fused rungs never do: its error may be that much
// larger.
constexpr double unfused_allowance = 4;

std::string failure_of(Rung rung, const reference::Problem& shape, std::uint64_t seed) {
  std::unique_ptr<Device> device;
  EmulatorOptions options;
  options.seed = seed;
  options.adversary_level = seed ? 2 : 1;
  Status s = open_emulator(options, &device);
  if (!s.ok()) return s.message;
  const reference::Tensors t =
      reference::make_tensors(shape, reference::Layout::bshd, reference::Inputs::random, 11 + seed);
  LadderResult r;
  s = run_rung(*device, rung, t, 0, &r);
  if (!s.ok()) return s.message;
  const reference::Error e =
      compare(t.problem, attention_float64(t.problem), attention_plain(t.problem), r.o, r.lse);
  if (rung == Rung::fa1 || rung == Rung::fa2) return e.first_failure;
  const double allowed = unfused_allowance * e.allowed_max;
  if (!(e.max <= allowed))
    return "off by " + std::to_string(e.max) + ", allowed " + std::to_string(allowed);
  return e.lse_max <= 0.05 ? "" : "LSE off by " + std::to_string(e.lse_max);
}

}  // namespace

TEST_SUITE("gen/ladder") {
  TEST_CASE("a name parses back to its configuration, and nothing else parses") {
    for (const LadderConfig& c : ladder_catalog()) {
      LadderConfig back;
      CHECK(LadderConfig::parse(c.name(), &back));
      CHECK(back.name() == c.name());
    }
    LadderConfig c;
    CHECK_FALSE(LadderConfig::parse("fa2_fwd_bf16_d96_full", &c));
    CHECK_FALSE(LadderConfig::parse("fa3_fwd_bf16_d128_full", &c));
  }

  TEST_CASE("every rung assembles without a remark") {
    if (test::ptxas().empty()) FLASHPTX_SKIP("no ptxas");
    for (const LadderConfig& c : ladder_catalog()) {
      const test::Assembled a = test::assemble(emit_ladder(c).text);
      CAPTURE(c.name());
      CHECK(a.ok);
      // FA-2 lives at 255 registers as the original does: some row statistics leave them once a
      // trip.
      CHECK(a.spill_bytes <= (c.rung == Rung::fa2 ? 256 : 0));
      CHECK(a.log.find("warning") == std::string::npos);
    }
  }

  TEST_CASE("FA-2 equals float64: ragged ends, grouped heads, causal, no keys") {
    CHECK(failure_of(Rung::fa2, problem(128, Mask::full, 150, 200, 2, 1), 0) == "");
    CHECK(failure_of(Rung::fa2, problem(128, Mask::causal, 130, 300, 1, 1), 1) == "");
    CHECK(failure_of(Rung::fa2, problem(128, Mask::causal, 200, 70, 1, 1), 2) == "");
    CHECK(failure_of(Rung::fa2, problem(64, Mask::causal, 129, 257, 2, 2, DataType::f16), 3) == "");
    CHECK(failure_of(Rung::fa2, problem(64, Mask::full, 3, 0, 1, 1), 4) == "");
  }

  TEST_CASE("standard attention in three kernels equals float64 but for the rounding of S") {
    CHECK(failure_of(Rung::unfused_scores, problem(128, Mask::full, 140, 203, 2, 1), 0) == "");
    CHECK(failure_of(Rung::unfused_scores, problem(64, Mask::causal, 130, 150, 1, 1, DataType::f16),
                     1) == "");
    CHECK(failure_of(Rung::unfused_scores, problem(128, Mask::causal, 70, 40, 1, 1), 2) == "");
  }

  TEST_CASE("FA-1 equals float64: ragged ends, grouped heads, causal") {
    CHECK(failure_of(Rung::fa1, problem(128, Mask::full, 70, 130, 2, 1), 0) == "");
    CHECK(failure_of(Rung::fa1, problem(64, Mask::causal, 100, 150, 1, 1, DataType::f16), 5) == "");
    CHECK(failure_of(Rung::fa1, problem(128, Mask::causal, 90, 40, 1, 1), 6) == "");
  }
}
