// The measured table as compiled in, and the rule by which any table is read.
// Next: host/select.h states the rule.
#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "gen/kernels/attention_forward.h"
#include "host/select.h"
#include "tests/support.h"

using namespace flashptx;

namespace {

ForwardProblem problem(std::int64_t seqlen, int dim, Mask mask = Mask::full,
                       DataType dtype = DataType::bf16, int dim_v = 0) {
  ForwardProblem p;
  p.dtype = dtype, p.mask = mask;
  p.batch = p.heads_q = p.heads_kv = 1;
  p.seqlen_q = p.seqlen_k = seqlen;
  p.head_dim = dim, p.head_dim_v = dim_v;
  return p;
}

constexpr const char* a = "attn_fwd_bf16_d128_full__q192_kv64_s3_qs2__overlap_pp_guarded2";
constexpr const char* b = "attn_fwd_bf16_d128_full__q128_kv128_s2_qs2__overlap_guarded2";
constexpr const char* c = "attn_fwd_bf16_d128_full__q128_kv96_s2__overlap_pp_lazy8";

MeasuredRow row(const char* kernel, std::int64_t low, std::int64_t high, int dim_min = 65,
                int dim_max = 128) {
  MeasuredRow r;
  r.head_dim_min = dim_min, r.head_dim_max = dim_max;
  r.seqlen_q_min = low, r.seqlen_q_max = high;
  r.kernel = kernel;
  r.tflops = 700, r.measured_seqlen = 1000, r.runner_up = "runner", r.runner_up_tflops = 690,
  r.source = "test";
  return r;
}

Plan plan_in(const char* kernel) {
  KernelConfig config;
  std::string error;
  REQUIRE_MESSAGE(KernelConfig::parse(kernel, &config, &error), error);
  return config.plan;
}

std::string chosen(const std::vector<MeasuredRow>& rows, const ForwardProblem& p) {
  Selection s;
  REQUIRE(select_among(rows, p, &s).ok());
  return s.config.name();
}

}  // namespace

TEST_SUITE("host/select_table") {
  TEST_CASE("every row names a kernel that can exist, of the row's own class") {
    REQUIRE_FALSE(measured_rows().empty());
    for (const MeasuredRow& r : measured_rows()) {
      KernelConfig config;
      std::string error;
      REQUIRE_MESSAGE(KernelConfig::parse(r.kernel, &config, &error), error);
      CHECK_MESSAGE(gen::check_forward(config) == "", r.kernel);
      // A row serves calls without a workspace and without fast mode; both are added by rules.
      CHECK_MESSAGE((!config.plan.split_tail && config.plan.direct_of_16 == 0), r.kernel);
      CHECK(config.problem.dtype == r.dtype);
      CHECK(config.problem.mask == r.mask);
      CHECK(std::max(config.problem.head_dim, config.problem.head_dim_v) == r.head_dim_max);
      CHECK(r.source[0] != '\0');
      CHECK((r.measured_seqlen > 0) == (r.tflops > 0));
      if (r.tflops > 0)
        CHECK((r.seqlen_q_min <= r.measured_seqlen && r.measured_seqlen <= r.seqlen_q_max));
    }
  }

  TEST_CASE(
      "the ranges of a class cover every query count once, those of its head dimensions none "
      "twice") {
    std::map<std::tuple<DataType, std::pair<Mask, bool>, int, int>, std::vector<const MeasuredRow*>> classes;
    for (const MeasuredRow& r : measured_rows())
      classes[{r.dtype, {r.mask, r.v_transposed()}, r.head_dim_min, r.head_dim_max}].push_back(&r);
    for (auto& [key, rows] : classes) {
      std::sort(rows.begin(), rows.end(),
                [](auto* x, auto* y) { return x->seqlen_q_min < y->seqlen_q_min; });
      CHECK(rows.front()->seqlen_q_min == 1);
      CHECK(rows.back()->seqlen_q_max == INT64_MAX);
      for (std::size_t i = 1; i < rows.size(); ++i)
        CHECK(rows[i]->seqlen_q_min == rows[i - 1]->seqlen_q_max + 1);
      for (const auto& other : classes) {
        const auto& k = other.first;
        if (k == key || std::get<0>(k) != std::get<0>(key) || std::get<1>(k) != std::get<1>(key))
          continue;
        CHECK((std::get<3>(k) < std::get<2>(key) || std::get<2>(k) > std::get<3>(key)));
      }
    }
  }

  TEST_CASE("what the compiled table chooses exists for every size, V wider or narrower") {
    for (DataType dtype : {DataType::f16, DataType::bf16})
      for (Mask mask : {Mask::full, Mask::causal})
        for (int d = 16; d <= 256; d += 16)
          for (int dv : {16, 64, 80, 128, 192, 256})
            for (std::int64_t s : {1, 700, 1280, 1281, 5000, 1 << 20}) {
              Selection chosen;
              REQUIRE(select_forward(problem(s, d, mask, dtype, dv), &chosen).ok());
              CHECK_MESSAGE(gen::check_forward(chosen.config) == "", chosen.config.name());
            }
  }

  TEST_CASE("both ends of a range are inside") {
    const std::vector<MeasuredRow> rows = {row(a, 1, 724), row(b, 725, 1448),
                                           row(c, 1449, INT64_MAX)};
    CHECK(chosen(rows, problem(1, 128)) == a);
    CHECK(chosen(rows, problem(724, 128)) == a);
    CHECK(chosen(rows, problem(725, 128)) == b);
    CHECK(chosen(rows, problem(1448, 128)) == b);
    CHECK(chosen(rows, problem(1449, 128)) == c);
    CHECK(chosen(rows, problem(1 << 20, 128)) == c);
    ForwardProblem decode = problem(1 << 20, 128);  // queries decide, not keys
    decode.seqlen_q = 1;
    CHECK(chosen(rows, decode) == a);
  }

  TEST_CASE("outside all ranges the nearest by ratio is taken") {
    const std::vector<MeasuredRow> rows = {row(a, 100, 1000), row(b, 9000, 10000)};
    CHECK(chosen(rows, problem(2, 128)) == a);
    CHECK(chosen(rows, problem(2900, 128)) == a);  // 2.9 above a, 3.1 below b
    CHECK(chosen(rows, problem(3100, 128)) == b);  // 3.1 above a, 2.9 below b
    CHECK(chosen(rows, problem(90000, 128)) == b);
  }

  TEST_CASE("the head dimension is compared as compiled, the larger of Q's and V's") {
    const std::vector<MeasuredRow> rows = {row(a, 1, INT64_MAX, 65, 128)};
    const Plan wanted = plan_in(a);
    Selection s;
    REQUIRE(select_among(rows, problem(500, 72, Mask::full, DataType::bf16, 72), &s).ok());
    CHECK(s.config.name() == (KernelConfig{{DataType::bf16, 80, 80, Mask::full}, wanted}.name()));
    CHECK(s.reason.find("700 TFLOP/s at 1000") != std::string::npos);
    CHECK(s.reason.find("runner 690") != std::string::npos);
    Selection none;
    for (const auto& outside :
         {problem(500, 64), problem(500, 136), problem(500, 128, Mask::causal)}) {
      REQUIRE(select_among(rows, outside, &s).ok());
      REQUIRE(select_among({}, outside, &none).ok());
      CHECK(s.config.name() == none.config.name());
    }
    // V wider than Q cannot be staged on Q's slice: the same plan with a buffer for O.
    REQUIRE(select_among(rows, problem(500, 64, Mask::full, DataType::bf16, 128), &s).ok());
    Plan with_buffer = wanted;
    with_buffer.o_own_buffer = true;
    const KernelConfig wide{{DataType::bf16, 64, 128, Mask::full}, with_buffer};
    CHECK(s.config.name() == wide.name());
  }

  TEST_CASE("a 16-bit type takes the other's rows only where it has none") {
    std::vector<MeasuredRow> rows = {row(a, 1, INT64_MAX)};
    const ForwardProblem p = problem(500, 128, Mask::full, DataType::f16);
    Selection s;
    REQUIRE(select_among(rows, p, &s).ok());
    CHECK(s.config.problem.dtype == DataType::f16);
    CHECK((KernelConfig{{DataType::bf16, 128, 128, Mask::full}, s.config.plan}.name()) == a);
    rows.push_back(
        row("attn_fwd_f16_d128_full__q128_kv128_s2_qs2__overlap_guarded2", 1, INT64_MAX));
    rows.back().dtype = DataType::f16;
    CHECK(chosen(rows, p) == rows.back().kernel);
    CHECK(nearest_row(rows, {DataType::e4m3, 128, 128, Mask::full}, 500) == nullptr);
  }

  TEST_CASE("8 bit: rows of kernels that take V^T apart; none for scales by blocks; more keys than one level holds fold") {
    const char* rows_v = "attn_fwd_e4m3_d128_full__q128_kv128_s2_qs2__serial_pp_guarded3_ob";
    const char* transposed = "attn_fwd_e4m3_d128_full_vt__q128_kv128_s2_qs2__overlap_pp_guarded3_ob";
    std::vector<MeasuredRow> rows = {row(rows_v, 1, INT64_MAX), row(transposed, 1, INT64_MAX)};
    for (MeasuredRow& r : rows) r.dtype = DataType::e4m3;
    ForwardProblem p = problem(4096, 128, Mask::full, DataType::e4m3);
    CHECK(chosen(rows, p) == rows_v);
    p.v_transposed = true;
    CHECK(chosen(rows, p) == transposed);
    p.v_transposed = false, p.allow_workspace = true;
    CHECK(transposition_pass_pays(p));
    CHECK(chosen(rows, p) == transposed);
    p.allow_workspace = false;
    p.seqlen_k = single_level_keys + 1;
    CHECK(chosen(rows, p) == std::string(rows_v) + "_fold16");
    CHECK(chosen({}, p).find("_fold16") != std::string::npos);
    p.seqlen_k = 4096;
    p.k_scale.block_rows = 128;
    CHECK(chosen(rows, p) == chosen({}, p));
  }

  TEST_CASE("8 bit, causal: with many more keys than queries as many blocks are checked as in full attention") {
    const auto checked = [](std::int64_t queries, std::int64_t keys, int dim, std::int64_t block_rows) {
      ForwardProblem p = problem(queries, dim, Mask::causal, DataType::e4m3);
      p.seqlen_k = keys, p.k_scale.block_rows = block_rows;
      Selection s;
      REQUIRE(select_forward(p, &s).ok());
      CHECK_MESSAGE(gen::check_forward(s.config) == "", s.config.name());
      const bool some = s.config.plan.softmax == Softmax::guarded;  // plain: all of them
      return std::pair{some ? s.config.plan.guard_blocks : 1 << 20, s.config.plan.tile_kv};
    };
    for (int dim : {64, 128, 256})
      for (std::int64_t block_rows : {0, 128}) {
        CHECK(checked(4096, 4096, dim, block_rows).first <= 2);
        CHECK(checked(3000, 6001, dim, block_rows).first <= 2);
        const auto [blocks, keys] = checked(3000, 6002, dim, block_rows);
        CHECK(blocks * keys >= 384);
        CHECK(checked(300, 100000, dim, block_rows).first * std::int64_t{keys} >= 384);
      }
    CHECK(checked(1024, 1024, 64, 0) == std::pair{1, 64});
    ForwardProblem fast = problem(300, 64, Mask::causal, DataType::e4m3);  // of a plain kernel
    fast.seqlen_k = 8000, fast.fast = true;
    Selection s;
    REQUIRE(select_forward(fast, &s).ok());
    CHECK((s.config.plan.direct_of_16 != 0 && s.config.plan.guard_blocks * s.config.plan.tile_kv >= 384));
    CHECK(checked(1024, 3000, 64, 0) == std::pair{12, 64});  // sums of P as rounded: twice as many
  }

  TEST_CASE("8 bit, full, sums of P as rounded: 768 keys are checked where keys are not as many as the row was measured with") {
    const auto checked = [](std::int64_t queries, std::int64_t keys, int dim) {
      ForwardProblem p = problem(queries, dim, Mask::full, DataType::e4m3);
      p.seqlen_k = keys;
      Selection s;
      REQUIRE(select_forward(p, &s).ok());
      REQUIRE(s.config.plan.p_sums);
      return s.config.plan.guard_blocks * s.config.plan.tile_kv;
    };
    for (int dim : {64, 128}) {
      CHECK(checked(512, 512, dim) < 768);
      CHECK(checked(512, 1024, dim) >= 768);
      CHECK(checked(512, 8192, dim) >= 768);
      CHECK(checked(16384, 1024, dim) >= 768);
      CHECK(checked(16384, 16384, dim) < 768);
    }
  }

  TEST_CASE("8 bit: blocks of 64 keys, what they go with") {
    const auto refusal = [](const std::string& name) {
      KernelConfig config;
      REQUIRE_MESSAGE(KernelConfig::parse(name, &config, nullptr), name);
      return gen::check_forward(config);
    };
    const std::string plan = "__q256_kv64_s4_qs2__overlap_guarded1_dyn_ob";
    for (const char* kind : {"attn_fwd_e4m3_d64_causal", "attn_fwd_e5m2_d16_full", "attn_fwd_e4m3_ve5m2_d64_causal", "attn_fwd_e4m3_d64_full_bs64"})
      CHECK(refusal(kind + plan) == "");
    CHECK(refusal("attn_fwd_e4m3_d64_causal_vt" + plan).find("must be a multiple of 128 in 8 bit") != std::string::npos);
    CHECK(refusal("attn_fwd_e4m3_d80_causal" + plan).find("must be a multiple of 128 in 8 bit") != std::string::npos);
    CHECK(refusal("attn_fwd_e4m3_d64_causal__q256_kv32_s4_qs2__overlap_guarded1_dyn_ob").find("must be a multiple of 128 in 8 bit") != std::string::npos);
    CHECK(refusal("attn_fwd_e4m3_d64_causal_bs128" + plan).find("must be at most tile_kv, 64") != std::string::npos);
    CHECK(refusal("attn_fwd_e4m3_d64_causal__q256_kv64_s4_qs2__overlap_guarded1_chord6_dyn_ob").find("must be a multiple of 4") != std::string::npos);
    CHECK(refusal("attn_fwd_e4m3_d64_causal__q256_kv64_s4_qs2__overlap_guarded1_chord8_dyn_ob") == "");
    CHECK(refusal("attn_fwd_e4m3_d64_full__q128_kv128_s2__overlap_lazy4_sym").find("has no symmetric kernel") != std::string::npos);
  }

  TEST_CASE("8 bit: every row of V^T in the background names a kernel of its own class, in one level; ranges are apart") {
    for (const MeasuredRow& r : background_rows()) {
      CAPTURE(r.kernel);
      KernelConfig config;
      REQUIRE(KernelConfig::parse(r.kernel, &config, nullptr));
      CHECK(config.name() == r.kernel);
      CHECK(gen::check_forward(config) == "");
      CHECK(config.plan.v_background);
      CHECK((config.problem.dtype == r.dtype && config.problem.mask == r.mask));
      CHECK(config.problem.head_dim == r.head_dim_min);
      CHECK(config.problem.head_dim_v == r.head_dim_max);
      CHECK((r.seqlen_q_max <= single_level_keys || config.plan.fold_blocks != 0));  // the rule adds no fold
      for (const MeasuredRow& other : background_rows())
        if (&other != &r && other.mask == r.mask && other.head_dim_min == r.head_dim_min)
          CHECK((other.seqlen_q_max < r.seqlen_q_min || r.seqlen_q_max < other.seqlen_q_min));
    }
  }

  TEST_CASE("8 bit: fast mode only where it was asked for, and where its kernel exists") {
    ForwardProblem p = problem(4096, 128, Mask::full, DataType::e4m3);
    const auto words = [&] {
      Selection s;
      REQUIRE(select_forward(p, &s).ok());
      CHECK((s.reason.find("fast mode") != std::string::npos) == p.fast);
      CHECK(gen::check_forward(s.config).empty());
      return s.config.plan.direct_of_16;
    };
    CHECK(words() == 0);
    const std::vector<MeasuredRow> rows(measured_rows().begin(), measured_rows().end());
    const std::string usual = chosen(rows, p);
    p.fast = true;
    CHECK(words() == fast_words);
    const std::string fast = chosen(rows, p), part = "_fast" + std::to_string(fast_words);
    REQUIRE(fast.find(part) != std::string::npos);
    const auto without = [](std::string name, const std::string& what) {
      const std::size_t from = name.find(what);
      if (from != std::string::npos) name.erase(from, name.find('_', from + 1) - from);
      return name;
    };
    CHECK(without(fast, "_fast") == without(usual, "_chord"));
    p.seqlen_k = single_level_keys + 1;
    CHECK(words() == fast_words);
    p.seqlen_k = 4096;
    p.k_scale.block_rows = p.v_scale.block_rows = 128;
    CHECK(words() == fast_words);
    p.softmax_scale = 1e-31f;
    CHECK(words() == 0);
    CHECK(chosen(rows, p).find("_chord") == std::string::npos);
    p.fast = false;
    CHECK(chosen(rows, p).find("_chord") == std::string::npos);
    p.softmax_scale = 1;
    CHECK(chosen(rows, p).find("_chord") != std::string::npos);
    p.fast = true, p.softmax_scale = 1e-31f;
    KernelConfig config;
    REQUIRE(KernelConfig::parse("attn_fwd_e4m3_d128_full_bs128__q192_kv128_s2_qs2__serial_pp_guarded3_fast12_dyn_ob", &config, nullptr));
    CHECK(check_forced(p, config).message.find("softmax_scale is") != std::string::npos);
    p.softmax_scale = 1;
    CHECK(check_forced(p, config).ok());
    p.k_scale.block_rows = 64;
    CHECK(words() == 0);
  }

  TEST_CASE("8 bit: V in the background for what was measured so, of any type, and nothing else") {
    REQUIRE_FALSE(background_rows().empty());
    const auto chosen_here = [](const ForwardProblem& p) {
      Selection s;
      REQUIRE(select_forward(p, &s).ok());
      CHECK_MESSAGE(gen::check_forward(s.config) == "", s.config.name());
      return s.config;
    };
    for (const MeasuredRow& r : background_rows()) {
      KernelConfig config;
      REQUIRE(KernelConfig::parse(r.kernel, &config, nullptr));
      CHECK(config.plan.v_background);
      for (std::int64_t s : {r.seqlen_q_min, r.measured_seqlen, r.seqlen_q_max}) {
        ForwardProblem p = problem(s, config.problem.head_dim, r.mask, DataType::e4m3);
        p.allow_workspace = true, p.batch = 512;
        CHECK(chosen_here(p).name() == r.kernel);
        p.dtype = DataType::e5m2, p.dtype_o = DataType::f16;
        CHECK(chosen_here(p).plan.v_background);
        p.fast = true;
        CHECK(chosen_here(p).plan.v_background);
        CHECK(chosen_here(p).plan.direct_of_16 > 0);
        p.fast = false, p.seqlen_k = r.seqlen_q_max + 1;
        CHECK_FALSE(chosen_here(p).plan.v_background);
        p.seqlen_k = s, p.v_transposed = true;
        CHECK_FALSE(chosen_here(p).plan.v_background);
        p.v_transposed = false, p.allow_workspace = false;
        CHECK_FALSE(chosen_here(p).plan.v_background);
        p.allow_workspace = true, p.head_dim_v = p.head_dim - 16;
        CHECK_FALSE(chosen_here(p).plan.v_background);
        p.head_dim_v = p.head_dim, p.batch = most_flagged_heads + 1;
        CHECK_FALSE(chosen_here(p).plan.v_background);
        p.batch = 1;
        CHECK(chosen_here(p).plan.v_background == (s > 512 * 128));
        p.batch = 512, p.heads_q = 2;
        CHECK_FALSE(chosen_here(p).plan.v_background);
        p.heads_q = 1, p.k_scale.block_rows = 128;
        CHECK_FALSE(chosen_here(p).plan.v_background);
      }
    }
  }

  TEST_CASE("a row that cannot be used leaves the choice to the plain rules") {
    Selection plain;
    REQUIRE(select_among({}, problem(5000, 128), &plain).ok());
    CHECK(chosen({row("no kernel at all", 1, INT64_MAX)}, problem(5000, 128)) ==
          plain.config.name());
    const char* too_large = "attn_fwd_bf16_d128_full__q256_kv256_s4__overlap_pp_guarded2";
    CHECK(chosen({row(too_large, 1, INT64_MAX)}, problem(5000, 128)) == plain.config.name());
  }
}
