// cp.reduce.async.bulk, tiled or not: one atomic update per element of global memory.
// Rules: PTX ISA, cp.reduce.async.bulk (types per operation), red (inc, dec, subnormals of f32
// add).
#include <algorithm>
#include <atomic>
#include <cstring>

#include "host/emulator/numeric.h"
#include "host/emulator/tensor_map.h"

namespace flashptx::emulator {
namespace {

template <class T>
T combine_integer(ReduceOp op, T old, T value) {
  using U = std::make_unsigned_t<T>;
  const U a = static_cast<U>(old), b = static_cast<U>(value);
  switch (op) {
    case ReduceOp::add:
      return static_cast<T>(a + b);
    case ReduceOp::min:
      return std::min(old, value);
    case ReduceOp::max:
      return std::max(old, value);
    case ReduceOp::inc:
      return static_cast<T>(a >= b ? U{0} : a + 1);
    case ReduceOp::dec:
      return static_cast<T>(a == 0 || a > b ? b : a - 1);
    case ReduceOp::and_:
      return static_cast<T>(a & b);
    case ReduceOp::or_:
      return static_cast<T>(a | b);
    case ReduceOp::xor_:
      return static_cast<T>(a ^ b);
  }
  return old;
}

std::uint32_t combine_f32(ReduceOp, std::uint32_t old, std::uint32_t value) {
  return bits_of(add_f32(float_of(old), float_of(value), {.ftz = true}));
}

std::uint16_t combine_half(HalfType t, ReduceOp op, std::uint16_t old, std::uint16_t value) {
  if (op == ReduceOp::min) return min_half(t, old, value);
  if (op == ReduceOp::max) return max_half(t, old, value);
  return add_half(t, old, value);
}

// Word is the unsigned pattern in memory; combine maps (old pattern, value pattern) to a new one.
template <class Word, class Combine>
void update_all(std::uint8_t* destination, const std::uint8_t* source, std::uint32_t bytes,
                Combine&& combine) {
  for (std::uint32_t at = 0; at + sizeof(Word) <= bytes; at += sizeof(Word)) {
    Word value;
    std::memcpy(&value, source + at, sizeof value);
    std::atomic_ref<Word> cell(
        *reinterpret_cast<Word*>(destination + at));  // aligned: rows are x16
    Word old = cell.load(std::memory_order_relaxed);
    while (!cell.compare_exchange_weak(old, combine(old, value), std::memory_order_relaxed)) {
    }
  }
}

}  // namespace

bool reduce_supported(ReduceOp op, MapType type) {
  const bool u32 = type == MapType::u32, s32 = type == MapType::s32, u64 = type == MapType::u64,
             s64 = type == MapType::s64, half = type == MapType::f16 || type == MapType::bf16;
  switch (op) {
    case ReduceOp::add:
      return u32 || s32 || u64 || type == MapType::f32 || half;
    case ReduceOp::min:
    case ReduceOp::max:
      return u32 || s32 || u64 || s64 || half;
    case ReduceOp::inc:
    case ReduceOp::dec:
      return u32;
    default:
      return u32 || s32 || u64 || s64;  // bitwise, .b32 and .b64
  }
}

void reduce_elements(ReduceOp op, MapType type, std::uint8_t* destination,
                     const std::uint8_t* source, std::uint32_t bytes) {
  switch (type) {
    case MapType::u32:
      return update_all<std::uint32_t>(destination, source, bytes, [op](auto old, auto value) {
        return combine_integer<std::uint32_t>(op, old, value);
      });
    case MapType::s32:
      return update_all<std::uint32_t>(destination, source, bytes, [op](auto old, auto value) {
        return static_cast<std::uint32_t>(
            combine_integer(op, static_cast<std::int32_t>(old), static_cast<std::int32_t>(value)));
      });
    case MapType::u64:
      return update_all<std::uint64_t>(destination, source, bytes, [op](auto old, auto value) {
        return combine_integer<std::uint64_t>(op, old, value);
      });
    case MapType::s64:
      return update_all<std::uint64_t>(destination, source, bytes, [op](auto old, auto value) {
        return static_cast<std::uint64_t>(
            combine_integer(op, static_cast<std::int64_t>(old), static_cast<std::int64_t>(value)));
      });
    case MapType::f32:
      return update_all<std::uint32_t>(destination, source, bytes, [op](auto old, auto value) {
        return combine_f32(op, old, value);
      });
    case MapType::f16:
    case MapType::bf16: {
      const HalfType t = type == MapType::f16 ? HalfType::f16 : HalfType::bf16;
      return update_all<std::uint16_t>(destination, source, bytes, [op, t](auto old, auto value) {
        return combine_half(t, op, old, value);
      });
    }
    default:
      return;  // reduce_supported() is false: the machine refuses first
  }
}

}  // namespace flashptx::emulator
