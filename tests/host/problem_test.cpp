// Every refusal of host/problem.cpp and host/tensor_map_check.cpp with its sentence, and the border
// on its good side.
#include "host/problem.h"

#include <cmath>
#include <functional>
#include <limits>

#include "tests/host/problems.h"
#include "tests/support.h"

namespace flashptx::test {
namespace {

std::string refusal(const std::function<void(ForwardProblem&)>& spoil) {
  ForwardProblem p = usual();
  spoil(p);
  return check_problem(p).message;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TensorMapDesc good_map() {
  TensorMapDesc d;
  d.name = "K";
  d.address = 1024;
  d.rank = 4;
  const std::uint64_t dims[] = {128, 500, 2, 2}, strides[] = {512, 256, 256000};
  const std::uint32_t box[] = {64, 128, 1, 1};
  std::copy(dims, dims + 4, d.dims);
  std::copy(strides, strides + 3, d.stride_bytes);
  std::copy(box, box + 4, d.box);
  return d;
}

std::string map_refusal(const std::function<void(TensorMapDesc&)>& spoil) {
  TensorMapDesc d = good_map();
  spoil(d);
  return check_tensor_map(d).message;
}

}  // namespace

TEST_SUITE("host/problem") {
  TEST_CASE("accepts the ordinary layouts") {
    CHECK(check_problem(usual()).ok());
    ForwardProblem p = usual();
    p.q = p.o = strides_bhsd(300, 8, 128);
    p.k = p.v = strides_bhsd(500, 2, 128);
    CHECK(check_problem(p).ok());
    p.q = {300 * 12 * 128, 12 * 128, 128};  // a view of a fused buffer
    CHECK(check_problem(p).ok());
    p.k = p.v = {0, 2 * 128, 0};  // broadcast over batch and heads
    CHECK(check_problem(p).ok());
    CHECK(check_problem(bshd(1, 7, 1, 1, 1, 8)).ok());
    CHECK(check_problem(bshd(1, 7, 1, 1, 1, 256)).ok());
  }

  TEST_CASE("names sizes that cannot be right") {
    CHECK(refusal([](auto& p) { p.batch = -1; }) == "batch is -1: must be >= 0");
    CHECK(refusal([](auto& p) { p.seqlen_q = -5; }) == "seqlen_q is -5: must be >= 0");
    CHECK(refusal([](auto& p) { p.seqlen_k = std::int64_t{1} << 31; }) ==
          "seqlen_k is 2147483648: the limit is 2^31 - 1");
    CHECK(refusal([](auto& p) { p.heads_kv = 3; }) ==
          "heads_q is 8: must be a multiple of heads_kv, which is 3");
    CHECK(refusal([](auto& p) { p.heads_kv = 0; }) ==
          "heads_kv is 0 while heads_q is 8: must be >= 1");
    CHECK(refusal([](auto& p) { p.head_dim = 0; }) == "head_dim is 0: must be >= 1");
    CHECK(refusal([](auto& p) { p.head_dim = 20; }) ==
          "head_dim is 20: must be a multiple of 8 (TMA moves rows in units of 16 bytes)");
    CHECK(refusal([](auto& p) { p.head_dim = 264; }) == "head_dim is 264: the limit is 256");
    CHECK(refusal([](auto& p) { p.head_dim_v = -8; }) == "head_dim_v is -8: must be >= 1");
    CHECK(refusal([](auto& p) { p.dtype = DataType::f32; }) == "dtype is 4: must be f16, bf16, e4m3 or e5m2");
  }

  TEST_CASE("8 bit: scales, V^T and O's type") {
    const auto fp8 = [](const std::function<void(ForwardProblem&)>& change) {
      return refusal([&](auto& p) {
        p.dtype = DataType::e4m3;
        change(p);
      });
    };
    CHECK(fp8([](auto&) {}).empty());
    CHECK(fp8([](auto& p) { p.dtype_o = DataType::e4m3; }) == "dtype_o is 2: must be f16 or bf16");
    CHECK(contains(fp8([](auto& p) { p.k_scale.head = -1; }), "k_scale head stride is -1"));
    CHECK(contains(fp8([](auto& p) { p.v_scale.batch = std::int64_t{1} << 32; }), "v_scale batch stride"));
    CHECK(contains(fp8([](auto& p) { p.q_scale_group = 3; }), "q_scale_group is 3: must be >= 1 and divide heads_q"));
    CHECK(contains(fp8([](auto& p) { p.q_scale_group = 0; }), "q_scale_group is 0"));
    CHECK(refusal([](auto& p) { p.v_transposed = true; }) ==
          "v_transposed is set: only e4m3 and e5m2 take V transposed");
    CHECK(fp8([](auto& p) { p.fast = true; }).empty());
    CHECK(refusal([](auto& p) { p.fast = true; }) == "fast is set: only e4m3 and e5m2 have a fast mode");
  }

  TEST_CASE("8 bit: K and V may have the other type; 16 bit: not") {
    ForwardProblem p = usual();
    p.dtype_k = DataType::bf16;
    CHECK(check_problem(p).ok());
    p.dtype = DataType::e5m2, p.dtype_k = DataType::e4m3, p.dtype_v = DataType::e5m2;
    CHECK(check_problem(p).ok());
    p.dtype_v = DataType::f16;
    CHECK(check_problem(p).message == "dtype_v is 0: must be that of Q, or e4m3 or e5m2 beside a Q of those");
    CHECK(refusal([](auto& q) { q.dtype_k = DataType::e5m2; }) ==
          "dtype_k is e5m2 while dtype is bf16: K and V have types of their own only where Q is e4m3 or e5m2");
  }
  TEST_CASE("refuses a scale that is negative, infinite or overflows in base 2") {
    CHECK(contains(refusal([](auto& p) { p.softmax_scale = -0.5f; }), "softmax_scale is -0.5"));
    CHECK(
        contains(refusal([](auto& p) { p.softmax_scale = std::numeric_limits<float>::infinity(); }),
                 "softmax_scale is inf"));
    CHECK(contains(refusal([](auto& p) { p.softmax_scale = 3e38f; }),
                   "must be >= 0 and at most 1e20"));
    CHECK(refusal([](auto& p) { p.softmax_scale = 0; }).empty());
    CHECK(usual().scale() == static_cast<float>(1.0 / std::sqrt(128.0)));
    CHECK(bshd(1, 1, 1, 1, 1, 72).scale() == static_cast<float>(1.0 / std::sqrt(72.0)));
  }

  TEST_CASE("refuses strides that TMA cannot express, in bytes") {
    // 16-bit elements: 68 elements are 136 bytes, 72 are 144 (bug report B33).
    ForwardProblem p = bshd(2, 1, 1, 4, 4, 64);
    p.q.seq = 68;
    CHECK(check_problem(p).message ==
          "Q seq stride is 68 elements = 136 bytes: must be a multiple of 16 bytes");
    p.q.seq = 72;
    CHECK(check_problem(p).ok());
    CHECK(refusal([](auto& p) { p.v.head = -128; }) ==
          "V head stride is -128 elements: must be >= 0");
    CHECK(refusal([](auto& p) { p.k.batch = std::int64_t{1} << 39; }) ==
          "K batch stride is 549755813888 elements: must be below 2^40 bytes = 549755813888 "
          "elements");
    CHECK(refusal([](auto& p) { p.k.batch = (std::int64_t{1} << 39) - 8; }).empty());
  }

  TEST_CASE("ignores the stride of a dimension of extent 1") {
    ForwardProblem p = bshd(1, 1, 1, 1, 1, 64);
    p.q = p.k = p.v = p.o = {-7, 3, INT64_MAX};
    CHECK(check_problem(p).ok());
  }

  TEST_CASE("refuses O whose rows overlap, and only O") {
    CHECK(refusal([](auto& p) { p.o.head = 0; }) ==
          "O head stride is 0 elements: rows of O would overlap, must be >= 128");
    CHECK(refusal([](auto& p) { p.o.seq = 512; }) ==
          "O seq stride is 512 elements: rows of O would overlap, must be >= 1024");
    CHECK(refusal([](auto& p) { p.o.batch = 300 * 1024 - 8; }) ==
          "O batch stride is 307192 elements: rows of O would overlap, must be >= 307200");
    CHECK(refusal([](auto& p) { p.q.head = 0; }).empty());
  }

  TEST_CASE("refuses tensors beyond the address space instead of wrapping") {
    ForwardProblem p = bshd(4, 1, 1, (std::int64_t{1} << 31) - 1, 4, 64);
    p.q.seq = p.o.seq = (std::int64_t{1} << 39) - 8;
    CHECK(contains(check_problem(p).message, "Q spans more than 2^62 bytes"));
    p = bshd(INT32_MAX, INT32_MAX, 1, INT32_MAX, 0, 64);  // strides beyond 64 bits saturate
    CHECK(p.q.batch == INT64_MAX);
    CHECK(contains(check_problem(p).message,
                   "Q batch stride is 9223372036854775807 elements: must be below"));
  }

  TEST_CASE("zero-size problems pass whatever their strides") {
    for (auto spoil :
         {+[](ForwardProblem& p) { p.batch = 0; }, +[](ForwardProblem& p) { p.seqlen_q = 0; },
          +[](ForwardProblem& p) { p.heads_q = p.heads_kv = 0; }}) {
      ForwardProblem p = usual();
      p.o = {0, 0, 0};
      spoil(p);
      CHECK(p.empty());
      CHECK(check_problem(p).ok());
    }
  }

  TEST_CASE("names pointers that are null or misaligned") {
    const ForwardProblem p = usual();
    ForwardPointers at{1024, 2048, 4096, 8192, 0};
    CHECK(check_pointers(p, at).ok());
    at.k = 0;
    CHECK(check_pointers(p, at).message == "k is a null pointer");
    for (std::uint64_t off : {2, 8}) {
      at.k = 2048 + off;
      CHECK(check_pointers(p, at).message ==
            "k is address " + std::to_string(2048 + off) + ": must be a multiple of 16 bytes");
    }
    at.k = 2048 + 16;
    CHECK(check_pointers(p, at).ok());
    at.lse = 1022;
    CHECK(check_pointers(p, at).message == "lse is address 1022: must be a multiple of 4 bytes");
    ForwardProblem none = usual();
    none.seqlen_k = 0;
    CHECK(check_pointers(none, {1024, 0, 0, 8192, 0}).ok());
  }
}

TEST_SUITE("host/tensor_map") {
  TEST_CASE("names tensor, field, value and rule") {
    CHECK(check_tensor_map(good_map()).ok());
    CHECK(map_refusal([](auto& d) { d.box[1] = 384; }) ==
          "tensor map K: box[1] is 384, must be in 1..256");
    CHECK(map_refusal([](auto& d) { d.box[1] = 0; }) ==
          "tensor map K: box[1] is 0, must be in 1..256");
    CHECK(map_refusal([](auto& d) { d.address += 2; }) ==
          "tensor map K: address is 1026, must be a multiple of 16");
    CHECK(map_refusal([](auto& d) { d.address += 8; }) ==
          "tensor map K: address is 1032, must be a multiple of 16");
    CHECK(map_refusal([](auto& d) { d.address += 16; }).empty());
    CHECK(map_refusal([](auto& d) { d.stride_bytes[0] = 136; }) ==
          "tensor map K: stride_bytes[0] is 136, must be a multiple of 16");
    CHECK(map_refusal([](auto& d) { d.stride_bytes[0] = 144; }).empty());
    CHECK(map_refusal([](auto& d) { d.stride_bytes[2] = std::uint64_t{1} << 40; }) ==
          "tensor map K: stride_bytes[2] is 1099511627776, must be below 2^40");
    CHECK(map_refusal([](auto& d) { d.box[0] = 72; }) ==
          "tensor map K: box[0] in bytes is 144, must be at most the swizzle span of 128");
    CHECK(map_refusal([](auto& d) { d.box[0] = 4; }) ==
          "tensor map K: box[0] in bytes is 8, must be a multiple of 16");
    CHECK(map_refusal([](auto& d) { d.swizzle_bytes = 96; }) ==
          "tensor map K: swizzle_bytes is 96, must be 0, 32, 64 or 128");
    CHECK(map_refusal([](auto& d) { d.rank = 6; }) == "tensor map K: rank is 6, must be in 1..5");
    CHECK(map_refusal([](auto& d) { d.dims[2] = 0; }) ==
          "tensor map K: dims[2] is 0, must be in 1..2^32");
    CHECK(map_refusal([](auto& d) { d.dims[1] = (std::uint64_t{1} << 32) + 1; }) ==
          "tensor map K: dims[1] is 4294967297, must be in 1..2^32");
  }
}

}  // namespace flashptx::test
