// 8-bit wgmma in a kernel written by hand from the PTX ISA's definitions: shared-memory tile with the 128-byte swizzle,
// descriptor, A fragment, D fragment (sections on wgmma's matrix fragments and shared-memory layout). Nothing here
// comes from the generator or from the emulator's own tables.
//
// D[64][16] = A[64][128] B[16][128]^T in four steps of K = 32, all combinations of e4m3 and e5m2, A from shared memory
// and from registers. The bytes are random bit patterns of small exact values and some that are special.
// Next: tests/emulator/tensor_core_test.cpp tests the same arithmetic without the machine.
#include <cmath>
#include <random>

#include "tests/emulator/machine.h"
#include "tools/reference/numeric.h"

using namespace flashptx;
using namespace flashptx::emulator;
using namespace flashptx::emulator::test;

namespace {

constexpr int rows = 64, columns = 16, depth = 128;

// 16-byte chunk `tid` + 128 j of a row-major tile of 128-byte rows goes to chunk ^ (row % 8).
std::string copy_tile(const char* global, const char* shared, int chunks) {
  std::string s;
  for (int first = 0; first < chunks; first += 128)
    s += "add.u32 %c, %t, " + std::to_string(first) + "; shr.u32 %row, %c, 3; and.b32 %chunk, %c, 7;\n"
         "mul.wide.u32 %at, %c, 16; add.u64 %at, %at, " + std::string(global) + ";\n"
         "ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%at];\n"
         "and.b32 %key, %row, 7; xor.b32 %chunk, %chunk, %key; shl.b32 %chunk, %chunk, 4;\n"
         "mad.lo.u32 %to, %row, 128, %chunk; mov.u32 %base, " + std::string(shared) + "; add.u32 %to, %to, %base;\n"
         "st.shared.v4.b32 [%to], {%r0, %r1, %r2, %r3};\n";
  return s;
}

// 8 bits a value: lane l of warp w holds in register r of A the columns 4 (l % 4) + 16 (r / 2) .. + 3 of row
// 16 w + l / 4 + 8 (r % 2).
std::string load_a(int step) {
  std::string s;
  for (int r = 0; r < 4; ++r)
    s += "ld.global.b32 %a" + std::to_string(r) + ", [%a_lane+" +
         std::to_string(8 * (r % 2) * depth + 16 * (r / 2) + 32 * step) + "];\n";
  return s;
}

std::string kernel_text(const std::string& a, const std::string& b, bool from_registers) {
  std::string s = R"(.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p_a, .param .u64 p_b, .param .u64 p_d)
.reqntid 128
{
.shared .align 1024 .b8 sa[8192];
.shared .align 1024 .b8 sb[2048];
.reg .b64 %pa, %pb, %pd, %at, %a_lane, %da, %db;
.reg .b32 %t, %c, %row, %chunk, %key, %to, %base, %r<4>, %a<4>, %lane, %quad, %low;
.reg .f32 %d<8>;
.reg .pred %keep;
ld.param.u64 %pa, [p_a]; ld.param.u64 %pb, [p_b]; ld.param.u64 %pd, [p_d];
mov.u32 %t, %tid.x;
)";
  s += copy_tile("%pa", "sa", rows * 8) + copy_tile("%pb", "sb", columns * 8);
  s += R"(fence.proxy.async.shared::cta;
bar.sync 0;
// This lane's row (of 64) and column: 16 * (t / 32) + (t % 32) / 4, and 4 bytes * (t % 4).
and.b32 %lane, %t, 31; shr.u32 %row, %t, 5; shl.b32 %row, %row, 4;
shr.u32 %quad, %lane, 2; add.u32 %row, %row, %quad; and.b32 %quad, %lane, 3;
mul.lo.u32 %c, %row, 128; mad.lo.u32 %c, %quad, 4, %c;
cvt.u64.u32 %at, %c; add.u64 %a_lane, %pa, %at;
// Start address / 16; stride 1024 bytes between groups of 8 rows (64 in units of 16); swizzle of 128 bytes: 1 << 62.
mov.u32 %low, sa; shr.u32 %low, %low, 4; mov.b64 %da, {%low, 0x40000040};
mov.u32 %low, sb; shr.u32 %low, %low, 4; mov.b64 %db, {%low, 0x40000040};
)";
  const std::string op = "wgmma.mma_async.sync.aligned.m64n16k32.f32." + a + "." + b + " {%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7}, ";
  for (int step = 0; step < depth / 32; ++step) {
    s += "setp.ne.u32 %keep, " + std::to_string(step) + ", 0;\n";
    if (from_registers) s += load_a(step);
    if (from_registers || step == 0) s += "wgmma.fence.sync.aligned;\n";
    s += op + (from_registers ? "{%a0, %a1, %a2, %a3}" : "%da") + ", %db, %keep, 1, 1;\n";
    if (from_registers) s += "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n";
    s += "add.s64 %da, %da, 2; add.s64 %db, %db, 2;\n";  // 32 bytes
  }
  if (!from_registers) s += "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n";
  // D: register i is column 8 (i / 4) + 2 (l % 4) + i % 2 of row .. + 8 (i / 2 % 2).
  s += "mul.lo.u32 %c, %row, 64; mad.lo.u32 %c, %quad, 8, %c; cvt.u64.u32 %at, %c; add.u64 %at, %at, %pd;\n";
  for (int i = 0; i < 8; ++i)
    s += "st.global.f32 [%at+" + std::to_string(8 * (i / 2 % 2) * columns * 4 + (8 * (i / 4) + i % 2) * 4) + "], %d" +
         std::to_string(i) + ";\n";
  return s + "ret;\n}\n";
}

struct Operands {
  std::vector<std::uint8_t> a = std::vector<std::uint8_t>(rows * depth), b = std::vector<std::uint8_t>(columns * depth);
};

std::vector<float> multiply(Launcher& l, const Operands& o, const std::string& a, const std::string& b, bool registers) {
  std::uint64_t pa = l.upload(o.a), pb = l.upload(o.b), pd = l.buffer(rows * columns * 4, 0xff);
  LaunchDims dims;
  dims.block[0] = 128;
  const Status s = l.launch(kernel_text(a, b, registers), "k", {&pa, &pb, &pd}, dims);
  REQUIRE_MESSAGE(s.ok(), a, " ", b, ": ", s.message);
  return l.download<float>(pd, rows * columns);
}

std::uint8_t byte_of(DataType t, double v) { return static_cast<std::uint8_t>(reference::encode(t, v)); }

// Whole numbers up to 8, whose 128 products sum exactly.
Operands whole_numbers(DataType a, DataType b) {
  Operands o;
  std::mt19937 g(7);
  for (auto& x : o.a) x = byte_of(a, static_cast<double>(g() % 9) - 4);
  for (auto& x : o.b) x = byte_of(b, static_cast<double>(g() % 9) - 4);
  return o;
}

const DataType types[] = {DataType::e4m3, DataType::e5m2};

}  // namespace

TEST_SUITE("emulator/fp8_kernel") {
  TEST_CASE("all four combinations of e4m3 and e5m2 are exact, A from shared memory and from registers") {
    for (DataType a : types)
      for (DataType b : types)
        for (bool registers : {false, true})
          for (std::uint64_t seed : {0, 1, 2}) {
            const Operands o = whole_numbers(a, b);
            Launcher l(seed, seed ? 2 : 0);
            const std::vector<float> d = multiply(l, o, to_string(a), to_string(b), registers);
            int wrong = 0;
            for (int i = 0; i < rows; ++i)
              for (int j = 0; j < columns; ++j) {
                double want = 0;
                for (int k = 0; k < depth; ++k)
                  want += reference::decode(a, o.a[static_cast<std::size_t>(i * depth + k)]) *
                          reference::decode(b, o.b[static_cast<std::size_t>(j * depth + k)]);
                wrong += d[static_cast<std::size_t>(i * columns + j)] != static_cast<float>(want);
              }
            CHECK_MESSAGE(wrong == 0, to_string(a), " ", to_string(b), registers ? " registers" : " shared");
          }
  }

  TEST_CASE("each of the 256 bit patterns has its value: subnormals, largest, infinity, NaN") {
    for (DataType t : types) {
      Operands o;
      // Row i, K = 32 k' holds pattern 4 i + k'; B picks one of the four steps a column.
      for (int i = 0; i < rows; ++i)
        for (int step = 0; step < 4; ++step)
          o.a[static_cast<std::size_t>(i * depth + 32 * step)] = static_cast<std::uint8_t>(4 * i + step);
      for (int j = 0; j < columns; ++j)
        o.b[static_cast<std::size_t>(j * depth + 32 * (j % 4))] = byte_of(DataType::e5m2, 1);
      Launcher l;
      const std::vector<float> d = multiply(l, o, to_string(t), "e5m2", false);
      for (int i = 0; i < rows; ++i) {
        bool special = false;  // infinity times 0 in another step is NaN as well
        for (int step = 0; step < 4; ++step)
          special |= !std::isfinite(reference::decode(t, static_cast<std::uint32_t>(4 * i + step)));
        for (int j = 0; j < columns; ++j) {
          const double want = reference::decode(t, static_cast<std::uint32_t>(4 * i + j % 4));
          const float got = d[static_cast<std::size_t>(i * columns + j)];
          if (special) CHECK_MESSAGE(!std::isfinite(got), to_string(t), " pattern ", 4 * i + j % 4, ": ", got);
          else CHECK_MESSAGE(got == static_cast<float>(want), to_string(t), " pattern ", 4 * i + j % 4, ": ", got);
        }
      }
    }
  }

  TEST_CASE("an infinity stays one where nothing turns it into NaN, and NaN is 0x7fffffff") {
    Operands o;
    o.a[0] = 0x7c, o.a[depth] = 0xfc, o.a[2 * depth] = 0x7d;  // e5m2: +inf, -inf, NaN
    for (int j = 0; j < columns; ++j) o.b[static_cast<std::size_t>(j * depth)] = byte_of(DataType::e4m3, j == 3 ? 0 : 2);
    Launcher l;
    const std::vector<float> d = multiply(l, o, "e5m2", "e4m3", true);
    std::uint32_t nan[2];
    std::memcpy(&nan[0], &d[2 * columns], 4), std::memcpy(&nan[1], &d[3], 4);
    CHECK(d[0] == INFINITY);
    CHECK(d[columns] == -INFINITY);
    CHECK(nan[0] == 0x7fffffffu);
    CHECK(nan[1] == 0x7fffffffu);  // infinity times 0
    CHECK(d[3 * columns] == 0.0f);
  }

  TEST_CASE("the narrow accumulator, on request, drops what lies below its 14 bits, between steps too") {
    Operands o;
    // Row i: 1 in the first step, then 2^-(10 + i % 8) in the second; the third takes the 1 away again.
    for (int i = 0; i < rows; ++i) {
      auto a = [&](int k) -> std::uint8_t& { return o.a[static_cast<std::size_t>(i * depth + k)]; };
      a(0) = byte_of(DataType::e4m3, 1), a(32) = byte_of(DataType::e4m3, std::ldexp(1, -(4 + i % 8)));
      a(64) = byte_of(DataType::e4m3, -1);
    }
    for (int j = 0; j < columns; ++j) {
      auto b = [&](int k) -> std::uint8_t& { return o.b[static_cast<std::size_t>(j * depth + k)]; };
      b(0) = b(64) = byte_of(DataType::e4m3, 1), b(32) = byte_of(DataType::e4m3, 0x1p-6);
    }
    for (bool narrow : {false, true})
      for (bool registers : {false, true}) {
        Launcher l;
        l.options.fp8_narrow_accumulator = narrow;
        REQUIRE(open_emulator(l.options, &l.device).ok());
        const std::vector<float> d = multiply(l, o, "e4m3", "e4m3", registers);
        for (int i = 0; i < rows; ++i) {
          const double a = reference::round_to(DataType::e4m3, std::ldexp(1, -(4 + i % 8)));
          const float want = static_cast<float>(a * 0x1p-6), got = d[static_cast<std::size_t>(i * columns + 5)];
          CHECK_MESSAGE(got == (narrow && want < 0x1p-13f ? 0.0f : want), "row ", i, narrow ? " narrow" : " wide");
        }
      }
  }
}
