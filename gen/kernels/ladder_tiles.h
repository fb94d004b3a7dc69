// What the mma.sync kernels share: a tile of 16-bit rows in swizzled shared memory, filled by 128
// threads, read as fragments.
//
// Row r of a tile with head_dim d takes 2 d bytes; its 16-byte chunk c stands at c ^ (r & 7), so
// that ldmatrix's eight rows and the copies meet eight different bank groups. Fragment layouts: PTX
// ISA, mma.m16n8k16. Next: fused_mma_sync.cpp.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "gen/isa/kernel.h"
#include "gen/kernels/ladder.h"

namespace flashptx::gen {

constexpr float f32_infinity = std::numeric_limits<float>::infinity();

struct LadderTiles {
  LadderTiles(Kernel& kernel, const LadderConfig& c) : k(kernel), config(c) {}
  Kernel& k;
  LadderConfig config;
  Reg thread, lane, warp;    // warp: 0..3, warp_rows() rows each
  Reg copy_row, copy_chunk;  // this thread's place in a copy
  Reg copy_to;               // its byte in a tile, swizzled

  int threads() const { return 128; }
  int m_tiles() const { return config.warp_rows() / 16; }  // row tiles of an accumulator
  int row_bytes() const { return 2 * config.head_dim; }
  int chunks() const { return config.head_dim / 8; }  // 16-byte chunks a row
  int rows_per_pass() const { return threads() / chunks(); }
  std::string type() const { return config.dtype == DataType::f16 ? "f16" : "bf16"; }
};

// Thread, lane, warp and copy coordinates; setup_copy: the latter alone, for a second shape of
// tile.
void setup_tiles(LadderTiles& t);
void setup_copy(LadderTiles& t);
// address = pointer + ((row0 + this thread's row) * heads + head) * row_bytes + chunk, row0 and
// head in registers; pass_bytes = bytes from one pass of the copy to the next.
void copy_source(LadderTiles& t, const Reg& address, const Reg& pass_bytes,
                 const std::string& pointer, const Reg& row0, const Reg& heads, const Reg& head);
// Copies `rows` rows to shared memory at `tile`. rows_left: valid rows from this thread's first
// one; rows beyond are filled with zeros; an invalid register: all are valid. async: cp.async, the
// caller commits; else through registers.
void copy_tile(LadderTiles& t, const Reg& tile, int offset, const Reg& address,
               const Reg& pass_bytes, int rows, const Reg& rows_left, bool async);
// Addresses of ldmatrix for a tile at `tile + offset`. A: 16 x 16 from the warp's first row; B: 16
// n x 16 k of a K-major tile; BT: 16 k x 16 n of a tile with rows along k. The step along the row
// is an xor: see at_step.
void fragment_address_a(LadderTiles& t, const Reg& address, const Reg& tile, int offset);
void fragment_address_b(LadderTiles& t, const Reg& address, const Reg& tile, int offset);
void fragment_address_bt(LadderTiles& t, const Reg& address, const Reg& tile, int offset);
// d = address of 32-byte step `step` of the row: the swizzle turns the addition into an exclusive
// or.
void at_step(LadderTiles& t, const Reg& d, const Reg& address, int step);
// acc[m][n] += A[m] B[n], n in first .. first + 1: four A registers a row tile m, four B registers.
void mma_pair(LadderTiles& t, const Vec& acc, int n_tiles, int first, const Vec& a,
              const std::vector<Reg>& b);

}  // namespace flashptx::gen
