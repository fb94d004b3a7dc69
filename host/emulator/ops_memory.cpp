// ld, st, atom, red, prefetch, ldmatrix, stmatrix (PTX ISA, "Data Movement and Conversion",
// "Parallel Synchronization").
//
// Lanes are served in order; each access is checked for bounds and alignment, and shared accesses
// are published so that the race checker sees them. Cache hints are accepted and ignored. Next:
// ops_async.cpp for copies that complete later.
#include <atomic>

#include "host/emulator/decode.h"
#include "host/emulator/lanes.h"
#include "host/emulator/numeric.h"

namespace flashptx::emulator {
namespace {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s64 = std::int64_t;

constexpr std::initializer_list<Type> memory_types = {
    Type::b8,  Type::b16, Type::b32, Type::b64,  Type::u8,    Type::u16,
    Type::u32, Type::u64, Type::s8,  Type::s16,  Type::s32,   Type::s64,
    Type::f32, Type::f64, Type::f16, Type::bf16, Type::f16x2, Type::bf16x2};

bool is_shared(const Machine& m, Space space, u64 address) {
  return space == Space::shared || space == Space::shared_cluster ||
         (space == Space::generic && m.shared_window(address));
}

// Publishes the shared accesses of one instruction, one event for each CTA whose memory is touched.
void publish_shared(Warp& w, const Instr& in, u32 mask, const u64* addresses, u32 bytes, bool write,
                    bool atomic) {
  Machine& m = *w.machine;
  u32 local[32], owners[32], n = 0, conflict_addresses[32] = {}, shared_mask = 0;
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1) || !is_shared(m, in.space, addresses[i])) continue;
    u32 a = static_cast<u32>(addresses[i]);
    owners[n] = a / cluster_stride ? a / cluster_stride - 1 : w.cta->rank;
    conflict_addresses[i] = local[n++] = a % cluster_stride;
    shared_mask |= 1u << i;
  }
  if (!n) return;
  if (m.counters && bytes >= 4) {
    BankPasses passes = bank_passes(conflict_addresses, shared_mask, static_cast<int>(bytes));
    m.counters->conflicts[w.role_index][in.pc] += static_cast<u64>(passes.conflicts());
  }
  if (!m.observed()) return;
  for (std::size_t rank = 0; rank < m.ctas.size(); ++rank) {
    u32 list[32], count = 0;
    for (u32 k = 0; k < n; ++k)
      if (owners[k] == rank) list[count++] = local[k];
    if (!count) continue;
    Event e{EventKind::shared_access};
    e.warp = &w, e.cta = m.ctas[rank].get(), e.instr = &in, e.lanes = mask,
    e.lane = std::countr_zero(shared_mask);
    e.write = write, e.atomic = atomic;
    e.addresses = list, e.count = count, e.bytes = bytes;
    m.publish(e);
  }
}

void lane_addresses(Warp& w, const Instr& in, u32 mask, u64* out) {
  for (int i = 0; i < 32; ++i)
    if (mask >> i & 1) out[i] = w.get(in.a, i) + static_cast<u64>(in.offset);
}

u64 load_value(const u8* p, int bytes, Type t) {
  u64 v = 0;
  std::memcpy(&v, p, static_cast<std::size_t>(bytes));
  switch (t) {  // sign-extended into a wider register
    case Type::s8:
      return static_cast<u64>(s64{static_cast<std::int8_t>(v)});
    case Type::s16:
      return static_cast<u64>(s64{static_cast<std::int16_t>(v)});
    case Type::s32:
      return static_cast<u64>(s64{static_cast<std::int32_t>(v)});
    default:
      return v;
  }
}

Step ld_exec(Warp& w, const Instr& in, u32 mask) {
  u64 addresses[32];
  lane_addresses(w, in, mask, addresses);
  int bytes = type_bytes(in.type);
  u32 total = static_cast<u32>(bytes) * in.vec;
  Machine& m = *w.machine;
  const u8* from[32];
  for (int i = 0; i < 32; ++i)
    if (mask >> i & 1) from[i] = m.pointer(w, in, i, in.space, addresses[i], total, false);
  if (in.space == Space::shared || in.space == Space::shared_cluster || in.space == Space::generic)
    publish_shared(w, in, mask, addresses, total, false, false);
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    if (in.vec == 1) {
      w.set(in.d, i, load_value(from[i], bytes, in.type));
    } else {
      for (std::size_t k = 0; k < in.list.size(); ++k)
        if (in.list[k].present)
          w.set(in.list[k], i,
                load_value(from[i] + k * static_cast<std::size_t>(bytes), bytes, in.type));
    }
  }
  return Step::next;
}

Step st_exec(Warp& w, const Instr& in, u32 mask) {
  u64 addresses[32];
  lane_addresses(w, in, mask, addresses);
  std::size_t bytes = static_cast<std::size_t>(type_bytes(in.type));
  u32 total = static_cast<u32>(bytes) * in.vec;
  Machine& m = *w.machine;
  u8* to[32];
  for (int i = 0; i < 32; ++i)
    if (mask >> i & 1) to[i] = m.pointer(w, in, i, in.space, addresses[i], total, true);
  if (in.space == Space::shared || in.space == Space::shared_cluster || in.space == Space::generic)
    publish_shared(w, in, mask, addresses, total, true, false);
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    if (in.vec == 1) {
      u64 v = w.get(in.b, i);
      std::memcpy(to[i], &v, bytes);
    } else {
      for (std::size_t k = 0; k < in.list.size(); ++k) {
        u64 v = w.get(in.list[k], i);
        std::memcpy(to[i] + k * bytes, &v, bytes);
      }
    }
  }
  return Step::next;
}

void take_order_and_cache(OpDecoder& op) {
  op.take_optional({"weak", "volatile", "relaxed", "acquire", "release"});
  op.take_optional({"cta", "cluster", "gpu", "sys"});
}
bool take_hints(OpDecoder& op) {
  op.take("nc");
  op.take_optional({"ca", "cg", "cs", "lu", "cv", "wb", "wt"});
  op.take_optional({"L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last",
                    "L1::no_allocate"});
  op.take_optional(
      {"L2::64B", "L2::128B", "L2::256B", "L2::evict_last", "L2::evict_first", "L2::evict_normal"});
  return op.take("L2::cache_hint");
}
void take_vector(OpDecoder& op) {
  std::string v = op.take_optional({"v2", "v4", "v8"});
  op.in.vec = v == "v2" ? 2 : v == "v4" ? 4 : v == "v8" ? 8 : 1;
}
void check_vector(OpDecoder& op, const AstOperand& o) {
  if (o.kind != AstOperand::Kind::vector || o.items.size() != op.in.vec)
    op.fail_at(o, "expected a vector of " + std::to_string(op.in.vec) + " registers");
  if (type_bytes(op.in.type) * op.in.vec > 16)
    op.fail("a vector has at most 128 bits on this target");
}

void ld(OpDecoder& op) {
  Instr& in = op.in;
  take_order_and_cache(op);
  in.space = op.take_space(
      {"global", "shared", "shared::cta", "shared::cluster", "param", "param::entry", "const"});
  bool hint = take_hints(op);
  take_vector(op);
  in.type = op.take_type(memory_types);
  in.work = Work::memory;
  op.count(hint ? 3 : 2, hint ? 3 : 2);
  if (in.vec == 1) {
    in.d = op.dst(0, in.type, true);
  } else {
    check_vector(op, op.operand(0));
    for (const auto& o : op.operand(0).items) in.list.push_back(op.dst(o, in.type, true));
  }
  op.address(op.operand(1), in.space, &in.a, &in.offset);
  if (hint) op.src(2, Type::b64);
  in.exec = ld_exec;
}
void st(OpDecoder& op) {
  Instr& in = op.in;
  take_order_and_cache(op);
  in.space = op.take_space({"global", "shared", "shared::cta", "shared::cluster"});
  bool hint = take_hints(op);
  take_vector(op);
  in.type = op.take_type(memory_types);
  in.work = Work::memory;
  op.count(hint ? 3 : 2, hint ? 3 : 2);
  op.address(op.operand(0), in.space, &in.a, &in.offset);
  if (in.vec == 1) {
    in.b = op.src(1, in.type, true);
  } else {
    check_vector(op, op.operand(1));
    for (const auto& o : op.operand(1).items) in.list.push_back(op.src(o, in.type, true));
  }
  if (hint) op.src(2, Type::b64);
  in.exec = st_exec;
}

// ---- atomics ----

enum Atom : u8 { a_add, a_min, a_max, a_and, a_or, a_xor, a_exch, a_cas, a_inc, a_dec };

u64 atomic_result(const Instr& in, u64 old, u64 b, u64 c) {
  u32 o32 = static_cast<u32>(old), b32 = static_cast<u32>(b);
  auto pick_min = [&](bool minimum) -> u64 {
    switch (in.type) {
      case Type::s32:
        return (static_cast<std::int32_t>(b32) < static_cast<std::int32_t>(o32)) == minimum ? b32
                                                                                            : o32;
      case Type::u32:
        return (b32 < o32) == minimum ? b32 : o32;
      case Type::s64:
        return (static_cast<s64>(b) < static_cast<s64>(old)) == minimum ? b : old;
      default:
        return (b < old) == minimum ? b : old;
    }
  };
  switch (in.sub) {
    case a_add:
      switch (in.type) {
        case Type::f32:
          return bits_of(
              add_f32(float_of(o32), float_of(b32), {Round::rn, in.space == Space::global, false}));
        case Type::f64:
          return bits_of(double_of(old) + double_of(b));
        case Type::f16x2:
          return add_x2(HalfType::f16, o32, b32);
        case Type::bf16x2:
          return add_x2(HalfType::bf16, o32, b32);
        case Type::f16:
          return add_half(HalfType::f16, static_cast<u16>(old), static_cast<u16>(b));
        case Type::bf16:
          return add_half(HalfType::bf16, static_cast<u16>(old), static_cast<u16>(b));
        default:
          return old + b;
      }
    case a_min:
      return pick_min(true);
    case a_max:
      return pick_min(false);
    case a_and:
      return old & b;
    case a_or:
      return old | b;
    case a_xor:
      return old ^ b;
    case a_exch:
      return b;
    case a_cas:
      return old == b ? c : old;
    case a_inc:
      return o32 >= b32 ? 0 : o32 + 1;
    default:
      return o32 == 0 || o32 > b32 ? b32 : o32 - 1;
  }
}

template <class T>
T atomic_update(u8* p, const Instr& in, u64 b, u64 c) {
  std::atomic_ref<T> cell(*reinterpret_cast<T*>(p));
  T old = cell.load(std::memory_order_relaxed);
  while (!cell.compare_exchange_weak(old, static_cast<T>(atomic_result(in, old, b, c)),
                                     std::memory_order_acq_rel)) {
  }
  return old;
}

Step atom_exec(Warp& w, const Instr& in, u32 mask) {
  u64 addresses[32];
  lane_addresses(w, in, mask, addresses);
  u32 bytes = static_cast<u32>(type_bytes(in.type)), total = bytes * in.vec;
  publish_shared(w, in, mask, addresses, total, true, true);
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    u8* p = w.machine->pointer(w, in, i, in.space, addresses[i], total, true);
    for (u32 k = 0; k < in.vec; ++k) {
      const Operand& source = in.vec == 1 ? in.b : in.list[k];
      u64 b = w.get(source, i), c = in.c.present ? w.get(in.c, i) : 0, old = 0;
      if (bytes == 8) old = atomic_update<u64>(p + k * bytes, in, b, c);
      else if (bytes == 4) old = atomic_update<u32>(p + k * bytes, in, b, c);
      else old = atomic_update<u16>(p + k * bytes, in, b, c);
      if (in.vec == 1 && in.d.present) w.set(in.d, i, old);
    }
  }
  ++w.machine->progress;
  return Step::next;
}

void atomic_op(OpDecoder& op, bool returns) {
  Instr& in = op.in;
  op.take_optional({"relaxed", "acquire", "release", "acq_rel"});
  op.take_optional({"cta", "cluster", "gpu", "sys"});
  in.space = op.take_space({"global", "shared", "shared::cta", "shared::cluster"});
  static const char* names[] = {"add", "min",  "max", "and", "or",
                                "xor", "exch", "cas", "inc", "dec"};
  std::string what = op.take_one_of(
      {"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"}, "an operation");
  for (u8 i = 0; i < 10; ++i)
    if (what == names[i]) in.sub = i;
  op.take("noftz");
  bool hint = op.take("L2::cache_hint");
  take_vector(op);
  Type t = in.type =
      op.take_type({Type::b32, Type::u32, Type::s32, Type::b64, Type::u64, Type::s64, Type::f32,
                    Type::f64, Type::f16x2, Type::bf16x2, Type::f16, Type::bf16, Type::b16});
  if (is_float(t) && in.sub != a_add && in.sub != a_exch)
    op.fail("only .add of floating-point types is implemented");
  if (in.vec > 1 && (returns || !is_float(t)))
    op.fail("vectors belong to red of floating-point types");
  in.work = Work::memory;
  int first = returns ? 1 : 0, n = first + (in.sub == a_cas ? 3 : 2) + (hint ? 1 : 0);
  op.count(n, n);
  if (returns) in.d = op.dst(0, t);
  op.address(op.operand(first), in.space, &in.a, &in.offset);
  if (in.vec > 1) {
    check_vector(op, op.operand(first + 1));
    for (const auto& o : op.operand(first + 1).items) in.list.push_back(op.src(o, t));
  } else {
    in.b = op.src(first + 1, t);
  }
  if (in.sub == a_cas) in.c = op.src(first + 2, t);
  if (hint) op.src(n - 1, Type::b64);
  if (in.space == Space::global || in.space == Space::generic)
    op.program().uses_global_atomics |= returns;
  in.exec = atom_exec;
}

// ---- prefetch and its kin: nothing to do, but the address must be good ----

Step touch_map(Warp& w, const Instr& in, u32 mask) {
  for (int i = 0; i < 32; ++i)
    if (mask >> i & 1)
      w.machine->pointer(w, in, i, in.space, w.get(in.a, i) + static_cast<u64>(in.offset), 64,
                         false);
  return Step::next;
}
void prefetch(OpDecoder& op) {
  Instr& in = op.in;
  in.space = op.take_space({"global", "param", "const"});
  bool map = op.take("tensormap");
  if (!map)
    op.take_one_of({"L1", "L2", "L2::evict_last", "L2::evict_normal"},
                   "a cache level or .tensormap");
  op.count(1, 1);
  op.address(op.operand(0), in.space, &in.a, &in.offset);
  in.exec = map ? touch_map : nothing;
}
void createpolicy(OpDecoder& op) {
  Instr& in = op.in;
  op.take_one_of({"fractional", "range"}, ".fractional");
  op.take_one_of({"L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::evict_unchanged"},
                 "a priority");
  op.ignore({"L2::evict_unchanged"});
  op.take_type({Type::b64});
  op.count(1, 3);
  in.d = op.dst(0, Type::b64);
  in.exec = [](Warp& w, const Instr& i, u32 mask) {
    for (int k = 0; k < 32; ++k)
      if (mask >> k & 1) w.set(i.d, k, 0x14F0000000000000ull);
    return Step::next;
  };
}

// ---- ldmatrix, stmatrix ----

Step matrix_exec(Warp& w, const Instr& in, u32 mask) {
  Machine& m = *w.machine;
  int n = static_cast<int>(in.list.size());
  u8* rows[32];
  u64 addresses[32] = {};
  for (int i = 0; i < 8 * n; ++i) {
    addresses[i] = w.get(in.a, i) + static_cast<u64>(in.offset);
    rows[i] = m.pointer(w, in, i, in.space, addresses[i], 16, in.flag);
    if (!is_shared(m, in.space, addresses[i]))
      m.fault(w, in, i, "the row address is not in shared memory");
  }
  u32 lanes = n == 4 ? ~0u : (1u << (8 * n)) - 1;
  publish_shared(w, in, lanes & mask, addresses, 16, in.flag, false);
  u32* registers[4] = {};
  for (int k = 0; k < n; ++k) registers[k] = w.u32(in.list[static_cast<std::size_t>(k)]);
  if (in.flag) stmatrix(rows, registers, n, in.flag2);
  else ldmatrix(registers, rows, n, in.flag2);
  return Step::next;
}
void matrix_op(OpDecoder& op, bool store) {
  Instr& in = op.in;
  in.aligned = op.take("aligned");
  if (!op.take("sync") || !in.aligned) op.fail("expected .sync.aligned");
  op.take_one_of({"m8n8"}, "the shape .m8n8");
  std::string count = op.take_one_of({"x1", "x2", "x4"}, ".x1, .x2 or .x4");
  in.flag = store;
  in.flag2 = op.take("trans");
  in.space = op.take_space({"shared", "shared::cta"});
  op.take_type({Type::b16});
  op.count(2, 2);
  std::size_t n = count == "x1" ? 1 : count == "x2" ? 2 : 4;
  const AstOperand& list = op.operand(store ? 1 : 0);
  if (list.kind != AstOperand::Kind::vector || list.items.size() != n)
    op.fail_at(list, "expected a vector of " + std::to_string(n) + " registers");
  for (const auto& o : list.items) {
    in.list.push_back(store ? op.src(o, Type::b32) : op.dst(o, Type::b32));
    if (!in.list.back().present || in.list.back().reg == 0) op.fail_at(o, "expected a register");
  }
  op.address(op.operand(store ? 0 : 1), in.space, &in.a, &in.offset);
  in.work = Work::memory;
  in.exec = matrix_exec;
}
void movmatrix_op(OpDecoder& op) {
  Instr& in = op.in;
  in.aligned = op.take("aligned");
  if (!op.take("sync") || !in.aligned || !op.take("m8n8") || !op.take("trans"))
    op.fail("expected .sync.aligned.m8n8.trans.b16");
  op.take_type({Type::b16});
  op.count(2, 2);
  in.d = op.dst(0, Type::b32), in.a = op.src(1, Type::b32);
  in.exec = [](Warp& w, const Instr& i, u32) {
    movmatrix(w.u32(i.d), w.u32_in(i.a));
    return Step::next;
  };
}

}  // namespace

void register_memory_ops(OpTable& t) {
  t["ld"] = ld, t["ldu"] = ld, t["st"] = st;
  t["atom"] = [](OpDecoder& op) { atomic_op(op, true); };
  t["red"] = [](OpDecoder& op) { atomic_op(op, false); };
  t["prefetch"] = prefetch, t["prefetchu"] = prefetch, t["createpolicy"] = createpolicy;
  t["ldmatrix"] = [](OpDecoder& op) { matrix_op(op, false); };
  t["stmatrix"] = [](OpDecoder& op) { matrix_op(op, true); };
  t["movmatrix"] = movmatrix_op;
}

}  // namespace flashptx::emulator
