// p_sums: a row's sum is a column of P V, of P as it was rounded (gen/tile/p_sums.cpp).
//
// Next: redo_test.cpp, adversarial_test.cpp and long_keys_test.cpp, which have such kernels too.
#include <algorithm>
#include <cmath>

#include "tests/attention/beds.h"
#include "tests/attention/scores.h"
#include "tests/support.h"

using namespace flashptx;
using test::Bed;

namespace {

const char* const summing[] = {
    "attn_fwd_e4m3_d64_full__q192_kv128_s2_qs2__trailing_guarded3_chord8_psum_dyn_ob",
    "attn_fwd_e4m3_d64_causal__q256_kv64_s4_qs2__trailing_guarded1_psum_dyn_ob",
    "attn_fwd_e4m3_ve5m2_d128_full__q192_kv128_s2_qs2__serial_pp_guarded1_psum_dyn_ob",
    "attn_fwd_e5m2_d80_causal_vt__q192_kv128_s3_qs2__serial_guarded1_chord4_psum_dyn_ob_fold2",
    "attn_fwd_e4m3_of16_d32v112_full_vt__q128_kv256_s2__overlap_plain_psum_ob",
    "attn_fwd_e4m3_d64_full_vt__q128_kv128_s2_qs2_vb__trailing_lazy4_psum_ob",
    "attn_fwd_e4m3_d48_full__q128_kv128_s2__serial_guarded2_fast8_psum_ob_tail",
};

Bed summing_bed(std::uint64_t seed) {
  EmulatorOptions o;
  o.seed = seed, o.adversary_level = seed == 0 ? 0 : 1 + static_cast<int>(seed % 2);
  o.multiprocessors = 2, o.threads = 1;  // several tiles a CTA
  return test::open_bed(DeviceChoice::emulator, o);
}

reference::Problem summing_shape(const KernelConfig& c, std::int64_t rows, std::int64_t keys, std::int64_t heads) {
  reference::Problem p;
  p.dtype = c.problem.dtype, p.dtype_k = c.problem.dtype_k, p.dtype_v = c.problem.dtype_v, p.dtype_o = c.problem.dtype_o;
  p.mask = c.problem.mask, p.heads_q = heads, p.heads_kv = std::max<std::int64_t>(1, heads / 2), p.seqlen_q = rows, p.seqlen_k = keys;
  p.head_dim = c.problem.head_dim, p.head_dim_v = c.problem.head_dim_v;
  p.scale = 1 / std::sqrt(static_cast<float>(p.head_dim));
  return p;
}

Outcome run_summing(Bed& bed, const Case& data, const std::string& kernel, const std::string& ptx = "") {
  ForwardChoice choice;
  choice.kernel = kernel, choice.ptx = ptx;
  return run_case(*bed.device, *bed.attention, data, choice);
}

int replace_each(std::string* text, const std::string& what, const std::string& other) {
  int found = 0;
  for (std::size_t at = text->find(what); at != std::string::npos; at = text->find(what, at + other.size()), ++found)
    text->replace(at, what.size(), other);
  return found;
}

// V is `value` throughout.
Case with_constant_v(const KernelConfig& c, std::int64_t rows, std::int64_t keys, double value) {
  reference::Tensors t = reference::make_tensors(summing_shape(c, rows, keys, 2), reference::Layout::bshd, reference::Inputs::random, 5);
  const std::int64_t elements = keys * t.problem.heads_kv * t.problem.head_dim_v;
  for (std::int64_t i = 0; i < elements; ++i) reference::store(t.problem.type_v(), t.v.data(), i, value);
  return make_case(std::move(t), reference::Layout::bshd, true, 0);
}

void sums_right_in_every_order(const std::vector<std::tuple<int, int, int>>& shapes, std::uint64_t orders) {
  for (const char* name : summing) {
    const KernelConfig c = test::kernel_named(name);
    REQUIRE_MESSAGE(gen::check_forward(c) == "", name);
    for (const auto& [rows, keys, heads] : shapes) {
      const Case data = make_case(summing_shape(c, rows, keys, heads), reference::Layout::bshd, reference::Inputs::random, 19, true, 0);
      Outcome first;
      for (std::uint64_t seed = 0; seed < orders; ++seed) {
        Bed bed = summing_bed(seed);
        const Outcome r = run_summing(bed, data, name);
        const std::string what = c.name() + " " + std::to_string(rows) + " x " + std::to_string(keys) + " seed " + std::to_string(seed);
        CHECK_MESSAGE(r.ok(), what, ": ", r.complaint());
        if (seed == 0) first = r;
        CHECK_MESSAGE((r.o_bytes == first.o_bytes && r.lse_bytes == first.lse_bytes), what, ": other bits");
      }
    }
  }
}

}  // namespace

TEST_SUITE("attention/sums of P") {
  TEST_CASE("right in every order, the same bits") { sums_right_in_every_order({{430, 333, 4}, {300, 1, 2}, {129, 0, 4}, {65, 900, 2}, {1100, 577, 1}}, 3); }

  // Numerator and denominator are sums of the same e4m3: their ratio is V, whatever P was rounded to.
  TEST_CASE("where V is the same everywhere O is V, to the last bit but one") {
    for (const char* name : summing) {
      const KernelConfig c = test::kernel_named(name);
      Bed bed = summing_bed(0);
      const Case data = with_constant_v(c, 200, 700, 0.8125);
      const Outcome r = run_summing(bed, data, name);
      REQUIRE_MESSAGE(r.ok(), name, ": ", r.complaint());
      CHECK_MESSAGE(r.error.max <= 0x1p-8 * 0.8125, name, ": off by ", r.error.max);
    }
    // Without: P's rounding shows.
    Bed bed = summing_bed(0);
    KernelConfig c = test::kernel_named(summing[0]);
    c.plan.p_sums = false;
    const Outcome r = run_summing(bed, with_constant_v(c, 200, 700, 0.8125), c.name());
    CHECK(r.error.max > 0x1p-8 * 0.8125);
  }

  TEST_CASE("a wrong column of ones, sums that run on, an offset never settled: noticed") {
    const KernelConfig c = test::kernel_named(summing[0]);
    const Case data = make_case(summing_shape(c, 300, 900, 2), reference::Layout::bshd, reference::Inputs::random, 19, true, 0);
    const std::string text = emit(c).text;
    Bed bed = summing_bed(0);
    REQUIRE(run_summing(bed, data, c.name(), text).ok());
    for (const auto& [what, other] : {std::pair<std::string, std::string>{"mov.b32 %ones, 0x38383838", "mov.b32 %ones, 0x40404040"},
                                      {"mov.f32 %o_sum0, 0f00000000", "mov.f32 %o_sum1, 0f00000000"},
                                      {"sub.f32 %p_offset0, %p_offset0, %offset_fall", "mov.f32 %p_offset0, %p_offset0"}}) {
      std::string mutant = text;
      REQUIRE_MESSAGE(replace_each(&mutant, what, other) > 0, what);
      CHECK_MESSAGE(!run_summing(bed, data, c.name(), mutant).ok(), "not noticed: ", other);
    }
  }

  TEST_CASE("the ones behind no fence, O's product not waited for before its sums are taken: noticed") {
    const KernelConfig c = test::kernel_named("attn_fwd_e4m3_d64_full_vt__q128_kv128_s2__serial_pp_guarded1_psum_ob");
    const Case data = make_case(summing_shape(c, 300, 700, 2), reference::Layout::bshd, reference::Inputs::random, 19, true, 0);
    const std::string text = emit(c).text;
    for (const auto& [what, near] : {std::pair<std::string, std::string>{"fence.proxy.async", "generic writes, then wgmma reads"},
                                     {"wgmma.wait_group", "O is complete, P's registers are free"}}) {
      std::string mutant = text;
      for (std::size_t at = mutant.find(near); at != std::string::npos; at = mutant.find(near, at + 1)) {
        const std::size_t from = mutant.rfind(what, at), end = mutant.find(';', from);
        REQUIRE((from != std::string::npos && end < at));
        std::fill(mutant.begin() + static_cast<std::ptrdiff_t>(from), mutant.begin() + static_cast<std::ptrdiff_t>(end) + 1, ' ');
      }
      int seen = 0;
      for (std::uint64_t seed = 0; seed < 4; ++seed) {
        Bed bed = summing_bed(seed);
        seen += !run_summing(bed, data, c.name(), mutant).ok();
      }
      CHECK_MESSAGE(seen > 0, "without ", what);
    }
  }

  // A p above 448 is cut there: the block's sum shows it.
  TEST_CASE("without the look at a block's sum a p that e4m3 cannot hold goes unseen") {
    const KernelConfig c = test::kernel_named("attn_fwd_e4m3_d64_full__q128_kv128_s2__serial_pp_guarded1_psum_ob");
    reference::Problem p = summing_shape(c, 100, 660, 1);
    const test::Scores s = test::jumping_scores(&p, 14, [](std::int64_t, std::int64_t row) { return row % 16 == 3; });
    const Case data = test::scored_case(p, s);
    std::string text = emit(c).text;
    Bed bed = summing_bed(0);
    CHECK(run_summing(bed, data, c.name(), text).ok());
    REQUIRE(replace_each(&text, "setp.geu.f32 %p_was_cut, %worst_sum, 0f43DC0000", "setp.geu.f32 %p_was_cut, %worst_sum, 0f7F800000") > 0);
    CHECK_FALSE(run_summing(bed, data, c.name(), text).ok());
  }

  TEST_CASE("names say it and are read back; what it does not go with is refused by a sentence") {
    for (const char* name : summing) {
      const KernelConfig c = test::kernel_named(name);
      CHECK(c.plan.p_sums);
      CHECK(c.name() == name);
    }
    for (const auto& [name, why] : {std::pair{"attn_fwd_bf16_d64_full__q128_kv64_s2__serial_guarded1_psum_ob", "8-bit kernels"},
                                    {"attn_fwd_e4m3_d256_full_vt__q128_kv128_s2__serial_guarded1_psum_ob", "at most 128"},
                                    {"attn_fwd_e4m3_d64_full__q128_kv128_s2__overlap_plain_psum_ob_pin", "pin_exp"},
                                    {"attn_fwd_e4m3_d128_full__q128_kv128_s2__serial_pp_plain_psum_ob_two", "one level"},
                                    {"attn_fwd_e4m3_d64_full_bs128__q128_kv128_s2__serial_guarded1_psum_ob", "scales by head"},
                                    {"attn_fwd_e4m3_d64_full__q128_kv128_s2__overlap_guarded1_psum_ob", "while P V is in flight"}})
      test::check_refused(name, {"p_sums", why});
  }

  // A local window of like scores and a long tail whose p would be 0: 16k keys of 2^-8 weigh 64 of 256.
  TEST_CASE("many small weights behind a strong window are not lost") {
    for (const char* name : {"attn_fwd_e4m3_d64_causal__q256_kv64_s4_qs2__trailing_guarded1_chord8_psum_dyn_ob",
                             "attn_fwd_e4m3_d64_full__q192_kv128_s2_qs2__trailing_guarded3_psum_dyn_ob",
                             "attn_fwd_e4m3_d128_causal__q192_kv128_s2_qs2__serial_guarded1_fast12_psum_dyn_ob"})
      for (double far : {-6.0, -7.0, -8.0, -9.0, -10.5}) {
        const KernelConfig c = test::kernel_named(name);
        reference::Problem p = summing_shape(c, 40, 6000, 1);
        p.scale = std::log(2.0f);
        test::Scores s;
        s.noise = 0;
        s.q0 = s.q1 = [](std::int64_t, std::int64_t) { return 1.0; };
        const std::int64_t window = p.seqlen_k - (c.problem.mask == Mask::full ? 420 : 256);
        s.k0 = [=](std::int64_t, std::int64_t key) { return key < window ? std::floor(far) : 0.0; };
        s.k1 = [=](std::int64_t, std::int64_t key) { return key < window ? far - std::floor(far) : 0.0; };
        reference::Tensors t = test::scored_tensors(p, s);
        for (std::int64_t i = 0; i < p.seqlen_k * c.problem.head_dim_v; ++i)
          reference::store(t.problem.type_v(), t.v.data(), i, i / c.problem.head_dim_v < window ? -1.0 : 1.0);
        const Case data = make_case(std::move(t), reference::Layout::bshd, true, 0);
        Bed bed = summing_bed(0);
        const Outcome r = run_summing(bed, data, name);
        CHECK_MESSAGE(r.ok(), std::string(name), " far ", far, ": ", r.complaint());
      }
  }

  TEST_CASE("own schedules that scale O before its product is waited for are refused, or turn it off") {
    Schedule late{"late", "", {{Do::pv, 1}, {Do::qk}, {Do::wait_qk}, {Do::free_k}, {Do::mask_max}, {Do::exp_sum}, {Do::rescale_o}, {Do::wait_pv, 1}, {Do::free_v, 1}, {Do::pack_p}}};
    REQUIRE(check(late).empty());
    KernelConfig c = test::kernel_named("attn_fwd_e4m3_d64_full__q128_kv128_s2__serial_plain_psum_ob");
    c.plan.follow(late);
    CHECK_FALSE(c.plan.p_sums);
    CHECK(gen::check_forward(c) == "");
    for (bool Plan::*field : {&Plan::p_sums, &Plan::two_level}) {
      KernelConfig bad = c;
      bad.plan.*field = true;
      CHECK(gen::check_forward(bad).find("before it has waited for P V") != std::string::npos);
    }
  }

  TEST_CASE("a schedule whose maximum comes under P V turns it off") {
    Plan p = standard_plan({DataType::e4m3, 64, 64, Mask::full});
    REQUIRE(p.p_sums);
    p.follow(*find_forward_schedule("overlap"));
    CHECK_FALSE(p.p_sums);
  }

  TEST_CASE("gpu: right, and the same bits in 20 runs; V the same everywhere") {
    Bed& gpu = test::gpu_bed();
    if (!gpu.device) FLASHPTX_SKIP("no GPU: " + gpu.missing);
    for (const char* name : summing) {
      const KernelConfig c = test::kernel_named(name);
      for (const auto& [rows, keys, heads] : std::vector<std::tuple<int, int, int>>{{1100, 577, 64}, {2048, 3000, 16}, {300, 1, 200}}) {
        reference::Problem p = summing_shape(c, rows, keys, heads);
        p.threads = 0;  // all cores
        const Case data = make_case(p, reference::Layout::bshd, reference::Inputs::random, 19, true, 200);
        const Outcome first = run_summing(gpu, data, name);
        CHECK_MESSAGE(first.ok(), name, ": ", first.complaint());
        for (int i = 0; i < 20; ++i) {
          const Outcome r = run_summing(gpu, data, name);
          CHECK_MESSAGE((r.o_bytes == first.o_bytes && r.lse_bytes == first.lse_bytes), name, ", run ", i);
        }
      }
      const Outcome r = run_summing(gpu, with_constant_v(c, 200, 700, 0.8125), name);
      // Not to the last bit: the tensor cores cut products of O, of one sign and eight bits here, as of any FP8 sum (1.2 to 1.4 % measured);
      // the sums of P have four bits.
      CHECK_MESSAGE((r.status.ok() && r.error.max <= 0.02 * 0.8125), name, ": off by ", r.error.max, " ", r.status.message);
    }
  }
}
