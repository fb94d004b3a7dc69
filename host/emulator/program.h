// A kernel ready to run: a dense array of instructions whose operands are offsets into a register
// file.
//
// Everything that text says is resolved here once (names, types, immediates, labels), so that the
// machine's loop is one indirect call an instruction. A register holds 32 lanes: 4 bytes a lane up
// to 32 bits, 8 bytes for 64, and one 32-bit mask for a predicate. Immediates stand in a pool of
// splats and are read like registers. Next: decode.h (how it is made), machine.h (how it runs).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "host/emulator/ptx_ast.h"
#include "host/emulator/tensor_core.h"

namespace flashptx::emulator {

struct Warp;
struct Instr;

enum class Step : std::uint8_t { next, jumped, blocked };
using Exec = Step (*)(Warp&, const Instr&, std::uint32_t mask);

enum class Type : std::uint8_t {
  none,
  pred,
  b8,
  b16,
  b32,
  b64,
  u8,
  u16,
  u32,
  u64,
  s8,
  s16,
  s32,
  s64,
  f16,
  f16x2,
  bf16,
  bf16x2,
  f32,
  f64,
  tf32,
  e4m3x2,
  e5m2x2,
  e4m3,
  e5m2,
};
int type_bytes(Type t);
bool is_signed(Type t);
bool is_float(Type t);

enum class Space : std::uint8_t { generic, global, shared, shared_cluster, param, constant };

// What the counters of --stats distinguish.
enum class Work : std::uint8_t {
  other,
  fma,
  mufu,
  wgmma,
  tma,
  convert,
  alu,
  memory,
  shuffle,
  sync
};

struct Operand {
  std::uint32_t offset = 0;  // bytes, into the register file or the pool
  std::uint16_t reg = 0;     // 0: a constant, always defined
  std::uint8_t base = 1;     // 0 registers, 1 pool
  std::uint8_t width = 4;    // bytes a lane; 1 for a predicate
  bool negated = false;      // !p
  bool present = false;
};

struct RegisterInfo {
  std::string name;
  Type type = Type::none;
  std::uint32_t offset = 0;
};

struct SymbolInfo {
  std::string name;
  std::uint32_t address = 0, bytes = 0;
};

struct Instr {
  Exec exec = nullptr;
  std::uint16_t guard = 0;  // register number of the predicate, 0: none
  bool guard_negated = false;
  bool aligned = false;  // .aligned: every thread of the warp must execute it together
  Type type = Type::none, type2 = Type::none;
  Space space = Space::generic;
  Work work = Work::other;
  std::uint8_t sub = 0, sub2 = 0, vec = 1;
  bool ftz = false, sat = false, flag = false, flag2 = false;
  std::uint32_t target = 0;  // branch
  std::int64_t offset = 0;   // added to the address
  std::int32_t value = 0;
  Operand d, p, a, b, c, e, f;
  std::vector<Operand> list, list2;
  std::vector<std::uint16_t> reads, writes;  // for definedness and wgmma hazards
  std::unique_ptr<WgmmaOp> wgmma;
  std::unique_ptr<MmaOp> mma;
  std::uint32_t line = 0;
  std::uint32_t pc = 0;
  std::string text;  // mnemonic
};

struct ParamInfo {
  std::string name;
  std::uint32_t offset = 0, bytes = 0;
};

// Hidden registers that hold the special registers of a warp; filled when the warp starts.
enum class Special : std::uint8_t {
  tid_x,
  tid_y,
  tid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  laneid,
  warpid,
  nwarpid,
  smid,
  nsmid,
  gridid,
  clusterid_x,
  clusterid_y,
  clusterid_z,
  nclusterid_x,
  nclusterid_y,
  nclusterid_z,
  cluster_ctaid_x,
  cluster_ctaid_y,
  cluster_ctaid_z,
  cluster_nctaid_x,
  cluster_nctaid_y,
  cluster_nctaid_z,
  cluster_ctarank,
  cluster_nctarank,
  total_smem_size,
  dynamic_smem_size,
  lanemask_eq,
  lanemask_le,
  lanemask_lt,
  lanemask_ge,
  lanemask_gt,
  warp_size,
  is_explicit_cluster,
  clock,
  clock_hi,
  clock64,
  globaltimer,
  globaltimer_lo,
  globaltimer_hi,
  count,
};

constexpr std::uint32_t shared_origin =
    1024;  // the first KiB of the shared window belongs to the system
constexpr std::uint32_t shared_limit = 232448;  // 227 KiB a CTA
constexpr std::uint64_t generic_shared = 0x7f0000000000ull, generic_param = 0x7e0000000000ull,
                        generic_const = 0x7d0000000000ull;
constexpr std::uint32_t cluster_stride =
    0x01000000;  // shared::cluster address of rank r: (r + 1) * stride + offset

struct Program {
  std::string file, entry;
  AstKernel kernel;
  std::vector<Instr> code;
  std::vector<std::string> labels;      // by pc: the last label at or before it ("" at first)
  std::vector<RegisterInfo> registers;  // [0] is a dummy
  std::vector<std::uint8_t> pool;       // splats of immediates, 256-byte aligned entries
  std::uint32_t register_bytes = 0;     // of one warp's register file
  std::uint16_t special[static_cast<int>(Special::count)] = {};  // register number or 0 when unused
  std::vector<ParamInfo> params;
  std::uint32_t param_bytes = 0;
  std::vector<SymbolInfo> shared_symbols;
  std::uint32_t static_shared_bytes = 0;  // from shared_origin
  std::uint32_t dynamic_align = 16;
  std::vector<std::uint8_t> constants;  // .const data
  bool uses_setmaxnreg = false, uses_global_atomics = false;
  int entry_registers(int threads) const;
};

}  // namespace flashptx::emulator
