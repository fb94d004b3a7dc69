// The catalogue on the emulator: every kernel against float64 under round-robin and adversaries,
// and mutants of one kernel, of which the named ones must be caught.
//
// Two multiprocessors make the persistent kernels walk several tiles a CTA. Next:
// host/emulator/checkers/.
#include "host/attention.h"

#include <cmath>
#include <cstring>
#include <ctime>

#include "gen/catalog.h"
#include "host/emulator/emulator.h"
#include "host/emulator/numeric.h"
#include "tests/support.h"
#include "tools/reference/inputs.h"

using namespace flashptx;

namespace {

struct Outcome {
  Status status;
  double o_error = 0, lse_error = 0;
};

struct Case {
  reference::Tensors tensors;
  reference::Result want;
};
Case make_case(const KernelConfig& c, int seqlen_q, int seqlen_k) {
  reference::Problem p;
  p.dtype = c.problem.dtype, p.mask = c.problem.mask;
  p.heads_q = p.heads_kv = 2;
  p.seqlen_q = seqlen_q, p.seqlen_k = seqlen_k;
  p.head_dim = c.problem.head_dim, p.head_dim_v = c.problem.head_dim_v;
  p.scale = 1.0f / std::sqrt(static_cast<float>(p.head_dim));
  p.threads = 1;
  Case out;
  out.tensors = reference::make_tensors(p, reference::Layout::bshd, reference::Inputs::random, 1);
  out.want = reference::attention_float64(out.tensors.problem);
  return out;
}

Outcome run(const KernelConfig& config, const Case& c, std::uint64_t seed, int level,
            const std::string& ptx = "") {
  EmulatorOptions options;
  options.seed = seed, options.adversary_level = level, options.threads = 1,
  options.multiprocessors = 2;
  std::unique_ptr<Device> device;
  REQUIRE(open_emulator(options, &device).ok());
  const reference::Problem& p = c.tensors.problem;
  ForwardPointers at;
  auto upload = [&](const std::vector<std::uint8_t>& bytes, std::uint64_t* address) {
    REQUIRE(device->allocate(bytes.size(), address).ok());
    REQUIRE(device->copy_to_device(*address, bytes.data(), bytes.size()).ok());
  };
  upload(c.tensors.q, &at.q), upload(c.tensors.k, &at.k), upload(c.tensors.v, &at.v);
  std::size_t rows = static_cast<std::size_t>(p.heads_q * p.seqlen_q),
              elements = static_cast<std::size_t>(c.tensors.o_elements);
  REQUIRE(device->allocate(elements * 2, &at.o).ok());
  REQUIRE(device->allocate(rows * 4, &at.lse).ok());
  ForwardProblem f;
  f.dtype = p.dtype, f.mask = p.mask, f.batch = 1, f.heads_q = f.heads_kv = p.heads_q;
  f.seqlen_q = p.seqlen_q, f.seqlen_k = p.seqlen_k, f.head_dim = p.head_dim,
  f.head_dim_v = p.head_dim_v, f.softmax_scale = p.scale;
  f.q = {p.q_strides.batch, p.q_strides.seqlen, p.q_strides.head};
  f.k = {p.k_strides.batch, p.k_strides.seqlen, p.k_strides.head};
  f.v = {p.v_strides.batch, p.v_strides.seqlen, p.v_strides.head};
  f.o = {c.tensors.o_strides.batch, c.tensors.o_strides.seqlen, c.tensors.o_strides.head};
  Outcome out;
  Attention attention(*device);
  std::unique_ptr<ForwardPlan> plan;
  ForwardChoice choice;
  choice.kernel = config.name(), choice.ptx = ptx;
  out.status = attention.plan_forward(f, choice, &plan);
  if (out.status.ok()) out.status = plan->run(at, nullptr);
  if (!out.status.ok()) return out;
  std::vector<std::uint16_t> o(elements);
  std::vector<float> lse(rows);
  REQUIRE(device->copy_from_device(o.data(), at.o, elements * 2).ok());
  REQUIRE(device->copy_from_device(lse.data(), at.lse, rows * 4).ok());
  auto worse = [](double& worst, double e) {
    if (!std::isnan(worst) && !(e <= worst)) worst = e;  // a NaN stays
  };
  for (std::size_t i = 0; i < elements; ++i)
    worse(out.o_error, std::fabs((p.dtype == DataType::f16 ? emulator::f16_to_f32(o[i])
                                                           : emulator::bf16_to_f32(o[i])) -
                                 c.want.o[i]));
  for (std::size_t i = 0; i < rows; ++i)
    if (!(std::isinf(c.want.lse[i]) && lse[i] == static_cast<float>(c.want.lse[i])))
      worse(out.lse_error, std::fabs(lse[i] - c.want.lse[i]));
  return out;
}

bool right(const Outcome& o) { return o.status.ok() && o.o_error < 0.016 && o.lse_error < 1e-5; }

}  // namespace

TEST_SUITE("emulator/attention") {
  TEST_CASE(
      "every catalogued kernel is right round-robin and under eight adversaries, with no fault") {
    for (const KernelConfig& c : catalog()) {
      if (c.problem.dtype != DataType::bf16 && c.problem.dtype != DataType::f16)
        continue;  // FP8 needs scales: its own test
      Case data = make_case(c, 200, 300);
      for (std::uint64_t seed = 0; seed <= 8; ++seed) {
        Outcome o = run(c, data, seed, seed % 2 ? 1 : 2);
        CHECK_MESSAGE(right(o), c.name()
                                    << " seed " << seed << ": " << o.status.message << " O error "
                                    << o.o_error << ", LSE error " << o.lse_error);
      }
    }
  }

  TEST_CASE("one head of 1024 x 1024, head dim 128, takes less than 3 seconds of one core") {
    KernelConfig c;
    std::string error;
    REQUIRE(KernelConfig::parse("attn_fwd_bf16_d128_full__q128_kv128_s2__overlap_pp_lazy8", &c,
                                &error));
    Case data = make_case(c, 512, 1024);  // two heads of half the queries: the same work
    std::clock_t begin = std::clock();
    Outcome o = run(c, data, 0, 0);
    CHECK(right(o));
    CHECK(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC < 3.0);
  }

  TEST_CASE("single mutants of a kernel's text are caught") {
    KernelConfig c;
    std::string error;
    REQUIRE(KernelConfig::parse("attn_fwd_bf16_d64_causal__q128_kv128_s2__overlap_pp_lazy8_dyn", &c,
                                &error));
    const std::string text = emit(c).text;
    Case data = make_case(c, 300, 600);
    Case empty = make_case(c, 600, 300);  // the first 300 rows see no key: their path runs too
    // Every line that holds `needle`, without the line; `harmless` says how many of them change
    // nothing that the PTX ISA defines: a wgmma.fence repeated for ptxas alone, the two bar.sync
    // that only take a turn on the tensor cores, and the three bar.warp.sync after reading a tile
    // slot, which later waits order as well.
    struct Family {
      const char* needle;
      int harmless;
    };
    for (Family f : {Family{"wgmma.wait_group", 0},
                     {"wgmma.commit_group", 0},
                     {"fence.proxy.async", 0},
                     {"fence.mbarrier_init", 0},
                     {"mbarrier.arrive.expect_tx", 0},
                     {"cp.async.bulk.tensor", 0},
                     {"cp.async.bulk.commit_group", 0},
                     {"wgmma.fence", 1},
                     {"bar.sync", 2},
                     {"bar.arrive", 0},
                     {"bar.warp.sync", 3}}) {
      int tried = 0, survived = 0;
      std::string survivors;
      for (std::size_t at = text.find(f.needle); at != std::string::npos;
           at = text.find(f.needle, at + 1)) {
        std::size_t begin = text.rfind('\n', at) + 1, end = text.find(';', at) + 1;
        std::string line = text.substr(begin, end - begin);
        if (text.compare(begin, 2, "//") == 0) continue;
        std::string mutant = text;
        mutant.erase(begin, end - begin);
        ++tried;
        if (right(run(c, data, 0, 0, mutant)) && right(run(c, data, 2, 2, mutant)) &&
            right(run(c, empty, 0, 0, mutant)))
          ++survived, survivors += "\n" + line;
      }
      CHECK_MESSAGE(tried > 0, std::string(f.needle));
      CHECK_MESSAGE(survived <= f.harmless, std::string(f.needle)
                                                << " dropped: " << survived << " of " << tried
                                                << " survive" << survivors);
    }
  }
}
