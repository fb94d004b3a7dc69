// The forward kernels against float64 on every device there is: lengths around the tile, head dims, head ratios,
// layouts, masks, named inputs. The emulator takes a sample that keeps the run short; a GPU takes the whole grid.
// Next: tools/flashptx/runner.h (guards, references), tools/reference/error.h (what is allowed).
#include <cmath>
#include <cstring>
#include <sstream>

#include "tests/attention/beds.h"
#include "tests/support.h"

using namespace flashptx;
using reference::Inputs;
using reference::Layout;

namespace {

reference::Problem grid_shape(DataType dtype, Mask mask, int dim, std::int64_t seqlen_q, std::int64_t seqlen_k,
                         std::int64_t heads_q = 1, std::int64_t heads_kv = 1, std::int64_t batch = 1) {
  reference::Problem p;
  p.dtype = dtype, p.mask = mask, p.head_dim = p.head_dim_v = dim;
  p.seqlen_q = seqlen_q, p.seqlen_k = seqlen_k, p.heads_q = heads_q, p.heads_kv = heads_kv, p.batch = batch;
  p.scale = 1 / std::sqrt(static_cast<float>(dim));
  return p;
}

std::string text(const reference::Problem& p, Layout layout, Inputs inputs) {
  std::ostringstream out;
  out << to_string(p.dtype) << " " << to_string(p.mask) << " d" << p.head_dim << " " << p.seqlen_q << "x" << p.seqlen_k
      << " heads " << p.heads_q << "/" << p.heads_kv << " batch " << p.batch << " layout " << static_cast<int>(layout)
      << " " << reference::to_string(inputs);
  return out.str();
}

using test::Bed;
Bed& emulated() { return test::emulator_bed(); }
Bed& gpu() { return test::gpu_bed(); }

Outcome check(Bed& bed, const reference::Problem& p, Layout layout = Layout::bshd, Inputs inputs = Inputs::random,
              bool lse = true, const std::string& kernel = "") {
  const Case c = make_case(p, layout, inputs, 1, lse, 0);
  ForwardChoice choice;
  choice.kernel = kernel;
  const Outcome r = run_case(*bed.device, *bed.attention, c, choice);
  CHECK_MESSAGE(r.ok(), text(p, layout, inputs), " ", kernel, ": ", r.complaint());
  return r;
}

// Every pair of lengths, thinned to each `step`-th: a tile is 128 queries by 128 or 64 keys.
void lengths(Bed& bed, int step) {
  const std::int64_t all[] = {1, 2, 63, 64, 65, 113, 127, 128, 129, 191, 192, 193, 250, 300};
  int index = 0;
  for (Mask mask : {Mask::full, Mask::causal})
    for (int dim : {64, 128})
      for (std::int64_t seqlen_q : all)
        for (std::int64_t seqlen_k : all)
          if (index++ % step == 0) check(bed, grid_shape(DataType::bf16, mask, dim, seqlen_q, seqlen_k));
}

void head_dims(Bed& bed, int step) {
  for (int dim = 8; dim <= 256; dim += 8 * step)
    for (DataType dtype : {DataType::bf16, DataType::f16})
      check(bed, grid_shape(dtype, dim % 16 ? Mask::full : Mask::causal, dim, 70, 150));
  check(bed, grid_shape(DataType::f16, Mask::full, 72, 100, 200, 2, 2));
}

void ratios_and_layouts(Bed& bed) {
  for (Layout layout : {Layout::bshd, Layout::bhsd, Layout::qkv}) {
    check(bed, grid_shape(DataType::bf16, Mask::causal, 64, 130, 130, 7, 1, 2), layout);
    check(bed, grid_shape(DataType::f16, Mask::full, 128, 67, 67, 6, 2, 2), layout);
  }
  check(bed, grid_shape(DataType::bf16, Mask::full, 256, 40, 90, 3, 3, 3), Layout::bhsd, Inputs::random, false);
}

void edges(Bed& bed) {
  for (Mask mask : {Mask::full, Mask::causal}) {
    check(bed, grid_shape(DataType::bf16, mask, 64, 50, 0, 2, 1));   // no key at all: O = 0, LSE = -inf
    check(bed, grid_shape(DataType::bf16, mask, 64, 0, 50, 2, 1));   // nothing to do
    check(bed, grid_shape(DataType::bf16, mask, 128, 300, 33, 2, 1));
    check(bed, grid_shape(DataType::bf16, mask, 128, 2, 5));
    check(bed, grid_shape(DataType::bf16, mask, 128, 5, 2));
  }
  reference::Problem zero_scale = grid_shape(DataType::f16, Mask::causal, 64, 65, 130);
  zero_scale.scale = 0;
  check(bed, zero_scale);
  reference::Problem steep = grid_shape(DataType::bf16, Mask::full, 64, 65, 130);
  steep.scale = 40;
  check(bed, steep);
}

void named_inputs(Bed& bed) {
  for (Inputs inputs : {Inputs::ones, Inputs::identity_qk, Inputs::v_ramp, Inputs::one_hot, Inputs::outliers})
    for (Mask mask : {Mask::full, Mask::causal}) {
      check(bed, grid_shape(DataType::bf16, mask, 64, 140, 200, 2, 1, 2), Layout::bshd, inputs);
      check(bed, grid_shape(DataType::f16, mask, 128, 129, 257, 2, 2), Layout::bhsd, inputs);
    }
}

void exact_values(Bed& bed) {
  // Equal weights of whole numbers: not near them, exactly them.
  const auto p = grid_shape(DataType::bf16, Mask::full, 128, 70, 256, 2, 1, 2);
  const Outcome r = check(bed, p, Layout::bshd, Inputs::v_ramp);
  REQUIRE(r.o_bytes.size() == static_cast<std::size_t>(p.batch * p.seqlen_q * p.heads_q * p.head_dim * 2));
  for (std::size_t i = 0; i < r.o_bytes.size() / 2; ++i) {
    const double wanted = static_cast<double>((i % 128 + 7 * (i / (128 * 2 * 70))) % 256);
    const std::uint32_t bits = static_cast<std::uint32_t>(r.o_bytes[2 * i]) | static_cast<std::uint32_t>(r.o_bytes[2 * i + 1]) << 8;
    float got = 0;
    const std::uint32_t word = bits << 16;
    std::memcpy(&got, &word, 4);
    if (got != wanted) {
      CHECK_MESSAGE(got == wanted, "element ", i);
      break;
    }
  }
}

// 8 bit: lengths, head dimensions (rows of 16 bytes), types, ratios, layouts, and the softmaxes and both ways to V^T.
void eight_bit(Bed& bed, int step) {
  const std::int64_t all[] = {1, 63, 64, 65, 127, 128, 129, 193, 257, 300};
  int index = 0;
  for (Mask mask : {Mask::full, Mask::causal})
    for (int dim : {64, 128, 256})
      for (std::int64_t seqlen_q : all)
        for (std::int64_t seqlen_k : all)
          if (index++ % step == 0) check(bed, grid_shape(DataType::e4m3, mask, dim, seqlen_q, seqlen_k));
  for (int dim = 16; dim <= 256; dim += 16)
    check(bed, grid_shape(dim % 32 ? DataType::e4m3 : DataType::e5m2, dim % 48 ? Mask::full : Mask::causal, dim, 70, 150));
  reference::Problem half = grid_shape(DataType::e4m3, Mask::causal, 128, 130, 260, 6, 2, 2);
  half.dtype_o = DataType::f16;
  for (Layout layout : {Layout::bshd, Layout::bhsd}) check(bed, half, layout);
  check(bed, grid_shape(DataType::e4m3, Mask::causal, 64, 130, 130, 7, 1, 2), Layout::qkv);
  for (Inputs inputs : {Inputs::ones, Inputs::identity_qk, Inputs::outliers})
    check(bed, grid_shape(DataType::e4m3, Mask::full, 128, 129, 700, 2, 2), Layout::bhsd, inputs);
  for (Mask mask : {Mask::full, Mask::causal}) {
    check(bed, grid_shape(DataType::e4m3, mask, 64, 50, 0, 2, 1));
    check(bed, grid_shape(DataType::e4m3, mask, 256, 5, 2));
  }
  for (const char* softmax : {"plain", "lazy0", "lazy4", "guarded1", "guarded3"}) {
    check(bed, grid_shape(DataType::e4m3, Mask::full, 128, 200, 700), Layout::bshd, Inputs::random, true,
          std::string("attn_fwd_e4m3_d128_full__q192_kv128_s2_vs3_qs2__serial_pp_") + softmax + "_ob");
    check(bed, grid_shape(DataType::e4m3, Mask::full, 128, 200, 700), Layout::bshd, Inputs::random, true,
          std::string("attn_fwd_e4m3_d128_full_vt__q192_kv128_s3_qs2__serial_pp_") + softmax + "_ob");
    check(bed, grid_shape(DataType::e4m3, Mask::causal, 256, 200, 500), Layout::bshd, Inputs::random, true,
          std::string("attn_fwd_e4m3_d256_causal__q128_kv128_s2__overlap_pp_") + softmax + "_dyn_ob");
  }
}

// A scale by (batch, head) is the same computation with other numbers: powers of two give the same bits.
void scales(Bed& bed) {
  const int batch = 2, heads = 4, heads_kv = 2, dim = 128;
  reference::Problem p = grid_shape(DataType::e4m3, Mask::causal, dim, 70, 140, heads, heads_kv, batch);
  const Case c = make_case(p, Layout::bshd, Inputs::random, 1, false, 0);
  const Outcome plain = run_case(*bed.device, *bed.attention, c, {});
  REQUIRE_MESSAGE(plain.ok(), plain.complaint());
  Case scaled = make_case(p, Layout::bshd, Inputs::random, 1, false, 0);
  // K's scale undoes Q's, whose heads share it by key head.
  for (int i = 0; i < batch * heads; ++i) scaled.q_scale.push_back(i / 2 % 2 ? 4.0f : 0.5f);
  for (int i = 0; i < batch * heads_kv; ++i) scaled.k_scale.push_back(i % 2 ? 0.25f : 2.0f);
  for (int i = 0; i < batch * heads_kv; ++i) scaled.v_scale.push_back(std::ldexp(1.0f, i));
  const Outcome r = run_case(*bed.device, *bed.attention, scaled, {});
  REQUIRE_MESSAGE(r.status.ok(), r.complaint());
  const auto value = [](const std::vector<std::uint8_t>& bytes, std::size_t i) {
    const std::uint32_t bits = static_cast<std::uint32_t>(bytes[2 * i]) << 16 | static_cast<std::uint32_t>(bytes[2 * i + 1]) << 24;
    float v = 0;
    std::memcpy(&v, &bits, 4);
    return v;
  };
  int wrong = 0;
  for (std::size_t i = 0; i < r.o_bytes.size() / 2; ++i) {
    const std::size_t head = i / dim % heads, b = i / (static_cast<std::size_t>(dim) * heads * 70);
    const float factor = std::ldexp(1.0f, static_cast<int>(b * heads_kv + head / 2));
    wrong += value(r.o_bytes, i) != value(plain.o_bytes, i) * factor;
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_SUITE("attention/grid") {
  TEST_CASE("emulator: lengths around the tile") { lengths(emulated(), 5); }
  TEST_CASE("emulator: head dimensions, multiples of 8") { head_dims(emulated(), 2); }
  TEST_CASE("emulator: head ratios and layouts") { ratios_and_layouts(emulated()); }
  TEST_CASE("emulator: empty, short and steep problems") { edges(emulated()); }
  TEST_CASE("emulator: named inputs") { named_inputs(emulated()); }
  TEST_CASE("emulator: equal weights of whole numbers are exact") { exact_values(emulated()); }
  TEST_CASE("emulator: 8 bit") { eight_bit(emulated(), 23); }
  TEST_CASE("emulator: 8-bit scales by head") { scales(emulated()); }

  TEST_CASE("gpu: lengths around the tile") {
    if (!gpu().device) FLASHPTX_SKIP("no GPU: " + gpu().missing);
    lengths(gpu(), 1);
  }
  TEST_CASE("gpu: head dimensions, multiples of 8") {
    if (!gpu().device) FLASHPTX_SKIP("no GPU: " + gpu().missing);
    head_dims(gpu(), 1);
  }
  TEST_CASE("gpu: head ratios, layouts, edges and named inputs") {
    if (!gpu().device) FLASHPTX_SKIP("no GPU: " + gpu().missing);
    ratios_and_layouts(gpu());
    edges(gpu());
    named_inputs(gpu());
    exact_values(gpu());
  }
  TEST_CASE("gpu: 8 bit") {
    if (!gpu().device) FLASHPTX_SKIP("no GPU: " + gpu().missing);
    eight_bit(gpu(), 1);
    scales(gpu());
  }
  TEST_CASE("gpu: the sizes of the paper") {
    if (!gpu().device) FLASHPTX_SKIP("no GPU: " + gpu().missing);
    for (DataType dtype : {DataType::bf16, DataType::f16, DataType::e4m3})
      for (Mask mask : {Mask::full, Mask::causal})
        for (int dim : {64, 128, 256})
          for (std::int64_t seqlen : {512, 2048, 8192})
            check(gpu(), grid_shape(dtype, mask, dim, seqlen, seqlen, 2048 / dim, 2048 / dim, 16384 / seqlen));
  }
  TEST_CASE("gpu: a thousand launches give the same bits") {
    if (!gpu().device) FLASHPTX_SKIP("no GPU: " + gpu().missing);
    const auto p = grid_shape(DataType::bf16, Mask::causal, 128, 1024, 1024, 8, 8, 2);
    const Case c = make_case(p, Layout::bshd, Inputs::random, 1, true, 64);
    const Outcome first = run_case(*gpu().device, *gpu().attention, c, {});
    REQUIRE_MESSAGE(first.ok(), first.complaint());
    int different = 0;
    for (int i = 1; i < 1000; ++i) {
      const Outcome again = run_case(*gpu().device, *gpu().attention, c, {});
      different += !again.ok() || again.o_bytes != first.o_bytes || again.lse_bytes != first.lse_bytes;
    }
    CHECK(different == 0);
  }
}
