// mov, vectors packed and unpacked, cvta, mapa, control flow (PTX ISA, "Data Movement", "Control
// Flow"). Next: ops_convert.cpp.
#include "host/emulator/decode.h"
#include "host/emulator/lanes.h"

namespace flashptx::emulator {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

template <class T>
Step copy(Warp& w, const Instr& in, u32 mask) {
  store_lanes(w, in.d, mask, reinterpret_cast<const T*>(w.in(in.a)));
  return Step::next;
}

u64 clock_value(const Machine& m, Special s) {
  // The machine keeps no time: instructions executed stand for cycles, and for nanoseconds.
  switch (s) {
    case Special::clock:
    case Special::globaltimer_lo:
      return m.steps & 0xffffffffu;
    case Special::clock_hi:
    case Special::globaltimer_hi:
      return m.steps >> 32;
    default:
      return m.steps;
  }
}
Step clock_exec(Warp& w, const Instr& in, u32 mask) {
  for (int i = 0; i < 32; ++i)
    if (mask >> i & 1) w.set(in.d, i, clock_value(*w.machine, static_cast<Special>(in.sub)));
  return Step::next;
}

// mov.b64 d, {lo, hi} and mov.b32 d, {a, b, c, d}: the first element is the lowest.
Step pack(Warp& w, const Instr& in, u32 mask) {
  int bits = in.value;
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    u64 v = 0;
    for (std::size_t k = 0; k < in.list.size(); ++k) {
      u64 e = w.get(in.list[k], i);
      if (bits < 64) e &= (u64{1} << bits) - 1;
      v |= e << (bits * static_cast<int>(k));
    }
    w.set(in.d, i, v);
  }
  return Step::next;
}
Step unpack(Warp& w, const Instr& in, u32 mask) {
  int bits = in.value;
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    u64 v = w.get(in.a, i);
    for (std::size_t k = 0; k < in.list.size(); ++k)
      if (in.list[k].present)
        w.set(in.list[k], i,
              v >> (bits * static_cast<int>(k)) & (bits == 64 ? ~u64{0} : (u64{1} << bits) - 1));
  }
  return Step::next;
}

Type of_size(OpDecoder& op, int bytes) {
  switch (bytes) {
    case 1:
      return Type::b8;
    case 2:
      return Type::b16;
    case 4:
      return Type::b32;
    case 8:
      return Type::b64;
    default:
      op.fail("the vector does not divide the type");
  }
}

void mov(OpDecoder& op) {
  Type t = op.take_type({Type::pred, Type::b16, Type::b32, Type::b64, Type::u16, Type::u32,
                         Type::u64, Type::s16, Type::s32, Type::s64, Type::f16, Type::bf16,
                         Type::f16x2, Type::bf16x2, Type::f32, Type::f64});
  op.count(2, 2);
  Instr& in = op.in;
  const AstOperand &d = op.operand(0), &a = op.operand(1);
  if (t == Type::pred) {
    in.d = op.dst(d, t), in.a = op.pred_src(a);
    in.exec = [](Warp& w, const Instr& i, u32 mask) {
      w.set_pred(i.d, mask, w.pred(i.a));
      return Step::next;
    };
    return;
  }
  if (d.kind == AstOperand::Kind::vector || a.kind == AstOperand::Kind::vector) {
    bool packing = a.kind == AstOperand::Kind::vector;
    const auto& items = packing ? a.items : d.items;
    if (packing && d.kind == AstOperand::Kind::vector) op.fail("one side of mov must be a scalar");
    int bytes = type_bytes(t) / static_cast<int>(items.size());
    if (bytes * static_cast<int>(items.size()) != type_bytes(t))
      op.fail("the vector does not divide the type");
    Type e = of_size(op, bytes);
    if (bytes == 1) op.fail("bytes have no registers; use prmt or 16-bit halves");
    in.value = bytes * 8;
    for (const auto& item : items) in.list.push_back(packing ? op.src(item, e) : op.dst(item, e));
    if (packing) in.d = op.dst(d, t);
    else in.a = op.src(a, t);
    in.exec = packing ? pack : unpack;
    return;
  }
  in.d = op.dst(d, t), in.a = op.src(a, t);
  for (int s = static_cast<int>(Special::clock); s < static_cast<int>(Special::count); ++s) {
    if (!in.a.reg || in.a.reg != op.program().special[s]) continue;
    in.sub = static_cast<std::uint8_t>(s);
    in.exec = clock_exec;
    return;
  }
  if (in.a.reg && type_bytes(op.program().registers[in.a.reg].type) > type_bytes(t)) {
    in.exec = [](Warp& w, const Instr& i, u32 mask) {  // mov.u16 of a 32-bit special register
      for (int k = 0; k < 32; ++k)
        if (mask >> k & 1) w.set(i.d, k, w.get(i.a, k) & 0xffff);
      return Step::next;
    };
    return;
  }
  in.exec = type_bytes(t) == 8 ? Exec(copy<u64>) : Exec(copy<u32>);
}

// cvta: between a state space and the generic window. Global addresses are generic addresses.
void cvta(OpDecoder& op) {
  bool to = op.take("to");
  Space space =
      op.take_space({"global", "shared", "shared::cta", "shared::cluster", "param", "const"});
  if (space == Space::generic) op.fail("expected a state space such as .global");
  op.take_type({Type::u64});
  op.count(2, 2);
  Instr& in = op.in;
  in.d = op.dst(0, Type::u64), in.a = op.src(1, Type::u64);
  in.flag = to;
  in.space = space;
  in.exec = [](Warp& w, const Instr& i, u32 mask) {
    u64 window = i.space == Space::global     ? 0
                 : i.space == Space::param    ? generic_param
                 : i.space == Space::constant ? generic_const
                                              : generic_shared;
    bool cluster = i.space == Space::shared;
    for (int k = 0; k < 32; ++k) {
      if (!(mask >> k & 1)) continue;
      u64 a = w.get(i.a, k);
      if (i.space == Space::global) w.set(i.d, k, a);
      else if (i.flag) w.set(i.d, k, cluster ? a & (cluster_stride - 1) : a & 0xffffffffu);
      else w.set(i.d, k, window | a);
    }
    return Step::next;
  };
}

void mapa(OpDecoder& op) {
  Space space = op.take_space({"shared::cluster"});
  Type t = op.take_type({Type::u32, Type::u64});
  op.count(3, 3);
  Instr& in = op.in;
  in.space = space;
  in.type = t;
  in.d = op.dst(0, t), in.a = op.src(1, t), in.b = op.src(2, Type::u32);
  in.exec = [](Warp& w, const Instr& i, u32 mask) {
    for (int k = 0; k < 32; ++k) {
      if (!(mask >> k & 1)) continue;
      u64 a = w.get(i.a, k);
      u32 rank = static_cast<u32>(w.get(i.b, k));
      if (rank >= w.machine->ctas.size())
        w.machine->fault(w, i, k,
                         "names CTA rank " + std::to_string(rank) + " of a cluster of " +
                             std::to_string(w.machine->ctas.size()));
      u64 local = (a & (cluster_stride - 1)) | u64{rank + 1} * cluster_stride;
      w.set(i.d, k, i.space == Space::generic ? generic_shared | local : local);
    }
    return Step::next;
  };
}
void getctarank(OpDecoder& op) {
  Space space = op.take_space({"shared::cluster"});
  Type t = op.take_type({Type::u32, Type::u64});
  op.count(2, 2);
  op.in.space = space;
  op.in.d = op.dst(0, Type::u32), op.in.a = op.src(1, t);
  op.in.exec = [](Warp& w, const Instr& i, u32 mask) {
    for (int k = 0; k < 32; ++k) {
      if (!(mask >> k & 1)) continue;
      u32 rank = static_cast<u32>(w.get(i.a, k)) / cluster_stride;
      w.set(i.d, k, rank ? rank - 1 : w.cta->rank);
    }
    return Step::next;
  };
}
void isspacep(OpDecoder& op) {
  op.in.space =
      op.take_space({"global", "shared", "shared::cta", "shared::cluster", "param", "const"});
  op.count(2, 2);
  op.in.d = op.dst(0, Type::pred), op.in.a = op.src(1, Type::u64);
  op.in.exec = [](Warp& w, const Instr& i, u32 mask) {
    u32 r = 0;
    for (int k = 0; k < 32; ++k) {
      u64 a = w.get(i.a, k);
      bool shared = w.machine->shared_window(a), param = a >> 40 == generic_param >> 40,
           constant = a >> 40 == generic_const >> 40;
      bool yes = i.space == Space::shared           ? shared && (a & 0xffffffffu) < cluster_stride
                 : i.space == Space::shared_cluster ? shared
                 : i.space == Space::param          ? param
                 : i.space == Space::constant       ? constant
                                                    : !shared && !param && !constant;
      r |= static_cast<u32>(yes) << k;
    }
    w.set_pred(i.d, mask, r);
    return Step::next;
  };
}

// ---- control flow ----

Step bra_exec(Warp& w, const Instr& in, u32 mask) {
  Split& s = w.now();
  if (mask == s.mask) {
    s.pc = in.target;
    return Step::jumped;
  }
  Split taken{in.target, mask, Wait::none, false, 0, 0};
  s.mask &= ~mask;
  ++s.pc;
  w.splits.push_back(taken);
  return Step::jumped;
}
void bra(OpDecoder& op) {
  op.take("uni");
  op.count(1, 1);
  op.in.target = op.label(0);
  op.in.exec = bra_exec;
}
Step exit_exec(Warp& w, const Instr& in, u32 mask) {
  Split& s = w.now();
  bool all = mask == s.mask;
  w.machine->exit_lanes(w, mask, in);
  if (!all) ++w.now().pc;
  return Step::jumped;
}
void ret(OpDecoder& op) {
  op.take("uni");
  op.count(0, 0);
  op.in.exec = exit_exec;
}
void trap(OpDecoder& op) {
  op.count(0, 0);
  op.in.exec = [](Warp& w, const Instr& in, u32 mask) -> Step {
    w.machine->fault(w, in, std::countr_zero(mask), "the kernel trapped");
  };
}
void nanosleep(OpDecoder& op) {
  op.take_type({Type::u32});
  op.count(1, 1);
  op.in.a = op.src(0, Type::u32);
  op.in.exec = nothing;
}
void griddepcontrol(OpDecoder& op) {
  op.take_one_of({"wait", "launch_dependents"}, ".wait or .launch_dependents");
  op.count(0, 0);
  op.in.exec = nothing;  // grids run one after the other here
}
void pmevent(OpDecoder& op) {
  op.count(1, 1);
  op.in.exec = nothing;
}

}  // namespace

void register_move_ops(OpTable& t) {
  t["mov"] = mov, t["cvta"] = cvta, t["mapa"] = mapa, t["getctarank"] = getctarank,
  t["isspacep"] = isspacep;
}
void register_control_ops(OpTable& t) {
  t["bra"] = bra, t["ret"] = ret, t["exit"] = ret, t["trap"] = trap, t["nanosleep"] = nanosleep;
  t["griddepcontrol"] = griddepcontrol, t["pmevent"] = pmevent;
}

}  // namespace flashptx::emulator
