// The two products of attention on the tensor cores: S = Q K^T (both operands in shared memory) and
// O += P V (P in registers, V read with the transposition flag, since its rows are keys). In 8 bit wgmma takes
// K-major operands only, so V lies there as V^T, its keys in the order of gen/tile/key_order.h; P is always e4m3.
//
// Descriptors (PTX ISA, wgmma matrix descriptor): low word = address >> 4 | LBO >> 4 << 16, high word = SBO
// 1024 B and 128-byte swizzle. Along K inside a 128-byte slab a step of 32 B (16 or 32 elements) is +2; V is
// MN-major: 16 keys are +2048 B = +128, the next 64 columns of V lie one slab (LBO) away.
#include "gen/tile/forward_context.h"

namespace flashptx::gen {
namespace {

constexpr int kDescriptorHigh = 0x40000040;

// {low, high} with low = (base + offset + stage * stage_bytes) >> 4, LBO in bits 16..29.
Reg descriptor(ForwardContext& f, const std::string& name, const Operand& stage, int stage_bytes,
               int offset, int lbo_bytes) {
  Kernel& k = f.k;
  Reg low = k.b32(name + "_low"), high = k.b32(name + "_high"), desc = k.b64(name + "_desc");
  k.mad_lo_u32(low, stage, stage_bytes, f.base);
  if (offset) k.add_u32(low, low, offset);
  k.shr_u32(low, low, 4);
  if (f.paired()) k.and_b32(low, low, 0x3FFF).note("in a cluster an address carries the CTA's rank in bits 24 and up");
  if (lbo_bytes) k.or_b32(low, low, hex(static_cast<std::uint64_t>(lbo_bytes / 16) << 16));
  k.mov_b32(high, hex(kDescriptorHigh));
  k.mov_b64(desc, low, high);
  return desc;
}

}  // namespace

void emit_qk(ForwardContext& f) {
  Kernel& k = f.k;
  const SharedLayout& m = f.smem;
  trace_mark(f, TraceEvent::qk);
  k.scope([&] {
    RingSlot slot = ring_slot(k, "k", f.kv_count, f.config.plan.kv_stages);
    RingSlot q = ring_slot(k, "q", f.q_count, f.config.plan.q_stages);
    Reg q_slice = k.b32("q_slice");
    k.mad_lo_u32(q_slice, q.stage, f.warpgroups(), f.warpgroup);
    Reg q_desc = descriptor(f, "q", q_slice, m.q_slice_bytes, m.q, 0);
    Reg k_desc = descriptor(f, "k", slot.stage, m.k_stage_bytes, m.k, 0);
    Reg a = k.b64("q_step"), b = k.b64("k_step");
    if (f.pv_in_groups()) k.wgmma_wait_group(1).note("half of the last P V, and its P");
    k.wgmma_fence();
    int steps = (f.d() + f.k_step() - 1) / f.k_step();  // a last half step multiplies zeros
    for (int step = 0; step < steps; ++step) {
      int slab = step / 4, in_slab = step % 4;
      if (step) {
        k.add_s64(a, q_desc, (slab * m.slab_bytes_q + in_slab * 32) / 16);
        k.add_s64(b, k_desc, (slab * m.slab_bytes_kv + in_slab * 32) / 16);
      }
      const Reg qa = step ? a : q_desc, kb = step ? b : k_desc;
      if (f.eight_bit()) k.wgmma_ss_8(f.type(), f.type_k(), f.n(), f.s_acc.all(), qa, kb, step ? 1 : 0);
      else k.wgmma_ss_16(f.type(), f.n(), f.s_acc.all(), qa, kb, step ? 1 : 0, 0, 0);
    }
    k.wgmma_commit_group();
  });
}

// O += P V by way of o_new, all or half of the columns at a time: issue, wait, add. Only where P V is waited for at once, so that
// o_new can live in S's registers.
void emit_pv_promoted(ForwardContext& f, const Reg& v_desc) {
  Kernel& k = f.k;
  Reg b = k.b64("v_step");
  int columns = f.promoted_columns();
  for (int first = 0; first < f.dv(); first += columns) {
    k.wgmma_fence().note(first ? "the next columns" : "again: the wait loop above is a branch (ptxas C7519)");
    for (int step = 0; step < f.n() / 32; ++step) {
      k.add_s64(b, v_desc, (step / 4 * f.smem.slab_bytes_v + step % 4 * 32 + first * 128) / 16);
      k.wgmma_rs_8("e4m3", f.type_v(), columns, f.o_new.slice(0, columns / 2), f.p.slice(4 * step, 4), b, step ? 1 : 0);
    }
    k.wgmma_commit_group();
    k.wgmma_wait_group(0).note("this block's product");
    for (int i = 0; i < columns / 2; ++i)
      k.add_ftz_f32(f.o_acc[first / 2 + i], f.o_acc[first / 2 + i], f.o_new[i]);
  }
}

// With 128 registers at entry (512 threads) m64n256 is refused (ptxas C7602): half of the columns at a time, then.
void emit_pv_8(ForwardContext& f, const Reg& v_desc) {
  Kernel& k = f.k;
  Reg b = k.b64("v_step");
  const bool afresh = f.config.plan.two_level;
  const Vec& to = afresh ? f.o_new : f.o_acc;
  const int parts = f.dv() > 128 && f.config.plan.transposers > 3 ? 2 : 1, columns = f.dv() / parts;
  for (int step = 0; step < f.n() / 32; ++step) {
    if (f.pv_in_groups() && step == f.n() / 64) k.wgmma_commit_group();
    for (int part = 0; part < parts; ++part) {
      const int at = step / 4 * f.smem.slab_bytes_v + step % 4 * 32 + part * columns * 128;
      if (at) k.add_s64(b, v_desc, at / 16);
      const Operand keep = step ? Operand(1) : afresh ? Operand(0) : Operand(f.o_keep);
      std::vector<Reg> acc = to.slice(part * columns / 2, columns / 2);
      for (const Reg& sum : f.o_sum.all()) acc.push_back(sum);
      k.wgmma_rs_8("e4m3", f.type_v(), 2 * static_cast<int>(acc.size()), acc, f.p.slice(4 * step, 4), at ? b : v_desc, keep, 1);
    }
  }
}

void emit_pv(ForwardContext& f, int lag) {
  Kernel& k = f.k;
  const SharedLayout& m = f.smem;
  k.scope([&] {
    Reg position = f.kv_count;
    if (lag) {
      position = k.b32("v_count");
      k.sub_u32(position, f.kv_count, lag);
    }
    RingSlot slot = ring_slot(k, "v", position, f.config.plan.v_ring());
    Reg bar = ring_barrier(f, "v_bar", slot.stage, 0);
    trace_mark(f, TraceEvent::v_full_wait);
    if (f.looks_at_v()) k.wait_unless(f.v_ready, "v_full", address(bar, m.v_full), slot.phase);
    else k.wait("v_full", address(bar, m.v_full), slot.phase);
    trace_mark(f, TraceEvent::pv);
    Reg v_desc = descriptor(f, "v", slot.stage, m.v_stage_bytes, m.v, f.eight_bit() ? 0 : m.slab_bytes_v);
    if (f.promotes_at_once()) {
      emit_pv_promoted(f, v_desc);
      return;
    }
    k.wgmma_fence().note("again: the wait loop above is a branch (ptxas C7519)");
    if (f.eight_bit()) {
      emit_pv_8(f, v_desc);
    } else {
      Reg b = k.b64("v_step");
      for (int step = 0; step < f.n() / 16; ++step) {
        if (step) k.add_s64(b, v_desc, step * 2048 / 16);
        k.wgmma_rs_16(f.type(), f.dv(), f.o_acc.all(), f.p.slice(4 * step, 4), step ? b : v_desc, step ? Operand(1) : Operand(f.o_keep), 1);
      }
    }
    k.wgmma_commit_group();
    k.mov_pred(f.o_keep, 1);
  });
}

// The tensor cores keep about 14 bits of an FP8 sum (DeepSeek-V3 report, 3.3.2): over long rows the small addends are lost.
// Here they sum 128 keys at most, and fp32 adds the blocks: 64 additions a thread and block at head_dim 128.
void emit_promote(ForwardContext& f) {
  if (!f.config.plan.two_level || f.promotes_at_once()) return;
  for (int i = 0; i < f.o_acc.size(); ++i) f.k.add_ftz_f32(f.o_acc[i], f.o_acc[i], f.o_new[i]);
}

void emit_free(ForwardContext& f, const std::string& ring, int empty_offset, int lag) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg position = f.kv_count;
    if (lag) {
      position = k.b32(ring + "_count");
      k.sub_u32(position, f.kv_count, lag);
    }
    RingSlot slot = ring_slot(k, ring, position, ring == "v" ? f.config.plan.v_ring() : f.config.plan.kv_stages);
    Reg bar = ring_barrier(f, ring + "_bar", slot.stage, 0);
    emit_stage_free(f, bar, empty_offset, "one arrival a warp");
  });
}

}  // namespace flashptx::gen
