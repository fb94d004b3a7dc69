// Rows of the instruction table: matrix loads and stores, mma.sync and wgmma.
// PTX ISA 9.7.14, 9.7.15. Next: gen/isa/table.h for the notation.
//
// wgmma: N is a multiple of 8 in 8..256 and D has N/2 f32 or N/4 f16x2 registers (checked by the
// matcher); scale-d is a predicate or 0/1, the factors of A and B are 1 or -1, transposition only
// for 16-bit operands in shared memory.
#include "gen/isa/table_data.h"

namespace flashptx::gen::rows {
namespace {

#define WGMMA "wgmma.mma_async.sync.aligned.m64n<N>"
#define SCALE " pred|imm:scale-d=0..1 imm:factor_of_A=-1..1/2 imm:factor_of_B=-1..1/2"
#define TRANS_A " imm:trans-a=0..1"
#define TRANS_B " imm:trans-b=0..1"
#define FP8 "{.e4m3.e4m3|.e4m3.e5m2|.e5m2.e4m3|.e5m2.e5m2}"

const Form kMatrix[] = {
    {"ldmatrix.sync.aligned.m8n8.x1{.trans|}.shared{::cta|}.b16", "b32[1] smem:16", 65, G,
     "ldmatrix"},
    {"ldmatrix.sync.aligned.m8n8.x2{.trans|}.shared{::cta|}.b16", "b32[2] smem:16", 65, G,
     "ldmatrix"},
    {"ldmatrix.sync.aligned.m8n8.x4{.trans|}.shared{::cta|}.b16", "b32[4] smem:16", 65, G,
     "ldmatrix"},
    {"stmatrix.sync.aligned.m8n8.x1{.trans|}.shared{::cta|}.b16", "smem:16 b32[1]", 78, G,
     "stmatrix"},
    {"stmatrix.sync.aligned.m8n8.x2{.trans|}.shared{::cta|}.b16", "smem:16 b32[2]", 78, G,
     "stmatrix"},
    {"stmatrix.sync.aligned.m8n8.x4{.trans|}.shared{::cta|}.b16", "smem:16 b32[4]", 78, G,
     "stmatrix"},
    {"movmatrix.sync.aligned.m8n8.trans.b16", "b32 b32", 78, G, "movmatrix"},
    // -- mma.sync: D = A B + C
    {"mma.sync.aligned.m16n8k8.row.col.f32{.f16.f16|.bf16.bf16}.f32", "f32[4] b32[2] b32[1] f32[4]",
     70, G, "mma"},
    {"mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16", "b32[2] b32[2] b32[1] b32[2]", 65, G,
     "mma"},
    {"mma.sync.aligned.m16n8k16.row.col.f32{.f16.f16|.bf16.bf16}.f32",
     "f32[4] b32[4] b32[2] f32[4]", 70, G, "mma"},
    {"mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "b32[2] b32[4] b32[2] b32[2]", 70, G,
     "mma"},
    {"mma.sync.aligned.m16n8k32.row.col.f32" FP8 ".f32", "f32[4] b32[4] b32[2] f32[4]", 84, G,
     "mma"},
    {"mma.sync.aligned.m16n8k32.row.col.f16" FP8 ".f16", "b32[2] b32[4] b32[2] b32[2]", 87, G,
     "mma"},
    {"mma.sync.aligned.m16n8k16.row.col.f32" FP8 ".f32", "f32[4] b32[2] b32[1] f32[4]", 87, G,
     "mma"},
    {"mma.sync.aligned.m16n8k16.row.col.f16" FP8 ".f16", "b32[2] b32[2] b32[1] b32[2]", 87, G,
     "mma"},
    {"mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", "f32[4] b32[2] b32[1] f32[4]", 70, G,
     "mma"},
    {"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "f32[4] b32[4] b32[2] f32[4]", 70, G,
     "mma"},
    {"mma.sync.aligned.m16n8k16.row.col{.satfinite|}.s32{.u8|.s8}{.u8|.s8}.s32",
     "b32[4] b32[2] b32[1] b32[4]", 70, G, "mma"},
    {"mma.sync.aligned.m16n8k32.row.col{.satfinite|}.s32{.u8|.s8}{.u8|.s8}.s32",
     "b32[4] b32[4] b32[2] b32[4]", 70, G, "mma"},
    // -- wgmma
    {"wgmma.fence.sync.aligned", "", 80, A, "wgmma.fence"},
    {"wgmma.commit_group.sync.aligned", "", 80, A, "wgmma.commit_group"},
    {"wgmma.wait_group.sync.aligned", "imm:pending=0..7", 80, A, "wgmma.wait_group"},
    {WGMMA "k16.f32{.bf16.bf16|.f16.f16}", "f32[] b64 b64" SCALE TRANS_A TRANS_B, 80, A,
     "wgmma.mma_async"},
    {WGMMA "k16.f32{.bf16.bf16|.f16.f16}", "f32[] b32[4] b64" SCALE TRANS_B, 80, A,
     "wgmma.mma_async"},
    {WGMMA "k16.f16.f16.f16", "b32[] b64 b64" SCALE TRANS_A TRANS_B, 80, A, "wgmma.mma_async"},
    {WGMMA "k16.f16.f16.f16", "b32[] b32[4] b64" SCALE TRANS_B, 80, A, "wgmma.mma_async"},
    {WGMMA "k32.f32" FP8, "f32[] b64 b64" SCALE, 80, A, "wgmma.mma_async"},
    {WGMMA "k32.f32" FP8, "f32[] b32[4] b64" SCALE, 80, A, "wgmma.mma_async"},
    {WGMMA "k32.f16" FP8, "b32[] b64 b64" SCALE, 80, A, "wgmma.mma_async"},
    {WGMMA "k32.f16" FP8, "b32[] b32[4] b64" SCALE, 80, A, "wgmma.mma_async"},
    {WGMMA "k8.f32.tf32.tf32", "f32[] b64|b32[4] b64" SCALE, 80, A, "wgmma.mma_async"},
};
#undef WGMMA
#undef SCALE
#undef TRANS_A
#undef TRANS_B
#undef FP8

}  // namespace

std::span<const Form> matrix() { return kMatrix; }

}  // namespace flashptx::gen::rows
