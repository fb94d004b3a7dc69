// Descriptors, swizzles, fragments, mma.sync, ldmatrix and bank conflicts against formulas written
// from the element's side. Next: tests/emulator/tensor_map_test.cpp.
#include <doctest/doctest.h>

#include <bit>
#include <cstring>
#include <set>

#include "host/emulator/tensor_core.h"
#include "tests/emulator/matrices.h"

using namespace flashptx::emulator;
using namespace flashptx::emulator::test;

TEST_SUITE_BEGIN("emulator/layout");

TEST_CASE("descriptors decode field by field and survive encoding") {
  const std::uint64_t bits = 0x4000004000010000ull | (0x1400u >> 4);
  const MatrixDescriptor d = decode_descriptor(bits);
  CHECK(d.start == 0x1400);
  CHECK(d.leading == 16);
  CHECK(d.stride == 1024);
  CHECK(d.swizzle_bytes == 128);
  CHECK(d.base_offset == 0);
  CHECK(encode_descriptor(d) == bits);
  CHECK(pattern_aligned(d));                              // 0x1400 = 5 * 1024
  CHECK(pattern_aligned({0x1460, 16, 1024, 0, 128, 0}));  // 96 bytes along K
  CHECK(!pattern_aligned({0x1480, 16, 1024, 0, 128, 0}));
  CHECK(pattern_aligned({0x1480, 16, 1024, 1, 128, 0}));
  CHECK(pattern_aligned({0x1600, 16, 512, 0, 64, 0}));
  CHECK(!pattern_aligned({0x1680, 16, 256, 0, 32, 0}));
  CHECK(decode_descriptor(std::uint64_t{2} << 62).swizzle_bytes == 64);
  CHECK(decode_descriptor(std::uint64_t{3} << 62).swizzle_bytes == 32);
  CHECK(decode_descriptor(std::uint64_t{5} << 49).base_offset == 5);
}

TEST_CASE("the swizzle moves 16-byte chunks by the row of an aligned tile and is its own inverse") {
  for (int span : {32, 64, 128}) {
    for (int row = 0; row < 64; ++row) {
      for (int byte = 0; byte < span; ++byte) {
        const std::uint32_t address = static_cast<std::uint32_t>(0x2000 + row * span + byte);
        const std::uint32_t wanted = static_cast<std::uint32_t>(
            0x2000 + row * span + (byte / 16 ^ swizzle_key(span, row)) * 16 + byte % 16);
        REQUIRE(swizzle_address(address, span) == wanted);
        REQUIRE(swizzle_address(wanted, span) == address);
      }
    }
  }
  CHECK(swizzle_address(0x1234, 0) == 0x1234);
}

TEST_CASE(
    "the chunks of an operand are those of its elements, and the base offset shifts the pattern") {
  for (int swizzle : {0, 32, 64, 128}) {
    for (bool mn : {false, true}) {
      for (std::uint32_t base_offset : {0u, 3u}) {
        SharedOperand o;
        o.descriptor = {0x8000 + base_offset * 128, 2048, 4096, base_offset, swizzle, 0};
        o.rows = 128;
        o.mn_major = mn;
        std::uint32_t chunk[512];
        const int count = operand_chunks(o, chunk);
        CHECK(count == 256);
        std::set<std::uint32_t> listed(chunk, chunk + count), touched;
        for (int i = 0; i < 128; ++i) {
          for (int k = 0; k < 16; ++k) touched.insert(element_address(o, i, k) & ~15u);
        }
        CHECK(listed == touched);
        std::vector<std::uint64_t> bitmap(64 * 1024 / 16 / 64 * 4, 0);
        const std::uint32_t bits = static_cast<std::uint32_t>(bitmap.size() * 64);
        CHECK(mark_operand(o, 0, bitmap.data(), bits));
        std::size_t marked = 0;
        for (std::uint64_t w : bitmap) marked += static_cast<std::size_t>(std::popcount(w));
        CHECK(marked == listed.size());
        CHECK(!mark_operand(o, o.descriptor.start + 16, bitmap.data(), bits));
        if (swizzle != 0) {  // first row of the pattern: no exclusive-or
          CHECK(element_address(o, 0, 0) == o.descriptor.start);
        }
      }
    }
  }
}

TEST_CASE("fragment formulas place every element once") {
  for (int w = 0; w < 4; ++w) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 128; ++i) {
        const Element e = d_element(w, lane, i);
        REQUIRE(e.row / 16 == w);
        REQUIRE(e.row % 8 * 4 + e.column % 8 / 2 == lane);
        REQUIRE(e.column / 8 * 4 + e.row % 16 / 8 * 2 + e.column % 2 == i);
      }
      for (int r = 0; r < 4; ++r) {
        for (int b = 0; b < 4; ++b) {
          const Element e = a8_element(w, lane, r, b);
          REQUIRE(e.column == (r / 2) * 16 + (lane & 3) * 4 + b);
          REQUIRE(e.row == w * 16 + (r & 1) * 8 + lane / 4);
          const Element h = a16_element(w, lane, r, b / 2);
          REQUIRE(h.column == e.column / 16 * 8 + (lane & 3) * 2 + b / 2);
          REQUIRE(h.row == e.row);
          REQUIRE(a32_element(w, lane, r).column == r / 2 * 4 + (lane & 3));
        }
      }
    }
  }
}

TEST_CASE("mma.sync multiplies exactly in every shape") {
  const struct {
    MatrixType a, b;
    int k;
    AccumulatorType d;
  } rows[] = {{MatrixType::f16, MatrixType::f16, 8, AccumulatorType::f32},
              {MatrixType::f16, MatrixType::f16, 16, AccumulatorType::f32},
              {MatrixType::f16, MatrixType::f16, 16, AccumulatorType::f16},
              {MatrixType::bf16, MatrixType::bf16, 8, AccumulatorType::f32},
              {MatrixType::bf16, MatrixType::bf16, 16, AccumulatorType::f32},
              {MatrixType::tf32, MatrixType::tf32, 4, AccumulatorType::f32},
              {MatrixType::tf32, MatrixType::tf32, 8, AccumulatorType::f32},
              {MatrixType::e4m3, MatrixType::e5m2, 32, AccumulatorType::f32},
              {MatrixType::e5m2, MatrixType::e5m2, 16, AccumulatorType::f32},
              {MatrixType::s8, MatrixType::u8, 32, AccumulatorType::s32}};
  for (const auto& row : rows) {
    CAPTURE(static_cast<int>(row.a));
    CAPTURE(row.k);
    const MmaOp op{.a_type = row.a, .b_type = row.b, .d_type = row.d, .k = row.k};
    REQUIRE(check_mma(op).ok());
    const Matrix a(row.a, 16, row.k, random_values(21, row.a, true)),
        b(row.b, 8, row.k, random_values(22, row.b, true));
    const int e = matrix_element_bytes(row.a), per_reg = 4 / e;
    std::uint32_t ra[4][32] = {}, rb[2][32] = {}, rc[4][32] = {};
    const auto put = [&](std::uint32_t& reg, int index, std::uint32_t bits) {
      std::memcpy(reinterpret_cast<std::uint8_t*>(&reg) + index * e, &bits,
                  static_cast<std::size_t>(e));
    };
    for (int k = 0; k < row.k; ++k) {
      const int quad = k / per_reg % 4, group = k / (4 * per_reg);
      for (int i = 0; i < 16; ++i)
        put(ra[i / 8 + 2 * group][i % 8 * 4 + quad], k % per_reg, encode(row.a, a.at(i, k)));
      for (int j = 0; j < 8; ++j)
        put(rb[group][j * 4 + quad], k % per_reg, encode(row.b, b.at(j, k)));
    }
    const auto c_value = [](int i, int j) { return static_cast<double>(i * 8 + j); };
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < 8; ++j) {
        const int lane = i % 8 * 4 + j / 2, half = i / 8;
        if (row.d == AccumulatorType::f32)
          rc[half * 2 + j % 2][lane] = bits_of(static_cast<float>(c_value(i, j)));
        if (row.d == AccumulatorType::s32)
          rc[half * 2 + j % 2][lane] = static_cast<std::uint32_t>(i * 8 + j);
        if (row.d == AccumulatorType::f16)
          rc[half][lane] |=
              static_cast<std::uint32_t>(f32_to_f16(static_cast<float>(c_value(i, j))))
              << 16 * (j % 2);
      }
    }
    std::uint32_t* d[4] = {rc[0], rc[1], rc[2], rc[3]};  // in place
    const std::uint32_t* pa[4] = {ra[0], ra[1], ra[2], ra[3]};
    const std::uint32_t* pb[2] = {rb[0], rb[1]};
    mma_sync(op, d, pa, pb, d);
    int wrong = 0;
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < 8; ++j) {
        double wanted = c_value(i, j);
        for (int k = 0; k < row.k; ++k) wanted += a.at(i, k) * b.at(j, k);
        const int lane = i % 8 * 4 + j / 2, half = i / 8;
        double got;
        if (row.d == AccumulatorType::f16)
          got = f16_to_f32(static_cast<std::uint16_t>(rc[half][lane] >> 16 * (j % 2)));
        else if (row.d == AccumulatorType::s32)
          got = static_cast<std::int32_t>(rc[half * 2 + j % 2][lane]);
        else got = float_of(rc[half * 2 + j % 2][lane]);
        wrong += got != wanted;
      }
    }
    CHECK(wrong == 0);
  }
  CHECK(!check_mma({.k = 32}).ok());
}

TEST_CASE("ldmatrix, stmatrix and movmatrix move 8x8 tiles, transposed when asked") {
  std::uint16_t tile[32][8];
  for (int r = 0; r < 32; ++r) {
    for (int c = 0; c < 8; ++c) tile[r][c] = static_cast<std::uint16_t>(r * 100 + c);
  }
  const std::uint8_t* rows[32];
  for (int i = 0; i < 32; ++i) rows[i] = reinterpret_cast<const std::uint8_t*>(tile[i]);
  for (bool transpose : {false, true}) {
    std::uint32_t regs[4][32];
    std::uint32_t* d[4] = {regs[0], regs[1], regs[2], regs[3]};
    ldmatrix(d, rows, 4, transpose);
    int wrong = 0;
    for (int m = 0; m < 4; ++m) {
      for (int r = 0; r < 8; ++r) {
        for (int c = 0; c < 8; ++c) {  // element (r, c) sits in lane 4 i + j / 2, half j % 2
          const int i = transpose ? c : r, j = transpose ? r : c;
          wrong += (regs[m][4 * i + j / 2] >> 16 * (j % 2) & 0xffff) != tile[8 * m + r][c];
        }
      }
    }
    CHECK(wrong == 0);
    std::uint16_t back[32][8] = {};
    std::uint8_t* out[32];
    for (int i = 0; i < 32; ++i) out[i] = reinterpret_cast<std::uint8_t*>(back[i]);
    stmatrix(out, d, 4, transpose);
    CHECK(std::memcmp(back, tile, sizeof tile) == 0);
    if (!transpose) {
      movmatrix(regs[0], regs[0]);
      CHECK((regs[0][4 * 5 + 1] & 0xffff) == tile[2][5]);
      CHECK((regs[0][4 * 5 + 1] >> 16) == tile[3][5]);
    }
  }
}

TEST_CASE("bank passes count distinct words of one bank, phase by phase") {
  std::uint32_t a[32];
  const auto fill = [&](auto&& f) {
    for (std::uint32_t i = 0; i < 32; ++i) a[i] = f(i);
  };
  fill([](std::uint32_t i) { return 4 * i; });
  CHECK(bank_passes(a, ~0u, 4).passes == 1);
  fill([](std::uint32_t) { return 64u; });
  CHECK(bank_passes(a, ~0u, 4).passes == 1);  // broadcast
  fill([](std::uint32_t i) { return 8 * i; });
  CHECK(bank_passes(a, ~0u, 4).conflicts() == 1);
  fill([](std::uint32_t i) { return 128 * i; });
  CHECK(bank_passes(a, ~0u, 4).passes == 32);
  CHECK(bank_passes(a, 0xfu, 4).passes == 4);
  CHECK(bank_passes(a, 0, 4).passes == 0);
  CHECK(bank_passes(a, ~0u, 16).passes ==
        32);  // eight rows of 128 bytes: every lane in the same banks
  fill([](std::uint32_t i) { return swizzle_address(128 * i, 128); });
  CHECK(bank_passes(a, ~0u, 16).conflicts() == 0);
  fill([](std::uint32_t i) { return 8 * i; });
  CHECK(bank_passes(a, ~0u, 8).passes == 2);
  CHECK(bank_passes(a, ~0u, 8).ideal == 2);
}

TEST_SUITE_END();
