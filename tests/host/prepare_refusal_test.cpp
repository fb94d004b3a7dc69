// What the preparation calls refuse, by name, through C; names of kernels; their assembly.
// Next: host/prepare.cpp (check_prepare), gen/kernels/prepare.cpp.
#include <cmath>
#include <functional>
#include <set>

#include "gen/kernels/prepare.h"
#include "gen/kernels/prepare_kernels.h"
#include "host/context.h"
#include "tests/host/fake_device.h"
#include "tests/support.h"
#include "tools/flashptx/prepare_run.h"

using namespace flashptx;

namespace {

flashptx_prepare_problem usual_preparation() {
  flashptx_prepare_problem p{};
  p.size = sizeof p;
  p.input_dtype = FLASHPTX_BF16, p.output_dtype = FLASHPTX_E4M3;
  p.batch = 2, p.seqlen = 300, p.heads = 4, p.head_dim = 128;
  p.x = p.y = flashptx_strides_bshd(300, 4, 128);
  p.scale_kind = FLASHPTX_SCALE_BLOCK, p.block_rows = 64;
  return p;
}

struct Calls {
  std::unique_ptr<flashptx_context> context;
  char* at = reinterpret_cast<char*>(0x10000);
  Calls() {
    std::unique_ptr<Device> device;
    const Status s = open_emulator({}, &device);
    REQUIRE_MESSAGE(s.ok(), s.message);
    context = std::make_unique<flashptx_context>(std::move(device), 0);
  }
  std::string said(flashptx_status s) const { return s == FLASHPTX_OK ? "" : flashptx_last_error(context.get()); }
  std::string quantize(const flashptx_prepare_problem& p) {
    return said(flashptx_quantize(context.get(), &p, at, at + 4096, reinterpret_cast<float*>(at + 64),
                                  reinterpret_cast<float*>(at + 128), nullptr));
  }
  std::string rope(const flashptx_prepare_problem& p) {
    return said(flashptx_rope_hadamard_quantize(context.get(), &p, at, at + 16, at + 32, at + 4096,
                                                reinterpret_cast<float*>(at + 64), reinterpret_cast<float*>(at + 128), nullptr));
  }
  std::string hadamard(const flashptx_prepare_problem& p) {
    return said(flashptx_hadamard(context.get(), &p, at, at + 4096, nullptr));
  }
};

using Change = std::function<void(flashptx_prepare_problem&)>;
flashptx_prepare_problem but(const Change& change) {
  flashptx_prepare_problem p = usual_preparation();
  change(p);
  return p;
}

}  // namespace

TEST_SUITE("host/prepare_refusals") {
  TEST_CASE("problems that cannot be are refused with argument, value and limit") {
    Calls c;
    const struct {
      Change change;
      const char* says;
    } cases[] = {
        {[](auto& p) { p.size = 8; }, "flashptx_prepare_problem.size is 8: must be"},
        {[](auto& p) { p.input_dtype = FLASHPTX_E5M2; }, "input_dtype is 3: must be f16 or bf16"},
        {[](auto& p) { p.output_dtype = FLASHPTX_F16; }, "output_dtype is 0: must be e4m3, e5m2"},
        {[](auto& p) { p.output_dtype = 9; }, "output_dtype is 9"},
        {[](auto& p) { p.batch = -1; }, "batch is -1: must be >= 0"},
        {[](auto& p) { p.batch = 65536; }, "batch is 65536: the limit is 65535"},
        {[](auto& p) { p.seqlen = std::int64_t{1} << 31; }, "seqlen is 2147483648: the limit is 2147483647"},
        {[](auto& p) { p.head_dim = 0; }, "head_dim is 0: must be >= 1"},
        {[](auto& p) { p.head_dim = 72; }, "head_dim is 72: must be a multiple of 16"},
        {[](auto& p) { p.head_dim = 512; }, "head_dim is 512: the limit is 256"},
        {[](auto& p) { p.x.seq = 516; }, "x seq stride is 516 elements = 1032 bytes: must be a multiple of 16"},
        {[](auto& p) { p.y.seq = 520; }, "y seq stride is 520 elements = 520 bytes: must be a multiple of 16"},
        {[](auto& p) { p.x.head = -128; }, "x head stride is -128 elements: must be >= 0"},
        {[](auto& p) { p.y.head = 0; }, "y head stride is 0 elements: rows of y would overlap"},
        {[](auto& p) { p.scale_kind = 3; }, "scale_kind is 3: must be 0 (tensor), 1 (head) or 2 (block)"},
        {[](auto& p) { p.block_rows = 0; }, "block_rows is 0: must be in [1, 2^31 - 1]"},
        {[](auto& p) { p.block_rows = -64; }, "block_rows is -64"},
        {[](auto& p) { p.block_rows = 1, p.seqlen = 1 << 30, p.heads = 4; }, "heads * ceil(seqlen / block_rows) is above 2^31 - 1"},
        {[](auto& p) { p.scale_kind = FLASHPTX_SCALE_HEAD; }, "block_rows is 64: must be 0 unless"},
        {[](auto& p) { p.fixed_scale = 1; }, "fixed_scale is 1.000000: only with one scale per tensor"},
        {[](auto& p) { p.scale_kind = 0, p.block_rows = 0, p.fixed_scale = NAN; }, "fixed_scale is nan: must be in"},
        {[](auto& p) { p.scale_kind = 0, p.block_rows = 0, p.fixed_scale = -1; }, "fixed_scale is -1.000000: must be in"},
        {[](auto& p) { p.scale_kind = 0, p.block_rows = 0, p.fixed_scale = INFINITY; }, "fixed_scale is inf: must be in"},
        {[](auto& p) { p.hadamard = 3; }, "hadamard is 3: must be 0 (none), 1 (forward) or 2 (inverse)"},
        {[](auto& p) { p.hadamard = 2; }, "hadamard is 2 (inverse): neither rope nor quantisation"},
        {[](auto& p) { p.rope = 1; }, "rope is not 0: call flashptx_rope_hadamard_quantize"},
        {[](auto& p) { p.output_dtype = FLASHPTX_BF16; }, "output_dtype equals input_dtype: must be e4m3 or e5m2"},
    };
    for (const auto& one : cases) {
      const std::string said = c.quantize(but(one.change));
      CHECK_MESSAGE(said.find(one.says) == 0, "said \"", said, "\", wanted \"", one.says, "\"");
    }
  }

  TEST_CASE("RoPE and Hadamard refuse what they are not for, and tables that are too short") {
    Calls c;
    const auto rope = [&](const Change& change) {
      return c.rope(but([&](auto& p) {
        p.rope = 2, p.table_dtype = FLASHPTX_F32, p.position = 10, p.table_rows = 310;
        change(p);
      }));
    };
    CHECK(rope([](auto& p) { p.rope = 0; }) == "rope is 0: must be 1 (interleaved) or 2 (half)");
    CHECK(rope([](auto& p) { p.rope = 3; }).find("rope is 3: must be") == 0);
    CHECK(rope([](auto& p) { p.head_dim = 80; }) == "head_dim is 80: must be a multiple of 32 with rope");
    CHECK(rope([](auto& p) { p.table_dtype = FLASHPTX_F16; }) == "table_dtype is 0: must be f32 or bf16");
    CHECK(rope([](auto& p) { p.position = -1; }) == "position is -1: must be >= 0");
    CHECK(rope([](auto& p) { p.table_rows = 309; }) == "table_rows is 309: must be at least position + seqlen = 10 + 300");
    CHECK(rope([](auto& p) { p.table_rows = -1; }).find("table_rows is -1") == 0);
    CHECK(c.hadamard(usual_preparation()) == "hadamard is 0: must be 1 (forward) or 2 (inverse)");
    CHECK(c.hadamard(but([](auto& p) { p.hadamard = 1; })) == "output_dtype is not input_dtype: call flashptx_quantize");
  }

  TEST_CASE("pointers: null, misaligned, the same") {
    Calls c;
    const flashptx_prepare_problem p = usual_preparation();
    float* scales = reinterpret_cast<float*>(c.at + 64);
    const auto quantize = [&](const void* x, void* y, float* s, float* amax, const flashptx_prepare_problem& q) {
      return c.said(flashptx_quantize(c.context.get(), &q, x, y, s, amax, nullptr));
    };
    CHECK(quantize(nullptr, c.at, scales, nullptr, p) == "x is a null pointer");
    CHECK(quantize(c.at, nullptr, scales, nullptr, p) == "y is a null pointer");
    CHECK(quantize(c.at, c.at + 4096, nullptr, nullptr, p) == "scales is a null pointer");
    CHECK(quantize(c.at + 8, c.at + 4096, scales, nullptr, p).find("x is not aligned: its address must be a multiple of 16") == 0);
    CHECK(quantize(c.at, c.at + 4104, scales, nullptr, p).find("y is not aligned") == 0);
    CHECK(quantize(c.at, c.at + 4096, reinterpret_cast<float*>(c.at + 66), nullptr, p).find("scales is not aligned") == 0);
    CHECK(quantize(c.at, c.at, scales, nullptr, p).find("x and y are the same pointer") == 0);
    const flashptx_prepare_problem head = but([](auto& q) { q.scale_kind = FLASHPTX_SCALE_HEAD, q.block_rows = 0; });
    CHECK(quantize(c.at, c.at + 4096, scales, nullptr, head) == "amax is a null pointer");
    CHECK(quantize(c.at, c.at + 4096, scales, scales, head).find("scales and amax are the same pointer") == 0);
    CHECK(c.said(flashptx_quantize(nullptr, &p, c.at, c.at, scales, nullptr, nullptr)) == "context is a null pointer");
    CHECK(c.said(flashptx_quantize(c.context.get(), nullptr, c.at, c.at, scales, nullptr, nullptr)) == "problem is a null pointer");
  }

  TEST_CASE("the transposition refuses by name") {
    Calls c;
    const auto transpose = [&](const std::function<void(flashptx_transpose_problem&)>& change, const void* v, void* vt) {
      flashptx_transpose_problem p{sizeof p, FLASHPTX_E4M3, 1, 200, 2, 128, flashptx_strides_bshd(200, 2, 128)};
      change(p);
      return c.said(flashptx_transpose_v(c.context.get(), &p, v, vt, nullptr));
    };
    const auto as_is = [](auto&) {};
    CHECK(transpose([](auto& p) { p.dtype = FLASHPTX_BF16; }, c.at, c.at + 16) == "dtype is 1: must be e4m3 or e5m2");
    CHECK(transpose([](auto& p) { p.head_dim = 24; }, c.at, c.at + 16).find("head_dim is 24: must be a multiple of 16") == 0);
    CHECK(transpose([](auto& p) { p.v.seq = 264; }, c.at, c.at + 16).find("v seq stride is 264 elements = 264 bytes") == 0);
    CHECK(transpose([](auto& p) { p.seqlen = -5; }, c.at, c.at + 16) == "seqlen is -5: must be >= 0");
    CHECK(transpose(as_is, nullptr, c.at) == "v is a null pointer");
    CHECK(transpose(as_is, c.at, c.at + 4).find("vt is not aligned") == 0);
    CHECK(transpose(as_is, c.at, c.at) == "v and vt are the same pointer");
    CHECK(transpose([](auto& p) { p.seqlen = 0; }, nullptr, nullptr) == "");
    CHECK(flashptx_transposed_seqlen(0) == 0);
    const auto quantize_v = [&](const Change& change) {
      const flashptx_prepare_problem p = but(change);
      return c.said(flashptx_quantize_transpose_v(c.context.get(), &p, c.at, c.at + 4096, reinterpret_cast<float*>(c.at + 64),
                                                  nullptr, nullptr));
    };
    CHECK(quantize_v([](auto&) {}) == "block_rows is 64: must be 128 where V is transposed");
    CHECK(quantize_v([](auto& p) { p.block_rows = 128, p.hadamard = 1; }) == "V is transposed with neither rope nor hadamard");
    CHECK(quantize_v([](auto& p) { p.output_dtype = FLASHPTX_BF16; }).find("output_dtype equals input_dtype") == 0);
    CHECK(quantize_v([](auto& p) { p.scale_kind = FLASHPTX_SCALE_HEAD, p.block_rows = 0; }) == "amax is a null pointer");
    CHECK(flashptx_transposed_seqlen(129) == 256);
  }

  TEST_CASE("scale_count counts what is written") {
    flashptx_prepare_problem p = usual_preparation();
    CHECK(flashptx_scale_count(&p) == 2 * 4 * 5);
    p.scale_kind = FLASHPTX_SCALE_HEAD, p.block_rows = 0;
    CHECK(flashptx_scale_count(&p) == 8);
    p.scale_kind = FLASHPTX_SCALE_TENSOR;
    CHECK(flashptx_scale_count(&p) == 1);
    p.head_dim = 7;
    CHECK(flashptx_scale_count(&p) == 0);
    CHECK(flashptx_scale_count(nullptr) == 0);
  }
}

TEST_SUITE("gen/prepare") {
  TEST_CASE("names parse back, others do not") {
    for (const PrepareConfig& c : prepare_catalog()) {
      PrepareConfig back;
      CHECK(PrepareConfig::parse(c.name(), &back, nullptr));
      CHECK(back.name() == c.name());
      CHECK(emit_prepare(back).text == emit_prepare(c).text);
    }
    PrepareConfig c;
    std::string error;
    for (const char* name : {"", "prep", "prep_transpose_bf16_d128", "prep_quantize_bf16_d128", "prep_amax_bf16_d128_r64",
                             "prep_rope_full_f32_bf16_d128", "prep_hadamard_bf16_d0128", "prep_hadamard_bf16_d128_", "probe"}) {
      CHECK_FALSE(PrepareConfig::parse(name, &c, &error));
      CHECK(error.find("is not that of a preparation kernel") != std::string::npos);
    }
  }

  TEST_CASE("configurations that no kernel can have are refused by name") {
    const auto refusal = [](const char* name) -> std::string {
      PrepareConfig c;
      if (!PrepareConfig::parse(name, &c, nullptr)) return "not a name";
      try {
        emit_prepare(c);
      } catch (const std::exception& e) {
        return e.what();
      }
      return "";
    };
    CHECK(refusal("prep_transpose_fp8_d24").find("head_dim 24 must be a multiple of 16 in [16, 256]") != std::string::npos);
    CHECK(refusal("prep_rope_half_f32_bf16_d80").find("head_dim 80 must be a multiple of 32") != std::string::npos);
    CHECK(refusal("prep_bf16_d128").find("nothing to do") != std::string::npos);
    CHECK(refusal("prep_unhadamard_quantize_bf16_e4m3_d128").find("the inverse is for O") != std::string::npos);
    CHECK(refusal("prep_hadamard_quantize_transpose_bf16_e4m3_d128").find("is quantised and nothing else") != std::string::npos);
    CHECK(refusal("prep_quantize_blocks_bf16_e4m3_d128_r96").find("rows 96 must be a power of two") != std::string::npos);
    CHECK(refusal("prep_quantize_blocks_bf16_e4m3_d256_r256").find("in [16, 128]") != std::string::npos);
    const std::string steps = "prep_rope_half_f32_hadamard_";
    for (const std::string& name : {steps + "amax_bf16_d64_packed", steps + "quantize_blocks_bf16_e4m3_d128_r256_packed", steps + "bf16_d128_packed",
                                    steps + "amax_bf16_d128_packed_l4", steps + "quantize_blocks_bf16_e4m3_d128_r128_packed_t128"})
      CHECK(refusal(name.c_str()).find("packed is for bf16 with rope and hadamard") != std::string::npos);
  }

  TEST_CASE("every kind assembles without spill, local memory or remark") {
    if (test::ptxas().empty()) FLASHPTX_SKIP("no ptxas");
    std::vector<std::string> names;
    for (int d : {64, 96, 128, 192, 240, 256}) {
      const std::string dim = "_d" + std::to_string(d);
      for (const char* step : {"", "hadamard_", "rope_half_f32_hadamard_"}) {
        if (*step == 'r' && d % 32) continue;
        PrepareConfig c;
        REQUIRE(PrepareConfig::parse(std::string("prep_") + step + "quantize_blocks_bf16_e4m3" + dim + "_r16", &c, nullptr));
        c.rows = gen::rows_to_hold(c, 128);
        names.push_back(c.name());
      }
      names.push_back("prep_unhadamard_bf16" + dim);
    }
    for (const char* name :
         {"prep_amax_f16_d64", "prep_quantize_f16_e5m2_d256", "prep_hadamard_amax_bf16_d256", "prep_hadamard_quantize_bf16_e4m3_d256",
          "prep_rope_half_bf16_bf16_d224", "prep_rope_half_f32_hadamard_amax_bf16_d96", "prep_quantize_blocks_bf16_e4m3_d128_r256",
          "prep_hadamard_quantize_blocks_bf16_e4m3_d128_r256", "prep_rope_interleaved_bf16_hadamard_quantize_f16_e5m2_d192",
          "prep_quantize_transpose_bf16_e4m3_d128", "prep_quantize_blocks_transpose_f16_e5m2_d192",
          "prep_quantize_blocks_transpose_bf16_e4m3_d256"})
      names.push_back(name);
    for (int d : {64, 128, 256})
      for (const PrepareJob& job : prepare_sweep(1024, 2 * d, 512, d))
        for (bool packed : {true, false}) {
          if (job.kind != PrepareKind::prepare) continue;
          PrepareProblem p = job.problem;
          p.packed = packed;
          for (PrepareConfig c : Prepare::kernels_of(p)) {
            names.push_back(c.name());
            if (d == 128 && !c.packed && (c.rope != Rope::none || c.hadamard != Hadamard::none)) names.push_back(c.name() + "_l8");
            for (c.rows = 16; c.packed && c.sink == Sink::quantize_blocks && c.rows < 128; c.rows *= 2) names.push_back(c.name());
          }
        }
    for (const std::string& name : std::set<std::string>(names.begin(), names.end())) {
      PrepareConfig c;
      REQUIRE_MESSAGE(PrepareConfig::parse(name, &c, nullptr), name);
      const test::Assembled a = test::assemble(emit_prepare(c).text);
      CHECK_MESSAGE(a.ok, name, "\n", a.log);
      CHECK_MESSAGE(a.spill_bytes + a.stack_bytes == 0, name, "\n", a.log);
      CHECK_MESSAGE(a.log.find("warning") == std::string::npos, name, "\n", a.log);
    }
  }
}
