// Device memory of the emulator: allocations at made-up addresses with gaps between them, bounds
// checked.
//
// Addresses are given out in order from a fixed base, so that a run repeats exactly. Gaps of at
// least a page make an access beyond an allocation's end fall into nothing. Next: tensor_map.h,
// which reads through this.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "host/emulator/tensor_map.h"

namespace flashptx::emulator {

class GlobalSpace : public GlobalMemory {
 public:
  std::uint64_t allocate(std::size_t bytes);
  bool release(std::uint64_t address);
  std::size_t used() const { return used_; }
  // Null unless [address, address + bytes) lies in one allocation.
  std::uint8_t* at(std::uint64_t address, std::uint64_t bytes, bool write) override;
  // For messages: the allocation that ends before or begins after the address.
  std::string nearest(std::uint64_t address) const;

 private:
  struct Block {
    std::size_t bytes = 0;
    std::unique_ptr<std::uint8_t[]> data;
  };
  std::map<std::uint64_t, Block> blocks_;
  std::uint64_t next_ = 0x1000000000ull;
  std::size_t used_ = 0;
};

}  // namespace flashptx::emulator
