// Addresses to bytes: state spaces, the generic windows, shared::cluster, and what cannot be
// accessed at all.
//
// PTX ISA, "State Spaces" and "Addressing": the shared window of each CTA starts at shared_origin;
// in shared::cluster, rank r adds (r + 1) * cluster_stride, so that a shared::cta address is also a
// cluster one. Next: ops_memory.cpp.
#include <cstdio>

#include "host/emulator/machine.h"

namespace flashptx::emulator {
namespace {

std::string hex(std::uint64_t v) {
  char b[24];
  std::snprintf(b, sizeof b, "0x%llx", static_cast<unsigned long long>(v));
  return b;
}

}  // namespace

Cta* Machine::cluster_cta(Warp& w, const Instr& in, int lane, std::uint32_t address,
                          std::uint32_t* local) {
  std::uint32_t rank = address / cluster_stride;
  *local = address % cluster_stride;
  if (rank == 0) return w.cta;
  if (rank > ctas.size())
    fault(w, in, lane,
          "the shared::cluster address " + hex(address) + " names CTA rank " +
              std::to_string(rank - 1) + " of a cluster of " + std::to_string(ctas.size()));
  Cta* owner = ctas[rank - 1].get();
  if (owner != w.cta && owner->live_warps == 0)
    fault(w, in, lane,
          "touches shared memory of CTA rank " + std::to_string(rank - 1) + ", which has exited");
  return owner;
}

std::uint8_t* Machine::shared_pointer(Warp& w, const Instr& in, int lane, std::uint32_t address,
                                      std::uint32_t bytes, Cta** owner_out) {
  std::uint32_t local = 0;
  Cta* owner = cluster_cta(w, in, lane, address, &local);
  if (owner_out) *owner_out = owner;
  if (local < shared_origin || local - shared_origin > owner->shared.size() ||
      bytes > owner->shared.size() - (local - shared_origin))
    fault(w, in, lane,
          "shared address " + hex(local) + " + " + std::to_string(bytes) +
              " bytes is outside the CTA's shared memory, " + hex(shared_origin) + " to " +
              hex(shared_origin + owner->shared.size()));
  return owner->shared.data() + (local - shared_origin);
}

std::uint8_t* Machine::pointer(Warp& w, const Instr& in, int lane, Space space,
                               std::uint64_t address, std::uint32_t bytes, bool write) {
  std::uint32_t unit = bytes;
  if (address % unit)
    fault(w, in, lane,
          "address " + hex(address) + " is not a multiple of " + std::to_string(unit) + " bytes");
  if (space == Space::generic) {
    if (shared_window(address)) space = Space::shared_cluster, address &= 0xffffffffull;
    else if (address >> 40 == generic_param >> 40) space = Space::param, address &= 0xffffffffffull;
    else if (address >> 40 == generic_const >> 40)
      space = Space::constant, address &= 0xffffffffffull;
    else space = Space::global;
  }
  switch (space) {
    case Space::shared:
    case Space::shared_cluster:
      if (address > 0xffffffffull)
        fault(w, in, lane, "shared address " + hex(address) + " has more than 32 bits");
      return shared_pointer(w, in, lane, static_cast<std::uint32_t>(address), bytes, nullptr);
    case Space::param:
    case Space::constant: {
      if (write)
        fault(w, in, lane,
              "writes to the read-only space of " +
                  std::string(space == Space::param ? "parameters" : "constants"));
      auto& bank = space == Space::param ? grid.params : program.constants;
      if (address > bank.size() || bytes > bank.size() - address)
        fault(w, in, lane,
              "offset " + hex(address) + " + " + std::to_string(bytes) + " bytes is beyond the " +
                  std::to_string(bank.size()) + " bytes of " +
                  (space == Space::param ? "parameters" : "constants"));
      return const_cast<std::uint8_t*>(bank.data()) + address;
    }
    default: {
      std::uint8_t* p = grid.memory->at(address, bytes, write);
      if (!p)
        fault(w, in, lane,
              std::string(write ? "writes" : "reads") + " " + std::to_string(bytes) +
                  " bytes at global address " + hex(address) + ", outside every allocation; " +
                  grid.memory->nearest(address));
      return p;
    }
  }
}

}  // namespace flashptx::emulator
