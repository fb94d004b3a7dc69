// Instructions across the lanes of a warp: shfl, vote, match, redux, elect, activemask, bar.warp
// (PTX ISA, "Data Movement", "Parallel Synchronization"), and mma.sync.
//
// Each waits until the lanes of its member mask stand at the same instruction; then it acts for all
// of them. Next: ops_barrier.cpp.
#include "host/emulator/decode.h"
#include "host/emulator/lanes.h"

namespace flashptx::emulator {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

// Member masks must agree among the lanes and contain the executing lane. False: blocked, waiting
// for lanes.
bool gather(Warp& w, const Instr& in, u32 mask, const Operand& members, u32* out) {
  const u32* m = w.u32_in(members);
  u32 first = m[std::countr_zero(mask)];
  *out = first;
  if (!w.machine->converge(w, first)) return false;
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    if (!(m[i] >> i & 1)) w.machine->fault(w, in, i, "its own lane is not in the member mask");
  }
  u32 missing = first & w.live & ~mask;
  if (missing && w.machine->observed()) {
    Event e{EventKind::divergent_aligned};
    e.warp = &w, e.cta = w.cta, e.instr = &in, e.lanes = mask, e.value = missing;
    w.machine->publish(e);
  }
  return true;
}

Step shfl_exec(Warp& w, const Instr& in, u32 mask) {
  u32 members = 0;
  if (!gather(w, in, mask, in.e, &members)) return Step::blocked;
  const u32 *a = w.u32_in(in.a), *b = w.u32_in(in.b), *c = w.u32_in(in.c);
  u32 out[32] = {}, predicate = 0, undefined = 0;
  for (u32 i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    u32 bval = b[i] & 31, cval = c[i] & 31, segment = c[i] >> 8 & 31;
    u32 max_lane = (i & segment) | (cval & ~segment), min_lane = i & segment;
    u32 j = i;
    bool ok = true;
    switch (in.sub) {
      case 0:
        j = i - bval, ok = static_cast<std::int32_t>(j) >= static_cast<std::int32_t>(max_lane);
        break;  // up
      case 1:
        j = i + bval, ok = j <= max_lane;
        break;  // down
      case 2:
        j = i ^ bval, ok = j <= max_lane;
        break;  // bfly
      default:
        j = min_lane | (bval & ~segment), ok = j <= max_lane;  // idx
    }
    if (!ok) j = i;
    if (!(mask >> j & 1)) undefined |= 1u << i;  // the source lane does not take part
    out[i] = a[j];
    predicate |= static_cast<u32>(ok) << i;
  }
  if (undefined && w.machine->observed()) {
    Event e{EventKind::read_undefined};
    e.warp = &w, e.cta = w.cta, e.instr = &in, e.reg = in.a.reg, e.lanes = undefined,
    e.lane = std::countr_zero(undefined);
    e.text = "the source lane does not take part in the shuffle";
    w.machine->publish(e);
  }
  store_lanes(w, in.d, mask, out);
  if (in.p.present) w.set_pred(in.p, mask, predicate);
  return Step::next;
}
void shfl(OpDecoder& op) {
  Instr& in = op.in;
  if (!op.take("sync")) op.fail("expected .sync");
  std::string mode = op.take_one_of({"up", "down", "bfly", "idx"}, "a mode");
  in.sub = mode == "up" ? 0 : mode == "down" ? 1 : mode == "bfly" ? 2 : 3;
  op.take_type({Type::b32});
  op.count(5, 5);
  const AstOperand& d = op.operand(0);
  if (d.kind == AstOperand::Kind::pair)
    in.d = op.dst(d.items[0], Type::b32), in.p = op.dst(d.items[1], Type::pred);
  else in.d = op.dst(d, Type::b32);
  if (!in.d.present) op.fail("expected a destination register");
  in.a = op.src(1, Type::b32), in.b = op.src(2, Type::b32), in.c = op.src(3, Type::b32),
  in.e = op.src(4, Type::b32);
  in.work = Work::shuffle;
  in.exec = shfl_exec;
}

Step vote_exec(Warp& w, const Instr& in, u32 mask) {
  u32 members = 0;
  if (!gather(w, in, mask, in.b, &members)) return Step::blocked;
  u32 p = w.pred(in.a) & mask;
  if (in.sub == 3) {
    for (int i = 0; i < 32; ++i)
      if (mask >> i & 1) w.set(in.d, i, p);
    return Step::next;
  }
  bool yes = in.sub == 0 ? p == mask : in.sub == 1 ? p != 0 : p == mask || p == 0;
  w.set_pred(in.d, mask, yes ? ~0u : 0);
  return Step::next;
}
void vote(OpDecoder& op) {
  Instr& in = op.in;
  if (!op.take("sync")) op.fail("expected .sync");
  std::string mode = op.take_one_of({"all", "any", "uni", "ballot"}, "a mode");
  in.sub = mode == "all" ? 0 : mode == "any" ? 1 : mode == "uni" ? 2 : 3;
  Type t = op.take_type({in.sub == 3 ? Type::b32 : Type::pred});
  op.count(3, 3);
  in.d = op.dst(0, t), in.a = op.pred_src(op.operand(1)), in.b = op.src(2, Type::b32);
  in.work = Work::shuffle;
  in.exec = vote_exec;
}

Step match_exec(Warp& w, const Instr& in, u32 mask) {
  u32 members = 0;
  if (!gather(w, in, mask, in.b, &members)) return Step::blocked;
  bool all = true;
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    u32 same = 0;
    for (int j = 0; j < 32; ++j)
      same |= static_cast<u32>((mask >> j & 1) && w.get(in.a, i) == w.get(in.a, j)) << j;
    all &= same == mask;
    w.set(in.c, i, same);
  }
  for (int i = 0; i < 32; ++i)
    if (mask >> i & 1) w.set(in.d, i, in.flag ? (all ? mask : 0) : w.get(in.c, i));
  if (in.p.present) w.set_pred(in.p, mask, all ? ~0u : 0);
  return Step::next;
}
void match(OpDecoder& op) {
  Instr& in = op.in;
  in.flag = op.take_one_of({"any", "all"}, ".any or .all") == "all";
  if (!op.take("sync")) op.fail("expected .sync");
  Type t = op.take_type({Type::b32, Type::b64});
  op.count(3, 3);
  const AstOperand& d = op.operand(0);
  if (d.kind == AstOperand::Kind::pair)
    in.d = op.dst(d.items[0], Type::b32), in.p = op.dst(d.items[1], Type::pred);
  else in.d = op.dst(d, Type::b32);
  if (!in.d.present) op.fail("expected a destination register");
  in.a = op.src(1, t), in.b = op.src(2, Type::b32);
  in.c = in.d;
  in.exec = match_exec;
}

Step redux_exec(Warp& w, const Instr& in, u32 mask) {
  u32 members = 0;
  if (!gather(w, in, mask, in.b, &members)) return Step::blocked;
  const u32* a = w.u32_in(in.a);
  bool first = true;
  u32 r = 0;
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    u32 v = a[i];
    auto s = [](u32 x) { return static_cast<std::int32_t>(x); };
    if (first) r = v, first = false;
    else switch (in.sub) {
        case 0:
          r += v;
          break;
        case 1:
          r = in.type == Type::s32 ? (s(v) < s(r) ? v : r) : std::min(v, r);
          break;
        case 2:
          r = in.type == Type::s32 ? (s(v) > s(r) ? v : r) : std::max(v, r);
          break;
        case 3:
          r &= v;
          break;
        case 4:
          r |= v;
          break;
        default:
          r ^= v;
      }
  }
  for (int i = 0; i < 32; ++i)
    if (mask >> i & 1) w.set(in.d, i, r);
  return Step::next;
}
void redux(OpDecoder& op) {
  Instr& in = op.in;
  if (!op.take("sync")) op.fail("expected .sync");
  std::string what = op.take_one_of({"add", "min", "max", "and", "or", "xor"}, "an operation");
  in.sub = what == "add"   ? 0
           : what == "min" ? 1
           : what == "max" ? 2
           : what == "and" ? 3
           : what == "or"  ? 4
                           : 5;
  in.type = in.sub < 3 ? op.take_type({Type::u32, Type::s32}) : op.take_type({Type::b32});
  op.count(3, 3);
  in.d = op.dst(0, in.type), in.a = op.src(1, in.type), in.b = op.src(2, Type::b32);
  in.work = Work::shuffle;
  in.exec = redux_exec;
}

Step elect_exec(Warp& w, const Instr& in, u32 mask) {
  u32 members = 0;
  if (!gather(w, in, mask, in.a, &members)) return Step::blocked;
  // Which lane is elected is not defined; the adversary may take another one, the same each time in
  // one warp.
  u32 candidates = mask & members;
  int leader = std::countr_zero(candidates);
  if (w.machine->level > 0) {
    int skip = static_cast<int>(w.machine->grid.options.seed %
                                static_cast<u64>(std::popcount(candidates)));
    u32 rest = candidates;
    while (skip-- > 0) rest &= rest - 1;
    leader = std::countr_zero(rest);
  }
  if (in.d.present)
    for (int i = 0; i < 32; ++i)
      if (mask >> i & 1) w.set(in.d, i, static_cast<u64>(leader));
  w.set_pred(in.p, mask, 1u << leader);
  return Step::next;
}
void elect(OpDecoder& op) {
  Instr& in = op.in;
  if (!op.take("sync")) op.fail("expected .sync");
  op.count(2, 2);
  const AstOperand& d = op.operand(0);
  if (d.kind != AstOperand::Kind::pair) op.fail_at(d, "expected d|p");
  in.d = op.dst(d.items[0], Type::b32), in.p = op.dst(d.items[1], Type::pred);
  if (!in.p.present) op.fail_at(d, "expected a predicate after |");
  in.a = op.src(1, Type::b32);
  in.exec = elect_exec;
}
void activemask(OpDecoder& op) {
  op.take_type({Type::b32});
  op.count(1, 1);
  op.in.d = op.dst(0, Type::b32);
  op.in.exec = [](Warp& w, const Instr& in, u32 mask) {
    for (int i = 0; i < 32; ++i)
      if (mask >> i & 1) w.set(in.d, i, mask);
    return Step::next;
  };
}

Step mma_exec(Warp& w, const Instr& in, u32) {
  u32 *d[4] = {}, out[4][32];
  const u32 *a[4] = {}, *b[2] = {}, *c[4] = {};
  const auto& l = in.list;
  std::size_t nd = static_cast<std::size_t>(in.mma->d_registers()),
              na = static_cast<std::size_t>(in.mma->a_registers()),
              nb = static_cast<std::size_t>(in.mma->b_registers());
  for (std::size_t i = 0; i < nd; ++i) d[i] = out[i], c[i] = w.u32_in(l[nd + na + nb + i]);
  for (std::size_t i = 0; i < na; ++i) a[i] = w.u32_in(l[nd + i]);
  for (std::size_t i = 0; i < nb; ++i) b[i] = w.u32_in(l[nd + na + i]);
  mma_sync(*in.mma, d, a, b, c);
  for (std::size_t i = 0; i < nd; ++i) store_lanes(w, l[i], ~0u, out[i]);
  return Step::next;
}
MatrixType matrix_type(Type t) {
  return t == Type::f16    ? MatrixType::f16
         : t == Type::bf16 ? MatrixType::bf16
         : t == Type::tf32 ? MatrixType::tf32
         : t == Type::e4m3 ? MatrixType::e4m3
         : t == Type::e5m2 ? MatrixType::e5m2
         : t == Type::s8   ? MatrixType::s8
                           : MatrixType::u8;
}
void mma(OpDecoder& op) {
  Instr& in = op.in;
  in.aligned = op.take("aligned");
  if (!op.take("sync") || !in.aligned) op.fail("expected .sync.aligned");
  std::string shape = op.take_one_of({"m16n8k4", "m16n8k8", "m16n8k16", "m16n8k32"}, "a shape");
  if (!op.take("row") || !op.take("col")) op.fail("expected .row.col");
  in.mma = std::make_unique<MmaOp>();
  in.mma->k = std::stoi(shape.substr(6));
  in.mma->saturate = op.take("satfinite");
  Type d = op.take_type({Type::f32, Type::f16, Type::s32});
  static constexpr std::initializer_list<Type> inputs = {
      Type::f16, Type::bf16, Type::tf32, Type::e4m3, Type::e5m2, Type::s8, Type::u8};
  Type a = op.take_type(inputs), b = op.take_type(inputs),
       c = op.take_type({Type::f32, Type::f16, Type::s32});
  if (c != d) op.fail("accumulators of different types are not implemented");
  in.mma->a_type = matrix_type(a), in.mma->b_type = matrix_type(b);
  in.mma->d_type = d == Type::f32   ? AccumulatorType::f32
                   : d == Type::f16 ? AccumulatorType::f16
                                    : AccumulatorType::s32;
  if (Status s = check_mma(*in.mma); !s.ok()) op.fail(s.message);
  op.count(4, 4);
  int sizes[4] = {in.mma->d_registers(), in.mma->a_registers(), in.mma->b_registers(),
                  in.mma->d_registers()};
  for (int k = 0; k < 4; ++k) {
    const AstOperand& v = op.operand(k);
    if (v.kind != AstOperand::Kind::vector || static_cast<int>(v.items.size()) != sizes[k])
      op.fail_at(v, "expected a vector of " + std::to_string(sizes[k]) + " registers");
    for (const auto& o : v.items)
      in.list.push_back(k == 0 ? op.dst(o, Type::b32) : op.src(o, Type::b32));
  }
  in.exec = mma_exec;
}

}  // namespace

void register_warp_ops(OpTable& t) {
  t["shfl"] = shfl, t["vote"] = vote, t["match"] = match, t["redux"] = redux, t["elect"] = elect;
  t["activemask"] = activemask, t["mma"] = mma;
}

}  // namespace flashptx::emulator
