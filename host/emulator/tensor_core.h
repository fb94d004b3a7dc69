// Matrix instructions on register fragments and shared memory: wgmma, mma.sync, ldmatrix and their
// layouts.
//
// Functions without state: when an asynchronous wgmma reads its operands and when its result lands
// is the machine's business. Numerics: within one instruction the products (exact) are summed in
// float64, added to D, and rounded once to D's type; the hardware sums in a fixed-point window with
// truncation, so results agree within a few units of the last place of f32, not bit for bit.
// `narrow_accumulator` models the roughly 14 bits that Hopper's FP8 path keeps (DeepSeek-V3 report,
// section 3.3.2).
// Next: tensor_map.h, the other reader and writer of shared memory.
#pragma once

#include <cstdint>

#include "host/device.h"

namespace flashptx::emulator {

enum class MatrixType { f16, bf16, tf32, e4m3, e5m2, s8, u8 };
enum class AccumulatorType { f32, f16, s32 };
constexpr int matrix_element_bytes(MatrixType t) {
  return t == MatrixType::f16 || t == MatrixType::bf16 ? 2 : t == MatrixType::tf32 ? 4 : 1;
}

// A window of shared memory: byte `address` of the shared::cta space is bytes[address - base].
struct SharedView {
  const std::uint8_t* bytes = nullptr;
  std::uint32_t base = 0;
  std::uint32_t size = 0;
};

// ---- swizzle
// --------------------------------------------------------------------------------------------

// Moves 16-byte chunks of an absolute shared address; span_bytes is 128, 64, 32 or 0 (none). The
// same function serves TMA, wgmma and software (PTX ISA, shared memory swizzling modes).
constexpr std::uint32_t swizzle_address(std::uint32_t address, int span_bytes) {
  const std::uint32_t mask = span_bytes == 0 ? 0u : static_cast<std::uint32_t>(span_bytes) / 16 - 1;
  return address ^ ((address >> 7 & mask) << 4);
}

// ---- wgmma
// ----------------------------------------------------------------------------------------------

struct MatrixDescriptor {
  std::uint32_t start = 0;    // shared address, multiple of 16, below 2^18
  std::uint32_t leading = 0;  // LBO in bytes
  std::uint32_t stride = 0;   // SBO in bytes
  std::uint32_t base_offset =
      0;  // 0..7; non-zero: the pattern starts at row base_offset (not seen on a GPU)
  int swizzle_bytes = 0;       // 0, 32, 64, 128
  std::uint64_t reserved = 0;  // bits that should be zero and are not
};
MatrixDescriptor decode_descriptor(std::uint64_t bits);
std::uint64_t encode_descriptor(const MatrixDescriptor& d);

// One matrix in shared memory as an instruction reads it: rows = index in M or N, 32 bytes of K.
struct SharedOperand {
  MatrixDescriptor descriptor;
  MatrixType type = MatrixType::bf16;
  int rows = 64;          // 64 for A, N for B
  bool mn_major = false;  // 16-bit types only
};

// Addresses (swizzled) of the 16-byte chunks that the operand touches; returns their number, rows *
// 2, and writes them to `out` (room for 512). K-major: chunk 2 * row + half of the 32 bytes of K.
// MN-major: chunk k * (rows / 8) + row / 8, eight rows of one k each.
int operand_chunks(const SharedOperand& operand, std::uint32_t* out);

// Sets bit (address - base) / 16 for each touched chunk; addresses outside [base, base + 16 * bits)
// are skipped. Returns false if any was.
bool mark_operand(const SharedOperand& operand, std::uint32_t base, std::uint64_t* bitmap,
                  std::uint32_t bits);

// Whether the descriptor starts in the row of its swizzle pattern that base_offset says. False is
// legal for a start inside a larger tile (row 4 of it, say), and otherwise the classic mistake of a
// tile base that is no multiple of 8 * swizzle_bytes: columns permuted in 16-byte chunks.
bool pattern_aligned(const MatrixDescriptor& d);

// Swizzled address of one element (mn, k), straight from the formulas of the layouts.
std::uint32_t element_address(const SharedOperand& operand, int mn, int k);

struct WgmmaOp {
  MatrixType a_type = MatrixType::bf16;
  MatrixType b_type = MatrixType::bf16;  // differs from a_type only e4m3/e5m2 or s8/u8
  AccumulatorType d_type = AccumulatorType::f32;
  int n = 8;  // 8..256, multiple of 8
  bool a_in_registers = false;
  std::uint64_t a_descriptor = 0;  // when A is in shared memory
  std::uint64_t b_descriptor = 0;
  bool a_mn_major = false;  // imm-trans-a, imm-trans-b
  bool b_mn_major = false;
  bool a_negate = false;  // imm-scale-a == -1
  bool b_negate = false;
  bool scale_d = true;              // false: D = A * B
  bool saturate = false;            // s32 accumulation: .satfinite
  bool narrow_accumulator = false;  // FP8 only

  int k() const { return 32 / matrix_element_bytes(a_type); }
  int d_registers() const { return d_type == AccumulatorType::f16 ? n / 4 : n / 2; }
  SharedOperand a_operand() const {
    return {decode_descriptor(a_descriptor), a_type, 64, a_mn_major};
  }
  SharedOperand b_operand() const {
    return {decode_descriptor(b_descriptor), b_type, n, b_mn_major};
  }
};

// The registers of one warp as the instruction names them: d[i] and a[r] point at 32 lanes.
struct WarpFragments {
  std::uint32_t* d[128] = {};
  const std::uint32_t* a[4] = {};
};

// What is wrong with shape, types, transposition, reserved bits of a descriptor, or an operand
// outside shared memory. ok() otherwise.
Status check_wgmma(const WgmmaOp& op, const SharedView& shared);

// D = A * B {+ D} for the four warps of a warpgroup. Checks what it needs not to read out of
// bounds.
Status wgmma(const WgmmaOp& op, const SharedView& shared, const WarpFragments (&warps)[4]);

// Where elements live (PTX ISA, wgmma register fragments). `row` counts from 0 in the 64-row tile.
struct Element {
  int row = 0, column = 0;
};
Element d_element(int warp, int lane, int index);  // index: f32 register, or 2 * reg + half of f16
Element a16_element(int warp, int lane, int reg, int half);  // 16-bit A, k16
Element a8_element(int warp, int lane, int reg, int byte);   // 8-bit A, k32
Element a32_element(int warp, int lane, int reg);            // tf32 A, k8

// ---- mma.sync
// -------------------------------------------------------------------------------------------

// m16n8kK, row.col: K = 8 or 16 (f16; bf16), 4 or 8 (tf32), 16 or 32 (e4m3, e5m2, s8, u8).
struct MmaOp {
  MatrixType a_type = MatrixType::bf16;
  MatrixType b_type = MatrixType::bf16;
  AccumulatorType d_type = AccumulatorType::f32;  // of C too
  int k = 16;
  bool saturate = false;
  int a_registers() const { return k * matrix_element_bytes(a_type) / 8; }  // 4 at 32 bytes of K
  int b_registers() const { return k * matrix_element_bytes(b_type) / 16; }
  int d_registers() const { return d_type == AccumulatorType::f16 ? 2 : 4; }
};
Status check_mma(const MmaOp& op);
// d = a * b + c; each pointer is 32 lanes of one register; d may alias any source. The op must have
// passed check_mma.
void mma_sync(const MmaOp& op, std::uint32_t* const* d, const std::uint32_t* const* a,
              const std::uint32_t* const* b, const std::uint32_t* const* c);

// ---- ldmatrix, stmatrix, movmatrix (m8n8, b16)
// ----------------------------------------------------------

// rows[8 * j + i] points at the 16 bytes of row i of matrix j (what lane 8 * j + i addressed).
void ldmatrix(std::uint32_t* const* d, const std::uint8_t* const* rows, int matrices,
              bool transpose);
void stmatrix(std::uint8_t* const* rows, const std::uint32_t* const* a, int matrices,
              bool transpose);
void movmatrix(std::uint32_t* d, const std::uint32_t* a);  // .trans, 32 lanes each, may alias

// ---- bank conflicts
// -------------------------------------------------------------------------------------

// Passes that one warp access to shared memory takes: 32 banks of 4 bytes; lanes with the same word
// share it. 4-byte accesses are served in one phase, 8-byte in two (half warps), 16-byte in four
// (quarter warps).
struct BankPasses {
  int passes = 0;  // what it takes
  int ideal = 0;   // phases with an active lane: what it would take without a conflict
  int conflicts() const { return passes - ideal; }
};
BankPasses bank_passes(const std::uint32_t* addresses, std::uint32_t active_lanes, int width_bytes);

}  // namespace flashptx::emulator
