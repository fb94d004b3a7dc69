// Rows of the instruction table: movement between registers and memory, caches, cp.async.
// PTX ISA 9.7.9. Next: gen/isa/table.h for the notation.
//
// One macro a width set, because every state space and cache rule takes the same widths.
#include "gen/isa/table_data.h"

namespace flashptx::gen::rows {
namespace {

// clang-format off
// HEAD is the opcode up to the type, MEM the address kind, TAIL what follows the address.
#define LOADS(HEAD, MEM, TAIL, VERSION)                                          \
  {HEAD "{.b8|.u8|.s8}", "b16|b32 " MEM ":1" TAIL, VERSION, G, "ld"},            \
  {HEAD "{.b16|.u16|.s16}", "b16|b32 " MEM ":2" TAIL, VERSION, G, "ld"},         \
  {HEAD "{.b32|.u32|.s32}", "b32 " MEM ":4" TAIL, VERSION, G, "ld"},             \
  {HEAD "{.b32|.f32}", "f32 " MEM ":4" TAIL, VERSION, G, "ld"},                  \
  {HEAD "{.b64|.u64|.s64}", "b64 " MEM ":8" TAIL, VERSION, G, "ld"},             \
  {HEAD "{.v2.b16|.v2.u16}", "b16[2] " MEM ":4" TAIL, VERSION, G, "ld"},         \
  {HEAD "{.v4.b16|.v4.u16}", "b16[4] " MEM ":8" TAIL, VERSION, G, "ld"},         \
  {HEAD "{.v2.b32|.v2.u32}", "b32[2] " MEM ":8" TAIL, VERSION, G, "ld"},         \
  {HEAD "{.v4.b32|.v4.u32}", "b32[4] " MEM ":16" TAIL, VERSION, G, "ld"},        \
  {HEAD "{.v2.b32|.v2.f32}", "f32[2] " MEM ":8" TAIL, VERSION, G, "ld"},         \
  {HEAD "{.v4.b32|.v4.f32}", "f32[4] " MEM ":16" TAIL, VERSION, G, "ld"},        \
  {HEAD "{.v2.b64|.v2.u64}", "b64[2] " MEM ":16" TAIL, VERSION, G, "ld"}

#define STORES(HEAD, MEM, TAIL, VERSION)                                         \
  {HEAD "{.b8|.u8|.s8}", MEM ":1 b16|b32|imm" TAIL, VERSION, G, "st"},           \
  {HEAD "{.b16|.u16|.s16}", MEM ":2 b16|b32|imm" TAIL, VERSION, G, "st"},        \
  {HEAD "{.b32|.u32|.s32}", MEM ":4 b32|imm" TAIL, VERSION, G, "st"},            \
  {HEAD "{.b32|.f32}", MEM ":4 f32|fimm" TAIL, VERSION, G, "st"},                \
  {HEAD "{.b64|.u64|.s64}", MEM ":8 b64|imm" TAIL, VERSION, G, "st"},            \
  {HEAD "{.v2.b16|.v2.u16}", MEM ":4 b16[2]" TAIL, VERSION, G, "st"},            \
  {HEAD "{.v4.b16|.v4.u16}", MEM ":8 b16[4]" TAIL, VERSION, G, "st"},            \
  {HEAD "{.v2.b32|.v2.u32}", MEM ":8 b32[2]" TAIL, VERSION, G, "st"},            \
  {HEAD "{.v4.b32|.v4.u32}", MEM ":16 b32[4]" TAIL, VERSION, G, "st"},           \
  {HEAD "{.v2.b32|.v2.f32}", MEM ":8 f32[2]" TAIL, VERSION, G, "st"},            \
  {HEAD "{.v4.b32|.v4.f32}", MEM ":16 f32[4]" TAIL, VERSION, G, "st"},           \
  {HEAD "{.v2.b64|.v2.u64}", MEM ":16 b64[2]" TAIL, VERSION, G, "st"}

#define EVICT \
  "{.L1::evict_normal|.L1::evict_unchanged|.L1::evict_first|.L1::evict_last|.L1::no_allocate}"
#define FETCH "{.L2::64B|.L2::128B|.L2::256B|}"
#define SCOPE "{.cta|.cluster|.gpu|.sys}"
// clang-format on

const Form kMemory[] = {
    {"mov{.b32|.u32|.s32}", "b32 b32|imm|spec|sym", 10, G, "mov"},
    {"mov.b32", "b32|f32 b32|f32|imm", 10, G, "mov"},
    {"mov.b32", "b32|f32 b16[2]", 10, G, "mov"},
    {"mov.b32", "b16[2] b32|f32", 10, G, "mov"},
    {"mov{.b64|.u64|.s64}", "b64 b64|imm|spec64|sym", 10, G, "mov"},
    {"mov.b64", "b64 b32[2]|f32[2]|b16[4]", 10, G, "mov"},
    {"mov.b64", "b32[2]|f32[2]|b16[4] b64", 10, G, "mov"},
    {"mov{.b16|.u16|.s16}", "b16 b16|imm", 10, G, "mov"},
    {"mov.f32", "f32 f32|fimm", 10, G, "mov"},
    {"mov.pred", "pred pred|imm:value=0..1", 10, G, "mov"},
    {"cvta{.global|.local|.const}.u64", "b64 b64", 20, G, "cvta"},
    {"cvta.shared.u64", "b64 b64|sym", 20, G, "cvta"},
    {"cvta.param.u64", "b64 b64", 77, G, "cvta"},
    {"cvta.to{.global|.shared|.local|.const}.u64", "b64 b64", 20, G, "cvta"},
    {"cvta.to.param.u64", "b64 b64", 77, G, "cvta"},
    {"isspacep{.global|.shared|.local|.const|.shared::cta|.shared::cluster|.param}", "pred b64", 78,
     G, "isspacep"},
    // -- loads
    LOADS("ld.param", "pmem", "", 10),
    LOADS("ld", "gmem", "", 10),  // generic
    LOADS("ld.global{.ca|.cg|.cs|.lu|.cv|}", "gmem", "", 20),
    LOADS("ld.global{.nc|.ca.nc|.cg.nc|.cs.nc}", "gmem", "", 31),
    LOADS("ld.global{.nc|}" EVICT FETCH, "gmem", "", 74),
    LOADS("ld.global{.nc|}{.L2::64B|.L2::128B|.L2::256B}", "gmem", "", 74),
    LOADS("ld.global{.nc|}{.L1::evict_last|.L1::no_allocate|}.L2::cache_hint", "gmem", " b64|imm",
          74),
    LOADS("ld.volatile.global", "gmem", "", 20),
    LOADS("ld{.relaxed|.acquire}" SCOPE ".global", "gmem", "", 78),
    LOADS("ld{.volatile|}.shared{::cta|}", "smem", "", 78),
    LOADS("ld.shared::cluster", "smem", "", 78),
    LOADS("ld{.relaxed|.acquire}{.cta|.cluster}.shared{::cta|::cluster}", "smem", "", 78),
    LOADS("ld.local", "gmem", "", 10),
    // -- stores
    STORES("st", "gmem", "", 10),  // generic
    STORES("st.global{.wb|.cg|.cs|.wt|}", "gmem", "", 20),
    STORES("st.global" EVICT, "gmem", "", 74),
    STORES("st.global{.L1::no_allocate|}.L2::cache_hint", "gmem", " b64|imm", 74),
    STORES("st.volatile.global", "gmem", "", 20),
    STORES("st{.relaxed|.release}" SCOPE ".global", "gmem", "", 78),
    STORES("st{.volatile|}.shared{::cta|}", "smem", "", 78),
    STORES("st.shared::cluster", "smem", "", 78),
    STORES("st{.relaxed|.release}{.cta|.cluster}.shared{::cta|::cluster}", "smem", "", 78),
    STORES("st.local", "gmem", "", 10),
    {"st.async{.weak|}.shared::cluster.mbarrier::complete_tx::bytes{.b32|.u32|.s32}",
     "smem:4 b32|imm smem:8", 81, G, "st.async"},
    {"st.async{.weak|}.shared::cluster.mbarrier::complete_tx::bytes{.b64|.u64|.s64}",
     "smem:8 b64|imm smem:8", 81, G, "st.async"},
    {"st.async{.weak|}.shared::cluster.mbarrier::complete_tx::bytes.v2{.b32|.u32}",
     "smem:8 b32[2] smem:8", 81, G, "st.async"},
    {"st.async{.weak|}.shared::cluster.mbarrier::complete_tx::bytes.v4{.b32|.u32}",
     "smem:16 b32[4] smem:8", 81, G, "st.async"},
    {"st.async{.weak|}.shared::cluster.mbarrier::complete_tx::bytes.v4.f32",
     "smem:16 f32[4] smem:8", 81, G, "st.async"},
    // -- caches
    {"prefetch{.global|.local|}{.L1|.L2}", "gmem", 20, G, "prefetch"},
    {"prefetch.global{.L2::evict_last|.L2::evict_normal}", "gmem", 74, G, "prefetch"},
    {"prefetchu.L1", "gmem", 20, G, "prefetchu"},
    {"prefetch{.const|}.tensormap", "map:64", 80, G, "prefetch"},
    {"prefetch.param.tensormap", "pmem:64", 80, G, "prefetch"},
    {"applypriority{.global|}.L2::evict_normal", "gmem imm:bytes=128..128", 74, G, "applypriority"},
    {"discard{.global|}.L2", "gmem imm:bytes=128..128", 74, G, "discard"},
    {"createpolicy.fractional{.L2::evict_last|.L2::evict_normal|.L2::evict_first|.L2::evict_"
     "unchanged}"
     "{.L2::evict_first|.L2::evict_unchanged|}.b64",
     "b64 ?f32|fimm", 74, G, "createpolicy"},
    {"createpolicy.range{.global|}"
     "{.L2::evict_last|.L2::evict_normal|.L2::evict_first|.L2::evict_unchanged}"
     "{.L2::evict_first|.L2::evict_unchanged|}.b64",
     "b64 gmem b32|imm b32|imm", 74, G, "createpolicy"},
    {"createpolicy.cvt.L2.b64", "b64 b64", 74, G, "createpolicy"},
    // -- cp.async: 4, 8 or 16 bytes; a source size below that is filled up with zeros
    {"cp.async.ca.shared{::cta|}.global" FETCH,
     "smem:4 gmem:4 imm:size=4..4 ?b32|imm:source_size=0..4", 70, G, "cp.async"},
    {"cp.async.ca.shared{::cta|}.global" FETCH,
     "smem:8 gmem:8 imm:size=8..8 ?b32|imm:source_size=0..8", 70, G, "cp.async"},
    {"cp.async{.ca|.cg}.shared{::cta|}.global" FETCH,
     "smem:16 gmem:16 imm:size=16..16 ?b32|imm:source_size=0..16", 70, G, "cp.async"},
    {"cp.async{.ca|.cg}.shared{::cta|}.global" FETCH, "smem:16 gmem:16 imm:size=16..16 pred", 78, G,
     "cp.async"},
    {"cp.async{.ca|.cg}.shared{::cta|}.global.L2::cache_hint" FETCH,
     "smem:16 gmem:16 imm:size=16..16 b64|imm", 74, G, "cp.async"},
    {"cp.async{.ca|.cg}.shared{::cta|}.global.L2::cache_hint" FETCH,
     "smem:16 gmem:16 imm:size=16..16 b32 b64|imm", 74, G, "cp.async"},
    {"cp.async{.commit_group|.wait_all}", "", 70, G, "cp.async"},
    {"cp.async.wait_group", "imm:pending=0..1000000", 70, G, "cp.async"},
    {"cp.async.mbarrier.arrive{.noinc|}{.shared|.shared::cta}.b64", "smem:8", 78, G, "cp.async"},
};

#undef LOADS
#undef STORES
#undef EVICT
#undef FETCH
#undef SCOPE

}  // namespace

std::span<const Form> memory() { return kMemory; }

}  // namespace flashptx::gen::rows
