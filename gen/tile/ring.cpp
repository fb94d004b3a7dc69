// Ring positions: one counter a ring, so that a warpgroup keeps one register where stage and phase would
// take two (20 to 28 bytes of spills at 160 registers in an early prototype).
#include "gen/tile/forward_context.h"

namespace flashptx::gen {

RingSlot ring_slot(Kernel& k, const std::string& ring, const Operand& position, int stages) {
  RingSlot slot{k.b32(ring + "_stage"), k.b32(ring + "_phase")};
  if (stages == 1) {
    k.mov_b32(slot.stage, 0);
    k.and_b32(slot.phase, position, 1);
    return slot;
  }
  if ((stages & (stages - 1)) == 0) {
    int log2 = stages == 2 ? 1 : stages == 4 ? 2 : 3;
    k.and_b32(slot.stage, position, stages - 1);
    k.shr_u32(slot.phase, position, log2);
    k.and_b32(slot.phase, slot.phase, 1);
    return slot;
  }
  if (stages != 3) throw Error("ring " + ring + ": " + std::to_string(stages) + " stages; 1, 2, 3, 4 or 8");
  Reg turns = k.b32(ring + "_turns");
  k.emit("mul.hi.u32", {turns, position, hex(0xAAAAAAAB)}, Location::current())
      .note("position / 3, exact for every u32 ...");
  k.shr_u32(turns, turns, 1).note("... after this shift");
  k.and_b32(slot.phase, turns, 1);
  k.mul_lo_u32(turns, turns, 3);
  k.sub_u32(slot.stage, position, turns);
  return slot;
}

Reg ring_barrier(ForwardContext& f, const std::string& name, const Reg& stage, int offset) {
  Reg at = f.k.b32(name);
  f.k.shl_b32(at, stage, 3);
  f.k.add_u32(at, at, f.base);
  if (offset) f.k.add_u32(at, at, offset);
  return at;
}

}  // namespace flashptx::gen
