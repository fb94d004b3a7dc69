// Layouts of the matrix instructions: descriptors, addresses, fragments, ldmatrix and friends, bank
// conflicts.
//
// Everything that says WHERE an element lives; the products are in wgmma.cpp and mma_sync.cpp.
// Formulas: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions", shared memory layout and
// fragments.
#include "host/emulator/tensor_core.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

namespace flashptx::emulator {
namespace {

constexpr std::uint64_t kDescriptorFields =
    0x3fffull | 0x3fffull << 16 | 0x3fffull << 32 | 7ull << 49 | 3ull << 62;

Status refuse(std::string message) {
  return Status::error(StatusCode::invalid_argument, std::move(message));
}

// Swizzles relative to where the pattern starts, which base_offset gives in rows of 128 bytes.
std::uint32_t swizzle(const MatrixDescriptor& d, std::uint32_t address) {
  if (d.swizzle_bytes == 0) return address;
  const std::uint32_t mask = static_cast<std::uint32_t>(d.swizzle_bytes) / 16 - 1;
  return address ^ ((((address >> 7) - d.base_offset) & mask) << 4);
}

// Width of a swizzled row in 16-byte chunks: W of the layout formulas.
std::uint32_t chunks_per_row(const MatrixDescriptor& d) {
  return static_cast<std::uint32_t>(d.swizzle_bytes) / 16;
}

// Unswizzled address of 16-byte chunk `half` of row mn, K-major.
std::uint32_t k_major_chunk(const MatrixDescriptor& d, std::uint32_t mn, std::uint32_t half) {
  if (d.swizzle_bytes == 0) return d.start + mn % 8 * 16 + mn / 8 * d.stride + half * d.leading;
  return d.start + mn % 8 * 16 * chunks_per_row(d) + mn / 8 * d.stride + half * 16;
}

// Unswizzled address of the chunk that holds rows 8 * mn8 .. 8 * mn8 + 7 at one k, MN-major.
std::uint32_t mn_major_chunk(const MatrixDescriptor& d, std::uint32_t mn8, std::uint32_t k) {
  if (d.swizzle_bytes == 0) return d.start + mn8 * d.stride + k % 8 * 16 + k / 8 * d.leading;
  const std::uint32_t w = chunks_per_row(d);
  return d.start + mn8 % w * 16 + mn8 / w * d.leading + k % 8 * 16 * w + k / 8 * d.stride;
}

bool is_float8(MatrixType t) { return t == MatrixType::e4m3 || t == MatrixType::e5m2; }
bool is_int8(MatrixType t) { return t == MatrixType::s8 || t == MatrixType::u8; }

const char* type_error(MatrixType a, MatrixType b, AccumulatorType d) {
  if (a != b && !(is_float8(a) && is_float8(b)) && !(is_int8(a) && is_int8(b))) {
    return "the types of A and B differ; only e4m3 with e5m2, or s8 with u8, may be mixed";
  }
  if (is_int8(a) != (d == AccumulatorType::s32))
    return "s8 and u8 accumulate in s32, others never do";
  if (d == AccumulatorType::f16 && (a == MatrixType::bf16 || a == MatrixType::tf32)) {
    return "an f16 accumulator takes f16, e4m3 or e5m2 inputs";
  }
  return nullptr;
}

Status check_operand(const char* name, const SharedOperand& operand, const SharedView& shared) {
  const MatrixDescriptor& d = operand.descriptor;
  const std::string where = std::string("wgmma descriptor of ") + name + ": ";
  if (operand.mn_major && matrix_element_bytes(operand.type) != 2) {
    return refuse(where + "MN-major (transposed) exists for 16-bit types only");
  }
  if (d.reserved != 0) return refuse(where + "reserved bits are set");
  std::uint32_t chunk[512];
  const int count = operand_chunks(operand, chunk);
  for (int i = 0; i < count; ++i) {
    if (chunk[i] < shared.base || chunk[i] - shared.base + 16 > shared.size) {
      return refuse(where + "reads shared address " + std::to_string(chunk[i]) + ", outside [" +
                    std::to_string(shared.base) + ", " + std::to_string(shared.base + shared.size) +
                    ")");
    }
  }
  return {};
}

}  // namespace

MatrixDescriptor decode_descriptor(std::uint64_t bits) {
  static constexpr int kSwizzle[4] = {0, 128, 64, 32};
  MatrixDescriptor d;
  d.start = static_cast<std::uint32_t>(bits & 0x3fff) << 4;
  d.leading = static_cast<std::uint32_t>(bits >> 16 & 0x3fff) << 4;
  d.stride = static_cast<std::uint32_t>(bits >> 32 & 0x3fff) << 4;
  d.base_offset = static_cast<std::uint32_t>(bits >> 49 & 7);
  d.swizzle_bytes = kSwizzle[bits >> 62];
  d.reserved = bits & ~kDescriptorFields;
  return d;
}

std::uint64_t encode_descriptor(const MatrixDescriptor& d) {
  const std::uint64_t mode = d.swizzle_bytes == 128  ? 1
                             : d.swizzle_bytes == 64 ? 2
                             : d.swizzle_bytes == 32 ? 3
                                                     : 0;
  return (std::uint64_t{d.start} >> 4 & 0x3fff) | (std::uint64_t{d.leading} >> 4 & 0x3fff) << 16 |
         (std::uint64_t{d.stride} >> 4 & 0x3fff) << 32 | std::uint64_t{d.base_offset & 7} << 49 |
         mode << 62 | (d.reserved & ~kDescriptorFields);
}

int operand_chunks(const SharedOperand& operand, std::uint32_t* out) {
  const MatrixDescriptor& d = operand.descriptor;
  const std::uint32_t rows = static_cast<std::uint32_t>(operand.rows);
  int count = 0;
  if (!operand.mn_major) {
    for (std::uint32_t mn = 0; mn < rows; ++mn) {
      out[count++] = swizzle(d, k_major_chunk(d, mn, 0));
      out[count++] = swizzle(d, k_major_chunk(d, mn, 1));
    }
    return count;
  }
  for (std::uint32_t k = 0; k < 16; ++k) {
    for (std::uint32_t mn8 = 0; mn8 < rows / 8; ++mn8) {
      out[count++] = swizzle(d, mn_major_chunk(d, mn8, k));
    }
  }
  return count;
}

bool mark_operand(const SharedOperand& operand, std::uint32_t base, std::uint64_t* bitmap,
                  std::uint32_t bits) {
  std::uint32_t chunk[512];
  const int count = operand_chunks(operand, chunk);
  bool inside = true;
  for (int i = 0; i < count; ++i) {
    const std::uint32_t at = (chunk[i] - base) / 16;
    if (chunk[i] < base || at >= bits) inside = false;
    else bitmap[at / 64] |= std::uint64_t{1} << at % 64;
  }
  return inside;
}

bool pattern_aligned(const MatrixDescriptor& d) {
  if (d.swizzle_bytes == 0) return true;
  const std::uint32_t mask = static_cast<std::uint32_t>(d.swizzle_bytes) / 16 - 1;
  return (((d.start >> 7) - d.base_offset) & mask) == 0;
}

std::uint32_t element_address(const SharedOperand& operand, int mn, int k) {
  const std::uint32_t row = static_cast<std::uint32_t>(mn), kk = static_cast<std::uint32_t>(k);
  const std::uint32_t bytes = static_cast<std::uint32_t>(matrix_element_bytes(operand.type));
  const MatrixDescriptor& d = operand.descriptor;
  if (operand.mn_major) return swizzle(d, mn_major_chunk(d, row / 8, kk)) + row % 8 * bytes;
  return swizzle(d, k_major_chunk(d, row, kk * bytes / 16)) + kk * bytes % 16;
}

Status check_wgmma(const WgmmaOp& op, const SharedView& shared) {
  if (op.n < 8 || op.n > 256 || op.n % 8 != 0) {
    return refuse("wgmma: N is " + std::to_string(op.n) + ", must be a multiple of 8 in [8, 256]");
  }
  if (const char* why = type_error(op.a_type, op.b_type, op.d_type)) {
    return refuse(std::string("wgmma: ") + why);
  }
  if (!op.a_in_registers) {
    if (Status s = check_operand("A", op.a_operand(), shared); !s.ok()) return s;
  }
  return check_operand("B", op.b_operand(), shared);
}

Status check_mma(const MmaOp& op) {
  if (const char* why = type_error(op.a_type, op.b_type, op.d_type)) {
    return refuse(std::string("mma.sync: ") + why);
  }
  const int k_bytes = op.k * matrix_element_bytes(op.a_type);
  if (k_bytes != 16 && k_bytes != 32) {
    return refuse("mma.sync: m16n8k" + std::to_string(op.k) + " does not exist for these types");
  }
  return {};
}

// ---- fragments
// ------------------------------------------------------------------------------------------

Element d_element(int warp, int lane, int index) {
  return {16 * warp + lane / 4 + 8 * (index >> 1 & 1),
          8 * (index >> 2) + lane % 4 * 2 + (index & 1)};
}
Element a16_element(int warp, int lane, int reg, int half) {
  return {16 * warp + lane / 4 + 8 * (reg & 1), 8 * (reg >> 1) + lane % 4 * 2 + half};
}
Element a8_element(int warp, int lane, int reg, int byte) {
  return {16 * warp + lane / 4 + 8 * (reg & 1), 16 * (reg >> 1) + lane % 4 * 4 + byte};
}
Element a32_element(int warp, int lane, int reg) {
  return {16 * warp + lane / 4 + 8 * (reg & 1), 4 * (reg >> 1) + lane % 4};
}

// ---- ldmatrix, stmatrix, movmatrix
// ----------------------------------------------------------------------

namespace {

// Lane l holds elements 2 * (l % 4) and + 1 of row l / 4; transposed, of column l / 4.
struct Pair {
  int row[2], column[2];
};
Pair pair_of_lane(int lane, bool transpose) {
  const int major = lane / 4, minor = lane % 4 * 2;
  if (transpose) return {{minor, minor + 1}, {major, major}};
  return {{major, major}, {minor, minor + 1}};
}

}  // namespace

void ldmatrix(std::uint32_t* const* d, const std::uint8_t* const* rows, int matrices,
              bool transpose) {
  for (int m = 0; m < matrices; ++m) {
    for (int lane = 0; lane < 32; ++lane) {
      const Pair p = pair_of_lane(lane, transpose);
      std::uint16_t half[2];
      for (int h = 0; h < 2; ++h)
        std::memcpy(&half[h], rows[8 * m + p.row[h]] + 2 * p.column[h], 2);
      d[m][lane] = half[0] | static_cast<std::uint32_t>(half[1]) << 16;
    }
  }
}

void stmatrix(std::uint8_t* const* rows, const std::uint32_t* const* a, int matrices,
              bool transpose) {
  for (int m = 0; m < matrices; ++m) {
    for (int lane = 0; lane < 32; ++lane) {
      const Pair p = pair_of_lane(lane, transpose);
      const std::uint16_t half[2] = {static_cast<std::uint16_t>(a[m][lane]),
                                     static_cast<std::uint16_t>(a[m][lane] >> 16)};
      for (int h = 0; h < 2; ++h)
        std::memcpy(rows[8 * m + p.row[h]] + 2 * p.column[h], &half[h], 2);
    }
  }
}

void movmatrix(std::uint32_t* d, const std::uint32_t* a) {
  std::uint8_t matrix[8][16];
  std::uint8_t* rows[8];
  for (int i = 0; i < 8; ++i) rows[i] = matrix[i];
  stmatrix(rows, &a, 1, false);
  ldmatrix(&d, rows, 1, true);
}

// ---- bank conflicts
// -------------------------------------------------------------------------------------

BankPasses bank_passes(const std::uint32_t* addresses, std::uint32_t active_lanes,
                       int width_bytes) {
  const int phases = std::max(1, width_bytes / 4), lanes = 32 / phases;
  BankPasses result;
  for (int phase = 0; phase < phases; ++phase) {
    std::uint32_t
        words[32];  // distinct 4-byte words of the phase: lanes * width is at most 128 bytes
    int distinct = 0;
    int in_bank[32] = {};
    for (int lane = phase * lanes; lane < (phase + 1) * lanes; ++lane) {
      if ((active_lanes >> lane & 1) == 0) continue;
      for (int w = 0; w < phases; ++w) {
        const std::uint32_t word = addresses[lane] / 4 + static_cast<std::uint32_t>(w);
        if (std::find(words, words + distinct, word) != words + distinct) continue;
        words[distinct++] = word;
        ++in_bank[word % 32];
      }
    }
    if (distinct == 0) continue;
    ++result.ideal;
    result.passes += *std::max_element(in_bank, in_bank + 32);
  }
  return result;
}

}  // namespace flashptx::emulator
