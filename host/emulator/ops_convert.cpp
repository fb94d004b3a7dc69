// cvt in all the pairs of types that have a meaning here (PTX ISA, "cvt"). The rounding is
// numeric.h's.
//
// Integer to integer truncates or extends, .sat clamps; the packed forms put their first source in
// the upper half. Next: ops_memory.cpp.
#include "host/emulator/decode.h"
#include "host/emulator/lanes.h"
#include "host/emulator/numeric.h"

namespace flashptx::emulator {
namespace {

using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s64 = std::int64_t;

ConvertMods mods_of(const Instr& in) {
  return {static_cast<Round>(in.sub), in.flag, in.flag2, in.sat, in.ftz};
}
bool integer(Type t) { return !is_float(t) && t != Type::pred; }

// A register's value as a signed or unsigned 64-bit integer of type t.
s64 extend(u64 v, Type t) {
  switch (t) {
    case Type::s8:
      return static_cast<std::int8_t>(v);
    case Type::s16:
      return static_cast<std::int16_t>(v);
    case Type::s32:
      return static_cast<std::int32_t>(v);
    case Type::u8:
    case Type::b8:
      return static_cast<std::uint8_t>(v);
    case Type::u16:
    case Type::b16:
      return static_cast<u16>(v);
    case Type::u32:
    case Type::b32:
      return static_cast<u32>(v);
    default:
      return static_cast<s64>(v);
  }
}
u64 clamp_integer(s64 v, Type from, Type to) {
  int bits = type_bytes(to) * 8;
  bool big = !is_signed(from) && v < 0;  // an unsigned 64-bit value above the signed range
  if (is_signed(to)) {
    s64 high = bits == 64 ? INT64_MAX : (s64{1} << (bits - 1)) - 1, low = -high - 1;
    return static_cast<u64>(big || v > high ? high : v < low ? low : v);
  }
  if (v < 0 && !big) return 0;
  u64 high = bits == 64 ? ~u64{0} : (u64{1} << bits) - 1;
  return std::min(static_cast<u64>(v), high);
}
// Narrow results are extended into a wider destination register.
u64 widen(u64 v, Type t) { return static_cast<u64>(extend(v, t)); }

Step int_int(Warp& w, const Instr& in, u32 mask) {
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    s64 v = extend(w.get(in.a, i), in.type2);
    u64 r = in.sat ? clamp_integer(v, in.type2, in.type) : static_cast<u64>(v);
    r = widen(r, in.type);
    if (in.d.width == 4 && type_bytes(in.type) == 2 && !in.value) r &= 0xffff;
    w.set(in.d, i, r);
  }
  return Step::next;
}

double to_double(Type t, u64 v) {
  switch (t) {
    case Type::f16:
      return f16_to_f32(static_cast<u16>(v));
    case Type::bf16:
      return bf16_to_f32(static_cast<u16>(v));
    case Type::f32:
      return float_of(static_cast<u32>(v));
    default:
      return double_of(v);
  }
}
Step float_int(Warp& w, const Instr& in, u32 mask) {
  Round round = static_cast<Round>(in.sub);
  int bits = type_bytes(in.type) * 8;
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    double x = to_double(in.type2, w.get(in.a, i));
    if (in.ftz && in.type2 == Type::f32) x = flush_f32(static_cast<float>(x));
    u64 r = is_signed(in.type)
                ? static_cast<u64>(float_to_signed(x, round, bits, in.type2 == Type::f64))
                : float_to_unsigned(x, round, bits, in.type2 == Type::f64);
    w.set(in.d, i, in.d.width == 4 && bits == 16 ? r & 0xffff : r);
  }
  return Step::next;
}
Step int_float(Warp& w, const Instr& in, u32 mask) {
  Round round = static_cast<Round>(in.sub);
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    s64 v = extend(w.get(in.a, i), in.type2);
    bool sign = is_signed(in.type2);
    u64 r = 0;
    if (in.type == Type::f64) {
      r = bits_of(sign ? signed_to_f64(v, round) : unsigned_to_f64(static_cast<u64>(v), round));
    } else if (in.type == Type::f32) {
      float f = sign ? signed_to_f32(v, round) : unsigned_to_f32(static_cast<u64>(v), round);
      r = bits_of(in.sat ? std::min(std::max(f, 0.0f), 1.0f) : f);
    } else {
      double x = sign ? static_cast<double>(v) : static_cast<double>(static_cast<u64>(v));
      r = round_to(in.type == Type::f16 ? kF16 : kBf16, x, mods_of(in));
    }
    w.set(in.d, i, r);
  }
  return Step::next;
}
Step float_float(Warp& w, const Instr& in, u32 mask) {
  ConvertMods m = mods_of(in);
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    u64 v = w.get(in.a, i), r = 0;
    double x = to_double(in.type2, v);
    if (in.value) {  // .rni and its kin: to an integral value
      r = in.type == Type::f64 ? bits_of(round_to_integral_f64(x, m.round))
                               : bits_of(round_to_integral_f32(static_cast<float>(x), m));
    } else if (in.type == Type::f64) {
      r = bits_of(in.type2 == Type::f32 ? f32_to_f64(float_of(static_cast<u32>(v)), in.ftz) : x);
    } else if (in.type == Type::f32) {
      r = in.type2 == Type::f64 ? bits_of(f64_to_f32(x, m))
                                : bits_of(f32_to_f32(static_cast<float>(x), m));
    } else if (in.type == Type::f16) {
      r = in.type2 == Type::f64 ? round_to(kF16, x, m) : f32_to_f16(static_cast<float>(x), m);
    } else if (in.type == Type::bf16) {
      r = in.type2 == Type::f64 ? round_to(kBf16, x, m) : f32_to_bf16(static_cast<float>(x), m);
    } else {
      r = f32_to_tf32(static_cast<float>(x), m);
    }
    w.set(in.d, i, r);
  }
  return Step::next;
}

// Packed forms: a is the upper source, b the lower.
Step pack_f32(Warp& w, const Instr& in, u32 mask) {
  const float *hi = reinterpret_cast<const float*>(w.in(in.a)),
              *lo = reinterpret_cast<const float*>(w.in(in.b));
  ConvertMods m = mods_of(in);
  alignas(64) u32 out[32];
  bool plain = !m.satfinite && !m.relu && !m.ftz && m.round == Round::rn;
  if (in.type == Type::bf16x2 && plain) {
    cvt_rn_bf16x2_f32(out, hi, lo, 32);
  } else if (in.type == Type::f16x2 && plain) {
    cvt_rn_f16x2_f32(out, hi, lo, 32);
  } else if ((in.type == Type::e4m3x2 || in.type == Type::e5m2x2) && !m.relu) {
    alignas(64) u16 narrow[32];
    if (in.type == Type::e4m3x2) cvt_rn_satfinite_e4m3x2_f32(narrow, hi, lo, 32);
    else cvt_rn_satfinite_e5m2x2_f32(narrow, hi, lo, 32);
    for (int i = 0; i < 32; ++i) out[i] = narrow[i];
  } else {
    for (int i = 0; i < 32; ++i)
      out[i] = in.type == Type::bf16x2   ? f32_to_bf16x2(hi[i], lo[i], m)
               : in.type == Type::f16x2  ? f32_to_f16x2(hi[i], lo[i], m)
               : in.type == Type::e4m3x2 ? u32{f32_to_e4m3x2(hi[i], lo[i], m.relu)}
                                         : u32{f32_to_e5m2x2(hi[i], lo[i], m.relu)};
  }
  store_lanes(w, in.d, mask, out);
  return Step::next;
}
Step f16x2_to_fp8(Warp& w, const Instr& in, u32 mask) {
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    u32 v = w.u32_in(in.a)[i];
    w.set(in.d, i,
          in.type == Type::e4m3x2 ? f16x2_to_e4m3x2(v, in.flag2) : f16x2_to_e5m2x2(v, in.flag2));
  }
  return Step::next;
}
Step fp8_to_f16x2(Warp& w, const Instr& in, u32 mask) {
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    u16 v = static_cast<u16>(w.u32_in(in.a)[i]);
    w.set(in.d, i,
          in.type2 == Type::e4m3x2 ? e4m3x2_to_f16x2(v, in.flag2) : e5m2x2_to_f16x2(v, in.flag2));
  }
  return Step::next;
}

constexpr std::initializer_list<Type> any = {
    Type::u8,    Type::u16,    Type::u32,    Type::u64,    Type::s8,  Type::s16,
    Type::s32,   Type::s64,    Type::f16,    Type::bf16,   Type::f32, Type::f64,
    Type::f16x2, Type::bf16x2, Type::e4m3x2, Type::e5m2x2, Type::tf32};

void cvt(OpDecoder& op) {
  Instr& in = op.in;
  std::string round = op.take_optional({"rn", "rz", "rm", "rp", "rna"});
  std::string whole = round.empty() ? op.take_optional({"rni", "rzi", "rmi", "rpi"}) : "";
  char mode = round.empty() ? (whole.empty() ? 'n' : whole[1]) : round[1];
  in.sub = static_cast<std::uint8_t>(round == "rna" ? Round::rna
                                     : mode == 'z'  ? Round::rz
                                     : mode == 'm'  ? Round::rm
                                     : mode == 'p'  ? Round::rp
                                                    : Round::rn);
  in.ftz = op.take("ftz");
  in.sat = op.take("sat");
  in.flag = op.take("satfinite");
  in.flag2 = op.take("relu");
  Type d = in.type = op.take_type(any), a = in.type2 = op.take_type(any);
  in.work = Work::convert;
  bool packed = d == Type::f16x2 || d == Type::bf16x2 || d == Type::e4m3x2 || d == Type::e5m2x2;
  bool fp8 = d == Type::e4m3x2 || d == Type::e5m2x2;
  if (packed && a == Type::f32) {
    if (round != "rn" && !(round == "rz" && !fp8)) op.fail("expected .rn");
    if (fp8 && !in.flag) op.fail("expected .satfinite");
    op.count(3, 3);
    in.d = op.dst(0, d), in.a = op.src(1, a), in.b = op.src(2, a);
    in.exec = pack_f32;
    return;
  }
  op.count(2, 2);
  if (fp8 && a == Type::f16x2) {
    if (round != "rn" || !in.flag) op.fail("expected .rn.satfinite");
    in.exec = f16x2_to_fp8;
  } else if (d == Type::f16x2 && (a == Type::e4m3x2 || a == Type::e5m2x2)) {
    if (round != "rn") op.fail("expected .rn");
    in.exec = fp8_to_f16x2;
  } else if (packed || a == Type::f16x2 || a == Type::bf16x2 || a == Type::e4m3x2 ||
             a == Type::e5m2x2 || a == Type::tf32) {
    op.fail("this pair of types is not implemented");
  } else if (integer(d) && integer(a)) {
    if (!round.empty() || !whole.empty()) op.fail("integer to integer takes no rounding");
    in.exec = int_int;
  } else if (integer(d)) {
    if (whole.empty()) op.fail("float to integer needs .rni, .rzi, .rmi or .rpi");
    in.exec = float_int;
  } else if (integer(a)) {
    if (round.empty()) op.fail("integer to float needs a rounding such as .rn");
    in.exec = int_float;
  } else {
    bool narrower = type_bytes(d) < type_bytes(a) || d == Type::tf32 ||
                    (d == Type::bf16 && a == Type::f16) || (d == Type::f16 && a == Type::bf16);
    if (narrower && round.empty()) op.fail("expected a rounding such as .rn");
    if (!whole.empty() && d != a) op.fail("." + whole + " between floats needs equal types");
    if (!whole.empty() && d != Type::f32 && d != Type::f64)
      op.fail("." + whole + " of 16-bit floats is not implemented");
    in.value = !whole.empty();
    in.exec = float_float;
  }
  in.d = op.dst(0, d, integer(d)), in.a = op.src(1, a, true);
  if (integer(d)) in.value = type_bytes(op.program().registers[in.d.reg].type) > type_bytes(d);
}

}  // namespace

void register_convert_ops(OpTable& t) { t["cvt"] = cvt; }

}  // namespace flashptx::emulator
