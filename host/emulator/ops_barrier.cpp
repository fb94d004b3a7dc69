// Named barriers, the cluster barrier, bar.warp.sync, fences, setmaxnreg (PTX ISA, "Parallel
// Synchronization").
//
// A barrier counts threads in whole warps. Who completes it wakes the sleepers, whose splits then
// step past it. Next: ops_mbarrier.cpp.
#include "host/emulator/decode.h"
#include "host/emulator/lanes.h"

namespace flashptx::emulator {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

enum Reduction : std::uint8_t { kNone, kAnd, kOr, kPopc };  // Instr::sub

void barrier_event(EventKind kind, Warp& w, const Instr& in, u32 id, u32 count, bool waits) {
  if (!w.machine->observed()) return;
  Event e{kind};
  e.warp = &w, e.cta = w.cta, e.instr = &in, e.barrier = id, e.count = count, e.flag = waits;
  w.machine->publish(e);
}

// bar.red: what the barrier has counted, to a warp that goes on.
void give_reduction(Warp& w, const Instr& in, u32 mask, const NamedBarrier& b) {
  if (in.sub == kPopc)
    for (int i = 0; i < 32; ++i) {
      if (mask >> i & 1) w.set(in.d, i, b.voted);
    }
  else if (in.sub != kNone) w.set_pred(in.d, mask, (in.sub == kAnd ? b.voted == b.expected : b.voted != 0) ? ~0u : 0);
  for (std::uint16_t r : in.writes) w.state[r].defined |= mask;
}

void complete_barrier(Cta& cta, u32 id, Warp& w, const Instr& in) {
  const NamedBarrier done = cta.barriers[id];
  barrier_event(EventKind::barrier_complete, w, in, id, done.expected, false);
  cta.barriers[id] = {};
  ++w.machine->progress;
  for (Warp* x : cta.warps) {
    for (auto& s : x->splits) {
      if (s.wait != Wait::barrier || s.key != id) continue;
      s.wait = Wait::none;
      give_reduction(*x, w.machine->program.code[s.pc], s.mask, done);
      ++s.pc;
      if (w.machine->counters)
        ++w.machine->counters->executed[x->role_index][s.pc - 1];  // as it goes on, not as it sleeps
      barrier_event(EventKind::barrier_resume, *x, w.machine->program.code[s.pc - 1], id, 0, true);
    }
  }
}

Step bar_exec(Warp& w, const Instr& in, u32 mask) {
  Machine& m = *w.machine;
  int lane = std::countr_zero(mask);
  u32 id = static_cast<u32>(w.get(in.a, lane));
  u32 all = static_cast<u32>(w.cta->warps.size()) * 32;
  u32 count = in.b.present ? static_cast<u32>(w.get(in.b, lane)) : all;
  for (int i = 0; i < 32; ++i)
    if ((mask >> i & 1) && (w.get(in.a, i) != id || (in.b.present && w.get(in.b, i) != count)))
      m.fault(w, in, i, "the lanes of the warp name different barriers or thread counts");
  if (id > 15)
    m.fault(w, in, lane, "barrier " + std::to_string(id) + " does not exist; there are 0 to 15");
  if (count == 0 || count % 32 || count > all)
    m.fault(w, in, lane,
            "the thread count " + std::to_string(count) + " of barrier " + std::to_string(id) +
                " is not a multiple of 32 from 32 to " + std::to_string(all));
  NamedBarrier& b = w.cta->barriers[id];
  if (b.expected && b.expected != count)
    m.fault(w, in, lane,
            "barrier " + std::to_string(id) + " is in use for " + std::to_string(b.expected) +
                " threads, this warp says " + std::to_string(count));
  if (b.expected && b.reduces != in.sub + 1)
    m.fault(w, in, lane, "barrier " + std::to_string(id) + " is in use by another reduction, or by none");
  b.expected = count, b.reduces = static_cast<std::uint8_t>(in.sub + 1);
  if (in.sub != kNone) b.voted += static_cast<u32>(std::popcount(w.pred(in.c) & mask));
  b.arrived += in.aligned || mask == w.live ? 32 : static_cast<u32>(std::popcount(mask));
  barrier_event(EventKind::barrier_arrive, w, in, id, count, !in.flag);
  if (b.arrived > count)
    m.fault(w, in, lane,
            "barrier " + std::to_string(id) + " expects " + std::to_string(count) +
                " threads and gets " + std::to_string(b.arrived));
  if (!in.flag) {
    Split& s = w.now();
    s.wait = Wait::barrier, s.key = id;
    if (b.arrived == count) complete_barrier(*w.cta, id, w, in);
    return Step::blocked;  // complete_barrier has already moved this split past it
  }
  if (b.arrived == count) complete_barrier(*w.cta, id, w, in);
  return Step::next;
}

Step warp_sync_exec(Warp& w, const Instr& in, u32 mask) {
  u32 members = w.u32_in(in.a)[std::countr_zero(mask)];
  if (!w.machine->converge(w, members)) return Step::blocked;
  w.machine->publish(EventKind::warp_sync, w, in);
  return Step::next;
}

void bar(OpDecoder& op) {
  Instr& in = op.in;
  in.work = Work::sync;
  op.take("cta");
  if (op.take("warp")) {
    if (!op.take("sync")) op.fail("expected .sync");
    op.count(1, 1);
    in.a = op.src(0, Type::b32);
    in.exec = warp_sync_exec;
    return;
  }
  in.aligned = op.ast.opcode == "bar";
  std::string what = op.take_one_of({"sync", "arrive", "red"}, ".sync, .arrive or .red");
  if (what == "red") {
    const std::string mode = op.take_one_of({"popc", "and", "or"}, ".popc, .and or .or");
    in.sub = mode == "popc" ? kPopc : mode == "and" ? kAnd : kOr;
    if (op.take("aligned")) in.aligned = true;
    const Type t = op.take_type({in.sub == kPopc ? Type::u32 : Type::pred});
    op.count(3, 4);
    in.d = op.dst(0, t), in.a = op.src(1, Type::u32);
    if (op.operands() > 3) in.b = op.src(2, Type::u32);
    in.c = op.pred_src(op.operand(op.operands() - 1));
    in.exec = bar_exec;
    return;
  }
  if (op.take("aligned")) in.aligned = true;
  in.flag = what == "arrive";
  op.count(in.flag ? 2 : 1, 2);
  in.a = op.src(0, Type::u32);
  if (op.operands() > 1) in.b = op.src(1, Type::u32);
  in.exec = bar_exec;
}

// ---- cluster barrier ----

void cluster_event(EventKind kind, Warp& w, const Instr& in) { w.machine->publish(kind, w, in); }

Step cluster_arrive_exec(Warp& w, const Instr& in, u32 mask) {
  Machine& m = *w.machine;
  auto& state = m.cluster_state[static_cast<std::size_t>(w.id)];
  if (state != 0)
    m.fault(w, in, std::countr_zero(mask),
            "arrives at the cluster barrier again without waiting for the last phase");
  state = 1;
  cluster_event(EventKind::cluster_arrive, w, in);
  bool all = true;
  for (auto& x : m.warps) all &= !x->live || m.cluster_state[static_cast<std::size_t>(x->id)] == 1;
  if (all) {
    cluster_event(EventKind::cluster_complete, w, in);
    for (auto& x : m.warps) {
      if (!x->live) continue;
      m.cluster_state[static_cast<std::size_t>(x->id)] = 2;
      m.wake_warp(*x, Wait::cluster);
    }
  }
  return Step::next;
}
Step cluster_wait_exec(Warp& w, const Instr& in, u32 mask) {
  Machine& m = *w.machine;
  auto& state = m.cluster_state[static_cast<std::size_t>(w.id)];
  if (state == 0)
    m.fault(w, in, std::countr_zero(mask), "waits at the cluster barrier without having arrived");
  if (state == 1) {
    w.now().wait = Wait::cluster;
    return Step::blocked;
  }
  state = 0;
  cluster_event(EventKind::cluster_resume, w, in);
  return Step::next;
}

void barrier(OpDecoder& op) {
  if (!op.take("cluster")) return bar(op);
  Instr& in = op.in;
  in.work = Work::sync;
  std::string what = op.take_one_of({"arrive", "wait"}, ".arrive or .wait");
  if (what == "arrive") op.take_optional({"release", "relaxed"});
  else op.take("acquire");
  in.aligned = op.take("aligned");
  if (!in.aligned) op.fail("only .aligned is implemented");
  op.count(0, 0);
  in.exec = what == "arrive" ? cluster_arrive_exec : cluster_wait_exec;
}

// ---- fences ----

Step fence_event(Warp& w, const Instr& in, u32 mask) {
  if (!w.machine->observed()) return Step::next;
  Event e{static_cast<EventKind>(in.sub)};
  e.warp = &w, e.cta = w.cta, e.instr = &in, e.lanes = mask;
  w.machine->publish(e);
  return Step::next;
}
Step fence_tensormap(Warp& w, const Instr& in, u32 mask) {
  for (int i = 0; i < 32; ++i)
    if (mask >> i & 1)
      w.machine->pointer(w, in, i, Space::generic, w.get(in.a, i) + static_cast<u64>(in.offset),
                         128, false);
  return Step::next;
}

void fence(OpDecoder& op) {
  Instr& in = op.in;
  in.work = Work::sync;
  in.exec = nothing;
  if (op.take("proxy")) {
    if (op.take("tensormap::generic")) {
      std::string how = op.take_one_of({"acquire", "release"}, ".acquire or .release");
      op.take_one_of({"cta", "cluster", "gpu", "sys"}, "a scope");
      if (how == "acquire") {
        op.count(2, 2);
        op.address(op.operand(0), Space::generic, &in.a, &in.offset);
        if (op.need_immediate(1, "the size") != 128) op.fail("the size must be 128");
        in.exec = fence_tensormap;
      } else {
        op.count(0, 0);
      }
      return;
    }
    if (op.take("async")) {
      op.take_optional({"shared::cta", "shared::cluster", "global"});
      bool global = false;
      for (const auto& q : op.ast.qualifiers) global |= q == "global";
      in.sub = static_cast<std::uint8_t>(EventKind::fence_proxy_async);
      if (!global) in.exec = fence_event;
    } else {
      op.take_one_of({"alias", "async::generic", "async.global"}, "a proxy pair");
    }
    op.count(0, 0);
    return;
  }
  if (op.take("mbarrier_init")) {
    if (!op.take("release") || !op.take("cluster")) op.fail("expected .release.cluster");
    in.sub = static_cast<std::uint8_t>(EventKind::fence_mbarrier_init);
    in.exec = fence_event;
  } else {
    op.take_optional({"sc", "acq_rel", "acquire", "release"});
    op.take_one_of({"cta", "cluster", "gpu", "sys"}, "a scope");
  }
  op.count(0, 0);
}
void membar(OpDecoder& op) {
  op.take_one_of({"cta", "gl", "sys"}, "a scope");
  op.count(0, 0);
  op.in.work = Work::sync;
  op.in.exec = nothing;
}

// ---- setmaxnreg: registers move through the CTA's pool, counted per thread of each warp ----

Step setmaxnreg_exec(Warp& w, const Instr& in, u32 mask) {
  Machine& m = *w.machine;
  int lane = std::countr_zero(mask), want = in.value, have = w.register_count;
  if (in.flag ? want < have : want > have)
    m.fault(w, in, lane,
            std::string("setmaxnreg.") + (in.flag ? "inc" : "dec") + " to " + std::to_string(want) +
                " from " + std::to_string(have) + " registers goes the wrong way");
  if (in.flag && want - have > w.cta->free_registers) {
    w.now().wait = Wait::registers;
    return Step::blocked;
  }
  w.cta->free_registers += have - want;
  w.register_count = want;
  w.role = in.flag ? "consumer" : "producer";
  w.role_index = in.flag ? 2 : 1;
  Event e{EventKind::setmaxnreg};
  e.warp = &w, e.cta = w.cta, e.instr = &in, e.value = static_cast<u64>(want), e.flag = in.flag;
  m.publish(e);
  if (!in.flag)
    for (Warp* x : w.cta->warps) m.wake_warp(*x, Wait::registers);
  return Step::next;
}
void setmaxnreg(OpDecoder& op) {
  Instr& in = op.in;
  in.flag = op.take_one_of({"inc", "dec"}, ".inc or .dec") == "inc";
  in.aligned = op.take("aligned");
  if (!op.take("sync") || !in.aligned) op.fail("expected .sync.aligned");
  op.take_type({Type::u32});
  op.count(1, 1);
  u64 n = op.need_immediate(0, "the register count");
  if (n % 8 || n < 24 || n > 256)
    op.fail("count " + std::to_string(n) + " must be a multiple of 8 in [24, 256]");
  in.value = static_cast<int>(n);
  in.work = Work::sync;
  in.exec = setmaxnreg_exec;
  op.program().uses_setmaxnreg = true;
}

}  // namespace

void register_barrier_ops(OpTable& t) {
  t["bar"] = bar, t["barrier"] = barrier, t["fence"] = fence, t["membar"] = membar,
  t["setmaxnreg"] = setmaxnreg;
}

}  // namespace flashptx::emulator
