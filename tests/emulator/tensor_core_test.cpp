// wgmma against brute force: tiles are written to shared memory by row and column as software or
// TMA would (chunk ^= row), never by the descriptor formulas that the emulator evaluates.
//
// Small integers make every product exact, so a wrong index gives a wrong integer; random reals are
// compared with float64. Next: tests/emulator/layout_test.cpp.
#include "host/emulator/tensor_core.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "tests/emulator/matrices.h"

using namespace flashptx::emulator;
using namespace flashptx::emulator::test;

namespace {

constexpr std::uint32_t kBase = 0x400;  // where the window of shared memory begins
constexpr std::uint32_t kSize = 192 * 1024;

// Shared memory with one tile, and the descriptor of the instruction that reads K bytes 32 step ..
// + 31.
struct Tile {
  std::uint32_t address;
  int swizzle;
  bool mn_major;
  MatrixDescriptor descriptor(const Matrix& m, int step) const {
    MatrixDescriptor d;
    d.swizzle_bytes = swizzle;
    const std::uint32_t span = static_cast<std::uint32_t>(swizzle),
                        rows = static_cast<std::uint32_t>(m.rows),
                        k = static_cast<std::uint32_t>(m.k), s = static_cast<std::uint32_t>(step);
    if (swizzle == 0) {
      // Core matrices of 128 bytes; K-adjacent ones next to each other, MN-adjacent ones after all
      // of K.
      const std::uint32_t k_cores =
          k * static_cast<std::uint32_t>(matrix_element_bytes(m.type)) / 16;
      d.start = address + s * 2 * 128;
      d.leading = 128;           // K-adjacent, in both majors without swizzle
      d.stride = k_cores * 128;  // MN-adjacent
    } else if (!mn_major) {
      const std::uint32_t steps_per_slab = span / 32;
      d.start = address + s / steps_per_slab * rows * span + s % steps_per_slab * 32;
      d.leading = 16;
      d.stride = 8 * span;
    } else {
      d.start = address + s * 16 * span;
      d.leading = k * span;
      d.stride = 8 * span;
    }
    return d;
  }
  void write(const Matrix& m, std::vector<std::uint8_t>& shared) const {
    const int e = matrix_element_bytes(m.type);
    for (int i = 0; i < m.rows; ++i) {
      for (int j = 0; j < m.k; ++j) {
        const std::uint32_t bits = encode(m.type, m.at(i, j));
        std::memcpy(&shared[address - kBase + static_cast<std::uint32_t>(offset(m, i, j))], &bits,
                    static_cast<std::size_t>(e));
      }
    }
  }
  int offset(const Matrix& m, int i, int j) const {
    const int e = matrix_element_bytes(m.type);
    if (swizzle == 0) {
      const int k_cores = m.k * e / 16;
      if (!mn_major) return (i / 8 * k_cores + j * e / 16) * 128 + i % 8 * 16 + j * e % 16;
      return (i / 8 * k_cores + j / 8) * 128 + j % 8 * 16 + i % 8 * 2;
    }
    // Rows of `swizzle` bytes: K-major rows are matrix rows, MN-major rows are k.
    const int row = mn_major ? j : i, rows = mn_major ? m.k : m.rows;
    const int byte = (mn_major ? i : j) * e;
    const int slab = byte / swizzle, chunk = byte % swizzle / 16;
    return slab * rows * swizzle + row * swizzle + (chunk ^ swizzle_key(swizzle, row)) * 16 +
           byte % 16;
  }
};

struct Registers {
  std::uint32_t d[4][128][32] = {}, a[4][4][32] = {};
  WarpFragments warps[4];
  Registers() {
    for (int w = 0; w < 4; ++w) {
      for (int i = 0; i < 128; ++i) warps[w].d[i] = d[w][i];
      for (int i = 0; i < 4; ++i) warps[w].a[i] = a[w][i];
    }
  }
  // Written from the element's side: lane and register of (row, column).
  std::uint32_t& d_at(int row, int col) {
    return d[row / 16][col / 8 * 4 + row % 16 / 8 * 2 + col % 2][row % 8 * 4 + col % 8 / 2];
  }
  std::uint16_t* d16_at(int row, int col) {
    std::uint32_t* reg = &d[row / 16][col / 8 * 2 + row % 16 / 8][row % 8 * 4 + col % 8 / 2];
    return reinterpret_cast<std::uint16_t*>(reg) + col % 2;
  }
  void set_a(const Matrix& m, int k0) {
    const int e = matrix_element_bytes(m.type), per_reg = 4 / e;
    for (int row = 0; row < 64; ++row) {
      for (int k = 0; k < 8 * per_reg; ++k) {
        const int lane = row % 8 * 4 + k / per_reg % 4, reg = row % 16 / 8 + k / (4 * per_reg) * 2;
        const std::uint32_t bits = encode(m.type, m.at(row, k0 + k));
        std::memcpy(reinterpret_cast<std::uint8_t*>(&a[row / 16][reg][lane]) + k % per_reg * e,
                    &bits, static_cast<std::size_t>(e));
      }
    }
  }
};

struct Case {
  MatrixType a = MatrixType::bf16, b = MatrixType::bf16;
  AccumulatorType d = AccumulatorType::f32;
  int n = 64, k = 64;
  int swizzle = 128;
  bool a_mn = false, b_mn = false, rs = false, a_neg = false, b_neg = false, integers = true;
};

// Runs D = sum over k steps (the first with scale_d false) and returns the largest deviation from
// float64.
double deviation(const Case& c) {
  const Matrix a(c.a, 64, c.k, random_values(11, c.a, c.integers));
  const Matrix b(c.b, c.n, c.k, random_values(12, c.b, c.integers));
  std::vector<std::uint8_t> shared(kSize, 0x55);
  const Tile ta{kBase + 0x400, c.swizzle, c.a_mn}, tb{kBase + 0x400 + 64 * 1024, c.swizzle, c.b_mn};
  ta.write(a, shared);
  tb.write(b, shared);
  auto regs = std::make_unique<Registers>();
  for (auto& warp : regs->d) {
    for (auto& reg : warp)
      std::fill(reg, reg + 32, 0x7f800001u);  // NaN: must not be read by the first step
  }
  const int step_k = 32 / matrix_element_bytes(c.a);
  for (int step = 0; step * step_k < c.k; ++step) {
    WgmmaOp op;
    op.a_type = c.a;
    op.b_type = c.b;
    op.d_type = c.d;
    op.n = c.n;
    op.a_in_registers = c.rs;
    op.a_mn_major = c.a_mn;
    op.b_mn_major = c.b_mn;
    op.a_negate = c.a_neg;
    op.b_negate = c.b_neg;
    op.scale_d = step > 0;
    op.a_descriptor = encode_descriptor(ta.descriptor(a, step));
    op.b_descriptor = encode_descriptor(tb.descriptor(b, step));
    if (c.rs) regs->set_a(a, step * step_k);
    const flashptx::Status s = wgmma(op, {shared.data(), kBase, kSize}, regs->warps);
    REQUIRE_MESSAGE(s.ok(), s.message);
  }
  double worst = 0.0;
  for (int i = 0; i < 64; ++i) {
    for (int j = 0; j < c.n; ++j) {
      double wanted = 0.0;
      for (int k = 0; k < c.k; ++k) wanted += a.at(i, k) * b.at(j, k);
      if (c.a_neg != c.b_neg) wanted = -wanted;
      double got;
      if (c.d == AccumulatorType::f16) got = f16_to_f32(*regs->d16_at(i, j));
      else if (c.d == AccumulatorType::s32) got = static_cast<std::int32_t>(regs->d_at(i, j));
      else got = float_of(regs->d_at(i, j));
      const double off = std::fabs(got - wanted);
      worst = off <= worst ? worst : off;  // a NaN becomes the worst
      if (std::isnan(got)) return INFINITY;
    }
  }
  return worst;
}

}  // namespace

TEST_SUITE_BEGIN("emulator/tensor_core");

TEST_CASE("wgmma multiplies exactly for every N, with A in registers and in shared memory") {
  for (int n = 8; n <= 256; n += 8) {
    CAPTURE(n);
    CHECK(deviation({.n = n, .rs = n % 16 == 0}) == 0.0);
    CHECK(deviation(
              {.a = MatrixType::e4m3, .b = MatrixType::e5m2, .n = n, .k = 64, .rs = n % 16 != 0}) ==
          0.0);
  }
}

TEST_CASE("wgmma reads every swizzle in both majors of both operands") {
  for (int swizzle : {0, 32, 64, 128}) {
    for (int major = 0; major < 4; ++major) {
      for (MatrixType t : {MatrixType::f16, MatrixType::bf16}) {
        for (int n : {64, 128, 192}) {
          CAPTURE(swizzle);
          CAPTURE(major);
          CAPTURE(n);
          CHECK(deviation({.a = t,
                           .b = t,
                           .n = n,
                           .k = 128,
                           .swizzle = swizzle,
                           .a_mn = (major & 1) != 0,
                           .b_mn = (major & 2) != 0}) == 0.0);
        }
      }
    }
    for (MatrixType t : {MatrixType::e4m3, MatrixType::e5m2, MatrixType::tf32}) {
      CAPTURE(swizzle);
      CHECK(deviation({.a = t, .b = t, .n = 96, .k = 128, .swizzle = swizzle}) == 0.0);
      CHECK(deviation({.a = t, .b = t, .n = 96, .k = 128, .swizzle = swizzle, .rs = true}) == 0.0);
    }
  }
}

TEST_CASE("wgmma accumulates in f16 and s32, negates, and stays near float64 on reals") {
  CHECK(deviation({.a = MatrixType::f16,
                   .b = MatrixType::f16,
                   .d = AccumulatorType::f16,
                   .n = 40,
                   .k = 32}) == 0.0);
  CHECK(deviation({.a = MatrixType::e4m3,
                   .b = MatrixType::e4m3,
                   .d = AccumulatorType::f16,
                   .n = 24,
                   .k = 32}) == 0.0);
  CHECK(deviation({.a = MatrixType::s8,
                   .b = MatrixType::u8,
                   .d = AccumulatorType::s32,
                   .n = 32,
                   .k = 128}) == 0.0);
  CHECK(deviation({.n = 16, .a_neg = true}) == 0.0);
  CHECK(deviation({.n = 16, .b_neg = true}) == 0.0);
  CHECK(deviation({.n = 16, .a_neg = true, .b_neg = true}) == 0.0);
  for (MatrixType t : {MatrixType::f16, MatrixType::bf16, MatrixType::e4m3, MatrixType::tf32}) {
    CHECK(deviation({.a = t, .b = t, .n = 128, .k = 128, .integers = false}) < 128 * 16 * 0x1p-24);
  }
}

TEST_CASE("wgmma keeps infinities and gives the canonical NaN") {
  std::vector<std::uint8_t> shared(kSize, 0);
  auto regs = std::make_unique<Registers>();
  const Matrix a(MatrixType::bf16, 64, 16, [](int i, int k) {
    if (k != 0) return 0.0;
    return i == 3 ? INFINITY : i == 4 ? -INFINITY : 1.0;
  });
  const Matrix b(MatrixType::bf16, 8, 16,
                 [](int j, int k) { return k == 0 ? (j == 5 ? 0.0 : j + 1.0) : 0.0; });
  const Tile ta{kBase, 128, false}, tb{kBase + 0x4000, 128, false};
  ta.write(
      Matrix(MatrixType::bf16, 64, 64, [&](int i, int k) { return k < 16 ? a.at(i, k) : 0.0; }),
      shared);
  tb.write(Matrix(MatrixType::bf16, 8, 64, [&](int i, int k) { return k < 16 ? b.at(i, k) : 0.0; }),
           shared);
  WgmmaOp op;
  op.scale_d = false;
  op.a_descriptor = encode_descriptor({kBase, 16, 1024, 0, 128, 0});
  op.b_descriptor = encode_descriptor({kBase + 0x4000, 16, 1024, 0, 128, 0});
  REQUIRE(wgmma(op, {shared.data(), kBase, kSize}, regs->warps).ok());
  CHECK(float_of(regs->d_at(3, 0)) == INFINITY);
  CHECK(float_of(regs->d_at(4, 7)) == -INFINITY);
  CHECK(regs->d_at(3, 5) == kNanF32);
  CHECK(float_of(regs->d_at(0, 7)) == 8.0f);
}

TEST_CASE("the narrow accumulator cuts what lies 14 bits below the largest addend") {
  std::vector<std::uint8_t> shared(kSize, 0);
  // Row i adds 1 * 1 and one small product 2^-(13 + i % 2): kept in even rows, lost in odd ones.
  const Matrix a(MatrixType::e4m3, 64, 128, [](int i, int k) {
    return k == 0 ? 1.0 : k == 1 ? (i % 2 ? -0x1p-8 : 0x1p-7) : 0.0;
  });
  const Matrix b(MatrixType::e4m3, 8, 128, [](int, int k) {
    return k == 0 ? 1.0 : k == 1 ? 0x1p-6 : 0.0;
  });
  Tile{kBase, 128, false}.write(a, shared);
  Tile{kBase + 0x4000, 128, false}.write(b, shared);
  WgmmaOp op;
  op.a_type = op.b_type = MatrixType::e4m3;
  op.scale_d = false;
  op.a_descriptor = encode_descriptor({kBase, 16, 1024, 0, 128, 0});
  op.b_descriptor = encode_descriptor({kBase + 0x4000, 16, 1024, 0, 128, 0});
  for (bool narrow : {false, true}) {
    auto regs = std::make_unique<Registers>();
    op.narrow_accumulator = narrow;
    REQUIRE(wgmma(op, {shared.data(), kBase, kSize}, regs->warps).ok());
    CHECK(float_of(regs->d_at(2, 3)) == 1.0f + 0x1p-13f);
    CHECK(float_of(regs->d_at(3, 3)) == (narrow ? 1.0f : 1.0f - 0x1p-14f));
    op.scale_d = true;
    REQUIRE(wgmma(op, {shared.data(), kBase, kSize}, regs->warps).ok());
    CHECK(float_of(regs->d_at(2, 3)) == 2.0f + 0x1p-12f);
    op.scale_d = false;
  }
}

TEST_CASE("wgmma refuses wrong shapes, types and operands outside shared memory, and says which") {
  std::vector<std::uint8_t> shared(4096, 0);
  const SharedView view{shared.data(), kBase, 4096};
  WgmmaOp op;
  op.a_in_registers = true;
  op.b_descriptor = encode_descriptor({kBase, 16, 1024, 0, 128, 0});
  CHECK(check_wgmma(op, view).ok());
  op.n = 12;
  CHECK(check_wgmma(op, view).message.find("N is 12") != std::string::npos);
  op.n = 64;
  CHECK(check_wgmma(op, view).message.find("descriptor of B: reads shared address") !=
        std::string::npos);
  op.n = 8;
  op.b_type = MatrixType::f16;
  CHECK(check_wgmma(op, view).message.find("types of A and B") != std::string::npos);
  op.a_type = op.b_type = MatrixType::e4m3;
  op.b_mn_major = true;
  CHECK(check_wgmma(op, view).message.find("MN-major") != std::string::npos);
  op.b_mn_major = false;
  op.b_descriptor = encode_descriptor({kBase - 16, 16, 1024, 0, 128, 0});
  CHECK(!check_wgmma(op, view).ok());
  op.b_descriptor |= std::uint64_t{1} << 15;
  CHECK(check_wgmma(op, view).message.find("reserved") != std::string::npos);
}

TEST_SUITE_END();
