// Copies that complete later: TMA tensors, bulk copies, reductions, cp.async, and tensor maps
// edited on the device (PTX ISA, "Asynchronous copy", "Tensor operations").
//
// An instruction decodes into an AsyncOp for each lane and hands it to Machine::issue, which lands
// it now or keeps it for the adversary. Waiting for a group sleeps until none of its copies is
// left. Next: machine_async.cpp (landing), tensor_map.h (the box).
#include "host/emulator/decode.h"
#include "host/emulator/lanes.h"

namespace flashptx::emulator {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;
using Kind = AsyncOp::Kind;

u64 value(Warp& w, const Operand& o, std::int64_t offset, int lane) {
  return w.get(o, lane) + static_cast<u64>(offset);
}

// A shared address operand: 32 bits, or a generic one.
u32 shared_value(Warp& w, const Instr& in, const Operand& o, std::int64_t offset, int lane) {
  u64 a = value(w, o, offset, lane);
  if (o.width == 8 && w.machine->shared_window(a)) a &= 0xffffffffu;
  if (a > 0xffffffffu) w.machine->fault(w, in, lane, "expected a shared address");
  return static_cast<u32>(a);
}

// Operands of a copy: in.a/offset = destination or map, in.b = source (offset in value), list =
// coordinates, in.c = size, in.e = mbarrier (offset in target), in.f = CTA mask. sub =
// AsyncOp::Kind, sub2 = reduction.
Step copy_exec(Warp& w, const Instr& in, u32 mask) {
  Machine& m = *w.machine;
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    AsyncOp op;
    op.kind = static_cast<Kind>(in.sub);
    op.warp = &w, op.instr = &in, op.lane = i;
    op.group = static_cast<u32>(w.bulk_committed[i]);
    bool tensor = op.kind == Kind::tensor_load || op.kind == Kind::tensor_store ||
                  op.kind == Kind::tensor_reduce;
    bool into_shared =
        op.kind == Kind::tensor_load || op.kind == Kind::bulk_load || op.kind == Kind::dsmem_copy;
    if (tensor) {
      const Operand& map = into_shared ? in.b : in.a;
      std::int64_t map_offset = into_shared ? in.value : in.offset;
      u64 address = value(w, map, map_offset, i);
      if (address % 64) m.fault(w, in, i, "the tensor map's address is not a multiple of 64");
      std::memcpy(op.map, m.pointer(w, in, i, Space::generic, address, 64, false), 64);
      std::memcpy(op.map + 64, m.pointer(w, in, i, Space::generic, address + 64, 64, false), 64);
      for (std::size_t k = 0; k < in.list.size(); ++k)
        op.coordinates[k] = static_cast<std::int32_t>(w.get(in.list[k], i));
      op.shared =
          shared_value(w, in, into_shared ? in.a : in.b, into_shared ? in.offset : in.value, i);
    } else {
      op.bytes = static_cast<u32>(w.get(in.c, i));
      op.shared =
          shared_value(w, in, into_shared ? in.a : in.b, into_shared ? in.offset : in.value, i);
      op.global = value(w, into_shared ? in.b : in.a, into_shared ? in.value : in.offset, i);
      if (op.kind == Kind::dsmem_copy) op.global = shared_value(w, in, in.b, in.value, i);
    }
    if (into_shared) {
      op.barrier = shared_value(w, in, in.e, static_cast<std::int32_t>(in.target), i);
      if (in.f.present) op.cta_mask = static_cast<u32>(w.get(in.f, i)) & 0xffff;
    } else {
      w.bulk_open[i] = true;
    }
    m.issue(std::move(op));
  }
  return Step::next;
}

Step bulk_commit_exec(Warp& w, const Instr& in, u32 mask) {
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    Event e{EventKind::bulk_commit};
    e.warp = &w, e.cta = w.cta, e.instr = &in, e.lane = i, e.value = w.bulk_committed[i];
    w.machine->publish(e);
    ++w.bulk_committed[i];
    w.bulk_open[i] = false;
  }
  return Step::next;
}
Step bulk_wait_exec(Warp& w, const Instr& in, u32 mask) {
  Machine& m = *w.machine;
  u64 n = static_cast<u64>(in.value);
  for (const AsyncOp& op : m.pending) {
    if (op.warp != &w || !(mask >> op.lane & 1)) continue;
    if (op.kind != Kind::tensor_store && op.kind != Kind::tensor_reduce &&
        op.kind != Kind::bulk_store && op.kind != Kind::bulk_reduce)
      continue;
    u64 committed = w.bulk_committed[op.lane];
    if (committed > n && op.group < committed - n && !(in.flag && op.read_done)) {
      w.now().wait = Wait::bulk;
      return Step::blocked;
    }
  }
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    Event e{EventKind::bulk_waited};
    e.warp = &w, e.cta = w.cta, e.instr = &in, e.lane = i, e.flag = in.flag;
    e.value = w.bulk_committed[i] > n ? w.bulk_committed[i] - n : 0;
    m.publish(e);
  }
  return Step::next;
}

// ---- cp.async ----

Step cp_async_exec(Warp& w, const Instr& in, u32 mask) {
  Machine& m = *w.machine;
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    AsyncOp op;
    op.kind = Kind::cp_async;
    op.warp = &w, op.instr = &in, op.lane = i, op.group = w.cp_async_committed;
    op.shared = shared_value(w, in, in.a, in.offset, i);
    op.global = value(w, in.b, in.value, i);
    op.bytes = op.valid_bytes = in.vec;
    if (in.c.present) op.valid_bytes = static_cast<u32>(w.get(in.c, i));
    if (op.valid_bytes > op.bytes)
      m.fault(w, in, i,
              "src-size " + std::to_string(op.valid_bytes) + " is above cp-size " +
                  std::to_string(op.bytes));
    m.issue(std::move(op));
  }
  return Step::next;
}
Step cp_commit_exec(Warp& w, const Instr& in, u32) {
  w.machine->publish(EventKind::cp_async_commit, w, in, 0, w.cp_async_committed);
  ++w.cp_async_committed;
  return Step::next;
}
Step cp_wait_exec(Warp& w, const Instr& in, u32 mask) {
  Machine& m = *w.machine;
  u32 n = static_cast<u32>(in.value);
  u32 complete = in.flag                    ? w.cp_async_committed + 1
                 : w.cp_async_committed > n ? w.cp_async_committed - n
                                            : 0;
  for (const AsyncOp& op : m.pending) {
    if (op.warp != &w || op.kind != Kind::cp_async || !(mask >> op.lane & 1) ||
        op.group >= complete)
      continue;
    w.now().wait = Wait::cp_async;
    return Step::blocked;
  }
  m.publish(EventKind::cp_async_waited, w, in, 0, complete);
  return Step::next;
}
Step cp_arrive_exec(Warp& w, const Instr& in, u32 mask) {
  Machine& m = *w.machine;
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    AsyncOp op;
    op.kind = Kind::cp_async_arrive;
    op.warp = &w, op.instr = &in, op.lane = i;
    op.barrier = shared_value(w, in, in.a, in.offset, i);
    Mbarrier& b = m.mbarrier_at(w, in, i, *w.cta, op.barrier);
    if (!in.flag) ++b.pending;  // without .noinc the arrival is one more than the barrier expects
    Event e{EventKind::cp_async_arrive};
    e.warp = &w, e.cta = w.cta, e.instr = &in, e.lane = i, e.barrier = op.barrier,
    e.value = b.phase;
    m.publish(e);
    m.issue(std::move(op));
  }
  return Step::next;
}

// ---- decoding ----

void shared_operand(OpDecoder& op, int i, Operand* base, std::int64_t* offset) {
  op.address(op.operand(i), Space::shared_cluster, base, offset);
}

int dimensions(OpDecoder& op) {
  std::string d = op.take_one_of({"1d", "2d", "3d", "4d", "5d"}, "a dimension");
  return d[0] - '0';
}
// [map, {c0, ...}]
void map_operand(OpDecoder& op, int i, int rank, Operand* base, std::int64_t* offset) {
  const AstOperand& o = op.operand(i);
  if (o.kind != AstOperand::Kind::address || o.items.size() != 2 ||
      o.items[1].kind != AstOperand::Kind::vector)
    op.fail_at(o, "expected a tensor map and coordinates, [map, {c0, ...}]");
  if (static_cast<int>(o.items[1].items.size()) != rank)
    op.fail_at(o, "expected " + std::to_string(rank) + " coordinates, got " +
                      std::to_string(o.items[1].items.size()));
  AstOperand base_only = o;
  base_only.items.resize(1);
  op.address(base_only, Space::generic, base, offset);
  for (const auto& c : o.items[1].items) op.in.list.push_back(op.src(c, Type::s32));
}

std::uint8_t reduction(OpDecoder& op) {
  static const char* names[] = {"add", "min", "max", "inc", "dec", "and", "or", "xor"};
  std::string s =
      op.take_one_of({"add", "min", "max", "inc", "dec", "and", "or", "xor"}, "a reduction");
  for (std::uint8_t k = 0; k < 8; ++k)
    if (s == names[k]) return k;
  return 0;
}

void tensor_copy(OpDecoder& op, bool reduce) {
  Instr& in = op.in;
  int rank = dimensions(op);
  in.work = Work::tma;
  if (op.take("im2col")) op.fail("im2col copies are not implemented");
  op.take("tile");
  bool hint = op.take("L2::cache_hint");
  std::int64_t offset = 0;
  bool store = false;
  for (const auto& q : op.ast.qualifiers) store |= q == "bulk_group";
  if (!reduce && !store) {
    op.take_one_of({"shared::cluster", "shared::cta"}, "a destination");
    if (!op.take("global") || !op.take("mbarrier::complete_tx::bytes"))
      op.fail("expected .global and .mbarrier::complete_tx::bytes");
    bool multicast = op.take("multicast::cluster");
    int n = 3 + multicast + hint;
    op.count(n, n);
    in.sub = static_cast<std::uint8_t>(Kind::tensor_load);
    shared_operand(op, 0, &in.a, &in.offset);
    map_operand(op, 1, rank, &in.b, &offset);
    in.value = static_cast<std::int32_t>(offset);
    shared_operand(op, 2, &in.e, &offset);
    in.target = static_cast<u32>(offset);
    if (multicast) in.f = op.src(3, Type::u16);
    if (hint) op.src(n - 1, Type::b64);
  } else {
    if (!op.take("global") || !op.take("shared::cta") || !op.take("bulk_group"))
      op.fail("expected .global.shared::cta.bulk_group");
    op.count(2 + hint, 2 + hint);
    in.sub = static_cast<std::uint8_t>(reduce ? Kind::tensor_reduce : Kind::tensor_store);
    if (reduce) in.sub2 = reduction(op);
    map_operand(op, 0, rank, &in.a, &in.offset);
    shared_operand(op, 1, &in.b, &offset);
    in.value = static_cast<std::int32_t>(offset);
    if (hint) op.src(2, Type::b64);
  }
  in.exec = copy_exec;
}

MapType reduce_type(OpDecoder& op) {
  op.take("noftz");
  switch (op.take_type({Type::u32, Type::s32, Type::u64, Type::s64, Type::f16, Type::bf16,
                        Type::f32, Type::f64, Type::b32, Type::b64})) {
    case Type::s32:
      return MapType::s32;
    case Type::u64:
    case Type::b64:
      return MapType::u64;
    case Type::s64:
      return MapType::s64;
    case Type::f16:
      return MapType::f16;
    case Type::bf16:
      return MapType::bf16;
    case Type::f32:
      return MapType::f32;
    case Type::f64:
      return MapType::f64;
    default:
      return MapType::u32;
  }
}

void bulk_copy(OpDecoder& op, bool reduce) {
  Instr& in = op.in;
  in.work = Work::tma;
  bool hint = op.take("L2::cache_hint");
  std::int64_t offset = 0;
  // The first space named is the destination.
  const std::string to = op.peek_qualifier();
  if (to == "global") {
    op.take("global");
    if (!op.take("shared::cta") || !op.take("bulk_group"))
      op.fail("expected .global.shared::cta.bulk_group");
    if (reduce) {
      in.sub2 = reduction(op);
      in.vec = static_cast<std::uint8_t>(reduce_type(op));
      if (!reduce_supported(static_cast<ReduceOp>(in.sub2), static_cast<MapType>(in.vec)))
        op.fail("this reduction of this type does not exist");
    }
    op.count(3 + hint, 3 + hint);
    in.sub = static_cast<std::uint8_t>(reduce ? Kind::bulk_reduce : Kind::bulk_store);
    op.address(op.operand(0), Space::global, &in.a, &in.offset);
    shared_operand(op, 1, &in.b, &offset);
    in.value = static_cast<std::int32_t>(offset);
    in.c = op.src(2, Type::u32);
    if (hint) op.src(3, Type::b64);
  } else {
    if (reduce) op.fail("a reduction into shared memory is not implemented");
    op.take_one_of({"shared::cluster", "shared::cta"}, "a destination");
    bool from_global = op.take("global");
    if (!from_global && !op.take("shared::cta"))
      op.fail("expected a source: .global or .shared::cta");
    if (!op.take("mbarrier::complete_tx::bytes")) op.fail("expected .mbarrier::complete_tx::bytes");
    bool multicast = op.take("multicast::cluster");
    int n = 4 + multicast + hint;
    op.count(n, n);
    in.sub = static_cast<std::uint8_t>(from_global ? Kind::bulk_load : Kind::dsmem_copy);
    shared_operand(op, 0, &in.a, &in.offset);
    op.address(op.operand(1), from_global ? Space::global : Space::shared_cluster, &in.b, &offset);
    in.value = static_cast<std::int32_t>(offset);
    in.c = op.src(2, Type::u32);
    shared_operand(op, 3, &in.e, &offset);
    in.target = static_cast<u32>(offset);
    if (multicast) in.f = op.src(4, Type::u16);
    if (hint) op.src(n - 1, Type::b64);
  }
  in.exec = copy_exec;
}

void wait_group(OpDecoder& op, Exec exec) {
  op.in.flag = op.take("read");
  op.count(1, 1);
  u64 n = op.need_immediate(0, "the number of groups");
  if (n > 1u << 20) op.fail("too many groups");
  op.in.value = static_cast<std::int32_t>(n);
  op.in.exec = exec;
}

void cp_async(OpDecoder& op) {
  Instr& in = op.in;
  std::string cache = op.take_one_of({"ca", "cg"}, ".ca or .cg");
  op.take_one_of({"shared", "shared::cta"}, "the destination .shared");
  if (!op.take("global")) op.fail("expected .global");
  bool hint = op.take("L2::cache_hint");
  op.take_optional({"L2::64B", "L2::128B", "L2::256B"});
  op.count(3, 5);
  op.address(op.operand(0), Space::shared, &in.a, &in.offset);
  std::int64_t offset = 0;
  op.address(op.operand(1), Space::global, &in.b, &offset);
  in.value = static_cast<std::int32_t>(offset);
  u64 size = op.need_immediate(2, "cp-size");
  if (size != 16 && (cache == "cg" || (size != 4 && size != 8)))
    op.fail("cp-size " + std::to_string(size) + " is not " + (cache == "cg" ? "16" : "4, 8 or 16"));
  in.vec = static_cast<std::uint8_t>(size);
  int extra = op.operands() - 3 - hint;
  if (extra > 1) op.fail("too many operands");
  if (extra == 1) in.c = op.src(3, Type::u32);
  if (hint) op.src(op.operands() - 1, Type::b64);
  in.work = Work::memory;
  in.exec = cp_async_exec;
}

void cp(OpDecoder& op) {
  bool reduce = op.take("reduce");
  if (!op.take("async")) op.fail("expected .async");
  if (!op.take("bulk")) {
    op.in.work = Work::sync;
    if (op.take("commit_group")) {
      op.count(0, 0);
      op.in.exec = cp_commit_exec;
    } else if (op.take("wait_group")) {
      wait_group(op, cp_wait_exec);
    } else if (op.take("wait_all")) {
      op.count(0, 0);
      op.in.flag = true;
      op.in.exec = cp_wait_exec;
    } else if (op.take("mbarrier")) {
      if (!op.take("arrive")) op.fail("expected .arrive");
      op.in.flag = op.take("noinc");
      op.take_optional({"shared", "shared::cta"});
      op.take_type({Type::b64});
      op.count(1, 1);
      op.address(op.operand(0), Space::shared, &op.in.a, &op.in.offset);
      op.in.exec = cp_arrive_exec;
    } else {
      cp_async(op);
    }
    return;
  }
  if (op.take("commit_group")) {
    op.count(0, 0);
    op.in.work = Work::sync;
    op.in.exec = bulk_commit_exec;
  } else if (op.take("wait_group")) {
    op.in.work = Work::sync;
    wait_group(op, bulk_wait_exec);
  } else if (op.take("prefetch")) {
    bool tensor = op.take("tensor");
    int rank = tensor ? dimensions(op) : 0;
    op.take("tile");
    op.take("L2");
    op.take("global");
    bool hint = op.take("L2::cache_hint");
    std::int64_t offset = 0;
    if (tensor) map_operand(op, 0, rank, &op.in.a, &offset);
    else op.address(op.operand(0), Space::global, &op.in.a, &offset), op.src(1, Type::u32);
    if (hint) op.src(op.operands() - 1, Type::b64);
    op.in.exec = nothing;
  } else if (op.take("tensor")) {
    tensor_copy(op, reduce);
  } else {
    bulk_copy(op, reduce);
  }
}

// ---- tensor maps edited on the device ----

enum Field : std::uint8_t { f_address, f_rank, f_box, f_dim, f_stride, f_element_stride };

Step replace_exec(Warp& w, const Instr& in, u32 mask) {
  Machine& m = *w.machine;
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    u64 address = value(w, in.a, in.offset, i), v = w.get(in.b, i);
    std::uint8_t* p = m.pointer(w, in, i, in.space, address, 64, true);
    m.pointer(w, in, i, in.space, address + 64, 64, true);
    TiledMap map;
    std::string why;
    if (!decode_map(p, &map, &why)) m.fault(w, in, i, "edits what is not a tensor map: " + why);
    u32 k = static_cast<u32>(in.value);
    switch (in.sub) {
      case f_address:
        map.address = v;
        break;
      case f_rank:
        map.rank = static_cast<int>(v) + 1;
        break;
      case f_box:
        map.box[k] = static_cast<u32>(v);
        break;
      case f_dim:
        map.dims[k] = v;
        break;
      case f_stride:
        map.stride_bytes[k + 1] = v;
        break;
      default:
        map.element_strides[k] = static_cast<u32>(v);
    }
    TensorMap record;
    encode_map(map, &record);
    std::memcpy(p, record.bytes, 128);
  }
  return Step::next;
}
Step cp_fenceproxy_exec(Warp& w, const Instr& in, u32 mask) {
  Machine& m = *w.machine;
  int lane = std::countr_zero(mask);
  u64 to = value(w, in.a, in.offset, lane), from = value(w, in.b, in.value, lane);
  if (to % 128 || from % 128)
    m.fault(w, in, lane, "the tensor map's address is not a multiple of 128");
  for (u32 part = 0; part < 128; part += 64)
    std::memcpy(m.pointer(w, in, lane, Space::global, to + part, 64, true),
                m.pointer(w, in, lane, Space::shared, from + part, 64, false), 64);
  return Step::next;
}
void tensormap(OpDecoder& op) {
  Instr& in = op.in;
  if (op.take("cp_fenceproxy")) {
    for (const char* q :
         {"global", "shared::cta", "tensormap::generic", "release", "gpu", "sync", "aligned"})
      if (!op.take(q)) op.fail(std::string("expected .") + q);
    in.aligned = true;
    op.count(3, 3);
    op.address(op.operand(0), Space::global, &in.a, &in.offset);
    std::int64_t offset = 0;
    op.address(op.operand(1), Space::shared, &in.b, &offset);
    in.value = static_cast<std::int32_t>(offset);
    if (op.need_immediate(2, "the size") != 128) op.fail("the size must be 128");
    in.exec = cp_fenceproxy_exec;
    return;
  }
  if (!op.take("replace") || !op.take("tile")) op.fail("expected .replace.tile");
  std::string field = op.take_one_of(
      {"global_address", "rank", "box_dim", "global_dim", "global_stride", "element_stride"},
      "a field");
  in.sub = field == "global_address"  ? f_address
           : field == "rank"          ? f_rank
           : field == "box_dim"       ? f_box
           : field == "global_dim"    ? f_dim
           : field == "global_stride" ? f_stride
                                      : f_element_stride;
  in.space = op.take_space({"global", "shared::cta"});
  if (!op.take("b1024")) op.fail("expected .b1024");
  bool indexed = in.sub > f_rank;
  Type t = op.take_type({Type::b32, Type::b64});
  if ((t == Type::b64) != (in.sub == f_address || in.sub == f_stride))
    op.fail("this field has the other width");
  op.count(indexed ? 3 : 2, indexed ? 3 : 2);
  op.address(op.operand(0), in.space, &in.a, &in.offset);
  if (indexed) {
    u64 k = op.need_immediate(1, "the dimension");
    if (k > (in.sub == f_stride ? 3u : 4u)) op.fail("there is no dimension " + std::to_string(k));
    in.value = static_cast<std::int32_t>(k);
  }
  in.b = op.src(indexed ? 2 : 1, t);
  in.exec = replace_exec;
}

}  // namespace

void register_async_ops(OpTable& t) { t["cp"] = cp, t["tensormap"] = tensormap; }

}  // namespace flashptx::emulator
