// See global_memory.h.
#include "host/emulator/global_memory.h"

#include <cstring>
#include <new>
#include <string>

namespace flashptx::emulator {

std::uint64_t GlobalSpace::allocate(std::size_t bytes) {
  Block b;
  b.bytes = bytes;
  b.data.reset(new (std::nothrow) std::uint8_t[bytes + 1]);
  if (!b.data) return 0;
  std::memset(b.data.get(), 0xff, bytes);  // not zeros: NaN in every floating-point type
  std::uint64_t address = next_;
  next_ += (bytes + 0x1fff) / 0x1000 * 0x1000;
  used_ += bytes;
  blocks_.emplace(address, std::move(b));
  return address;
}

bool GlobalSpace::release(std::uint64_t address) {
  auto it = blocks_.find(address);
  if (it == blocks_.end()) return false;
  used_ -= it->second.bytes;
  blocks_.erase(it);
  return true;
}

std::uint8_t* GlobalSpace::at(std::uint64_t address, std::uint64_t bytes, bool) {
  auto it = blocks_.upper_bound(address);
  if (it == blocks_.begin()) return nullptr;
  --it;
  std::uint64_t offset = address - it->first;
  if (offset > it->second.bytes || bytes > it->second.bytes - offset) return nullptr;
  return it->second.data.get() + offset;
}

std::string GlobalSpace::nearest(std::uint64_t address) const {
  auto it = blocks_.upper_bound(address);
  if (it == blocks_.begin()) return "no allocation lies below it";
  --it;
  std::uint64_t end = it->first + it->second.bytes;
  return "the allocation of " + std::to_string(it->second.bytes) + " bytes below it ends " +
         std::to_string(static_cast<std::int64_t>(address - end)) + " bytes before this address";
}

}  // namespace flashptx::emulator
