// mbarrier objects: arrivals, transaction bytes, phases (PTX ISA, "mbarrier").
//
// A phase completes when no arrival is pending and the transaction count is zero; the count of
// arrivals then reloads. The state is kept beside shared memory; its 8 bytes there stay opaque.
// Next: ops_mbarrier.cpp.
#include <cstdlib>

#include "host/emulator/machine.h"

namespace flashptx::emulator {
namespace {

constexpr std::int64_t tx_limit = (1 << 20) - 1;

void misuse(Machine& m, Warp& w, const Instr& in, int lane, Cta& owner, std::uint32_t address,
            const std::string& text) {
  Event e{EventKind::mbarrier_misuse};
  e.warp = &w, e.cta = &owner, e.instr = &in, e.lane = lane, e.barrier = address,
  e.text = text.c_str();
  m.publish(e);
  m.fault(w, in, lane, text);
}

}  // namespace

Mbarrier& Machine::mbarrier_at(Warp& w, const Instr& in, int lane, Cta& owner,
                               std::uint32_t address) {
  if (address % 8)
    fault(w, in, lane,
          "the mbarrier address " + std::to_string(address) + " is not a multiple of 8");
  Mbarrier* b = owner.mbarrier(address);
  if (!b || !b->live)
    misuse(*this, w, in, lane, owner, address,
           "uses shared address " + std::to_string(address) +
               " as an mbarrier, where none is initialised");
  return *b;
}

void Machine::mbarrier_arrive(Warp& w, const Instr& in, int lane, Cta& owner, Mbarrier& b,
                              std::uint32_t count) {
  Event e{EventKind::mbarrier_arrive};
  e.warp = &w, e.cta = &owner, e.instr = &in, e.lane = lane, e.barrier = b.address,
  e.value = b.phase, e.value2 = count, e.lanes = w.executing;
  publish(e);
  if (count > b.pending)
    misuse(*this, w, in, lane, owner, b.address,
           "arrival number " + std::to_string(b.expected - b.pending + count) + " on mbarrier " +
               std::to_string(b.address) + " in phase " + std::to_string(b.phase) +
               ", which expects " + std::to_string(b.expected) +
               (b.tx ? " and still misses " + std::to_string(b.tx) + " bytes" : ""));
  b.pending -= count;
  ++progress;
  mbarrier_check(owner, b, &w, &in);
}

void Machine::mbarrier_expect(Warp& w, const Instr& in, int lane, Cta& owner, Mbarrier& b,
                              std::int64_t bytes) {
  Event e{EventKind::mbarrier_expect};
  e.warp = &w, e.cta = &owner, e.instr = &in, e.lane = lane, e.barrier = b.address,
  e.value = b.phase;
  e.value2 = static_cast<std::uint64_t>(bytes);
  publish(e);
  b.tx += bytes;
  if (std::llabs(b.tx) > tx_limit)
    misuse(*this, w, in, lane, owner, b.address,
           "the transaction count of mbarrier " + std::to_string(b.address) + " becomes " +
               std::to_string(b.tx) + ", beyond +-1048575");
}

void Machine::mbarrier_check(Cta& owner, Mbarrier& b, Warp* w, const Instr* in) {
  if (b.pending != 0 || b.tx != 0) return;
  Event e{EventKind::mbarrier_phase};
  e.warp = w, e.cta = &owner, e.instr = in, e.barrier = b.address, e.value = b.phase;
  publish(e);
  ++b.phase;
  b.pending = b.expected;
  wake(&owner, Wait::mbarrier, b.address);
}

}  // namespace flashptx::emulator
