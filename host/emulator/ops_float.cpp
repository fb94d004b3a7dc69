// f32, f64 and packed 16-bit arithmetic and the approximations (PTX ISA, "Floating-Point
// Instructions", "Half Precision Floating-Point Instructions"). The arithmetic itself is
// numeric.h's.
//
// The common forms (rn, f32, without .sat) go to its array functions; the rest runs lane by lane.
// Next: ops_convert.cpp.
#include "host/emulator/ops_float.h"

#include <cmath>

#include "host/emulator/lanes.h"
#include "host/emulator/numeric.h"

namespace flashptx::emulator {
namespace {

using u16 = std::uint16_t;
using u32 = std::uint32_t;

constexpr std::initializer_list<Type> floats = {Type::f16,    Type::f16x2, Type::bf16,
                                                Type::bf16x2, Type::f32,   Type::f64};

const float* f32(const Warp& w, const Operand& o) {
  return reinterpret_cast<const float*>(w.in(o));
}

// ---- array forms of f32 ----
template <class F>
Step arrays(Warp& w, const Instr& in, u32 mask, F f) {
  if (mask == ~0u) {
    f(reinterpret_cast<float*>(w.reg(in.d)));
  } else {
    alignas(64) float out[32];
    f(out);
    store_lanes(w, in.d, mask, reinterpret_cast<const u32*>(out));
  }
  return Step::next;
}
#define ARRAY2(name, function)                                                             \
  Step name(Warp& w, const Instr& in, u32 mask) {                                          \
    return arrays(w, in, mask,                                                             \
                  [&](float* d) { function(d, f32(w, in.a), f32(w, in.b), 32, in.ftz); }); \
  }
ARRAY2(add_array, add_rn_f32)
ARRAY2(sub_array, sub_rn_f32)
ARRAY2(mul_array, mul_rn_f32)
ARRAY2(max_array, max_f32)
ARRAY2(min_array, min_f32)
Step fma_array(Warp& w, const Instr& in, u32 mask) {
  return arrays(w, in, mask, [&](float* d) {
    fma_rn_f32(d, f32(w, in.a), f32(w, in.b), f32(w, in.c), 32, in.ftz);
  });
}
Step ex2_array(Warp& w, const Instr& in, u32 mask) {
  return arrays(w, in, mask, [&](float* d) {
    if (in.ftz) ex2_approx_ftz_f32(d, f32(w, in.a), 32);
    else ex2_approx_f32(d, f32(w, in.a), 32);
  });
}

// ---- lane by lane; sub = FloatOp, sub2 = rounding, flag = .approx, flag2 = .NaN, value bit 0 =
// .relu ----
MathMods math_mods(const Instr& in) { return {static_cast<Round>(in.sub2), in.ftz, in.sat}; }

float scalar_f32(const Instr& in, float a, float b, float c) {
  MathMods m = math_mods(in);
  switch (static_cast<FloatOp>(in.sub)) {
    case FloatOp::add:
      return add_f32(a, b, m);
    case FloatOp::sub:
      return sub_f32(a, b, m);
    case FloatOp::mul:
      return mul_f32(a, b, m);
    case FloatOp::fma:
      return fma_f32(a, b, c, m);
    case FloatOp::div:
      return in.flag ? in.flag2 ? div_full_f32(a, b, in.ftz) : div_approx_f32(a, b, in.ftz)
                     : div_f32(a, b, m);
    case FloatOp::min:
      return min_f32(a, b, in.ftz, in.flag2);
    case FloatOp::max:
      return max_f32(a, b, in.ftz, in.flag2);
    case FloatOp::abs:
      return abs_f32(a, in.ftz);
    case FloatOp::neg:
      return neg_f32(a, in.ftz);
    case FloatOp::rcp:
      return in.flag ? rcp_approx_f32(a, in.ftz) : rcp_f32(a, m);
    case FloatOp::sqrt:
      return in.flag ? sqrt_approx_f32(a, in.ftz) : sqrt_f32(a, m);
    case FloatOp::rsqrt:
      return rsqrt_approx_f32(a, in.ftz);
    case FloatOp::ex2:
      return ex2_approx_f32(a, in.ftz);
    case FloatOp::lg2:
      return lg2_approx_f32(a, in.ftz);
    case FloatOp::sin:
      return sin_approx_f32(a, in.ftz);
    case FloatOp::cos:
      return cos_approx_f32(a, in.ftz);
    case FloatOp::tanh:
      return tanh_approx_f32(a);
  }
  return 0;
}
Step f32_exec(Warp& w, const Instr& in, u32 mask) {
  const float *a = f32(w, in.a), *b = f32(w, in.b.present ? in.b : in.a),
              *c = f32(w, in.c.present ? in.c : in.a);
  for (int i = 0; i < 32; ++i)
    if (mask >> i & 1) w.set(in.d, i, bits_of(scalar_f32(in, a[i], b[i], c[i])));
  return Step::next;
}

u16 scalar_half(const Instr& in, HalfType t, u16 a, u16 b, u16 c) {
  HalfMods m{in.ftz, in.sat, (in.value & 1) != 0};
  switch (static_cast<FloatOp>(in.sub)) {
    case FloatOp::add:
      return add_half(t, a, b, m);
    case FloatOp::sub:
      return sub_half(t, a, b, m);
    case FloatOp::mul:
      return mul_half(t, a, b, m);
    case FloatOp::fma:
      return fma_half(t, a, b, c, m);
    case FloatOp::min:
      return min_half(t, a, b, in.ftz, in.flag2);
    case FloatOp::max:
      return max_half(t, a, b, in.ftz, in.flag2);
    case FloatOp::abs:
      return a & 0x7fff;
    case FloatOp::neg:
      return a ^ 0x8000;
    case FloatOp::ex2:
      return ex2_approx_half(t, a, in.ftz);
    case FloatOp::tanh:
      return tanh_approx_half(t, a);
    default:
      return 0;
  }
}
Step half_exec(Warp& w, const Instr& in, u32 mask) {
  HalfType t = in.type == Type::f16 || in.type == Type::f16x2 ? HalfType::f16 : HalfType::bf16;
  bool packed = in.type == Type::f16x2 || in.type == Type::bf16x2;
  const u32 *a = w.u32_in(in.a), *b = w.u32_in(in.b.present ? in.b : in.a),
            *c = w.u32_in(in.c.present ? in.c : in.a);
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    auto f = [&](u16 x, u16 y, u16 z) { return scalar_half(in, t, x, y, z); };
    w.set(in.d, i,
          packed ? for_halves(f, a[i], b[i], c[i])
                 : u32{f(static_cast<u16>(a[i]), static_cast<u16>(b[i]), static_cast<u16>(c[i]))});
  }
  return Step::next;
}

double scalar_f64(const Instr& in, double a, double b, double c) {
  switch (static_cast<FloatOp>(in.sub)) {
    case FloatOp::add:
      return a + b;
    case FloatOp::sub:
      return a - b;
    case FloatOp::mul:
      return a * b;
    case FloatOp::fma:
      return std::fma(a, b, c);
    case FloatOp::div:
      return a / b;
    case FloatOp::min:
      return std::fmin(a, b);
    case FloatOp::max:
      return std::fmax(a, b);
    case FloatOp::abs:
      return std::fabs(a);
    case FloatOp::neg:
      return -a;
    case FloatOp::rcp:
      return 1.0 / a;
    case FloatOp::sqrt:
      return std::sqrt(a);
    default:
      return 0;
  }
}
Step f64_exec(Warp& w, const Instr& in, u32 mask) {
  auto lane = [&](const Operand& o, int i) { return double_of(w.get(o.present ? o : in.a, i)); };
  for (int i = 0; i < 32; ++i)
    if (mask >> i & 1)
      w.set(in.d, i, bits_of(scalar_f64(in, lane(in.a, i), lane(in.b, i), lane(in.c, i))));
  return Step::next;
}

int arity(FloatOp f) {
  if (f == FloatOp::fma) return 3;
  return f <= FloatOp::max ? 2 : 1;
}
bool approximate(FloatOp f) { return f >= FloatOp::rsqrt; }

Exec array_form(FloatOp f) {
  switch (f) {
    case FloatOp::add:
      return add_array;
    case FloatOp::sub:
      return sub_array;
    case FloatOp::mul:
      return mul_array;
    case FloatOp::fma:
      return fma_array;
    case FloatOp::min:
      return min_array;
    case FloatOp::max:
      return max_array;
    case FloatOp::ex2:
      return ex2_array;
    default:
      return nullptr;
  }
}

}  // namespace

bool decode_float_arithmetic(OpDecoder& op, FloatOp what) {
  bool any = false;
  for (const auto& q : op.ast.qualifiers)
    any |= q == "f16" || q == "f16x2" || q == "bf16" || q == "bf16x2" || q == "f32" || q == "f64";
  if (!any) return false;
  Instr& in = op.in;
  in.sub = static_cast<std::uint8_t>(what);
  std::string round = op.take_optional({"rn", "rz", "rm", "rp"});
  in.sub2 = static_cast<std::uint8_t>(round == "rz"   ? Round::rz
                                      : round == "rm" ? Round::rm
                                      : round == "rp" ? Round::rp
                                                      : Round::rn);
  if (what == FloatOp::div || what >= FloatOp::rcp) {
    in.flag = op.take("approx");
    if (what == FloatOp::div && op.take("full")) in.flag = in.flag2 = true;
    if (approximate(what) && !in.flag) op.fail("expected .approx");
    if (!in.flag && round.empty()) op.fail("expected .approx or a rounding such as .rn");
  }
  in.ftz = op.take("ftz");
  in.sat = op.take("sat");
  if (what == FloatOp::min || what == FloatOp::max) in.flag2 = op.take("NaN");
  if (op.take("relu")) in.value |= 1;
  if (what == FloatOp::fma && op.ast.opcode == "fma" && round.empty())
    op.fail("expected a rounding such as .rn");
  Type t = in.type = op.take_type(floats);
  int n = arity(what);
  op.count(n + 1, n + 1);
  in.d = op.dst(0, t), in.a = op.src(1, t);
  if (n > 1) in.b = op.src(2, t);
  if (n > 2) in.c = op.src(3, t);
  bool half = t != Type::f32 && t != Type::f64;
  if (half && (what == FloatOp::div || what == FloatOp::rcp || what == FloatOp::sqrt ||
               what == FloatOp::rsqrt || what == FloatOp::lg2 || what == FloatOp::sin ||
               what == FloatOp::cos))
    op.fail("this type is not implemented here");
  if (half && !round.empty() && round != "rn") op.fail("16-bit arithmetic rounds .rn only");
  if ((in.value & 1) && (!half || what != FloatOp::fma))
    op.fail(".relu belongs to 16-bit fma here");
  if (what == FloatOp::ex2 && (t == Type::f16 || t == Type::f16x2) && in.ftz)
    op.fail("ex2.approx.f16 takes no .ftz");
  if (what == FloatOp::ex2 && (t == Type::bf16 || t == Type::bf16x2) && !in.ftz)
    op.fail("ex2.approx.bf16 needs .ftz");
  if (what == FloatOp::tanh && in.ftz) op.fail("tanh.approx takes no .ftz");
  if (t == Type::f64 &&
      (in.ftz || in.sat || approximate(what) || in.flag || (!round.empty() && round != "rn")))
    op.fail("this f64 form is not implemented");
  in.work = what >= FloatOp::rcp || (what == FloatOp::div) ? Work::mufu
            : what <= FloatOp::fma                         ? Work::fma
                                                           : Work::alu;
  in.exec = half ? half_exec : t == Type::f64 ? f64_exec : f32_exec;
  bool plain = t == Type::f32 && !in.sat && static_cast<Round>(in.sub2) == Round::rn &&
               !((what == FloatOp::min || what == FloatOp::max) && in.flag2);
  if (plain && array_form(what)) in.exec = array_form(what);
  return true;
}

namespace {

template <FloatOp F>
void only_float(OpDecoder& op) {
  if (!decode_float_arithmetic(op, F)) op.fail("expected a floating-point type");
}

// copysign a, b: magnitude of b, sign of a (PTX ISA, copysign).
void copysign(OpDecoder& op) {
  op.take_type({Type::f32});
  op.count(3, 3);
  op.in.work = Work::alu;
  op.in.d = op.dst(0, Type::f32), op.in.a = op.src(1, Type::f32), op.in.b = op.src(2, Type::f32);
  op.in.exec =
      lanes2<[](u32 a, u32 b) { return (a & 0x80000000u) | (b & 0x7fffffffu); }, u32, u32, u32>;
}
void testp(OpDecoder& op) {
  std::string what = op.take_one_of(
      {"finite", "infinite", "number", "notanumber", "normal", "subnormal"}, "a test");
  op.take_type({Type::f32});
  op.count(2, 2);
  op.in.d = op.dst(0, Type::pred), op.in.a = op.src(1, Type::f32);
  op.in.sub = what == "finite"       ? 0
              : what == "infinite"   ? 1
              : what == "number"     ? 2
              : what == "notanumber" ? 3
              : what == "normal"     ? 4
                                     : 5;
  op.in.exec = [](Warp& w, const Instr& in, u32 mask) {
    u32 r = 0;
    for (int i = 0; i < 32; ++i) {
      u32 magnitude = w.u32_in(in.a)[i] & 0x7fffffffu;
      bool yes = false;
      switch (in.sub) {
        case 0:
          yes = magnitude < 0x7f800000u;
          break;
        case 1:
          yes = magnitude == 0x7f800000u;
          break;
        case 2:
          yes = magnitude <= 0x7f800000u;
          break;
        case 3:
          yes = magnitude > 0x7f800000u;
          break;
        case 4:
          yes = magnitude >= 0x00800000u && magnitude < 0x7f800000u;
          break;
        default:
          yes = magnitude > 0 && magnitude < 0x00800000u;
      }
      r |= static_cast<u32>(yes) << i;
    }
    w.set_pred(in.d, mask, r);
    return Step::next;
  };
}

}  // namespace

void register_float_ops(OpTable& t) {
  t["fma"] = only_float<FloatOp::fma>;
  t["rcp"] = only_float<FloatOp::rcp>;
  t["sqrt"] = only_float<FloatOp::sqrt>;
  t["rsqrt"] = only_float<FloatOp::rsqrt>;
  t["ex2"] = only_float<FloatOp::ex2>;
  t["lg2"] = only_float<FloatOp::lg2>;
  t["sin"] = only_float<FloatOp::sin>;
  t["cos"] = only_float<FloatOp::cos>;
  t["tanh"] = only_float<FloatOp::tanh>;
  t["copysign"] = copysign;
  t["testp"] = testp;
}

}  // namespace flashptx::emulator
