// Asynchronous copies between issue and landing: where the adversary has its say.
//
// Level 0 lands a copy as it is issued. Else the copy waits in a list, its destination poisoned,
// until nothing else can run (level 1) or until chance picks it (level 2). Landing moves the bytes,
// then signals. A copy out of shared memory reads first, which ends a wait_group.read, and writes when
// it is picked again, one of four at the very last; at level 2 a copy in may bring and signal a part of its bytes first. Next: tensor_map.h.
#include "host/emulator/machine.h"

namespace flashptx::emulator {
namespace {

using Kind = AsyncOp::Kind;

bool into_shared(Kind k) {
  return k == Kind::tensor_load || k == Kind::bulk_load || k == Kind::dsmem_copy;
}
bool out_of_shared(Kind k) {
  return k == Kind::tensor_store || k == Kind::tensor_reduce || k == Kind::bulk_store || k == Kind::bulk_reduce;
}
bool is_tensor(Kind k) {
  return k == Kind::tensor_load || k == Kind::tensor_store || k == Kind::tensor_reduce;
}

// The destination CTAs of a load: the owner of the address, or those of the multicast mask.
struct Destination {
  Cta* cta;
  std::uint32_t shared, barrier;
};
std::vector<Destination> destinations(Machine& m, const AsyncOp& op) {
  std::vector<Destination> out;
  std::uint32_t shared = 0, barrier = 0;
  Cta* owner = m.cluster_cta(*op.warp, *op.instr, op.lane, op.shared, &shared);
  Cta* signalled = m.cluster_cta(*op.warp, *op.instr, op.lane, op.barrier, &barrier);
  if (!op.cta_mask) {
    if (owner != signalled)
      m.fault(*op.warp, *op.instr, op.lane,
              "the destination and its mbarrier lie in different CTAs");
    return {{owner, shared, barrier}};
  }
  for (std::uint32_t rank = 0; rank < 16; ++rank) {
    if (!(op.cta_mask >> rank & 1)) continue;
    if (rank >= m.ctas.size())
      m.fault(*op.warp, *op.instr, op.lane,
              "the multicast mask names CTA rank " + std::to_string(rank) + " of a cluster of " +
                  std::to_string(m.ctas.size()));
    if (!m.ctas[rank]->live_warps)
      m.fault(*op.warp, *op.instr, op.lane,
              "multicasts into CTA rank " + std::to_string(rank) + ", which has exited");
    out.push_back({m.ctas[rank].get(), shared, barrier});
  }
  return out;
}

TiledMap map_of(Machine& m, const AsyncOp& op) {
  TiledMap map;
  std::string why;
  if (!decode_map(op.map, &map, &why))
    m.fault(*op.warp, *op.instr, op.lane, "the tensor map cannot be read: " + why);
  if (static_cast<std::size_t>(map.rank) != op.instr->list.size())
    m.fault(*op.warp, *op.instr, op.lane,
            "gives " + std::to_string(op.instr->list.size()) +
                " coordinates to a tensor map of rank " + std::to_string(map.rank));
  return map;
}

// The 16-byte chunks of shared memory that a copy touches, in the owner's addresses.
std::vector<std::uint32_t> chunks_of(const AsyncOp& op, const TiledMap* map, std::uint32_t shared) {
  std::vector<std::uint32_t> out;
  if (map) {
    out.resize(map->box_bytes() / 16 + 1);
    out.resize(box_chunks(*map, shared, out.data()));
  } else {
    for (std::uint32_t at = 0; at < op.bytes; at += 16) out.push_back(shared + at);
  }
  return out;
}

void check_copy(Machine& m, const AsyncOp& op, const CopyResult& r, bool write) {
  if (!r.ok) m.pointer(*op.warp, *op.instr, op.lane, Space::global, r.bad_address, 1, write);
}

std::uint8_t* global_bytes(Machine& m, const AsyncOp& op, std::uint32_t bytes, bool write) {
  std::uint8_t* p = m.grid.memory->at(op.global, bytes, write);
  if (!p)
    m.fault(*op.warp, *op.instr, op.lane,
            std::string(write ? "writes " : "reads ") + std::to_string(bytes) +
                " bytes at a global address outside every allocation; " + m.grid.memory->nearest(op.global));
  return p;
}

// All bytes of a load into one of its destinations.
void bring(Machine& m, const AsyncOp& op, const TiledMap& map, const Destination& d) {
  std::uint8_t* to = d.cta->shared.data() + (d.shared - shared_origin);
  if (op.kind == Kind::tensor_load)
    check_copy(m, op,
               tma_load(map, op.coordinates, d.shared, d.cta->shared.data(), shared_origin, *m.grid.memory),
               false);
  else if (op.kind == Kind::bulk_load)
    std::memcpy(to, global_bytes(m, op, op.bytes, false), op.bytes);
  else
    std::memcpy(to,
                m.shared_pointer(*op.warp, *op.instr, op.lane, static_cast<std::uint32_t>(op.global),
                                 op.bytes, nullptr),
                op.bytes);
}

}  // namespace

void Machine::issue(AsyncOp op) {
  Warp& w = *op.warp;
  const Instr& in = *op.instr;
  op.order = async_order_++;
  if (op.kind == Kind::cp_async_arrive) {
    if (level == 0) return land(op);
    pending.push_back(std::move(op));
    return;
  }
  TiledMap map;
  if (is_tensor(op.kind)) {
    map = map_of(*this, op);
    op.bytes = map.box_bytes();
    std::string why = check_shared_address(map, op.shared % cluster_stride);
    if (!why.empty()) fault(w, in, op.lane, why);
  } else {
    std::uint32_t unit = op.kind == Kind::cp_async ? op.bytes : 16;
    if (op.bytes % unit || op.shared % unit || op.global % unit)
      fault(w, in, op.lane,
            "size " + std::to_string(op.bytes) + " and both addresses must be multiples of " +
                std::to_string(unit));
  }
  if (into_shared(op.kind)) {
    for (const Destination& d : destinations(*this, op)) {
      shared_pointer(w, in, op.lane, (d.cta->rank + 1) * cluster_stride + d.shared, op.bytes,
                     nullptr);
      Mbarrier& b = mbarrier_at(w, in, op.lane, *d.cta, d.barrier);
      op.phase_at_issue = b.phase;
      std::vector<std::uint32_t> chunks =
          chunks_of(op, is_tensor(op.kind) ? &map : nullptr, d.shared);
      Event e{EventKind::async_load};
      e.warp = &w, e.cta = d.cta, e.barrier_cta = d.cta, e.instr = &in, e.lane = op.lane,
      e.barrier = d.barrier, e.value = b.phase;
      e.value2 = op.bytes;
      e.addresses = chunks.data(), e.count = static_cast<std::uint32_t>(chunks.size()),
      e.bytes = 16;
      publish(e);
      if (level > 0)
        for (std::uint32_t c : chunks)
          std::memset(d.cta->shared.data() + (c - shared_origin), 0xff, 16);
    }
  } else {
    Cta* owner = nullptr;
    shared_pointer(w, in, op.lane, op.shared, op.bytes, &owner);
    if (owner != w.cta)
      fault(w, in, op.lane, "the shared side of this copy must lie in the executing CTA");
    std::vector<std::uint32_t> chunks =
        chunks_of(op, is_tensor(op.kind) ? &map : nullptr, op.shared % cluster_stride);
    Event e{op.kind == Kind::cp_async ? EventKind::cp_async : EventKind::async_store};
    e.warp = &w, e.cta = w.cta, e.instr = &in, e.lane = op.lane, e.value = op.group;
    e.value2 = op.bytes, e.copy = &op;
    e.addresses = chunks.data(), e.count = static_cast<std::uint32_t>(chunks.size()),
    e.bytes = op.kind == Kind::cp_async ? op.bytes : 16;
    publish(e);
  }
  if (level == 0) return land(op);
  pending.push_back(std::move(op));
}

// The first half of a landing; false if it is to happen as a whole.
bool Machine::land_part(AsyncOp& op) {
  if (op.parted) return false;
  op.parted = true;
  Warp& w = *op.warp;
  if (out_of_shared(op.kind)) {
    const std::vector<std::uint8_t>& shared = w.cta->shared;
    const std::uint32_t at = op.shared % cluster_stride - shared_origin, from = at / 128 * 128;
    const std::size_t to = std::min<std::size_t>(shared.size(), (at + op.bytes + 127) / 128 * 128);
    op.source.assign(shared.begin() + from, shared.begin() + static_cast<std::ptrdiff_t>(to));
    op.source_origin = shared_origin + from;
    op.read_done = true;
    op.lazy = random.below(4) == 0;
    ++progress;
    wake_warp(w, Wait::bulk);
    return true;
  }
  const bool tensor = op.kind == Kind::tensor_load;
  if (level < 2 || !(tensor || op.kind == Kind::bulk_load) || op.bytes < 32 || random.below(2) == 0) return false;
  TiledMap map;
  if (tensor) map = map_of(*this, op);
  const std::uint32_t count = 1 + random.below(op.bytes / 16 - 1);
  for (const Destination& d : destinations(*this, op)) {
    std::uint8_t* shared = d.cta->shared.data();
    const std::vector<std::uint32_t> chunks = chunks_of(op, tensor ? &map : nullptr, d.shared);
    std::vector<std::uint8_t> later;  // what the chunks that come later hold now
    for (std::size_t i = count; i < chunks.size(); ++i)
      later.insert(later.end(), shared + (chunks[i] - shared_origin), shared + (chunks[i] - shared_origin) + 16);
    bring(*this, op, map, d);
    for (std::size_t i = count; i < chunks.size(); ++i)
      std::memcpy(shared + (chunks[i] - shared_origin), &later[16 * (i - count)], 16);
    Mbarrier& b = mbarrier_at(w, *op.instr, op.lane, *d.cta, d.barrier);
    mbarrier_expect(w, *op.instr, op.lane, *d.cta, b, -16 * static_cast<std::int64_t>(count));
    mbarrier_check(*d.cta, b, &w, op.instr);
  }
  op.landed_bytes = 16 * count;
  ++progress;
  return true;
}

void Machine::land(AsyncOp& op) {
  Warp& w = *op.warp;
  const Instr& in = *op.instr;
  ++progress;
  if (op.kind == Kind::cp_async_arrive) {
    Mbarrier& b = mbarrier_at(w, in, op.lane, *w.cta, op.barrier);
    mbarrier_arrive(w, in, op.lane, *w.cta, b, 1);
    return;
  }
  TiledMap map;
  if (is_tensor(op.kind)) map = map_of(*this, op);
  const std::uint32_t shared = op.shared % cluster_stride;
  std::uint8_t* source = nullptr;
  if (!into_shared(op.kind)) source = shared_pointer(w, in, op.lane, op.shared, op.bytes, nullptr);
  const std::uint8_t* all = w.cta->shared.data();
  std::uint32_t origin = shared_origin;
  if (op.read_done) all = op.source.data(), origin = op.source_origin, source = op.source.data() + (shared - origin);
  auto check = [&](const CopyResult& r, bool write) { check_copy(*this, op, r, write); };
  auto global = [&](std::uint32_t bytes, bool write) { return global_bytes(*this, op, bytes, write); };
  switch (op.kind) {
    case Kind::tensor_store:
      check(tma_store(map, op.coordinates, shared, all, origin, *grid.memory), true);
      break;
    case Kind::tensor_reduce: {
      if (!reduce_supported(static_cast<ReduceOp>(in.sub2), map.type))
        fault(w, in, op.lane, "this reduction does not exist for the tensor map's type");
      check(tma_reduce(static_cast<ReduceOp>(in.sub2), map, op.coordinates, shared, all, origin, *grid.memory), true);
      break;
    }
    case Kind::bulk_store:
      std::memcpy(global(op.bytes, true), source, op.bytes);
      break;
    case Kind::bulk_reduce:
      reduce_elements(static_cast<ReduceOp>(in.sub2), static_cast<MapType>(in.vec),
                      global(op.bytes, true), source, op.bytes);
      break;
    case Kind::cp_async:
      std::memset(source, 0, op.bytes);
      if (op.valid_bytes) std::memcpy(source, global(op.valid_bytes, false), op.valid_bytes);
      break;
    default:
      break;
  }
  if (!into_shared(op.kind)) {
    wake_warp(w, op.kind == Kind::cp_async ? Wait::cp_async : Wait::bulk);
    return;
  }
  for (const Destination& d : destinations(*this, op)) {
    bring(*this, op, map, d);
    Mbarrier& b = mbarrier_at(w, in, op.lane, *d.cta, d.barrier);
    Event e{EventKind::async_landed};
    e.warp = &w, e.cta = d.cta, e.instr = &in, e.lane = op.lane, e.barrier = d.barrier,
    e.value = b.phase, e.value2 = op.phase_at_issue;
    e.bytes = op.bytes;
    publish(e);
    mbarrier_expect(w, in, op.lane, *d.cta, b, -static_cast<std::int64_t>(op.bytes - op.landed_bytes));
    mbarrier_check(*d.cta, b, &w, &in);
  }
}

bool Machine::land_one(bool random_choice, bool forced) {
  std::vector<std::size_t> may;
  for (std::size_t i = 0; i < pending.size(); ++i)
    if (!(pending[i].lazy && pending[i].read_done)) may.push_back(i);
  if (may.empty()) {
    if (pending.empty() || !forced) return false;
    for (std::size_t i = 0; i < pending.size(); ++i) may.push_back(i);
  }
  std::size_t at = may[random_choice ? random.below(static_cast<std::uint32_t>(may.size())) : 0];
  // An arrival that stands for earlier cp.async of its thread comes after them.
  if (pending[at].kind == Kind::cp_async_arrive)
    for (std::size_t i = 0; i < at; ++i)
      if (pending[i].kind == Kind::cp_async && pending[i].warp == pending[at].warp &&
          pending[i].lane == pending[at].lane) {
        at = i;
        break;
      }
  if (random_choice && land_part(pending[at])) return true;
  AsyncOp op = std::move(pending[at]);
  pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(at));
  land(op);
  return true;
}

}  // namespace flashptx::emulator
