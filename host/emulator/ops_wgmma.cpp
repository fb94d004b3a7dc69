// wgmma.* (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"): issue, groups, waits,
// registers in flight.
//
// The four warps of a warpgroup issue one entry together; it runs (tensor_core.h) when the last of
// them has issued it or, for the adversary, as late as a wait that covers it. Registers are in
// flight for a warp until its own wait. Next: tensor_core.h.
#include "host/emulator/decode.h"
#include "host/emulator/lanes.h"

namespace flashptx::emulator {

// Runs entries in order up to and including sequence number `through`.
void Machine::execute_wgmma(Cta& cta, int group, std::uint32_t through) {
  Warpgroup& g = cta.warpgroups[static_cast<std::size_t>(group)];
  while (g.executed <= through && g.executed - g.first < g.entries.size()) {
    WgmmaEntry& entry = g.entries[g.executed - g.first];
    if (entry.issued != 15) return;
    WgmmaOp op = *entry.instr->wgmma;
    op.a_descriptor = entry.a_descriptor, op.b_descriptor = entry.b_descriptor,
    op.scale_d = entry.scale_d;
    op.narrow_accumulator =
        grid.options.fp8_narrow_accumulator && matrix_element_bytes(op.a_type) == 1;
    WarpFragments fragments[4];
    const Instr& in = *entry.instr;
    for (std::size_t w = 0; w < 4; ++w) {
      Warp& warp = *cta.warps[static_cast<std::size_t>(group) * 4 + w];
      for (std::size_t i = 0; i < in.list.size(); ++i) fragments[w].d[i] = warp.u32(in.list[i]);
      for (std::size_t i = 0; i < in.list2.size(); ++i)
        fragments[w].a[i] = warp.u32_in(in.list2[i]);
    }
    SharedView view{cta.shared.data(), shared_origin,
                    static_cast<std::uint32_t>(cta.shared.size())};
    Status s = wgmma(op, view, fragments);
    if (!s.ok()) fault(*cta.warps[static_cast<std::size_t>(group) * 4], in, -1, s.message);
    entry.executed = true;
    ++g.executed;
    ++progress;
  }
}

namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

Warpgroup& group_of(Warp& w) { return w.cta->warpgroups[static_cast<std::size_t>(w.index / 4)]; }

void need_warpgroup(Warp& w, const Instr& in) {
  if (static_cast<std::size_t>(w.index / 4 * 4 + 4) > w.cta->warps.size() || w.live != ~0u)
    w.machine->fault(w, in, 0, "needs a full warpgroup of four warps with 32 threads each");
}

Step fence_exec(Warp& w, const Instr& in, u32) {
  need_warpgroup(w, in);
  for (auto& st : w.state) st.flags &= static_cast<std::uint8_t>(~touched);
  w.wgmma_fenced = true;
  w.machine->publish(EventKind::wgmma_fence, w, in);
  return Step::next;
}

void register_event(EventKind kind, Warp& w, const Instr& in, std::uint16_t reg, u64 value,
                    u64 value2) {
  Event e{kind};
  e.warp = &w, e.cta = w.cta, e.instr = &in, e.reg = reg, e.lanes = ~0u, e.value = value,
  e.value2 = value2;
  w.machine->publish(e);
}

// Accumulators and A registers as the instruction finds them, and marks them.
void use_registers(Warp& w, const Instr& in, u32 sequence, bool scale_d) {
  bool observed = w.machine->observed();
  if (!w.wgmma_fenced && observed) register_event(EventKind::wgmma_unfenced, w, in, 0, 0, 0);
  auto look = [&](const Operand& o, bool accumulator) {
    RegisterState& st = w.state[o.reg];
    if (observed) {
      if (st.flags & touched)
        register_event(EventKind::wgmma_unfenced, w, in, o.reg, accumulator ? 1 : 2, 0);
      if ((!accumulator || scale_d) && st.defined != ~0u) {
        Event e{EventKind::read_undefined};
        e.warp = &w, e.cta = w.cta, e.instr = &in, e.reg = o.reg, e.lanes = ~st.defined,
        e.lane = std::countr_zero(e.lanes);
        w.machine->publish(e);
      }
      // A in flight as an accumulator of an earlier wgmma, or D in flight as an A operand: no order
      // between them.
      if ((!accumulator && (st.flags & in_flight_d)) || (accumulator && (st.flags & in_flight_a))) {
        Event e{EventKind::touch_in_flight};
        e.warp = &w, e.cta = w.cta, e.instr = &in, e.reg = o.reg, e.lanes = ~0u,
        e.write = accumulator;
        e.value = accumulator ? 2 : 1, e.value2 = (accumulator ? st.last_a : st.last_d) - 1;
        w.machine->publish(e);
      }
    }
    if (accumulator) {
      st.flags |= in_flight_d;
      st.last_d = sequence + 1;
      st.defined = ~0u;
    } else {
      st.flags |= in_flight_a;
      st.last_a = sequence + 1;
    }
  };
  for (const auto& o : in.list2) look(o, false);
  for (const auto& o : in.list) look(o, true);
}

void publish_reads(Warp& w, const Instr& in, const WgmmaEntry& entry) {
  Machine& m = *w.machine;
  if (!m.observed()) return;
  WgmmaOp op = *in.wgmma;
  op.a_descriptor = entry.a_descriptor, op.b_descriptor = entry.b_descriptor;
  u32 chunks[512];
  Event e{EventKind::wgmma_read};
  e.warp = w.cta->warps[static_cast<std::size_t>(w.index / 4 * 4)];
  e.cta = w.cta, e.instr = &in, e.value = entry.group, e.bytes = 16, e.addresses = chunks;
  if (!op.a_in_registers) {
    SharedOperand a = op.a_operand();
    e.flag = true;
    e.value2 = a.mn_major;
    e.count = static_cast<u32>(operand_chunks(a, chunks));
    m.publish(e);
  }
  e.flag = false;
  e.count = static_cast<u32>(operand_chunks(op.b_operand(), chunks));
  m.publish(e);
}

Step mma_async_exec(Warp& w, const Instr& in, u32) {
  Machine& m = *w.machine;
  need_warpgroup(w, in);
  auto uniform = [&](const Operand& o, const char* what) {
    u64 v = w.get(o, 0);
    for (int i = 1; i < 32; ++i)
      if (w.get(o, i) != v)
        m.fault(w, in, i, std::string(what) + " differs between the lanes of the warp");
    return v;
  };
  WgmmaEntry mine;
  mine.instr = &in;
  if (!in.wgmma->a_in_registers) mine.a_descriptor = uniform(in.a, "the A descriptor");
  mine.b_descriptor = uniform(in.b, "the B descriptor");
  u32 p = w.pred(in.c);
  if (p != 0 && p != ~0u) m.fault(w, in, 0, "scale-d differs between the lanes of the warp");
  mine.scale_d = p != 0;
  mine.group = w.wgmma_committed;
  w.wgmma_open = true;

  Warpgroup& g = group_of(w);
  u32 sequence = w.wgmma_next++;
  if (sequence - g.first == g.entries.size()) {
    WgmmaOp op = *in.wgmma;
    op.a_descriptor = mine.a_descriptor, op.b_descriptor = mine.b_descriptor;
    Status s = check_wgmma(
        op, {w.cta->shared.data(), shared_origin, static_cast<u32>(w.cta->shared.size())});
    if (!s.ok()) m.fault(w, in, -1, s.message);
    g.entries.push_back(mine);
  }
  WgmmaEntry& entry = g.entries[sequence - g.first];
  if (entry.instr != &in || entry.a_descriptor != mine.a_descriptor ||
      entry.b_descriptor != mine.b_descriptor || entry.scale_d != mine.scale_d ||
      entry.group != mine.group) {
    std::string what =
        entry.instr != &in ? "another warp of this warpgroup issues the wgmma of line " +
                                 std::to_string(entry.instr->line) + " at this point"
        : entry.group != mine.group
            ? "the warps of this warpgroup have committed different numbers of groups"
            : "descriptor or scale-d differs between the warps of this warpgroup";
    Event e{EventKind::wgmma_mismatch};
    e.warp = &w, e.cta = w.cta, e.instr = &in, e.text = what.c_str();
    m.publish(e);
    m.fault(w, in, -1, what);
  }
  use_registers(w, in, sequence, entry.scale_d);
  entry.issued |= static_cast<std::uint8_t>(1u << (w.index & 3));
  if (entry.issued != 15) return Step::next;
  Event e{EventKind::wgmma_issue};
  e.warp = &w, e.cta = w.cta, e.instr = &in, e.value = entry.group, e.value2 = sequence;
  m.publish(e);
  publish_reads(w, in, entry);
  for (int k = 0; k < 4; ++k)
    m.wake_warp(*w.cta->warps[static_cast<std::size_t>(w.index / 4 * 4 + k)], Wait::wgmma);
  bool now = m.level == 0 || (m.level >= 2 && m.random.below(2));
  if (now) m.execute_wgmma(*w.cta, w.index / 4, sequence);
  return Step::next;
}

Step wgmma_commit_exec(Warp& w, const Instr& in, u32) {
  need_warpgroup(w, in);
  w.machine->publish(EventKind::wgmma_commit, w, in, 0, w.wgmma_committed);
  ++w.wgmma_committed;
  w.wgmma_open = false;
  return Step::next;
}

void retire(Warp& w, u32 end) {
  Warpgroup& g = group_of(w);
  for (u32 s = w.wgmma_retired; s < end; ++s) {
    const Instr& in = *g.entries[s - g.first].instr;
    for (const auto& o : in.list)
      if (w.state[o.reg].last_d == s + 1)
        w.state[o.reg].flags &= static_cast<std::uint8_t>(~in_flight_d);
    for (const auto& o : in.list2)
      if (w.state[o.reg].last_a == s + 1)
        w.state[o.reg].flags &= static_cast<std::uint8_t>(~in_flight_a);
  }
  w.wgmma_retired = std::max(w.wgmma_retired, end);
  u32 all = ~0u;
  for (int k = 0; k < 4; ++k)
    all = std::min(all, w.cta->warps[static_cast<std::size_t>(w.index / 4 * 4 + k)]->wgmma_retired);
  while (g.first < all) g.entries.pop_front(), ++g.first;
}

Step wgmma_wait_exec(Warp& w, const Instr& in, u32) {
  need_warpgroup(w, in);
  Machine& m = *w.machine;
  Warpgroup& g = group_of(w);
  u32 n = static_cast<u32>(in.value);
  u32 complete =
      w.wgmma_committed > n ? w.wgmma_committed - n : 0;  // groups below this one must be complete
  u32 end = w.wgmma_retired;
  while (end < w.wgmma_next && g.entries[end - g.first].group < complete) ++end;
  for (u32 s = w.wgmma_retired; s < end; ++s) {
    if (g.entries[s - g.first].issued == 15) continue;
    w.now().wait = Wait::wgmma;
    return Step::blocked;
  }
  if (end > w.wgmma_retired) {
    m.execute_wgmma(*w.cta, w.index / 4, end - 1);
    retire(w, end);
  }
  m.publish(EventKind::wgmma_waited, w, in, 0, complete);
  return Step::next;
}

void mma_async(OpDecoder& op) {
  Instr& in = op.in;
  in.wgmma = std::make_unique<WgmmaOp>();
  WgmmaOp& g = *in.wgmma;
  const std::string shape = op.peek_qualifier();
  std::size_t k_at = shape.find('k');
  if (shape.rfind("m64n", 0) != 0 || k_at == std::string::npos || k_at < 5 || k_at > 7)
    op.fail("expected a shape such as .m64n128k16, got ." + shape);
  for (std::size_t i = 4; i < shape.size(); ++i)
    if (i != k_at && (shape[i] < '0' || shape[i] > '9'))
      op.fail("expected a shape such as .m64n128k16, got ." + shape);
  if (shape.size() - k_at > 4 || shape.size() - k_at < 2)
    op.fail("expected a shape such as .m64n128k16, got ." + shape);
  g.n = std::stoi(shape.substr(4, k_at - 4));
  op.take(shape.c_str());
  // The accumulator's type stands first; .f16 may be any of the three.
  std::vector<std::string> types;
  for (const auto& q : op.ast.qualifiers)
    if (q == "f32" || q == "f16" || q == "s32" || q == "bf16" || q == "tf32" || q == "e4m3" ||
        q == "e5m2" || q == "s8" || q == "u8")
      types.push_back(q);
  if (types.size() != 3) op.fail("expected three types: D, A, B");
  std::string d = op.take_one_of({types[0].c_str()}, "the accumulator's type");
  if (d != "f32" && d != "f16" && d != "s32")
    op.fail("the accumulator is .f32, .f16 or .s32, got ." + d);
  g.d_type = d == "f32"   ? AccumulatorType::f32
             : d == "f16" ? AccumulatorType::f16
                          : AccumulatorType::s32;
  // Equal types are taken one by one in order.
  auto take_input = [&](const std::string& t) {
    if (!op.take(t.c_str())) op.fail("expected an input type");
    return t == "f16"    ? MatrixType::f16
           : t == "bf16" ? MatrixType::bf16
           : t == "tf32" ? MatrixType::tf32
           : t == "e4m3" ? MatrixType::e4m3
           : t == "e5m2" ? MatrixType::e5m2
           : t == "s8"   ? MatrixType::s8
                         : MatrixType::u8;
  };
  if (types[1] == "f32" || types[1] == "s32" || types[2] == "f32" || types[2] == "s32")
    op.fail("the inputs are .f16, .bf16, .tf32, .e4m3, .e5m2, .s8 or .u8");
  g.a_type = take_input(types[1]);
  g.b_type = take_input(types[2]);
  g.saturate = op.take("satfinite");
  if (std::stoi(shape.substr(k_at + 1)) != g.k())
    op.fail("this type has k" + std::to_string(g.k()) + ", got ." + shape);
  bool transposable = g.a_type == MatrixType::f16 || g.a_type == MatrixType::bf16;
  bool integer = g.d_type == AccumulatorType::s32;

  const AstOperand& dv = op.operand(0);
  if (dv.kind != AstOperand::Kind::vector || static_cast<int>(dv.items.size()) != g.d_registers())
    op.fail_at(dv, "expected a vector of " + std::to_string(g.d_registers()) +
                       " accumulator registers, got " + std::to_string(dv.items.size()));
  for (const auto& o : dv.items) {
    in.list.push_back(op.dst(o, Type::b32));
    if (!in.list.back().present) op.fail_at(o, "expected a register");
  }
  const AstOperand& av = op.operand(1);
  g.a_in_registers = av.kind == AstOperand::Kind::vector;
  if (g.a_in_registers) {
    if (av.items.size() != 4)
      op.fail_at(av, "expected four A registers, got " + std::to_string(av.items.size()));
    for (const auto& o : av.items) in.list2.push_back(op.src(o, Type::b32));
    for (const auto& o : in.list2)
      if (!o.reg) op.fail_at(av, "A is in registers, not in constants");
  }
  in.reads.clear(), in.writes.clear();  // these registers have rules of their own
  if (in.guard) in.reads.push_back(in.guard);
  if (!g.a_in_registers) in.a = op.src(1, Type::b64);
  in.b = op.src(2, Type::b64);
  in.c = op.pred_src(op.operand(3));
  int trans = transposable ? (g.a_in_registers ? 1 : 2) : 0, n = 4 + (integer ? 0 : 2) + trans;
  op.count(n, n);
  if (!integer) {
    for (int i = 4; i < 6; ++i) {
      u64 v = op.need_immediate(i, "the input scale");
      if (v != 1 && v != ~u64{0}) op.fail_at(op.operand(i), "the input scale is 1 or -1");
    }
    g.a_negate = op.operand(4).bits != 1, g.b_negate = op.operand(5).bits != 1;
  }
  for (int i = 6; i < n; ++i)
    if (op.need_immediate(i, "the transposition") > 1)
      op.fail_at(op.operand(i), "the transposition is 0 or 1");
  if (trans == 2) g.a_mn_major = op.operand(6).bits != 0;
  if (trans) g.b_mn_major = op.operand(n - 1).bits != 0;
  in.work = Work::wgmma;
  in.exec = mma_async_exec;
}

void wgmma_op(OpDecoder& op) {
  Instr& in = op.in;
  std::string what =
      op.take_one_of({"mma_async", "fence", "commit_group", "wait_group"}, "an operation");
  in.aligned = op.take("aligned");
  if (!op.take("sync") || !in.aligned) op.fail("expected .sync.aligned");
  in.work = Work::sync;
  if (what == "mma_async") {
    mma_async(op);
  } else if (what == "fence") {
    op.count(0, 0);
    in.exec = fence_exec;
  } else if (what == "commit_group") {
    op.count(0, 0);
    in.exec = wgmma_commit_exec;
  } else {
    op.count(1, 1);
    u64 n = op.need_immediate(0, "the number of groups");
    if (n > 7) op.fail("wait_group " + std::to_string(n) + " is above 7");
    in.value = static_cast<int>(n);
    in.exec = wgmma_wait_exec;
  }
}

}  // namespace

void register_wgmma_ops(OpTable& t) { t["wgmma"] = wgmma_op; }

}  // namespace flashptx::emulator
