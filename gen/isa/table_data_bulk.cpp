// Rows of the instruction table: bulk copies, tensor (TMA) copies, reductions, tensor map edits.
// PTX ISA 9.7.9.25, 9.7.9.27, 9.7.9.28. Next: gen/isa/table.h for the notation.
//
// Sizes and addresses of bulk copies are multiples of 16 bytes; mbarriers are 8 bytes.
#include "gen/isa/table_data.h"

namespace flashptx::gen::rows {
namespace {

#define DIMS "{.1d|.2d|.3d|.4d|.5d}"
#define TX ".mbarrier::complete_tx::bytes"
#define SIZE "b32|imm:size=16..1048560/16"

const Form kBulk[] = {
    // -- tensor loads; the mask of a multicast has bit i for CTA rank i of the cluster
    {"cp.async.bulk.tensor" DIMS ".shared::cluster.global{.tile|}" TX, "smem:16 tensor smem:8", 80,
     G, "cp.async.bulk.tensor"},
    {"cp.async.bulk.tensor" DIMS ".shared::cluster.global{.tile|}" TX ".L2::cache_hint",
     "smem:16 tensor smem:8 b64|imm", 80, G, "cp.async.bulk.tensor"},
    {"cp.async.bulk.tensor" DIMS ".shared::cluster.global{.tile|}" TX ".multicast::cluster",
     "smem:16 tensor smem:8 b16|imm:mask=1..65535", 80, A, "cp.async.bulk.tensor"},
    {"cp.async.bulk.tensor" DIMS ".shared::cluster.global{.tile|}" TX
     ".multicast::cluster.L2::cache_hint",
     "smem:16 tensor smem:8 b16|imm:mask=1..65535 b64|imm", 80, A, "cp.async.bulk.tensor"},
    {"cp.async.bulk.tensor" DIMS ".shared::cta.global{.tile|}" TX, "smem:16 tensor smem:8", 86, G,
     "cp.async.bulk.tensor"},
    {"cp.async.bulk.tensor" DIMS ".shared::cta.global{.tile|}" TX ".L2::cache_hint",
     "smem:16 tensor smem:8 b64|imm", 86, G, "cp.async.bulk.tensor"},
    // -- tensor stores and reductions
    {"cp.async.bulk.tensor" DIMS ".global.shared::cta{.tile|}.bulk_group", "tensor smem:16", 80, G,
     "cp.async.bulk.tensor"},
    {"cp.async.bulk.tensor" DIMS ".global.shared::cta{.tile|}.bulk_group.L2::cache_hint",
     "tensor smem:16 b64|imm", 80, G, "cp.async.bulk.tensor"},
    {"cp.reduce.async.bulk.tensor" DIMS
     ".global.shared::cta{.add|.min|.max|.inc|.dec|.and|.or|.xor}{.tile|}.bulk_group",
     "tensor smem:16", 80, G, "cp.reduce.async.bulk.tensor"},
    {"cp.reduce.async.bulk.tensor" DIMS ".global.shared::cta{.add|.min|.max|.inc|.dec|.and|.or|."
                                        "xor}{.tile|}.bulk_group.L2::cache_hint",
     "tensor smem:16 b64|imm", 80, G, "cp.reduce.async.bulk.tensor"},
    {"cp.async.bulk.prefetch.tensor" DIMS ".L2.global{.tile|}", "tensor", 80, G,
     "cp.async.bulk.prefetch.tensor"},
    {"cp.async.bulk.prefetch.tensor" DIMS ".L2.global{.tile|}.L2::cache_hint", "tensor b64|imm", 80,
     G, "cp.async.bulk.prefetch.tensor"},
    // -- copies without a tensor map
    {"cp.async.bulk.shared::cluster.global" TX, "smem:16 gmem:16 " SIZE " smem:8", 80, G,
     "cp.async.bulk"},
    {"cp.async.bulk.shared::cluster.global" TX ".L2::cache_hint",
     "smem:16 gmem:16 " SIZE " smem:8 b64|imm", 80, G, "cp.async.bulk"},
    {"cp.async.bulk.shared::cluster.global" TX ".multicast::cluster",
     "smem:16 gmem:16 " SIZE " smem:8 b16|imm:mask=1..65535", 80, A, "cp.async.bulk"},
    {"cp.async.bulk.shared::cluster.global" TX ".multicast::cluster.L2::cache_hint",
     "smem:16 gmem:16 " SIZE " smem:8 b16|imm:mask=1..65535 b64|imm", 80, A, "cp.async.bulk"},
    {"cp.async.bulk.shared::cta.global" TX, "smem:16 gmem:16 " SIZE " smem:8", 86, G,
     "cp.async.bulk"},
    {"cp.async.bulk.shared::cta.global" TX ".L2::cache_hint",
     "smem:16 gmem:16 " SIZE " smem:8 b64|imm", 86, G, "cp.async.bulk"},
    {"cp.async.bulk.shared::cluster.shared::cta" TX, "smem:16 smem:16 " SIZE " smem:8", 80, G,
     "cp.async.bulk"},
    {"cp.async.bulk.global.shared::cta.bulk_group", "gmem:16 smem:16 " SIZE, 80, G,
     "cp.async.bulk"},
    {"cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint",
     "gmem:16 smem:16 " SIZE " b64|imm", 80, G, "cp.async.bulk"},
    {"cp.async.bulk.prefetch.L2.global", "gmem:16 " SIZE, 80, G, "cp.async.bulk.prefetch"},
    {"cp.async.bulk.prefetch.L2.global.L2::cache_hint", "gmem:16 " SIZE " b64|imm", 80, G,
     "cp.async.bulk.prefetch"},
    // -- reductions without a tensor map
    {"cp.reduce.async.bulk.shared::cluster.shared::cta" TX
     "{.and.b32|.or.b32|.xor.b32|.add.u32|.add.s32|.add.u64|.inc.u32|.dec.u32"
     "|.min.u32|.min.s32|.max.u32|.max.s32}",
     "smem:16 smem:16 " SIZE " smem:8", 80, G, "cp.reduce.async.bulk"},
    {"cp.reduce.async.bulk.global.shared::cta.bulk_group"
     "{.and.b32|.or.b32|.xor.b32|.and.b64|.or.b64|.xor.b64|.add.u32|.add.s32|.add.u64|.inc.u32|."
     "dec.u32"
     "|.min.u32|.min.s32|.max.u32|.max.s32|.min.u64|.min.s64|.max.u64|.max.s64"
     "|.add.f32|.add.f64|.add.noftz.f16|.add.noftz.bf16|.min.f16|.max.f16|.min.bf16|.max.bf16}",
     "gmem:16 smem:16 " SIZE, 80, G, "cp.reduce.async.bulk"},
    {"cp.reduce.async.bulk.global.shared::cta.bulk_group.L2::cache_hint"
     "{.and.b32|.or.b32|.xor.b32|.add.u32|.add.s32|.add.u64|.min.u32|.min.s32|.max.u32|.max.s32"
     "|.add.f32|.add.f64|.add.noftz.f16|.add.noftz.bf16|.min.f16|.max.f16|.min.bf16|.max.bf16}",
     "gmem:16 smem:16 " SIZE " b64|imm", 80, G, "cp.reduce.async.bulk"},
    {"cp.async.bulk.commit_group", "", 80, G, "cp.async.bulk.commit_group"},
    {"cp.async.bulk.wait_group{.read|}", "imm:pending=0..1000000", 80, G,
     "cp.async.bulk.wait_group"},
    // -- editing a tensor map; .rank holds the rank minus one
    {"tensormap.replace.tile.global_address{.global|}.b1024.b64", "gmem:128 b64|imm", 83, A,
     "tensormap.replace"},
    {"tensormap.replace.tile.global_address.shared::cta.b1024.b64", "smem:128 b64|imm", 83, A,
     "tensormap.replace"},
    {"tensormap.replace.tile.global_stride{.global|}.b1024.b64",
     "gmem:128 imm:dimension=0..3 b64|imm", 83, A, "tensormap.replace"},
    {"tensormap.replace.tile.global_stride.shared::cta.b1024.b64",
     "smem:128 imm:dimension=0..3 b64|imm", 83, A, "tensormap.replace"},
    {"tensormap.replace.tile{.global_dim|.box_dim|.element_stride}{.global|}.b1024.b32",
     "gmem:128 imm:dimension=0..4 b32|imm", 83, A, "tensormap.replace"},
    {"tensormap.replace.tile{.global_dim|.box_dim|.element_stride}.shared::cta.b1024.b32",
     "smem:128 imm:dimension=0..4 b32|imm", 83, A, "tensormap.replace"},
    {"tensormap.replace.tile.rank{.global|}.b1024.b32", "gmem:128 b32|imm:rank=0..4", 83, A,
     "tensormap.replace"},
    {"tensormap.replace.tile.rank.shared::cta.b1024.b32", "smem:128 b32|imm:rank=0..4", 83, A,
     "tensormap.replace"},
    {"tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release"
     "{.cta|.cluster|.gpu|.sys}.sync.aligned",
     "gmem:128 smem:128 imm:bytes=128..128", 83, G, "tensormap.cp_fenceproxy"},
};
#undef DIMS
#undef TX
#undef SIZE

}  // namespace

std::span<const Form> bulk() { return kBulk; }

}  // namespace flashptx::gen::rows
