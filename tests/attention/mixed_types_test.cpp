// Q, K and V of e4m3 and e5m2, each of its own type, against float64: every combination, and what takes FP8 with some of
// them (masks, head dimensions, layouts, shared heads, V^T, folded and two-level sums, fast mode, the whole chain from bf16).
// A tensor read as the other type is off by a factor that no allowance covers. Next: gen/catalog.h (ProblemClass::dtype_k).
#include <cmath>

#include "gen/kernels/attention_forward.h"
#include "host/fp8_attention.h"
#include "host/select.h"
#include "tests/attention/beds.h"
#include "tests/support.h"
#include "tools/flashptx/chain_run.h"

using namespace flashptx;
using reference::Inputs;
using reference::Layout;
using test::Bed;

namespace {

constexpr DataType e4m3 = DataType::e4m3, e5m2 = DataType::e5m2;

struct Combination {
  DataType q, k, v;
};
const std::vector<Combination>& combinations() {
  static const std::vector<Combination> all = [] {
    std::vector<Combination> out;
    for (DataType q : {e4m3, e5m2})
      for (DataType k : {e4m3, e5m2})
        for (DataType v : {e4m3, e5m2}) out.push_back({q, k, v});
    return out;
  }();
  return all;
}
constexpr Combination mixture{e4m3, e5m2, e4m3}, other{e5m2, e4m3, e5m2};

reference::Problem shape(Combination t, int dim, Mask mask, std::int64_t seqlen_q = 130, std::int64_t seqlen_k = 333) {
  reference::Problem p;
  p.dtype = t.q, p.mask = mask, p.head_dim = p.head_dim_v = dim;
  if (t.k != t.q) p.dtype_k = t.k;
  if (t.v != t.q) p.dtype_v = t.v;
  p.seqlen_q = seqlen_q, p.seqlen_k = seqlen_k, p.heads_q = 2, p.heads_kv = 1;
  p.scale = 1 / std::sqrt(static_cast<float>(dim));
  return p;
}

std::string name_of(Combination t) {
  std::string s = std::string("attn_fwd_") + to_string(t.q);
  if (t.k != t.q) s += std::string("_k") + to_string(t.k);
  if (t.v != t.q) s += std::string("_v") + to_string(t.v);
  return s + "_";
}

void check_mixed(Bed& bed, const reference::Problem& p, const std::string& kernel = "", Layout layout = Layout::bshd,
           const std::string& part = "", bool fast = false) {
  Case c = make_case(p, layout, Inputs::random, 3, true, 0);
  c.fast = fast;
  const Outcome r = run_case(*bed.device, *bed.attention, c, {kernel, ""});
  INFO(r.kernel);
  CHECK_MESSAGE(r.ok(), r.complaint());
  CHECK(r.kernel.rfind(name_of({p.dtype, p.type_k(), p.type_v()}), 0) == 0);
  CHECK(r.kernel.find(part) != std::string::npos);
}

void every_combination(Bed& bed) {
  int i = 0;
  for (const Combination& t : combinations())
    for (int dim : {64, 128}) check_mixed(bed, shape(t, dim, i++ % 2 ? Mask::full : Mask::causal));
  check_mixed(bed, shape(mixture, 256, Mask::causal, 70, 200));
  check_mixed(bed, shape(other, 256, Mask::full, 70, 200));
}

void what_takes_fp8(Bed& bed) {
  reference::Problem p = shape(mixture, 64, Mask::causal, 200, 200);
  p.heads_q = 6, p.heads_kv = 2, p.batch = 2;
  check_mixed(bed, p, "", Layout::bhsd);
  check_mixed(bed, p, "", Layout::qkv);
  p = shape(other, 96, Mask::full);
  p.dtype_o = DataType::f16;
  check_mixed(bed, p, "", Layout::bshd, "_of16_");
  p.head_dim_v = 64;
  check_mixed(bed, p, "", Layout::bshd, "_d96v64_");
  check_mixed(bed, shape(other, 64, Mask::full, 70, 0));
  for (const Combination& t : {mixture, other}) {
    const std::string head = name_of(t);
    check_mixed(bed, shape(t, 64, Mask::full, 70, 650), head + "d64_full_vt__q192_kv128_s3_qs2__overlap_guarded3_dyn_ob");
    check_mixed(bed, shape(t, 128, Mask::causal, 150, 650), head + "d128_causal__q192_kv128_s2_qs2__serial_pp_guarded1_dyn_ob_fold2");
    check_mixed(bed, shape(t, 64, Mask::full, 70, 650), head + "d64_full__q128_kv128_s2__serial_pp_guarded3_ob_two");
    check_mixed(bed, shape(t, 128, Mask::full, 130, 700), "", Layout::bshd, "_fast", true);
  }
}

void chain(Bed& bed) {
  const auto check_chain = [&](const Fp8Options& o, Mask mask, int dim) {
    reference::Problem p = shape({DataType::bf16, DataType::bf16, DataType::bf16}, dim, mask, 130, 300);
    const ChainCase c = make_chain_case(p, Layout::bshd, Inputs::outliers, 3, true, 0, o);
    const Outcome r = run_chain(*bed.device, *bed.attention, c, {});
    INFO(r.plan);
    CHECK_MESSAGE(r.ok(), r.complaint());
    CHECK(r.kernel.rfind(name_of({o.dtype, o.type_k(), o.type_v()}), 0) == 0);
  };
  for (ScaleKind kind : {ScaleKind::tensor, ScaleKind::head, ScaleKind::block}) {
    Fp8Options o;
    o.scale_kind = kind, o.hadamard = true, o.seed = 7;
    o.dtype = e4m3, o.dtype_v = e5m2;
    check_chain(o, Mask::full, 128);
    o.dtype = e5m2, o.dtype_k = o.dtype_v = e4m3, o.hadamard_v = kind == ScaleKind::head;
    check_chain(o, Mask::causal, 64);
  }
  Fp8Options fine;
  fine.scale_kind = ScaleKind::block, fine.block_rows = 64, fine.dtype_k = e5m2;
  check_chain(fine, Mask::causal, 128);
}

KernelConfig default_config(Combination t, int dim, Mask mask, bool v_transposed) {
  KernelConfig c;
  c.problem = {t.q, dim, dim, mask};
  if (t.k != t.q) c.problem.dtype_k = t.k;
  if (t.v != t.q) c.problem.dtype_v = t.v;
  c.problem.v_transposed = v_transposed;
  c.plan = standard_plan(c.problem);
  return c;
}

}  // namespace

TEST_SUITE("attention/mixed types") {
  TEST_CASE("emulator: every combination") { every_combination(test::emulator_bed()); }
  TEST_CASE("emulator: with all that takes FP8") { what_takes_fp8(test::emulator_bed()); }
  TEST_CASE("emulator: quantised to a type each, from bf16") { chain(test::emulator_bed()); }
  TEST_CASE("gpu: every combination, with all that takes FP8, and from bf16") {
    Bed& gpu = test::gpu_bed();
    if (!gpu.device) FLASHPTX_SKIP("no GPU: " + gpu.missing);
    every_combination(gpu), what_takes_fp8(gpu), chain(gpu);
  }

  TEST_CASE("names say the types and are read back; products have them, P is e4m3") {
    for (const Combination& t : combinations()) {
      const KernelConfig c = default_config(t, 64, Mask::full, false);
      CHECK(c.name().rfind(name_of(t), 0) == 0);
      KernelConfig back;
      std::string error;
      REQUIRE_MESSAGE(KernelConfig::parse(c.name(), &back, &error), error);
      CHECK(back.name() == c.name());
      const EmittedKernel kernel = emit(back);
      CHECK(kernel.text.find("m64n128k32.f32." + std::string(to_string(t.q)) + "." + to_string(t.k)) != std::string::npos);
      CHECK(kernel.text.find("m64n72k32.f32.e4m3." + std::string(to_string(t.v))) != std::string::npos);  // V and ones
      for (const ParamFact& p : kernel.facts.params) {
        if (p.name == "q_map") CHECK(p.element == to_string(t.q));
        if (p.name == "k_map") CHECK(p.element == to_string(t.k));
        if (p.name == "v_map") CHECK(p.element == to_string(t.v));
      }
    }
    KernelConfig c;
    std::string error;
    CHECK_FALSE(KernelConfig::parse("attn_fwd_e4m3_ve6m1_d64_full__q128_kv128_s2__serial_pp_guarded3_ob", &c, &error));
    CHECK(error.find("a dtype") != std::string::npos);
  }

  TEST_CASE("what does not mix is refused by name") {
    KernelConfig c = default_config({DataType::bf16, e4m3, DataType::bf16}, 64, Mask::full, false);
    CHECK(gen::check_forward(c) == "dtype_k e4m3 does not go with dtype bf16: only e4m3 and e5m2 mix");
    c = default_config({e4m3, e4m3, DataType::bf16}, 64, Mask::full, false);
    CHECK(gen::check_forward(c) == "dtype_v bf16 does not go with dtype e4m3: only e4m3 and e5m2 mix");
    ForwardProblem p;
    p.dtype = e4m3, p.dtype_v = e5m2, p.batch = p.heads_q = p.heads_kv = 1, p.seqlen_q = p.seqlen_k = 300, p.head_dim = 64;
    CHECK(check_forced(p, default_config({e4m3, e4m3, e5m2}, 64, Mask::full, false)).ok());
    CHECK(check_forced(p, default_config({e4m3, e4m3, e4m3}, 64, Mask::full, false)).message.find(
              "is for e4m3: the problem has e4m3 Q, e4m3 K, e5m2 V") != std::string::npos);
  }

  TEST_CASE("ptxas: no combination's default kernel spills") {
    if (test::ptxas().empty()) FLASHPTX_SKIP("no ptxas ($CUDA_HOME, PATH, /usr/local/cuda, build/cuda)");
    int i = 0;
    for (const Combination& t : combinations())
      for (int dim : {64, 128, 256})
        for (Mask mask : {Mask::full, Mask::causal}) {
          if (t.q == e4m3 && t.k == e4m3 && t.v == e4m3) continue;  // catalog/ptxas
          const KernelConfig c = default_config(t, dim, mask, (i++ + (mask == Mask::causal)) % 4 < 2);
          const test::Assembled a = test::assemble(emit(c).text);
          CHECK_MESSAGE(a.ok, c.name(), "\n", a.log);
          CHECK_MESSAGE(a.spill_bytes + a.stack_bytes == 0, c.name());
        }
  }
}
