// mbarrier.* (PTX ISA, "mbarrier"). Waits sleep until the phase completes; test_wait never does.
//
// A state token is the phase number. Next: machine_mbarrier.cpp for the object, ops_async.cpp for
// who signals it.
#include "host/emulator/decode.h"
#include "host/emulator/lanes.h"

namespace flashptx::emulator {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

// The barrier that one lane names.
struct Named {
  Cta* owner = nullptr;
  u32 address = 0;
};
Named named(Warp& w, const Instr& in, int lane) {
  u64 a = w.get(in.a, lane) + static_cast<u64>(in.offset);
  Machine& m = *w.machine;
  if (in.space == Space::generic) {
    if (!m.shared_window(a))
      m.fault(w, in, lane, "the generic address of the mbarrier is not in shared memory");
    a &= 0xffffffffu;
  }
  Named n;
  n.owner = m.cluster_cta(w, in, lane, static_cast<u32>(a), &n.address);
  m.shared_pointer(w, in, lane, static_cast<u32>(a), 8, nullptr);
  if (n.address % 8)
    m.fault(w, in, lane,
            "the mbarrier address " + std::to_string(n.address) + " is not a multiple of 8");
  return n;
}
template <class F>
Step each_lane(u32 mask, F f) {
  for (int i = 0; i < 32; ++i)
    if (mask >> i & 1) f(i);
  return Step::next;
}

Step init_exec(Warp& w, const Instr& in, u32 mask) {
  return each_lane(mask, [&](int i) {
    Machine& m = *w.machine;
    Named n = named(w, in, i);
    u32 count = static_cast<u32>(w.get(in.b, i));
    if (count == 0 || count >= 1u << 20)
      m.fault(w, in, i, "the arrival count " + std::to_string(count) + " is not in 1 .. 1048575");
    Mbarrier* b = n.owner->mbarrier(n.address);
    if (b && b->live) {
      std::string text = "initialises the mbarrier at " + std::to_string(n.address) +
                         " again without mbarrier.inval";
      Event e{EventKind::mbarrier_misuse};
      e.warp = &w, e.cta = n.owner, e.instr = &in, e.lane = i, e.barrier = n.address,
      e.text = text.c_str();
      m.publish(e);
    }
    if (!b) {
      n.owner->mbarriers.emplace_back();
      n.owner->mbarrier_index[(n.address - shared_origin) / 8] =
          static_cast<std::uint16_t>(n.owner->mbarriers.size());
      b = &n.owner->mbarriers.back();
    }
    *b = Mbarrier{n.address, true, count, count, 0, 0};
    Event e{EventKind::mbarrier_init};
    e.warp = &w, e.cta = n.owner, e.instr = &in, e.lane = i, e.barrier = n.address, e.value = count;
    m.publish(e);
  });
}
Step inval_exec(Warp& w, const Instr& in, u32 mask) {
  return each_lane(mask, [&](int i) {
    Named n = named(w, in, i);
    w.machine->mbarrier_at(w, in, i, *n.owner, n.address).live = false;
    Event e{EventKind::mbarrier_invalidate};
    e.warp = &w, e.cta = n.owner, e.instr = &in, e.lane = i, e.barrier = n.address;
    w.machine->publish(e);
  });
}

// flag: expect_tx first; flag2: drop. c: bytes, b: count.
Step arrive_exec(Warp& w, const Instr& in, u32 mask) {
  return each_lane(mask, [&](int i) {
    Machine& m = *w.machine;
    Named n = named(w, in, i);
    Mbarrier& b = m.mbarrier_at(w, in, i, *n.owner, n.address);
    if (in.d.present) {
      if (n.owner != w.cta) m.fault(w, in, i, "a remote arrive gives no state; write _");
      w.set(in.d, i, b.phase);
    }
    if (in.flag)
      m.mbarrier_expect(w, in, i, *n.owner, b, static_cast<std::int64_t>(w.get(in.c, i)));
    u32 count = in.b.present ? static_cast<u32>(w.get(in.b, i)) : 1;
    if (count == 0) m.fault(w, in, i, "the arrival count 0 is not in 1 .. 1048575");
    if (in.flag2) b.expected -= count;
    m.mbarrier_arrive(w, in, i, *n.owner, b, count);
  });
}
Step expect_exec(Warp& w, const Instr& in, u32 mask) {
  return each_lane(mask, [&](int i) {
    Named n = named(w, in, i);
    Mbarrier& b = w.machine->mbarrier_at(w, in, i, *n.owner, n.address);
    std::int64_t bytes = static_cast<std::int64_t>(w.get(in.c, i));
    w.machine->mbarrier_expect(w, in, i, *n.owner, b, in.flag ? -bytes : bytes);
    if (in.flag) w.machine->mbarrier_check(*n.owner, b, &w, &in);
  });
}

// flag: parity; flag2: may sleep.
Step mbarrier_wait_exec(Warp& w, const Instr& in, u32 mask) {
  Machine& m = *w.machine;
  Split& s = w.now();
  u32 done = 0;
  u64 phases[32] = {};
  u32 addresses[32] = {};
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    Named n = named(w, in, i);
    if (n.owner != w.cta) m.fault(w, in, i, "waits on an mbarrier of another CTA");
    Mbarrier& b = m.mbarrier_at(w, in, i, *n.owner, n.address);
    u64 wanted = w.get(in.b, i);
    if (in.flag && wanted > 1)
      m.fault(w, in, i, "the phase parity " + std::to_string(wanted) + " is neither 0 nor 1");
    bool complete = in.flag ? (b.phase & 1) != wanted : b.phase != wanted;
    done |= static_cast<u32>(complete) << i;
    phases[i] = b.phase;
    addresses[i] = n.address;
  }
  int first = std::countr_zero(mask);
  // A copy may always land a little later than it did: the first answer for each phase is false, so
  // that a program that does not look at the answer is found out, in any turn of a loop. A fresh
  // barrier's preceding phase is no matter of time. test_wait, whose answer may choose between two ways, is refused in every other phase.
  const u32 asked = static_cast<u32>(phases[first] << 18) | (addresses[first] & 0x3ffff);
  const bool refuses = in.flag2 || (phases[first] + addresses[first] / 8) % 2 == 0;
  if (done && refuses && phases[first] != 0 && w.refused[in.pc] != asked) {
    w.refused[in.pc] = asked;
    w.set_pred(in.p, mask, 0);
    return Step::next;
  }
  if (!done && in.flag2 && !s.timed_out && !(m.level > 0 && m.random.below(16) == 0)) {
    s.wait = Wait::mbarrier;
    s.key = addresses[first];
    s.parity = static_cast<u32>(w.get(in.b, first));
    Event e{EventKind::mbarrier_blocked};
    e.warp = &w, e.cta = w.cta, e.instr = &in, e.lane = first, e.barrier = s.key,
    e.value = s.parity;
    m.publish(e);
    return Step::blocked;
  }
  s.timed_out = false;
  if (done && m.observed()) {
    for (int i = first; i < 32; ++i) {
      if (!(done >> i & 1)) continue;
      bool seen = false;
      for (int j = first; j < i; ++j) seen |= (done >> j & 1) && addresses[j] == addresses[i];
      if (seen) continue;
      Event e{EventKind::mbarrier_waited};
      e.warp = &w, e.cta = w.cta, e.instr = &in, e.lane = i, e.lanes = done,
      e.barrier = addresses[i], e.value = phases[i] - 1;
      m.publish(e);
    }
  }
  w.set_pred(in.p, mask, done);
  return Step::next;
}

Space barrier_space(OpDecoder& op, bool remote) {
  op.in.space = remote ? op.take_space({"shared", "shared::cta", "shared::cluster"})
                       : op.take_space({"shared", "shared::cta"});
  op.take_type({Type::b64});
  return op.in.space;
}

void mbarrier(OpDecoder& op) {
  Instr& in = op.in;
  in.work = Work::sync;
  std::string what = op.take_one_of({"init", "inval", "arrive", "arrive_drop", "expect_tx",
                                     "complete_tx", "try_wait", "test_wait"},
                                    "an operation");
  if (what == "init" || what == "inval") {
    Space s = barrier_space(op, false);
    op.count(what == "init" ? 2 : 1, what == "init" ? 2 : 1);
    op.address(op.operand(0), s, &in.a, &in.offset);
    if (what == "init") in.b = op.src(1, Type::u32);
    in.exec = what == "init" ? init_exec : inval_exec;
    return;
  }
  if (what == "arrive" || what == "arrive_drop") {
    in.flag = op.take("expect_tx");
    in.flag2 = what == "arrive_drop";
    op.take("noComplete");
    op.take_optional({"release", "relaxed"});
    op.take_optional({"cta", "cluster"});
    Space s = barrier_space(op, true);
    bool no_result = op.operands() > 0 && op.operand(0).kind == AstOperand::Kind::address;
    int first = no_result ? 0 : 1;
    op.count(first + (in.flag ? 2 : 1), first + 2);
    if (!no_result) in.d = op.dst(0, Type::b64);
    op.address(op.operand(first), s, &in.a, &in.offset);
    if (in.flag) in.c = op.src(first + 1, Type::u32);
    else if (op.operands() > first + 1) in.b = op.src(first + 1, Type::u32);
    in.exec = arrive_exec;
    return;
  }
  if (what == "expect_tx" || what == "complete_tx") {
    in.flag = what == "complete_tx";
    op.take("relaxed");
    op.take_optional({"cta", "cluster"});
    Space s = barrier_space(op, true);
    op.count(2, 2);
    op.address(op.operand(0), s, &in.a, &in.offset);
    in.c = op.src(1, Type::u32);
    in.exec = expect_exec;
    return;
  }
  in.flag2 = what == "try_wait";
  in.flag = op.take("parity");
  op.take_optional({"acquire", "relaxed"});
  op.take_optional({"cta", "cluster"});
  Space s = barrier_space(op, false);
  op.count(3, in.flag2 ? 4 : 3);
  in.p = op.dst(0, Type::pred);
  if (!in.p.present) op.fail("expected a predicate");
  op.address(op.operand(1), s, &in.a, &in.offset);
  in.b = op.src(2, in.flag ? Type::u32 : Type::b64);
  if (op.operands() > 3) op.src(3, Type::u32);
  in.exec = mbarrier_wait_exec;
}

}  // namespace

void register_mbarrier_ops(OpTable& t) { t["mbarrier"] = mbarrier; }

}  // namespace flashptx::emulator
