// Scales by blocks of rows against float64: the 8-bit values times their scales, which bf16 holds exactly where the
// scales are powers of two, are the reference's input. Next: gen/tile/scales.cpp.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/attention/beds.h"
#include "tests/support.h"
#include "tools/flashptx/runner.h"
#include "tools/flashptx/session.h"
#include "tools/reference/numeric.h"

using namespace flashptx;

namespace {

struct Blocks {
  std::int64_t q = 0, k = 0, v = 0;
};

// Powers of two that differ from block to block and head to head.
std::vector<float> some_scales(std::int64_t pairs, std::int64_t rows, std::int64_t block, int seed) {
  const std::int64_t blocks = block ? (rows + block - 1) / block : 1;
  std::vector<float> out;
  for (std::int64_t i = 0; i < pairs * blocks; ++i)
    out.push_back(std::ldexp(1.0f, static_cast<int>((i * 5 + seed + i / blocks * 3) % 4) - 2));
  return out;
}

// bf16 copy of a (batch, rows, heads, dim) tensor, scaled.
std::vector<std::uint8_t> dequantized(const std::vector<std::uint8_t>& from, std::int64_t batch, std::int64_t rows,
                                      std::int64_t heads, int dim, std::int64_t block, const std::vector<float>& scale) {
  const std::int64_t blocks = block ? (rows + block - 1) / block : 1;
  std::vector<std::uint8_t> out(from.size() * 2);
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(from.size()); ++i) {
    const std::int64_t head = i / dim % heads, row = i / (dim * heads) % rows, b = i / (dim * heads * rows);
    const float s = scale[static_cast<std::size_t>((b * heads + head) * blocks + (block ? row / block : 0))];
    reference::store(DataType::bf16, out.data(), i, reference::load(DataType::e4m3, from.data(), i) * s);
  }
  (void)batch;
  return out;
}

void check_blocks(Device& device, Attention& attention, Mask mask, int dim, std::int64_t seqlen_q, std::int64_t seqlen_k,
                  Blocks blocks, const std::string& kernel = "", bool far = false) {
  reference::Problem p;
  p.dtype = DataType::e4m3, p.mask = mask, p.head_dim = p.head_dim_v = dim;
  p.batch = 2, p.heads_q = 4, p.heads_kv = 2, p.seqlen_q = seqlen_q, p.seqlen_k = seqlen_k;
  p.scale = 1 / std::sqrt(static_cast<float>(dim));
  Case c = make_case(p, reference::Layout::bshd, reference::Inputs::random, 3, true, 0);
  c.q_block = blocks.q, c.k_block = blocks.k, c.v_block = blocks.v;
  c.q_scale = some_scales(p.batch * p.heads_q, seqlen_q, blocks.q, 1);
  c.k_scale = some_scales(p.batch * p.heads_kv, seqlen_k, blocks.k, 2);
  c.v_scale = some_scales(p.batch * p.heads_kv, seqlen_k, blocks.v, 3);
  // 2^70 apart: O has to change its unit, to larger and to smaller ones.
  for (std::size_t i = 0; i < c.v_scale.size() && far; ++i) c.v_scale[i] *= i % 3 == 0 ? 1.0f : i % 3 == 1 ? 0x1p-70f : 0x1p-35f;
  const auto q = dequantized(c.tensors.q, p.batch, seqlen_q, p.heads_q, dim, blocks.q, c.q_scale);
  const auto k = dequantized(c.tensors.k, p.batch, seqlen_k, p.heads_kv, dim, blocks.k, c.k_scale);
  const auto v = dequantized(c.tensors.v, p.batch, seqlen_k, p.heads_kv, dim, blocks.v, c.v_scale);
  reference::Problem exact = c.problem();
  exact.dtype = DataType::bf16;
  exact.q = q.data(), exact.k = k.data(), exact.v = v.data();
  const reference::Result wanted = reference::attention_float64(exact);
  ForwardChoice choice;
  choice.kernel = kernel;
  const Outcome r = run_case(device, attention, c, choice);
  INFO(r.kernel, " far ", far, " blocks ", blocks.q, " ", blocks.k, " ", blocks.v);
  REQUIRE_MESSAGE(r.status.ok(), r.status.message);
  double squares = 0, size = 0, lse = 0;
  for (std::size_t i = 0; i < wanted.o.size(); ++i) {
    const double got = reference::load(DataType::bf16, r.o_bytes.data(), static_cast<std::int64_t>(i));
    squares += (got - wanted.o[i]) * (got - wanted.o[i]), size += wanted.o[i] * wanted.o[i];
  }
  for (std::size_t i = 0; i < wanted.lse.size(); ++i) {
    float got = 0;
    std::memcpy(&got, r.lse_bytes.data() + 4 * i, 4);
    if (std::isfinite(wanted.lse[i])) lse = std::max(lse, std::fabs(got - wanted.lse[i]));
    else CHECK(got == wanted.lse[i]);
  }
  CHECK(std::sqrt(squares / size) < 0.035);  // an e4m3 P's own error is 0.02 to 0.027
  CHECK(std::sqrt(squares / size) > 0.001);
  CHECK(lse < 0.02);
}

void all_blocks(Device& device, Attention& attention) {
  for (Mask mask : {Mask::full, Mask::causal})
    for (Blocks b : {Blocks{64, 128, 128}, Blocks{1, 64, 0}, Blocks{0, 256, 32}, Blocks{128, 0, 384}})
      check_blocks(device, attention, mask, 128, 200, 420, b);
  check_blocks(device, attention, Mask::full, 64, 70, 300, {32, 128, 64});
  check_blocks(device, attention, Mask::causal, 256, 130, 300, {16, 128, 128});
  check_blocks(device, attention, Mask::full, 256, 70, 300, {64, 16, 16});
  for (bool far : {false, true})
    for (const char* softmax : {"plain", "lazy0", "guarded1"})
      for (const char* schedule : {"__q192_kv128_s2_vs3_qs2__serial_pp_", "__q128_kv128_s2_qs2__overlap_pp_"})
        check_blocks(device, attention, Mask::full, 128, 200, 900, {64, 128, 128},
                     std::string("attn_fwd_e4m3_d128_full_bs128") + schedule + softmax + "_dyn_ob", far);
  check_blocks(device, attention, Mask::causal, 128, 200, 900, {64, 64, 64}, "", true);
  // O folded every second block, one group of keys a block and several, units that change in between.
  for (bool far : {false, true}) {
    for (const char* softmax : {"plain", "lazy0", "guarded1"})
      check_blocks(device, attention, Mask::causal, 64, 200, 900, {64, 128, 128},
                   std::string("attn_fwd_e4m3_d64_causal_bs128__q192_kv128_s3_qs2__overlap_") + softmax + "_dyn_ob_fold2", far);
    check_blocks(device, attention, Mask::full, 128, 200, 900, {64, 64, 128},
                 "attn_fwd_e4m3_d128_full_bs64__q192_kv128_s2_qs2__serial_pp_guarded3_dyn_ob_fold2", far);
    check_blocks(device, attention, Mask::full, 64, 70, 1200, {32, 32, 64},
                 "attn_fwd_e4m3_d64_full_vt_bs32__q192_kv128_s3_qs2__overlap_guarded3_dyn_ob_fold4", far);
  }
  check_blocks(device, attention, Mask::full, 128, 200, 900, {64, 128, 128},
               "attn_fwd_e4m3_d128_full_vt_bs128__q192_kv128_s3_qs2_vb__serial_pp_guarded3_dyn_ob", true);
  check_blocks(device, attention, Mask::causal, 256, 130, 300, {16, 64, 128},
               "attn_fwd_e4m3_d256_causal_vt_bs64__q128_kv128_s2_vb__serial_pp_guarded3_dyn_ob");
  for (bool far : {false, true})
    check_blocks(device, attention, Mask::full, 64, 70, 1200, {64, 128, 128},
                 "attn_fwd_e4m3_d64_full_vt_bs128__q192_kv128_s3_qs2__serial_pp_guarded3_dyn_ob_two", far);
}

// All scores equal, far beyond what one fma can take, V = 1 and its scale 4 for the first half of the keys, 1 for the others: O = 2.5.
void check_far_scores(Device& device, Attention& attention) {
  for (const auto& [rows, kernel] : std::vector<std::pair<std::int64_t, std::string>>{
           {128, ""},
           {64, ""},
           {128, "attn_fwd_e4m3_d64_full_bs128__q128_kv128_s2_qs2__overlap_plain_dyn_ob"},
           {128, "attn_fwd_e4m3_d64_full_bs128__q128_kv128_s2_qs2__overlap_lazy4_dyn_ob"},
           {64, "attn_fwd_e4m3_d64_full_bs64__q256_kv64_s4_qs2__overlap_guarded1_dyn_ob"}})
    for (double key : {16.0, 32.0, 448.0}) {
      reference::Problem p;
      p.dtype = DataType::e4m3, p.head_dim = p.head_dim_v = 64, p.seqlen_q = 64, p.seqlen_k = 256, p.scale = 1;
      Case c = make_case(p, reference::Layout::bshd, reference::Inputs::random, 1, true, 0);
      for (std::int64_t i = 0; i < p.seqlen_q * 64; ++i) reference::store(p.dtype, c.tensors.q.data(), i, i % 64 == 0 ? 128 : 0);
      for (std::int64_t i = 0; i < p.seqlen_k * 64; ++i) {
        reference::store(p.dtype, c.tensors.k.data(), i, i % 64 == 0 ? key : 0);
        reference::store(p.dtype, c.tensors.v.data(), i, 1);
      }
      c.k_block = c.v_block = rows, c.q_scale = {1};
      c.k_scale.assign(static_cast<std::size_t>(256 / rows), 1), c.v_scale = c.k_scale;
      std::fill(c.v_scale.begin(), c.v_scale.begin() + static_cast<long>(c.v_scale.size() / 2), 4.0f);
      ForwardChoice choice;
      choice.kernel = kernel;
      const Outcome r = run_case(device, attention, c, choice);
      REQUIRE_MESSAGE(r.status.ok(), r.status.message);
      float lse = 0;
      std::memcpy(&lse, r.lse_bytes.data(), sizeof lse);
      const double o = reference::load(DataType::bf16, r.o_bytes.data(), 0);
      CHECK_MESSAGE(std::fabs(o - 2.5) < 0.01, r.kernel, " score ", 128 * key, ": O ", o);
      CHECK_MESSAGE(std::fabs(lse - (128 * key + std::log(256.0))) < 0.02, r.kernel, " score ", 128 * key, ": LSE ", lse);
    }
}

}  // namespace

TEST_SUITE("attention/fp8 scales") {
  TEST_CASE("emulator: scores beyond one fma, scales of V that differ by block") {
    test::Bed& bed = test::emulator_bed();
    check_far_scores(*bed.device, *bed.attention);
  }
  TEST_CASE("emulator: by blocks of rows") {
    std::unique_ptr<Device> device;
    std::string note;
    DeviceRequest request;
    request.choice = DeviceChoice::emulator;
    REQUIRE(open_device(request, &device, &note).ok());
    Attention attention(*device);
    all_blocks(*device, attention);
  }
  TEST_CASE("gpu: by blocks of rows") {
    std::unique_ptr<Device> device;
    std::string note;
    DeviceRequest request;
    request.choice = DeviceChoice::cuda;
    const Status s = open_device(request, &device, &note);
    if (!s.ok()) FLASHPTX_SKIP("no GPU: " + s.message);
    Attention attention(*device);
    all_blocks(*device, attention);
  }
}
