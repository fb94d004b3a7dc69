// Rows of the instruction table: atom and red on global memory, shared memory and a peer's shared
// memory. PTX ISA 9.7.13.6 to 9.7.13.8. Next: gen/isa/table.h for the notation.
//
// Semantics and scope stand before the state space; ptxas also takes them behind it.
#include "gen/isa/table_data.h"

namespace flashptx::gen::rows {
namespace {

#define SCOPE "{.cta|.cluster|.gpu|.sys}"

// clang-format off
// HEAD is the opcode up to the operation, D the destination and a blank (none for red), MEM the
// address kind.
#define INTEGER_OPERATIONS(HEAD, D32, D64, MEM, ISA)                                     \
  {HEAD "{.add|.min|.max}{.u32|.s32}", D32 MEM ":4 b32|imm", 78, G, ISA},                \
  {HEAD "{.inc|.dec}.u32", D32 MEM ":4 b32|imm", 78, G, ISA},                            \
  {HEAD "{.and|.or|.xor}.b32", D32 MEM ":4 b32|imm", 78, G, ISA},                        \
  {HEAD "{.add.u64|.min.u64|.max.u64|.min.s64|.max.s64|.and.b64|.or.b64|.xor.b64}",      \
   D64 MEM ":8 b64|imm", 78, G, ISA}
#define SWAPS(HEAD, MEM)                                                                 \
  {HEAD ".exch.b32", "b32 " MEM ":4 b32|imm", 78, G, "atom"},                            \
  {HEAD ".exch.b64", "b64 " MEM ":8 b64|imm", 78, G, "atom"},                            \
  {HEAD ".cas.b16", "b16 " MEM ":2 b16 b16", 78, G, "atom"},                             \
  {HEAD ".cas.b32", "b32 " MEM ":4 b32|imm b32|imm", 78, G, "atom"},                     \
  {HEAD ".cas.b64", "b64 " MEM ":8 b64|imm b64|imm", 78, G, "atom"}
#define FLOAT_OPERATIONS(HEAD, F32, H16, H32, MEM, ISA)                                  \
  {HEAD ".add.f32", F32 MEM ":4 f32|fimm", 78, G, ISA},                                  \
  {HEAD ".add.noftz{.f16|.bf16}", H16 MEM ":2 b16", 78, G, ISA},                         \
  {HEAD ".add.noftz{.f16x2|.bf16x2}", H32 MEM ":4 b32", 78, G, ISA}

#define ATOMS(HEAD, MEM)                                         \
  INTEGER_OPERATIONS(HEAD, "b32 ", "b64 ", MEM, "atom"),         \
  SWAPS(HEAD, MEM),                                              \
  FLOAT_OPERATIONS(HEAD, "f32 ", "b16 ", "b32 ", MEM, "atom")
#define REDS(HEAD, MEM)                                          \
  INTEGER_OPERATIONS(HEAD, "", "", MEM, "red"),                  \
  FLOAT_OPERATIONS(HEAD, "", "", "", MEM, "red")
#define VECTORS(OP, HEAD, D2, D4, H2, H4, H8)                                            \
  {HEAD ".global.v2.f32.add", D2 "gmem:8 f32[2]", 81, G, OP},                            \
  {HEAD ".global.v4.f32.add", D4 "gmem:16 f32[4]", 81, G, OP},                           \
  {HEAD ".global{.v2.f16|.v2.bf16}.add.noftz", H2 "gmem:4 b16[2]", 81, G, OP},           \
  {HEAD ".global{.v4.f16|.v4.bf16}.add.noftz", H4 "gmem:8 b16[4]", 81, G, OP},           \
  {HEAD ".global{.v8.f16|.v8.bf16}.add.noftz", H8 "gmem:16 b16[8]", 81, G, OP}
#define PACKED_VECTORS(OP, HEAD, D2, D4)                                                 \
  {HEAD ".global{.v2.f16x2|.v2.bf16x2}.add.noftz", D2 "gmem:8 b32[2]", 81, G, OP},       \
  {HEAD ".global{.v4.f16x2|.v4.bf16x2}.add.noftz", D4 "gmem:16 b32[4]", 81, G, OP}
// clang-format on

const Form kAtomic[] = {
    ATOMS("atom{.global|}", "gmem"),
    ATOMS("atom{.relaxed|.acquire|.release|.acq_rel}" SCOPE "{.global|}", "gmem"),
    ATOMS("atom.shared{|::cta|::cluster}", "smem"),
    ATOMS("atom{.relaxed|.acquire|.release|.acq_rel}{.cta|.cluster}.shared{|::cta|::cluster}",
          "smem"),
    REDS("red{.global|}", "gmem"),
    REDS("red{.relaxed|.release}" SCOPE "{.global|}", "gmem"),
    REDS("red.shared{|::cta|::cluster}", "smem"),
    REDS("red{.relaxed|.release}{.cta|.cluster}.shared{|::cta|::cluster}", "smem"),
    // the order that ptxas takes as well
    {"atom.global.relaxed.gpu.add.u32", "b32 gmem:4 b32|imm", 78, G, "atom"},
    {"atom.global.relaxed.gpu.exch.b32", "b32 gmem:4 b32|imm", 78, G, "atom"},
    {"red.global.relaxed.gpu.add.u32", "gmem:4 b32|imm", 78, G, "red"},
    // -- vectors: each element is added on its own
    VECTORS("atom", "atom", "f32[2] ", "f32[4] ", "b16[2] ", "b16[4] ", "b16[8] "),
    VECTORS("atom", "atom{.relaxed|.acquire|.release|.acq_rel}" SCOPE, "f32[2] ", "f32[4] ",
            "b16[2] ", "b16[4] ", "b16[8] "),
    PACKED_VECTORS("atom", "atom", "b32[2] ", "b32[4] "),
    VECTORS("red", "red", "", "", "", "", ""),
    VECTORS("red", "red{.relaxed|.release}" SCOPE, "", "", "", "", ""),
    PACKED_VECTORS("red", "red", "", ""),
    PACKED_VECTORS("red", "red{.relaxed|.release}" SCOPE, "", ""),
    // -- to a peer's shared memory, counted by its mbarrier
    {"red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes"
     "{.inc.u32|.dec.u32|.add.u32|.add.s32|.min.u32|.min.s32|.max.u32|.max.s32|.and.b32|.or.b32|."
     "xor.b32}",
     "smem:4 b32|imm smem:8", 81, G, "red.async"},
    {"red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u64",
     "smem:8 b64|imm smem:8", 81, G, "red.async"},
};

}  // namespace

#undef SCOPE
#undef INTEGER_OPERATIONS
#undef SWAPS
#undef FLOAT_OPERATIONS
#undef ATOMS
#undef REDS
#undef VECTORS
#undef PACKED_VECTORS

std::span<const Form> atomic() { return kAtomic; }

}  // namespace flashptx::gen::rows
