// The chain on the emulator against float64 of the tensors as given, with the bounds of tools/flashptx/chain_run.h; what
// it launches, where its parts lie, what is refused. Next: host/fp8_attention.h.
#include "host/fp8_attention.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "host/context.h"
#include "tests/host/fake_device.h"
#include "tests/host/problems.h"
#include "tests/support.h"
#include "tools/flashptx/chain_run.h"

using namespace flashptx;
using namespace flashptx::test;
using reference::Inputs;
using reference::Layout;

namespace {

reference::Problem shape(Mask mask, int dim, std::int64_t seqlen_q, std::int64_t seqlen_k, std::int64_t heads = 2,
                         std::int64_t heads_kv = 1, DataType dtype = DataType::bf16) {
  reference::Problem p;
  p.dtype = dtype, p.mask = mask, p.head_dim = p.head_dim_v = dim;
  p.seqlen_q = seqlen_q, p.seqlen_k = seqlen_k, p.heads_q = heads, p.heads_kv = heads_kv;
  p.scale = 1 / std::sqrt(static_cast<float>(dim));
  return p;
}

Fp8Options recipe(ScaleKind kind, bool hadamard = false, bool hadamard_v = false) {
  Fp8Options o;
  o.scale_kind = kind, o.hadamard = hadamard, o.hadamard_v = hadamard_v, o.seed = 7;
  return o;
}

Outcome run(const ChainCase& c, std::uint64_t seed = 0, bool narrow = false, const ForwardChoice& choice = {}) {
  EmulatorOptions options;
  options.seed = seed, options.adversary_level = seed ? 2 : 1;
  options.fp8_narrow_accumulator = narrow;
  std::unique_ptr<Device> device;
  const Status s = open_emulator(options, &device);
  REQUIRE_MESSAGE(s.ok(), s.message);
  Attention attention(*device);
  return run_chain(*device, attention, c, choice);
}

std::string complaint(const reference::Problem& p, const Fp8Options& o, Inputs inputs = Inputs::outliers,
                      Layout layout = Layout::bshd, std::uint64_t seed = 0) {
  return run(make_chain_case(p, layout, inputs, 3, true, 0, o), seed).complaint();
}

struct Rig {
  FakeDevice device;
  Attention attention{device};
  std::unique_ptr<Fp8Plan> plan;
  Status make(const ForwardProblem& p, const Fp8Options& o) {
    return plan_fp8_attention(attention, p, o, {}, &plan);
  }
};

Fp8Pointers pointers(const Fp8Plan& plan) {
  Fp8Pointers at;
  at.q = 1 << 20, at.k = 2 << 20, at.v = 3 << 20, at.o = 4 << 20;
  at.workspace = std::uint64_t{1} << 32;
  if (plan.q().rope != Rope::none) at.cos = 5 << 20, at.sin = 6 << 20;
  return at;
}

std::string refusal(const ForwardProblem& p, const Fp8Options& o) {
  Rig b;
  const Status s = b.make(p, o);
  CHECK_FALSE(s.ok());
  return s.message;
}

bool says(const std::string& text, const std::string& part) {
  CAPTURE(text);
  CAPTURE(part);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_SUITE("host/fp8_attention") {
  TEST_CASE("agrees with float64 of the 16-bit tensors, every recipe") {
    for (ScaleKind kind : {ScaleKind::tensor, ScaleKind::head, ScaleKind::block})
      for (bool hadamard : {false, true}) {
        CAPTURE(static_cast<int>(kind));
        CAPTURE(hadamard);
        CHECK(complaint(shape(Mask::full, 128, 130, 260), recipe(kind, hadamard)) == "");
        CHECK(complaint(shape(Mask::causal, 64, 130, 200), recipe(kind, hadamard, true)) == "");
      }
  }

  TEST_CASE("agrees with float64: types, head dims, layouts, lengths, RoPE") {
    Fp8Options o = recipe(ScaleKind::head, true);
    CHECK(complaint(shape(Mask::causal, 256, 70, 140), o) == "");
    CHECK(complaint(shape(Mask::full, 96, 70, 140, 4, 2, DataType::f16), o, Inputs::random, Layout::bhsd) == "");
    CHECK(complaint(shape(Mask::full, 64, 129, 129, 3, 1), o, Inputs::random, Layout::qkv) == "");
    CHECK(complaint(shape(Mask::full, 64, 5, 1), o) == "");
    CHECK(complaint(shape(Mask::full, 64, 5, 0), o) == "");
    CHECK(complaint(shape(Mask::causal, 64, 200, 100), o) == "");  // rows without keys
    o.dtype = DataType::e5m2;
    CHECK(complaint(shape(Mask::full, 128, 70, 300), o) == "");
    o = recipe(ScaleKind::head, true);
    o.rope = Rope::half;
    CHECK(complaint(shape(Mask::causal, 128, 70, 140), o, Inputs::random) == "");
    o.rope = Rope::interleaved, o.hadamard = false;
    CHECK(complaint(shape(Mask::full, 64, 70, 140), o, Inputs::random) == "");
  }

  TEST_CASE("agrees with float64: V turned, then transposed by the attention kernel itself") {
    for (std::uint64_t seed : {0, 1}) {
      const Outcome r = run(make_chain_case(shape(Mask::causal, 64, 150, 300, 4, 2), Layout::bshd, Inputs::outliers, 3, true, 0,
                                            recipe(ScaleKind::head, true, true)),
                            seed, false, {"attn_fwd_e4m3_d64_causal_vt__q192_kv128_s3_qs2_vb__overlap_guarded3_chord6_dyn_ob", ""});
      CHECK(r.complaint() == "");
    }
  }

  TEST_CASE("agrees with float64: blocks of any size that the kernels take") {
    Fp8Options o = recipe(ScaleKind::block, true);
    for (int rows : {16, 64, 128, 256}) {
      CAPTURE(rows);
      o.block_rows = rows;
      CHECK(complaint(shape(Mask::causal, 64, 150, 300, 4, 2), o) == "");
    }
    CHECK(complaint(shape(Mask::full, 256, 40, 150), recipe(ScaleKind::block)) == "");
    CHECK(complaint(shape(Mask::full, 64, 5, 0), recipe(ScaleKind::block)) == "");
    o.block_rows = 32, o.dtype = DataType::e5m2;
    CHECK(complaint(shape(Mask::full, 96, 70, 300), o, Inputs::random, Layout::bhsd) == "");
    o = recipe(ScaleKind::block, true);
    o.rope = Rope::half;
    CHECK(complaint(shape(Mask::causal, 128, 70, 140), o, Inputs::random) == "");
  }

  TEST_CASE("fast mode agrees with float64 within its allowance, and is another kernel") {
    for (ScaleKind kind : {ScaleKind::head, ScaleKind::block}) {
      Fp8Options o = recipe(kind, true);
      o.fast = true;
      CHECK(complaint(shape(Mask::full, 128, 130, 700), o) == "");
      CHECK(complaint(shape(Mask::causal, 64, 130, 400, 4, 2), o) == "");
    }
  }

  TEST_CASE("a wrong preparation is noticed") {
    ChainCase c = make_chain_case(shape(Mask::full, 64, 70, 140), Layout::bshd, Inputs::random, 3, true, 0,
                                  recipe(ScaleKind::head, true));
    CHECK(run(c).complaint() == "");
    // A rotation that the case was not computed for: K by half a turn, Q by none.
    c.options.rope = Rope::half, c.options.table_rows = 210, c.options.position_q = 140;
    c.cos.assign(210 * 32, 1.0f), c.sin.assign(210 * 32, 0.0f);
    std::fill(c.cos.begin(), c.cos.begin() + 140 * 32, -1.0f);
    CHECK(run(c).complaint() != "");
  }

  TEST_CASE("outliers: Hadamard lowers the error of plain FP8") {
    const ChainCase c = make_chain_case(shape(Mask::full, 128, 256, 512), Layout::bshd, Inputs::outliers, 1, false, 0,
                                        recipe(ScaleKind::head, true));
    const Outcome r = run(c);
    CHECK(r.complaint() == "");
    CAPTURE(r.error.rms);
    CAPTURE(c.baseline_rms);
    CHECK(r.error.rms < 0.9 * c.baseline_rms);
  }

  TEST_CASE("any order of the hardware gives the same bits") {
    const ChainCase c = make_chain_case(shape(Mask::causal, 64, 130, 200), Layout::bshd, Inputs::random, 3, true, 0,
                                        recipe(ScaleKind::head, true, true));
    const Outcome first = run(c);
    for (std::uint64_t seed : {1, 2, 3}) {
      const Outcome r = run(c, seed);
      CHECK(r.complaint() == "");
      CHECK(r.o_bytes == first.o_bytes);
      CHECK(r.lse_bytes == first.lse_bytes);
    }
    CHECK(run(c, 0, true).complaint() == "");
  }

  TEST_CASE("the seed of the signs changes the rounding and nothing else") {
    Fp8Options o = recipe(ScaleKind::head, true);
    std::set<std::vector<std::uint8_t>> results;
    for (std::uint32_t seed : {0u, 1u, 0xffffffffu}) {
      o.seed = seed;
      const Outcome r = run(make_chain_case(shape(Mask::full, 64, 70, 140), Layout::bshd, Inputs::outliers, 3, true, 0, o));
      CHECK(r.complaint() == "");
      results.insert(r.o_bytes);
    }
    CHECK(results.size() == 3);
  }

  TEST_CASE("planning loads every kernel and a call allocates nothing, on several streams with a workspace each") {
    for (bool hadamard_v : {false, true}) {
      Rig b;
      b.device.information.driver_version = hadamard_v ? 12020 : 13000;
      // So many keys that a turned V is transposed by a pass.
      const Status s = b.make(bshd(2, 8, 2, 300, 4096, 256), recipe(ScaleKind::head, true, hadamard_v));
      REQUIRE_MESSAGE(s.ok(), s.message);
      const auto loaded = b.device.loaded_images.size();
      const int allocations = b.device.live_allocations;
      b.device.is_capturing = true;
      Fp8Pointers at = pointers(*b.plan);
      for (std::uint64_t stream : {1, 2, 1}) {
        at.workspace = stream << 32;
        const Status r = b.plan->run(at, reinterpret_cast<Stream>(stream));
        REQUIRE_MESSAGE(r.ok(), r.message);
      }
      CHECK(b.device.loaded_images.size() == loaded);
      CHECK(b.device.live_allocations == allocations);
      CHECK(b.device.synchronisations <= 1);  // of the counters, at planning
      REQUIRE(b.device.launches.size() % 3 == 0);
      const std::size_t each = b.device.launches.size() / 3;
      // Amax and quantise of three, attention; V^T in between where that pays, and O turned back.
      CHECK(each == 7 + (hadamard_v ? 1 : 0) + (b.plan->forward().transposes_v() ? 1 : 0));
      for (std::size_t i = 0; i < b.device.launches.size(); ++i)
        CHECK(b.device.launches[i].stream == reinterpret_cast<Stream>(std::uint64_t{i / each == 1 ? 2u : 1u}));
      // Each may start while the launch before ends, where graphs can hold that.
      for (const test::FakeDevice::Launch& l : b.device.launches) {
        CAPTURE(l.entry);
        CHECK(l.dims.programmatic_dependent == !hadamard_v);
      }
      // Every map of the second stream but that of O lies in its workspace.
      for (const TensorMapDesc& d : b.device.encoded) {
        CAPTURE(d.name);
        const bool inside = (d.address >> 32 == 1 || d.address >> 32 == 2) &&
                            (d.address & 0xffffffffu) < b.plan->workspace_bytes();
        CHECK((inside || d.address == at.o));
      }
    }
  }

  TEST_CASE("V is transposed on the way unless it is turned") {
    Rig b;
    REQUIRE(b.make(usual(), recipe(ScaleKind::head, true)).ok());
    CHECK(b.plan->v().transpose);
    CHECK(b.plan->forward().problem().v_transposed);
    CHECK(says(b.plan->kernel_name(), "_vt"));
    CHECK(says(b.plan->describe(), "V e4m3, a scale a head, transposed"));
    REQUIRE(b.make(usual(), recipe(ScaleKind::head, true, true)).ok());
    CHECK_FALSE(b.plan->v().transpose);
  }

  TEST_CASE("an empty problem needs neither workspace nor pointers") {
    Rig b;
    REQUIRE(b.make(bshd(2, 8, 2, 0, 500, 128), recipe(ScaleKind::head)).ok());
    CHECK(b.plan->workspace_bytes() == 0);
    CHECK(b.plan->run({}, nullptr).ok());
    CHECK(b.device.launches.empty());
  }

  TEST_CASE("refuses what cannot be, by name") {
    const Fp8Options o = recipe(ScaleKind::head);
    const auto with = [&](auto change) {
      Fp8Options bad = o;
      change(bad);
      return refusal(usual(), bad);
    };
    CHECK(says(with([](auto& x) { x.dtype = DataType::bf16; }), "fp8 dtype is 1: must be e4m3 or e5m2"));
    CHECK(says(with([](auto& x) { x.dtype_k = DataType::bf16; }), "fp8 dtype_k is 1: must be e4m3 or e5m2"));
    CHECK(says(with([](auto& x) { x.dtype_v = DataType::f16; }), "fp8 dtype_v is 0: must be e4m3 or e5m2"));
    CHECK(says(with([](auto& x) { x.scale_kind = static_cast<ScaleKind>(3); }), "scale_kind is 3"));
    CHECK(says(with([](auto& x) { x.block_rows = 128; }), "block_rows is 128: must be 0 unless"));
    CHECK(says(with([](auto& x) { x.scale_kind = ScaleKind::block, x.block_rows = -1; }), "block_rows is -1"));
    CHECK(says(with([](auto& x) { x.scale_kind = ScaleKind::block, x.block_rows = 48; }), "k_scale block_rows is 48"));
    CHECK(says(with([](auto& x) { x.rope = static_cast<Rope>(9); }), "rope is 9"));
    CHECK(says(with([](auto& x) { x.table_rows = 10; }), "rope is 0 while"));
    CHECK(says(with([](auto& x) { x.rope = Rope::half, x.table_rows = 299; }), "preparation of Q: table_rows is 299"));
    CHECK(says(with([](auto& x) { x.rope = Rope::half, x.table_rows = 499; }), "preparation of K: table_rows is 499"));
    CHECK(says(with([](auto& x) { x.rope = Rope::half, x.table_rows = 500, x.position_q = -1; }), "position is -1"));
    CHECK(says(with([](auto& x) { x.rope = Rope::half, x.table_rows = 500, x.table = DataType::f16; }), "table_dtype"));
    CHECK(says(refusal(bshd(1, 2, 2, 10, 10, 128, Mask::full, DataType::e4m3), o), "dtype is 2: must be f16 or bf16"));
    CHECK(says(refusal(bshd(1, 2, 2, 10, 10, 40), o), "preparation of Q: head_dim is 40: must be a multiple of 16"));
    CHECK(says(refusal(bshd(1, 3, 2, 10, 10, 64), o), "heads_q is 3"));
    ForwardProblem p = usual();
    p.head_dim_v = 72, p.v = strides_bshd(500, 2, 72), p.o = strides_bshd(300, 8, 72);
    CHECK(says(refusal(p, o), "preparation of V: head_dim is 72"));
    p = usual();
    p.k.seq = 4;
    CHECK(says(refusal(p, o), "K seq stride is 4"));
    p = usual();
    p.softmax_scale = -1;
    CHECK(says(refusal(p, o), "softmax_scale"));
    p = usual();
    p.batch = 70000, p.q.batch = p.o.batch = p.k.batch = p.v.batch = 8 * 500 * 128;
    CHECK(says(refusal(p, o), "preparation of Q: batch is 70000"));
  }

  TEST_CASE("refuses pointers that cannot be, by name") {
    Rig b;
    Fp8Options o = recipe(ScaleKind::head);
    REQUIRE(b.make(usual(), o).ok());
    const auto with = [&](auto change) {
      Fp8Pointers at = pointers(*b.plan);
      change(at);
      const Status s = b.plan->run(at, nullptr);
      CHECK_FALSE(s.ok());
      return s.message;
    };
    CHECK(says(with([](auto& a) { a.q = 0; }), "q is a null pointer"));
    CHECK(says(with([](auto& a) { a.v += 8; }), "v is address"));
    CHECK(says(with([](auto& a) { a.o = a.k; }), "o is the address of k"));
    CHECK(says(with([](auto& a) { a.lse = 2; }), "lse is address 2"));
    CHECK(says(with([](auto& a) { a.workspace = 0; }), "workspace is a null pointer: the plan wants"));
    CHECK(says(with([](auto& a) { a.workspace += 8; }), "workspace is address"));
    CHECK(says(with([](auto& a) { a.workspace = a.k - 16; }), "k lies inside the workspace"));
    CHECK(says(with([](auto& a) { a.cos = 16; }), "cos is given: the plan has no rope"));
    CHECK(b.device.launches.empty());
    o.rope = Rope::half, o.table_rows = 500;
    REQUIRE(b.make(usual(), o).ok());
    CHECK(says(with([](auto& a) { a.cos = 0; }), "cos is a null pointer"));
    CHECK(says(with([](auto& a) { a.sin = 0; }), "sin is a null pointer"));
    CHECK(b.device.launches.empty());
  }
}

namespace {

struct C {
  std::unique_ptr<flashptx_context> context;
  flashptx_plan* plan = nullptr;
  flashptx_forward_problem problem{};
  flashptx_fp8_options options{};
  C() {
    std::unique_ptr<Device> device;
    REQUIRE(open_emulator({}, &device).ok());
    context = std::make_unique<flashptx_context>(std::move(device), 0);
    problem.size = sizeof problem, options.size = sizeof options;
    problem.dtype = FLASHPTX_BF16, problem.batch = 1, problem.heads_q = problem.heads_kv = 1;
    problem.seqlen_q = problem.seqlen_k = 40, problem.head_dim = 64;
    problem.q = problem.k = problem.v = problem.o = flashptx_strides_bshd(40, 1, 64);
    options.dtype = FLASHPTX_E4M3, options.scale_kind = FLASHPTX_SCALE_HEAD, options.hadamard = 1;
  }
  ~C() { flashptx_plan_destroy(plan); }
  flashptx_status make() { return flashptx_plan_fp8_attention(context.get(), &problem, &options, &plan); }
  std::string error() { return flashptx_last_error(context.get()); }
};

}  // namespace

TEST_SUITE("host/fp8_attention_c") {
  TEST_CASE("ones in, ones out") {
    C c;
    REQUIRE_MESSAGE(c.make() == FLASHPTX_OK, c.error());
    CHECK(says(flashptx_plan_kernel(c.plan), "attn_fwd_e4m3_d64"));
    CHECK(says(flashptx_plan_describe(c.plan), "hadamard"));
    const std::size_t bytes = 40 * 64 * 2;
    void *x = nullptr, *o = nullptr, *workspace = nullptr;
    REQUIRE(flashptx_device_alloc(c.context.get(), bytes, &x) == FLASHPTX_OK);
    REQUIRE(flashptx_device_alloc(c.context.get(), bytes, &o) == FLASHPTX_OK);
    REQUIRE(flashptx_device_alloc(c.context.get(), flashptx_plan_workspace(c.plan), &workspace) == FLASHPTX_OK);
    const std::vector<std::uint16_t> ones(40 * 64, 0x3f80);
    REQUIRE(flashptx_copy_to_device(c.context.get(), x, ones.data(), bytes) == FLASHPTX_OK);
    flashptx_forward_args a{};
    a.size = sizeof a, a.q = a.k = a.v = x, a.o = o, a.workspace = workspace;
    REQUIRE_MESSAGE(flashptx_forward_with(c.plan, &a, nullptr) == FLASHPTX_OK, c.error());
    std::vector<std::uint16_t> got(40 * 64);
    REQUIRE(flashptx_copy_from_device(c.context.get(), got.data(), o, bytes) == FLASHPTX_OK);
    CHECK(got == ones);
    CHECK(flashptx_forward(c.plan, x, x, x, o, nullptr, nullptr) == FLASHPTX_INVALID_ARGUMENT);
    CHECK(says(c.error(), "flashptx_forward_with"));
    a.k_scale = static_cast<const float*>(x);
    CHECK(flashptx_forward_with(c.plan, &a, nullptr) == FLASHPTX_INVALID_ARGUMENT);
    CHECK(says(c.error(), "k_scale is given"));
    for (void* p : {x, o, workspace}) flashptx_device_free(c.context.get(), p);
  }

  TEST_CASE("fast is asked for by its switch, and not by a header from before it") {
    C c;
    REQUIRE_MESSAGE(c.make() == FLASHPTX_OK, c.error());
    CHECK_FALSE(has_direct_p(flashptx_plan_kernel(c.plan)));
    flashptx_plan_destroy(c.plan);
    c.plan = nullptr, c.options.fast = 1;
    REQUIRE_MESSAGE(c.make() == FLASHPTX_OK, c.error());
    CHECK(has_direct_p(flashptx_plan_kernel(c.plan)));
    flashptx_plan_destroy(c.plan);
    c.plan = nullptr, c.options.size = offsetof(flashptx_fp8_options, fast);  // a header from before
    REQUIRE_MESSAGE(c.make() == FLASHPTX_OK, c.error());
    CHECK_FALSE(has_direct_p(flashptx_plan_kernel(c.plan)));
  }

  TEST_CASE("refuses null pointers, sizes and switches by name") {
    C c;
    CHECK(flashptx_plan_fp8_attention(c.context.get(), &c.problem, &c.options, nullptr) == FLASHPTX_INVALID_ARGUMENT);
    CHECK(says(c.error(), "plan is a null pointer"));
    CHECK(flashptx_plan_fp8_attention(nullptr, &c.problem, &c.options, &c.plan) == FLASHPTX_INVALID_ARGUMENT);
    CHECK(says(c.error(), "context is a null pointer"));
    CHECK(flashptx_plan_fp8_attention(c.context.get(), nullptr, &c.options, &c.plan) == FLASHPTX_INVALID_ARGUMENT);
    CHECK(says(c.error(), "problem is a null pointer"));
    CHECK(flashptx_plan_fp8_attention(c.context.get(), &c.problem, nullptr, &c.plan) == FLASHPTX_INVALID_ARGUMENT);
    CHECK(says(c.error(), "options is a null pointer"));
    c.options.size = 4;
    CHECK(c.make() == FLASHPTX_INVALID_ARGUMENT);
    CHECK(says(c.error(), "flashptx_fp8_options.size is 4"));
    c.options.size = sizeof c.options, c.options.hadamard = 2;
    CHECK(c.make() == FLASHPTX_INVALID_ARGUMENT);
    CHECK(says(c.error(), "hadamard is 2: must be 0 or 1"));
    c.options.hadamard = 0, c.options.fast = 2;
    CHECK(c.make() == FLASHPTX_INVALID_ARGUMENT);
    CHECK(says(c.error(), "fast is 2: must be 0 or 1"));
    c.options.fast = 1, c.options.reserved = 7;
    CHECK(c.make() == FLASHPTX_INVALID_ARGUMENT);
    CHECK(says(c.error(), "reserved is 7: must be 0"));
    c.options.reserved = 0, c.options.fast = 0, c.problem.fast = 1;
    CHECK(c.make() == FLASHPTX_UNSUPPORTED);
    CHECK(says(c.error(), "fast is set"));
    c.problem.fast = 0, c.options.dtype = FLASHPTX_F32;
    CHECK(c.make() == FLASHPTX_UNSUPPORTED);
    CHECK(says(c.error(), "fp8 dtype is 4"));
    c.options.dtype = FLASHPTX_E4M3, c.options.dtype_v = FLASHPTX_BF16;
    CHECK(c.make() == FLASHPTX_UNSUPPORTED);
    CHECK(says(c.error(), "fp8 dtype_v is 1: must be 0 (that of Q), 2 (e4m3) or 3 (e5m2)"));
    c.options.dtype_v = FLASHPTX_E5M2;
    CHECK(c.make() == FLASHPTX_OK);
    CHECK(says(flashptx_plan_kernel(c.plan), "attn_fwd_e4m3_ve5m2_"));
    CHECK(says(flashptx_plan_describe(c.plan), "V e5m2"));
    flashptx_plan_destroy(c.plan), c.plan = nullptr;
    c.options.dtype_v = 0, c.problem.v_transposed = 1;
    CHECK(c.make() == FLASHPTX_UNSUPPORTED);
    CHECK(says(c.error(), "v_transposed is set"));
    CHECK(c.plan == nullptr);
  }
}
