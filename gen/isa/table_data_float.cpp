// Rows of the instruction table: f32, f16, bf16 and packed arithmetic, and cvt.
// PTX ISA 9.7.3 to 9.7.5, 9.7.9.21. Next: gen/isa/table.h for the notation.
//
// ex2 of f16 has no .ftz and ex2 of bf16 must have it; cvt to a packed type takes the upper half
// first.
#include "gen/isa/table_data.h"

namespace flashptx::gen::rows {
namespace {

const Form kFloating[] = {
    {"{add|sub|mul}{.rn|.rz|.rm|.rp|}{.ftz|}{.sat|}.f32", "f32 f32|fimm f32|fimm", 10, G, "add"},
    {"fma{.rn|.rz|.rm|.rp}{.ftz|}{.sat|}.f32", "f32 f32|fimm f32|fimm f32|fimm", 20, G, "fma"},
    {"{max|min}{.ftz|}{.NaN|}{.xorsign.abs|}.f32", "f32 f32|fimm f32|fimm", 72, G, "max"},
    {"{neg|abs}{.ftz|}.f32", "f32 f32|fimm", 10, G, "neg"},
    {"copysign.f32", "f32 f32|fimm f32|fimm", 20, G, "copysign"},
    {"testp{.finite|.infinite|.number|.notanumber|.normal|.subnormal}.f32", "pred f32|fimm", 20, G,
     "testp"},
    {"{ex2|lg2|rcp|rsqrt|sqrt|sin|cos}.approx{.ftz|}.f32", "f32 f32|fimm", 10, G, "ex2"},
    {"{rcp|sqrt}{.rn|.rz|.rm|.rp}{.ftz|}.f32", "f32 f32|fimm", 14, G, "rcp"},
    {"div{.approx|.full|.rn|.rz|.rm|.rp}{.ftz|}.f32", "f32 f32|fimm f32|fimm", 14, G, "div"},
    {"tanh.approx.f32", "f32 f32|fimm", 70, G, "tanh"},
    {"setp{.eq|.ne|.lt|.le|.gt|.ge|.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan}{.ftz|}.f32",
     "pred|pair f32|fimm f32|fimm", 10, G, "setp"},
    {"setp{.eq|.ne|.lt|.le|.gt|.ge|.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan}{.and|.or|.xor}{.ftz|}."
     "f32",
     "pred|pair f32|fimm f32|fimm pred", 10, G, "setp"},
    {"selp.f32", "f32 f32|fimm f32|fimm pred", 10, G, "selp"},
    {"slct{.ftz|}.f32.f32", "f32 f32|fimm f32|fimm f32", 10, G, "slct"},
    // -- half precision, scalar and packed
    {"{add|sub|mul}{.rn|}{.ftz|}{.sat|}.f16", "b16 b16 b16", 42, G, "add.f16"},
    {"{add|sub|mul}{.rn|}{.ftz|}{.sat|}.f16x2", "b32 b32 b32", 42, G, "add.f16x2"},
    {"{add|sub|mul}{.rn|}.bf16", "b16 b16 b16", 78, G, "add.bf16"},
    {"{add|sub|mul}{.rn|}.bf16x2", "b32 b32 b32", 78, G, "add.bf16x2"},
    {"fma.rn{.ftz|}{.sat|.relu|}.f16", "b16 b16 b16 b16", 70, G, "fma.f16"},
    {"fma.rn{.ftz|}{.sat|.relu|}.f16x2", "b32 b32 b32 b32", 70, G, "fma.f16x2"},
    {"fma.rn{.relu|}.bf16", "b16 b16 b16 b16", 70, G, "fma.bf16"},
    {"fma.rn{.relu|}.bf16x2", "b32 b32 b32 b32", 70, G, "fma.bf16x2"},
    {"fma.rn.oob{.relu|}{.f16|.bf16}", "b16 b16 b16 b16", 81, G, "fma.oob"},
    {"fma.rn.oob{.relu|}{.f16x2|.bf16x2}", "b32 b32 b32 b32", 81, G, "fma.oob"},
    {"{neg|abs}{.ftz|}.f16", "b16 b16", 65, G, "neg.f16"},
    {"{neg|abs}{.ftz|}.f16x2", "b32 b32", 65, G, "neg.f16x2"},
    {"{neg|abs}.bf16", "b16 b16", 70, G, "neg.bf16"},
    {"{neg|abs}.bf16x2", "b32 b32", 70, G, "neg.bf16x2"},
    {"{max|min}{.ftz|}{.NaN|}{.xorsign.abs|}.f16", "b16 b16 b16", 72, G, "max.f16"},
    {"{max|min}{.ftz|}{.NaN|}{.xorsign.abs|}.f16x2", "b32 b32 b32", 72, G, "max.f16x2"},
    {"{max|min}{.NaN|}{.xorsign.abs|}.bf16", "b16 b16 b16", 72, G, "max.bf16"},
    {"{max|min}{.NaN|}{.xorsign.abs|}.bf16x2", "b32 b32 b32", 72, G, "max.bf16x2"},
    {"{ex2|tanh}.approx.f16", "b16 b16", 70, G, "ex2.f16"},
    {"{ex2|tanh}.approx.f16x2", "b32 b32", 70, G, "ex2.f16x2"},
    {"{ex2.approx.ftz|tanh.approx}.bf16", "b16 b16", 78, G, "ex2.bf16"},
    {"{ex2.approx.ftz|tanh.approx}.bf16x2", "b32 b32", 78, G, "ex2.bf16x2"},
    {"setp{.eq|.ne|.lt|.le|.gt|.ge|.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan}{.ftz|}.f16",
     "pred b16 b16", 42, G, "setp.f16"},
    {"setp{.eq|.ne|.lt|.le|.gt|.ge|.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan}{.ftz|}.f16x2",
     "pair b32 b32", 42, G, "setp.f16x2"},
    {"setp{.eq|.ne|.lt|.le|.gt|.ge|.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan}.bf16", "pred b16 b16",
     78, G, "setp.bf16"},
    {"setp{.eq|.ne|.lt|.le|.gt|.ge|.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan}.bf16x2", "pair b32 b32",
     78, G, "setp.bf16x2"},
};

const Form kConvert[] = {
    // -- integers
    {"cvt{.u64|.s64}{.u32|.s32}", "b64 b32", 10, G, "cvt"},
    {"cvt{.u32|.s32}{.u64|.s64}", "b32 b64", 10, G, "cvt"},
    {"cvt{.u32|.s32}{.u16|.s16|.u8|.s8}", "b32 b16", 10, G, "cvt"},
    {"cvt{.u32|.s32}{.u8|.s8}", "b32 b32", 10, G, "cvt"},
    {"cvt{.u16|.s16}{.u8|.s8}", "b16 b16", 10, G, "cvt"},
    {"cvt{.sat|}{.u16|.s16|.u8|.s8}{.u32|.s32}", "b16 b32", 10, G, "cvt"},
    {"cvt.sat{.u8|.s8}{.u32|.s32}", "b32 b32", 10, G, "cvt"},
    {"cvt.pack.sat{.u16|.s16}.s32", "b32 b32 b32", 65, G, "cvt.pack"},
    {"cvt.pack.sat{.u8|.s8}.s32.b32", "b32 b32 b32 b32|imm", 65, G, "cvt.pack"},
    // -- float <-> integer
    {"cvt{.rn|.rz|.rm|.rp}.f32{.u32|.s32}", "f32 b32", 10, G, "cvt"},
    {"cvt{.rn|.rz|.rm|.rp}.f32{.u64|.s64}", "f32 b64", 10, G, "cvt"},
    {"cvt{.rn|.rz|.rm|.rp}.f32{.u16|.s16|.u8|.s8}", "f32 b16", 10, G, "cvt"},
    {"cvt{.rni|.rzi|.rmi|.rpi}{.ftz|}{.sat|}{.u32|.s32}.f32", "b32 f32", 10, G, "cvt"},
    {"cvt{.rni|.rzi|.rmi|.rpi}{.ftz|}{.sat|}{.u64|.s64}.f32", "b64 f32", 10, G, "cvt"},
    {"cvt{.rni|.rzi|.rmi|.rpi}{.ftz|}{.sat|}.f32.f32", "f32 f32", 10, G, "cvt"},
    {"cvt{.rn|.rz|.rm|.rp}.f16{.u32|.s32}", "b16 b32", 42, G, "cvt"},
    {"cvt{.rni|.rzi|.rmi|.rpi}{.u32|.s32}.f16", "b32 b16", 42, G, "cvt"},
    {"cvt{.rn|.rz|.rm|.rp}.bf16{.u32|.s32}", "b16 b32", 78, G, "cvt"},
    {"cvt{.rni|.rzi|.rmi|.rpi}{.u32|.s32}.bf16", "b32 b16", 78, G, "cvt"},
    // -- f32 <-> f16, bf16, tf32
    {"cvt{.ftz|}{.sat|}.f32.f16", "f32 b16", 42, G, "cvt"},
    {"cvt.f32.bf16", "f32 b16", 71, G, "cvt"},
    {"cvt{.rn|.rz|.rm|.rp}{.ftz|}{.sat|}.f16.f32", "b16 f32", 42, G, "cvt"},
    {"cvt{.rn|.rz}{.relu|}.f16.f32", "b16 f32", 70, G, "cvt"},
    {"cvt{.rn|.rz}{.relu|}.satfinite.f16.f32", "b16 f32", 81, G, "cvt"},
    {"cvt{.rn|.rz}{.relu|}.bf16.f32", "b16 f32", 70, G, "cvt"},
    {"cvt{.rn|.rz}{.relu|}.satfinite.bf16.f32", "b16 f32", 81, G, "cvt"},
    {"cvt{.rn|.rz}{.relu|}{.f16x2|.bf16x2}.f32", "b32 f32 f32", 70, G, "cvt"},
    {"cvt{.rn|.rz}{.relu|}.satfinite{.f16x2|.bf16x2}.f32", "b32 f32 f32", 81, G, "cvt"},
    {"cvt.rna.tf32.f32", "b32 f32", 70, G, "cvt"},
    {"cvt.rna.satfinite.tf32.f32", "b32 f32", 81, G, "cvt"},
    {"cvt{.rn|.rz}{.relu|}.tf32.f32", "b32 f32", 78, G, "cvt"},
    {"cvt{.rn|.rz|.rm|.rp}.bf16.f16", "b16 b16", 78, G, "cvt"},
    {"cvt{.rn|.rz|.rm|.rp}.f16.bf16", "b16 b16", 78, G, "cvt"},
    // -- FP8
    {"cvt.rn.satfinite{.relu|}{.e4m3x2|.e5m2x2}.f32", "b16 f32 f32", 78, G, "cvt"},
    {"cvt.rn.satfinite{.relu|}{.e4m3x2|.e5m2x2}.f16x2", "b16 b32", 78, G, "cvt"},
    {"cvt.rn{.relu|}.f16x2{.e4m3x2|.e5m2x2}", "b32 b16", 78, G, "cvt"},
};

}  // namespace

std::span<const Form> floating() { return kFloating; }
std::span<const Form> convert() { return kConvert; }

}  // namespace flashptx::gen::rows
