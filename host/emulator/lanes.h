// Loops over 32 lanes, written so that the compiler vectorises them: compute all lanes into a local
// array, then copy or blend under the mask. A lane that is off computes rubbish that is thrown
// away, so an operation given here must be defined for every input. Next: ops_integer.cpp.
#pragma once

#include <bit>
#include <cstring>
#include <type_traits>

#include "host/emulator/machine.h"

namespace flashptx::emulator {

// 32 values of T read from register lanes: 8-byte types from 8-byte lanes, the rest from 4-byte
// lanes.
template <class T>
struct Lanes {
  using Raw = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  const Raw* p;
  explicit Lanes(const std::uint8_t* bytes) : p(reinterpret_cast<const Raw*>(bytes)) {}
  T operator[](int i) const {
    if constexpr (std::is_floating_point_v<T>) return std::bit_cast<T>(p[i]);
    else return static_cast<T>(p[i]);
  }
};

template <class T>
auto raw(T v) {
  if constexpr (std::is_same_v<T, float>) return std::bit_cast<std::uint32_t>(v);
  else if constexpr (std::is_same_v<T, double>) return std::bit_cast<std::uint64_t>(v);
  else if constexpr (sizeof(T) == 8) return static_cast<std::uint64_t>(v);
  else return static_cast<std::uint32_t>(static_cast<std::make_unsigned_t<T>>(v));
}

template <class Raw>
inline void store_lanes(Warp& w, const Operand& d, std::uint32_t mask, const Raw* out) {
  Raw* dst = reinterpret_cast<Raw*>(w.reg(d));
  if (mask == ~0u) {
    std::memcpy(dst, out, sizeof(Raw) * 32);
  } else {
    for (int i = 0; i < 32; ++i)
      if (mask >> i & 1) dst[i] = out[i];
  }
}

template <auto F, class R, class A>
Step lanes1(Warp& w, const Instr& in, std::uint32_t mask) {
  Lanes<A> a(w.in(in.a));
  using Raw = typename Lanes<R>::Raw;
  alignas(64) Raw out[32];
  for (int i = 0; i < 32; ++i) out[i] = raw<R>(F(a[i]));
  store_lanes(w, in.d, mask, out);
  return Step::next;
}
template <auto F, class R, class A, class B>
Step lanes2(Warp& w, const Instr& in, std::uint32_t mask) {
  Lanes<A> a(w.in(in.a));
  Lanes<B> b(w.in(in.b));
  using Raw = typename Lanes<R>::Raw;
  alignas(64) Raw out[32];
  for (int i = 0; i < 32; ++i) out[i] = raw<R>(F(a[i], b[i]));
  store_lanes(w, in.d, mask, out);
  return Step::next;
}
template <auto F, class R, class A, class B, class C>
Step lanes3(Warp& w, const Instr& in, std::uint32_t mask) {
  Lanes<A> a(w.in(in.a));
  Lanes<B> b(w.in(in.b));
  Lanes<C> c(w.in(in.c));
  using Raw = typename Lanes<R>::Raw;
  alignas(64) Raw out[32];
  for (int i = 0; i < 32; ++i) out[i] = raw<R>(F(a[i], b[i], c[i]));
  store_lanes(w, in.d, mask, out);
  return Step::next;
}

}  // namespace flashptx::emulator
