// ptxas on every catalogued kernel: it must assemble, spill nothing, serialise nothing and honour setmaxnreg.
// Next: tests/catalog/golden_test.cpp.
#include <map>
#include <vector>
#include <tuple>

#include "gen/catalog.h"
#include "gen/kernels/attention_forward.h"
#include "host/select.h"
#include "host/split_tail.h"
#include "tests/support.h"

using namespace flashptx;

namespace {

void check_clean(const KernelConfig& config) {
  const EmittedKernel kernel = emit(config);
  const test::Assembled a = test::assemble(kernel.text);
  const std::string& name = kernel.facts.entry;
  REQUIRE_MESSAGE(a.ok, name, "\n", a.log);
  CHECK_MESSAGE(a.spill_bytes == 0, name, "\n", a.log);
  CHECK_MESSAGE(a.stack_bytes == 0, name, "\n", a.log);
  // C7508: setmaxnreg ignored; C7510: wgmma serialised; C7514 to C7519: wait or fence inserted. None is harmless.
  CHECK_MESSAGE(a.log.find("(C75") == std::string::npos, name, "\n", a.log);
  CHECK_MESSAGE(a.log.find("setmaxnreg") == std::string::npos, name, "\n", a.log);
  CHECK_MESSAGE(a.log.find("warning") == std::string::npos, name, "\n", a.log);
  CHECK_MESSAGE(a.registers == kernel.facts.entry_registers, name, " is said to start with ",
                kernel.facts.entry_registers, " registers");
}

}  // namespace

TEST_SUITE("catalog/ptxas") {
  TEST_CASE("every kernel of the catalogue assembles without spill, local memory or remark") {
    if (test::ptxas().empty()) FLASHPTX_SKIP("no ptxas ($CUDA_HOME, PATH, /usr/local/cuda, build/cuda)");
    for (const KernelConfig& config : catalog()) check_clean(config);
  }

  TEST_CASE("so does every kernel for scales by blocks that the host may choose") {
    if (test::ptxas().empty()) FLASHPTX_SKIP("no ptxas ($CUDA_HOME, PATH, /usr/local/cuda, build/cuda)");
    for (int d : {64, 128, 256})
      for (Mask mask : {Mask::full, Mask::causal})
        for (bool v_transposed : {false, true})
          for (int rows : {128, 64, 32, 16}) {
            KernelConfig config;
            config.problem = {DataType::e4m3, d, d, mask};
            config.problem.v_transposed = v_transposed, config.problem.scale_rows = rows;
            config.plan = standard_plan(config.problem);
            check_clean(config);
            config.plan = long_keys_plan(config.problem);
            check_clean(config);
          }
    KernelConfig narrow;  // with two Q buffers it spills
    narrow.problem = {DataType::e4m3, 112, 112, Mask::full};
    narrow.problem.scale_rows = 128;
    narrow.plan = long_keys_plan(narrow.problem);
    CHECK(narrow.plan.fold_blocks != 0);
    check_clean(narrow);
  }

  TEST_CASE("so does every kernel of fast mode that the host may choose") {
    if (test::ptxas().empty()) FLASHPTX_SKIP("no ptxas ($CUDA_HOME, PATH, /usr/local/cuda, build/cuda)");
    std::map<std::string, KernelConfig> kernels;
    for (int d : {64, 128, 256})
      for (Mask mask : {Mask::full, Mask::causal})
        for (bool v_transposed : {false, true})
          for (int rows : {0, 128})
            for (std::int64_t keys : {512, 1024, 2048, 4096, 8192, 16384}) {
              ForwardProblem p;
              p.dtype = DataType::e4m3, p.mask = mask, p.batch = p.heads_q = p.heads_kv = 1, p.head_dim = d;
              p.seqlen_q = p.seqlen_k = keys, p.v_transposed = v_transposed, p.fast = true;
              p.k_scale.block_rows = rows;
              Selection s;
              REQUIRE(select_forward(p, &s).ok());
              const Plan& chosen = s.config.plan;
              CHECK((chosen.direct_of_16 != 0 || chosen.two_level || (chosen.fold_blocks && rows != 0 && d == 128)));
              if (s.config.plan.direct_of_16) kernels[s.config.name()] = s.config;
            }
    for (const auto& [name, config] : kernels) check_clean(config);
  }

  TEST_CASE("so does every kernel that the host lets cut the tiles of its last wave") {
    if (test::ptxas().empty()) FLASHPTX_SKIP("no ptxas ($CUDA_HOME, PATH, /usr/local/cuda, build/cuda)");
    std::map<std::string, KernelConfig> kernels;
    for (DataType dtype : {DataType::bf16, DataType::e4m3})
      for (int d : {64, 128, 192, 240, 256})
        for (bool v_transposed : {false, true})
          for (int rows : {0, 128})
            for (bool fast : {false, true})
              for (std::int64_t keys : dtype == DataType::bf16 || d == 128 ? std::vector<std::int64_t>{4096, 16384} : std::vector<std::int64_t>{16384}) {
                ForwardProblem p;
                p.dtype = dtype, p.batch = 16384 / keys, p.heads_q = p.heads_kv = 2048 / d, p.head_dim = d;
                p.seqlen_q = p.seqlen_k = keys, p.v_transposed = v_transposed, p.fast = fast, p.allow_workspace = true;
                p.k_scale.block_rows = rows;
                if (!p.eight_bit() && (v_transposed || rows != 0 || fast)) continue;
                Selection s;
                REQUIRE(select_forward(p, &s).ok());
                if (let_split_tail(p, 132, &s.config)) kernels[s.config.name()] = s.config;
              }
    // V of another width, V by rows for short sequences, fine scales for long ones.
    for (const auto& [d, dv] : {std::pair{208, 64}, {256, 128}, {144, 128}, {128, 256}, {240, 240}, {256, 256}})
      for (const auto& [rows, queries, keys] : {std::tuple{0, 300, 16384}, {0, 300, 40000}, {32, 4096, 4096}, {16, 4096, 40000}, {128, 4096, 8192}}) {
        ForwardProblem p;
        p.dtype = DataType::e4m3, p.batch = 1, p.heads_q = 64, p.heads_kv = 64, p.head_dim = d, p.head_dim_v = dv;
        p.seqlen_q = queries, p.seqlen_k = keys, p.allow_workspace = true, p.k_scale.block_rows = rows;
        Selection s;
        REQUIRE(select_forward(p, &s).ok());
        if (let_split_tail(p, 132, &s.config)) kernels[s.config.name()] = s.config;
      }
    CHECK(kernels.size() > 20);
    for (const auto& [name, config] : kernels) check_clean(config);
  }

  TEST_CASE("so does every kernel for a head_dim of 144 to 192 in 16 bits") {
    if (test::ptxas().empty()) FLASHPTX_SKIP("no ptxas ($CUDA_HOME, PATH, /usr/local/cuda, build/cuda)");
    for (Mask mask : {Mask::full, Mask::causal})
      for (int d = 144; d <= 192; d += 16)
        for (int dv : {64, 128, d}) {
          KernelConfig config;
          config.problem = {DataType::bf16, d, dv, mask};
          config.plan = standard_plan(config.problem);
          check_clean(config);
        }
  }

  TEST_CASE("so do kernels of one warpgroup, which start with more registers than they keep, and those of pairs of CTAs") {
    if (test::ptxas().empty()) FLASHPTX_SKIP("no ptxas ($CUDA_HOME, PATH, /usr/local/cuda, build/cuda)");
    for (const char* name : {"attn_fwd_bf16_d64_full__q64_kv64_s2__overlap_guarded1", "attn_fwd_e4m3_d64_full__q64_kv128_s2__serial_guarded3_ob",
                             "attn_fwd_bf16_d256_full__q128_kv64_s2__overlap_pp_guarded1_ob_c2",
                             "attn_fwd_bf16_d128_full__q192_kv64_s3_qs2__overlap_pp_guarded1_c2",
                             "attn_fwd_bf16_d64_full__q256_kv64_s4_qs2__overlap_pp_guarded2_ob_c2",
                             "attn_fwd_bf16_d256_causal__q128_kv64_s2__overlap_pp_guarded1_dyn_ob_c2",
                             "attn_fwd_f16_d256_causal__q128_kv64_s2__overlap_pp_guarded1_ob_c2",
                             "attn_fwd_bf16_d128_causal__q192_kv64_s4_qs2__overlap_guarded1_dyn_c2",
                             "attn_fwd_bf16_d128_causal__q192_kv64_s3_qs2__overlap_pp_guarded1_dyn_c2",
                             "attn_fwd_bf16_d128_causal__q192_kv64_s3_qs2__overlap_pp_guarded1_c2",
                             "attn_fwd_bf16_d64_causal__q256_kv64_s4_qs2__overlap_pp_guarded2_dyn_ob_c2",
                             "attn_fwd_e4m3_d256_causal_vt__q128_kv128_s2__overlap_pp_guarded1_dyn_ob_fold16_c2",
                             "attn_fwd_e4m3_d128_causal_vt__q192_kv128_s3_qs2__serial_pp_guarded1_chord6_dyn_ob_c2",
                             "attn_fwd_e4m3_d256_full_vt__q128_kv128_s2__overlap_pp_guarded3_ob_fold16_c2"}) {
      KernelConfig config;
      std::string error;
      REQUIRE_MESSAGE(KernelConfig::parse(name, &config, &error), error);
      check_clean(config);
    }
  }

  // The widest that have a buffer for all of O, and those of head_dim 64 that the host may choose with one.
  TEST_CASE("so do kernels that store O late") {
    if (test::ptxas().empty()) FLASHPTX_SKIP("no ptxas ($CUDA_HOME, PATH, /usr/local/cuda, build/cuda)");
    for (const char* type : {"bf16", "f16"})
      for (const char* rest : {"d64_full__q256_kv64_s8_qs2__overlap_pp_guarded2_ob_late", "d64_full__q256_kv64_s8_qs2__overlap_pp_guarded2_ob_late_tail",
                               "d64_full__q256_kv64_s4_qs2__overlap_pp_guarded2_ob_late", "d64_full__q256_kv64_s4_qs2__overlap_pp_guarded2_ob_late_tail",
                               "d64_causal__q256_kv64_s8_qs2__overlap_guarded2_dyn_ob_late", "d64_causal__q256_kv64_s4_qs2__overlap_pp_guarded2_dyn_ob_late",
                               "d64_causal__q128_kv64_s4_qs2__overlap_guarded2_dyn_ob_late_x2", "d64_full__q128_kv64_s4_qs2__overlap_pp_guarded2_ob_x2",
                               "d128_full__q192_kv64_s2_qs2__overlap_pp_guarded1_ob_late_tail", "d128_causal__q192_kv64_s3__overlap_guarded1_dyn_ob_late",
                               "d128_full__q128_kv128_s2__overlap_pp_guarded1_ob_late_tail", "d192_full__q128_kv80_s2__overlap_pp_guarded1_ob_late_tail",
                               "d192v128_causal__q128_kv96_s2__overlap_pp_guarded1_dyn_ob_late", "d224_full__q128_kv48_s2__overlap_pp_guarded1_ob_late_tail", "d256_full__q128_kv48_s2__overlap_pp_guarded1_ob_late",
                               "d256_causal__q128_kv48_s2__overlap_pp_guarded1_dyn_ob_late"}) {
        KernelConfig config;
        std::string error;
        REQUIRE_MESSAGE(KernelConfig::parse(std::string("attn_fwd_") + type + "_" + rest, &config, &error), error);
        check_clean(config);
      }
  }

  TEST_CASE("so do kernels that turn V in the background where the host lets them, of each type, whole and cut, fast and not") {
    if (test::ptxas().empty()) FLASHPTX_SKIP("no ptxas ($CUDA_HOME, PATH, /usr/local/cuda, build/cuda)");
    for (const MeasuredRow& r : background_rows())
      for (DataType type : {DataType::e4m3, DataType::e5m2})
        for (bool fast : {false, true}) {
          KernelConfig config;
          REQUIRE(KernelConfig::parse(r.kernel, &config, nullptr));
          config.problem.dtype = type, config.problem.dtype_o = type == DataType::e4m3 ? DataType::bf16 : DataType::f16;
          if (fast) config.plan = fast_plan(config.problem, config.plan);
          check_clean(config);
          config.plan.split_tail = true;
          if (gen::check_forward(config).empty()) check_clean(config);
        }
  }

  TEST_CASE("auxiliary kernels assemble") {
    if (test::ptxas().empty()) FLASHPTX_SKIP("no ptxas ($CUDA_HOME, PATH, /usr/local/cuda, build/cuda)");
    for (const std::string& name : auxiliary_kernels()) {
      const test::Assembled a = test::assemble(emit_auxiliary(name).text);
      CHECK_MESSAGE(a.ok, name, "\n", a.log);
      CHECK(a.spill_bytes + a.stack_bytes == 0);
    }
  }

  TEST_CASE("the check sees a serialised wgmma, a spill and an ignored setmaxnreg") {
    if (test::ptxas().empty()) FLASHPTX_SKIP("no ptxas ($CUDA_HOME, PATH, /usr/local/cuda, build/cuda)");
    KernelConfig config = catalog().front();
    std::string text = emit(config).text;
    // Without .reqntid ptxas cannot know the register budget, ignores setmaxnreg and says so.
    const std::size_t at = text.find(".reqntid");
    REQUIRE(at != std::string::npos);
    text.erase(at, text.find('\n', at) - at);
    const test::Assembled a = test::assemble(text);
    CHECK(a.log.find("setmaxnreg") != std::string::npos);
    const test::Assembled broken = test::assemble("hello");
    CHECK_FALSE(broken.ok);
  }
}
